#pragma once
/* search_params: the requests of Glob and Grep, decoded into the options of guest/search. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/rpc.h"
#include "search/glob.h"
#include "search/search.h"

struct search_params {
    json_t *source; /* a reference: strings below are borrowed from it */
    const struct agent *agent;
    bool is_glob;
    char *path; /* owned, as the lists of the options */
    const char *user;
    const char *cursor;
    uint64_t fingerprint;       /* of the request without its cursor and limit */
    uint32_t context;           /* the default of grep.grep.before and after */
    struct glob_options glob;   /* with is_glob */
    struct search_options grep; /* without */
};

const char *search_type_name(enum tree_type type); /* "directory" */

int search_params_new(const struct rpc_call *call, bool is_glob, struct search_params **ret,
                      struct err *e);
void search_params_free(void *p); /* a struct search_params; accepts NULL */

/* The options of the walk, which Glob and Grep have in common. */
struct tree_options *search_params_tree(struct search_params *p);

/* A cursor that continues after `last` and the first `skip` results of it; owned by the caller. */
int search_cursor_new(const struct search_params *p, const struct order_place *last, uint64_t skip,
                      char **ret, struct err *e);
