/* npm_tree: packs the packages of a package-lock.json into one archive, without an npm program. */
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/hostcmd.h"
#include "lib/recipe/npm.h"
#include "lib/util/archive_lib.h"

#define MODULES "node_modules/"
#define CHUNK_BYTES 65536
#define KEY_HEX 16
#define TREE_FORMAT "2" /* raise it when the choice of files changes */

/* ---- which packages ---- */

/* npm's name of a processor. */
static const char *npm_cpu(const char *arch)
{
    if (str_eq(arch, "x86_64"))
        return "x64";
    if (str_eq(arch, "aarch64"))
        return "arm64";
    return arch;
}

/* npm's lists are ["linux","darwin"] or ["!win32"]; no list allows all. */
static bool list_allows(json_t *list, const char *value)
{
    bool named = false, others = false;
    json_t *item;
    size_t i;

    json_array_foreach (list, i, item) {
        const char *s = json_string_value(item);

        if (!s)
            continue;
        if (s[0] == '!' && str_eq(s + 1, value))
            return false;
        named = named || str_eq(s, value);
        others = others || s[0] != '!';
    }
    return named || !others;
}

static bool is_wanted(const char *place, json_t *pkg, const char *cpu)
{
    return str_has_prefix(place, MODULES) && !json_is_true(json_object_get(pkg, "dev")) &&
           !json_is_true(json_object_get(pkg, "inBundle")) &&
           list_allows(json_object_get(pkg, "os"), "linux") &&
           list_allows(json_object_get(pkg, "cpu"), cpu) &&
           list_allows(json_object_get(pkg, "libc"), "glibc");
}

/* "node_modules/a/node_modules/@b/c" is "@b/c"; an alias names its real package. */
static const char *package_name(const char *place, json_t *pkg)
{
    const char *name = json_string_value(json_object_get(pkg, "name"));
    const char *last = place;

    for (const char *p = place; !name && (p = strstr(p, MODULES)); p += strlen(MODULES))
        last = p + strlen(MODULES);
    return name ? name : last;
}

static bool is_safe(const char *name)
{
    _cleanup_free_ char *clean = path_clean(name);

    return clean && !path_is_absolute(name) && !str_eq(clean, "..") &&
           !str_has_prefix(clean, "../");
}

/* ---- packing ---- */

struct packing {
    struct npm *npm;
    struct archive *out;
    const char *place; /* the directory of the package's files */
    char *chunk;       /* CHUNK_BYTES */
};

static int archive_failed(struct archive *a, const char *what, struct err *e)
{
    return err_set(e, ERR_INTERNAL, "%s: %s", what,
                   archive_error_string(a) ? archive_error_string(a) : "libarchive failed");
}

static int copy_data(struct packing *p, struct archive *in, const char *tarball, struct err *e)
{
    for (;;) {
        la_ssize_t n = archive_read_data(in, p->chunk, CHUNK_BYTES);

        if (n == 0)
            return 0;
        if (n < 0)
            return archive_failed(in, tarball, e);
        if (archive_write_data(p->out, p->chunk, (size_t)n) != n)
            return archive_failed(p->out, "packing", e);
    }
}

/* Is it a file that no running program reads? These are half of the files of a tree. */
static bool is_for_developers(const char *name)
{
    static const char *const ends[] = {".map", ".d.ts", ".d.mts", ".d.cts"};

    for (size_t i = 0; i < N_ELEMENTS(ends); i++)
        if (str_has_suffix(name, ends[i]))
            return true;
    return false;
}

