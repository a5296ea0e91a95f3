#include "common/proctable.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/str.h"

#define FIRST_ROWS 256

static int add_row(struct proctable *t, size_t max_rows, const struct process_stat *s,
                   struct err *e)
{
    if (t->n == max_rows)
        return err_set(e, ERR_EXHAUSTED, "more than %zu processes", max_rows);
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : FIRST_ROWS;
        struct proctable_row *rows = reallocarray(t->rows, cap, sizeof(*rows));

        if (!rows)
            return err_oom(e);
        t->rows = rows;
        t->cap = cap;
    }
    t->rows[t->n++] = (struct proctable_row){.stat = *s};
    return 0;
}

static int compare_rows(const void *a, const void *b)
{
    const struct proctable_row *x = a, *y = b;

    return (x->stat.pid > y->stat.pid) - (x->stat.pid < y->stat.pid);
}

/* A shortage of resources hides processes: the caller would take them for gone. */
static bool is_shortage(int sys)
{
    return sys == EMFILE || sys == ENFILE || sys == ENOMEM;
}

int proctable_read(struct proctable *t, bool with_ended, size_t max_rows, struct err *e)
{
    _cleanup_(proctable_done) struct proctable fresh = {0};
    _cleanup_closedir_ DIR *dir = opendir("/proc");
    struct proctable old;
    struct dirent *d;
    pid_t self = getpid();

    if (!dir)
        return err_sys(e, errno, "open '/proc'");
    while ((d = readdir(dir))) {
        struct process_stat s;
        uint64_t pid;
        int r = 0;

        if (d->d_name[0] < '1' || d->d_name[0] > '9' ||
            str_parse_u64(d->d_name, 2, INT32_MAX, &pid, NULL) < 0 || (pid_t)pid == self)
            continue;
        if (!process_read((pid_t)pid, &s))
            r = is_shortage(errno) ? err_sys(e, errno, "reading '/proc/%d/stat'", (pid_t)pid) : 0;
        else if (with_ended || !process_has_ended(&s))
            r = add_row(&fresh, max_rows, &s, e);
        if (r < 0)
            return r;
    }
    if (fresh.n)
        qsort(fresh.rows, fresh.n, sizeof(*fresh.rows), compare_rows);
    old = *t;
    *t = fresh;
    fresh = old;
    return 0;
}

void proctable_done(struct proctable *t)
{
    free(t->rows);
    *t = (struct proctable){0};
}

struct proctable_row *proctable_find(const struct proctable *t, pid_t pid)
{
    const struct proctable_row key = {.stat = {.pid = pid}};

    return t->n ? bsearch(&key, t->rows, t->n, sizeof(*t->rows), compare_rows) : NULL;
}

void proctable_keep_members(struct proctable *t, const struct proctable *earlier)
{
    for (size_t i = 0; i < t->n; i++) {
        struct proctable_row *row = &t->rows[i];
        const struct proctable_row *before = proctable_find(earlier, row->stat.pid);

        if (!before || !before->is_member || before->stat.start != row->stat.start)
            continue;
        row->is_member = true;
        row->was_signaled = before->was_signaled;
    }
}

static bool is_unchanged(const struct process_stat *s)
{
    struct process_stat now;

    return process_read(s->pid, &now) && now.start == s->start && now.parent == s->parent;
}

/*
 * Reads the parent after the child: if it is still the process of the table, its pid was not reused since then, and
 * the child's parent pid means this process.
 */
static bool is_child_of(const struct proctable_row *child, const struct proctable_row *parent)
{
    struct process_stat now;

    return is_unchanged(&child->stat) && process_read(parent->stat.pid, &now) &&
           now.start == parent->stat.start;
}

void proctable_add_descendants(struct proctable *t)
{
    bool is_growing = true;

    while (is_growing) {
        is_growing = false;
        for (size_t i = 0; i < t->n; i++) {
            struct proctable_row *row = &t->rows[i];
            const struct proctable_row *parent;

            if (row->is_member || row->is_barred)
                continue;
            parent = proctable_find(t, row->stat.parent);
            if (parent && parent->is_member && is_child_of(row, parent))
                row->is_member = is_growing = true;
        }
    }
}

size_t proctable_count_members(const struct proctable *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        n += t->rows[i].is_member;
    return n;
}
