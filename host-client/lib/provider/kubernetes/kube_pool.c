/*
 * kube_pool: a box from a SandboxWarmPool of agent-sandbox. The pool's template decides what the pod is. All pods of a
 * pool are alike, so none has a token: the agent of each waits for one at a FIFO, and each start of a box writes the
 * box's own token there, through exec. `stop` suspends the Sandbox, which deletes its pod, and `rm` deletes the claim.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/kubernetes/kube_stream.h"
#include "lib/provider/kubernetes/kubernetes.h"
#include "lib/provider/store_mark.h"
#include "lib/util/socket.h"

#define POOL_FIELD "pool"
#define TOKEN_BYTES 4096
#define LOOK_MS 2000   /* the longest time between two looks at what changes */
#define SETTLE_MS 5000 /* a controller may not have seen yet what was made a moment ago */
#define GIVE_MS 10000  /* for the container's shell to come to its FIFO */
#define GIVE_PAUSE_MS 100
#define RESTARTS_MOST 3 /* of the container while the box starts */

/* ---- check and prepare ---- */

static int pool_is_missing(struct kube *k, int r, struct err *why, struct err *e)
{
    if (r == -ERR_NOT_FOUND || r == -ERR_UNAVAILABLE) {
        int served = kube_serves(k, KUBE_WARM_POOLS, NULL);

        if (served == 0)
            return err_field(e, ERR_PRECONDITION, POOL_FIELD,
                             "pool: the cluster has no agent-sandbox: it does not serve "
                             "SandboxWarmPools of extensions.agents.x-k8s.io/v1beta1");
        if (served == 1 && r == -ERR_NOT_FOUND)
            return err_field(e, ERR_NOT_FOUND, POOL_FIELD, "pool: %s", why->message);
    }
    if (e)
        *e = *why;
    return r;
}

int kube_pool_check(struct kube *k, struct bh_ctx *ctx, struct spec *spec, struct err *e)
{
    const struct provider_box b = {
        .ctx = ctx, .id = "0000000000000000", .name = "trial", .dir = "", .spec = spec};
    _cleanup_json_ json_t *claim = NULL;
    char mark[STORE_MARK_BYTES];
    struct err why = {0};
    int r = kube_get(k, KUBE_WARM_POOLS, spec->pool, NULL, &why);

    if (r < 0)
        return pool_is_missing(k, r, &why, e);
    r = store_mark(ctx, mark, e);
    if (r < 0)
        return r;
    claim = kube_new_sandbox_claim(&b, mark);
    return claim ? kube_create(k, KUBE_SANDBOX_CLAIMS, claim, true, NULL, e) : err_oom(e);
}

int kube_pool_prepare(const struct provider_box *b, struct kube *k, struct err *e)
{
    _cleanup_kube_claim_ struct kube_claim c = {0};
    _cleanup_json_ json_t *body = NULL, *pool = NULL;
    char mark[STORE_MARK_BYTES];
    struct err why = {0};
    int r = store_mark(b->ctx, mark, e);

    if (r < 0)
        return r;
    body = kube_new_sandbox_claim(b, mark);
    r = kube_make(b, k, KUBE_SANDBOX_CLAIMS, body, NULL, e);
    if (r == 0)
        r = kube_find_claim(b, k, &c, e);
    if (r == 0)
        return err_set(e, ERR_ABORTED, "the claim was deleted while the box was made");
    if (r == 1)
        r = kube_has_recorded_claim(b, k, &c, e);
    if (r != 1)
        return r;
    r = kube_get(k, KUBE_WARM_POOLS, b->spec->pool, &pool, &why);
    if (r == 0 || r == -ERR_NOT_FOUND) /* the start tells that it is gone */
        return kube_record_claim(b, &c, kube_text(pool, "metadata", "uid"), e);
    if (e)
        *e = why;
    return r;
}

int kube_pool_has_disk(const struct provider_box *b, struct kube *k, struct err *e)
{
    _cleanup_kube_claim_ struct kube_claim c = {0};
    int r = kube_find_claim(b, k, &c, e);

    if (r == 0)
        return kube_check_claim_cluster(b, k, e);
    return r == 1 ? kube_has_recorded_claim(b, k, &c, e) : r;
}

