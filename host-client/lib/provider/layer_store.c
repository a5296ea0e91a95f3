#include "lib/provider/layer_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/beneath.h"
#include "lib/util/socket.h"

#define LOCK_POLL_MS 20
#define CHUNK_BYTES 65536
#define GC_LOCK_MS 5000
#define MEASURE_MAX_ENTRIES 10000 /* the lock is held meanwhile */

/* ---- paths ---- */

/* <state_dir>/snapshots[/kind[/name[/part]]] */
static char *store_path(const struct bh_ctx *ctx, const char *kind, const char *name,
                        const char *part)
{
    char *path;
    int n = asprintf(&path, "%s/snapshots%s%s%s%s%s%s", ctx->state_dir, kind ? "/" : "",
                     kind ? kind : "", name ? "/" : "", name ? name : "", part ? "/" : "",
                     part ? part : "");

    return n < 0 ? NULL : path;
}

char *layer_tree_path(const struct bh_ctx *ctx, const char *digest)
{
    return store_path(ctx, "layers", digest, "tree");
}

static bool is_digest(const char *s)
{
    return strlen(s) == LAYER_HEX_BYTES - 1 && strspn(s, "0123456789abcdef") == LAYER_HEX_BYTES - 1;
}

static int make_store(const struct bh_ctx *ctx, struct err *e)
{
    _cleanup_free_ char *top = store_path(ctx, NULL, NULL, NULL);
    _cleanup_free_ char *layers = store_path(ctx, "layers", NULL, NULL);
    _cleanup_free_ char *making = store_path(ctx, "making", NULL, NULL);
    int r = top && layers && making ? io_mkdir_p(top, 0700, e) : err_oom(e);

    if (r == 0)
        r = io_mkdir_p(layers, 0700, e);
    return r < 0 ? r : io_mkdir_p(making, 0700, e);
}

