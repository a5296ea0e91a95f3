#include "archive/manifest.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "archive/extract.h"
#include "archive/stage.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "fs/root.h"
#include "fs/etag.h"

/* ---- digests --------------------------------------------------------------------------------- */

/*
 * Digests are remembered for as long as a file is the same (device, inode, size and ctime, which changes with every
 * write), so that a tree that was hashed once is not read again. What is too young to tell two writes apart is not
 * remembered.
 */
#define CACHE_MAX 131072u /* files; 64 bytes each: 8 MiB, used as files are hashed */
#define CACHE_FIRST 1024u
#define PROBES 8 /* slots that a file may be in */

struct known {
    uint64_t dev, ino, size;
    int64_t ctime_ns; /* 0: a free slot */
    uint8_t digest[FS_SHA256_BYTES];
};

struct digest_cache {
    pthread_mutex_t lock;
    struct known *slots; /* guarded by lock, as the rest */
    uint32_t cap;        /* a power of two */
    uint32_t n;
};

static struct digest_cache known_digests = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t ctime_ns(const struct stat *st)
{
    return (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
}

static uint32_t first_slot(uint64_t dev, uint64_t ino, uint32_t cap)
{
    uint64_t h = (ino ^ dev << 40) * 0x9e3779b97f4a7c15ULL;

    return (uint32_t)(h >> 32) & (cap - 1);
}

static bool is_same_file(const struct known *k, const struct stat *st)
{
    return k->ctime_ns && k->dev == (uint64_t)st->st_dev && k->ino == (uint64_t)st->st_ino;
}

/* Whether the content of a regular file that looks like this is known. */
static bool digest_known(const struct stat *st, uint8_t out[FS_SHA256_BYTES])
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&known_digests.lock);
    bool found = false;

    for (uint32_t i = 0; known_digests.cap && i < PROBES && !found; i++) {
        uint32_t at =
            (first_slot(st->st_dev, st->st_ino, known_digests.cap) + i) & (known_digests.cap - 1);
        const struct known *k = &known_digests.slots[at];

        found =
            is_same_file(k, st) && k->size == (uint64_t)st->st_size && k->ctime_ns == ctime_ns(st);
        if (found)
            (void)memcpy(out, k->digest, FS_SHA256_BYTES);
    }
    return found;
}

/* A free slot, the same file's older one, or, when all are taken, the first. The lock is held. */
static struct known *slot_for(struct known *slots, uint32_t cap, uint64_t dev, uint64_t ino)
{
    uint32_t first = first_slot(dev, ino, cap);

    for (uint32_t i = 0; i < PROBES; i++) {
        struct known *k = &slots[(first + i) & (cap - 1)];

        if (!k->ctime_ns || (k->dev == dev && k->ino == ino))
            return k;
    }
    return &slots[first];
}

/* Out of memory: it stays as large as it is. The lock is held. */
static void digest_grow_table(void)
{
    uint32_t cap = known_digests.cap ? known_digests.cap * 2 : CACHE_FIRST;
    struct known *slots = cap <= CACHE_MAX ? calloc(cap, sizeof(*slots)) : NULL;

    if (!slots)
        return;
    for (uint32_t i = 0; i < known_digests.cap; i++)
        if (known_digests.slots[i].ctime_ns)
            *slot_for(slots, cap, known_digests.slots[i].dev, known_digests.slots[i].ino) =
                known_digests.slots[i];
    free(known_digests.slots);
    known_digests.slots = slots;
    known_digests.cap = cap;
}

static void digest_remember(const struct stat *st, const uint8_t digest[FS_SHA256_BYTES])
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&known_digests.lock);
    struct known *k;

    if (known_digests.n >= known_digests.cap / 4 * 3)
        digest_grow_table();
    if (!known_digests.cap)
        return;
    k = slot_for(known_digests.slots, known_digests.cap, st->st_dev, st->st_ino);
    known_digests.n += !k->ctime_ns;
    k->dev = st->st_dev;
    k->ino = st->st_ino;
    k->size = (uint64_t)st->st_size;
    k->ctime_ns = ctime_ns(st);
    (void)memcpy(k->digest, digest, FS_SHA256_BYTES);
}

/* Of an open file, read from its start to its end. *ret_bytes: read now (0: it was known).
 * -ERR_ABORTED: it was being written meanwhile. */
static int digest_file(int fd, uint8_t out[FS_SHA256_BYTES], uint64_t *ret_bytes, struct err *e)
{
    struct stat before, after;
    bool is_young;
    int r;

    if (fstat(fd, &before) < 0)
        return err_sys(e, errno, "stat");
    *ret_bytes = 0;
    if (digest_known(&before, out))
        return 0;
    is_young = clock_real_ns() - ctime_ns(&before) < FS_ETAG_RACY_NS;
    r = fs_hash(fd, 0, UINT64_MAX, out, e);
    if (r < 0)
        return r;
    if (fstat(fd, &after) < 0)
        return err_sys(e, errno, "stat");
    if (ctime_ns(&after) != ctime_ns(&before) || after.st_size != before.st_size)
        return err_set(e, ERR_ABORTED, "it was being written while it was read");
    *ret_bytes = (uint64_t)after.st_size;
    if (!is_young)
        digest_remember(&after, out);
    return 0;
}

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
                        const uint8_t digest[FS_SHA256_BYTES])
{
    uint8_t now[FS_SHA256_BYTES];
    uint64_t bytes;

    if (!digest_known(st, now)) {
        _cleanup_close_ int fd = fs_openat_nofollow(dirfd, name, O_RDONLY);

        if (fd < 0 || digest_file(fd, now, &bytes, NULL) < 0)
            return false;
    }
    return memcmp(now, digest, FS_SHA256_BYTES) == 0;
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
