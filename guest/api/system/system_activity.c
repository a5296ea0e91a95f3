/* System.Activity, Hold and Release: facts about the use of the box, and a summary of them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "agent.h"
#include "api/rpc.h"
#include "system/activity.h"
#include "system/hold.h"
#include "system/init.h"

/* ---- holds ---- */

static json_t *new_left(int64_t until_mono_ms)
{
    return until_mono_ms ? json_integer(until_mono_ms - clock_mono_ms()) : json_null();
}

static json_t *new_hold(const struct hold *h)
{
    json_t *v =
        json_pack("{s:s, s:s, s:o, s:I, s:b}", "id", h->id, "reason", h->reason, "expires_in_ms",
                  new_left(h->until_mono_ms), "age_ms",
                  (json_int_t)(clock_mono_ms() - h->since_mono_ms), "local", (int)h->is_local);

    if (v && h->is_local) {
        (void)json_object_set_new(v, "uid", json_integer((json_int_t)h->uid));
        (void)json_object_set_new(v, "pid", json_integer(h->pid));
    }
    return v;
}

static int new_holds(struct holds *all, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *list = json_array();
    _cleanup_free_ struct hold *holds = NULL;
    size_t n = 0;
    int r;

    r = list ? holds_list(all, &holds, &n, e) : err_oom(e);
    for (size_t i = 0; i < n && r == 0; i++)
        if (json_array_append_new(list, new_hold(&holds[i])) < 0)
            r = err_oom(e);
    if (r == 0)
        *ret = json_incref(list);
    return r;
}

struct hold_params {
    const char *id;
    const char *reason;
    uint64_t ttl_ms;
};

static const struct jx_field hold_fields[] = {
    JX(struct hold_params, id, jx_str, 0),
    JX(struct hold_params, reason, jx_str, 0),
    JX_RANGE("ttl_ms", struct hold_params, ttl_ms, jx_u64, 0, 1, HOLD_MAX_MS),
    {0},
};

static int check_hold(const struct hold_params *p, struct err *e)
{
    if (strlen(p->reason) >= HOLD_REASON_BYTES)
        return err_field(e, ERR_INVALID, "reason", "field 'reason' has more than %d bytes",
                         HOLD_REASON_BYTES - 1);
    return p->id ? proc_spec_check_id(p->id, e) : 0;
}

/* {"id":"build-7", "reason":"npm install", "ttl_ms":600000}; reusing an id renews that hold. */
int rpc_system_hold(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct hold_params p = {.reason = "", .ttl_ms = HOLD_DEFAULT_MS};
    struct hold h = {0};
    int r;

    r = jx_decode(call->params, hold_fields, &p, e);
    if (r == 0)
        r = check_hold(&p, e);
    if (r < 0)
        return r;
    (void)snprintf(h.id, sizeof(h.id), "%s", p.id ? p.id : "");
    (void)snprintf(h.reason, sizeof(h.reason), "%s", p.reason);
    h.until_mono_ms = clock_mono_ms() + (int64_t)p.ttl_ms;
    r = holds_take(call->agent->holds, &h, e);
    return r < 0 ? r : rpc_reply_take(new_hold(&h), ret, e);
}

static const struct jx_field release_fields[] = {{"id", jx_str, 0, JX_REQUIRED}, {0}};

int rpc_system_release(const struct rpc_call *call, json_t **ret, struct err *e)
{
    const char *id = NULL;
    int r = jx_decode(call->params, release_fields, &id, e);

    if (r == 0)
        r = holds_release(call->agent->holds, id, (uid_t)-1, e);
    return r < 0 ? r : rpc_reply_take(json_pack("{s:s}", "id", id), ret, e);
}

/* ---- Activity ---- */

static bool is_ignored(const json_t *ignore, const char *name)
{
    json_t *v;
    size_t i;

    json_array_foreach (ignore, i, v)
        if (str_eq(json_string_value(v), name))
            return true;
    return false;
}

static int check_ignore(json_t *ignore, struct err *e)
{
    json_t *v;
    size_t i;

    json_array_foreach (ignore, i, v) {
        unsigned known = 0;

        while (known < N_BUSY_REASONS &&
               !str_eq(json_string_value(v), activity_reason_name((enum activity_reason)known)))
            known++;
        if (known == N_BUSY_REASONS)
            return err_field(e, ERR_INVALID, "ignore",
                             "field 'ignore' lists calls, commands, connections, cpu or holds");
    }
    return 0;
}

