#include "daemon/metrics.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "daemon/daemon.h"
#include "daemon/guests.h"
#include "daemon/job.h"
#include "daemon/routes.h"
#include "daemon/service.h"
#include "http/request.h"
#include "http/server.h"
#include "lib/box/box.h"
#include "lib/box/quota.h"
#include "lib/box/store_access.h"

#define TEXT_MAX (4u << 20)
#define GROUPS_MAX 4096 /* pairs of a state and an owner */
#define BEGUN_MAX 256   /* boxes that are starting or resuming now */

/* A step of a box that takes time: from the state that begins it to "running". */
struct begun {
    char box_id[BOX_ID_BYTES];
    bool is_resume;
    int64_t time_ms;
};

struct metrics {
    _Atomic uint64_t requests[6]; /* by the first digit of the status; 0: cut off */
    _Atomic uint64_t gateway_in, gateway_out, gateway_requests, gateway_errors;
    _Atomic uint64_t webhooks_taken, webhooks_failed;
    _Atomic int followers;
    pthread_mutex_t lock;
    /* guarded by lock: */
    struct begun begun[BEGUN_MAX]; /* a ring */
    size_t next;
    uint64_t events, creations, resumes, destroyed, errors;
    int64_t creations_ms, resumes_ms;
};

int metrics_new(struct metrics **ret, struct err *e)
{
    struct metrics *m = calloc(1, sizeof(*m));

    if (!m)
        return err_oom(e);
    (void)pthread_mutex_init(&m->lock, NULL);
    *ret = m;
    return 0;
}

struct metrics *metrics_free(struct metrics *m)
{
    if (m)
        (void)pthread_mutex_destroy(&m->lock);
    free(m);
    return NULL;
}

/* ---- counting ---- */

/* With the lock. */
static void begin_step(struct metrics *m, const struct bh_event *event, bool is_resume)
{
    struct begun *b = &m->begun[m->next++ % BEGUN_MAX];

    *b = (struct begun){.is_resume = is_resume, .time_ms = event->time_ms};
    (void)snprintf(b->box_id, sizeof(b->box_id), "%s", event->box_id);
}

static void end_step(struct metrics *m, const struct bh_event *event)
{
    for (size_t i = 0; i < BEGUN_MAX; i++) {
        struct begun *b = &m->begun[i];

        if (!b->time_ms || !str_eq(b->box_id, event->box_id))
            continue;
        *(b->is_resume ? &m->resumes : &m->creations) += 1;
        *(b->is_resume ? &m->resumes_ms : &m->creations_ms) += event->time_ms - b->time_ms;
        *b = (struct begun){0};
    }
}

void metrics_count_event(struct metrics *m, const struct bh_event *event)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&m->lock);

    m->events++;
    if (!str_eq(event->kind, "state"))
        return;
    if (event->before == BH_STATE_UNKNOWN && event->after == BH_STATE_REQUESTED)
        begin_step(m, event, false);
    else if (event->after == BH_STATE_RESUMING)
        begin_step(m, event, true);
    else if (event->after == BH_STATE_RUNNING)
        end_step(m, event);
    m->destroyed += event->after == BH_STATE_DESTROYED;
    m->errors += event->after == BH_STATE_ERROR;
}

void metrics_count_request(struct metrics *m, const struct request *q)
{
    const struct api_route *row = q->route ? request_row(q) : NULL;
    int digit = q->status / 100;

    m->requests[digit >= 1 && digit <= 5 ? digit : 0]++;
    if (!row || !row->guest_path)
        return;
    m->gateway_requests++;
    m->gateway_in += q->bytes_in;
    m->gateway_out += q->bytes_out;
    m->gateway_errors += q->status >= 500 || q->status == 0;
}

void metrics_count_relayed(struct metrics *m, uint64_t bytes_in, uint64_t bytes_out)
{
    m->gateway_in += bytes_in;
    m->gateway_out += bytes_out;
}

void metrics_count_followers(struct metrics *m, int change)
{
    m->followers += change;
}

void metrics_count_webhook(struct metrics *m, bool is_taken)
{
    *(is_taken ? &m->webhooks_taken : &m->webhooks_failed) += 1;
}

/* ---- the answer ---- */

struct box_group {
    enum bh_state state;
    char owner[ACCESS_NAME_BYTES];
    unsigned n;
};

struct box_groups {
    struct box_group *v;
    size_t n;
};

/* Owners beyond the bound are counted as one without a name. */
static int count_box_group(void *arg, struct bh_box *box)
{
    struct box_groups *g = arg;
    const char *owner = quota_owner(&box->spec);
    size_t i = 0;

    while (i < g->n && (g->v[i].state != box->row.state || !str_eq(g->v[i].owner, owner)))
        i++;
    if (i == g->n && g->n < GROUPS_MAX) {
        g->v[g->n].state = box->row.state;
        if (access_check_name("owner", owner, NULL) == 0) /* a label may be any text */
            (void)snprintf(g->v[g->n].owner, sizeof(g->v[g->n].owner), "%s", owner);
        g->n++;
    }
    g->v[i < g->n ? i : g->n - 1].n++;
    return 0;
}

