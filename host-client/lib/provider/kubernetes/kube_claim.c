/*
 * kube_claim: the objects behind a box of a pool: its SandboxClaim, found by its name and proved by its labels, the
 * Sandbox that the claim owns, and the Pod that the Sandbox owns. A name proves nothing: owners are compared by uid.
 *
 * Source: agent-sandbox v0.5.6, api/v1beta1 and extensions/api/v1beta1, and its controllers.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/kubernetes/kube_watch.h"
#include "lib/provider/kubernetes/kubernetes.h"
#include "lib/util/socket.h"

#define CLAIM_FILE "kubernetes-claim.json"
#define CLAIM_FILE_BYTES 1024
#define POD_NAME_NOTE "agents.x-k8s.io/pod-name"
#define BLIND_MS 200 /* between two looks without a watch */

void kube_claim_done(struct kube_claim *c)
{
    json_decref(c->doc);
    json_decref(c->sandbox);
    *c = (struct kube_claim){0};
}

/* ---- the record's reading ---- */

struct claim_record {
    const char *claim, *sandbox; /* uids; sandbox "": there was none yet */
    const char *name;            /* of the Sandbox */
    const char *pool;            /* uid; "": an earlier version wrote none */
    json_t *doc;                 /* owns the strings */
};

static void claim_record_done(struct claim_record *w)
{
    json_decref(w->doc);
}
#define _cleanup_claim_record_ __attribute__((cleanup(claim_record_done)))

/* 1, 0: there is none, or an error. */
static int read_claim_record(const struct provider_box *b, struct claim_record *ret, struct err *e)
{
    static const struct jx_field fields[] = {
        JX(struct claim_record, claim, jx_str, JX_REQUIRED),
        JX(struct claim_record, sandbox, jx_str, JX_REQUIRED),
        JX(struct claim_record, name, jx_str, 0),
        JX(struct claim_record, pool, jx_str, 0),
        {0},
    };
    _cleanup_free_ char *path = path_join(b->dir, CLAIM_FILE), *text = NULL;
    struct err why = {0};
    size_t len = 0;
    int r =
        path ? io_read_file(AT_FDCWD, path, CLAIM_FILE_BYTES, &text, &len, &why) : err_oom(&why);

    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r == 0)
        r = jx_parse(text, len, &ret->doc, &why);
    if (r == 0)
        r = jx_decode(ret->doc, fields, ret, &why);
    if (r == 0)
        return 1;
    if (e)
        *e = why;
    return err_wrap(e, r, "the record of the claim");
}

/* ---- finding ---- */

/* A name from an answer goes into paths. */
static bool is_safe_name(const char *name)
{
    size_t n = strlen(name);

    return n && n < KUBE_POD_BYTES && *name != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") == n;
}

/* A 404 proves nothing by itself: it may be the whole kind that is not served, for a moment or for good. */
static int find_by_list(struct kube *k, enum kube_kind kind, const char *name, json_t **ret,
                        struct err *e)
{
    struct err why = {0};
    int r = kube_find_listed(k, kind, name, ret, &why);

    if (r == -ERR_UNAVAILABLE && kube_serves(k, kind, NULL) == 0)
        return 0;
    if (r < 0 && e)
        *e = why;
    return r;
}

static bool has_controller(const json_t *doc, const char *uid)
{
    const json_t *list = json_object_get(json_object_get(doc, "metadata"), "ownerReferences"), *v;
    size_t i;

    json_array_foreach (list, i, v)
        if (json_is_true(json_object_get(v, "controller")))
            return *uid && str_eq(kube_text(v, "uid"), uid);
    return false;
}

/* The claim's own of that name, if there is one. */
static int find_sandbox(struct kube *k, const char *name, struct kube_claim *c, struct err *e)
{
    json_t *doc = NULL;
    int r;

    if (!is_safe_name(name))
        return 0;
    r = find_by_list(k, KUBE_SANDBOXES, name, &doc, e);
    if (r == 1 && has_controller(doc, c->uid)) {
        c->sandbox = doc;
        c->sandbox_uid = kube_text(doc, "metadata", "uid");
        c->sandbox_name = kube_text(doc, "metadata", "name");
        return 0;
    }
    json_decref(doc);
    return r < 0 ? r : 0;
}

