#include "lib/provider/kubernetes/kube_lease.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"

#define CALL_MS 3000 /* a leader has two of them between a renewal and its deadline */
#define RELEASE_MS 5000
#define DURATION_MAX_S 600
#define NAME_CHARS "abcdefghijklmnopqrstuvwxyz0123456789-."
#define TIME_BYTES 40

struct kube_lease {
    struct bh_ctx *ctx;
    char *engine;
    char name[KUBE_LEASE_NAME_BYTES], holder[KUBE_LEASE_HOLDER_BYTES];
    enum kube_lease_state state;
    json_t *seen;                              /* the Lease as it was read last; NULL: never */
    char seen_holder[KUBE_LEASE_HOLDER_BYTES]; /* cut */
    int64_t seen_ms;                           /* its last change was seen */
    int64_t missing_ms;                        /* it was not there for the first time; 0: it is */
    int64_t until_ms;                          /* HELD: the deadline */
    int64_t next_ms;
};

int kube_lease_check_name(const char *name, struct err *e)
{
    size_t len = strlen(name);

    if (len && len < KUBE_LEASE_NAME_BYTES && strspn(name, NAME_CHARS) == len && name[0] != '-' &&
        name[0] != '.' && name[len - 1] != '-' && name[len - 1] != '.')
        return 0;
    return err_field(e, ERR_INVALID, "lease", "lease: '%.64s' is no name of a Lease", name);
}

int kube_lease_new(struct bh_ctx *ctx, const char *engine, const char *name, const char *holder,
                   struct kube_lease **ret, struct err *e)
{
    struct kube_lease *l;
    int r = kube_lease_check_name(name, e);

    if (r < 0)
        return r;
    if (!*holder || strlen(holder) >= KUBE_LEASE_HOLDER_BYTES)
        return err_field(e, ERR_INVALID, "lease", "lease: '%.128s' cannot be a holder", holder);
    l = calloc(1, sizeof(*l));
    if (!l || !(l->engine = strdup(engine))) {
        free(l);
        return err_oom(e);
    }
    l->ctx = ctx;
    (void)snprintf(l->name, sizeof(l->name), "%s", name);
    (void)snprintf(l->holder, sizeof(l->holder), "%s", holder);
    l->next_ms = clock_mono_ms();
    *ret = l;
    return 0;
}

struct kube_lease *kube_lease_free(struct kube_lease *l)
{
    if (!l)
        return NULL;
    json_decref(l->seen);
    free(l->engine);
    free(l);
    return NULL;
}

int64_t kube_lease_next_ms(const struct kube_lease *l)
{
    return l->next_ms;
}

const char *kube_lease_seen_holder(const struct kube_lease *l)
{
    return l->seen_holder;
}

static bool has_passed(int64_t mono_ms)
{
    return clock_mono_ms() >= mono_ms;
}

/* ---- the object ---- */

static const char *holder_of(const json_t *lease)
{
    return kube_text(lease, "spec", "holderIdentity");
}

static const char *version_of(const json_t *lease)
{
    return kube_text(lease, "metadata", "resourceVersion");
}

/* For people alone: nobody here compares it. */
static void format_now(char out[TIME_BYTES])
{
    struct timespec now = {0};
    struct tm utc = {0};
    size_t n;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    n = strftime(out, TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &utc);
    (void)snprintf(out + n, TIME_BYTES - n, ".%06ldZ", now.tv_nsec / 1000);
}

/*
 * The Lease as it is to be written. What others have put into its metadata stays, with the version that was read. holder "":
 * it is given up.
 */
static json_t *new_lease(const struct kube_lease *l, bool is_new, const char *holder)
{
    const json_t *spec = is_new ? NULL : json_object_get(l->seen, "spec");
    json_t *metadata = is_new ? json_pack("{s:s}", "name", l->name)
                              : json_copy(json_object_get(l->seen, "metadata"));
    json_int_t transitions = json_integer_value(json_object_get(spec, "leaseTransitions"));
    bool is_mine = str_eq(kube_text(spec, "holderIdentity"), l->holder);
    char now[TIME_BYTES];
    const char *acquired = is_mine ? kube_text(spec, "acquireTime") : now;

    format_now(now);
    if (metadata)
        (void)json_object_del(metadata, "managedFields");
    if (!is_mine && !is_new && transitions >= 0 && transitions < INT32_MAX)
        transitions++;
    return json_pack("{s:s, s:s, s:o, s:{s:s, s:i, s:s, s:s, s:I}}", "apiVersion",
                     "coordination.k8s.io/v1", "kind", "Lease", "metadata", metadata, "spec",
                     "holderIdentity", holder, "leaseDurationSeconds",
                     KUBE_LEASE_DURATION_MS / 1000, "acquireTime", *acquired ? acquired : now,
                     "renewTime", now, "leaseTransitions", transitions < 0 ? 0 : transitions);
}

