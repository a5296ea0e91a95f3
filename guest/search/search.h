#pragma once
/*
 * search: grep over a tree or one file, with two workers, limits, and an exact list of what could not be
 * read.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "search/grep.h"
#include "search/match.h"
#include "search/order.h"
#include "search/tree.h"

#define SEARCH_MAX_EXPLOSIONS 16 /* so many files that reach PCRE2's limits end the search */

struct search_options {
    struct tree_options tree;
    struct match_options match;
    struct grep_options grep;
    struct order order;
    uint64_t skip;        /* results of the file order.after that the caller already has */
    uint64_t max_results; /* of all files together; 0: no limit */
};

struct search_result {
    uint64_t n_results;
    uint64_t n_files; /* searched */
    uint64_t n_files_matched;
    uint64_t n_files_binary; /* searched only up to a NUL byte */
    uint64_t n_bytes;
    bool limit_reached; /* stopped at max_results: there may be more */
    /* With limit_reached and an order: continue in this file (owned, free() its path), after so many of its
     * results. */
    struct order_place last;
    uint64_t n_of_last;
};

struct search_sink {
    /* Never two at once. The results of one file come in order. */
    int (*result)(void *arg, const char *path, const struct grep_result *r, struct err *e);
    bool (*is_gone)(void *arg); /* may be NULL */
    void *arg;
};

/*
 * fd: a directory, or a regular file, to which no rules apply. Files that fail become notes. The result is set
 * also on failure.
 */
int search_run(int fd, const struct search_options *o, const struct tree_access *access,
               const struct search_sink *sink, struct notes *notes, struct search_result *ret,
               struct err *e);
