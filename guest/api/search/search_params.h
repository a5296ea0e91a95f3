#pragma once
/* search_params: the requests of Glob and Grep, decoded and checked. */
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

    const char *pattern;
    char *path; /* owned, as the lists */
    const char *user;
    char **globs, **iglobs, **exclude;
    char **types, **type_not, **type_add;
    bool hidden;
    bool no_ignore, no_ignore_vcs, no_ignore_parent;
    bool follow, one_file_system;
    uint32_t min_depth, max_depth;
    uint64_t max_filesize;
    uint64_t limit;
    unsigned sort; /* enum order_by */
    bool reverse;
    const char *cursor;
    struct order_place after; /* what the cursor says; owned */
    uint64_t skip;
    uint64_t fingerprint; /* of the request without its cursor and limit */
    unsigned letters;     /* enum match_case */

    /* Glob */
    unsigned kind;  /* enum glob_kind */
    unsigned found; /* bits of enum search_type; 0: all */
    bool full_path;
    char **extensions;
    uint64_t min_size, max_size;
    int64_t changed_after_ms, changed_before_ms, changed_within_ms;

    /* Grep */
    char **patterns;
    uint32_t context, before, after_lines;
    uint64_t max_per_file;
    unsigned mode;     /* enum grep_mode */
    unsigned binary;   /* enum grep_binary */
    unsigned encoding; /* enum window_encoding */
    bool fixed, word, line, invert, multiline, dotall, crlf, only_matching;
    const char *replace;
    uint32_t max_columns;
};

enum search_type {
    SEARCH_FILE = 1 << TREE_FILE,
    SEARCH_DIR = 1 << TREE_DIR,
    SEARCH_SYMLINK = 1 << TREE_SYMLINK,
    SEARCH_OTHER = 1 << TREE_OTHER,
    SEARCH_EXECUTABLE = 1 << (TREE_OTHER + 1),
    SEARCH_EMPTY = 1 << (TREE_OTHER + 2),
};

const char *search_type_name(enum tree_type type);

int search_params_new(const struct rpc_call *call, bool is_glob, struct search_params **ret,
                      struct err *e);
void search_params_free(void *p); /* a struct search_params; accepts NULL */

/* A cursor that goes on behind `last` and the first `skip` results of it; owned by the caller. */
int search_cursor_new(const struct search_params *p, const struct order_place *last, uint64_t skip,
                      char **ret, struct err *e);
