#include "lib/provider/kubernetes/kube_retry.h"

#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "lib/util/socket.h"

#define RETRY_MS 250 /* the first pause */
#define RETRY_MOST_MS 4000
#define RETRY_INTERNAL_MOST 3 /* repetitions after a 500 that does not say that it passes */
#define RETRY_AFTER_MOST_S 3600

static int retry_after_ms(const struct http_response *res)
{
    char value[32];
    uint64_t seconds = 0;

    if (!http_header(res, "Retry-After", value, sizeof(value)) ||
        str_parse_u64(value, 0, RETRY_AFTER_MOST_S, &seconds, NULL) < 0)
        return 0;
    return (int)seconds * 1000;
}

void kube_retry_answer(struct kube_retry *t, const struct http_response *res)
{
    t->status = res ? res->status : 0;
    t->after_ms = res ? retry_after_ms(res) : 0;
    t->is_passing = t->status >= 500 && t->after_ms > 0;
}

/*
 * A Status whose reason or message says that the call may succeed the next time, whatever its code: etcd is choosing a
 * leader, or is late. "ServerTimeout" has the code 500.
 */
void kube_retry_read(struct kube_retry *t, const json_t *status)
{
    static const char *const messages[] = {"etcdserver: leader changed", "etcdserver: no leader",
                                           "etcdserver: request timed out",
                                           "etcdserver: too many requests"};
    json_int_t seconds = json_integer_value(
        json_object_get(json_object_get(status, "details"), "retryAfterSeconds"));

    if (str_eq(kube_text(status, "reason"), "ServerTimeout") || seconds > 0)
        t->is_passing = true;
    for (size_t i = 0; i < N_ELEMENTS(messages); i++)
        if (strstr(kube_text(status, "message"), messages[i]))
            t->is_passing = true;
    if (!t->after_ms && seconds > 0 && seconds <= RETRY_AFTER_MOST_S)
        t->after_ms = (int)seconds * 1000; /* a proxy may drop the header */
}

/*
 * A call whose own time has ended is not repeated. A connection that is cut in the handshake looks like one that is
 * refused. A 500 may be for ever, as of a webhook that is gone: unless it says that it passes, the call is repeated only
 * RETRY_INTERNAL_MOST times.
 */
static bool is_transient(const struct kube *k, const struct kube_retry *t, int r)
{
    if (t->is_passing)
        return true;
    switch (t->status) {
    case 0:
        return (r == -ERR_UNAVAILABLE || r == -ERR_DATA_LOSS || r == -ERR_UNAUTHENTICATED ||
                r == -ERR_DEADLINE) &&
               clock_until_ms(kube_deadline(k)) > 0;
    case 500:
        return t->n_internal <= RETRY_INTERNAL_MOST;
    case 429:
    case 502:
    case 503:
    case 504:
        return true;
    default:
        return false;
    }
}

int kube_retry_pause(const struct kube *k, struct kube_retry *t, int r, struct err *e)
{
    int64_t left;
    int ms;

    t->n_internal = t->status == 500 && !t->is_passing ? t->n_internal + 1 : 0;
    if (r >= 0 || !kube_patience(k) || !is_transient(k, t, r))
        return 0;
    if (!t->until_mono_ms) {
        t->until_mono_ms = clock_mono_ms() + kube_patience(k);
        t->pause_ms = RETRY_MS;
    }
    left = clock_until_ms(t->until_mono_ms);
    ms = t->after_ms > t->pause_ms ? t->after_ms : t->pause_ms;
    ms = ms < left ? ms : (int)left;
    if (left <= 0 || clock_until_ms(kube_deadline(k)) <= ms)
        return 0;
    t->pause_ms = t->pause_ms * 2 < RETRY_MOST_MS ? t->pause_ms * 2 : RETRY_MOST_MS;
    return socket_wait_canceled(kube_cancel_fd(k), ms) ? err_set(e, ERR_CANCELED, "canceled") : 1;
}