/* Packs "package/dist/x.js" at its place; a tarball's first directory can have any name. */
static int pack_entry(struct packing *p, struct archive *in, struct archive_entry *from,
                      const char *tarball, struct err *e)
{
    const char *name = archive_entry_pathname(from);
    const char *rest = name ? strchr(name, '/') : NULL;
    _cleanup_free_ char *path = NULL;
    struct archive_entry *to;
    mode_t mode = archive_entry_perm(from);
    int r = 0;

    if (archive_entry_filetype(from) != AE_IFREG || archive_entry_hardlink(from))
        return 0; /* npm packs and unpacks only files */
    if (!rest || !rest[1] || !is_safe(rest + 1))
        return err_set(e, ERR_DATA_LOSS, "'%s' has the unusable name '%.100s'", tarball,
                       name ? name : "");
    if (is_for_developers(rest))
        return 0;
    if (asprintf(&path, "%s%s", p->place, rest) < 0)
        return err_oom(e);
    to = archive_entry_new();
    if (!to)
        return err_oom(e);
    archive_entry_set_pathname(to, path);
    archive_entry_set_filetype(to, AE_IFREG);
    archive_entry_set_perm(to, mode & 0111 ? 0755 : 0644);
    archive_entry_set_size(to, archive_entry_size(from));
    archive_entry_set_mtime(to, archive_entry_mtime(from), 0);
    if (archive_write_header(p->out, to) < ARCHIVE_WARN)
        r = archive_failed(p->out, "packing", e);
    archive_entry_free(to);
    return r < 0 ? r : copy_data(p, in, tarball, e);
}

