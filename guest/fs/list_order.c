#include "fs/list_order.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"

#define KEY_BYTES 64

/* ---- order ----------------------------------------------------------------------------------- */

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_times(const struct timespec *a, const struct timespec *b)
{
    int c = compare_numbers(a->tv_sec, b->tv_sec);

    return c ? c : compare_numbers(a->tv_nsec, b->tv_nsec);
}

/* Compares component by component, as the walk does: "a/b" before "a.b". */
static int compare_paths(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    if (*a == '/' || *b == '/')
        return !*a ? -1 : !*b ? 1 : *a == '/' ? -1 : 1;
    return (unsigned char)*a - (unsigned char)*b;
}

static const char *path_below(const struct list_order *o, const struct fs_info *i)
{
    return i->path + o->dir_len;
}

static int compare_keys(const struct list_order *o, const struct fs_info *a,
                        const struct fs_info *b)
{
    switch (o->sort) {
    case FS_LIST_BY_PATH:
        return compare_paths(path_below(o, a), path_below(o, b));
    case FS_LIST_BY_NAME:
        return strcmp(path_name(a->path), path_name(b->path));
    case FS_LIST_BY_SIZE:
        return compare_numbers(a->st.st_size, b->st.st_size);
    case FS_LIST_BY_MTIME:
        return compare_times(&a->st.st_mtim, &b->st.st_mtim);
    }
    return 0;
}

int list_order_compare(const struct list_order *o, const struct fs_info *a, const struct fs_info *b)
{
    int c = o->directories_first ? S_ISDIR(b->st.st_mode) - S_ISDIR(a->st.st_mode) : 0;

    if (c == 0)
        c = o->reverse ? compare_keys(o, b, a) : compare_keys(o, a, b);
    return c ? c : compare_paths(path_below(o, a), path_below(o, b));
}

/* ---- the first so many: a heap with the last of them on top
 * ----------------------------------- */

static void heap_swap(struct fs_info *a, struct fs_info *b)
{
    struct fs_info t = *a;

    *a = *b;
    *b = t;
}

static void heap_sink(const struct list_order *o, struct fs_info *v, size_t n, size_t at)
{
    for (;;) {
        size_t child = at * 2 + 1;

        if (child >= n)
            return;
        if (child + 1 < n && list_order_compare(o, &v[child], &v[child + 1]) < 0)
            child++;
        if (list_order_compare(o, &v[at], &v[child]) >= 0)
            return;
        heap_swap(&v[at], &v[child]);
        at = child;
    }
}

bool list_order_wants(const struct list_order *o, const struct fs_listing *l, size_t limit,
                      const struct fs_info *i)
{
    if (o->last && list_order_compare(o, i, o->last) <= 0)
        return false;
    return l->n_entries < limit || list_order_compare(o, i, &l->entries[0]) < 0;
}

void list_order_put(const struct list_order *o, struct fs_listing *l, size_t limit,
                    struct fs_info *i)
{
    size_t at = l->n_entries;

    if (l->n_entries == limit) {
        fs_info_done(&l->entries[0]);
        l->entries[0] = *i;
        heap_sink(o, l->entries, limit, 0);
        return;
    }
    l->entries[l->n_entries++] = *i;
    for (; at && list_order_compare(o, &l->entries[at], &l->entries[(at - 1) / 2]) > 0;
         at = (at - 1) / 2)
        heap_swap(&l->entries[at], &l->entries[(at - 1) / 2]);
}

void list_order_finish(const struct list_order *o, struct fs_listing *l)
{
    for (size_t n = l->n_entries; n > 1; n--) {
        heap_swap(&l->entries[0], &l->entries[n - 1]);
        heap_sink(o, l->entries, n - 1, 0);
    }
}

/* ---- cursors: "d12/a/b" is the directory a/b of size 12; "f1700000000.000000005/x"
 * ------------- */

char *list_order_cursor(const struct list_order *o, const struct fs_info *last)
{
    char key[KEY_BYTES] = "", *cursor;

    if (o->sort == FS_LIST_BY_SIZE)
        (void)snprintf(key, sizeof(key), "%" PRId64, (int64_t)last->st.st_size);
    else if (o->sort == FS_LIST_BY_MTIME)
        (void)snprintf(key, sizeof(key), "%" PRId64 ".%09ld", (int64_t)last->st.st_mtim.tv_sec,
                       last->st.st_mtim.tv_nsec);
    if (asprintf(&cursor, "%c%s/%s", S_ISDIR(last->st.st_mode) ? 'd' : 'f', key,
                 path_below(o, last)) < 0)
        return NULL;
    return cursor;
}

static int parse_key(const struct list_order *o, char *key, struct stat *st)
{
    char *dot = strchr(key, '.');
    int64_t n = 0, ns = 0;

    if (o->sort == FS_LIST_BY_PATH || o->sort == FS_LIST_BY_NAME)
        return *key ? -1 : 0;
    if ((o->sort == FS_LIST_BY_MTIME) != (dot != NULL))
        return -1;
    if (dot)
        *dot++ = '\0';
    if (str_parse_i64(key, INT64_MIN, INT64_MAX, &n, NULL) < 0 ||
        (dot && str_parse_i64(dot, 0, 999999999, &ns, NULL) < 0))
        return -1;
    st->st_size = n;
    if (dot)
        st->st_mtim = (struct timespec){.tv_sec = n, .tv_nsec = (long)ns};
    return 0;
}

static int parse_cursor(struct list_order *o, const char *dir, const char *cursor, struct err *e)
{
    _cleanup_free_ char *copy = strdup(cursor);
    char *rel = copy ? strchr(copy, '/') : NULL;

    o->last = calloc(1, sizeof(*o->last));
    if (!copy || !o->last)
        return err_oom(e);
    o->last->st.st_mode = copy[0] == 'd' ? S_IFDIR : S_IFREG;
    if (rel)
        *rel++ = '\0';
    if (!rel || !*rel || *rel == '/' || (copy[0] != 'd' && copy[0] != 'f') ||
        parse_key(o, copy + 1, &o->last->st) < 0)
        return err_field(e, ERR_INVALID, "cursor", "the cursor is of no reply in this order");
    o->last->path = path_join(dir, rel);
    return o->last->path ? 0 : err_oom(e);
}

int list_order_init(struct list_order *o, const char *dir, const struct fs_list_options *lo,
                    struct err *e)
{
    size_t n = strlen(dir);
    int r;

    *o = (struct list_order){.sort = lo->sort,
                             .reverse = lo->reverse,
                             .directories_first = lo->directories_first,
                             .dir_len = n && dir[n - 1] == '/' ? n : n + 1};
    if (!lo->after)
        return 0;
    r = parse_cursor(o, dir, lo->after, e);
    if (r < 0)
        list_order_done(o);
    return r;
}

void list_order_done(struct list_order *o)
{
    if (o->last)
        fs_info_done(o->last);
    free(o->last);
    o->last = NULL;
}
