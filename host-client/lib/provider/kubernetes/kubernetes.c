/*
 * kubernetes: a box is a Pod. Its home and its project are on a claim, which outlives the pod; everything else of its
 * file system is the image's again after a stop. The isolation is the cluster's.
 */
#include "lib/provider/kubernetes/kubernetes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/kubernetes/kube_watch.h"
#include "lib/provider/store_mark.h"
#include "lib/util/socket.h"

#define TOKEN_BYTES 4096
#define SIGNAL_STATUS 128
#define SIGNAL_MOST 64
#define LOOK_MS 5000      /* the longest time between two looks at a pod that changes */
#define EXPLAIN_MS 2000   /* before the deadline of a start: the caller waits no longer */
#define PATIENCE_MS 30000 /* for an API server that does not answer while a box starts or ends */
#define FIND_PATIENCE_MS 2000  /* each command finds its box first, and the monitor asks again */
#define CHECK_PATIENCE_MS 5000 /* while nothing is made yet: an address may be wrong */
#define TRIAL_USER "user"
#define TRIAL_UID 1000

/* ---- probe and check ---- */

static int kube_probe(struct bh_ctx *ctx, const char *runtime, struct provider_facts *ret,
                      struct err *e)
{
    _cleanup_kube_ struct kube *k = NULL;
    _cleanup_free_ char *engine = NULL;
    _cleanup_json_ json_t *list = NULL;
    struct err why = {0};
    int r = kube_choose(ctx, &engine, &why);

    *ret = (struct provider_facts){0};
    (void)snprintf(ret->runtime, sizeof(ret->runtime), "%.31s", runtime);
    if (r == 0)
        r = kube_open(ctx, engine, clock_mono_ms() + PROVIDER_MS, &k, &why);
    if (r == 0)
        r = kube_list(k, KUBE_PODS, "limit=1", &list, &why);
    if (r == -ERR_CANCELED) {
        if (e)
            *e = why;
        return r;
    }
    ret->usable = r == 0;
    if (r < 0)
        (void)snprintf(ret->why, sizeof(ret->why), "%.250s", why.message);
    return 0;
}

static int replace_text(char **text, const char *value, struct err *e)
{
    char *copy = strdup(value);

    if (!copy)
        return err_oom(e);
    free(*text);
    *text = copy;
    return 0;
}

static int image_reference(const struct kube *k, const struct image_user *user, char **ret,
                           struct err *e)
{
    if (!*user->ref)
        return err_field(e, ERR_PRECONDITION, "image", "the image has neither name nor version");
    return asprintf(ret, "%s/%s", kube_registry(k), user->ref) < 0 ? err_oom(e) : 0;
}

/*
 * The API server judges the pod and makes nothing: Pod Security, quotas, roles and admission refuse here. The image may
 * not be built yet, so the user may be another one later.
 */
static int try_objects(struct kube *k, struct bh_ctx *ctx, struct spec *spec, struct err *e)
{
    const struct provider_box b = {
        .ctx = ctx, .id = "0000000000000000", .name = "trial", .dir = "", .spec = spec};
    struct image_user user = {.name = TRIAL_USER,
                              .home = "/home/" TRIAL_USER,
                              .uid = TRIAL_UID,
                              .gid = TRIAL_UID,
                              .ref = "trial:1"};
    _cleanup_json_ json_t *pod = NULL, *claim = NULL, *secret = NULL, *policy = NULL;
    _cleanup_free_ char *image = NULL;
    char mark[STORE_MARK_BYTES];
    int r = spec->image_dir && *spec->image_dir ? image_user_of(spec, &user, NULL) : 0;

    (void)r;
    r = store_mark(ctx, mark, e);
    if (r == 0)
        r = image_reference(k, &user, &image, e);
    if (r < 0)
        return r;
    pod = kube_new_pod(&b, k, &user, image, mark);
    claim = kube_new_claim(&b, mark);
    secret = kube_new_secret(&b, "trial", mark);
    policy = kube_new_policy(&b, mark);
    if (!pod || !claim || !secret || !policy)
        return err_oom(e);
    r = kube_create(k, KUBE_PODS, pod, true, NULL, e);
    if (r == 0)
        r = kube_create(k, KUBE_SECRETS, secret, true, NULL, e);
    if (r == 0 && kube_has_claim(spec))
        r = kube_create(k, KUBE_CLAIMS, claim, true, NULL, e);
    if (r == 0 && str_eq(spec->network, "none"))
        r = kube_create(k, KUBE_POLICIES, policy, true, NULL, e);
    return r;
}