int kube_find_claim(const struct provider_box *b, struct kube *k, struct kube_claim *ret,
                    struct err *e)
{
    _cleanup_kube_claim_ struct kube_claim c = {.uid = "", .sandbox_uid = "", .sandbox_name = ""};
    _cleanup_claim_record_ struct claim_record w = {.name = "", .pool = ""};
    char name[KUBE_NAME_BYTES];
    int r;

    kube_name(b, name);
    r = find_by_list(k, KUBE_SANDBOX_CLAIMS, name, &c.doc, e);
    if (r != 1)
        return r;
    r = kube_check_labels(b, c.doc, e);
    c.uid = kube_text(c.doc, "metadata", "uid");
    if (r == 0)
        r = find_sandbox(k, kube_text(c.doc, "status", "sandbox", "name"), &c, e);
    if (r == 0 && !c.sandbox && read_claim_record(b, &w, NULL) == 1)
        r = find_sandbox(k, w.name, &c, e);
    if (r < 0)
        return r;
    kube_claim_done(ret);
    *ret = c;
    c = (struct kube_claim){0};
    return 1;
}

/* A Sandbox notes the name of a pod that it has taken over; one that it makes has its own name. */
int kube_find_claim_pod(struct kube *k, const struct kube_claim *c, struct kube_pod *ret,
                        struct err *e)
{
    const char *name = kube_text(c->sandbox, "metadata", "annotations", POD_NAME_NOTE);
    json_t *doc = NULL;
    struct err why = {0};
    int r;

    if (!is_safe_name(name))
        name = c->sandbox_name;
    if (!c->sandbox || !is_safe_name(name))
        return 0;
    r = kube_get(k, KUBE_PODS, name, &doc, &why);
    if (r == 0 && has_controller(doc, c->sandbox_uid)) {
        kube_pod_done(ret);
        kube_read_pod_take(doc, ret);
        return 1;
    }
    json_decref(doc);
    if (r < 0 && r != -ERR_NOT_FOUND) {
        if (e)
            *e = why;
        return r;
    }
    return 0;
}

/* ---- its sandbox's mode ---- */

bool kube_claim_is_suspended(const struct kube_claim *c)
{
    return str_eq(kube_text(c->sandbox, "spec", "operatingMode"), "Suspended");
}

int kube_suspend(struct kube *k, const struct kube_claim *c, bool is_suspended, struct err *e)
{
    _cleanup_json_ json_t *body =
        json_pack("{s:{s:s}, s:{s:s}}", "metadata", "uid", c->sandbox_uid, "spec", "operatingMode",
                  is_suspended ? "Suspended" : "Running");

    if (!c->sandbox || kube_claim_is_suspended(c) == is_suspended)
        return 0;
    return kube_patch(k, KUBE_SANDBOXES, c->sandbox_name, c->sandbox_uid, body, e);
}

/* ---- why, and waiting ---- */

