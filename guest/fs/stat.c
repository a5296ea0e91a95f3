#include "fs/stat.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/path.h"
#include "fs/list_order.h"
#include "fs/walk.h"

#define NAME_BUF_BYTES 16384

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
    char buf[NAME_BUF_BYTES / 2];
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
    char buf[NAME_BUF_BYTES / 2];
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

/* A file that can't be read has no tag; the call succeeds. */
static int fill_tag(struct fs_info *i, int fd, struct err *e)
{
    if (fd < 0)
        return 0;
    return fs_etag(fd, &i->st, i->etag, e);
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
    if (r == 0 && o->etag && S_ISREG(i->st.st_mode) &&
        fs_open(c, path, O_RDONLY, 0, &readable, NULL) == 0)
        r = fill_tag(i, readable, e);
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

/* ---- list ------------------------------------------------------------------------------------ */

static int add_entry(struct fs_listing *l, size_t *cap, struct fs_info **ret, struct err *e)
{
    if (l->n_entries == *cap) {
        size_t next = *cap ? *cap * 2 : 64;
        struct fs_info *grown = realloc(l->entries, next * sizeof(*grown));

        if (!grown)
            return err_oom(e);
        l->entries = grown;
        *cap = next;
    }
    *ret = &l->entries[l->n_entries++];
    **ret = (struct fs_info){0};
    return 0;
}

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
        (void)fill_tag(i, fd, &i->error);
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
                    const struct fs_list_options *o, struct fs_owners *names, struct fs_listing *l,
                    bool *more, struct err *e)
{
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
    if (!list_order_wants(order, l, o->limit, &i)) {
        *more |= !order->last || list_order_compare(order, &i, order->last) > 0;
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
    list_order_put(order, l, o->limit, &i);
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
    int r = list_order_init(&order, dir, o, e);

    if (r < 0)
        return r;
    l->entries = calloc(o->limit, sizeof(*l->entries));
    if (!l->entries)
        r = err_oom(e);
    while (r == 0 && (r = fs_walk_next(w, &it, e)) > 0)
        r = is_passed_over(w, it, o) ? 0 : list_one(&order, it, dir, o, &names, l, &more, e);
    if (r == 0)
        list_order_finish(&order, l);
    if (r == 0 && more && !(l->next = list_order_cursor(&order, &l->entries[l->n_entries - 1])))
        r = err_oom(e);
    list_order_done(&order);
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
        r = add_entry(l, &cap, &entry, e);
        if (r == 0)
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
