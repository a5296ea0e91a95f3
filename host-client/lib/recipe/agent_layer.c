#include "lib/recipe/agent_layer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/project/extract.h"
#include "lib/recipe/npm.h"
#include "lib/recipe/recipe.h"
#include "lib/util/beneath.h"
#include "lib/util/socket.h"

#define KEY_HASH_BYTES 8
#define LOCK_WAIT_MS 60000
#define LOCK_POLL_MS 20
#define MANIFEST_MAX_BYTES ((size_t)32 << 20)
#define LAYER_MAX_FILES 200000 /* 32 MiB of manifest are 160 bytes for each */
#define LAYER_MAX_BYTES ((uint64_t)4 << 30)
#define CPUINFO_MAX_BYTES ((size_t)8 << 20)
#define CHUNK_BYTES 65536
#define TMP_SUFFIX ".tmp"
#define LOCK_SUFFIX ".lock"

/* ---- which one ---- */

/* The content of a layer, and the archive that it is made of. */
struct origin {
    struct npm *npm;
    char *archive;
    const char *integrity; /* of a package; NULL: the archive is a tree */
    char *label;           /* "opencode-1.18.33" */
    char *key;
};

static void origin_done(struct origin *o)
{
    npm_free(o->npm);
    free(o->archive);
    free(o->label);
    free(o->key);
}

/* A box has this machine's processor. */
static bool machine_has_cpu_flag(const char *cpuinfo, const char *flag)
{
    size_t len = strlen(flag);

    for (const char *p = cpuinfo; (p = strstr(p, flag)); p += len)
        if (p != cpuinfo && strchr(" \t\n", p[-1]) && strchr(" \t\n", p[len]))
            return true;
    return false;
}

static const struct recipe_npm *choose_row(const struct recipe *rec, const char *arch)
{
    _cleanup_free_ char *cpuinfo = NULL;

    (void)io_read_file(AT_FDCWD, "/proc/cpuinfo", CPUINFO_MAX_BYTES, &cpuinfo, NULL, NULL);
    for (size_t i = 0; i < rec->n_npm; i++) {
        const struct recipe_npm *row = &rec->npm[i];

        if ((!*row->arch || str_eq(row->arch, arch)) &&
            (!*row->cpu || (cpuinfo && machine_has_cpu_flag(cpuinfo, row->cpu))))
            return row;
    }
    return NULL;
}

static int set_key(struct origin *o, const struct recipe *rec, const char *arch, struct err *e)
{
    const char *name = path_name(o->archive);
    uint8_t digest[SHA256_DIGEST_SIZE];
    char hex[2 * KEY_HASH_BYTES + 1];
    struct sha256_ctx sha;

    sha256_init(&sha);
    sha256_update(&sha, strlen(name) + 1, (const uint8_t *)name); /* a tree's has its hash */
    if (o->integrity)
        sha256_update(&sha, strlen(o->integrity), (const uint8_t *)o->integrity);
    sha256_digest(&sha, sizeof(digest), digest);
    str_hex(digest, KEY_HASH_BYTES, hex);
    if (asprintf(&o->label, "%s-%s", rec->name, rec->version) < 0) {
        o->label = NULL;
        return err_oom(e);
    }
    if (asprintf(&o->key, "%s-%s-%s", o->label, arch, hex) < 0) {
        o->key = NULL;
        return err_oom(e);
    }
    return 0;
}

/* Leaves o->key NULL if the agent can have no layer. */
static int find_origin(struct bh_ctx *ctx, const struct recipe *rec, struct origin *o,
                       struct err *e)
{
    _cleanup_free_ char *lock = NULL;
    const struct recipe_npm *row = NULL;
    struct utsname machine;
    int r;

