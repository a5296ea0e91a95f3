/*
 * process_input: SendInput and StreamInput: input for a command. A write is answered, or the next
 * one is taken, when the command's pipe or terminal has all of it.
 */
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "dialect/e2b/methods.h"
#include "dialect/e2b/process_json.h"
#include "agent.h"

/* ---- ProcessInput ---- */

struct input {
    bool is_there, is_pty;
    struct jx_bytes data; /* owned */
};

static bool is_set(const json_t *v)
{
    return v && !json_is_null(v);
}

static int jx_input(json_t *v, void *out, struct err *e)
{
    struct input *in = out;
    json_t *pipe = json_object_get(v, "stdin"), *pty = json_object_get(v, "pty");

    if (!json_is_object(v))
        return err_set(e, ERR_INVALID, "must be an object");
    if (is_set(pipe) && is_set(pty))
        return err_set(e, ERR_INVALID, "has both stdin and pty");
    in->is_there = is_set(pipe) || is_set(pty);
    in->is_pty = is_set(pty);
    return in->is_there ? jx_b64(in->is_pty ? pty : pipe, &in->data, e) : 0;
}

static int check_input(const struct proc *p, const struct input *in, struct err *e)
{
    bool has_pty = proc_spec(p)->has_pty;

    if (!in->is_there)
        return err_set(e, ERR_UNIMPLEMENTED, "invalid input type <nil>");
    if (in->is_pty && !has_pty)
        return err_set(e, ERR_INTERNAL,
                       "error writing to tty: tty not assigned to process — input should be "
                       "written to the stdin, not the tty");
    if (!in->is_pty && has_pty)
        return err_set(e, ERR_INTERNAL,
                       "error writing to stdin: tty assigned to process — input should be "
                       "written to the pty, not the stdin");
    return 0;
}

/* ---- one write ---- */

struct writing {
    struct proc *proc; /* a reference */
    struct proc_sub sub;
    bool is_subscribed;
    bool is_queued;
    uint64_t end;
};

static void writing_done(struct writing *w)
{
    if (w->is_subscribed)
        proc_unsubscribe(w->proc, &w->sub);
    proc_unref(w->proc);
}

static int closed_error(const struct proc_info *info, bool is_pty, struct err *e)
{
    if (is_pty)
        return err_set(e, ERR_INTERNAL,
                       "error writing to tty: error writing to tty of process '%d': input/output "
                       "error",
                       info->pid);
    if (info->is_stdin_broken)
        return err_set(
            e, ERR_INTERNAL,
            "error writing to stdin: error writing to stdin of process '%d': broken pipe",
            info->pid);
    return err_set(e, ERR_INTERNAL, "error writing to stdin: stdin not enabled or closed");
}

/* Returns 0 to wait for the subscription, 1 when the input is written, or an error. */
static int writing_step(struct writing *w, const struct input *in, struct err *e)
{
    struct proc_info info;
    int r = 0;

    if (!w->is_subscribed)
        r = proc_subscribe(w->proc, &w->sub, e);
    if (r < 0)
        return r;
    w->is_subscribed = true;
    proc_get_info(w->proc, &info);
    if (info.state == PROC_STARTING)
        return 0;
    if (!w->is_queued) {
        r = proc_write(w->proc, -1, in->data.data, in->data.len, &w->end, NULL);
        if (r == -ERR_UNAVAILABLE)
            return 0;
        if (r < 0)
            return closed_error(&info, in->is_pty, e);
        w->is_queued = true;
        proc_get_info(w->proc, &info);
    }
    if (info.stdin_written >= w->end) {
        w->is_queued = false;
        return 1;
    }
    return info.is_stdin_open ? 0 : closed_error(&info, in->is_pty, e);
}

/* ---- SendInput ---- */

struct input_params {
    struct selector process;
    struct input input;
};

static const struct jx_field input_fields[] = {
    JX(struct input_params, process, jx_selector, JX_NULLABLE),
    JX(struct input_params, input, jx_input, JX_NULLABLE),
    {0},
};

struct send {
    struct source source; /* first: the server has a pointer to it */
    struct writing writing;
    struct input input;
    bool is_over;
};

static void on_send_change(void *arg)
{
    source_wake(arg);
}

static void send_free(struct source *source)
{
    struct send *s = (struct send *)source;

    writing_done(&s->writing);
    jx_bytes_done(&s->input.data);
    free(s);
}

static int send_next(struct source *source, json_t **ret_msg, struct err *e)
{
    struct send *s = (struct send *)source;
    int r;

    if (s->is_over)
        return SOURCE_END;
    r = writing_step(&s->writing, &s->input, e);
    if (r <= 0)
        return r < 0 ? r : SOURCE_WAIT;
    s->is_over = true;
    *ret_msg = json_object();
    return *ret_msg ? SOURCE_MESSAGE : err_oom(e);
}

