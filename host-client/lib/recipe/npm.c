#include "lib/recipe/npm.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/util/hostcmd.h"
#include "lib/util/transport.h"

#define INTEGRITY_PREFIX "sha512-"
#define INTEGRITY_BYTES (sizeof(INTEGRITY_PREFIX) + B64_LEN(SHA512_DIGEST_SIZE))
#define NPMRC_MAX_BYTES (256 * 1024)
#define METADATA_MAX_BYTES (4 * 1024 * 1024)
#define MAX_REDIRECTS 5
#define CONFIG_TIMEOUT_MS 20000
#define PROGRESS_STEP_BYTES (1024 * 1024)

struct npm {
    struct bh_ctx *ctx;
    struct http *http;
    char *cache_dir;
    char *registry; /* for packages without a registry of their own; NULL: not known yet */
    char **npmrcs;  /* the texts of the settings files, nearest first */
    int64_t deadline_mono_ms;
};

/* ---- settings ---- */

static char *trim_text(char *s)
{
    size_t n;

    s += strspn(s, " \t\"'");
    n = strlen(s);
    while (n && strchr(" \t\r\"'", s[n - 1]))
        s[--n] = '\0';
    return s;
}

char *npm_read_setting(const char *npmrc, const char *key)
{
    _cleanup_free_ char *copy = strdup(npmrc);
    char *save = NULL;

    if (!copy)
        return NULL;
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *eq = strchr(line, '=');

        line += strspn(line, " \t");
        if (!eq || *line == ';' || *line == '#')
            continue;
        *eq = '\0';
        if (strcmp(trim_text(line), key) == 0)
            return strdup(trim_text(eq + 1));
    }
    return NULL;
}

/* A missing or unreadable file has no settings. */
static int push_npmrc(struct npm *n, const char *path, struct err *e)
{
    _cleanup_free_ char *text = NULL;

    if (io_read_file(AT_FDCWD, path, NPMRC_MAX_BYTES, &text, NULL, NULL) < 0)
        return 0;
    return strv_push(&n->npmrcs, text, e);
}

static int read_npmrcs(struct npm *n, struct err *e)
{
    static const char *const files[] = {"/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc"};
    _cleanup_free_ char *own = NULL;
    struct passwd pw, *found = NULL;
    char text[4096];
    int r = 0;

    if (getpwuid_r(geteuid(), &pw, text, sizeof(text), &found) == 0 && found) {
        if (asprintf(&own, "%s/.npmrc", pw.pw_dir) < 0)
            return err_oom(e);
        r = push_npmrc(n, own, e);
    }
    for (size_t i = 0; r == 0 && i < N_ELEMENTS(files); i++)
        r = push_npmrc(n, files[i], e);
    return r;
}

static char *find_setting(const struct npm *n, const char *key)
{
    for (size_t i = 0; n->npmrcs && n->npmrcs[i]; i++) {
        char *value = npm_read_setting(n->npmrcs[i], key);

        if (value)
            return value;
    }
    return NULL;
}

/* Asks npm itself, which knows its default and its prefix. */
static int ask_npm(struct npm *n, char **ret, struct err *e)
{
    static const char *const argv[] = {"npm", "config", "get", "registry", NULL};
    static const char *const env[] = {"npm_config_update_notifier=false", NULL};
    _cleanup_buf_ struct buf out;
    struct hostcmd cmd = {.argv = argv,
                          .env = env,
                          .cwd = "/",
                          .out_fd = -1,
                          .out = &out,
                          .cancel_fd = n->ctx->cancel_fd,
                          .debug = &n->ctx->debug,
                          .deadline_mono_ms = clock_mono_ms() + CONFIG_TIMEOUT_MS};
    int r;

    buf_init(&out, 4096);
    r = hostcmd_run(&cmd, NULL, e);
    if (r < 0)
        return r;
    while (out.len && isspace((unsigned char)out.data[out.len - 1]))
        out.data[--out.len] = '\0';
    *ret = buf_take(&out);
    return *ret ? 0 : err_oom(e);
}

static int no_registry(const struct err *why, struct err *e)
{
    return err_field(
        e, ERR_UNAVAILABLE, "npm_registry",
        "no npm registry is set: set npm_config_registry, or 'registry' in ~/.npmrc (%s)",
        why->message);
}