/* The cluster of a new box, for its whole life. */
static int choose_engine(struct bh_ctx *ctx, struct spec *spec, struct err *e)
{
    _cleanup_kube_ struct kube *k = NULL;
    _cleanup_free_ char *engine = NULL;
    char *pinned = NULL;
    int r = kube_choose(ctx, &engine, e);

    if (r == 0)
        r = kube_open(ctx, engine, clock_mono_ms() + PROVIDER_MS, &k, e);
    if (r == 0)
        r = kube_pin(k, &pinned, e);
    if (r < 0)
        return r;
    free(spec->engine);
    spec->engine = pinned;
    return 0;
}

static int kube_check(struct bh_ctx *ctx, struct spec *spec, struct err *e)
{
    _cleanup_kube_ struct kube *k = NULL;
    int r = *spec->engine ? 0 : choose_engine(ctx, spec, e);

    if (r < 0)
        return r;
    if (spec->asked & SPEC_ASKED_PRIVILEGE && !str_eq(spec->privilege, "strict"))
        return err_field(e, ERR_UNIMPLEMENTED, "privilege",
                         "privilege: Pod Security 'restricted' allows 'strict' alone");
    r = replace_text(&spec->privilege, "strict", e);
    if (r == 0 && str_eq(spec->runtime, "auto"))
        r = replace_text(&spec->runtime, "", e);
    spec->pids = 0;
    if (r == 0)
        r = kube_open(ctx, spec->engine, clock_mono_ms() + PROVIDER_MS, &k, e);
    if (r < 0)
        return r;
    kube_set_patience(k, CHECK_PATIENCE_MS);
    return *spec->pool ? kube_pool_check(k, ctx, spec, e) : try_objects(k, ctx, spec, e);
}

/* ---- prepare ---- */

static int kube_prepare(struct provider_box *b, struct err *e)
{
    _cleanup_kube_ struct kube *k = NULL;
    _cleanup_json_ json_t *claim = NULL;
    char mark[STORE_MARK_BYTES];
    int r = kube_open_box(b, &k, e);

    if (r == 0)
        kube_set_patience(k, PATIENCE_MS);
    if (r == 0 && *b->spec->pool)
        return kube_pool_prepare(b, k, e);
    if (r == 0)
        r = store_mark(b->ctx, mark, e);
    if (r < 0 || !kube_has_claim(b->spec))
        return r;
    claim = kube_new_claim(b, mark);
    return kube_make(b, k, KUBE_CLAIMS, claim, NULL, e);
}

/* ---- find ---- */

/* A gateway that does not reach its cluster may answer 404, too, and a box that has ended is stopped: the list decides. */
static int check_pod_is_gone(const struct provider_box *b, struct kube *k, struct err *e)
{
    _cleanup_json_ json_t *doc = NULL;
    struct kube_recorded w = {0};
    char name[KUBE_NAME_BYTES];
    int r = kube_read_record(b, &w, e);

    kube_name(b, name);
    if (r < 0 || (*b->spec->pool && !*w.pod))
        return r < 0 ? r : 0;
    r = kube_find_listed(k, KUBE_PODS, *w.pod ? w.pod : name, &doc, e);
    if (r != 1 || (*w.uid && !str_eq(kube_text(doc, "metadata", "uid"), w.uid)))
        return r < 0 ? r : 0;
    return err_set(e, ERR_UNAVAILABLE, "the cluster does not find the pod, and lists it");
}

/* Does the box's pod run? 1, 0, or an error: its node is lost, and nobody knows. */
static int is_pod_running(struct provider_box *b, const struct kube_pod *p, struct err *e)
{
    kube_note_end(b, p);
    if (p->is_lost && !p->is_ending)
        return kube_node_is_lost(p, e);
    return p->is_running;
}

