#pragma once
/*
 * proctable: the processes of this machine in one look, and which of them belong together. The caller
 * marks the members it can prove; proctable_add_descendants() adds their children. One thread at a time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"
#include "common/process.h"

struct proctable_row {
    struct process_stat stat;
    bool is_barred; /* the caller's: never a member */
    bool is_member; /* the caller's for the first, proctable_add_descendants()'s for the others */
    bool was_signaled; /* the caller's */
};

struct proctable {
    struct proctable_row *rows; /* by pid, ascending */
    size_t n, cap;
};

/*
 * Reads every process that has not ended, but for the caller and pid 1. ERR_EXHAUSTED: there are more than
 * max_rows, or no descriptors. *t must be empty or from an earlier read; it is replaced on success only.
 */
int proctable_read(struct proctable *t, size_t max_rows, struct err *e);
void proctable_done(struct proctable *t); /* leaves an empty one */

struct proctable_row *proctable_find(const struct proctable *t, pid_t pid); /* NULL: not there */
/* Processes that were members in an earlier table still are; they keep was_signaled, too. */
void proctable_keep_members(struct proctable *t, const struct proctable *earlier);
/*
 * Makes children of members members, theirs too, and so on. A parent's number proves nothing by itself (it
 * may have been used again since it was read), so parent and child are read once more.
 */
void proctable_add_descendants(struct proctable *t);
size_t proctable_count_members(const struct proctable *t);
