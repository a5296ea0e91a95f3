/* ops: routes for operators: health, readiness, metrics. */
#include <inttypes.h>
#include <stdio.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "proc/registry.h"
#include "api/service.h"
#include "api/rpc.h"
#include "api/files/files.h"
#include "api/handlers.h"
#include "http/respond.h"
#include "http/server.h"
#include "api/stream.h"
#include "system/hold.h"
#include "system/lease.h"
#include "system/metrics.h"

/* Needs no token and is empty; the generation tells a client that the box was restored. */
static int health_finish(struct request *q, struct err *e)
{
    struct reply *response = reply_new_empty();
    char generation[24];

    if (!response)
        return err_oom(e);
    (void)snprintf(generation, sizeof(generation), "%" PRIu64,
                   (uint64_t)request_agent(q)->generation);
    reply_add_header(response, "Bellhop-Generation", generation);
    return respond_queue(q, HTTP_OK, response, e);
}

const struct request_ops health_ops = {.finish = health_finish};

static int metrics_finish(struct request *q, struct err *e)
{
    _cleanup_buf_ struct buf text;
    struct registry_counts counts = {0};
    struct metrics_now now = {
        .connections = server_n_conns(q->server),
        .relays = server_n_relays(q->server),
        .uptime_ms = clock_mono_ms() - request_agent(q)->started_mono_ms,
        .holds = holds_count(request_agent(q)->holds),
        .generation = request_agent(q)->generation,
        .lease_ms = request_agent(q)->lease ? lease_left_ms(request_agent(q)->lease) : LEASE_NONE,
    };
    struct metrics_named ended[N_REASONS] = {0};
    size_t len;
    int r;

    buf_init(&text, METRICS_TEXT_MAX);
    registry_count(request_agent(q)->registry, &counts);
    now.commands_running = (unsigned)counts.running;
    now.commands_kept = (unsigned)counts.kept;
    now.commands_started = counts.started_total;
    now.commands_failed = counts.failed_total;
    for (size_t i = REASON_NONE + 1; i < N_REASONS; i++)
        ended[i - 1] =
            (struct metrics_named){proc_reason_name((enum proc_reason)i), counts.ended_total[i]};
    now.commands_ended = ended;
    now.stdout_bytes = counts.stdout_bytes_total;
    now.stderr_bytes = counts.stderr_bytes_total;
    now.output_bytes_kept = counts.journal_bytes;
    now.output_bytes_dropped = counts.dropped_bytes_total;
    pool_counts(request_agent(q)->pool, &now.pool_busy, &now.pool_waiting);
    r = metrics_text(&now, &text, e);
    if (r < 0)
        return r;
    len = text.len;
    return respond_text_take(q, HTTP_OK, "text/plain; version=0.0.4; charset=utf-8",
                             buf_take(&text), len, e);
}

const struct request_ops metrics_ops = {.finish = metrics_finish};

/* /v1/ready is System.Ready as a probe: 503 unless all that is required works. */
static int ready_begin(struct request *q, struct err *e)
{
    static const char *const known[] = {"fresh", NULL};
    _cleanup_json_ json_t *params = NULL;
    struct rpc_call call = {.agent = request_agent(q)};
    struct source *source;
    bool fresh = false;
    int r;

    r = files_check_query(q, known, e);
    if (r < 0)
        return r;
    r = request_query_bool(q, "fresh", &fresh, e);
    if (r < 0)
        return r;
    call.params = params = json_pack("{s:b}", "fresh", (int)fresh);
    if (!params)
        return err_oom(e);
    r = rpc_system_ready(&call, &source, e);
    if (r < 0)
        return r;
    source_set_waker(source, stream_wake_request, q);
    q->state = source;
    return 0;
}

static int ready_finish(struct request *q, struct err *e)
{
    _cleanup_json_ json_t *msg = NULL;
    int r;

    r = stream_pull(q, q->state, &msg, e);
    if (r == SOURCE_WAIT)
        return 0;
    if (r != SOURCE_MESSAGE)
        return r < 0 ? r : err_set(e, ERR_INTERNAL, "no answer");
    return respond_json(
        q, json_is_true(json_object_get(msg, "ready")) ? HTTP_OK : HTTP_SERVICE_UNAVAILABLE, msg,
        e);
}

static void ready_done(struct request *q)
{
    struct source *source = q->state;

    if (source)
        source->ops->free(source);
}

const struct request_ops ready_ops = {
    .begin = ready_begin, .finish = ready_finish, .done = ready_done};