/* How long ago; null: never. */
static json_t *new_ago(int64_t mono_ms)
{
    return mono_ms ? json_integer(clock_mono_ms() - mono_ms) : json_null();
}

static json_t *new_commands(const struct activity_facts *f)
{
    json_t *ids = json_array();
    json_t *list = json_array();

    for (size_t i = 0; i < f->n_commands; i++) {
        const struct activity_command *c = &f->commands[i];

        (void)json_array_append_new(ids, json_string(c->id));
        (void)json_array_append_new(
            list, json_pack("{s:s, s:o, s:b, s:b, s:i, s:I, s:I}", "id", c->id, "name",
                            jx_new_path(c->name), "pty", (int)c->has_pty, "listens",
                            (int)c->is_server, "processes", (int)c->n_processes, "cpu_ms",
                            (json_int_t)c->cpu_ms, "output_bytes", (json_int_t)c->output_bytes));
    }
    return json_pack("{s:I, s:o, s:o, s:o, s:o}", "running", (json_int_t)f->counts.running, "ids",
                     ids, "list", list, "last_output_ms_ago",
                     new_ago(f->counts.last_output_mono_ms), "last_end_ms_ago",
                     new_ago(f->counts.last_end_mono_ms));
}

static json_t *new_connections(const struct activity_facts *f)
{
    json_t *list = json_array();
    uint16_t last = 0;

    for (size_t i = 0; list && i < f->ports.n; i++) {
        const struct port *p = &f->ports.list[i];

        if (p->is_udp || p->is_agent || !p->connections || p->number == last)
            continue;
        last = p->number;
        (void)json_array_append_new(list, json_pack("{s:i, s:I}", "port", (int)p->number,
                                                    "connections", (json_int_t)p->connections));
    }
    return json_pack("{s:I, s:o}", "established", (json_int_t)f->n_connections, "ports", list);
}

static int new_activity(const struct agent *a, const struct activity_facts *f, json_t *ignore,
                        json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *reasons = json_array();
    _cleanup_json_ json_t *holds = NULL;
    int64_t left_ms = a->lease ? lease_left_ms(a->lease) : LEASE_NONE;
    bool busy;
    int r;

    r = reasons ? new_holds(a->holds, &holds, e) : err_oom(e);
    if (r < 0)
        return r;
    for (unsigned i = 0; i < N_BUSY_REASONS; i++) {
        const char *name = activity_reason_name((enum activity_reason)i);

        if (activity_is_busy(f, (enum activity_reason)i) && !is_ignored(ignore, name))
            (void)json_array_append_new(reasons, json_string(name));
    }
    busy = json_array_size(reasons) > 0;
    *ret = json_pack(
        "{s:b, s:O, s:I, s:{s:I, s:I}, s:o, s:{s:I, s:o, s:o}, s:{s:I}, s:o, s:O, s:o, "
        "s:I}",
        "busy", (int)busy, "reasons", reasons, "idle_ms",
        (json_int_t)(busy ? 0 : activity_idle_ms(f)), "calls", "open", (json_int_t)f->calls.open,
        "last_ms_ago", (json_int_t)(clock_mono_ms() - f->calls.last_mono_ms), "commands",
        new_commands(f), "cpu", "total_ms", (json_int_t)f->cpu.total_ms, "recent_ms",
        f->cpu.window_ms ? json_integer(f->cpu.recent_ms) : json_null(), "window_ms",
        f->cpu.window_ms ? json_integer(f->cpu.window_ms) : json_null(), "memory", "resident_bytes",
        (json_int_t)f->resident_bytes, "connections", new_connections(f), "holds", holds,
        "lease_expires_in_ms", left_ms == LEASE_NONE ? json_null() : json_integer(left_ms),
        "generation", (json_int_t)a->generation);
    return *ret ? 0 : err_oom(e);
}

static const struct jx_field activity_fields[] = {{"ignore", jx_array, 0, 0}, {0}};

/* {"ignore":["commands"]}: reasons that do not make the box "busy". */
int rpc_system_activity(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_free_ struct activity_facts *f = calloc(1, sizeof(*f));
    json_t *ignore = NULL;
    int r;

    if (!f)
        return err_oom(e);
    r = jx_decode(call->params, activity_fields, &ignore, e);
    if (r == 0)
        r = check_ignore(ignore, e);
    if (r == 0)
        r = activity_read(call->agent->activity, f, e);
    if (r == 0)
        r = new_activity(call->agent, f, ignore, ret, e);
    activity_facts_done(f);
    return r;
}