/* By the record. kube_find_own_pod() compares its uid. One whose container was started again has lost its token. */
int kube_pool_find_pod(const struct provider_box *b, struct kube *k, struct kube_pod *ret,
                       struct err *e)
{
    struct kube_recorded w = {0};
    json_t *doc = NULL;
    struct err why = {0};
    int r = kube_read_record(b, &w, e);

    if (r < 0 || !*w.pod)
        return r < 0 ? r : 0;
    r = kube_get(k, KUBE_PODS, w.pod, &doc, &why);
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r < 0) {
        if (e)
            *e = why;
        return r;
    }
    kube_read_pod_take(doc, ret);
    if (ret->is_running && str_eq(ret->uid, w.uid) && !str_eq(ret->container, w.container)) {
        ret->is_running = ret->is_lost = false;
        ret->has_ended = true;
        kube_note_restart(b, ret);
    }
    return 1;
}

/* ---- the token ---- */

static const char give_script[] =
    "f=/run/bellhop/token; if [ -p $f ]; then read -r t && printf %s \"$t\" >$f && echo given; "
    "else read -r n </proc/1/comm; echo \"$n\"; fi";

static int read_pool_token(const struct provider_box *b, char **ret, size_t *ret_len, struct err *e)
{
    _cleanup_free_ char *path = path_join(b->dir, "token");

    return path ? io_read_file(AT_FDCWD, path, TOKEN_BYTES, ret, ret_len, e) : err_oom(e);
}

/* Reads a line, as far as there is one, to the end of the stream. */
static int read_script_answer(struct kube *k, int fd, char *out, size_t size, struct err *e)
{
    int64_t deadline = clock_mono_ms() + GIVE_MS;
    size_t n = 0;

    for (;;) {
        ssize_t got;
        int r = socket_wait(fd, false, kube_cancel_fd(k), deadline, e);

        if (r < 0)
            return r;
        got = recv(fd, out + n, size - 1 - n, 0);
        if (got <= 0 || n + (size_t)got >= size - 1)
            break;
        n += (size_t)got;
    }
    out[n] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return 0;
}

/*
 * 1: the agent has the token, now or already. 0: the container does not wait for one, yet. The name of a pod is used again:
 * the token is sent once the pod behind the connection is seen to be the box's.
 */
static int give_token_once(struct kube *k, const struct kube_pod *p, const char *token,
                           struct err *e)
{
    _cleanup_close_ int fd = -1;
    _cleanup_json_ json_t *doc = NULL;
    char answer[64] = "";
    int r = kube_stream_script(k, p->name, give_script, &fd, e);

    if (r == 0)
        r = kube_get(k, KUBE_PODS, p->name, &doc, e);
    if (r < 0)
        return r;
    if (!str_eq(kube_text(doc, "metadata", "uid"), p->uid))
        return err_set(e, ERR_ABORTED, "the pod was replaced while the box started");
    /* A script that has ended reads nothing: its answer tells. */
    r = io_write_all(fd, token, strlen(token), NULL);
    if (r == 0)
        r = io_write_all(fd, "\n", 1, NULL);
    (void)shutdown(fd, SHUT_WR);
    r = read_script_answer(k, fd, answer, sizeof(answer), e);
    if (r < 0)
        return r;
    return str_eq(answer, "given") || str_eq(answer, "bellhopd");
}

/* ---- start ---- */

/* Reasons of a claim that no waiting changes. */
static int claim_failure(const struct kube_claim *c, struct err *e)
{
    static const char *const reasons[] = {"WarmPoolNotFound",          "TemplateNotFound",
                                          "InvalidMetadata",           "ClaimExpired",
                                          "VolumeClaimTemplatesError", "SandboxExpired"};
    char why[KUBE_WHY_BYTES];

    kube_claim_why(c, why);
    for (size_t i = 0; i < N_ELEMENTS(reasons); i++)
        if (str_has_prefix(why, reasons[i]))
            return err_field(e, ERR_PRECONDITION, POOL_FIELD, "pool: %s", why);
    return 0;
}