    if (json_array_size(rec->install_argvs) || !str_eq(rec->version, rec->own_version) ||
        (!rec->npm_lock && !rec->n_npm) || uname(&machine) < 0)
        return 0;
    r = npm_new(ctx, clock_mono_ms() + LOCK_WAIT_MS, &o->npm, e);
    if (r < 0)
        return r;
    if (rec->npm_lock) {
        lock = path_join(rec->dir, rec->npm_lock);
        r = lock ? npm_place_tree(o->npm, lock, machine.machine, &o->archive, e) : err_oom(e);
    } else {
        row = choose_row(rec, machine.machine);
        if (!row || !*row->integrity)
            return 0;
        o->integrity = row->integrity;
        r = npm_place(o->npm, row->package, rec->version, &o->archive, e);
    }
    return r < 0 ? r : set_key(o, rec, machine.machine, e);
}

/* ---- a layer that is there ---- */

static int read_manifest(const char *dir, json_t **ret, struct err *e)
{
    _cleanup_free_ char *path = path_join(dir, "manifest.json");
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r = path ? io_read_file(AT_FDCWD, path, MANIFEST_MAX_BYTES, &text, &len, e) : err_oom(e);

    return r < 0 ? r : jx_parse_within(text, len, 4 * MANIFEST_MAX_BYTES, ret, e);
}

static int open_tree_dir(const char *dir, int *ret_fd, struct err *e)
{
    _cleanup_free_ char *path = path_join(dir, "tree");
    int fd = path ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;

    if (!path)
        return err_oom(e);
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", path);
    *ret_fd = fd;
    return 0;
}

