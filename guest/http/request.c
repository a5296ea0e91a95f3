#include "http/request.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "event/loop.h"
#include "http/gate.h"
#include "http/relay.h"
#include "http/server.h"
#include "http/respond.h"
#include "http/state.h"
#include "http/route.h"

#define UNSENT_BYTES (128 * 1024)

static struct request *request_new(struct server *s, struct MHD_Connection *mhd, const char *target)
{
    struct request *q = calloc(1, sizeof(*q));

    if (!q)
        return NULL;
    *q = (struct request){
        .server = s,
        .mhd = mhd,
        .conn = server_conn(mhd),
        .target = strdup(target),
        .stage = STAGE_HEADERS,
        .started_ms = clock_mono_ms(),
        .refs = 1,
    };
    (void)pthread_mutex_init(&q->lock, NULL);
    if (!q->target || !q->conn)
        return request_unref(q);
    return q;
}

struct request *request_ref(struct request *q)
{
    q->refs++;
    return q;
}

void *request_owner(const struct request *q)
{
    return q->server->o.owner;
}

struct request *request_unref(struct request *q)
{
    if (!q || --q->refs > 0)
        return NULL;
    if (q->free_state && q->state)
        q->free_state(q->state);
    (void)pthread_mutex_destroy(&q->lock);
    free(q->caller);
    free(q->refusal);
    free(q->target);
    free(q->authority);
    free(q->path);
    free(q->rest);
    for (unsigned i = 0; i < q->n_reply_headers; i++)
        free(q->reply_headers[i].value);
    free(q);
    return NULL;
}

/*
 * Check-and-suspend must be atomic with wake-and-resume, and only a connection with is_parked is resumed:
 * the library takes a resume that precedes the suspend as a cancellation of the next suspend.
 */
bool request_park(struct request *q)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&q->lock);
    bool parked = !q->is_woken && !q->is_gone;

    q->is_woken = false;
    if (parked) {
        MHD_suspend_connection(q->mhd);
        q->is_parked = true;
        server_watch_vanish(q->server, q->conn);
    }
    return parked;
}

/* Called with q->lock held. */
static void request_resume(struct request *q)
{
    q->is_parked = false;
    q->is_woken = false;
    MHD_resume_connection(q->mhd);
}

void request_wake(struct request *q)
{
    struct MHD_Connection *mhd = q->mhd;
    bool is_parked;

    (void)pthread_mutex_lock(&q->lock);
    is_parked = q->is_parked;
    q->is_parked = false;
    q->is_woken = !is_parked;
    (void)pthread_mutex_unlock(&q->lock);
    /*
     * It is suspended, and no other thread resumes it now. So the lock is not needed, and the connection's
     * thread takes it as soon as it runs.
     */
    if (is_parked)
        MHD_resume_connection(mhd);
}

bool request_is_gone(struct request *q)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&q->lock);

    return q->is_gone || q->is_over;
}

/*
 * MHD_CONTENT_READER_END_WITH_ERROR does not do: the library marks the connection as closed, and looks at
 * it again only after an event of its socket, which a reset one never has. A send that fails, as this one
 * must, ends it at once.
 */
ssize_t request_break_off(struct request *q, char *data)
{
    (void)shutdown(q->conn->fd, SHUT_RDWR);
    *data = 0;
    return 1;
}

void request_make_late(struct request *q)
{
    (void)pthread_mutex_lock(&q->lock);
    q->is_late = true;
    (void)pthread_mutex_unlock(&q->lock);
    request_wake(q);
}

bool request_is_late(struct request *q)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&q->lock);

    return q->is_late;
}

void request_vanished(struct request *q)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&q->lock);

    if (q->is_parked && (!q->is_body_held || q->server->stopping)) {
        q->is_gone = true;
        request_resume(q);
    }
}

void request_hold_body(struct request *q, bool on)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&q->lock);

    q->is_body_held = on;
}

int request_charge(struct request *q, size_t len, struct err *e)
{
    if (q->server->body_bytes + len > SERVER_BODY_BUDGET)
        return err_set(e, ERR_EXHAUSTED, "too many large requests at once");
    q->server->body_bytes += len;
    return 0;
}

void request_discharge(struct request *q, size_t len)
{
    q->server->body_bytes -= len;
}

void request_allow_silence(struct request *q, bool on)
{
    (void)MHD_set_connection_option(q->mhd, MHD_CONNECTION_OPTION_TIMEOUT,
                                    on ? 0u : (unsigned)(SERVER_IDLE_MS / 1000));
}

