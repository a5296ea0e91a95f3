/*
 * archive: Manifest and Missing, between JSON and guest/archive/manifest. A manifest runs on a pool
 * thread with the rights of the box's user and streams what it finds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "archive/manifest.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "fs/stat.h"
#include "agent.h"
#include "api/files/files.h"
#include "api/queue.h"
#include "api/rpc.h"

#define MISSING_MAX 10000 /* entries of one call: about 2 MiB of JSON */
#define MODE_TEXT_BYTES 8
#define HEX_BYTES (2 * FS_SHA256_BYTES)

/* ---- Manifest -------------------------------------------------------------------------------- */

struct params {
    json_t *source; /* a reference: strings below are borrowed from it */
    const struct agent *agent;
    char *path; /* owned, as excludes */
    char **excludes;
    const char *user;
    struct manifest_options o;
};

static const struct jx_field manifest_fields[] = {
    JX(struct params, path, jx_path, JX_REQUIRED),
    JX(struct params, user, jx_str, JX_NULLABLE),
    JX_AS("exclude", struct params, excludes, jx_strv, JX_NULLABLE),
    JX_AS("ignore", struct params, o.filter.ignore, jx_bool, JX_NULLABLE),
    JX_AS("no_require_git", struct params, o.filter.no_require_git, jx_bool, JX_NULLABLE),
    JX_AS("sha256", struct params, o.digests, jx_bool, JX_NULLABLE),
    {0},
};

static void params_free(void *arg)
{
    struct params *p = arg;

    free(p->path);
    strv_free(p->excludes);
    json_decref(p->source);
    free(p);
}

struct run {
    struct queue *q;
    json_t *incomplete; /* at most MANIFEST_MAX_INCOMPLETE */
    uint64_t n_incomplete;
};

static void entry_set(json_t *obj, const char *key, json_t *value_taken, bool *ok)
{
    *ok = *ok && json_object_set_new_nocheck(obj, key, value_taken) == 0;
}

/* {"path","type","size","mode","mtime"[,"sha256"][,"target"]}; NULL: no memory. */
static json_t *new_entry(const struct manifest_entry *m)
{
    char mode[MODE_TEXT_BYTES], mtime[FS_JSON_TIME_BYTES], hex[HEX_BYTES + 1];
    json_t *obj = json_object();
    bool ok = obj != NULL;

    (void)snprintf(mode, sizeof(mode), "%04o", (unsigned)(m->st.st_mode & 07777));
    fs_json_time(&m->st.st_mtim, mtime);
    entry_set(obj, "path", jx_new_path(m->path), &ok);
    entry_set(obj, "type", json_string_nocheck(fs_type_name(m->st.st_mode)), &ok);
    if (S_ISREG(m->st.st_mode))
        entry_set(obj, "size", json_integer((json_int_t)m->st.st_size), &ok);
    entry_set(obj, "mode", json_string_nocheck(mode), &ok);
    entry_set(obj, "mtime", json_string_nocheck(mtime), &ok);
    if (m->has_digest) {
        str_hex(m->digest, FS_SHA256_BYTES, hex);
        entry_set(obj, "sha256", json_string_nocheck(hex), &ok);
    }
    if (m->target)
        entry_set(obj, "target", jx_new_path(m->target), &ok);
    if (ok)
        return obj;
    json_decref(obj);
    return NULL;
}

static int on_entry(void *arg, const struct manifest_entry *m, struct err *e)
{
    struct run *run = arg;

    return queue_push_take(run->q, json_pack("{s:o}", "entry", new_entry(m)), e);
}

static int on_unread(void *arg, const char *path, const struct err *why, struct err *e)
{
    struct run *run = arg;

    if (queue_is_gone(run->q))
        return err_set(e, ERR_CANCELED, "the client has gone");
    if (run->n_incomplete++ >= MANIFEST_MAX_INCOMPLETE)
        return 0;
    return json_array_append_new(run->incomplete, json_pack("{s:o, s:s}", "path", jx_new_path(path),
                                                            "error", why->message)) < 0
               ? err_oom(e)
               : 0;
}

