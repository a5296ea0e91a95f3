/* System.Info, Lease, Env and Resync, and the routes for operators: health, metrics. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "api/exec/exec_json.h"
#include "api/files/files.h"
#include "api/dialect.h"
#include "api/rpc.h"
#include "api/stream.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "fs/root.h"
#include "http/respond.h"
#include "http/server.h"
#include "proc/registry.h"
#include "system/hold.h"
#include "system/info.h"
#include "system/init.h"
#include "system/metrics.h"

static const struct jx_field no_fields[] = {{0}};

/* Features that a client may rely on, by name. The list only grows. */
static json_t *new_features(const struct agent *a)
{
    static const char *const always[] = {"exec",   "pty",     "files", "archive", "glob",
                                         "grep",   "ndjson",  "sse",   "connect", "proxy",
                                         "tunnel", "metrics", "ready", "ports",   "activity",
                                         "hold",   "resync",  "env",   NULL};
    json_t *list = json_array();

    for (size_t i = 0; list && always[i]; i++)
        (void)json_array_append_new(list, json_string(always[i]));
    if (list && a->lease)
        (void)json_array_append_new(list, json_string("lease"));
    return list;
}

int rpc_system_info(const struct rpc_call *call, json_t **ret, struct err *e)
{
    const struct agent *a = call->agent;
    char started[CLOCK_TEXT_BYTES];
    char libraries[256];
    int64_t uptime_ms = clock_mono_ms() - a->started_mono_ms;
    struct info i;
    json_t *v;
    int r;

    r = jx_decode(call->params, no_fields, NULL, e);
    if (r < 0)
        return r;
    info_get(&i);
    clock_text(clock_real_ms() - uptime_ms, started);
    v = json_pack("{s:s, s:s, s:i, s:o, s:i, s:i, s:I, s:s, s:I}", "version", i.version, "commit",
                  i.commit, "protocol", WIRE_PROTOCOL, "features", new_features(a), "pid",
                  (int)getpid(), "uid", (int)geteuid(), "uptime_ms", (json_int_t)uptime_ms,
                  "started_at", started, "idle_ms", (json_int_t)metrics_idle_ms());
    if (!v)
        return err_oom(e);
    (void)json_object_set_new(v, "user",
                              a->default_user ? json_string(a->default_user) : json_null());
    (void)json_object_set_new(v, "workdir", a->workdir ? jx_new_path(a->workdir) : json_null());
    (void)json_object_set_new(v, "root", jx_new_path(fs_root_path(a->root)));
    (void)json_object_set_new(v, "read_only", json_boolean(a->is_read_only));
    (void)json_object_set_new(v, "init", json_boolean(a->lease != NULL));
    (void)json_object_set_new(v, "generation", json_integer((json_int_t)a->generation));
    (void)json_object_set_new(v, "jit", json_boolean(i.has_jit));
    (void)json_object_set_new(v, "cgroup", json_string(i.cgroup));
    (void)json_object_set_new(
        v, "libraries", json_string(info_libraries(a->http_library, libraries, sizeof(libraries))));
    (void)json_object_set_new(v, "platform",
                              json_pack("{s:s, s:s, s:s, s:s, s:i, s:I}", "os", i.kernel.sysname,
                                        "kernel", i.kernel.release, "arch", i.kernel.machine,
                                        "hostname", i.kernel.nodename, "cpus", (int)i.cpus,
                                        "memory_bytes", (json_int_t)i.memory_bytes));
    *ret = v;
    return 0;
}

struct lease_params {
    json_t *expires_in_ms;
    bool force;
};

static const struct jx_field lease_fields[] = {
    JX(struct lease_params, expires_in_ms, jx_any, 0),
    JX(struct lease_params, force, jx_bool, 0),
    {0},
};

static int set_lease(struct lease *l, const struct lease_params *p, struct err *e)
{
    int64_t ms = LEASE_NONE;

    if (!json_is_null(p->expires_in_ms)) {
        if (!json_is_integer(p->expires_in_ms) || json_integer_value(p->expires_in_ms) < 0)
            return err_field(e, ERR_INVALID, "expires_in_ms",
                             "field 'expires_in_ms' must be a whole number that is not negative");
        ms = json_integer_value(p->expires_in_ms);
    }
    if (!l)
        return err_field(e, ERR_PRECONDITION, "expires_in_ms",
                         "the agent is not the box's init: it can't end the box");
    return lease_set(l, ms, p->force, e);
}

/* {} reports; {"expires_in_ms":N} extends (null: no end); with "force" it also shortens. */
int rpc_system_lease(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct lease *l = call->agent->lease;
    struct lease_params p = {0};
    int64_t left_ms;
    int r;

    r = jx_decode(call->params, lease_fields, &p, e);
    if (r == 0 && p.expires_in_ms)
        r = set_lease(l, &p, e);
    if (r < 0)
        return r;
    left_ms = l ? lease_left_ms(l) : LEASE_NONE;
    return rpc_reply_take(json_pack("{s:o, s:I}", "expires_in_ms",
                                    left_ms == LEASE_NONE ? json_null() : json_integer(left_ms),
                                    "idle_ms", (json_int_t)metrics_idle_ms()),
                          ret, e);
}

