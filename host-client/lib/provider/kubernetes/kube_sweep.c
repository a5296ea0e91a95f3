/* kube_sweep: gc of the objects in the cluster whose box the store does not know any more. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/kubernetes/kubernetes.h"
#include "lib/provider/store_mark.h"
#include "lib/util/daemon_client.h"
#include "lib/util/socket.h"

#define LOOK_AGAIN_MS 1000 /* at pods that end */
#define TOKEN_BYTES 1024   /* of the place in a list, percent-encoded */

struct kube_sweep {
    struct bh_ctx *ctx;
    struct kube *kube;
    const struct kube_sweep_limits *limits;
    const char *mark;
    int64_t until_mono_ms;
    bool (*is_kept)(void *arg, const char *id, bool has_disk);
    void *arg;
    void (*report)(void *arg, const char *line);
    void *report_arg;
    unsigned n_found; /* objects of the list that no box has */
    struct err first; /* the first failure of an object: the others are not held by it */
};

/* ---- one object ---- */

static const char *kind_word(enum kube_kind kind)
{
    switch (kind) {
    case KUBE_PODS:
        return "pod";
    case KUBE_CLAIMS:
        return "claim";
    case KUBE_SECRETS:
        return "secret";
    case KUBE_POLICIES:
        return "network policy";
    case KUBE_SANDBOX_CLAIMS:
        return "sandbox claim";
    case KUBE_SANDBOXES:
    case KUBE_WARM_POOLS:
    case KUBE_EVENTS:
    case KUBE_LEASES:
    default:
        return "object";
    }
}

/* The box of an object that is to go; NULL: it stays. The selector is the API server's; the label is compared again. */
static const char *orphan_box(struct kube_sweep *s, enum kube_kind kind, const json_t *obj)
{
    bool has_disk = kind == KUBE_CLAIMS || kind == KUBE_SANDBOX_CLAIMS;
    const char *box = kube_text(obj, "metadata", "labels", KUBE_LABEL_BOX);
    const char *name = kube_text(obj, "metadata", "name");

    return str_eq(kube_text(obj, "metadata", "labels", KUBE_LABEL_STORE), s->mark) &&
                   ctx_is_box_id(box) && str_has_prefix(name, "bellhop-") &&
                   str_eq(name + strlen("bellhop-"), box) && !s->is_kept(s->arg, box, has_disk)
               ? box
               : NULL;
}

/* One object that hangs does not use up the time of the others. */
static void begin_call(struct kube_sweep *s)
{
    int64_t at = clock_mono_ms() + s->limits->object_ms;

    kube_set_deadline(s->kube, at < s->until_mono_ms ? at : s->until_mono_ms);
}

static int sweep_object(struct kube_sweep *s, enum kube_kind kind, const json_t *obj, int grace_s,
                        struct err *e)
{
    const char *box = orphan_box(s, kind, obj);
    bool is_ending = *kube_text(obj, "metadata", "deletionTimestamp") != '\0';
    char line[160];
    int r;

    if (!box)
        return 0;
    s->n_found++;
    if (is_ending && grace_s != 0)
        return 0;
    begin_call(s);
    if (kind == KUBE_SANDBOX_CLAIMS)
        r = kube_delete_tree(s->kube, kind, kube_text(obj, "metadata", "name"),
                             kube_text(obj, "metadata", "uid"), e);
    else
        r = kube_delete(s->kube, kind, kube_text(obj, "metadata", "name"),
                        kube_text(obj, "metadata", "uid"), grace_s, e);
    if (r < 0)
        return err_wrap(e, r, "the %s of '%s'", kind_word(kind), box);
    (void)snprintf(line, sizeof(line), "%s the %s of '%s', which is gone",
                   is_ending ? "did not wait for the end of" : "removed", kind_word(kind), box);
    if (s->report)
        s->report(s->report_arg, line);
    return 0;
}

/* ---- a list ---- */

