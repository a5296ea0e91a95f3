#include "archive/manifest.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "archive/extract.h"
#include "archive/stage.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "fs/root.h"

/* ---- walk ------------------------------------------------------------------------------------ */

struct walk {
    const struct manifest_options *o;
    const struct manifest_sink *sink;
    struct manifest_counts counts;
};

static int add_digest(struct walk *w, const struct fs_walk_item *it, struct manifest_entry *m,
                      struct err *e)
{
    _cleanup_close_ int fd = -1;
    uint64_t bytes = 0;
    int r;

    m->has_digest = digest_known(&it->st, m->digest);
    if (m->has_digest)
        return 0;
    fd = fs_openat_nofollow(it->dirfd, it->name, O_RDONLY);
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", it->path);
    if (fstat(fd, &m->st) < 0)
        return err_sys(e, errno, "stat '%s'", it->path);
    if (!S_ISREG(m->st.st_mode))
        return err_set(e, ERR_ABORTED, "'%s' became something else", it->path);
    r = digest_file(fd, m->digest, &bytes, e);
    w->counts.hashed_bytes += bytes;
    m->has_digest = r == 0;
    return r;
}

static int manifest_give(struct walk *w, const struct fs_walk_item *it, struct err *e)
{
    struct manifest_entry m = {.path = it->path, .st = it->st};
    char target[PATH_MAX];
    struct err why = {0};
    int r = 0;

    if (S_ISLNK(it->st.st_mode)) {
        ssize_t n = readlinkat(it->dirfd, it->name, target, sizeof(target) - 1);

        if (n < 0)
            r = err_sys(&why, errno, "read the link");
        else
            target[n] = '\0';
        m.target = target;
    } else if (S_ISREG(it->st.st_mode)) {
        if (w->o->digests)
            r = add_digest(w, it, &m, &why);
        w->counts.files++;
        w->counts.bytes += (uint64_t)m.st.st_size;
    }
    if (r < 0)
        return w->sink->unread(w->sink->arg, it->path, &why, e);
    w->counts.entries++;
    return w->sink->entry(w->sink->arg, &m, e);
}

static int manifest_visit(struct walk *w, struct fs_walk *walk, struct filter *f,
                          const struct fs_walk_item *it, struct err *e)
{
    bool hidden;
    int r;

    if (it->kind == FS_WALK_ERROR)
        return w->sink->unread(w->sink->arg, it->path, &it->error, e);
    if (it->kind == FS_WALK_LEAVE)
        return 0;
    r = filter_see(f, it, &hidden, e);
    if (r < 0)
        return r;
    if (hidden) {
        fs_walk_skip(walk);
        return 0;
    }
    return it->depth ? manifest_give(w, it, e) : 0;
}

/* A rule that could not be read may have hidden something that was given. */
static int tell_of_rules(const struct notes *n, const struct manifest_sink *sink, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < n->n && r == 0; i++) {
        struct err why = {0};

        (void)err_set(&why, ERR_DENIED, "its rules were not applied: %s", n->list[i].error);
        r = sink->unread(sink->arg, n->list[i].path, &why, e);
    }
    return r;
}

int manifest_walk(struct fs_caller *c, const char *path, const struct manifest_options *o,
                  const struct manifest_sink *sink, struct manifest_counts *ret, struct err *e)
{
    struct fs_walk_options wo = {.max_depth = ARCHIVE_MAX_DEPTH, .deep_is_error = true};
    struct walk w = {.o = o, .sink = sink};
    const struct fs_walk_item *it;
    struct fs_walk *walk = NULL;
    struct filter *f = NULL;
    int fd, r;

    r = fs_open(c, path, O_RDONLY | O_DIRECTORY, 0, &fd, e);
    if (r < 0)
        return r;
    r = filter_new(c, path, fd, &o->filter, &f, e);
    if (r < 0)
        fd_close(fd);
    else
        r = fs_walk_new_take(fd, &wo, &walk, e);
    while (r == 0) {
        r = fs_walk_next(walk, &it, e);
        if (r <= 0)
            break;
        r = manifest_visit(&w, walk, f, it, e);
    }
    if (r == 0)
        r = tell_of_rules(filter_notes(f), sink, e);
    fs_walk_free(walk);
    filter_free(f);
    if (r == 0)
        *ret = w.counts;
    return r;
}

/* ---- check ----------------------------------------------------------------------------------- */