static int kube_provider_find(struct provider_box *b, struct provider_run *ret, struct err *e)
{
    _cleanup_kube_ struct kube *k = NULL;
    _cleanup_kube_pod_ struct kube_pod p = {0};
    int r;

    *ret = (struct provider_run){0};
    if (!*b->spec->engine) /* it was never prepared */
        return 0;
    r = kube_open_box(b, &k, e);
    if (r == 0) {
        kube_set_patience(k, FIND_PATIENCE_MS);
        r = kube_find_own_pod(b, k, &p, e);
    }
    if (r == 0)
        r = check_pod_is_gone(b, k, e);
    else if (r == 1)
        return is_pod_running(b, &p, e);
    /* An end that is taken from another cluster would be stored, and done to the pod once its own is back. */
    return r < 0 ? r : kube_check_own_cluster(b, k, e);
}

/* ---- start ---- */

static int read_token(const struct provider_box *b, char **ret, size_t *ret_len, struct err *e)
{
    _cleanup_free_ char *path = path_join(b->dir, "token");

    return path ? io_read_file(AT_FDCWD, path, TOKEN_BYTES, ret, ret_len, e) : err_oom(e);
}

/* One with another token is of an earlier life of the box: it is made anew. */
static int make_secret(const struct provider_box *b, struct kube *k, const char *mark,
                       struct err *e)
{
    _cleanup_json_ json_t *found = NULL, *body = NULL;
    _cleanup_free_ char *token = NULL, *encoded = NULL;
    size_t len = 0;
    int r = read_token(b, &token, &len, e);

    if (r < 0)
        return r;
    encoded = calloc(1, B64_LEN(len) + 1);
    body = kube_new_secret(b, token, mark);
    if (encoded)
        b64_encode(token, len, encoded);
    explicit_bzero(token, len);
    if (!encoded || !body)
        return err_oom(e);
    r = kube_find(b, k, KUBE_SECRETS, &found, e);
    if (r == 1 && !str_eq(kube_text(found, "data", "token"), encoded))
        r = kube_unmake(b, k, KUBE_SECRETS, -1, e);
    else if (r == 1)
        return 0;
    return r < 0 ? r : kube_make(b, k, KUBE_SECRETS, body, NULL, e);
}

static bool has_text(const json_t *list, const char *text)
{
    const json_t *v;
    size_t i;

    json_array_foreach (list, i, v)
        if (str_eq(json_string_value(v), text))
            return true;
    return false;
}

/* As kube_new_policy() makes it: it selects the box's pod, and nothing may pass. */
static bool is_policy_closed(const json_t *doc, const char *id)
{
    const json_t *spec = json_object_get(doc, "spec"),
                 *types = json_object_get(spec, "policyTypes");
    const json_t *pods = json_object_get(spec, "podSelector");
    const json_t *labels = json_object_get(pods, "matchLabels");

    return str_eq(kube_text(labels, KUBE_LABEL_BOX), id) && json_object_size(labels) == 1 &&
           json_array_size(json_object_get(pods, "matchExpressions")) == 0 &&
           json_array_size(json_object_get(spec, "ingress")) == 0 &&
           json_array_size(json_object_get(spec, "egress")) == 0 && has_text(types, "Ingress") &&
           has_text(types, "Egress");
}

/* One that somebody has changed, or made with our labels, is made anew; the role has no right to change one. */
static int make_policy(const struct provider_box *b, struct kube *k, const char *mark,
                       struct err *e)
{
    _cleanup_json_ json_t *body = kube_new_policy(b, mark);
    char name[KUBE_NAME_BYTES];

    for (int i = 0; i < 2; i++) {
        _cleanup_json_ json_t *made = NULL;
        int r = kube_make(b, k, KUBE_POLICIES, body, &made, e);

        if (r < 0 || is_policy_closed(made, b->id))
            return r;
        r = kube_unmake(b, k, KUBE_POLICIES, -1, e);
        if (r < 0)
            return r;
    }
    kube_name(b, name);
    return err_field(e, ERR_PRECONDITION, "network",
                     "network: the NetworkPolicy '%s' lets something pass: the cluster changes it",
                     name);
}