static const struct source_ops send_ops = {.next = send_next, .free = send_free};

/* On success it owns proc and the input's data. */
static int send_new(struct proc *proc, const struct input *in, struct source **ret, struct err *e)
{
    struct send *s = calloc(1, sizeof(*s));

    if (!s)
        return err_oom(e);
    s->source.ops = &send_ops;
    s->input = *in;
    s->writing.proc = proc;
    s->writing.sub = (struct proc_sub){.fn = on_send_change, .arg = s};
    *ret = &s->source;
    return 0;
}

int e2b_process_send_input(const struct rpc_call *call, struct source **ret, struct err *e)
{
    struct input_params p = {0};
    struct proc *proc = NULL;
    int r;

    r = jx_decode_lax(call->params, input_fields, &p, e);
    if (r == 0)
        r = process_find(call->agent, &p.process, false, &proc, e);
    if (r == 0)
        r = check_input(proc, &p.input, e);
    if (r == 0)
        r = send_new(proc, &p.input, ret, e);
    if (r < 0) {
        proc_unref(proc);
        jx_bytes_done(&p.input.data);
    }
    return r;
}

/* ---- StreamInput: a start that selects the command, then data and keepalives ---- */

struct selected_params {
    struct selector process;
};

static const struct jx_field selected_fields[] = {
    JX(struct selected_params, process, jx_selector, JX_NULLABLE),
    {0},
};

struct data_params {
    struct input input;
};

static const struct jx_field data_fields[] = {
    JX(struct data_params, input, jx_input, JX_NULLABLE),
    {0},
};

struct input_stream {
    struct inflow inflow; /* first: the server has a pointer to it */
    const struct agent *agent;
    struct writing writing; /* proc is NULL until the start message */
    struct input input;     /* of the message that is being written */
};

static void on_stream_change(void *arg)
{
    inflow_wake(arg);
}

static void input_stream_free(struct inflow *f)
{
    struct input_stream *s = (struct input_stream *)f;

    writing_done(&s->writing);
    jx_bytes_done(&s->input.data);
    free(s);
}

static int take_start(struct input_stream *s, json_t *start, struct err *e)
{
    struct selected_params p = {0};
    struct proc *proc = NULL;
    int r;

    r = json_is_object(start) ? jx_decode_lax(start, selected_fields, &p, e)
                              : err_set(e, ERR_INVALID, "'start' must be an object");
    if (r == 0)
        r = process_find(s->agent, &p.process, false, &proc, e);
    if (r < 0)
        return r;
    writing_done(&s->writing);
    s->writing = (struct writing){.proc = proc, .sub = {.fn = on_stream_change, .arg = s}};
    return INFLOW_DONE;
}

static int take_data(struct input_stream *s, json_t *data, struct err *e)
{
    struct data_params p = {0};
    int r = 0;

    if (!s->writing.proc)
        return err_set(e, ERR_INVALID, "data before a start");
    if (!s->input.is_there) {
        r = json_is_object(data) ? jx_decode_lax(data, data_fields, &p, e)
                                 : err_set(e, ERR_INVALID, "'data' must be an object");
        s->input = p.input;
        if (r == 0)
            r = check_input(s->writing.proc, &s->input, e);
    }
    if (r == 0)
        r = writing_step(&s->writing, &s->input, e);
    if (r == 0)
        return INFLOW_WAIT;
    jx_bytes_done(&s->input.data);
    s->input = (struct input){0};
    return r < 0 ? r : INFLOW_DONE;
}

static int input_stream_take(struct inflow *f, json_t *msg, struct err *e)
{
    struct input_stream *s = (struct input_stream *)f;

    if (is_set(json_object_get(msg, "start")))
        return take_start(s, json_object_get(msg, "start"), e);
    if (is_set(json_object_get(msg, "data")))
        return take_data(s, json_object_get(msg, "data"), e);
    if (is_set(json_object_get(msg, "keepalive")))
        return INFLOW_DONE;
    return err_set(e, ERR_UNIMPLEMENTED, "invalid event type <nil>");
}

static int input_stream_finish(struct inflow *f, json_t **ret, struct err *e)
{
    (void)f;
    *ret = json_object();
    return *ret ? INFLOW_DONE : err_oom(e);
}

static const struct inflow_ops input_stream_ops = {
    .take = input_stream_take, .finish = input_stream_finish, .free = input_stream_free};

int e2b_process_stream_input(const struct rpc_call *call, struct inflow **ret, struct err *e)
{
    struct input_stream *s = calloc(1, sizeof(*s));

    if (!s)
        return err_oom(e);
    s->inflow.ops = &input_stream_ops;
    s->agent = call->agent;
    *ret = &s->inflow;
    return 0;
}