struct manifest_check {
    int fd;       /* the start */
    char *parent; /* the directory that parent_fd is, relative to fd; NULL: none */
    int parent_fd;
};

int manifest_check_new(struct fs_caller *c, const char *path, struct manifest_check **ret,
                       struct err *e)
{
    struct manifest_check *m = calloc(1, sizeof(*m));
    int r;

    if (!m)
        return err_oom(e);
    m->parent_fd = -1;
    r = fs_open(c, path, O_PATH | O_DIRECTORY, 0, &m->fd, e);
    if (r < 0) {
        free(m);
        return r;
    }
    *ret = m;
    return 0;
}

struct manifest_check *manifest_check_free(struct manifest_check *m)
{
    if (!m)
        return NULL;
    fd_close(m->parent_fd);
    fd_close(m->fd);
    free(m->parent);
    free(m);
    return NULL;
}

/* 1: entered; 0: there is no such directory. */
static int check_enter_dir(struct manifest_check *m, const char *dir, struct err *e)
{
    struct err why = {0};
    int fd, r;

    if (m->parent && strcmp(m->parent, dir) == 0)
        return 1;
    r = fs_open_below(m->fd, dir, false, &fd, &why);
    if (r < 0 && (why.sys == ENOENT || r == -ERR_INVALID))
        return 0; /* not there, or a link or a file is in its place */
    if (r < 0) {
        if (e)
            *e = why;
        return r;
    }
    fd_close(m->parent_fd);
    m->parent_fd = fd;
    free(m->parent);
    m->parent = strdup(dir);
    return m->parent ? 1 : err_oom(e);
}

static bool has_target(int dirfd, const char *name, const char *target)
{
    char now[PATH_MAX];
    ssize_t n = readlinkat(dirfd, name, now, sizeof(now));

    return n >= 0 && (size_t)n == strlen(target) && memcmp(now, target, (size_t)n) == 0;
}

static bool has_content(int dirfd, const char *name, const struct stat *st,
                        const uint8_t digest[DIGEST_BYTES])
{
    uint8_t now[DIGEST_BYTES];
    uint64_t bytes;

    if (!digest_known(st, now)) {
        _cleanup_close_ int fd = fs_openat_nofollow(dirfd, name, O_RDONLY);

        if (fd < 0 || digest_file(fd, now, &bytes, NULL) < 0)
            return false;
    }
    return memcmp(now, digest, DIGEST_BYTES) == 0;
}

static enum manifest_verdict check_compare(int dirfd, const char *name, const struct stat *st,
                                           const struct manifest_claim *c)
{
    if ((st->st_mode & S_IFMT) != c->type)
        return MANIFEST_DIFFERS;
    if (c->type == S_IFLNK && c->target && !has_target(dirfd, name, c->target))
        return MANIFEST_DIFFERS;
    if (c->type == S_IFREG && c->size != MANIFEST_ANY_SIZE && (uint64_t)st->st_size != c->size)
        return MANIFEST_DIFFERS;
    if (c->type == S_IFREG && c->has_digest && !has_content(dirfd, name, st, c->digest))
        return MANIFEST_DIFFERS;
    if (c->mode.is_set && (st->st_mode & 07777) != c->mode.mode)
        return MANIFEST_STALE;
    if (c->mtime.is_set &&
        (st->st_mtim.tv_sec != c->mtime.t.tv_sec || st->st_mtim.tv_nsec != c->mtime.t.tv_nsec))
        return MANIFEST_STALE;
    return MANIFEST_SAME;
}

int manifest_check_one(struct manifest_check *m, const struct manifest_claim *claim,
                       enum manifest_verdict *ret, struct err *e)
{
    _cleanup_free_ char *path = NULL, *dir = NULL;
    const char *name;
    struct stat st;
    int r;

    r = stage_clean_name(claim->path, &path, e);
    if (r < 0)
        return r;
    if (!path[0])
        return err_set(e, ERR_INVALID, "a path is empty");
    dir = fs_below_parent(path, &name);
    if (!dir)
        return err_oom(e);
    *ret = MANIFEST_MISSING;
    r = check_enter_dir(m, dir, e);
    if (r <= 0)
        return r;
    if (fstatat(m->parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT)
            return 0;
        return err_sys(e, errno, "stat '%s'", path);
    }
    *ret = check_compare(m->parent_fd, name, &st, claim);
    return 0;
}