void request_set_silent(struct request *q, bool on)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&q->lock);

    if (!on)
        q->wait_ms = 0;
    else if (!q->wait_ms)
        q->wait_ms = clock_mono_ms();
}

bool request_take_keepalive(struct request *q)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&q->lock);
    bool wants = q->wants_keepalive;

    q->wants_keepalive = false;
    if (wants)
        q->wait_ms = 0;
    return wants;
}

void request_limit_unsent(const struct request *q)
{
    int n = UNSENT_BYTES;

    if (q->conn->is_tcp)
        (void)setsockopt(q->conn->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &n, sizeof(n));
}

void request_widen_socket(int fd, uint64_t len)
{
    int n = REQUEST_LARGE_BYTES;

    if (len > REQUEST_LARGE_BYTES)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &n, sizeof(n));
}

void request_expect_sent(const struct request *q, uint64_t len)
{
    if (!q->conn->is_tcp)
        request_widen_socket(q->conn->fd, len);
}

void request_cut(struct request *q)
{
    bool is_upgraded = false;

    WITH_LOCK (&q->lock) {
        q->is_cut = true;
        is_upgraded = q->is_upgraded && !q->is_over;
        if (q->is_parked) {
            q->is_gone = true;
            request_resume(q);
        } else if (!q->is_over && !q->is_upgraded) {
            (void)shutdown(q->conn->fd, SHUT_RDWR); /* the library sees the end, and closes */
        }
    }
    if (is_upgraded)
        relay_cut(q);
}

void request_revoke(struct request *q)
{
    WITH_LOCK (&q->lock) {
        q->is_revoked = true;
    }
    request_cut(q);
}

bool request_is_cut(struct request *q)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&q->lock);

    return q->is_cut;
}

bool request_is_revoked(struct request *q)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&q->lock);

    return q->is_revoked;
}

/*
 * Called with q->lock held. The descriptor is still that of the connection: the library does not close it
 * while it is suspended, nor before request_on_completed(), which takes the lock.
 * Not every kernel reports a FIN as EPOLLRDHUP (gVisor on a host's socket).
 */
static void sweep_parked(struct request *q, int64_t now_ms)
{
    if (!q->is_body_held && server_has_ended(q->conn->fd)) {
        q->is_gone = true;
        request_resume(q);
    } else if (q->wait_ms && now_ms - q->wait_ms >= (int64_t)q->server->o.keepalive_ms) {
        q->wants_keepalive = true;
        request_resume(q);
    }
}

void request_sweep(struct request *q, int64_t now_ms)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&q->lock);

    if (q->is_parked)
        sweep_parked(q, now_ms);
    else if (!q->is_over && q->discard_until_ms && now_ms >= q->discard_until_ms)
        (void)shutdown(q->conn->fd, SHUT_RDWR); /* the library sees the end, and closes */
    else if (q->body_ms && now_ms - q->body_ms >= REQUEST_STALL_MS)
        refuse_stalled(q, now_ms);
    else if (!q->is_over && !q->is_upgraded && server_peer_has_left(q->conn->fd))
        /* After SHUT_RDWR the library would drop the bytes that it has not passed on yet. */
        (void)shutdown(q->conn->fd, q->is_body_held ? SHUT_RD : SHUT_RDWR);
}

struct request_job {
    struct request *request;
    void (*fn)(struct request *q);
};

static void run_job(void *arg)
{
    struct request_job *job = arg;

    job->fn(job->request);
    request_unref(job->request);
    free(job);
}

int request_run(struct request *q, void (*fn)(struct request *q), struct err *e)
{
    struct request_job *job = malloc(sizeof(*job));
    int r;

    if (!job)
        return err_oom(e);
    *job = (struct request_job){request_ref(q), fn};
    r = pool_run(q->server->o.pool, run_job, job, e);
    if (r < 0) {
        request_unref(q);
        free(job);
    }
    return r;
}

int request_ask(struct request *q, struct ask *a, void (*fn)(struct request *q), struct err *e)
{
    if (!a->is_asked) {
        int r = request_run(q, fn, e);

        if (r < 0)
            return r;
        a->is_asked = true;
    }
    while (!a->is_done)
        if (request_park(q))
            return REQUEST_PARKED;
    if (a->r < 0)
        *e = a->error;
    return a->r;
}