static int pool_pod_failure(const struct kube_pod *p, struct err *e)
{
    if (!kube_box_container(p))
        return err_field(e, ERR_PRECONDITION, POOL_FIELD,
                         "pool: the pod '%.100s' has no container '" KUBE_CONTAINER "'", p->name);
    return kube_pod_failure(p, e);
}

/* The claim and the pod as they are now. 1: there is a pod. */
static int look_at_claim(const struct provider_box *b, struct kube *k, struct kube_claim *c,
                         struct kube_pod *p, struct err *e)
{
    int r = kube_find_claim(b, k, c, e);

    kube_pod_done(p);
    if (r == 0)
        return err_set(e, ERR_ABORTED, "the claim of the box was deleted");
    if (r == 1)
        r = kube_has_recorded_claim(b, k, c, e);
    if (r == 0)
        return err_set(e, ERR_ABORTED, "the claim of the box, or its sandbox, was made anew");
    return r < 0 ? r : kube_find_claim_pod(k, c, p, e);
}

/* Until the Sandbox has no pod any more that has ended or ends. */
static int clear_ended_pods(const struct provider_box *b, struct kube *k, struct kube_claim *c,
                            struct kube_pod *p, struct err *e)
{
    for (;;) {
        bool is_over;
        int r = look_at_claim(b, k, c, p, e);

        if (r < 0)
            return r;
        is_over = r == 1 && (p->has_ended || p->is_ending || str_eq(p->phase, "Failed") ||
                             str_eq(p->phase, "Succeeded"));
        if (!is_over && !(r == 1 && kube_claim_is_suspended(c)))
            return 0;
        r = kube_suspend(k, c, true, e);
        if (r == 0)
            r = kube_wait_claim(b, k, c, p, LOOK_MS, e);
        if (r < 0)
            return r;
    }
}

/* Until the container runs; *p is the pod then. */
static int wait_claim_running(const struct provider_box *b, struct kube *k, struct kube_claim *c,
                              struct kube_pod *p, struct err *e)
{
    int64_t settled = clock_mono_ms() + SETTLE_MS;

    for (;;) {
        int r = look_at_claim(b, k, c, p, e);

        if (r == 1 && p->is_running && p->is_ready && !p->is_ending)
            return 0;
        if (r == 1)
            r = pool_pod_failure(p, e);
        else if (r == 0 && clock_until_ms(settled) <= 0)
            r = claim_failure(c, e);
        if (r == 0)
            r = kube_suspend(k, c, false, e);
        if (r == 0)
            r = kube_wait_claim(b, k, c, p, LOOK_MS, e);
        if (r < 0)
            return r;
    }
}

/* The pod may end meanwhile, which its node tells a moment later. */
static int give_token(const struct provider_box *b, struct kube *k, struct kube_claim *c,
                      struct kube_pod *p, const char *token, struct err *e)
{
    int64_t deadline = clock_mono_ms() + GIVE_MS;
    struct err why = {0};
    int r, seen;

    do {
        r = give_token_once(k, p, token, &why);
        if (r == 1)
            return 0;
        if (r < 0 && r != -ERR_UNAVAILABLE)
            break;
        seen = look_at_claim(b, k, c, p, e);
        if (seen == 1)
            seen = pool_pod_failure(p, e);
        if (seen == 0 && !p->doc)
            seen = err_set(e, ERR_ABORTED, "the pod was deleted while the box started");
        if (seen < 0)
            return seen;
        if (socket_wait_canceled(kube_cancel_fd(k), GIVE_PAUSE_MS))
            return err_set(e, ERR_CANCELED, "canceled");
    } while (clock_until_ms(deadline) > 0 && clock_until_ms(kube_deadline(k)) > 0);
    if (r == 0)
        return err_field(e, ERR_PRECONDITION, POOL_FIELD,
                         "pool: the container '" KUBE_CONTAINER "' of the pod '%.100s' does not "
                         "wait for the box's token at /run/bellhop/token",
                         p->name);
    if (e)
        *e = why;
    return err_wrap(e, r, "the token for the pod");
}