int layer_lock(const struct bh_ctx *ctx, int64_t deadline_mono_ms, int *ret_fd, struct err *e)
{
    _cleanup_free_ char *path = store_path(ctx, "lock", NULL, NULL);
    _cleanup_close_ int fd = -1;
    int r = path ? make_store(ctx, e) : err_oom(e);

    if (r < 0)
        return r;
    fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", path);
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_sys(e, errno, "lock '%s'", path);
        if (clock_until_ms(deadline_mono_ms) == 0)
            return err_set(e, ERR_DEADLINE, "another command is at work on the layers");
        if (socket_wait_canceled(ctx->cancel_fd > 0 ? ctx->cancel_fd : -1, LOCK_POLL_MS))
            return err_set(e, ERR_CANCELED, "canceled");
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* ---- making one ---- */

struct manifest_writer {
    FILE *f; /* NULL: the lines are not wanted */
    struct sha256_ctx sha;
};

static int write_line(void *arg, const char *line, size_t len, const char *path, struct err *e)
{
    struct manifest_writer *m = arg;

    (void)path;
    if (!m->f)
        return 0;
    sha256_update(&m->sha, len, (const uint8_t *)line);
    return fwrite(line, 1, len, m->f) == len ? 0 : err_sys(e, errno, "write the manifest");
}

struct making {
    const struct layer_make *m;
    int dir; /* making/<id> */
    struct layer_budget budget;
    struct layer_known *known; /* of the copy before, in known_tree; or NULL */
    int known_tree;
    int64_t synced_ns; /* the disk has been synced since then */
    bool is_copied;    /* the disk, before the freeze */
    struct layer_facts facts;
};

static void forget_known(struct making *k)
{
    k->known = layer_known_free(k->known);
    fd_close(TAKE_FD(k->known_tree));
}

static int open_tree(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* The files of the last layer, if that is still there. Without them everything is copied. */
static void recall_known(struct making *k)
{
    _cleanup_free_ char *tree = NULL;

    k->known = layer_known_new();
    if (k->known && k->m->known_path &&
        layer_known_load(k->known, AT_FDCWD, k->m->known_path, NULL) == 0 &&
        is_digest(layer_known_layer(k->known)) &&
        (tree = layer_tree_path(k->m->ctx, layer_known_layer(k->known))))
        k->known_tree = open_tree(AT_FDCWD, tree);
    if (k->known_tree < 0)
        forget_known(k);
}

/* Copies the disk to the directory `tree` of the layer, or what has changed since it was copied
 * before. The files of this copy are known to the next one. */
static int copy_disk(struct making *k, bool is_live, bool is_update, FILE *manifest,
                     char hex[LAYER_HEX_BYTES], struct err *e)
{
    struct manifest_writer lines = {.f = manifest};
    struct layer_walk w = {.from = k->m->from,
                           .base = k->m->base,
                           .max_entries = k->m->max_entries,
                           .is_live = is_live,
                           .is_update = is_update,
                           .budget = k->budget,
                           .known = k->known,
                           .known_tree = k->known_tree,
                           .learnt = layer_known_new(),
                           .line = write_line,
                           .arg = &lines};
    uint8_t digest[SHA256_DIGEST_SIZE];
    _cleanup_close_ int to = -1;
    int r = w.learnt ? 0 : err_oom(e);

    sha256_init(&lines.sha);
    if (r == 0 &&
        ((!is_update && mkdirat(k->dir, "tree", 0700) < 0) || (to = open_tree(k->dir, "tree")) < 0))
        r = err_sys(e, errno, "make a layer");
    if (r == 0) {
        w.to = to;
        layer_known_set_synced(w.learnt, k->synced_ns);
        r = layer_walk_run(&w, e);
    }
    if (r < 0) {
        (void)layer_known_free(w.learnt);
        return r;
    }
    sha256_digest(&lines.sha, sizeof(digest), digest);
    str_hex(digest, sizeof(digest), hex);
    forget_known(k);
    k->known = w.learnt;
    k->known_tree = TAKE_FD(to);
    k->budget = w.budget;
    k->facts.n_entries = w.n_entries;
    k->facts.bytes = w.bytes;
    k->facts.n_devices = w.n_devices;
    return 0;
}

/* Once, before everything: what is read does not depend on it, and a sync of a busy disk takes long.
 * Files that change between it and the freeze are copied again by the next snapshot. */
static int sync_disk(struct making *k, struct err *e)
{
    k->synced_ns = clock_real_ns();
    return syncfs(k->m->from) < 0 ? err_sys(e, errno, "sync the disk") : 0;
}

/* There a file that is mapped changes without a new change time: all is copied in the freeze. */
static bool is_in_memory(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

/* The moment that counts. */
static int copy_frozen(struct making *k, FILE *manifest, struct err *e)
{
    const struct layer_make *m = k->m;
    struct err why = {0};
    int r = m->freeze ? m->freeze(m->arg, e) : 0;
    int thawed;

    if (r < 0)
        return r;
    r = copy_disk(k, false, k->is_copied, manifest, k->facts.digest, e);
    thawed = m->thaw ? m->thaw(m->arg, &why) : 0;
    if (r == 0 && thawed < 0) {
        if (e)
            *e = why;
        return thawed;
    }
    return r;
}

static int fill_made(struct making *k, struct err *e)
{
    char hex[LAYER_HEX_BYTES];
    _cleanup_fclose_ FILE *manifest = NULL;
    int fd, r;

    recall_known(k);
    r = sync_disk(k, e);
    if (r == 0 && is_in_memory(k->m->from)) {
        forget_known(k);
    } else if (r == 0 && k->m->freeze) {
        r = copy_disk(k, true, false, NULL, hex, e);
        k->is_copied = true;
    }
    if (r < 0)
        return r;
    fd = openat(k->dir, "manifest", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    manifest = fd < 0 ? NULL : fdopen(fd, "w");
    if (!manifest) {
        fd_close(fd);
        return err_sys(e, errno, "make the manifest");
    }
    r = copy_frozen(k, manifest, e);
    if (r == 0 && fflush(manifest) != 0)
        r = err_sys(e, errno, "write the manifest");
    if (r == 0 && syncfs(k->dir) < 0)
        r = err_sys(e, errno, "sync the layer");
    k->facts.copied = k->budget.copied;
    return r;
}

int layer_make(const struct layer_make *m, struct layer_facts *ret, struct err *e)
{
    _cleanup_free_ char *path = store_path(m->ctx, "making", m->id, NULL);
    struct making k = {.m = m,
                       .dir = -1,
                       .known_tree = -1,
                       .budget = {.deadline_mono_ms = m->deadline_mono_ms,
                                  .cancel_fd = m->ctx->cancel_fd,
                                  .max_copied = m->max_copied}};
    int r = path ? make_store(m->ctx, e) : err_oom(e);

    if (r == 0)
        r = dirtree_remove(path, e);
    if (r == 0 && (mkdir(path, 0700) < 0 || (k.dir = open_tree(AT_FDCWD, path)) < 0))
        r = err_sys(e, errno, "make '%s'", path);
    if (r == 0)
        r = fill_made(&k, e);
    if (r == 0 && k.known && m->known_path) {
        layer_known_set_layer(k.known, k.facts.digest);
        (void)layer_known_save(k.known, AT_FDCWD, m->known_path, NULL); /* it saves time alone */
    }
    forget_known(&k);
    fd_close(k.dir);
    if (r < 0) {
        (void)layer_drop_made(m->ctx, m->id, NULL);
        return r;
    }
    *ret = k.facts;
    return 0;
}

int layer_drop_made(const struct bh_ctx *ctx, const char *id, struct err *e)
{
    _cleanup_free_ char *path = store_path(ctx, "making", id, NULL);

    return path ? dirtree_remove(path, e) : err_oom(e);
}

static int sync_directory(const char *path, struct err *e)
{
    _cleanup_close_ int fd = open_tree(AT_FDCWD, path);

    return fd < 0 || fsync(fd) < 0 ? err_sys(e, errno, "sync '%s'", path) : 0;
}

/* Moves a directory out of the way; nobody finds it any more. */
static int put_away(const struct bh_ctx *ctx, const char *path, char **ret, struct err *e)
{
    _cleanup_free_ char *away = NULL;
    char nonce[17];
    int r = io_random_hex(8, nonce, e);

    if (r < 0)
        return r;
    if (asprintf(&away, "%s/snapshots/gone-%s", ctx->state_dir, nonce) < 0)
        return err_oom(e);
    if (rename(path, away) < 0)
        return err_sys(e, errno, "rename '%s'", path);
    *ret = TAKE(away);
    return 0;
}

/* A link or a file in the place of a layer, too. */
static void remove_away(const char *path)
{
    if (unlink(path) < 0)
        (void)dirtree_remove(path, NULL);
}

bool layer_is_there(const struct bh_ctx *ctx, const char *digest)
{
    _cleanup_free_ char *place = store_path(ctx, "layers", digest, NULL);

    return !place || access(place, F_OK) == 0;
}

int layer_commit(const struct bh_ctx *ctx, const char *id, const char *digest, struct err *e)
{
    _cleanup_free_ char *made = store_path(ctx, "making", id, NULL);
    _cleanup_free_ char *layers = store_path(ctx, "layers", NULL, NULL);
    _cleanup_free_ char *place = store_path(ctx, "layers", digest, NULL);
    _cleanup_free_ char *away = NULL;
    int r = made && layers && place ? layer_check(ctx, digest, NULL) : err_oom(e);

    if (!made || !layers || !place)
        return r;
    if (r == 0) {
        (void)layer_drop_made(ctx, id, NULL);
        return 0;
    }
    /* A damaged one is replaced. Boxes that run keep theirs. */
    r = access(place, F_OK) == 0 ? put_away(ctx, place, &away, e) : 0;
    if (r == 0 && rename(made, place) < 0)
        r = err_sys(e, errno, "rename '%s'", made);
    if (r == 0)
        r = sync_directory(layers, e);
    if (away)
        remove_away(away);
    return r;
}

/* ---- checking one ---- */

static int layer_damaged(struct err *e, const char *digest, const char *what)
{
    return err_field(e, ERR_DATA_LOSS, "snapshot", "the layer %.12s is damaged: %s", digest, what);
}

static int digest_stream(FILE *f, char hex[LAYER_HEX_BYTES], struct err *e)
{
    _cleanup_free_ uint8_t *chunk = malloc(CHUNK_BYTES);
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx sha;
    size_t n;

    if (!chunk)
        return err_oom(e);
    sha256_init(&sha);
    while ((n = fread(chunk, 1, CHUNK_BYTES, f)) > 0)
        sha256_update(&sha, n, chunk);
    if (ferror(f))
        return err_sys(e, errno, "read the manifest");
    sha256_digest(&sha, sizeof(digest), digest);
    str_hex(digest, sizeof(digest), hex);
    return 0;
}

/* No link is followed: what a box's disk is made of lies here. */
static int open_manifest(const struct bh_ctx *ctx, const char *digest, FILE **ret, struct err *e)
{
    _cleanup_free_ char *path = is_digest(digest) ? store_path(ctx, "layers", digest, NULL) : NULL;
    _cleanup_close_ int dir = path ? open_tree(AT_FDCWD, path) : -1;
    _cleanup_close_ int tree = dir < 0 ? -1 : open_tree(dir, "tree");
    int fd = dir < 0 ? -1 : openat(dir, "manifest", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_fclose_ FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    char hex[LAYER_HEX_BYTES];
    int r;

    if (!is_digest(digest))
        return layer_damaged(e, digest, "its name is not a digest");
    if (!f)
        fd_close(fd);
    if (dir < 0)
        return layer_damaged(e, digest, "its directory is not there");
    if (tree < 0)
        return layer_damaged(e, digest, "its tree is not there");
    if (!f)
        return layer_damaged(e, digest, "its manifest is not there");
    r = digest_stream(f, hex, e);
    if (r < 0)
        return r;
    if (!str_eq(hex, digest))
        return layer_damaged(e, digest, "its manifest was changed");
    rewind(f);
    *ret = TAKE(f);
    return 0;
}

int layer_check(const struct bh_ctx *ctx, const char *digest, struct err *e)
{
    _cleanup_fclose_ FILE *f = NULL;

    return open_manifest(ctx, digest, &f, e);
}

struct comparison {
    FILE *manifest;
    int tree;
    const char *digest;
    char *line;
    size_t cap;
};

/* The path of a manifest's line: the eighth field. Changes the line. */
static const char *line_path(char *line)
{
    for (int i = 0; line && i < 7; i++) {
        line = strchr(line, '\t');
        line = line ? line + 1 : NULL;
    }
    if (!line)
        return "";
    line[strcspn(line, "\t\n")] = '\0';
    layer_read_text(line);
    return line;
}

static int compare_line(void *arg, const char *line, size_t len, const char *path, struct err *e)
{
    struct comparison *c = arg;
    ssize_t n = getline(&c->line, &c->cap, c->manifest);
    const char *wanted;
    struct stat st;

    if (n >= 0 && (size_t)n == len && memcmp(c->line, line, len) == 0)
        return 0;
    wanted = n < 0 ? NULL : line_path(c->line);
    if (!wanted || beneath_stat(c->tree, wanted, &st) == 0)
        return err_field(e, ERR_DATA_LOSS, "snapshot", "the layer %.12s is damaged: '%.300s'",
                         c->digest, path);
    return err_field(e, ERR_DATA_LOSS, "snapshot",
                     "the layer %.12s is damaged: '%.300s' is not there", c->digest, wanted);
}

int layer_verify(const struct bh_ctx *ctx, const char *digest, int64_t deadline_mono_ms,
                 struct err *e)
{
    _cleanup_free_ char *tree = layer_tree_path(ctx, digest);
    _cleanup_fclose_ FILE *f = NULL;
    _cleanup_close_ int fd = -1;
    struct comparison c = {.digest = digest};
    struct layer_walk w = {
        .to = -1,
        .known_tree = -1,
        .budget = {.deadline_mono_ms = deadline_mono_ms, .cancel_fd = ctx->cancel_fd},
        .line = compare_line,
        .arg = &c};
    int r = tree ? open_manifest(ctx, digest, &f, e) : err_oom(e);

    if (r < 0)
        return r;
    fd = open_tree(AT_FDCWD, tree);
    if (fd < 0)
        return layer_damaged(e, digest, "its tree is not there");
    c.manifest = f;
    c.tree = w.from = fd;
    r = layer_walk_run(&w, e);
    if (r == 0 && getline(&c.line, &c.cap, f) >= 0)
        r = err_field(e, ERR_DATA_LOSS, "snapshot",
                      "the layer %.12s is damaged: '%.300s' is not there", digest,
                      line_path(c.line));
    free(c.line);
    return r;
}

/* ---- gc ---- */

static int drop_layer(const struct layer_gc *gc, const char *path, const char *digest,
                      struct err *e)
{
    _cleanup_free_ char *away = NULL;
    char line[160];
    int r = gc->dry_run ? 0 : put_away(gc->ctx, path, &away, e);

    if (r < 0)
        return r;
    if (!gc->dry_run && gc->removed)
        gc->removed(gc->arg, digest);
    (void)snprintf(line, sizeof(line), "a layer that no snapshot and no box has%s: %.64s",
                   gc->dry_run ? " would be removed" : "", digest);
    if (gc->report)
        gc->report(gc->arg, line);
    return 0;
}

static void report_stranger(const struct layer_gc *gc, const char *path)
{
    uint64_t bytes = 0;
    bool is_whole = dirtree_measure(path, MEASURE_MAX_ENTRIES, &bytes);
    char line[512];

    (void)snprintf(line, sizeof(line),
                   "not ours, kept: '%.300s' is of a snapshot that the store does not know, it has "
                   "%s%" PRIu64 " bytes; remove it with rm -r, or put its store back",
                   path, is_whole ? "" : "more than ", bytes);
    if (gc->report && access(path, F_OK) == 0)
        gc->report(gc->arg, line);
}

/* Names in `kind` for which `is_kept` is false. is_made NULL: none of them is removed. */
static int sweep_kind(const struct layer_gc *gc, const char *kind,
                      bool (*is_kept)(void *arg, const char *name),
                      bool (*is_made)(void *arg, const char *name), struct err *e)
{
    _cleanup_free_ char *dir = store_path(gc->ctx, kind, NULL, NULL);
    _cleanup_closedir_ DIR *d = dir ? opendir(dir) : NULL;
    const struct dirent *de;
    int r = 0;

    while (r == 0 && d && (de = readdir(d))) {
        _cleanup_free_ char *path = NULL;

        if (de->d_name[0] == '.' || is_kept(gc->arg, de->d_name))
            continue;
        path = path_join(dir, de->d_name);
        if (!path)
            return err_oom(e);
        if (is_made && is_made(gc->arg, de->d_name))
            r = drop_layer(gc, path, de->d_name, e);
        else
            report_stranger(gc, path);
    }
    return r;
}

static void remove_gone(const struct layer_gc *gc)
{
    _cleanup_free_ char *dir = store_path(gc->ctx, NULL, NULL, NULL);
    _cleanup_closedir_ DIR *d = dir ? opendir(dir) : NULL;
    const struct dirent *de;

    while (d && (de = readdir(d))) {
        _cleanup_free_ char *path =
            str_has_prefix(de->d_name, "gone-") ? path_join(dir, de->d_name) : NULL;

        if (path)
            remove_away(path); /* another gc may do so at the same time */
    }
}

int layer_gc(const struct layer_gc *gc, struct err *e)
{
    _cleanup_free_ char *top = store_path(gc->ctx, NULL, NULL, NULL);
    _cleanup_close_ int lock = -1;
    int r;

    if (!top)
        return err_oom(e);
    if (access(top, F_OK) < 0)
        return 0;
    r = layer_lock(gc->ctx, clock_mono_ms() + GC_LOCK_MS, &lock, e);
    if (r == 0)
        r = sweep_kind(gc, "layers", gc->is_used, gc->is_made, e);
    if (r == 0)
        r = sweep_kind(gc, "making", gc->is_making, NULL, e);
    fd_close(TAKE_FD(lock));
    if (!gc->dry_run)
        remove_gone(gc);
    return r;
}
