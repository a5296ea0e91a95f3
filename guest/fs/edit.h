#pragma once
/*
 * edit: exact replacements in a file, all or none. Edits apply in order, each to the result of the
 * one before; a count that is not the expected one fails the whole and names edits[i]. The reply
 * has a unified diff. Writes as fs/write.h does, under the path's lock, only if the file is still
 * the one that was read.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "fs/etag.h"
#include "fs/root.h"

#define FS_EDIT_MAX_FILE (64u << 20)
#define FS_EDIT_MAX_EDITS 1000
#define FS_EDIT_DIFF_MAX (1u << 20) /* a longer diff is left out and the reply says so */
#define FS_EDIT_CONTEXT 3

struct fs_edit {
    const char *old_data; /* not empty, unless the file is new or empty */
    size_t old_len;
    const char *new_data;
    size_t new_len;
    bool all;       /* replace every occurrence; else exactly `count` of them must be there */
    uint32_t count; /* with all: 0, or how many there must be */
};

struct fs_edit_options {
    const struct fs_edit *edits;
    size_t n_edits;
    bool create;  /* a missing file counts as empty */
    bool dry_run; /* only the diff */
    struct fs_condition condition;
};

struct fs_edit_result {
    uint64_t replaced; /* occurrences, over all edits */
    bool created;
    bool in_place;
    char *diff; /* owned: free(); NULL when too long */
    size_t diff_len;
    char etag[FS_ETAG_BYTES];
    uint64_t bytes; /* the new size */
};

int fs_edit_file(struct fs_caller *c, const char *path, const struct fs_edit_options *o,
                 struct fs_edit_result *ret, struct err *e);

/* A unified diff ("--- a/NAME", "+++ b/NAME", hunks), "" when equal. -ERR_EXHAUSTED past max. */
int fs_diff(const char *name, const char *a, size_t a_len, const char *b, size_t b_len, size_t max,
            char **ret, size_t *ret_len, struct err *e);