/*
 * A container reads the token once. One that is started again meanwhile waits for it anew, and gets it: by then the
 * record has the container that answers.
 */
static int give_token_and_reach(const struct provider_box *b, struct kube *k, struct kube_claim *c,
                                struct kube_pod *p, const char *token, struct err *e)
{
    for (int i = 0; i < RESTARTS_MOST; i++) {
        char uid[KUBE_UID_BYTES], container[KUBE_CONTAINER_BYTES];
        struct err why = {0}, seen = {0};
        int r = give_token(b, k, c, p, token, &why), now;

        (void)snprintf(uid, sizeof(uid), "%s", p->doc ? p->uid : "");
        (void)snprintf(container, sizeof(container), "%s", p->doc ? p->container : "");
        if (r == 0)
            r = kube_record_reach(b, k, p, &why);
        now = kube_find_claim_pod(k, c, p, &seen);
        if (now == 0)
            now = err_set(&seen, ERR_ABORTED, "the pod was deleted while the box started");
        if (now == 1 && !(p->is_running && !p->is_ending))
            now = wait_claim_running(b, k, c, p, &seen);
        if (now >= 0 && !str_eq(uid, p->uid))
            now = err_set(&seen, ERR_ABORTED, "the pod was replaced while the box started");
        if (now >= 0 && !str_eq(container, p->container))
            continue;
        if (now < 0 && r != -ERR_CANCELED) {
            why = seen;
            r = now;
        }
        if (r < 0 && e)
            *e = why;
        return r;
    }
    return kube_pod_restarts(p, e);
}

int kube_pool_start(const struct provider_box *b, struct kube *k, struct kube_pod *ret,
                    struct err *e)
{
    _cleanup_kube_claim_ struct kube_claim c = {0};
    _cleanup_free_ char *token = NULL;
    struct kube_recorded w = {0};
    size_t len = 0;
    bool is_own;
    int r = clear_ended_pods(b, k, &c, ret, e);

    if (r == 0)
        r = kube_read_record(b, &w, e);
    if (r < 0)
        return r;
    is_own = ret->doc && str_eq(w.uid, ret->uid) && str_eq(w.container, ret->container);
    r = is_own ? 0 : kube_record_forget(b, e); /* else the new pod would be taken for a stranger */
    if (r == 0)
        r = wait_claim_running(b, k, &c, ret, e);
    if (r == 0)
        r = kube_record_claim(b, &c, NULL, e);
    if (r < 0)
        return r;
    if (is_own && str_eq(w.uid, ret->uid) && str_eq(w.container, ret->container))
        return kube_record_reach(b, k, ret, e);
    r = read_pool_token(b, &token, &len, e);
    if (r == 0)
        r = give_token_and_reach(b, k, &c, ret, token, e);
    if (token)
        explicit_bzero(token, len);
    return r;
}

/* The reason of the pod, of its events or of the claim. */
static void start_why(struct kube *k, const struct kube_claim *c, const struct kube_pod *p,
                      char out[KUBE_WHY_BYTES])
{
    out[0] = '\0';
    if (p->doc)
        kube_pod_why(p, out);
    if (p->doc && !*out)
        kube_pod_warning(k, p, out);
    if (p->doc && !*out)
        kube_pod_unready(p, out);
    if (!*out)
        kube_claim_why(c, out);
}

