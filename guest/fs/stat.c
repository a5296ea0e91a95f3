#include "fs/stat.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/mem.h"
#include "common/path.h"
#include "common/str.h"
#include "fs/walk.h"

#define NAME_BUF_BYTES 8192
#define KEY_BYTES 64 /* of a cursor */

const char *fs_type_name(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "directory";
    case S_IFLNK:
        return "symlink";
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    case S_IFBLK:
        return "block";
    case S_IFCHR:
        return "char";
    default:
        return "unknown";
    }
}

const char *fs_owners_user(struct fs_owners *o, uid_t uid)
{
    char buf[NAME_BUF_BYTES];
    struct passwd pw, *found = NULL;

    if (o->has_user && o->uid == uid)
        return o->user;
    (void)getpwuid_r(uid, &pw, buf, sizeof(buf), &found);
    (void)snprintf(o->user, sizeof(o->user), "%s", found ? pw.pw_name : "");
    o->has_user = true;
    o->uid = uid;
    return o->user;
}

const char *fs_owners_group(struct fs_owners *o, gid_t gid)
{
    char buf[NAME_BUF_BYTES];
    struct group gr, *found = NULL;

    if (o->has_group && o->gid == gid)
        return o->group;
    (void)getgrgid_r(gid, &gr, buf, sizeof(buf), &found);
    (void)snprintf(o->group, sizeof(o->group), "%s", found ? gr.gr_name : "");
    o->has_group = true;
    o->gid = gid;
    return o->group;
}

/* dirfd and name: the entry; or name "" and a descriptor of it. */
static int fill_target(struct fs_info *i, int dirfd, const char *name, struct err *e)
{
    char target[PATH_MAX];
    ssize_t n;

    if (!S_ISLNK(i->st.st_mode))
        return 0;
    n = readlinkat(dirfd, name, target, sizeof(target) - 1);
    if (n < 0)
        return err_sys(e, errno, "read the link '%s'", i->path);
    i->target = strndup(target, (size_t)n);
    return i->target ? 0 : err_oom(e);
}

static void fill_owner(struct fs_info *i, struct fs_owners *n)
{
    (void)memcpy(i->user, fs_owners_user(n, i->st.st_uid), sizeof(i->user));
    (void)memcpy(i->group, fs_owners_group(n, i->st.st_gid), sizeof(i->group));
}

void fs_info_done(struct fs_info *i)
{
    if (!i)
        return;
    free(i->path);
    free(i->target);
    i->path = i->target = NULL;
}

static int stat_open(struct fs_caller *c, const char *path, const struct fs_stat_options *o,
                     struct fs_info *i, struct err *e)
{
    _cleanup_close_ int fd = -1;
    _cleanup_close_ int readable = -1;
    int r;

    r = fs_open(c, path, o->follow ? O_PATH : O_PATH | O_NOFOLLOW, 0, &fd, e);
    if (r < 0)
        return r;
    if (fstat(fd, &i->st) < 0)
        return err_at(e, err_sys(e, errno, "stat '%s'", path), "path");
    r = fill_target(i, fd, "", e);
    /* A file that can't be read has no tag; the call succeeds. */
    if (r == 0 && o->etag && S_ISREG(i->st.st_mode) &&
        fs_open(c, path, O_RDONLY, 0, &readable, NULL) == 0)
        r = fs_etag(readable, &i->st, i->etag, e);
    return r;
}

int fs_stat(struct fs_caller *c, const char *path, const struct fs_stat_options *o,
            struct fs_info *ret, struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    struct fs_info i = {0};
    struct fs_owners n = {0};
    int r;

    r = fs_act(&c->actor, &acting, e);
    if (r < 0)
        return r;
    i.path = strdup(path);
    r = i.path ? stat_open(c, path, o, &i, e) : err_oom(e);
    if (r < 0) {
        fs_info_done(&i);
        return r;
    }
    fill_owner(&i, &n);
    *ret = i;
    return 0;
}

/* ---- the order of a list ---------------------------------------------------------------------- */

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_times(const struct timespec *a, const struct timespec *b)
{
    int c = compare_numbers(a->tv_sec, b->tv_sec);

    return c ? c : compare_numbers(a->tv_nsec, b->tv_nsec);
}