static int time_is_over(struct err *e)
{
    return err_set(e, ERR_DEADLINE,
                   "the time for the objects in the cluster is over: not all of "
                   "them were looked at, and the next gc goes on");
}

/* `more`: the place in the list, or NULL; *ret_more is the next one, owned. */
static int list_page(struct kube_sweep *s, enum kube_kind kind, const char *more, json_t **ret,
                     char **ret_more, struct err *e)
{
    _cleanup_free_ char *token = NULL;
    const char *next;
    char query[TOKEN_BYTES + 256];
    int r;

    (void)snprintf(query, sizeof(query), "limit=%u&labelSelector=" KUBE_LABEL_STORE "%%3D%s%s%s",
                   s->limits->page, s->mark, more ? "&continue=" : "", more ? more : "");
    begin_call(s);
    r = kube_list(s->kube, kind, query, ret, e);
    if (r < 0)
        return r;
    next = kube_text(*ret, "metadata", "continue");
    if (!*next)
        return 0;
    token = daemon_client_encode(next);
    if (!token)
        return err_oom(e);
    if (strlen(token) >= TOKEN_BYTES)
        return err_set(e, ERR_DATA_LOSS, "the place in the list is longer than %d bytes",
                       TOKEN_BYTES);
    *ret_more = TAKE(token);
    return 0;
}

static int sweep_page(struct kube_sweep *s, enum kube_kind kind, const json_t *list, int grace_s,
                      struct err *e)
{
    const json_t *obj;
    size_t i;

    json_array_foreach (json_object_get(list, "items"), i, obj) {
        struct err why = {0};
        int r = sweep_object(s, kind, obj, grace_s, &why);

        if (r < 0 && !s->first.code)
            s->first = why;
        if (r == -ERR_CANCELED || clock_until_ms(s->until_mono_ms) == 0) {
            if (r == -ERR_CANCELED && e)
                *e = why;
            return r == -ERR_CANCELED ? r : time_is_over(e);
        }
    }
    return 0;
}

/* The API server forgets a place in a list after some minutes: then the list begins again. */
static int sweep_kind(struct kube_sweep *s, enum kube_kind kind, int grace_s, struct err *e)
{
    _cleanup_free_ char *more = NULL;

    s->n_found = 0;
    for (unsigned n = 0; n < s->limits->pages; n++) {
        _cleanup_json_ json_t *list = NULL;
        _cleanup_free_ char *next = NULL;
        struct err why = {0};
        int r;

        if (clock_until_ms(s->until_mono_ms) == 0)
            return time_is_over(e);
        r = list_page(s, kind, more, &list, &next, &why);
        if (r == -ERR_RANGE && more) {
            free(TAKE(more));
            continue;
        }
        if (r < 0 && r != -ERR_CANCELED && clock_until_ms(s->until_mono_ms) == 0)
            return time_is_over(e);
        if (r < 0) {
            if (e)
                *e = why;
            return err_wrap(e, r, "the list of each %s", kind_word(kind));
        }
        r = sweep_page(s, kind, list, grace_s, e);
        if (r < 0 || !next)
            return r;
        free(TAKE(more));
        more = TAKE(next);
    }
    return err_set(e, ERR_DEADLINE,
                   "the list of each %s has more than %u pages of %u: not all of "
                   "them were looked at",
                   kind_word(kind), s->limits->pages, s->limits->page);
}

/* All of them end at once. A node that does not answer is not waited for. */
static int sweep_pods(struct kube_sweep *s, struct err *e)
{
    int64_t force_at = clock_mono_ms() + KUBE_FORCE_AFTER_MS;

    for (;;) {
        bool force = clock_until_ms(force_at) == 0;
        int r = sweep_kind(s, KUBE_PODS, force ? 0 : KUBE_KILL_GRACE_S, e);

        if (r < 0 || force || !s->n_found || s->first.code)
            return r;
        if (socket_wait_canceled(s->ctx->cancel_fd, LOOK_AGAIN_MS))
            return err_set(e, ERR_CANCELED, "canceled");
    }
}