int kube_pool_explain(const struct provider_box *b, int r, struct err *e)
{
    _cleanup_kube_ struct kube *k = NULL;
    _cleanup_kube_claim_ struct kube_claim c = {0};
    _cleanup_kube_pod_ struct kube_pod p = {0};
    struct bh_ctx ctx = *b->ctx;
    char why[KUBE_WHY_BYTES];

    ctx.cancel_fd = -1; /* it is what ended the wait */
    if (kube_open(&ctx, b->spec->engine, clock_mono_ms() + SETTLE_MS, &k, NULL) < 0)
        return r;
    kube_set_patience(k, SETTLE_MS);
    if (kube_find_claim(b, k, &c, NULL) != 1)
        return r;
    if (kube_find_claim_pod(k, &c, &p, NULL) == 1)
        kube_save_logs(b, k, &p);
    if (r == -ERR_DEADLINE || r == -ERR_CANCELED) {
        start_why(k, &c, &p, why);
        if (*why)
            r = err_set(e, ERR_DEADLINE, "the box of the pool '%.64s' does not start: %s",
                        b->spec->pool, why);
    }
    (void)kube_suspend(k, &c, true, NULL);
    return r;
}

/* ---- stop and destroy ---- */

/* Suspends first: else the pod would be made anew. */
static int end_claim_pod(const struct provider_box *b, struct kube *k, const struct kube_claim *c,
                         struct kube_pod *p, int grace_s, struct err *e)
{
    int r = kube_suspend(k, c, true, e);

    if (r == 0)
        r = kube_find_claim_pod(k, c, p, e);
    if (r != 1)
        return r;
    kube_note_end(b, p);
    if (p->has_ended)
        kube_save_logs(b, k, p);
    return kube_delete(k, KUBE_PODS, p->name, p->uid, p->has_ended ? 0 : grace_s, e);
}

/*
 * A 404 of the pod is enough here: its Sandbox is suspended by then, and the controller ends the pod also if that answer
 * was a gateway's.
 */
int kube_pool_stop(const struct provider_box *b, struct kube *k, int grace_s, struct err *e)
{
    _cleanup_kube_claim_ struct kube_claim c = {0};
    _cleanup_kube_pod_ struct kube_pod p = {0};
    int64_t end_by = 0; /* 0: the pod that ends has not been seen yet */
    int r = kube_find_claim(b, k, &c, e);

    if (r == 0)
        return kube_check_claim_cluster(b, k, e);
    if (r == 1)
        r = end_claim_pod(b, k, &c, &p, grace_s, e);
    while (r == 0) {
        r = kube_find_claim_pod(k, &c, &p, e);
        if (r != 1)
            return r;
        kube_note_end(b, &p);
        if (!end_by)
            end_by = kube_end_by_ms(&p, grace_s);
        if (kube_pod_is_stuck(&p, end_by))
            return kube_pod_does_not_end(&p, e);
        r = kube_wait_claim(b, k, &c, &p, LOOK_MS, e);
    }
    return r;
}

/*
 * In the foreground: the claim stays until its Sandbox is gone, and that until its pod is. A claim that is gone
 * therefore proves that nothing of the box runs, also to the next call after a crash.
 */
int kube_pool_destroy(const struct provider_box *b, struct kube *k, struct err *e)
{
    int64_t force_at = clock_mono_ms() + KUBE_FORCE_AFTER_MS;
    char uid[KUBE_UID_BYTES] = "", name[KUBE_NAME_BYTES];

    kube_name(b, name);
    for (;;) {
        _cleanup_kube_claim_ struct kube_claim c = {0};
        _cleanup_kube_pod_ struct kube_pod p = {0};
        int r = kube_find_claim(b, k, &c, e);

        if (r != 1)
            return r;
        if (!str_eq(c.uid, uid)) { /* the first look, or one that was made meanwhile */
            (void)snprintf(uid, sizeof(uid), "%s", c.uid);
            r = end_claim_pod(b, k, &c, &p, KUBE_KILL_GRACE_S, e);
            if (r == 0)
                r = kube_delete_tree(k, KUBE_SANDBOX_CLAIMS, name, c.uid, e);
        } else {
            r = kube_find_claim_pod(k, &c, &p, e);
            if (r == 1 && clock_until_ms(force_at) <= 0)
                r = kube_delete(k, KUBE_PODS, p.name, p.uid, 0, e);
        }
        if (r >= 0)
            r = kube_wait_claim(b, k, &c, &(struct kube_pod){0}, LOOK_MS, e);
        if (r < 0)
            return r;
    }
}
