/* System.Ports and System.WaitPort: what listens in the box, and waiting until something does. */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "event/loop.h"
#include "proc/owner.h"
#include "proc/registry.h"
#include "agent.h"
#include "api/rpc.h"
#include "system/dial.h"
#include "system/ports.h"
#include "system/waitport.h"

#define WAIT_DEFAULT_MS 30000
#define WAIT_MAX_MS (24 * 3600 * 1000)

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
    (void)json_object_set_new(
        v, "command", owner_find(reg, p->pid, id, NULL) == 0 ? json_string(id) : json_null());
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

struct ports_params {
    uint32_t port;
};

static const struct jx_field ports_fields[] = {
    JX(struct ports_params, port, jx_u32, 0),
    {0},
};

static int check_port(uint32_t port, struct err *e)
{
    if (port < 1 || port > UINT16_MAX)
        return err_field(e, ERR_INVALID, "port", "field 'port' must be from 1 to 65535");
    return 0;
}

/* {} lists all; {"port":N} what listens there. */
int rpc_system_ports(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *list = json_array();
    struct ports_params p = {0};
    struct ports ports = {0};
    int r;

    r = jx_decode(call->params, ports_fields, &p, e);
    if (r == 0 && json_object_get(call->params, "port"))
        r = check_port(p.port, e);
    if (r == 0 && list)
        r = ports_read(PORTS_PROCESSES, &ports, e);
    if (r < 0)
        return r;
    for (size_t i = 0; list && i < ports.n; i++)
        if ((!p.port || p.port == ports.list[i].number) &&
            json_array_append_new(list, new_port(call->agent->registry, &ports.list[i])) < 0)
            r = err_oom(e);
    if (list && r == 0)
        *ret = json_pack("{s:O, s:I, s:b}", "ports", list, "listening",
                         (json_int_t)ports.n_listening, "unreadable", (int)ports.is_unreadable);
    ports_done(&ports);
    if (r < 0)
        return r;
    return list && *ret ? 0 : err_oom(e);
}

/* ---- WaitPort ---- */

struct wait {
    struct source source; /* first: the server has a pointer to it */
    struct loop *loop;
    struct waitport_options o;
    char *host, *path; /* o's */
    struct proc *proc; /* whose end makes waiting pointless; NULL: of no matter */
    int64_t started_ms;

    /* the loop's: */
    struct waitport *wait; /* NULL: not begun, or over */
    struct proc_sub sub;
    bool is_subscribed;

    pthread_mutex_t lock;
    /* guarded by lock: */
    int refs; /* the server's, and one for each that is on its way to the loop */
    bool is_left;
    bool is_done;
    int status; /* of the answer over HTTP, or 0 */
    struct err error;
};

/* Called with the lock; gives it up. */
static void unref_and_unlock(struct wait *w)
{
    bool is_last = --w->refs == 0;

    (void)pthread_mutex_unlock(&w->lock);
    if (!is_last)
        return;
    proc_unref(w->proc);
    (void)pthread_mutex_destroy(&w->lock);
    free(w->host);
    free(w->path);
    free(w);
}

static void unref(struct wait *w)
{
    (void)pthread_mutex_lock(&w->lock);
    unref_and_unlock(w);
}

/* Runs fn on the loop's thread with a reference that fn drops. */
static int post(struct wait *w, loop_fn fn, struct err *e)
{
    int r;

    (void)pthread_mutex_lock(&w->lock);
    w->refs++;
    (void)pthread_mutex_unlock(&w->lock);
    r = loop_post(w->loop, fn, w, e);
    if (r < 0)
        unref(w);
    return r;
}

/* On the loop's thread. */
static void let_go(struct wait *w)
{
    w->wait = waitport_free(w->wait);
    if (w->is_subscribed)
        proc_unsubscribe(w->proc, &w->sub);
    w->is_subscribed = false;
}

static void finish(struct wait *w, int status, const struct err *error)
{
    bool must_wake;

    let_go(w);
    (void)pthread_mutex_lock(&w->lock);
    must_wake = !w->is_left && !w->is_done;
    if (error)
        w->error = *error;
    w->status = status;
    w->is_done = true;
    if (must_wake)
        source_wake(&w->source); /* with the lock: the source is there as long as it is not left */
    (void)pthread_mutex_unlock(&w->lock);
}

static void on_over(void *arg, int status, const struct err *error)
{
    struct wait *w = arg;

    w->wait = NULL;
    finish(w, status, error);
}

/* A server that has put itself into the background has left something running. */
static bool is_hopeless(const struct proc_info *i)
{
    bool is_daemon = i->reason == REASON_EXITED && i->code == 0 && i->tree != TREE_GONE;

    return i->state == PROC_FAILED || (i->state == PROC_ENDED && !is_daemon);
}

static void look_at_command(struct loop *l, void *arg)
{
    struct wait *w = arg;
    struct proc_info i;
    struct err error = {0};

    (void)l;
    proc_get_info(w->proc, &i);
    if (w->wait && is_hopeless(&i)) {
        if (i.state == PROC_FAILED)
            error = i.error;
        else if (i.reason == REASON_EXITED)
            (void)err_field(&error, ERR_PRECONDITION, "id",
                            "the command that should open port %d exited with %d", (int)w->o.port,
                            i.code);
        else
            (void)err_field(&error, ERR_PRECONDITION, "id",
                            "the command that should open port %d has ended: %s", (int)w->o.port,
                            proc_reason_name(i.reason));
        finish(w, 0, &error);
    }
    unref(w);
}