void request_answer(struct request *q, struct ask *a)
{
    a->is_done = true;
    request_wake(q);
}

int request_fd(const struct request *q)
{
    return q->conn->fd;
}

struct header_visit {
    int (*fn)(void *arg, const char *name, const char *value);
    void *arg;
    int r;
};

static enum MHD_Result visit_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                    const char *value)
{
    struct header_visit *v = cls;

    (void)kind;
    v->r = v->fn(v->arg, name, value ? value : "");
    return v->r < 0 ? MHD_NO : MHD_YES;
}

int request_each_header(struct request *q,
                        int (*fn)(void *arg, const char *name, const char *value), void *arg)
{
    struct header_visit v = {.fn = fn, .arg = arg};

    (void)MHD_get_connection_values(q->mhd, MHD_HEADER_KIND, visit_header, &v);
    return v.r;
}

const char *request_header(struct request *q, const char *name)
{
    return MHD_lookup_connection_value(q->mhd, MHD_HEADER_KIND, name);
}

const char *request_host(struct request *q)
{
    return q->authority ? q->authority : request_header(q, "Host");
}

int request_query(struct request *q, const char *name, char **ret, struct err *e)
{
    int r = uri_query_get(q->query, name, ret, e);

    return r < 0 ? err_at(e, r, name) : 0;
}

int request_query_bool(struct request *q, const char *name, bool *ret, struct err *e)
{
    _cleanup_free_ char *v = NULL;
    int r = request_query(q, name, &v, e);

    if (r < 0 || !v)
        return r;
    if (str_eq(v, "1") || str_eq(v, "true") || !*v)
        *ret = true;
    else if (str_eq(v, "0") || str_eq(v, "false"))
        *ret = false;
    else
        return err_field(e, ERR_INVALID, name, "parameter '%s' must be true or false", name);
    return 0;
}

bool request_header_has(struct request *q, const char *name, const char *token)
{
    const char *p = request_header(q, name);
    size_t len = strlen(token);

    while (p && *p) {
        size_t n, used;

        p += strspn(p, " \t");
        n = strcspn(p, ",");
        for (used = n; used && (p[used - 1] == ' ' || p[used - 1] == '\t'); used--)
            ;
        if (used == len && strncasecmp(p, token, len) == 0)
            return true;
        p += n + (p[n] == ',');
    }
    return false;
}

int request_reply_header(struct request *q, const char *name, const char *value, struct err *e)
{
    struct reply_header *h = &q->reply_headers[q->n_reply_headers];

    assert(q->n_reply_headers < REQUEST_REPLY_HEADERS);
    *h = (struct reply_header){name, strdup(value)};
    if (!h->value)
        return err_oom(e);
    q->n_reply_headers++;
    return 0;
}

/* The library calls this with the request line as it was received. */
void *request_on_uri(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    struct server *s = cls;
    struct request *q = request_new(s, mhd, uri);

    if (q)
        server_set_request(s, q->conn, q);
    return q; /* NULL: out of memory, the connection ends in request_on_access() */
}

static void set_body_clock(struct request *q, bool on)
{
    int64_t now_ms = on ? clock_mono_ms() : 0;
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&q->lock);

    q->body_ms = now_ms;
}

static enum MHD_Result on_headers(struct request *q, const char *verb, const char *version)
{
    struct err e = {0};
    int status = 0;
    int r;

    r = q->is_gated ? 0 : gate_check(q, verb, version, &status, &e);
    q->is_gated = true;
    if (r == 0 && q->route->ops->begin)
        r = q->route->ops->begin(q, &e);
    if (r == REQUEST_PARKED)
        return MHD_YES;
    q->stage = STAGE_BODY;
    if (r < 0) {
        enum MHD_Result result = refuse_headers(q, &e, status);

        /* A body that never arrives must not hold the connection, least of all without a token. */
        set_body_clock(q, q->stage == STAGE_DRAIN);
        return result;
    }
    set_body_clock(q, q->declared > 0 && !(q->route->flags & ROUTE_SLOW_BODY));
    return MHD_YES;
}

static int take_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    size_t all = *len;
    int r;

    if (q->bytes_in + all > q->route->max_body_bytes)
        return gate_too_large(q, e);
    if (!q->route->ops->body)
        return err_set(e, ERR_INVALID, "this request takes no body");
    r = q->route->ops->body(q, data, len, e);
    q->bytes_in += all - *len;
    return r;
}