static int pack_entries(struct packing *p, struct archive *in, const char *tarball, struct err *e)
{
    struct archive_entry *entry;
    int r, n;

    if (archive_read_open_filename(in, tarball, CHUNK_BYTES) != ARCHIVE_OK)
        return archive_failed(in, tarball, e);
    while ((n = archive_read_next_header(in, &entry)) != ARCHIVE_EOF) {
        if (n < ARCHIVE_WARN)
            return archive_failed(in, tarball, e);
        r = pack_entry(p, in, entry, tarball, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int pack_tarball(struct packing *p, const char *tarball, struct err *e)
{
    struct archive *in = archive_read_new();
    int r;

    if (!in)
        return err_oom(e);
    (void)archive_read_support_filter_gzip(in);
    (void)archive_read_support_format_tar(in);
    r = pack_entries(p, in, tarball, e);
    (void)archive_read_free(in);
    return r;
}

static int pack_package(struct packing *p, const char *place, json_t *pkg, struct err *e)
{
    const char *version = json_string_value(json_object_get(pkg, "version"));
    const char *integrity = json_string_value(json_object_get(pkg, "integrity"));
    _cleanup_free_ char *tarball = NULL;
    int r;

    if (!version || !integrity || !is_safe(place))
        return err_set(e, ERR_INVALID, "the lock file has no version and integrity of '%.200s'",
                       place);
    r = npm_fetch(p->npm, package_name(place, pkg), version, integrity, &tarball, e);
    if (r < 0)
        return r;
    p->place = place;
    return pack_tarball(p, tarball, e);
}

static int pack_all(struct packing *p, json_t *packages, const char *cpu, struct err *e)
{
    size_t total = json_object_size(packages), done = 0;
    const char *place;
    json_t *pkg;

    if (total > NPM_MAX_PACKAGES)
        return err_set(e, ERR_EXHAUSTED, "the lock file has more than %d packages",
                       NPM_MAX_PACKAGES);
    json_object_foreach (packages, place, pkg) {
        int r = is_wanted(place, pkg, cpu) ? pack_package(p, place, pkg, e) : 0;

        if (r < 0)
            return r;
        done++;
        ctx_progress(npm_ctx(p->npm), "install", 0, 0, false, "fetched package %zu of %zu", done,
                     total);
    }
    return 0;
}

static int open_output(struct archive *a, const char *path, struct err *e)
{
    (void)archive_write_set_format_pax_restricted(a);
    if (archive_write_add_filter_zstd(a) != ARCHIVE_OK ||
        archive_write_set_options(a, "zstd:compression-level=3") != ARCHIVE_OK ||
        archive_write_open_filename(a, path) != ARCHIVE_OK)
        return archive_failed(a, "packing", e);
    return 0;
}

static int write_tree(struct npm *n, json_t *packages, const char *arch, const char *path,
                      struct err *e)
{
    _cleanup_free_ char *chunk = malloc(CHUNK_BYTES);
    struct packing p = {.npm = n, .chunk = chunk};
    int r = archive_lib_load(e);

    if (r < 0)
        return r;
    p.out = archive_write_new();
    if (!p.out || !chunk)
        r = err_oom(e);
    else
        r = open_output(p.out, path, e);
    if (r == 0)
        r = pack_all(&p, packages, npm_cpu(arch), e);
    if (r == 0 && archive_write_close(p.out) != ARCHIVE_OK)
        r = archive_failed(p.out, "packing", e);
    if (p.out)
        (void)archive_write_free(p.out);
    return r;
}

/* ---- the cache of trees ---- */

/* <cache>/tree-<hash of format, lock and processor>.tar.zst; its digest lies in a file beside
 * it. */
static int tree_path(struct npm *n, const char *lock, size_t len, const char *arch, char **ret,
                     struct err *e)
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx sha;
    char hex[KEY_HEX + 1];

    sha256_init(&sha);
    sha256_update(&sha, sizeof(TREE_FORMAT), (const uint8_t *)TREE_FORMAT);
    sha256_update(&sha, strlen(arch) + 1, (const uint8_t *)arch);
    sha256_update(&sha, len, (const uint8_t *)lock);
    sha256_digest(&sha, sizeof(digest), digest);
    for (size_t i = 0; i < KEY_HEX / 2; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    if (asprintf(ret, "%s/tree-%s.tar.zst", npm_cache_dir(n), hex) < 0)
        return err_oom(e);
    return 0;
}

bool npm_tree_is_there(const char *path)
{
    _cleanup_free_ char *digest_path = NULL;
    _cleanup_free_ char *digest = NULL;

    if (asprintf(&digest_path, "%s.sha512", path) < 0)
        return false;
    return io_read_file(AT_FDCWD, digest_path, 4096, &digest, NULL, NULL) == 0 &&
           npm_check_file(path, digest, NULL) == 1;
}

static int make_tree(struct npm *n, json_t *packages, const char *arch, const char *path,
                     const char *digest_path, struct err *e)
{
    _cleanup_free_ char *tmp = NULL, *digest = NULL;
    char nonce[17];
    int r = io_random_hex(8, nonce, e);

    if (r < 0)
        return r;
    if (asprintf(&tmp, "%s.%s.tmp", path, nonce) < 0)
        return err_oom(e);
    r = write_tree(n, packages, arch, tmp, e);
    if (r == 0)
        r = npm_digest_file(tmp, &digest, e);
    if (r == 0)
        r = io_write_file(AT_FDCWD, digest_path, digest, strlen(digest), 0600, false, e);
    if (r == 0 && rename(tmp, path) < 0)
        r = err_sys(e, errno, "rename '%s'", path);
    if (r < 0)
        (void)unlink(tmp);
    return r;
}

static int tree_of_lock(struct npm *n, const char *lock, size_t len, const char *arch,
                        char **ret_path, struct err *e)
{
    _cleanup_free_ char *path = NULL, *digest_path = NULL;
    _cleanup_json_ json_t *doc = NULL;
    json_t *packages;
    int r = jx_parse(lock, len, &doc, e);

    if (r < 0)
        return err_wrap(e, r, "the lock file");
    packages = json_object_get(doc, "packages");
    if (json_integer_value(json_object_get(doc, "lockfileVersion")) < 2 || !packages)
        return err_set(e, ERR_INVALID, "the lock file is not of version 2 or 3");
    r = tree_path(n, lock, len, arch, &path, e);
    if (r < 0)
        return r;
    if (asprintf(&digest_path, "%s.sha512", path) < 0)
        return err_oom(e);
    if (!npm_tree_is_there(path))
        r = make_tree(n, packages, arch, path, digest_path, e);
    if (r < 0)
        return r;
    *ret_path = TAKE(path);
    return 0;
}

/* ---- another version than the lock's ---- */

/* {"private":true,"dependencies":{NAME:VERSION}} */
static int write_manifest(const char *dir, json_t *lock, const char *version, struct err *e)
{
    json_t *deps =
        json_object_get(json_object_get(json_object_get(lock, "packages"), ""), "dependencies");
    const char *name = json_object_iter_key(json_object_iter(deps));
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_free_ char *text = NULL, *path = NULL;
    size_t len;
    int r;

    if (!name)
        return err_set(e, ERR_INVALID, "the lock file has no direct dependency");
    doc = json_pack("{s:b, s:{s:s}}", "private", 1, "dependencies", name, version);
    path = path_join(dir, "package.json");
    if (!doc || !path)
        return err_oom(e);
    r = jx_dump(doc, &text, &len, e);
    return r < 0 ? r : io_write_file(AT_FDCWD, path, text, len, 0600, false, e);
}

static int run_npm(struct npm *n, const char *dir, struct err *e)
{
    static const char *const argv[] = {"npm",
                                       "install",
                                       "--package-lock-only",
                                       "--omit=dev",
                                       "--ignore-scripts",
                                       "--no-audit",
                                       "--no-fund",
                                       NULL};
    _cleanup_free_ char *registry = NULL, *setting = NULL;
    const char *env[2] = {0};
    struct hostcmd cmd = {.argv = argv,
                          .env = env,
                          .cwd = dir,
                          .out_fd = -1,
                          .cancel_fd = npm_ctx(n)->cancel_fd,
                          .debug = &npm_ctx(n)->debug,
                          .deadline_mono_ms = npm_deadline(n)};
    int r = npm_registry(n, "", &registry, e);

    if (r < 0)
        return r;
    if (asprintf(&setting, "npm_config_registry=%s", registry) < 0)
        return err_oom(e);
    env[0] = setting;
    r = hostcmd_run(&cmd, NULL, e);
    if (r == -ERR_NOT_FOUND)
        return err_set(
            e, ERR_UNAVAILABLE,
            "only the recipe's own version can be installed without npm on this machine");
    if (r == -ERR_PRECONDITION)
        return err_set(e, ERR_UNAVAILABLE, "npm could not resolve the packages: %.300s",
                       e ? e->message : "");
    return r;
}

static void remove_dir(const char *dir)
{
    static const char *const files[] = {"package.json", "package-lock.json"};

    for (size_t i = 0; i < N_ELEMENTS(files); i++) {
        _cleanup_free_ char *path = path_join(dir, files[i]);

        if (path)
            (void)unlink(path);
    }
    (void)rmdir(dir);
}

static int resolve_lock(struct npm *n, const char *lock, size_t len, const char *version,
                        char **ret, size_t *ret_len, struct err *e)
{
    _cleanup_free_ char *dir = path_join(npm_cache_dir(n), "lock-XXXXXX");
    _cleanup_free_ char *made = NULL;
    _cleanup_json_ json_t *doc = NULL;
    int r;

    if (!dir)
        return err_oom(e);
    r = jx_parse(lock, len, &doc, e);
    if (r < 0)
        return err_wrap(e, r, "the lock file");
    if (!mkdtemp(dir))
        return err_sys(e, errno, "mkdir '%s'", dir);
    r = write_manifest(dir, doc, version, e);
    if (r == 0)
        r = run_npm(n, dir, e);
    if (r == 0) {
        made = path_join(dir, "package-lock.json");
        r = made ? io_read_file(AT_FDCWD, made, NPM_MAX_LOCK_BYTES, ret, ret_len, e) : err_oom(e);
    }
    remove_dir(dir);
    return r;
}

int npm_place_tree(struct npm *n, const char *lock_path, const char *arch, char **ret_path,
                   struct err *e)
{
    _cleanup_free_ char *lock = NULL;
    size_t len;
    int r = io_read_file(AT_FDCWD, lock_path, NPM_MAX_LOCK_BYTES, &lock, &len, e);

    return r < 0 ? r : tree_path(n, lock, len, arch, ret_path, e);
}

int npm_fetch_tree(struct npm *n, const char *lock_path, const char *version, const char *arch,
                   char **ret_path, struct err *e)
{
    _cleanup_free_ char *lock = NULL, *resolved = NULL;
    size_t len, resolved_len;
    int r = io_read_file(AT_FDCWD, lock_path, NPM_MAX_LOCK_BYTES, &lock, &len, e);

    if (r < 0)
        return r;
    if (!version)
        return tree_of_lock(n, lock, len, arch, ret_path, e);
    r = resolve_lock(n, lock, len, version, &resolved, &resolved_len, e);
    return r < 0 ? r : tree_of_lock(n, resolved, resolved_len, arch, ret_path, e);
}