static int make_pod(const struct provider_box *b, struct kube *k, struct err *e)
{
    _cleanup_json_ json_t *pod = NULL, *made = NULL;
    _cleanup_free_ char *image = NULL;
    char mark[STORE_MARK_BYTES];
    struct image_user user;
    int r = store_mark(b->ctx, mark, e);

    if (r == 0)
        r = image_user_of(b->spec, &user, e);
    if (r == 0)
        r = image_reference(k, &user, &image, e);
    if (r == 0)
        r = make_secret(b, k, mark, e);
    if (r == 0 && str_eq(b->spec->network, "none"))
        r = make_policy(b, k, mark, e);
    if (r == 0)
        r = kube_record_forget(b, e);
    if (r < 0)
        return r;
    pod = kube_new_pod(b, k, &user, image, mark);
    r = kube_make(b, k, KUBE_PODS, pod, &made, e);
    return r < 0 ? r : kube_record_pod(b, kube_text(made, "metadata", "uid"), e);
}

/*
 * A pod that this start has not made. One that has ended, or that the box has not made, is in the way: it is deleted. Any
 * other is of an earlier start that died, and is adopted: 1.
 */
static int take_found_pod(const struct provider_box *b, struct kube *k, struct kube_pod *p,
                          struct err *e)
{
    char name[KUBE_NAME_BYTES], own[KUBE_UID_BYTES];
    bool is_over = p->has_ended || str_eq(p->phase, "Failed") || str_eq(p->phase, "Succeeded");
    int r = kube_record_uid(b, own, e);

    if (r < 0)
        return r;
    if (!is_over && !p->is_ending && (r == 0 || str_eq(own, p->uid))) {
        r = kube_record_pod(b, p->uid, e);
        return r < 0 ? r : 1;
    }
    r = 0;
    kube_name(b, name);
    if (!p->is_ending || is_over)
        r = kube_delete(k, KUBE_PODS, name, p->uid, is_over ? 0 : KUBE_KILL_GRACE_S, e);
    return r < 0 ? r : kube_wait(b, k, p, LOOK_MS, e);
}

/* Until the container runs; *ret is the pod then. */
static int wait_running(const struct provider_box *b, struct kube *k, struct kube_pod *ret,
                        struct err *e)
{
    bool is_own = false; /* this start has made the pod, or adopted it */

    for (;;) {
        int r = is_own ? kube_find_own_pod(b, k, ret, e) : kube_find_pod(b, k, ret, e);

        if (r == 0 && is_own)
            r = err_set(e, ERR_ABORTED, "the pod was deleted while it started");
        if (r == 0) {
            r = make_pod(b, k, e);
            is_own = true;
            if (r < 0)
                return r;
            continue;
        }
        if (r < 0)
            return r;
        if (!is_own) {
            r = take_found_pod(b, k, ret, e);
            is_own = r == 1;
            if (r == 0)
                kube_pod_done(ret);
        }
        if (is_own && ret->is_running && ret->is_ready && !ret->is_ending)
            return 0;
        if (is_own)
            r = kube_pod_failure(ret, e);
        if (is_own && r == 0)
            r = kube_wait(b, k, ret, LOOK_MS, e);
        if (r < 0)
            return r;
        kube_pod_done(ret);
    }
}

/* After the agent of a pod that ran could not be reached: the pod may have ended since. */
static int look_again(const struct provider_box *b, struct kube *k, struct kube_pod *p, int r,
                      struct err *e)
{
    struct err why = {0};

    kube_pod_done(p);
    if (r == -ERR_CANCELED || kube_find_own_pod(b, k, p, NULL) != 1 ||
        kube_pod_failure(p, &why) == 0)
        return r;
    if (e)
        *e = why;
    return -why.code;
}