static int push_end(struct run *run, const struct manifest_counts *n, struct err *e)
{
    uint64_t named = json_array_size(run->incomplete);
    json_t *end = json_pack("{s:I, s:I, s:I, s:I, s:O}", "entries", (json_int_t)n->entries, "files",
                            (json_int_t)n->files, "bytes", (json_int_t)n->bytes, "hashed_bytes",
                            (json_int_t)n->hashed_bytes, "incomplete", run->incomplete);

    if (end && run->n_incomplete > named)
        (void)json_object_set_new(end, "incomplete_more",
                                  json_integer((json_int_t)(run->n_incomplete - named)));
    return queue_push_take(run->q, json_pack("{s:o}", "end", end), e);
}

static int run_manifest(struct run *run, const struct params *p, struct fs_caller *c, struct err *e)
{
    const struct manifest_sink sink = {.entry = on_entry, .unread = on_unread, .arg = run};
    struct manifest_counts counts;
    _fs_acting_ const struct fs_actor *acting = NULL;
    int r = fs_act(&c->actor, &acting, e);

    if (r == 0)
        r = manifest_walk(c, p->path, &p->o, &sink, &counts, e);
    return r < 0 ? err_at(e, r, "path") : push_end(run, &counts, e);
}

static int manifest_work(struct queue *q, void *arg, struct err *e)
{
    const struct params *p = arg;
    const struct agent *agent = p->agent;
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    _cleanup_json_ json_t *incomplete = json_array();
    struct run run = {.q = q, .incomplete = incomplete};
    int r;

    if (!incomplete)
        return err_oom(e);
    r = fs_caller_new(agent->root, p->user ? p->user : agent->default_user, agent->workdir, &c, e);
    return r < 0 ? r : run_manifest(&run, p, c, e);
}

int rpc_archive_manifest(const struct rpc_call *call, struct source **ret, struct err *e)
{
    struct params *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return err_oom(e);
    *p = (struct params){.source = json_incref(call->params), .agent = call->agent};
    r = jx_decode(call->params, manifest_fields, p, e);
    p->o.filter.excludes = p->excludes;
    if (r < 0) {
        params_free(p);
        return r;
    }
    return queue_source_new(manifest_work, p, params_free, ret, e);
}

/* ---- Missing --------------------------------------------------------------------------------- */

struct missing_params {
    char *path;
    const char *user;
    json_t *entries;
};

static const struct jx_field missing_fields[] = {
    JX(struct missing_params, path, jx_path, JX_REQUIRED),
    JX(struct missing_params, user, jx_str, JX_NULLABLE),
    JX(struct missing_params, entries, jx_array, JX_REQUIRED),
    {0},
};

static int jx_claim_type(json_t *v, void *out, struct err *e)
{
    static const char *const names[] = {"file", "directory", "symlink", NULL};
    static const mode_t types[] = {S_IFREG, S_IFDIR, S_IFLNK};
    const char *text;
    unsigned i;
    int r = jx_str(v, &text, e);

    if (r == 0)
        r = jx_one_of(v, names, &i, e);
    if (r == 0)
        *(mode_t *)out = types[i];
    return r;
}

/* `out` is the whole claim. */
static int jx_claim_digest(json_t *v, void *out, struct err *e)
{
    struct manifest_claim *claim = out;
    const char *text;
    int r = jx_str(v, &text, e);

    if (r < 0)
        return r;
    if (strlen(text) != HEX_BYTES || strspn(text, "0123456789abcdef") != HEX_BYTES)
        return err_set(e, ERR_INVALID, "must be %d lower-case hex digits", HEX_BYTES);
    for (size_t i = 0; i < FS_SHA256_BYTES; i++) {
        unsigned byte;

        (void)sscanf(text + 2 * i, "%2x", &byte);
        claim->digest[i] = (uint8_t)byte;
    }
    claim->has_digest = true;
    return 0;
}

