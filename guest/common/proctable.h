#pragma once
/*
 * proctable: a snapshot of the processes of this machine, and a set of members among them. The caller marks the members
 * it can prove; proctable_add_descendants() adds their children. One thread at a time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"
#include "common/process.h"

struct proctable_row {
    struct process_stat stat;
    bool is_barred;    /* set by the caller: never a member */
    bool is_member;    /* set by the caller, or by proctable_add_descendants() */
    bool was_signaled; /* set by the caller */
};

struct proctable {
    struct proctable_row *rows; /* by pid, ascending */
    size_t n, cap;
};

/*
 * Reads all processes except the caller and pid 1; with_ended: also zombies. ERR_EXHAUSTED: more than max_rows, or no
 * descriptors. *t must be empty or from an earlier read; it is replaced on success only.
 */
int proctable_read(struct proctable *t, bool with_ended, size_t max_rows, struct err *e);
void proctable_done(struct proctable *t); /* leaves an empty table */

struct proctable_row *proctable_find(const struct proctable *t, pid_t pid); /* NULL: not there */
/* Copies is_member and was_signaled of processes that are in an earlier table too. */
void proctable_keep_members(struct proctable *t, const struct proctable *earlier);
/*
 * Makes the descendants of members members. A parent's pid proves nothing by itself (it may have been reused since
 * it was read), so parent and child are read again.
 */
void proctable_add_descendants(struct proctable *t);
size_t proctable_count_members(const struct proctable *t);