void kube_claim_why(const struct kube_claim *c, char out[KUBE_WHY_BYTES])
{
    const json_t *list = json_object_get(json_object_get(c->doc, "status"), "conditions"), *v;
    size_t i;

    out[0] = '\0';
    json_array_foreach (list, i, v)
        if (str_eq(kube_text(v, "type"), "Ready") && !str_eq(kube_text(v, "status"), "True"))
            (void)snprintf(out, KUBE_WHY_BYTES, "%.60s: %.240s", kube_text(v, "reason"),
                           kube_text(v, "message"));
    str_make_utf8(out);
    for (char *p = out; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = ' ';
}

int kube_wait_claim(const struct provider_box *b, struct kube *k, const struct kube_claim *c,
                    const struct kube_pod *p, int max_ms, struct err *e)
{
    _cleanup_close_ int fd = -1;
    int64_t left = clock_until_ms(kube_deadline(k));
    char name[KUBE_NAME_BYTES];
    int r;

    if (p->doc)
        return kube_wait(b, k, p, max_ms, e);
    if (left <= 0)
        return err_set(e, ERR_DEADLINE, "the time is over");
    if (left < max_ms)
        max_ms = (int)left;
    kube_name(b, name);
    if (!c->doc || kube_watch(k, KUBE_SANDBOX_CLAIMS, name,
                              kube_text(c->doc, "metadata", "resourceVersion"), &fd, NULL) < 0) {
        if (socket_wait_canceled(kube_cancel_fd(k), max_ms < BLIND_MS ? max_ms : BLIND_MS))
            return err_set(e, ERR_CANCELED, "canceled");
        return 0;
    }
    r = socket_wait(fd, false, kube_cancel_fd(k), clock_mono_ms() + max_ms, e);
    return r == -ERR_CANCELED ? r : 0;
}

/* ---- the record ---- */

int kube_record_claim(const struct provider_box *b, const struct kube_claim *c,
                      const char *pool_uid, struct err *e)
{
    _cleanup_claim_record_ struct claim_record w = {.name = "", .pool = ""};
    _cleanup_free_ char *path = path_join(b->dir, CLAIM_FILE);
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r = pool_uid ? 0 : read_claim_record(b, &w, e);

    if (r < 0)
        return r;
    doc = json_pack("{s:s, s:s, s:s, s:s}", "claim", c->uid, "sandbox", c->sandbox_uid, "name",
                    c->sandbox_name, "pool", pool_uid ? pool_uid : w.pool);
    r = path && doc ? jx_dump(doc, &text, &len, e) : err_oom(e);
    return r < 0 ? r : io_write_file(AT_FDCWD, path, text, len, 0600, true, e);
}

int kube_check_claim_cluster(const struct provider_box *b, struct kube *k, struct err *e)
{
    _cleanup_claim_record_ struct claim_record w = {.name = "", .pool = ""};
    _cleanup_json_ json_t *pool = NULL;
    struct err why = {0};
    int r = read_claim_record(b, &w, e);

    if (r <= 0 || !*w.pool)
        return r < 0 ? r : 0;
    r = kube_get(k, KUBE_WARM_POOLS, b->spec->pool, &pool, &why);
    if (r == 0 && str_eq(kube_text(pool, "metadata", "uid"), w.pool))
        return 0;
    if (r == 0 || r == -ERR_NOT_FOUND)
        return kube_not_own_cluster(b, "pool", b->spec->pool, e);
    if (e)
        *e = why;
    return r;
}

/* A claim without one proves nothing: its controller removes the name also if it cannot tell whose it is. */
static int is_sandbox_there(struct kube *k, const struct claim_record *w, struct err *e)
{
    _cleanup_json_ json_t *doc = NULL;
    int r;

    if (!is_safe_name(w->name))
        return err_set(e, ERR_UNAVAILABLE, "the claim of the box names no sandbox");
    r = find_by_list(k, KUBE_SANDBOXES, w->name, &doc, e);
    return r == 1 ? str_eq(kube_text(doc, "metadata", "uid"), w->sandbox) : r;
}

/* A claim or a Sandbox that somebody made anew has none of the box's files. */
int kube_has_recorded_claim(const struct provider_box *b, struct kube *k,
                            const struct kube_claim *c, struct err *e)
{
    _cleanup_claim_record_ struct claim_record w = {.name = "", .pool = ""};
    int r = read_claim_record(b, &w, e);

    if (r <= 0) /* none: a crash came between the claim and its record */
        return r < 0 ? r : 1;
    if (!str_eq(w.claim, c->uid))
        return 0;
    if (c->sandbox || !*w.sandbox)
        return !*w.sandbox || str_eq(w.sandbox, c->sandbox_uid);
    return is_sandbox_there(k, &w, e);
}
