#include "lib/project/sync_list.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/beneath.h"

#define PAGE 2000                              /* entries of one Missing: about 400 KiB */
#define PAGE_BYTES (2ull * 1024 * 1024 * 1024) /* the agent reads the files before it answers */
#define BASE_MAGIC "bellhop-sync 1"
#define MAX_DEPTH 256   /* the agent unpacks so deep */
#define MALLOC_BYTES 32 /* overhead of an allocated string */
#define BASE_MAX_BYTES (512u * 1024 * 1024)
#define MODE_BITS 0777

/* ---- the list -------------------------------------------------------------------------------- */

static void entry_done(struct sync_entry *en)
{
    free(en->name);
    free(en->path);
    free(en->target);
}

void sync_list_done(struct sync_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        entry_done(&l->v[i]);
    free(l->v);
    *l = (struct sync_list){0};
}

int sync_list_add(struct sync_list *l, const char *name, struct sync_entry **ret, struct err *e)
{
    if (l->n == SYNC_MAX_ENTRIES)
        return err_set(e, ERR_EXHAUSTED, "more than %u files", SYNC_MAX_ENTRIES);
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 256;
        struct sync_entry *v = reallocarray(l->v, cap, sizeof(*v));

        if (!v)
            return err_oom(e);
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n] = (struct sync_entry){.name = strdup(name)};
    if (!l->v[l->n].name)
        return err_oom(e);
    *ret = &l->v[l->n++];
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct sync_entry *)a)->name, ((const struct sync_entry *)b)->name);
}

const char *sync_list_sort(struct sync_list *l)
{
    const char *twice = NULL;
    size_t kept = 0;

    if (l->n)
        qsort(l->v, l->n, sizeof(*l->v), by_name);
    for (size_t i = 0; i < l->n; i++) {
        if (kept && strcmp(l->v[kept - 1].name, l->v[i].name) == 0) {
            entry_done(&l->v[i]);
            twice = l->v[kept - 1].name;
        } else {
            l->v[kept++] = l->v[i];
        }
    }
    l->n = kept;
    return twice;
}

struct sync_entry *sync_list_find(const struct sync_list *l, const char *name)
{
    struct sync_entry key = {.name = (char *)(uintptr_t)name};

    return l->n ? bsearch(&key, l->v, l->n, sizeof(*l->v), by_name) : NULL;
}

void sync_entry_set(struct sync_entry *en, const struct stat *st)
{
    en->type = S_ISREG(st->st_mode)   ? SYNC_FILE
               : S_ISDIR(st->st_mode) ? SYNC_DIR
               : S_ISLNK(st->st_mode) ? SYNC_LINK
                                      : SYNC_OTHER;
    en->mode = st->st_mode & MODE_BITS;
    en->size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
    en->mtime = st->st_mtim;
}

/* ---- times ----------------------------------------------------------------------------------- */