static int find_registry(struct npm *n, struct err *e)
{
    _cleanup_free_ char *found = NULL;
    struct err why = {0};
    int r;

    if (n->registry)
        return 0;
    if (n->ctx->npm_registry && *n->ctx->npm_registry)
        found = strdup(n->ctx->npm_registry);
    else
        found = find_setting(n, "registry");
    if (!found) {
        r = ask_npm(n, &found, &why);
        if (r == -ERR_CANCELED)
            return err_set(e, ERR_CANCELED, "canceled");
        if (r < 0)
            return no_registry(&why, e);
    }
    if (!str_has_prefix(found, "http://") && !str_has_prefix(found, "https://"))
        return err_field(e, ERR_INVALID, "npm_registry", "the npm registry is not a URL");
    n->registry = TAKE(found);
    return 0;
}

int npm_registry(struct npm *n, const char *package, char **ret, struct err *e)
{
    _cleanup_free_ char *key = NULL, *found = NULL;
    size_t len;
    int r;

    if (package[0] == '@') {
        if (asprintf(&key, "%.*s:registry", (int)strcspn(package, "/"), package) < 0)
            return err_oom(e);
        found = find_setting(n, key);
    }
    if (!found) {
        r = find_registry(n, e);
        if (r < 0)
            return r;
        found = strdup(n->registry);
    }
    if (!found)
        return err_oom(e);
    len = strlen(found);
    while (len && found[len - 1] == '/')
        found[--len] = '\0';
    *ret = TAKE(found);
    return 0;
}

/* ---- digests ---- */

static void digest_text(struct sha512_ctx *sha, char out[INTEGRITY_BYTES])
{
    uint8_t digest[SHA512_DIGEST_SIZE];

    sha512_digest(sha, sizeof(digest), digest);
    memcpy(out, INTEGRITY_PREFIX, strlen(INTEGRITY_PREFIX));
    b64_encode(digest, sizeof(digest), out + strlen(INTEGRITY_PREFIX));
    out[INTEGRITY_BYTES - 1] = '\0';
}

static int digest_fd(int fd, const char *path, char out[INTEGRITY_BYTES], struct err *e)
{
    _cleanup_free_ uint8_t *chunk = malloc(65536);
    struct sha512_ctx sha;
    size_t n;

    if (!chunk)
        return err_oom(e);
    sha512_init(&sha);
    do {
        int r = io_read_full(fd, chunk, 65536, &n, e);

        if (r < 0)
            return err_wrap(e, r, "'%s'", path);
        sha512_update(&sha, n, chunk);
    } while (n);
    digest_text(&sha, out);
    return 0;
}

int npm_digest_file(const char *path, char **ret, struct err *e)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[INTEGRITY_BYTES];
    int r;

    if (fd < 0)
        return err_sys(e, errno, "open '%s'", path);
    r = digest_fd(fd, path, text, e);
    if (r < 0)
        return r;
    *ret = strdup(text);
    return *ret ? 0 : err_oom(e);
}

/* An integrity can list several digests, with options behind a '?'. */
static bool integrity_has(const char *integrity, const char *digest)
{
    size_t len = strlen(digest);

    for (const char *p = integrity; (p = strstr(p, digest)); p++)
        if ((p == integrity || p[-1] == ' ') && (!p[len] || p[len] == ' ' || p[len] == '?'))
            return true;
    return false;
}

int npm_check_file(const char *path, const char *integrity, struct err *e)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[INTEGRITY_BYTES];
    int r;

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", path);
    r = digest_fd(fd, path, text, e);
    return r < 0 ? r : integrity_has(integrity, text);
}

/* ---- fetching ---- */

struct download {
    struct npm *npm;
    const char *label; /* "opencode-linux-x64 1.18.33" */
    int fd;
    struct sha512_ctx sha;
    int64_t bytes;
    int64_t reported;
    struct err failed; /* code 0: no failure */
};

static int take_piece(void *arg, const char *data, size_t len)
{
    struct download *d = arg;

    if (d->bytes + (int64_t)len > NPM_MAX_TARBALL_BYTES) {
        err_set(&d->failed, ERR_EXHAUSTED, "it is larger than %lld bytes", NPM_MAX_TARBALL_BYTES);
        return 1;
    }
    if (io_write_all(d->fd, data, len, &d->failed) < 0)
        return 1;
    sha512_update(&d->sha, len, (const uint8_t *)data);
    d->bytes += (int64_t)len;
    if (d->bytes - d->reported >= PROGRESS_STEP_BYTES) {
        ctx_progress(d->npm->ctx, "install", (uint64_t)d->bytes, 0, false, "fetching %s", d->label);
        d->reported = d->bytes;
    }
    return 0;
}

/* Requests a path of a registry and follows redirects. With a download, the body goes there. */
static int registry_get(struct npm *n, const char *url, struct download *d,
                        struct http_response *ret, struct err *e)
{
    _cleanup_free_ char *at = strdup(url);
    int r;

