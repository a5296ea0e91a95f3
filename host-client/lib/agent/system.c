/* system: calls of the System service: activity, holds, ports, readiness, metrics. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/agent/call.h"
#include "lib/util/context.h"

#define HOLD_ID_BYTES 129
#define METRICS_BYTES (4 * 1024 * 1024)
#define READY_MS 60000
#define WAIT_PORT_MS 30000      /* the agent's own default */
#define WAIT_PORT_GRACE_MS 5000 /* for the reply after the timeout */

/* ---- activity and holds ---- */

static void join_reasons(json_t *list, char *out, size_t out_bytes)
{
    size_t used = 0, i;
    json_t *v;

    out[0] = '\0';
    json_array_foreach (list, i, v) {
        int n = snprintf(out + used, out_bytes - used, "%s%s", i ? ", " : "",
                         json_string_value(v) ? json_string_value(v) : "");

        if (n < 0 || (size_t)n >= out_bytes - used)
            return;
        used += (size_t)n;
    }
}

static void read_activity(json_t *reply, struct bh_activity *a)
{
    json_t *cpu = json_object_get(reply, "cpu");
    json_t *recent = json_object_get(cpu, "recent_ms");

    a->busy = json_is_true(json_object_get(reply, "busy"));
    join_reasons(json_object_get(reply, "reasons"), a->reasons, sizeof(a->reasons));
    a->idle_ms = json_integer_value(json_object_get(reply, "idle_ms"));
    a->calls = (uint32_t)reply_count(json_object_get(reply, "calls"), "open");
    a->commands = (uint32_t)reply_count(json_object_get(reply, "commands"), "running");
    a->connections = (uint32_t)reply_count(json_object_get(reply, "connections"), "established");
    a->holds = (uint32_t)json_array_size(json_object_get(reply, "holds"));
    a->cpu_ms = json_is_integer(recent) ? json_integer_value(recent) : -1;
    a->cpu_window_ms = json_integer_value(json_object_get(cpu, "window_ms"));
}