/* "2026-11-22T01:35:00.123456789Z" */
static int sync_time_parse(const char *s, struct timespec *ret, struct err *e)
{
    struct tm tm = {0};
    long ns = 0;
    int n = 0;

    if (sscanf(s, "%4d-%2d-%2dT%2d:%2d:%2d.%9ldZ%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &ns, &n) != 7 ||
        !n || s[n] || ns < 0)
        return err_set(e, ERR_DATA_LOSS, "the agent gave the time '%.40s'", s);
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *ret = (struct timespec){.tv_sec = timegm(&tm), .tv_nsec = ns};
    return 0;
}

void sync_time_format(const struct timespec *t, char *out, size_t out_bytes)
{
    struct tm tm;

    (void)gmtime_r(&t->tv_sec, &tm);
    (void)snprintf(out, out_bytes, "%04d-%02d-%02dT%02d:%02d:%02d.%09ldZ", tm.tm_year + 1900,
                   tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, t->tv_nsec);
}

/* ---- here ------------------------------------------------------------------------------------ */

static int set_target(struct sync_entry *en, int root, const char *path, struct err *e)
{
    char target[PATH_MAX];

    if (beneath_readlink(root, path, target, sizeof(target)) < 0)
        return err_at(e, err_sys(e, errno, "read '%s'", en->name), en->name);
    en->target = strdup(target);
    return en->target ? 0 : err_oom(e);
}

/* Skips a file that has vanished since it was listed. */
static int add_local(struct sync_list *l, const struct sync_request *req,
                     const struct gitfiles *files, const struct gitfiles_entry *at, struct err *e)
{
    int root = files->roots[at->root];
    struct sync_entry *en;
    struct stat st;
    int r;

    if (sync_is_excluded(req, at->name) || str_has_prefix(at->name, SYNC_TEMP_PREFIX))
        return 0;
    if (beneath_stat(root, at->path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
                   ? 0
                   : err_at(e, err_sys(e, errno, "stat '%s'", at->name), at->name);
    r = sync_list_add(l, at->name, &en, e);
    if (r < 0)
        return r;
    sync_entry_set(en, &st);
    en->root = at->root;
    if (!str_eq(at->path, at->name) && !(en->path = strdup(at->path)))
        return err_oom(e);
    return en->type == SYNC_LINK ? set_target(en, root, at->path, e) : 0;
}

int sync_list_local(struct sync_list *l, const struct sync_request *req, struct gitfiles *ret_files,
                    struct err *e)
{
    struct gitfiles_options o = {.ctx = req->ctx,
                                 .source = req->local,
                                 .git = req->with_git ? "full" : "none",
                                 .with_secrets = req->with_secrets};
    struct gitfiles_entry at;
    int r = gitfiles_list(&o, ret_files, e);

    while (r == 0) {
        r = gitfiles_next(ret_files, &at, e);
        if (r <= 0)
            break;
        r = add_local(l, req, ret_files, &at, e);
    }
    if (r == 0)
        (void)sync_list_sort(l);
    return r;
}

/* ---- in the box ------------------------------------------------------------------------------ */

struct reader {
    struct sync_list *l;
    const struct sync_request *req;
    uint64_t bytes_left;
    json_t *incomplete; /* from the end message, or NULL */
    int r;
    struct err e;
};

static enum sync_type type_from(const char *s)
{
    return str_eq(s, "file")        ? SYNC_FILE
           : str_eq(s, "directory") ? SYNC_DIR
           : str_eq(s, "symlink")   ? SYNC_LINK
                                    : SYNC_OTHER;
}

static int read_digest(const char *hex, struct sync_entry *en)
{
    en->has_digest = hex && strlen(hex) == 2 * SYNC_DIGEST_BYTES;
    for (size_t i = 0; en->has_digest && i < SYNC_DIGEST_BYTES; i++) {
        unsigned byte;

        en->has_digest = sscanf(hex + 2 * i, "%2x", &byte) == 1;
        en->digest[i] = (uint8_t)byte;
    }
    return 0;
}

static unsigned count_parts(const char *path)
{
    unsigned n = 1;

    while ((path = strchr(path, '/'))) {
        path++;
        n++;
    }
    return n;
}

/* Normalizes a name that lies below the directory; a hostile box sends any other name too. */
static int clean_name(const char *name, char **ret, struct err *e)
{
    _cleanup_free_ char *clean = path_clean(name);

    if (!clean)
        return err_oom(e);
    if (strlen(name) >= PATH_MAX || count_parts(clean) > MAX_DEPTH)
        return err_set(e, ERR_DATA_LOSS, "the box gave the name '%.100s...', which is too long",
                       name);
    if (!beneath_is_inside(name) || str_eq(clean, "."))
        return err_field(e, ERR_DATA_LOSS, name, "the box gave the name '%.200s'", name);
    *ret = TAKE(clean);
    return 0;
}

/* git runs programs that a repository's configuration names. */
static int check_git_name(const struct sync_request *req, const char *name, struct err *e)
{
    const char *at = name;

    if (!beneath_names_git(name))
        return 0;
    while (req->with_git && at) {
        size_t n = strcspn(at, "/");
        _cleanup_free_ char *part = strndup(at, n);

        if (!part)
            return err_oom(e);
        if (beneath_names_git(part) && !str_eq(part, ".git"))
            break;
        at = at[n] ? at + n + 1 : NULL;
    }
    return req->with_git && !at
               ? 0
               : err_field(e, ERR_DENIED, name,
                           "the box gave '%.200s', which git may take for a repository: "
                           "--exclude leaves it alone",
                           name);
}

/* Charges every message, whatever it is: a list of unsendable files would otherwise never end. */
static int charge_bytes(struct reader *rd, size_t bytes, struct err *e)
{
    if (bytes > rd->bytes_left)
        return err_field(e, ERR_EXHAUSTED, "max-files",
                         "the box has too many files for a sync: --max-files takes more");
    rd->bytes_left -= bytes;
    return 0;
}

static int read_entry(struct reader *rd, json_t *obj, struct err *e)
{
    _cleanup_free_ char *path = NULL, *given = NULL, *target = NULL;
    json_int_t size = json_integer_value(json_object_get(obj, "size"));
    json_t *t = json_object_get(obj, "target");
    const char *mode = json_string_value(json_object_get(obj, "mode"));
    struct sync_entry *en;
    unsigned bits = 0;
    int r = jx_path(json_object_get(obj, "path"), &given, e);

    if (r == 0 && t)
        r = jx_path(t, &target, e);
    if (r == 0)
        r = charge_bytes(rd, 2 * strlen(given) + (target ? strlen(target) : 0), e);
    if (r == 0 && target && strlen(target) >= PATH_MAX)
        r = err_field(e, ERR_DATA_LOSS, given, "the box gave a link that is too long");
    if (r == 0)
        r = clean_name(given, &path, e);
    if (r < 0 || sync_is_excluded(rd->req, path) || str_has_prefix(path, SYNC_TEMP_PREFIX))
        return r;
    r = check_git_name(rd->req, path, e);
    if (r == 0 && size < 0)
        r = err_field(e, ERR_DATA_LOSS, path, "the box gave '%.200s' a size below 0", path);
    if (r == 0)
        r = sync_list_add(rd->l, path, &en, e);
    if (r < 0)
        return r;
    en->target = TAKE(target);
    en->type = type_from(json_string_value(json_object_get(obj, "type")));
    en->size = (uint64_t)size;
    if (mode)
        (void)sscanf(mode, "%o", &bits);
    en->mode = bits & MODE_BITS;
    (void)read_digest(json_string_value(json_object_get(obj, "sha256")), en);
    mode = json_string_value(json_object_get(obj, "mtime"));
    return sync_time_parse(mode ? mode : "", &en->mtime, e);
}

static int on_message(void *arg, json_t *msg)
{
    struct reader *rd = arg;
    json_t *entry = json_object_get(msg, "entry");
    json_t *end = json_object_get(msg, "end");

    rd->r = charge_bytes(rd, sizeof(struct sync_entry) + MALLOC_BYTES, &rd->e);
    if (rd->r == 0 && entry)
        rd->r = read_entry(rd, entry, &rd->e);
    else if (rd->r == 0 && end && !rd->incomplete)
        rd->incomplete = json_incref(json_object_get(end, "incomplete"));
    return rd->r;
}

static json_t *new_manifest_params(const struct sync_request *req)
{
    json_t *excludes = json_array();
    json_t *params =
        json_pack("{s:o, s:b, s:b, s:b, s:o}", "path", jx_new_path(req->remote), "ignore", 1,
                  "no_require_git", 1, "sha256", (int)req->checksum, "exclude", excludes);

    if (params && !req->with_git)
        (void)json_array_append_new(excludes, json_string(".git"));
    for (const char *const *p = req->excludes; params && p && *p; p++)
        (void)json_array_append_new(excludes, json_string(*p));
    return params;
}

/* An unreadable file would look like a deleted one. */
static int refuse_incomplete(json_t *list, struct err *e)
{
    json_t *first = json_array_get(list, 0);
    _cleanup_free_ char *path = NULL;
    const char *why = json_string_value(json_object_get(first, "error"));

    if (!first)
        return 0;
    if (jx_path(json_object_get(first, "path"), &path, NULL) < 0)
        path = strdup("?");
    return err_field(e, ERR_DENIED, path ? path : "", "'%.200s' in the box can't be read: %.200s",
                     path ? path : "?", why ? why : "");
}

/* Is each parent of the entry that the list has a directory? */
static int check_above(const struct sync_list *l, const char *name, struct err *e)
{
    _cleanup_free_ char *dir = strdup(name);
    char *slash;

    if (!dir)
        return err_oom(e);
    while ((slash = strrchr(dir, '/'))) {
        const struct sync_entry *above;

        *slash = '\0';
        above = sync_list_find(l, dir);
        if (above && above->type != SYNC_DIR)
            return err_field(e, ERR_DATA_LOSS, name,
                             "the box gave '%.100s', and '%.100s', which is no directory", name,
                             dir);
    }
    return 0;
}

static int check_tree(const struct sync_list *l, struct err *e)
{
    size_t checked = 0; /* length of the last name's directory */
    int r = 0;

    for (size_t i = 0; i < l->n && r == 0; i++) {
        const char *name = l->v[i].name;
        size_t n = (size_t)(path_name(name) - name);

        if (n && (n != checked || strncmp(name, l->v[i - 1].name, n) != 0))
            r = check_above(l, name, e);
        checked = n;
    }
    return r;
}

int sync_list_remote(struct sync_list *l, const struct sync_request *req, size_t n_local,
                     bool *ret_there, struct err *e)
{
    uint64_t max_files = (req->max_files ? req->max_files : SYNC_MAX_FILES) + n_local;
    struct reader rd = {.l = l, .req = req, .bytes_left = max_files * SYNC_FILE_BYTES};
    _cleanup_json_ json_t *params = new_manifest_params(req);
    const char *twice;
    struct err why = {0};
    int r = params
                ? client_stream(req->client, RPC_archive_manifest, params, 0, on_message, &rd, &why)
                : err_oom(&why);

    *ret_there = r != -ERR_NOT_FOUND;
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (rd.r < 0) {
        r = rd.r;
        why = rd.e;
    }
    if (r == 0)
        r = refuse_incomplete(rd.incomplete, &why);
    json_decref(rd.incomplete);
    twice = r == 0 ? sync_list_sort(l) : NULL;
    if (twice)
        r = err_field(&why, ERR_DATA_LOSS, twice, "the box gave the name '%.200s' twice", twice);
    if (r == 0)
        r = check_tree(l, &why);
    if (r < 0 && e)
        *e = why;
    return r;
}

/* ---- Missing --------------------------------------------------------------------------------- */

static json_t *new_claim(const struct sync_entry *en, bool with_mtime)
{
    static const char *const types[] = {[SYNC_FILE] = "file",
                                        [SYNC_DIR] = "directory",
                                        [SYNC_LINK] = "symlink",
                                        [SYNC_OTHER] = "file"};
    json_t *obj = json_pack("{s:o, s:s}", "path", jx_new_path(en->name), "type", types[en->type]);
    char text[2 * SYNC_DIGEST_BYTES + 1];

    if (obj && en->type == SYNC_FILE)
        (void)json_object_set_new(obj, "size", json_integer((json_int_t)en->size));
    if (obj && en->type == SYNC_FILE && with_mtime) {
        sync_time_format(&en->mtime, text, sizeof(text));
        (void)json_object_set_new(obj, "mtime", json_string(text));
    }
    if (obj && en->type == SYNC_FILE && en->has_digest && !with_mtime) {
        for (size_t i = 0; i < SYNC_DIGEST_BYTES; i++)
            (void)snprintf(text + 2 * i, 3, "%02x", en->digest[i]);
        (void)json_object_set_new(obj, "sha256", json_string(text));
    }
    if (obj && en->type == SYNC_LINK && en->target)
        (void)json_object_set_new(obj, "target", jx_new_path(en->target));
    return obj;
}

static int report_verdicts(json_t *reply, const char *key, struct sync_entry *const *v, size_t n,
                           enum sync_verdict verdict,
                           void (*fn)(struct sync_entry *, enum sync_verdict), struct err *e)
{
    json_t *list = json_object_get(reply, key), *one;
    size_t i, at = 0;

    /* The answers are in the order of the questions. */
    json_array_foreach (list, i, one) {
        _cleanup_free_ char *path = NULL;
        int r = jx_path(one, &path, e);

        if (r < 0)
            return r;
        while (at < n && strcmp(v[at]->name, path) != 0)
            at++;
        if (at == n)
            return err_set(e, ERR_DATA_LOSS, "the agent named '%.200s', which was not asked for",
                           path);
        fn(v[at], verdict);
    }
    return 0;
}

static int ask_page(const struct sync_request *req, struct sync_entry *const *v, size_t n,
                    bool with_mtime, void (*fn)(struct sync_entry *, enum sync_verdict),
                    struct err *e)
{
    json_t *entries = json_array();
    _cleanup_json_ json_t *params =
        json_pack("{s:o, s:o}", "path", jx_new_path(req->remote), "entries", entries);
    _cleanup_json_ json_t *reply = NULL;
    int r = params ? 0 : err_oom(e);

    for (size_t i = 0; i < n && r == 0; i++)
        if (json_array_append_new(entries, new_claim(v[i], with_mtime)) < 0)
            r = err_oom(e);
    if (r == 0)
        r = client_call(req->client, RPC_archive_missing, params, 0, &reply, e);
    if (r == 0)
        r = report_verdicts(reply, "missing", v, n, SYNC_MISSING, fn, e);
    if (r == 0)
        r = report_verdicts(reply, "differs", v, n, SYNC_DIFFERS, fn, e);
    return r < 0 ? r : report_verdicts(reply, "stale", v, n, SYNC_STALE, fn, e);
}

int sync_ask(const struct sync_request *req, struct sync_entry *const *v, size_t n, bool with_mtime,
             void (*fn)(struct sync_entry *en, enum sync_verdict verdict), struct err *e)
{
    int r = 0;

    for (size_t at = 0, count; at < n && r == 0; at += count) {
        uint64_t bytes = 0;

        for (count = 0; count < PAGE && at + count < n && (!count || bytes < PAGE_BYTES); count++)
            bytes += v[at + count]->size;
        r = ask_page(req, v + at, count, with_mtime, fn, e);
    }
    return r;
}

/* ---- the last sync --------------------------------------------------------------------------- */

/* One file for each pair: <state_dir>/sync/<digest of box, directory here, directory there>. */
static char *base_path(const struct sync_request *req)
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    char hex[2 * 16 + 1];
    struct sha256_ctx sha;
    char *path = NULL;

    sha256_init(&sha);
    sha256_update(&sha, strlen(req->box_id) + 1, (const uint8_t *)req->box_id);
    sha256_update(&sha, strlen(req->local) + 1, (const uint8_t *)req->local);
    sha256_update(&sha, strlen(req->remote) + 1, (const uint8_t *)req->remote);
    sha256_digest(&sha, sizeof(digest), digest);
    for (size_t i = 0; i < 16; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return asprintf(&path, "%s/sync/%s-%s", req->ctx->state_dir, req->box_id, hex) < 0 ? NULL
                                                                                       : path;
}

int sync_base_load(struct sync_list *l, const struct sync_request *req, struct err *e)
{
    _cleanup_free_ char *path = base_path(req), *data = NULL;
    struct sync_entry *en;
    size_t len = 0;
    int r = path ? io_read_file(AT_FDCWD, path, BASE_MAX_BYTES, &data, &len, NULL) : err_oom(e);

    /* Without a base nothing is known to have existed: nothing is removed. */
    if (r < 0 || len < sizeof(BASE_MAGIC) || memcmp(data, BASE_MAGIC, sizeof(BASE_MAGIC)) != 0)
        return path ? 0 : r;
    for (size_t at = sizeof(BASE_MAGIC); at < len; at += strlen(data + at) + 1) {
        r = sync_list_add(l, data + at, &en, e);
        if (r < 0)
            return r;
    }
    (void)sync_list_sort(l);
    return 0;
}

int sync_base_store(const struct sync_list *l, const struct sync_request *req, struct err *e)
{
    _cleanup_free_ char *path = base_path(req), *dir = path ? path_dir(path) : NULL;
    _cleanup_buf_ struct buf b;
    int r = dir ? io_mkdir_p(dir, 0700, e) : err_oom(e);

    buf_init(&b, BASE_MAX_BYTES);
    if (r == 0)
        r = buf_add(&b, BASE_MAGIC, sizeof(BASE_MAGIC), e);
    for (size_t i = 0; i < l->n && r == 0; i++)
        r = buf_add(&b, l->v[i].name, strlen(l->v[i].name) + 1, e);
    return r < 0 ? r : io_write_file(AT_FDCWD, path, b.data, b.len, 0600, false, e);
}