    for (int hop = 0; at && hop <= MAX_REDIRECTS; hop++) {
        struct http_request req = {.method = "GET",
                                   .url = at,
                                   .write = d ? take_piece : NULL,
                                   .write_arg = d,
                                   .max_body = METADATA_MAX_BYTES,
                                   .deadline_mono_ms = n->deadline_mono_ms};
        char next[4096];

        r = http_do(n->http, &req, ret, e);
        if (r < 0 || ret->status / 100 != 3)
            return r;
        if (!http_header(ret, "Location", next, sizeof(next)) ||
            (!str_has_prefix(next, "https://") && !str_has_prefix(next, "http://")))
            return err_set(e, ERR_UNAVAILABLE, "a redirect without a target");
        http_response_done(ret);
        free(at);
        at = strdup(next);
    }
    return at ? err_set(e, ERR_UNAVAILABLE, "redirected more than %d times", MAX_REDIRECTS)
              : err_oom(e);
}

/* Translates the error of a failed transfer for the person who wants the package. */
static int explain_failure(const char *label, int r, const struct err *why, struct err *e)
{
    if (r == -ERR_CANCELED || r == -ERR_DEADLINE || r == -ERR_EXHAUSTED)
        return err_set(e, (enum err_code) - r, "npm package %s: %s", label, why->message);
    return err_field(e, ERR_UNAVAILABLE, "npm_registry",
                     "npm package %s can't be fetched: the registry did not answer: %s", label,
                     why->message);
}

static int check_status(const char *label, int status, struct err *e)
{
    if (status / 100 == 2)
        return 0;
    if (status == 404)
        return err_set(e, ERR_NOT_FOUND, "npm package %s is not in the registry", label);
    return err_field(e, ERR_UNAVAILABLE, "npm_registry",
                     "npm package %s can't be fetched: the registry answered with status %d", label,
                     status);
}

/* Reads the tarball's URL and digest from the registry's metadata. */
static int read_metadata(struct npm *n, const char *registry, const char *package,
                         const char *version, const char *label, char **ret_url,
                         char **ret_integrity, struct err *e)
{
    size_t scope = package[0] == '@' ? strcspn(package, "/") : 0;
    struct http_response res = {0};
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_free_ char *url = NULL;
    const char *tarball = NULL, *integrity = NULL;
    struct err why = {0};
    int r;

    if (asprintf(&url, "%s/%.*s%s%s/%s", registry, (int)scope, package, scope ? "%2f" : "",
                 package + scope + (scope ? 1 : 0), version) < 0)
        return err_oom(e);
    r = registry_get(n, url, NULL, &res, &why);
    r = r < 0 ? explain_failure(label, r, &why, e) : check_status(label, res.status, e);
    if (r == 0)
        r = jx_parse(res.body.data ? res.body.data : "", res.body.len, &doc, &why) < 0
                ? explain_failure(label, -ERR_UNAVAILABLE, &why, e)
                : 0;
    http_response_done(&res);
    if (r < 0)
        return r;
    (void)json_unpack(doc, "{s:{s:s, s:s}}", "dist", "tarball", &tarball, "integrity", &integrity);
    if (!tarball || !integrity || !strstr(integrity, INTEGRITY_PREFIX))
        return err_set(e, ERR_UNAVAILABLE, "npm package %s: the registry gives no sha512 of it",
                       label);
    *ret_url = strdup(tarball);
    *ret_integrity = strdup(integrity);
    return *ret_url && *ret_integrity ? 0 : err_oom(e);
}

/* Downloads into a temporary file, renamed once its digest is verified. */
static int download_package(struct npm *n, const char *url, const char *label,
                            const char *integrity, const char *path, struct err *e)
{
    struct download d = {.npm = n, .label = label};
    struct http_response res = {0};
    _cleanup_free_ char *tmp = NULL;
    char text[INTEGRITY_BYTES], nonce[17];
    struct err why = {0};
    int r = io_random_hex(8, nonce, e);

    if (r < 0)
        return r;
    if (asprintf(&tmp, "%s.%s.tmp", path, nonce) < 0)
        return err_oom(e);
    d.fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (d.fd < 0)
        return err_sys(e, errno, "create '%s'", tmp);
    sha512_init(&d.sha);
    ctx_progress(n->ctx, "install", 0, 0, false, "fetching %s", label);
    r = registry_get(n, url, &d, &res, &why);
    if (r < 0)
        r = explain_failure(label, d.failed.code ? -d.failed.code : r,
                            d.failed.code ? &d.failed : &why, e);
    else
        r = check_status(label, res.status, e);
    http_response_done(&res);
    fd_close(d.fd);
    digest_text(&d.sha, text);
    if (r == 0 && !integrity_has(integrity, text))
        r = err_set(e, ERR_DATA_LOSS, "npm package %s is not what it should be: its digest is %s",
                    label, text);
    if (r == 0 && rename(tmp, path) < 0)
        r = err_sys(e, errno, "rename '%s'", path);
    if (r < 0)
        (void)unlink(tmp);
    return r;
}