/* Says what Kubernetes says of a pod that did not come up in time; was_up: it did. */
static int explain_start(const struct provider_box *b, int r, bool was_up, struct err *e)
{
    _cleanup_kube_ struct kube *k = NULL;
    _cleanup_kube_pod_ struct kube_pod p = {0};
    struct bh_ctx ctx = *b->ctx;
    char why[KUBE_WHY_BYTES] = "";

    ctx.cancel_fd = -1; /* it is what ended the wait */
    if (kube_open(&ctx, b->spec->engine, clock_mono_ms() + LOOK_MS, &k, NULL) < 0 ||
        kube_find_pod(b, k, &p, NULL) != 1)
        return r;
    kube_save_logs(b, k, &p);
    if (!was_up && (r == -ERR_DEADLINE || r == -ERR_CANCELED)) {
        kube_pod_why(&p, why);
        if (!*why)
            kube_pod_warning(k, &p, why);
        if (!*why)
            kube_pod_unready(&p, why);
        r = err_set(e, ERR_DEADLINE, "the pod does not start: %s", *why ? why : p.phase);
    }
    (void)kube_unmake(b, k, KUBE_PODS, KUBE_KILL_GRACE_S, NULL);
    return r;
}

static int kube_start(struct provider_box *b, struct provider_run *ret, struct err *e)
{
    _cleanup_kube_ struct kube *k = NULL;
    _cleanup_kube_pod_ struct kube_pod p = {0};
    _cleanup_free_ char *stale = path_join(b->dir, "kubernetes-end");
    char own[KUBE_UID_BYTES];
    bool was_up = false;
    int r = kube_record_uid(b, own, e);

    *ret = (struct provider_run){0};
    if (r < 0) /* a pod may run: it stays until it can be told whose it is */
        return r;
    r = kube_open_box(b, &k, e);
    if (stale)
        (void)unlink(stale);
    if (r == 0) {
        if (clock_until_ms(kube_deadline(k)) > 2 * EXPLAIN_MS)
            kube_set_deadline(k, kube_deadline(k) - EXPLAIN_MS);
        kube_set_patience(k, PATIENCE_MS);
        r = *b->spec->pool ? kube_pool_start(b, k, &p, e) : wait_running(b, k, &p, e);
    }
    if (r == 0 && !*b->spec->pool) {
        was_up = true;
        r = kube_record_reach(b, k, &p, e);
        if (r < 0)
            r = look_again(b, k, &p, r, e);
    }
    if (r < 0 && k)
        r = *b->spec->pool ? kube_pool_explain(b, r, e) : explain_start(b, r, was_up, e);
    return r;
}

/* ---- stop and destroy ---- */

/*
 * Until the pod is gone. force: a node that does not end it in time is not waited for. Here a 404 is enough: the API
 * server has taken the deletion, so that the pod ends also if that answer was a gateway's.
 */
static int wait_gone(const struct provider_box *b, struct kube *k, const char *uid, int grace_s,
                     bool force, struct err *e)
{
    int64_t end_by = 0; /* 0: the pod has not been seen yet */
    char name[KUBE_NAME_BYTES];
    int r;

    kube_name(b, name);
    for (;;) {
        _cleanup_kube_pod_ struct kube_pod p = {0};

        r = kube_find_pod(b, k, &p, e);
        if (r <= 0 || !str_eq(p.uid, uid))
            return r < 0 ? r : 0;
        kube_note_end(b, &p);
        if (!end_by)
            end_by = kube_end_by_ms(&p, grace_s);
        if (!force && kube_pod_is_stuck(&p, end_by))
            return kube_pod_does_not_end(&p, e);
        if (clock_until_ms(end_by) <= 0 && force)
            r = kube_delete(k, KUBE_PODS, name, uid, 0, e);
        if (r >= 0)
            r = kube_wait(b, k, &p, force ? LOOK_MS / 5 : LOOK_MS, e);
        if (r < 0)
            return r;
    }
}

/* 1; 0: there was none. By a list: after a 404 of a gateway the pod would run on. */
static int end_pod(const struct provider_box *b, struct kube *k, int grace_s, bool force,
                   struct err *e)
{
    _cleanup_kube_pod_ struct kube_pod p = {0};
    char name[KUBE_NAME_BYTES], uid[KUBE_UID_BYTES];
    json_t *doc = NULL;
    int r;