int bh_activity(struct bh_box *box, struct bh_activity *ret, struct bh_error *err)
{
    _cleanup_json_ json_t *reply = NULL;
    struct bh_activity a = {.size = sizeof(a)};
    struct err e = {0};
    struct client *c = NULL;
    int live, r = agent_ops(box)->check_live(box, &e);

    if (r == 0)
        r = agent_ops(box)->get_client(box, &c, &e);
    if (r == 0)
        r = client_call(c, RPC_system_activity, NULL, agent_deadline(client_answer_ms(c)), &reply,
                        &e);
    /* It may have been frozen meanwhile: this question is no use of the box. */
    if (r == -ERR_DEADLINE && (live = agent_ops(box)->check_live(box, &e)) < 0)
        r = live;
    if (r == 0)
        r = jx_dump(reply, &a.json, NULL, &e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    read_activity(reply, &a);
    *ret = a;
    return 0;
}

int bh_hold_take(struct bh_box *box, const struct bh_hold_options *opts, char *ret_id,
                 struct bh_error *err)
{
    _cleanup_json_ json_t *reply = NULL;
    struct bh_hold_options o;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0 && o.ttl_ms < 0)
        r = err_field(&e, ERR_INVALID, "ttl", "the time must not be negative");
    if (r == 0)
        r = agent_call_take(box, RPC_system_hold,
                            json_pack("{s:s*, s:s*, s:o*}", "id", o.id, "reason", o.reason,
                                      "ttl_ms",
                                      o.ttl_ms ? json_integer((json_int_t)o.ttl_ms) : NULL),
                            0, &reply, &e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    (void)snprintf(ret_id, HOLD_ID_BYTES, "%s", reply_text(reply, "id"));
    return 0;
}

int bh_hold_release(struct bh_box *box, const char *id, struct bh_error *err)
{
    struct err e = {0};
    int r = agent_call_take(box, RPC_system_release, json_pack("{s:s}", "id", id ? id : ""), 0,
                            NULL, &e);

    return ctx_fail(err, r, &e);
}

/* ---- ports ---- */

int bh_ports(struct bh_box *box, int (*fn)(void *arg, const struct bh_port *port), void *arg,
             struct bh_error *err)
{
    _cleanup_json_ json_t *reply = NULL;
    struct err e = {0};
    json_t *v;
    size_t i;
    int r = agent_call_take(box, RPC_system_ports, json_object(), 0, &reply, &e);

    if (r < 0)
        return ctx_fail(err, r, &e);
    json_array_foreach (json_object_get(reply, "ports"), i, v) {
        json_t *process = json_object_get(v, "process");
        struct bh_port port = {.size = sizeof(port),
                               .port = (uint16_t)reply_count(v, "port"),
                               .protocol = reply_text(v, "protocol"),
                               .address = reply_text(v, "address"),
                               .reachable = json_is_true(json_object_get(v, "reachable")),
                               .is_agent = json_is_true(json_object_get(v, "agent")),
                               .connections = (uint32_t)reply_count(v, "connections"),
                               .pid = (int)reply_count(process, "pid"),
                               .process = reply_text(process, "name"),
                               .command = reply_text(process, "command")};

        if (r == 0)
            r = fn(arg, &port);
    }
    return r;
}

int bh_wait_port(struct bh_box *box, const struct bh_wait_port_options *opts, int *ret_status,
                 struct bh_error *err)
{
    _cleanup_json_ json_t *reply = NULL;
    struct bh_wait_port_options o;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0)
        r = agent_call_take(
            box, RPC_system_wait_port,
            json_pack("{s:i, s:s*, s:s*, s:o*}", "port", (int)o.port, "path", o.path, "id",
                      o.exec_id, "timeout_ms",
                      o.timeout_ms > 0 ? json_integer((json_int_t)o.timeout_ms) : NULL),
            (o.timeout_ms > 0 ? o.timeout_ms : WAIT_PORT_MS) + WAIT_PORT_GRACE_MS, &reply, &e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    if (ret_status)
        *ret_status = (int)json_integer_value(json_object_get(reply, "status"));
    return 0;
}

/* ---- readiness and metrics ---- */

static int check_ready(json_t *reply, struct err *e)
{
    json_t *tool;
    size_t i;

    if (json_is_true(json_object_get(reply, "ready")))
        return 0;
    json_array_foreach (json_object_get(reply, "tools"), i, tool) {
        if (json_is_true(json_object_get(tool, "required")) &&
            !json_is_true(json_object_get(tool, "ok")))
            return err_field(e, ERR_PRECONDITION, "tools", "the tool '%.64s' does not run: %.200s",
                             reply_text(tool, "name"), reply_text(tool, "error"));
    }
    return err_field(e, ERR_PRECONDITION, "ready", "the box says that it is not ready");
}

int bh_ready(struct bh_box *box, char **ret_json, struct bh_error *err)
{
    _cleanup_json_ json_t *reply = NULL;
    struct err e = {0};
    int r = agent_call_take(box, RPC_system_ready, json_object(), READY_MS, &reply, &e);

    if (r == 0 && ret_json)
        r = jx_dump(reply, ret_json, NULL, &e);
    if (r == 0)
        r = check_ready(reply, &e);
    return ctx_fail(err, r, &e);
}

static int append_metrics(void *arg, const char *data, size_t len)
{
    return buf_add(arg, data, len, NULL);
}

int bh_metrics(struct bh_box *box, char **ret_text, struct bh_error *err)
{
    _cleanup_buf_ struct buf text = {0};
    struct client *c = NULL;
    struct err e = {0};
    int r = agent_begin(box, &c, &e);

    buf_init(&text, METRICS_BYTES);
    if (r == 0)
        r = client_get(c, "/v1/metrics", append_metrics, &text, 0, &e);
    if (r == 0)
        r = buf_add(&text, "", 0, &e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    *ret_text = text.len ? buf_take(&text) : strdup("");
    return *ret_text ? 0 : ctx_fail(err, err_oom(&e), &e);
}
