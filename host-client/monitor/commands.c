#include "monitor/commands.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "lib/box/control.h"
#include "lib/util/socket.h"
#include "monitor/port_forward.h"
#include "monitor/monitor.h"
#include "monitor/supervise.h"

struct caller {
    int fd;
    struct buf line;
    bool is_hold;
    bool is_done;
};

struct commands {
    struct monitor *m;
    char *path;
    int listen_fd;
    struct caller callers[MONITOR_MAX_CLIENTS];
    size_t n_callers;
};

int commands_new(struct monitor *m, const char *path, struct commands **ret, struct err *e)
{
    struct commands *c = calloc(1, sizeof(*c));
    int r;

    if (!c)
        return err_oom(e);
    c->m = m;
    c->listen_fd = -1;
    c->path = strdup(path);
    r = c->path ? socket_listen(path, &c->listen_fd, e) : err_oom(e);
    if (r < 0) {
        (void)commands_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

static void caller_done(struct caller *c)
{
    fd_close(c->fd);
    buf_done(&c->line);
}

struct commands *commands_free(struct commands *c)
{
    if (!c)
        return NULL;
    for (size_t i = 0; i < c->n_callers; i++)
        caller_done(&c->callers[i]);
    if (c->listen_fd >= 0)
        (void)unlink(c->path);
    fd_close(c->listen_fd);
    free(c->path);
    free(c);
    return NULL;
}

unsigned commands_n_holds(const struct commands *c)
{
    unsigned n = 0;

    for (size_t i = 0; i < c->n_callers; i++)
        n += c->callers[i].is_hold;
    return n;
}

/* ---- the operations: each fills reply, or fails ---- */

struct request {
    const char *op;
    const char *cause;
    int64_t until_ms;
    uint32_t port, host_port;
    uint32_t grace_ms, timeout_ms;
    bool awake;
};

static int add_int(json_t *reply, const char *name, int64_t v, struct err *e)
{
    return json_object_set_new(reply, name, json_integer(v)) < 0 ? err_oom(e) : 0;
}

static int op_ping(struct commands *c, const struct request *q, json_t *reply, struct err *e)
{
    int r = add_int(reply, "pid", getpid(), e);

    (void)q;
    if (r == 0)
        r = add_int(reply, "box_pid", c->m->exit.run.pid, e);
    if (r == 0)
        r = add_int(reply, "deadline_ms", monitor_deadline_real_ms(c->m), e);
    if (r == 0)
        r = add_int(reply, "uses", monitor_uses(c->m), e);
    if (r == 0)
        r = add_int(reply, "restarts", supervisor_restarts(c->m->supervisor), e);
    return r == 0 && json_object_set_new(reply, "ready", json_true()) < 0 ? err_oom(e) : r;
}

/* A caller resumes the box first; bringup.c does. */
static int refuse_paused(const struct commands *c, struct err *e)
{
    return c->m->is_paused ? err_field(e, ERR_PRECONDITION, "state", "the box is paused") : 0;
}

static int op_touch(struct commands *c, const struct request *q, json_t *reply, struct err *e)
{
    int r = refuse_paused(c, e);

    (void)q;
    (void)reply;
    if (r == 0)
        lease_touch(&c->m->lease, clock_mono_ms());
    return r;
}

static int op_extend(struct commands *c, const struct request *q, json_t *reply, struct err *e)
{
    int64_t until_mono_ms;
    int r = 0;

    if (q->until_ms <= 0)
        return err_field(e, ERR_INVALID, "until_ms", "field 'until_ms' is required");
    lease_set_used(&c->m->lease, clock_mono_ms()); /* an `up`, an `exec --timeout` or a `keep` */
    until_mono_ms = clock_mono_ms() + (q->until_ms - clock_real_ms());
    if (q->awake)
        lease_stay_awake(&c->m->lease, until_mono_ms);
    /* A `keep` promises a box that runs until then: its end begins there, and not before. */
    if (q->awake ? lease_postpone(&c->m->lease, until_mono_ms)
                 : lease_extend(&c->m->lease, until_mono_ms))
        r = monitor_lease_changed(c->m, e);
    else
        monitor_save_lease(c->m);
    return r < 0
               ? r
               : add_int(reply, "deadline_ms",
                         monitor_deadline_real_ms(c->m) - (q->awake ? c->m->lease.lead_ms : 0), e);
}

/* Uses the same port of this machine as the last time: others may know it. */
static int op_forward(struct commands *c, const struct request *q, json_t *reply, struct err *e)
{
    struct bh_box *box = c->m->box;
    char key[16];
    uint16_t wanted = (uint16_t)q->host_port;
    uint16_t got = 0;
    int r;

    if (q->port > UINT16_MAX || q->host_port > UINT16_MAX)
        return err_field(e, ERR_INVALID, "port", "port must be from 0 to 65535");
    r = box_reload(box, e);
    if (r < 0)
        return r;
    (void)snprintf(key, sizeof(key), "%u", q->port);
    if (!wanted)
        wanted = (uint16_t)json_integer_value(json_object_get(box->row.ports, key));
    r = forwards_add(c->m->forwards, (uint16_t)q->port, wanted, &got, e);
    if (r == 0 && got != wanted)
        r = store_set_port(c->m->ctx->store, box->row.id, (uint16_t)q->port, got, e);
    return r < 0 ? r : add_int(reply, "host_port", got, e);
}

static int op_supervise(struct commands *c, const struct request *q, json_t *reply, struct err *e)
{
    (void)q;
    (void)reply;
    (void)e;
    supervisor_watch(c->m->supervisor);
    return 0;
}

static int op_pause(struct commands *c, const struct request *q, json_t *reply, struct err *e)
{
    (void)q;
    (void)reply;
    return monitor_pause_box(c->m, e);
}

static int op_resume(struct commands *c, const struct request *q, json_t *reply, struct err *e)
{
    (void)reply;
    return monitor_resume_box(c->m, clock_mono_ms() + q->timeout_ms, e);
}

static int op_stop(struct commands *c, const struct request *q, json_t *reply, struct err *e)
{
    int grace_ms = q->grace_ms < BOX_STOP_GRACE_MS ? (int)q->grace_ms : BOX_STOP_GRACE_MS;

    (void)reply;
    return monitor_stop_box(c->m, "stop", q->cause ? q->cause : "stopped", grace_ms, e);
}

static const struct {
    const char *name;
    int (*fn)(struct commands *c, const struct request *q, json_t *reply, struct err *e);
    bool is_hold;
    bool changes_state; /* stored by the caller, which holds the box's lock */
} command_ops[] = {
    {"ping", op_ping, false, false},       {"touch", op_touch, false, false},
    {"hold", op_touch, true, false},       {"extend", op_extend, false, false},
    {"forward", op_forward, false, false}, {"supervise", op_supervise, false, false},
    {"pause", op_pause, false, true},      {"resume", op_resume, false, true},
    {"stop", op_stop, false, true},
};

/* A caller that has died has no lock any more: another may have changed the state meanwhile. */
static bool has_hung_up(const struct caller *caller)
{
    struct pollfd p = {.fd = caller->fd};

    return poll(&p, 1, 0) == 1 && p.revents & POLLHUP;
}

static int run_op(struct commands *c, struct caller *caller, json_t *obj, json_t *reply,
                  struct err *e)
{
    static const struct jx_field fields[] = {
        JX(struct request, op, jx_str, JX_REQUIRED),
        JX(struct request, cause, jx_str, 0),
        JX(struct request, until_ms, jx_i64, 0),
        JX(struct request, port, jx_u32, 0),
        JX(struct request, host_port, jx_u32, 0),
        JX(struct request, grace_ms, jx_u32, 0),
        JX(struct request, timeout_ms, jx_u32, 0),
        JX(struct request, awake, jx_bool, 0),
        {0},
    };
    struct request q = {.grace_ms = BOX_STOP_GRACE_MS, .timeout_ms = BOX_RESUME_MS};
    int r = jx_decode(obj, fields, &q, e);

    if (r < 0)
        return r;
    for (size_t i = 0; i < N_ELEMENTS(command_ops); i++) {
        if (strcmp(command_ops[i].name, q.op) != 0)
            continue;
        if (command_ops[i].changes_state && has_hung_up(caller))
            return err_set(e, ERR_ABORTED, "the caller has ended");
        r = command_ops[i].fn(c, &q, reply, e);
        caller->is_hold = r == 0 && command_ops[i].is_hold;
        return r;
    }
    return err_field(e, ERR_UNIMPLEMENTED, "op", "there is no operation '%.40s'", q.op);
}

/* ---- callers ---- */

static void answer_caller(struct commands *c, struct caller *caller)
{
    _cleanup_json_ json_t *obj = NULL;
    _cleanup_json_ json_t *reply = json_pack("{s:b}", "ok", 1);
    _cleanup_free_ char *text = NULL;
    struct err e = {0};
    size_t len = 0;
    int r = jx_parse(caller->line.data, caller->line.len - 1, &obj, &e);

    if (r == 0)
        r = reply ? run_op(c, caller, obj, reply, &e) : err_oom(&e);
    if (r < 0) {
        json_decref(reply);
        reply = json_pack("{s:o}", "error", jx_new_error(&e));
    }
    buf_clear(&caller->line);
    if (!reply || jx_dump(reply, &text, &len, NULL) < 0) {
        caller->is_done = true;
        return;
    }
    text[len] = '\n';
    /* A reply is far smaller than a socket's buffer: a caller that does not read loses it. */
    if (send(caller->fd, text, len + 1, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)(len + 1))
        caller->is_done = true;
}

static void read_caller(struct commands *c, struct caller *caller)
{
    char data[4096];
    ssize_t n = recv(caller->fd, data, sizeof(data), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || caller->is_hold || buf_add(&caller->line, data, (size_t)n, NULL) < 0) {
        caller->is_done = true;
        return;
    }
    if (caller->line.data[caller->line.len - 1] == '\n')
        answer_caller(c, caller);
}

/* Only the owner can connect: the socket is 0600, its directory 0700. */
static void accept_caller(struct commands *c)
{
    int fd = accept4(c->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct caller *caller;

    if (fd < 0)
        return;
    if (c->n_callers == MONITOR_MAX_CLIENTS) {
        fd_close(fd);
        return;
    }
    caller = &c->callers[c->n_callers++];
    memset(caller, 0, sizeof(*caller));
    caller->fd = fd;
    buf_init(&caller->line, CONTROL_LINE_BYTES);
}

size_t commands_poll(struct commands *c, struct pollfd *out, size_t max)
{
    size_t n = 0;

    out[n++] = (struct pollfd){.fd = c->listen_fd, .events = POLLIN};
    for (size_t i = 0; i < c->n_callers && n < max; i++)
        out[n++] = (struct pollfd){.fd = c->callers[i].fd, .events = POLLIN};
    return n;
}

void commands_act(struct commands *c, const struct pollfd *polled, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < c->n_callers; i++) {
        struct caller *caller = &c->callers[i];

        if (!c->m->is_over && i + 1 < n && polled[i + 1].revents)
            read_caller(c, caller);
        if (caller->is_done)
            caller_done(caller);
        else
            c->callers[kept++] = *caller;
    }
    c->n_callers = kept;
    if (!c->m->is_over && polled[0].revents)
        accept_caller(c);
}