static const struct jx_field claim_fields[] = {
    JX(struct manifest_claim, path, jx_path, JX_REQUIRED),
    JX(struct manifest_claim, type, jx_claim_type, JX_NULLABLE),
    JX(struct manifest_claim, size, jx_u64, JX_NULLABLE),
    JX(struct manifest_claim, mode, jx_fs_mode, JX_NULLABLE),
    JX(struct manifest_claim, mtime, jx_fs_time, JX_NULLABLE),
    {"sha256", jx_claim_digest, 0, JX_NULLABLE},
    JX(struct manifest_claim, target, jx_path, JX_NULLABLE),
    {0},
};

struct claims {
    size_t n;
    struct manifest_claim *v;
};

static void claims_done(struct claims *c)
{
    for (size_t i = 0; c->v && i < c->n; i++) {
        free((char *)(uintptr_t)c->v[i].path); /* jx_path made them */
        free((char *)(uintptr_t)c->v[i].target);
    }
    free(c->v);
}

/* An error of one entry is the entry's, whatever field of it is wrong. */
static int at_entry(struct err *e, int r, size_t i)
{
    char field[32];

    (void)snprintf(field, sizeof(field), "entries[%zu]", i);
    if (e)
        e->field[0] = '\0';
    return err_at(e, r, field);
}

static int decode_claims(json_t *entries, struct claims *c, struct err *e)
{
    json_t *obj;
    size_t i;

    c->n = json_array_size(entries);
    if (c->n > MISSING_MAX)
        return err_field(e, ERR_INVALID, "entries", "field 'entries' has more than %d",
                         MISSING_MAX);
    c->v = calloc(c->n + 1, sizeof(*c->v));
    if (!c->v)
        return err_oom(e);
    json_array_foreach (entries, i, obj) {
        int r;

        c->v[i] = (struct manifest_claim){.type = S_IFREG, .size = MANIFEST_ANY_SIZE};
        r = jx_decode(obj, claim_fields, &c->v[i], e);
        if (r < 0)
            return at_entry(e, r, i);
    }
    return 0;
}

/* Adds each path to the list of its verdict. */
static int check_all(struct fs_caller *c, const struct missing_params *p,
                     const struct claims *claims, json_t *const lists[], struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    struct manifest_check *check = NULL;
    int r = fs_act(&c->actor, &acting, e);

    if (r == 0)
        r = err_at(e, manifest_check_new(c, p->path, &check, e), "path");
    for (size_t i = 0; i < claims->n && r == 0; i++) {
        enum manifest_verdict verdict;

        r = manifest_check_one(check, &claims->v[i], &verdict, e);
        if (r < 0)
            r = at_entry(e, r, i);
        else if (lists[verdict] &&
                 json_array_append_new(lists[verdict], jx_new_path(claims->v[i].path)) < 0)
            r = err_oom(e);
    }
    manifest_check_free(check);
    return r;
}

static int manifest_missing(const struct rpc_call *call, const struct missing_params *p,
                            const struct claims *claims, json_t **ret, struct err *e)
{
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    json_t *lists[] = {
        [MANIFEST_SAME] = NULL,
        [MANIFEST_MISSING] = json_array(),
        [MANIFEST_DIFFERS] = json_array(),
        [MANIFEST_STALE] = json_array(),
    };
    json_t *obj = json_pack("{s:o, s:o, s:o}", "missing", lists[MANIFEST_MISSING], "differs",
                            lists[MANIFEST_DIFFERS], "stale", lists[MANIFEST_STALE]);
    int r = obj ? fs_json_caller(call, p->user, &c, e) : err_oom(e);

    if (r == 0)
        r = check_all(c, p, claims, lists, e);
    if (r < 0) {
        json_decref(obj);
        return r;
    }
    *ret = obj;
    return 0;
}

int rpc_archive_missing(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct missing_params p = {0};
    struct claims claims = {0};
    int r = jx_decode(call->params, missing_fields, &p, e);

    if (r == 0)
        r = decode_claims(p.entries, &claims, e);
    if (r == 0)
        r = manifest_missing(call, &p, &claims, ret, e);
    claims_done(&claims);
    free(p.path);
    return r;
}