/* The clock of the last change begins when its answer is here: it is not earlier than the change. */
static int note_seen(struct kube_lease *l, json_t *lease, struct err *e)
{
    const char *version = version_of(lease);

    if (!*version)
        return err_set(e, ERR_DATA_LOSS, "the Lease '%s' has no version", l->name);
    if (!l->seen || !str_eq(version_of(l->seen), version))
        l->seen_ms = clock_mono_ms();
    l->missing_ms = 0;
    (void)snprintf(l->seen_holder, sizeof(l->seen_holder), "%.100s", holder_of(lease));
    str_make_utf8(l->seen_holder);
    json_decref(l->seen);
    l->seen = json_incref(lease);
    return 0;
}

/* Never less than our own duration, whatever the Lease says, and no more than some minutes. */
static int64_t duration_ms(const struct kube_lease *l)
{
    json_int_t s = json_integer_value(
        json_object_get(json_object_get(l->seen, "spec"), "leaseDurationSeconds"));

    if (s > DURATION_MAX_S)
        s = DURATION_MAX_S;
    return s * 1000 > KUBE_LEASE_DURATION_MS ? s * 1000 : KUBE_LEASE_DURATION_MS;
}

static bool is_expired(const struct kube_lease *l)
{
    return clock_mono_ms() - l->seen_ms >= duration_ms(l);
}

/* Our own: a write whose answer was lost. */
static bool is_free(const struct kube_lease *l)
{
    const char *holder = holder_of(l->seen);

    return !*holder || str_eq(holder, l->holder) || is_expired(l);
}

/* ---- calls ---- */

/* With a connection and a token of its own: the kubelet replaces the token. */
static int lease_open(struct kube_lease *l, int64_t most_ms, struct kube **ret, struct err *e)
{
    int64_t deadline = clock_mono_ms() + most_ms;

    if (l->state == KUBE_LEASE_HELD && l->until_ms < deadline)
        deadline = l->until_ms;
    return kube_open(l->ctx, l->engine, deadline, ret, e);
}

static int lease_read(struct kube_lease *l, struct kube *k, struct err *e)
{
    _cleanup_json_ json_t *lease = NULL;
    int r = kube_get(k, KUBE_LEASES, l->name, &lease, e);

    return r < 0 ? r : note_seen(l, lease, e);
}

/* Makes the Lease, or replaces the one that was seen. ERR_ABORTED, ERR_EXISTS: another was faster. */
static int lease_write(struct kube_lease *l, struct kube *k, bool is_new, const char *holder,
                       struct err *e)
{
    _cleanup_json_ json_t *body = new_lease(l, is_new, holder);
    _cleanup_json_ json_t *lease = NULL;
    int64_t begun_ms = clock_mono_ms();
    int r = !body    ? err_oom(e)
            : is_new ? kube_create(k, KUBE_LEASES, body, false, &lease, e)
                     : kube_replace(k, KUBE_LEASES, l->name, body, &lease, e);

    if (r == 0)
        r = note_seen(l, lease, e);
    if (r == 0 && !str_eq(holder_of(l->seen), holder))
        r = err_set(e, ERR_ABORTED, "the Lease '%s' was written, and '%.64s' holds it", l->name,
                    l->seen_holder);
    if (r == 0 && *holder) {
        l->until_ms = begun_ms + KUBE_LEASE_DEADLINE_MS;
        l->next_ms = begun_ms + KUBE_LEASE_RENEW_MS;
    }
    return r;
}

/* ---- steps ---- */

/*
 * A Lease that is not there may have been deleted: its leader makes it again with its next renewal, or ends. client-go
 * takes it at once, and then two lead until that renewal.
 */