/* With the command's lock held: only take note. */
static void on_command(void *arg)
{
    (void)post(arg, look_at_command, NULL);
}

static void start(struct loop *l, void *arg)
{
    struct wait *w = arg;
    struct err error = {0};
    bool is_left;
    int r = 0;

    (void)pthread_mutex_lock(&w->lock);
    is_left = w->is_left;
    (void)pthread_mutex_unlock(&w->lock);
    if (!is_left)
        r = waitport_new(l, &w->o, on_over, w, &w->wait, &error);
    if (!is_left && r == 0 && w->proc) {
        w->sub = (struct proc_sub){.fn = on_command, .arg = w, .is_end_only = true};
        r = proc_subscribe(w->proc, &w->sub, &error);
        w->is_subscribed = r == 0;
        if (r == 0)
            r = post(w, look_at_command, &error); /* it may have ended before */
    }
    if (r < 0)
        finish(w, 0, &error);
    unref(w);
}

static void stop(struct loop *l, void *arg)
{
    (void)l;
    let_go(arg);
    unref(arg);
}

static int wait_next(struct source *source, json_t **ret_msg, struct err *e)
{
    struct wait *w = (struct wait *)source;
    int r = SOURCE_WAIT;

    (void)pthread_mutex_lock(&w->lock);
    if (w->is_done && w->error.code) {
        *e = w->error;
        r = -w->error.code;
    } else if (w->is_done) {
        *ret_msg = json_pack("{s:i, s:o, s:I}", "port", (int)w->o.port, "status",
                             w->status ? json_integer(w->status) : json_null(), "waited_ms",
                             (json_int_t)(clock_mono_ms() - w->started_ms));
        r = *ret_msg ? SOURCE_MESSAGE : err_oom(e);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return r;
}

static void wait_free(struct source *source)
{
    struct wait *w = (struct wait *)source;

    (void)pthread_mutex_lock(&w->lock);
    w->is_left = true;
    (void)pthread_mutex_unlock(&w->lock);
    (void)post(w, stop, NULL);
    unref(w);
}

static const struct source_ops wait_ops = {.next = wait_next, .free = wait_free};

struct wait_params {
    uint32_t port;
    uint64_t timeout_ms;
    const char *host;
    const char *path;
    const char *id;
};

static const struct jx_field wait_fields[] = {
    JX(struct wait_params, port, jx_u32, JX_REQUIRED),
    JX(struct wait_params, timeout_ms, jx_u64, 0),
    JX(struct wait_params, host, jx_str, 0),
    JX(struct wait_params, path, jx_str, 0),
    JX(struct wait_params, id, jx_str, 0),
    {0},
};

static int check_wait(const struct wait_params *p, struct err *e)
{
    int r;

    r = check_port(p->port, e);
    if (r < 0)
        return r;
    if (p->timeout_ms > WAIT_MAX_MS)
        return err_field(e, ERR_INVALID, "timeout_ms", "field 'timeout_ms' must be at most %d",
                         WAIT_MAX_MS);
    r = p->path ? waitport_check_path(p->path, e) : 0;
    return r == 0 && p->host ? dial_check_host(p->host, e) : r;
}

static struct wait *wait_new(const struct wait_params *p, struct loop *l, struct proc *take)
{
    struct wait *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    *w = (struct wait){
        .source.ops = &wait_ops, .loop = l, .proc = take, .refs = 1, .started_ms = clock_mono_ms()};
    (void)pthread_mutex_init(&w->lock, NULL);
    w->host = p->host ? strdup(p->host) : NULL;
    w->path = p->path ? strdup(p->path) : NULL;
    w->o = (struct waitport_options){.port = (uint16_t)p->port,
                                     .host = w->host,
                                     .path = w->path,
                                     .deadline_ms = w->started_ms + (int64_t)p->timeout_ms};
    if ((p->host && !w->host) || (p->path && !w->path)) {
        unref(w);
        return NULL;
    }
    return w;
}

/* {"port":3000, "timeout_ms":30000, "path":"/", "host":"127.0.0.1", "id":"dev-server"} */
int rpc_system_wait_port(const struct rpc_call *call, struct source **ret, struct err *e)
{
    struct wait_params p = {.timeout_ms = WAIT_DEFAULT_MS};
    struct proc *proc = NULL;
    struct wait *w;
    int r;

    r = jx_decode(call->params, wait_fields, &p, e);
    if (r == 0)
        r = check_wait(&p, e);
    if (r == 0 && p.id)
        r = registry_get(call->agent->registry, p.id, &proc, e);
    if (r < 0)
        return r;
    w = wait_new(&p, call->agent->loop, proc);
    if (!w)
        return err_oom(e);
    r = post(w, start, e);
    if (r < 0) {
        unref(w);
        return r;
    }
    *ret = &w->source;
    return 0;
}