static int add_box_groups(struct job *j, struct buf *out, struct err *e)
{
    struct box_groups g = {.v = calloc(GROUPS_MAX, sizeof(*g.v))};
    struct bh_error error = {0};
    int r = g.v ? job_fail(e, bh_list(j->ctx, count_box_group, &g, &error), &error) : err_oom(e);

    if (r == 0)
        r = buf_adds(
            out, "# HELP bellhop_boxes Boxes by state and owner.\n# TYPE bellhop_boxes gauge\n", e);
    for (size_t i = 0; r == 0 && i < g.n; i++)
        r = buf_addf(out, e, "bellhop_boxes{state=\"%s\",owner=\"%s\"} %u\n",
                     bh_state_name(g.v[i].state), g.v[i].owner, g.v[i].n);
    free(g.v);
    return r;
}

struct metric_row {
    const char *name, *type, *help;
    double value;
};

static int add_metric_rows(struct buf *out, const struct metric_row *rows, size_t n, struct err *e)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < n; i++)
        r = buf_addf(out, e, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", rows[i].name, rows[i].help,
                     rows[i].name, rows[i].type, rows[i].name, rows[i].value);
    return r;
}

/* A duration as Prometheus has summaries without quantiles: its sum and its count. */
static int add_duration(struct buf *out, const char *name, const char *help, int64_t sum_ms,
                        uint64_t n, struct err *e)
{
    return buf_addf(out, e, "# HELP %s %s\n# TYPE %s summary\n%s_sum %.15g\n%s_count %" PRIu64 "\n",
                    name, help, name, name, (double)sum_ms / 1000, name, n);
}

static int add_event_metrics(struct metrics *m, struct buf *out, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&m->lock);
    const struct metric_row rows[] = {
        {"bellhop_events_total", "counter", "Events of boxes since the daemon started.",
         (double)m->events},
        {"bellhop_boxes_destroyed_total", "counter", "Boxes that were destroyed.",
         (double)m->destroyed},
        {"bellhop_box_errors_total", "counter", "Changes of a box to the state error.",
         (double)m->errors},
    };
    int r = add_metric_rows(out, rows, N_ELEMENTS(rows), e);

    if (r == 0)
        r = add_duration(out, "bellhop_creation_seconds",
                         "From the request for a box until it ran.", m->creations_ms, m->creations,
                         e);
    return r < 0 ? r
                 : add_duration(out, "bellhop_resume_seconds", "Until a paused box ran again.",
                                m->resumes_ms, m->resumes, e);
}

static int add_traffic(const struct daemon *d, struct buf *out, struct err *e)
{
    const struct metrics *m = d->metrics;
    const struct metric_row rows[] = {
        {"bellhop_event_streams", "gauge", "Clients that follow events.", m->followers},
        {"bellhop_connections", "gauge", "Open connections.", server_n_conns(d->server)},
        {"bellhop_gateway_requests_total", "counter", "Requests that were passed to boxes.",
         (double)m->gateway_requests},
        {"bellhop_gateway_errors_total", "counter",
         "Those that ended with a status from 500, or without one.", (double)m->gateway_errors},
        {"bellhop_gateway_in_bytes_total", "counter", "Bytes from clients to boxes.",
         (double)m->gateway_in},
        {"bellhop_gateway_out_bytes_total", "counter", "Bytes from boxes to clients.",
         (double)m->gateway_out},
        {"bellhop_webhook_deliveries_total", "counter", "Events that a webhook has taken.",
         (double)m->webhooks_taken},
        {"bellhop_webhook_failures_total", "counter", "Attempts that failed.",
         (double)m->webhooks_failed},
        {"bellhop_start_time_seconds", "gauge", "When the daemon was started.",
         (double)d->started_ms / 1000},
    };
    int r = add_metric_rows(out, rows, N_ELEMENTS(rows), e);

    if (r == 0)
        r = buf_adds(out,
                     "# HELP bellhop_http_requests_total Requests by status.\n"
                     "# TYPE bellhop_http_requests_total counter\n",
                     e);
    for (int i = 0; r == 0 && i < 6; i++)
        r = i ? buf_addf(out, e, "bellhop_http_requests_total{status=\"%dxx\"} %" PRIu64 "\n", i,
                         m->requests[i])
              : buf_addf(out, e, "bellhop_http_requests_total{status=\"cut\"} %" PRIu64 "\n",
                         m->requests[i]);
    return r;
}

int answer_prometheus(struct job *j, struct err *e)
{
    _cleanup_buf_ struct buf out = {0};
    int r;

    buf_init(&out, TEXT_MAX);
    r = add_box_groups(j, &out, e);
    if (r == 0)
        r = guests_add_text(j->daemon->guests, j->ctx, &out, e);
    if (r == 0)
        r = add_event_metrics(j->daemon->metrics, &out, e);
    if (r == 0)
        r = add_traffic(j->daemon, &out, e);
    if (r < 0)
        return r;
    j->n_bytes = out.len;
    j->bytes = buf_take(&out);
    j->type = "text/plain; version=0.0.4; charset=utf-8";
    return j->bytes ? 0 : err_oom(e);
}