    kube_name(b, name);
    r = kube_find_listed(k, KUBE_PODS, name, &doc, e);
    if (r != 1)
        return r;
    kube_read_pod_take(doc, &p);
    r = kube_check_labels(b, doc, e);
    if (r < 0)
        return r;
    (void)snprintf(uid, sizeof(uid), "%s", p.uid);
    if (p.has_ended)
        kube_save_logs(b, k, &p);
    r = kube_delete(k, KUBE_PODS, name, uid, p.has_ended ? 0 : grace_s, e);
    if (r == 0)
        r = wait_gone(b, k, uid, grace_s, force, e);
    return r < 0 ? r : 1;
}

/* A pod that was found is of the box's cluster; an end that is only found needs a proof. rm is the way out without one. */
static int stop_pod(const struct provider_box *b, struct kube *k, int grace_s, struct err *e)
{
    int r = end_pod(b, k, grace_s, false, e);

    return r == 0 ? kube_check_own_cluster(b, k, e) : r < 0 ? r : 0;
}

static int kube_stop(struct provider_box *b, int grace_ms, struct err *e)
{
    _cleanup_kube_ struct kube *k = NULL;
    int grace_s = (grace_ms + 999) / 1000;
    int r;

    if (!*b->spec->engine)
        return 0;
    r = kube_open_box(b, &k, e);
    if (grace_s < KUBE_KILL_GRACE_S)
        grace_s = KUBE_KILL_GRACE_S;
    if (r < 0)
        return r;
    kube_set_patience(k, PATIENCE_MS);
    return *b->spec->pool ? kube_pool_stop(b, k, grace_s, e) : stop_pod(b, k, grace_s, e);
}

static int destroy_objects(const struct provider_box *b, struct kube *k, struct err *e)
{
    static const enum kube_kind kinds[] = {KUBE_SECRETS, KUBE_CLAIMS, KUBE_POLICIES};
    int r = end_pod(b, k, KUBE_KILL_GRACE_S, true, e);

    for (size_t i = 0; r >= 0 && i < N_ELEMENTS(kinds); i++)
        if (kinds[i] != KUBE_POLICIES || str_eq(b->spec->network, "none"))
            r = kube_unmake(b, k, kinds[i], -1, e);
    return r;
}

static int kube_destroy(struct provider_box *b, struct err *e)
{
    _cleanup_kube_ struct kube *k = NULL;
    int r;

    if (!*b->spec->engine)
        return 0;
    r = kube_open_box(b, &k, e);
    if (r == 0)
        kube_set_patience(k, PATIENCE_MS);
    if (r == 0 && *b->spec->pool)
        r = kube_pool_destroy(b, k, e);
    else if (r == 0)
        r = destroy_objects(b, k, e);
    /* Nothing proves the cluster any more, and nothing has to. */
    return r < 0 ? r : kube_record_forget(b, e);
}

/*
 * An empty list proves that the claim is gone, if it is a list of the box's own cluster: that has the Secret of the last
 * start. Anything else is an error: a box that is taken for gone is removed.
 */
static int has_claim(const struct provider_box *b, struct kube *k, struct err *e)
{
    _cleanup_json_ json_t *claim = NULL, *secret = NULL;
    char name[KUBE_NAME_BYTES];
    int r;

    kube_name(b, name);
    r = kube_find_listed(k, KUBE_CLAIMS, name, &claim, e);
    if (r < 0)
        return r;
    if (r == 1) {
        r = kube_check_labels(b, claim, e);
        return r < 0 ? r : 1;
    }
    r = kube_find(b, k, KUBE_SECRETS, &secret, e);
    if (r != 0)
        return r < 0 ? r : 0;
    return kube_not_own_cluster(b, "secret", name, e);
}