/* Tries the usual URL of a tarball first; the metadata names any other. */
static int fetch_pinned(struct npm *n, const char *registry, const char *package,
                        const char *version, const char *label, const char *integrity,
                        const char *path, struct err *e)
{
    const char *slash = strchr(package, '/');
    _cleanup_free_ char *usual = NULL, *listed = NULL, *ignored = NULL;
    int r;

    if (asprintf(&usual, "%s/%s/-/%s-%s.tgz", registry, package, slash ? slash + 1 : package,
                 version) < 0)
        return err_oom(e);
    r = download_package(n, usual, label, integrity, path, e);
    if (r != -ERR_NOT_FOUND)
        return r;
    r = read_metadata(n, registry, package, version, label, &listed, &ignored, e);
    return r < 0 ? r : download_package(n, listed, label, integrity, path, e);
}

static int fetch_listed(struct npm *n, const char *registry, const char *package,
                        const char *version, const char *label, const char *path, struct err *e)
{
    _cleanup_free_ char *url = NULL, *integrity = NULL;
    int r = read_metadata(n, registry, package, version, label, &url, &integrity, e);

    if (r < 0)
        return r;
    r = npm_check_file(path, integrity, e);
    if (r != 0)
        return r < 0 ? r : 0;
    return download_package(n, url, label, integrity, path, e);
}

int npm_place(struct npm *n, const char *package, const char *version, char **ret_path,
              struct err *e)
{
    _cleanup_free_ char *path = NULL;

    if (asprintf(&path, "%s/%s-%s.tgz", n->cache_dir, package, version) < 0)
        return err_oom(e);
    for (char *p = path + strlen(n->cache_dir) + 1; *p; p++)
        if (*p == '/')
            *p = '+';
    *ret_path = TAKE(path);
    return 0;
}

int npm_fetch(struct npm *n, const char *package, const char *version, const char *integrity,
              char **ret_path, struct err *e)
{
    _cleanup_free_ char *path = NULL, *label = NULL, *registry = NULL;
    bool is_pinned = integrity && *integrity;
    int r = npm_place(n, package, version, &path, e);

    if (r == 0 && asprintf(&label, "%s %s", package, version) < 0)
        r = err_oom(e);
    if (r == 0 && is_pinned)
        r = npm_check_file(path, integrity, e);
    if (r < 0)
        return r;
    if (r == 0) {
        r = npm_registry(n, package, &registry, e);
        if (r == 0)
            r = is_pinned ? fetch_pinned(n, registry, package, version, label, integrity, path, e)
                          : fetch_listed(n, registry, package, version, label, path, e);
        if (r < 0)
            return r;
    }
    *ret_path = TAKE(path);
    return 0;
}

/* ---- its life ---- */

int npm_new(struct bh_ctx *ctx, int64_t deadline_mono_ms, struct npm **ret, struct err *e)
{
    struct npm *n = calloc(1, sizeof(*n));
    int r;

    if (!n)
        return err_oom(e);
    n->ctx = ctx;
    n->deadline_mono_ms = deadline_mono_ms;
    if (asprintf(&n->cache_dir, "%s/npm", ctx->cache_dir) < 0)
        n->cache_dir = NULL;
    r = n->cache_dir ? io_mkdir_p(n->cache_dir, 0700, e) : err_oom(e);
    if (r == 0)
        r = read_npmrcs(n, e);
    if (r == 0)
        r = http_new(ctx->cancel_fd, &n->http, e);
    if (r == 0)
        http_set_debug(n->http, &ctx->debug);
    if (r < 0) {
        n = npm_free(n);
        return r;
    }
    *ret = n;
    return 0;
}

struct npm *npm_free(struct npm *n)
{
    if (!n)
        return NULL;
    if (n->http)
        http_free(n->http);
    free(n->cache_dir);
    free(n->registry);
    strv_free(n->npmrcs);
    free(n);
    return NULL;
}

const char *npm_cache_dir(const struct npm *n)
{
    return n->cache_dir;
}

struct bh_ctx *npm_ctx(const struct npm *n)
{
    return n->ctx;
}

int64_t npm_deadline(const struct npm *n)
{
    return n->deadline_mono_ms;
}