static int compare_keys(enum fs_list_sort sort, size_t dir_len, const struct fs_info *a,
                        const struct fs_info *b)
{
    switch (sort) {
    case FS_LIST_BY_PATH:
        return path_compare(a->path + dir_len, b->path + dir_len);
    case FS_LIST_BY_NAME:
        return strcmp(path_name(a->path), path_name(b->path));
    case FS_LIST_BY_SIZE:
        return compare_numbers(a->st.st_size, b->st.st_size);
    case FS_LIST_BY_MTIME:
        return compare_times(&a->st.st_mtim, &b->st.st_mtim);
    }
    return 0;
}

int fs_list_compare(const struct fs_list_options *o, size_t dir_len, const struct fs_info *a,
                    const struct fs_info *b)
{
    int c = o->directories_first ? S_ISDIR(b->st.st_mode) - S_ISDIR(a->st.st_mode) : 0;

    if (c == 0)
        c = o->reverse ? compare_keys(o->sort, dir_len, b, a)
                       : compare_keys(o->sort, dir_len, a, b);
    return c ? c : path_compare(a->path + dir_len, b->path + dir_len);
}

/* The first entries behind a cursor are kept while the tree is walked; others are dropped at once, so that memory
 * is bounded by the limit, not by the tree. */
struct list_order {
    const struct fs_list_options *o;
    size_t dir_len;       /* length of the prefix of an entry's path that names the directory */
    struct fs_info *last; /* from the cursor; NULL: from the start */
};

static int order_compare(const struct list_order *o, const struct fs_info *a,
                         const struct fs_info *b)
{
    return fs_list_compare(o->o, o->dir_len, a, b);
}

/* ---- the first so many: a heap with the last of them on top ------------------------------------ */

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
        if (child + 1 < n && order_compare(o, &v[child], &v[child + 1]) < 0)
            child++;
        if (order_compare(o, &v[at], &v[child]) >= 0)
            return;
        heap_swap(&v[at], &v[child]);
        at = child;
    }
}

/* Whether the entry is behind the cursor and before the last of a full listing. */
static bool order_wants(const struct list_order *o, const struct fs_listing *l,
                        const struct fs_info *i)
{
    if (o->last && order_compare(o, i, o->last) <= 0)
        return false;
    return l->n_entries < o->o->limit || order_compare(o, i, &l->entries[0]) < 0;
}

/* Takes the entry; forgets the last of a full listing, which is then no longer whole. */
static void order_put(const struct list_order *o, struct fs_listing *l, struct fs_info *i)
{
    size_t at = l->n_entries;

    if (l->n_entries == o->o->limit) {
        fs_info_done(&l->entries[0]);
        l->entries[0] = *i;
        heap_sink(o, l->entries, l->n_entries, 0);
        return;
    }
    l->entries[l->n_entries++] = *i;
    for (; at && order_compare(o, &l->entries[at], &l->entries[(at - 1) / 2]) > 0;
         at = (at - 1) / 2)
        heap_swap(&l->entries[at], &l->entries[(at - 1) / 2]);
}

/* Sorts the entries, which are in no order until then. */
static void order_finish(const struct list_order *o, struct fs_listing *l)
{
    for (size_t n = l->n_entries; n > 1; n--) {
        heap_swap(&l->entries[0], &l->entries[n - 1]);
        heap_sink(o, l->entries, n - 1, 0);
    }
}

/* A cursor has the last entry's key and path, so it means the same place when entries come and go: "d12/a/b" is
 * the directory a/b of size 12, "f1700000000.000000005/x" a file of that time. */
static char *order_cursor(const struct list_order *o, const struct fs_info *last)
{
    char key[KEY_BYTES] = "", *cursor;

    if (o->o->sort == FS_LIST_BY_SIZE)
        (void)snprintf(key, sizeof(key), "%" PRId64, (int64_t)last->st.st_size);
    else if (o->o->sort == FS_LIST_BY_MTIME)
        (void)snprintf(key, sizeof(key), "%" PRId64 ".%09ld", (int64_t)last->st.st_mtim.tv_sec,
                       last->st.st_mtim.tv_nsec);
    if (asprintf(&cursor, "%c%s/%s", S_ISDIR(last->st.st_mode) ? 'd' : 'f', key,
                 last->path + o->dir_len) < 0)
        return NULL;
    return cursor;
}