/* A box that keeps nothing (--read-only) has none that could be gone. */
static int kube_has_disk(struct provider_box *b, struct err *e)
{
    _cleanup_kube_ struct kube *k = NULL;
    int r;

    if (!*b->spec->engine || (!*b->spec->pool && !kube_has_claim(b->spec)))
        return 1;
    r = kube_open_box(b, &k, e);
    if (r < 0)
        return r;
    kube_set_patience(k, PATIENCE_MS);
    return *b->spec->pool ? kube_pool_has_disk(b, k, e) : has_claim(b, k, e);
}

/* ---- the end of a run ---- */

static int kube_provider_watch(struct provider_box *b, int *ret_fd, struct err *e)
{
    _cleanup_kube_ struct kube *k = NULL;
    _cleanup_kube_pod_ struct kube_pod p = {0};
    int r = kube_open_box(b, &k, e);

    if (r == 0)
        r = kube_find_own_pod(b, k, &p, e);
    if (r < 0)
        return r;
    return r == 1 ? kube_watch(k, KUBE_PODS, p.name, p.version, ret_fd, e)
                  : err_set(e, ERR_PRECONDITION, "the box is not running");
}

/* Kubernetes has a shell's number for a signal: 128 and the signal's. */
static int wait_status(int exit_code)
{
    bool is_signal = exit_code > SIGNAL_STATUS && exit_code <= SIGNAL_STATUS + SIGNAL_MOST;

    return is_signal ? exit_code - SIGNAL_STATUS : (exit_code & 0xff) << 8;
}

static int kube_exit_status(struct provider_box *b, const struct provider_run *run, int *ret_status,
                            bool *ret_is_oom, struct err *e)
{
    _cleanup_kube_ struct kube *k = NULL;
    _cleanup_kube_pod_ struct kube_pod p = {0};
    int r = kube_open_box(b, &k, e);

    (void)run;
    *ret_is_oom = false; /* kube_end_reason() says it in Kubernetes' word */
    if (r == 0)
        r = kube_find_own_pod(b, k, &p, e);
    if (r < 0)
        return r;
    if (r == 0 || !p.has_ended)
        return err_set(e, ERR_NOT_FOUND, "the pod has no exit status");
    kube_note_end(b, &p);
    kube_save_logs(b, k, &p);
    if (p.exit_code < 0)
        return err_set(e, ERR_NOT_FOUND, "the exit status of the container is not known");
    *ret_status = wait_status(p.exit_code);
    return 0;
}

static void kube_end_reason(struct provider_box *b, char *out, size_t size)
{
    char why[KUBE_WHY_BYTES];

    kube_read_end(b, why);
    (void)snprintf(out, size, "%s", why);
}

/* The phases of a pod, and ours of one that is being deleted or whose node is lost. */
static const struct provider_state kube_states[] = {
    {"Pending", BH_STATE_PROVISIONING},
    {"Running", BH_STATE_RUNNING},
    {"Succeeded", BH_STATE_STOPPED},
    {"Failed", BH_STATE_STOPPED},
    {"Terminating", BH_STATE_STOPPING},
    {"Unknown", BH_STATE_UNKNOWN},
    {0},
};

const struct provider provider_kubernetes = {
    .name = "kubernetes",
    .states = kube_states,
    .summary = "a pod of a Kubernetes cluster; the isolation is the cluster's",
    .isolates = true,
    .has_runtimes = true,
    .has_read_only = true,
    .has_pools = true,
    .has_privileges = true,
    .networks = PROVIDER_NETWORK_USER | PROVIDER_NETWORK_NONE,
    .limits = PROVIDER_LIMIT_CPUS | PROVIDER_LIMIT_MEMORY | PROVIDER_LIMIT_DISK,
    .exit = PROVIDER_EXIT_ASKED,
    .image = PROVIDER_IMAGE_OCI,
    .layers = PROVIDER_LAYERS_NONE,
    .probe = kube_probe,
    .check = kube_check,
    .prepare = kube_prepare,
    .start = kube_start,
    .stop = kube_stop,
    .destroy = kube_destroy,
    .has_disk = kube_has_disk,
    .find = kube_provider_find,
    .dial = kube_dial,
    .watch = kube_provider_watch,
    .exit_status = kube_exit_status,
    .end_reason = kube_end_reason,
    .inspect = kube_inspect,
    .sweep = kube_sweep,
};