static bool may_make_lease(struct kube_lease *l)
{
    int64_t now_ms = clock_mono_ms();

    if (!l->missing_ms)
        l->missing_ms = now_ms;
    return now_ms - l->missing_ms >= duration_ms(l);
}

static int try_to_take(struct kube_lease *l, struct kube *k, struct err *e)
{
    struct err why = {0};
    int r = lease_read(l, k, &why);
    bool is_new = r == -ERR_NOT_FOUND;

    if (is_new && !may_make_lease(l))
        return 0;
    if (r < 0 && !is_new)
        l->missing_ms = 0; /* nobody knows whether it was there meanwhile */
    if (!is_new && (r < 0 || !is_free(l))) {
        if (r < 0 && e)
            *e = why;
        return r;
    }
    r = lease_write(l, k, is_new, l->holder, e);
    if (r == 0)
        l->state = KUBE_LEASE_HELD;
    return r;
}

/* ERR_ABORTED: it is another's. */
static int renew_lease(struct kube_lease *l, struct kube *k, struct err *e)
{
    struct err why = {0};
    int r = lease_write(l, k, false, l->holder, &why);

    if (r == -ERR_ABORTED ||
        r == -ERR_NOT_FOUND) { /* the version is another one, or it was deleted */
        r = lease_read(l, k, &why);
        if (r == 0 && !str_eq(holder_of(l->seen), l->holder))
            return err_set(e, ERR_ABORTED, "the Lease '%s' is held by '%.64s'", l->name,
                           l->seen_holder);
        if (r == 0 || r == -ERR_NOT_FOUND)
            r = lease_write(l, k, r < 0, l->holder, &why);
        if (r == -ERR_ABORTED || r == -ERR_EXISTS) /* again: the next try reads who it is */
            r = -ERR_UNAVAILABLE;
    }
    if (r < 0 && e)
        *e = why;
    return r;
}

static void step_leader(struct kube_lease *l, struct err *why)
{
    _cleanup_kube_ struct kube *k = NULL;
    int64_t begun_ms = clock_mono_ms();
    int r = has_passed(l->until_ms) ? 0 : lease_open(l, CALL_MS, &k, why);

    if (k)
        r = renew_lease(l, k, why);
    if (r == -ERR_ABORTED || has_passed(l->until_ms))
        l->state = KUBE_LEASE_LOST;
    else if (r < 0)
        l->next_ms = begun_ms + KUBE_LEASE_RETRY_MS;
    if (l->state == KUBE_LEASE_HELD && l->next_ms > l->until_ms)
        l->next_ms = l->until_ms;
}

enum kube_lease_state kube_lease_step(struct kube_lease *l, struct err *why)
{
    _cleanup_kube_ struct kube *k = NULL;
    int r;

    *why = (struct err){0};
    if (l->state == KUBE_LEASE_LOST || !has_passed(l->next_ms))
        return l->state;
    if (l->state == KUBE_LEASE_HELD) {
        step_leader(l, why);
        return l->state;
    }
    r = lease_open(l, CALL_MS, &k, why);
    if (r == 0)
        r = try_to_take(l, k, why);
    if (r == 0 || r == -ERR_ABORTED ||
        r == -ERR_EXISTS) /* another candidate was faster: no fault */
        *why = (struct err){0};
    if (l->state == KUBE_LEASE_WAITING)
        l->next_ms = clock_mono_ms() + KUBE_LEASE_RETRY_MS;
    return l->state;
}

int kube_lease_release(struct kube_lease *l, struct err *e)
{
    _cleanup_kube_ struct kube *k = NULL;
    int r;

    if (l->state != KUBE_LEASE_HELD)
        return 0;
    l->state = KUBE_LEASE_LOST; /* whatever comes: nothing serves any more */
    r = lease_open(l, RELEASE_MS, &k, e);
    if (r == 0)
        r = lease_write(l, k, false, "", e);
    if (r == -ERR_ABORTED) { /* an answer was lost, or somebody has annotated it */
        r = lease_read(l, k, e);
        if (r == 0 && str_eq(holder_of(l->seen), l->holder))
            r = lease_write(l, k, false, "", e);
    }
    return r == -ERR_NOT_FOUND ? 0 : r;
}