static enum MHD_Result on_body(struct request *q, const char *data, size_t *len)
{
    struct err e = {0};
    int r;

    if (q->stage == STAGE_DRAIN)
        set_body_clock(q, true);
    if (q->stage != STAGE_BODY)
        return refuse_body(q, len);
    set_body_clock(q, !(q->route->flags & ROUTE_SLOW_BODY));
    r = take_body(q, data, len, &e);
    if (*len)
        set_body_clock(q, false); /* the handler is what waits now */
    return r < 0 ? refuse_midway(q, &e, len) : MHD_YES;
}

static enum MHD_Result on_end(struct request *q)
{
    struct err e = {0};
    int r;

    if (q->stage == STAGE_REPLIED)
        return MHD_YES;
    set_body_clock(q, false);
    if (q->stage != STAGE_BODY)
        return refuse_end(q);
    r = q->route->ops->finish(q, &e);
    return r < 0 ? refuse_now(q, &e) : MHD_YES;
}

/*
 * Called with the headers, for each piece of the body, and at the end; and again after each wake.
 * A reply in the first call would end keep-alive, so the first call never replies.
 */
enum MHD_Result request_on_access(void *cls, struct MHD_Connection *mhd, const char *url,
                                  const char *verb, const char *version, const char *data,
                                  size_t *data_len, void **con_cls)
{
    struct request *q = *con_cls;
    bool is_gone;

    (void)cls;
    (void)mhd;
    (void)url;
    if (!q)
        return MHD_NO;
    (void)pthread_mutex_lock(&q->lock);
    is_gone = q->is_gone;
    (void)pthread_mutex_unlock(&q->lock);
    if (is_gone)
        return MHD_NO;
    if (q->stage == STAGE_HEADERS)
        return on_headers(q, verb, version);
    if (*data_len)
        return on_body(q, data, data_len);
    return on_end(q);
}

void request_on_completed(void *cls, struct MHD_Connection *mhd, void **con_cls,
                          enum MHD_RequestTerminationCode why)
{
    struct request *q = *con_cls;

    (void)mhd;
    (void)why;
    if (!q)
        return;
    *con_cls = NULL;
    server_set_request(cls, q->conn, NULL);
    (void)pthread_mutex_lock(&q->lock);
    q->is_over = true;
    q->is_parked = false;
    q->body_ms = 0;
    (void)pthread_mutex_unlock(&q->lock);
    if (q->route && q->route->ops->done)
        q->route->ops->done(q);
    if (q->server->o.service->done)
        q->server->o.service->done(q, clock_mono_ms() - q->started_ms);
    request_unref(q);
}

/* ---- deadlines -------------------------------------------------------------------------------- */

/* Made on the request's thread, from then on the loop's. */
struct deadline {
    struct request *request; /* a reference, until the timer fires */
    struct loop *loop;
    struct loop_timer *timer;
    void (*due)(struct request *q);
    int64_t at_mono_ms;
};

static void on_time(struct loop *l, void *arg)
{
    struct deadline *d = arg;

    (void)l;
    d->timer = NULL;
    d->due(d->request);
    d->request = request_unref(d->request);
}

static void deadline_start(struct loop *l, void *arg)
{
    struct deadline *d = arg;

    if (loop_timer_add(l, d->at_mono_ms, on_time, d, &d->timer, NULL) < 0)
        d->request = request_unref(d->request);
}

/* It is posted after deadline_start(), and so runs after it. */
static void deadline_stop(struct loop *l, void *arg)
{
    struct deadline *d = arg;

    (void)l;
    loop_timer_del(d->timer);
    request_unref(d->request);
    free(d);
}

int deadline_new(struct request *q, int64_t in_ms, void (*due)(struct request *q),
                 struct deadline **ret, struct err *e)
{
    struct deadline *d = calloc(1, sizeof(*d));
    int r;

    if (!d)
        return err_oom(e);
    *d = (struct deadline){.request = request_ref(q),
                           .loop = q->server->o.loop,
                           .due = due,
                           .at_mono_ms = clock_mono_ms() + in_ms};
    r = loop_post(d->loop, deadline_start, d, e);
    if (r < 0) {
        request_unref(q);
        free(d);
        return r;
    }
    *ret = d;
    return 0;
}

void deadline_drop(struct deadline *d)
{
    if (d)
        (void)loop_post(d->loop, deadline_stop, d,
                        NULL); /* without memory, it lives until it fires */
}