/* Does every file of the manifest have its size? */
static bool layer_is_whole(const char *dir)
{
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_close_ int tree = -1;
    json_t *files, *file;
    size_t i;

    if (read_manifest(dir, &doc, NULL) < 0 || open_tree_dir(dir, &tree, NULL) < 0)
        return false;
    files = json_object_get(doc, "files");
    json_array_foreach (files, i, file) {
        const char *name = json_string_value(json_array_get(file, 0));
        struct stat st;

        if (!name || fstatat(tree, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
            st.st_size != json_integer_value(json_array_get(file, 1)))
            return false;
    }
    return json_array_size(files) > 0;
}

static int digest_file(int tree, const char *name, char hex[2 * SHA256_DIGEST_SIZE + 1],
                       struct err *e)
{
    _cleanup_close_ int fd = openat(tree, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_free_ uint8_t *chunk = malloc(CHUNK_BYTES);
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx sha;
    size_t n;
    int r;

    if (fd < 0)
        return err_sys(e, errno, "open '%s'", name);
    if (!chunk)
        return err_oom(e);
    sha256_init(&sha);
    do {
        r = io_read_full(fd, chunk, CHUNK_BYTES, &n, e);
        if (r < 0)
            return err_wrap(e, r, "'%s'", name);
        sha256_update(&sha, n, chunk);
    } while (n);
    sha256_digest(&sha, sizeof(digest), digest);
    str_hex(digest, sizeof(digest), hex);
    return 0;
}

/* ---- making one ---- */

struct making {
    char **names; /* of the files in the archive */
    size_t n, cap;
    uint64_t bytes;
};

/* The names of an archive can be many: the vector grows by halves, unlike strv_push(). */
static int note_file(void *arg, const char *name, mode_t type, uint64_t size, struct err *e)
{
    struct making *m = arg;

    if (type != S_IFREG)
        return 0;
    m->bytes += size;
    if (m->n == LAYER_MAX_FILES || size > LAYER_MAX_BYTES || m->bytes > LAYER_MAX_BYTES)
        return err_set(e, ERR_EXHAUSTED, "the packages are too large for a layer");
    if (m->n == m->cap) {
        size_t cap = m->cap ? m->cap * 2 : 256;
        char **more = reallocarray(m->names, cap, sizeof(*more));

        if (!more)
            return err_oom(e);
        m->names = more;
        m->cap = cap;
    }
    m->names[m->n] = strdup(name);
    if (!m->names[m->n])
        return err_oom(e);
    m->n++;
    return 0;
}

static void making_done(struct making *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->names[i]);
    free(m->names);
}

static int unpack_archive(const struct origin *o, const char *tree, struct making *m, struct err *e)
{
    _cleanup_close_ int fd = open(o->archive, O_RDONLY | O_CLOEXEC);
    struct extract_options opts = {.dir = tree,
                                   .is_gzip = o->integrity != NULL,
                                   .is_zstd = o->integrity == NULL,
                                   .accept = note_file,
                                   .arg = m};

    return fd < 0 ? err_sys(e, errno, "open '%s'", o->archive) : extract_stream(fd, &opts, e);
}

/* Everybody in a box can read the directories on the way to a file. */
static int open_dirs(int tree, const char *name, struct err *e)
{
    _cleanup_free_ char *dir = strdup(name);
    char *slash;

    if (!dir)
        return err_oom(e);
    while ((slash = strrchr(dir, '/'))) {
        *slash = '\0';
        if (fchmodat(tree, dir, 0755, 0) < 0)
            return err_sys(e, errno, "chmod '%s'", dir);
    }
    return 0;
}

static int add_file(int tree, const char *name, json_t *files, struct err *e)
{
    char hex[2 * SHA256_DIGEST_SIZE + 1];
    struct stat st;
    int r = digest_file(tree, name, hex, e);

    if (r < 0)
        return r;
    if (fstatat(tree, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        fchmodat(tree, name, st.st_mode & 0111 ? 0555 : 0444, 0) < 0)
        return err_sys(e, errno, "chmod '%s'", name);
    if (json_array_append_new(files, json_pack("[s, I, s]", name, (json_int_t)st.st_size, hex)) < 0)
        return err_set(e, ERR_INVALID, "the name '%.200s' is not UTF-8", name);
    return 0;
}

static int layer_write_manifest(const char *dir, const struct making *m, struct err *e)
{
    _cleanup_free_ char *path = path_join(dir, "manifest.json");
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *doc = json_pack("{s:[]}", "files");
    _cleanup_close_ int tree = -1;
    const char *seen = "";
    size_t len, dir_len = 0;
    int r = path && doc ? open_tree_dir(dir, &tree, e) : err_oom(e);

    if (r == 0 && fchmod(tree, 0755) < 0)
        r = err_sys(e, errno, "chmod '%s'", dir);
    for (size_t i = 0; r == 0 && i < m->n; i++) {
        const char *name = m->names[i];
        size_t len_here = strlen(name) - strlen(path_name(name));

        /* archives list the files of a directory one after the other */
        if (len_here != dir_len || strncmp(seen, name, dir_len) != 0)
            r = open_dirs(tree, name, e);
        seen = name;
        dir_len = len_here;
        if (r == 0)
            r = add_file(tree, name, json_object_get(doc, "files"), e);
    }
    if (r == 0)
        r = jx_dump(doc, &text, &len, e);
    return r < 0 ? r : io_write_file(AT_FDCWD, path, text, len, 0600, true, e);
}

static int fill_layer(const struct origin *o, const char *dir, struct err *e)
{
    _cleanup_free_ char *tree = path_join(dir, "tree");
    _cleanup_free_ char *users = path_join(dir, "users");
    struct making m = {0};
    int r = tree && users ? io_mkdir_p(tree, 0755, e) : err_oom(e);

    if (r == 0)
        r = io_mkdir_p(users, 0700, e);
    if (r == 0)
        r = unpack_archive(o, tree, &m, e);
    if (r == 0)
        r = layer_write_manifest(dir, &m, e);
    making_done(&m);
    return r;
}

/* Moves a damaged layer aside: boxes that run have it mounted. gc removes it after them. */
static int put_aside(const char *dir, struct err *e)
{
    _cleanup_free_ char *aside = NULL;
    char nonce[17];
    int r = io_random_hex(8, nonce, e);

    if (r < 0)
        return r;
    if (asprintf(&aside, "%s.damaged-%s", dir, nonce) < 0)
        return err_oom(e);
    if (rename(dir, aside) < 0 && errno != ENOENT)
        return err_sys(e, errno, "rename '%s'", dir);
    return 0;
}

/* With the lock of its key. *ret_ok: the layer is there. */
static int make_layer(struct bh_ctx *ctx, const struct origin *o, const char *dir, bool *ret_ok,
                      struct err *e)
{
    _cleanup_free_ char *tmp = NULL;
    int r =
        o->integrity ? npm_check_file(o->archive, o->integrity, e) : npm_tree_is_there(o->archive);

    *ret_ok = false;
    if (r <= 0)
        return r;
    if (asprintf(&tmp, "%s" TMP_SUFFIX, dir) < 0)
        return err_oom(e);
    ctx_progress(ctx, "create", 0, 0, false, "unpacking %s for all boxes", o->label);
    r = dirtree_remove(tmp, e);
    if (r == 0)
        r = fill_layer(o, tmp, e);
    if (r == 0)
        r = put_aside(dir, e);
    if (r == 0 && rename(tmp, dir) < 0)
        r = err_sys(e, errno, "rename '%s'", tmp);
    if (r < 0)
        (void)dirtree_remove(tmp, NULL);
    *ret_ok = r == 0;
    return r;
}

/* ---- its users ---- */

static int lock_key(struct bh_ctx *ctx, const char *dir, int wait_ms, int *ret_fd, struct err *e)
{
    int64_t deadline = clock_mono_ms() + wait_ms;
    _cleanup_free_ char *path = NULL;
    _cleanup_close_ int fd = -1;

    if (asprintf(&path, "%s" LOCK_SUFFIX, dir) < 0)
        return err_oom(e);
    fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", path);
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_sys(e, errno, "lock '%s'", path);
        if (clock_mono_ms() >= deadline)
            return err_set(e, ERR_DEADLINE, "another command is at work on '%s'", path);
        if (socket_wait_canceled(ctx->cancel_fd > 0 ? ctx->cancel_fd : -1, LOCK_POLL_MS))
            return err_set(e, ERR_CANCELED, "canceled");
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int add_user(const char *dir, const struct agent_layer_request *req, struct err *e)
{
    _cleanup_free_ char *path = NULL;

    if (asprintf(&path, "%s/users/%s", dir, req->box_id) < 0)
        return err_oom(e);
    if (unlink(path) < 0 && errno != ENOENT)
        return err_sys(e, errno, "remove '%s'", path);
    return symlink(req->box_dir, path) < 0 ? err_sys(e, errno, "link '%s'", path) : 0;
}

/* ---- taking one ---- */

static int take_layer(const struct agent_layer_request *req, const struct origin *o,
                      struct agent_layer *ret, struct err *e)
{
    _cleanup_free_ char *agents = path_join(req->ctx->cache_dir, "agents");
    _cleanup_free_ char *dir = agents ? path_join(agents, o->key) : NULL;
    _cleanup_close_ int lock = -1;
    bool ok = true;
    int r = dir ? io_mkdir_p(agents, 0700, e) : err_oom(e);

    if (r == 0)
        r = lock_key(req->ctx, dir, LOCK_WAIT_MS, &lock, e);
    if (r == 0 && !layer_is_whole(dir))
        r = make_layer(req->ctx, o, dir, &ok, e);
    if (r == 0 && ok)
        r = add_user(dir, req, e);
    if (r < 0 || !ok)
        return r;
    *ret = (struct agent_layer){
        .tree = path_join(dir, "tree"), .label = strdup(o->label), .lock = TAKE_FD(lock)};
    if (ret->tree && ret->label)
        return 0;
    agent_layer_done(ret);
    return err_oom(e);
}

int agent_layer_take(const struct agent_layer_request *req, struct agent_layer *ret, struct err *e)
{
    struct recipe rec = {0};
    struct origin o = {0};
    int r;

    *ret = (struct agent_layer){.lock = -1};
    if (!req->agent || str_eq(req->agent, "none"))
        return 0;
    r = recipe_load(req->ctx->recipe_dir, req->agent, &rec, e);
    if (r == 0)
        r = find_origin(req->ctx, &rec, &o, e);
    if (r == 0 && o.key)
        r = take_layer(req, &o, ret, e);
    origin_done(&o);
    recipe_done(&rec);
    return r;
}

void agent_layer_done(struct agent_layer *l)
{
    free(l->tree);
    free(l->label);
    fd_close(l->lock);
    *l = (struct agent_layer){.lock = -1};
}

/* ---- gc ---- */

__attribute__((format(printf, 2, 3))) static void report(const struct agent_layer_gc *gc,
                                                         const char *fmt, ...)
{
    char line[512];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    if (gc->report)
        gc->report(gc->arg, line);
}

/* Does the box still name the layer? `key` is the first part of the name of one that was damaged. */
static bool is_used_by(const struct agent_layer_gc *gc, const char *link, const char *key)
{
    _cleanup_free_ char *path = NULL, *text = NULL;
    char box_dir[4096];
    ssize_t n = readlink(link, box_dir, sizeof(box_dir));

    if (n <= 0 || n == (ssize_t)sizeof(box_dir))
        return false;
    box_dir[n] = '\0';
    path = path_join(box_dir, gc->layer_file);
    return path && io_read_file(AT_FDCWD, path, CHUNK_BYTES, &text, NULL, NULL) == 0 &&
           strstr(text, key) != NULL;
}

/* Forgets the users that are gone. */
static bool has_users(const struct agent_layer_gc *gc, const char *dir, const char *key)
{
    _cleanup_free_ char *users = path_join(dir, "users");
    _cleanup_closedir_ DIR *d = users ? opendir(users) : NULL;
    const struct dirent *de;
    bool found = false;

    while (d && (de = readdir(d))) {
        _cleanup_free_ char *link = de->d_name[0] == '.' ? NULL : path_join(users, de->d_name);

        if (link && is_used_by(gc, link, key))
            found = true;
        else if (link && !gc->dry_run)
            (void)unlink(link);
    }
    return found;
}

/* Renames before it removes: a layer that is there is whole. */
static void sweep_layer(const struct agent_layer_gc *gc, const char *agents, const char *name)
{
    bool is_tmp = str_has_suffix(name, TMP_SUFFIX);
    size_t key_len = strlen(name) - (is_tmp ? strlen(TMP_SUFFIX) : 0);
    const char *aside = strstr(name, ".damaged-");
    _cleanup_free_ char *key = strndup(name, aside ? (size_t)(aside - name) : key_len);
    _cleanup_free_ char *locked = key ? path_join(agents, key) : NULL;
    _cleanup_free_ char *dir = path_join(agents, name);
    _cleanup_free_ char *tmp = NULL;
    _cleanup_close_ int lock = -1;
    struct err e = {0};

    if (!locked || !dir || lock_key(gc->ctx, locked, 0, &lock, NULL) < 0)
        return; /* a command is at work on it */
    if (!is_tmp && has_users(gc, dir, key))
        return;
    if (gc->dry_run) {
        report(gc, "%s: no box has this layer, would be removed", name);
        return;
    }
    if (asprintf(&tmp, "%s%s", dir, is_tmp ? "" : TMP_SUFFIX) < 0)
        return;
    if (dirtree_remove(tmp, &e) == 0 && (is_tmp || rename(dir, tmp) == 0) &&
        dirtree_remove(tmp, &e) == 0)
        report(gc, "%s: no box had this layer, removed", name);
    else if (e.code)
        report(gc, "%s: %s", name, e.message);
}

void agent_layer_gc(const struct agent_layer_gc *gc)
{
    _cleanup_free_ char *agents = path_join(gc->ctx->cache_dir, "agents");
    _cleanup_closedir_ DIR *d = agents ? opendir(agents) : NULL;
    const struct dirent *de;

    while (d && (de = readdir(d)))
        if (de->d_name[0] != '.' && !str_has_suffix(de->d_name, LOCK_SUFFIX))
            sweep_layer(gc, agents, de->d_name);
}