static int parse_key(const struct list_order *o, char *key, struct stat *st)
{
    char *dot = strchr(key, '.');
    int64_t n = 0, ns = 0;

    if (o->o->sort == FS_LIST_BY_PATH || o->o->sort == FS_LIST_BY_NAME)
        return *key ? -1 : 0;
    if ((o->o->sort == FS_LIST_BY_MTIME) != (dot != NULL))
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

/* dir: as the entries' paths begin. */
static int order_init(struct list_order *o, const char *dir, const struct fs_list_options *lo,
                      struct err *e)
{
    size_t n = strlen(dir);

    *o = (struct list_order){.o = lo, .dir_len = n && dir[n - 1] == '/' ? n : n + 1};
    return lo->after ? parse_cursor(o, dir, lo->after, e) : 0;
}

static void order_done(struct list_order *o)
{
    fs_info_done(o->last);
    free(o->last);
}

/* ---- list ------------------------------------------------------------------------------------ */

static int fill_entry(struct fs_info *i, const char *dir, const struct fs_walk_item *it,
                      bool with_etag, struct fs_owners *n, struct err *e)
{
    _cleanup_close_ int fd = -1;
    int r;

    i->path = path_join(dir, it->path);
    if (!i->path)
        return err_oom(e);
    i->st = it->st;
    i->error = it->error;
    if (it->kind == FS_WALK_ERROR)
        return 0;
    fill_owner(i, n);
    /* A failure here (the entry was removed, say) is the entry's own error. */
    r = fill_target(i, it->dirfd, it->name, &i->error);
    if (r == 0 && with_etag && S_ISREG(i->st.st_mode)) {
        fd = fs_openat_nofollow(it->dirfd, it->name, O_RDONLY);
        if (fd >= 0)
            (void)fs_etag(fd, &i->st, i->etag, &i->error);
    }
    return 0;
}

/* An error may belong to the directory that was listed just before it. */
static bool note_error(struct fs_listing *l, const struct fs_walk_item *it, const char *dir)
{
    struct fs_info *last = l->n_entries ? &l->entries[l->n_entries - 1] : NULL;
    _cleanup_free_ char *path = NULL;

    if (it->kind != FS_WALK_ERROR || !last)
        return false;
    path = path_join(dir, it->path);
    if (!path || strcmp(last->path, path) != 0)
        return false;
    last->error = it->error;
    return true;
}

static bool is_passed_over(struct fs_walk *w, const struct fs_walk_item *it,
                           const struct fs_list_options *o)
{
    if (it->depth == 0 || it->kind == FS_WALK_LEAVE)
        return true;
    if (o->no_hidden && it->name[0] == '.') {
        fs_walk_skip(w);
        return true;
    }
    return it->kind == FS_WALK_ERROR && it->error.sys == ENOENT; /* removed while we looked */
}

/* The error of a directory that is being listed comes right behind it. */
static void note_in_order(struct fs_listing *l, const struct fs_walk_item *it, const char *path)
{
    for (size_t i = 0; i < l->n_entries; i++)
        if (strcmp(l->entries[i].path, path) == 0)
            l->entries[i].error = it->error;
}

static int list_one(const struct list_order *order, const struct fs_walk_item *it, const char *dir,
                    struct fs_owners *names, struct fs_listing *l, bool *more, struct err *e)
{
    const struct fs_list_options *o = order->o;
    struct fs_info i = {.st = it->st};
    int r;

    i.path = path_join(dir, it->path);
    if (!i.path)
        return err_oom(e);
    if (it->kind == FS_WALK_ERROR && S_ISDIR(it->st.st_mode)) {
        note_in_order(l, it, i.path);
        fs_info_done(&i);
        return 0;
    }
    if (!order_wants(order, l, &i)) {
        *more |= !order->last || order_compare(order, &i, order->last) > 0;
        fs_info_done(&i);
        return 0;
    }
    fs_info_done(&i);
    r = fill_entry(&i, dir, it, o->etag, names, e);
    if (r < 0) {
        fs_info_done(&i);
        return r;
    }
    *more |= l->n_entries == o->limit;
    order_put(order, l, &i);
    return 0;
}

/* For an order other than the walk's. */
static int list_in_order(struct fs_walk *w, const char *dir, const struct fs_list_options *o,
                         struct fs_listing *l, struct err *e)
{
    const struct fs_walk_item *it;
    struct fs_owners names = {0};
    struct list_order order;
    bool more = false;
    int r = order_init(&order, dir, o, e);

    if (r == 0)
        l->entries = calloc(o->limit, sizeof(*l->entries));
    if (r == 0 && !l->entries)
        r = err_oom(e);
    while (r == 0 && (r = fs_walk_next(w, &it, e)) > 0)
        r = is_passed_over(w, it, o) ? 0 : list_one(&order, it, dir, &names, l, &more, e);
    if (r == 0)
        order_finish(&order, l);
    if (r == 0 && more && !(l->next = order_cursor(&order, &l->entries[l->n_entries - 1])))
        r = err_oom(e);
    order_done(&order);
    return r;
}

static int list_walk(struct fs_walk *w, const char *dir, const struct fs_list_options *o,
                     struct fs_listing *l, struct err *e)
{
    const struct fs_walk_item *it;
    struct fs_owners names = {0};
    struct fs_info *entry;
    size_t cap = 0;
    int r;

    while ((r = fs_walk_next(w, &it, e)) > 0) {
        if (is_passed_over(w, it, o) || note_error(l, it, dir))
            continue;
        if (l->n_entries == o->limit) {
            const char *last = l->entries[l->n_entries - 1].path + strlen(dir);

            l->next = strdup(last + strspn(last, "/"));
            return l->next ? 0 : err_oom(e);
        }
        r = array_grow(&l->entries, &cap, l->n_entries + 1, o->limit, e);
        if (r < 0)
            return r;
        entry = &l->entries[l->n_entries++];
        *entry = (struct fs_info){0};
        r = fill_entry(entry, dir, it, o->etag, &names, e);
        if (r < 0)
            return r;
    }
    return r;
}

static int list_open(struct fs_caller *c, const char *path, const struct fs_list_options *o,
                     struct fs_listing *l, struct err *e)
{
    bool is_ordered = o->sort != FS_LIST_BY_PATH || o->reverse || o->directories_first;
    struct fs_walk_options wo = {.max_depth = o->depth, .after = is_ordered ? NULL : o->after};
    struct fs_walk *w = NULL;
    int fd, r;

    r = fs_open(c, path, O_RDONLY | O_DIRECTORY, 0, &fd, e);
    if (r < 0)
        return r;
    r = fs_walk_new_take(fd, &wo, &w, e);
    if (r == 0)
        r = is_ordered ? list_in_order(w, path, o, l, e) : list_walk(w, path, o, l, e);
    fs_walk_free(w);
    return r;
}

int fs_list(struct fs_caller *c, const char *path, const struct fs_list_options *o,
            struct fs_listing *ret, struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    struct fs_listing l = {0};
    int r;

    if (o->depth < 1 || o->depth > FS_LIST_MAX_DEPTH)
        return err_field(e, ERR_INVALID, "depth", "depth is from 1 to %d", FS_LIST_MAX_DEPTH);
    if (o->limit < 1 || o->limit > FS_LIST_MAX)
        return err_field(e, ERR_INVALID, "limit", "limit is from 1 to %d", FS_LIST_MAX);
    r = fs_act(&c->actor, &acting, e);
    if (r == 0)
        r = list_open(c, path, o, &l, e);
    if (r < 0) {
        fs_listing_done(&l);
        return r;
    }
    *ret = l;
    return 0;
}

void fs_listing_done(struct fs_listing *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n_entries; i++)
        fs_info_done(&l->entries[i]);
    free(l->entries);
    free(l->next);
    *l = (struct fs_listing){0};
}