/* System.Env: the environment of all later commands. */

struct env_params {
    char **set;
    char **unset;
    bool replace;
};

static const struct jx_field env_fields[] = {
    JX(struct env_params, set, exec_jx_env, 0),
    JX(struct env_params, unset, jx_strv, 0),
    JX(struct env_params, replace, jx_bool, 0),
    {0},
};

static int new_env(struct registry *reg, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *v = json_object();
    _cleanup_strv_ char **env = NULL;
    int r;

    r = v ? environ_copy(reg, &env, e) : err_oom(e);
    for (char **at = env; r == 0 && at && *at; at++) {
        char *value = *at + strcspn(*at, "=");

        *value++ = '\0';
        if (json_object_set_new(v, *at, jx_new_path(value)) < 0)
            r = err_oom(e);
    }
    return r < 0 ? r : rpc_reply_take(json_pack("{s:O}", "env", v), ret, e);
}

/* {} reports; {"set":{"A":"b"},"unset":["C"],"replace":true} changes. */
int rpc_system_env(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct env_params p = {0};
    int r;

    r = jx_decode(call->params, env_fields, &p, e);
    if (r == 0 && (p.set || p.unset || p.replace)) {
        r = environ_change(call->agent->registry, p.replace, p.unset, p.set, e);
        if (r < 0)
            r = err_at(e, r, "set");
    }
    if (r == 0)
        r = new_env(call->agent->registry, ret, e);
    strv_free(p.set);
    strv_free(p.unset);
    return r;
}

/* System.Resync: clock, random numbers and generation after a restore or a copy. */

#define GENERATION_MAX ((uint64_t)1 << 53) /* every JSON parser keeps such integers exact */
#define NOW_MAX_MS (253402300799000LL)     /* the end of the year 9999 */

struct resync_params {
    int64_t now_ms;
    int64_t tolerance_ms;
    struct jx_bytes entropy;
    uint64_t generation;
};

static const struct jx_field resync_fields[] = {
    JX(struct resync_params, now_ms, jx_i64, 0),
    JX(struct resync_params, tolerance_ms, jx_i64, 0),
    JX(struct resync_params, entropy, jx_bytes, 0),
    JX(struct resync_params, generation, jx_u64, 0),
    {0},
};

static int check_request(const struct resync_params *p, uint64_t generation, struct err *e)
{
    if (p->now_ms < 0 || p->now_ms > NOW_MAX_MS)
        return err_field(e, ERR_INVALID, "now_ms",
                         "field 'now_ms' must be milliseconds since 1970, up to the year 9999");
    if (p->tolerance_ms < -1)
        return err_field(e, ERR_INVALID, "tolerance_ms",
                         "field 'tolerance_ms' must be at least -1");
    if (p->entropy.data &&
        (p->entropy.len < RESYNC_ENTROPY_MIN || p->entropy.len > RESYNC_ENTROPY_MAX))
        return err_field(e, ERR_INVALID, "entropy", "field 'entropy' must have from %d to %d bytes",
                         RESYNC_ENTROPY_MIN, RESYNC_ENTROPY_MAX);
    if (p->generation && (p->generation <= generation || p->generation > GENERATION_MAX))
        return err_field(e, ERR_PRECONDITION, "generation",
                         "the generation is %llu already: it only grows",
                         (unsigned long long)generation);
    return 0;
}

static int run_resync(const struct resync_params *p, struct agent *a, json_t **ret, struct err *e)
{
    struct resync_clock clock = {0};
    struct resync_entropy random = {0};
    uint64_t before = a->generation;
    unsigned closed = 0;

    if (p->now_ms)
        resync_clock(p->now_ms, p->tolerance_ms, &clock);
    if (p->entropy.data)
        resync_entropy(p->entropy.data, p->entropy.len, &random);
    a->generation = p->generation ? p->generation : before + 1;
    if (a->server)
        closed = server_drop_idle(a->server);
    *ret = json_pack("{s:{s:s, s:o, s:I}, s:s, s:s, s:I, s:I, s:I}", "clock", "result",
                     resync_name(clock.result), "offset_ms",
                     p->now_ms ? json_integer(clock.offset_ms) : json_null(), "now_ms",
                     (json_int_t)clock_real_ms(), "entropy", resync_name(random.entropy), "reseed",
                     resync_name(random.reseed), "generation", (json_int_t)a->generation,
                     "previous_generation", (json_int_t)before, "connections_closed",
                     (json_int_t)closed);
    return *ret ? 0 : err_oom(e);
}

/* {"now_ms":..., "entropy":{"b64":"..."}, "generation":7}; every field may be absent. */
int rpc_system_resync(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct resync_params p = {.tolerance_ms = RESYNC_TOLERANCE_MS};
    int r;

    r = jx_decode(call->params, resync_fields, &p, e);
    if (r == 0)
        r = check_request(&p, call->agent->generation, e);
    if (r == 0)
        r = run_resync(&p, call->agent, ret, e);
    if (p.entropy.data)
        explicit_bzero(p.entropy.data, p.entropy.len);
    jx_bytes_done(&p.entropy);
    return r;
}

/* ---- health, metrics ---- */

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
