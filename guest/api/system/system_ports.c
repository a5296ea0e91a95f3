/* System.Ports and System.WaitPort: lists the listeners in the box, and waits for one. */
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "proc/registry.h"
#include "agent.h"
#include "api/rpc.h"
#include "system/ports.h"
#include "system/waitport.h"

/* ---- Ports ---- */

static json_t *new_process(struct registry *reg, const struct port *p)
{
    char id[SPEC_ID_MAX_BYTES + 1];
    json_t *v;

    if (!p->pid)
        return json_null();
    v = json_pack("{s:i, s:s}", "pid", (int)p->pid, "name", p->name);
    if (!v)
        return NULL;
    (void)json_object_set_new(v, "exe", p->exe[0] ? jx_new_path(p->exe) : json_null());
    (void)json_object_set_new(v, "command",
                              registry_find_owner(reg, p->pid, id, NULL) == 0 ? json_string(id)
                                                                              : json_null());
    return v;
}

static json_t *new_port(struct registry *reg, const struct port *p)
{
    return json_pack("{s:i, s:s, s:s, s:s, s:I, s:b, s:b, s:b, s:I, s:o}", "port", (int)p->number,
                     "protocol", p->is_udp ? "udp" : "tcp", "family", p->is_v6 ? "ipv6" : "ipv4",
                     "address", p->address, "uid", (json_int_t)p->uid, "loopback",
                     (int)p->is_loopback, "reachable", (int)(p->is_reachable && !p->is_agent),
                     "agent", (int)p->is_agent, "connections", (json_int_t)p->connections,
                     "process", new_process(reg, p));
}

static const struct jx_field ports_fields[] = {{"port", jx_u32, 0, 0}, {0}};

/* {} lists all listeners; {"port":N} those on this port. */
int rpc_system_ports(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *list = json_array();
    struct ports ports = {0};
    uint32_t port = 0;
    int r;

    r = jx_decode(call->params, ports_fields, &port, e);
    if (r == 0 && json_object_get(call->params, "port"))
        r = waitport_check_port(port, e);
    if (r == 0)
        r = ports_read(PORTS_PROCESSES, &ports, e);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ports.n; i++)
        if ((!port || port == ports.list[i].number) &&
            json_array_append_new(list, new_port(call->agent->registry, &ports.list[i])) < 0)
            r = err_oom(e);
    if (r == 0)
        r = rpc_reply_take(json_pack("{s:O, s:I, s:b}", "ports", list, "listening",
                                     (json_int_t)ports.n_listening, "unreadable",
                                     (int)ports.is_unreadable),
                           ret, e);
    ports_done(&ports);
    return r;
}

/* ---- WaitPort ---- */

struct wait_source {
    struct source source; /* first */
    int port;
    struct waitport *wait;
};

static int wait_next(struct source *source, json_t **ret_msg, struct err *e)
{
    struct wait_source *s = (struct wait_source *)source;
    struct waitport_result res;
    int r = waitport_poll(s->wait, &res, e);

    if (r <= 0)
        return r < 0 ? r : SOURCE_WAIT;
    return source_message_take(json_pack("{s:i, s:o, s:I}", "port", s->port, "status",
                                         res.status ? json_integer(res.status) : json_null(),
                                         "waited_ms", (json_int_t)res.waited_ms),
                               ret_msg, e);
}

static void wait_source_free(struct source *source)
{
    struct wait_source *s = (struct wait_source *)source;

    waitport_free(s->wait);
    free(s);
}

static const struct source_ops wait_ops = {.next = wait_next, .free = wait_source_free};

static const struct jx_field wait_fields[] = {
    JX(struct waitport_options, port, jx_u32, JX_REQUIRED),
    JX(struct waitport_options, timeout_ms, jx_u64, 0),
    JX(struct waitport_options, host, jx_str, 0),
    JX(struct waitport_options, path, jx_str, 0),
    JX(struct waitport_options, id, jx_str, 0),
    {0},
};

/* {"port":3000, "timeout_ms":30000, "path":"/", "host":"127.0.0.1", "id":"dev-server"} */
int rpc_system_wait_port(const struct rpc_call *call, struct source **ret, struct err *e)
{
    struct waitport_options o = {.timeout_ms = WAITPORT_TIMEOUT_MS};
    struct wait_source *s;
    int r;

    r = jx_decode(call->params, wait_fields, &o, e);
    if (r < 0)
        return r;
    s = calloc(1, sizeof(*s));
    if (!s)
        return err_oom(e);
    *s = (struct wait_source){.source.ops = &wait_ops, .port = (int)o.port};
    r = waitport_new(call->agent->loop, call->agent->registry, &o, source_wake, s, &s->wait, e);
    if (r < 0) {
        free(s);
        return r;
    }
    *ret = &s->source;
    return 0;
}