/* A claim stays until its pod is gone. A role without rights to claims has made none. */
static int sweep_sandbox_claims(struct kube_sweep *s, struct err *e)
{
    int64_t enough = clock_mono_ms() + KUBE_FORCE_AFTER_MS;
    struct err why = {0};
    int r;

    begin_call(s);
    r = kube_serves(s->kube, KUBE_SANDBOX_CLAIMS, &why);
    while (r == 1) {
        r = sweep_kind(s, KUBE_SANDBOX_CLAIMS, -1, &why);
        if (r < 0 || !s->n_found || s->first.code || clock_until_ms(enough) == 0)
            break;
        r = socket_wait_canceled(s->ctx->cancel_fd, LOOK_AGAIN_MS)
                ? err_set(&why, ERR_CANCELED, "canceled")
                : 1;
    }
    if (r >= 0 || r == -ERR_DENIED)
        return 0;
    if (e)
        *e = why;
    return r;
}

/* ---- all ---- */

/* A role that lacks one kind does not keep the others' objects. */
static int sweep_next_kind(struct kube_sweep *s, enum kube_kind kind, struct err *e)
{
    struct err why = {0};
    int r = sweep_kind(s, kind, -1, &why);

    if (r == -ERR_DENIED) {
        if (!s->first.code)
            s->first = why;
        return 0;
    }
    if (r < 0 && e)
        *e = why;
    return r;
}

static int sweep_kinds(struct kube_sweep *s, struct err *e)
{
    static const enum kube_kind kinds[] = {KUBE_SECRETS, KUBE_CLAIMS, KUBE_POLICIES};
    int r = sweep_pods(s, e);

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(kinds); i++)
        r = sweep_next_kind(s, kinds[i], e);
    if (r == 0)
        r = sweep_sandbox_claims(s, e);
    if (r < 0 || !s->first.code)
        return r;
    if (e)
        *e = s->first;
    return -s->first.code;
}

/* A store that has made nothing in a cluster has no mark there; without a way to one, nothing can be asked. */
int kube_sweep_within(struct bh_ctx *ctx, const struct kube_sweep_limits *limits,
                      bool (*is_kept)(void *arg, const char *id, bool has_disk), void *arg,
                      void (*report)(void *arg, const char *line), void *report_arg, struct err *e)
{
    _cleanup_free_ char *engine = NULL, *mark_path = path_join(ctx->state_dir, "mark");
    _cleanup_kube_ struct kube *k = NULL;
    char mark[STORE_MARK_BYTES];
    struct kube_sweep s = {.ctx = ctx,
                           .limits = limits,
                           .mark = mark,
                           .until_mono_ms = clock_mono_ms() + limits->total_ms,
                           .is_kept = is_kept,
                           .arg = arg,
                           .report = report,
                           .report_arg = report_arg};
    int r;

    if (!mark_path)
        return err_oom(e);
    if (access(mark_path, F_OK) < 0)
        return errno == ENOENT ? 0 : err_sys(e, errno, "'%s'", mark_path);
    if (kube_choose(ctx, &engine, NULL) < 0)
        return 0;
    r = kube_open(ctx, engine, s.until_mono_ms, &k, e);
    if (r == 0)
        r = store_mark(ctx, mark, e);
    if (r < 0)
        return r;
    s.kube = k;
    return sweep_kinds(&s, e);
}

int kube_sweep(struct bh_ctx *ctx, bool (*is_kept)(void *arg, const char *id, bool has_disk),
               void *arg, void (*report)(void *arg, const char *line), void *report_arg,
               struct err *e)
{
    static const struct kube_sweep_limits limits = {
        .total_ms = PROVIDER_MS, .object_ms = 20000, .page = 100, .pages = 1000};

    return kube_sweep_within(ctx, &limits, is_kept, arg, report, report_arg, e);
}
