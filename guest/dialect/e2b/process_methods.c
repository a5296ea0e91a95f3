/*
 * process_methods: the methods of process.Process with one answer; process_stream.c has the others. A write of input
 * is answered, or the next one is taken, when the command's pipe or terminal has all of it.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "dialect/e2b/e2b.h"
#include "dialect/e2b/process_json.h"
#include "dialect/e2b/proto.h"

/* ---- List ---- */

int e2b_process_list(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *list = json_array();
    struct proc **all = NULL;
    size_t n = 0;
    int r;

    r = list ? registry_list(call->agent->registry, &all, &n, e) : err_oom(e);
    for (size_t i = 0; i < n; i++) {
        struct proc_info info;

        proc_get_info(all[i], &info);
        if (r == 0 && proc_spec(all[i])->note && info.state == PROC_RUNNING &&
            json_array_append_new(list, process_new_info(all[i])) < 0)
            r = err_oom(e);
        proc_unref(all[i]);
    }
    free(all);
    return r < 0 ? r : e2b_reply_list("processes", list, ret, e);
}

/* ---- Update, CloseStdin ---- */

struct update_params {
    struct selector process;
    struct terminal pty;
};

static const struct jx_field update_fields[] = {
    JX(struct update_params, process, jx_selector, JX_NULLABLE),
    JX(struct update_params, pty, jx_terminal, JX_NULLABLE),
    {0},
};

int e2b_process_update(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_proc_ struct proc *proc = NULL;
    struct update_params p = {0};
    struct err why = {0};
    int r;

    r = jx_decode_lax(call->params, update_fields, &p, e);
    if (r == 0)
        r = process_find(call->agent, &p.process, false, &proc, e);
    if (r < 0)
        return r;
    if (p.pty.is_there && !proc_spec(proc)->has_pty)
        return err_set(e, ERR_INTERNAL, "error resizing tty: tty not assigned to process");
    if (p.pty.is_there && proc_resize(proc, p.pty.cols, p.pty.rows, &why) < 0)
        return err_set(e, ERR_INTERNAL, "error resizing tty: %s", why.message);
    return e2b_reply_empty(ret, e);
}

int e2b_process_close_stdin(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_proc_ struct proc *proc = NULL;
    int r = process_find_in(call->agent, call->params, false, &proc, e);

    if (r < 0)
        return r;
    if (proc_spec(proc)->has_pty)
        return err_set(e, ERR_UNKNOWN,
                       "error closing stdin: cannot close stdin for PTY process — send Ctrl+D "
                       "(0x04) instead");
    r = proc_close_stdin(proc, e);
    return r < 0 ? r : e2b_reply_empty(ret, e);
}

/* ---- SendSignal ---- */

#define GONE_WAIT_MS 5000 /* for a killed command to exit; it may be waiting for a disk */

struct signal_params {
    struct selector process;
    int signal;
    bool descendants;
};

/* By its name or number; -1: a number that is not supported. */
static int jx_signal(json_t *v, void *out, struct err *e)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {
        {"SIGNAL_UNSPECIFIED", 0}, {"SIGNAL_SIGTERM", SIGTERM}, {"SIGNAL_SIGKILL", SIGKILL}};
    int64_t number = 0;
    bool is_number = json_is_number(v) && proto_get_whole(v, &number);

    for (size_t i = 0; i < N_ELEMENTS(signals); i++)
        if (str_eq(json_string_value(v), signals[i].name) ||
            (is_number && number == signals[i].number)) {
            *(int *)out = signals[i].number;
            return 0;
        }
    if (!is_number)
        return err_set(e, ERR_INVALID, "is no signal");
    *(int *)out = -1;
    return 0;
}

static const struct jx_field signal_fields[] = {
    JX(struct signal_params, process, jx_selector, JX_NULLABLE),
    JX(struct signal_params, signal, jx_signal, JX_NULLABLE),
    JX(struct signal_params, descendants, jx_bool, JX_NULLABLE),
    {0},
};

/*
 * Sends the signal once the command runs. KILL is answered when the command is gone, so that no
 * later request sees it.
 */
struct sending {
    struct source source; /* first: the server has a pointer to it */
    struct proc *proc;    /* a reference */
    struct proc_sub sub;
    bool is_subscribed, is_sent, is_over;
    uint32_t pid; /* 0: it was being started, and was found by its tag */
    int sig;
    bool is_tree;
    int64_t until_ms;
};

static void on_source_change(void *arg)
{
    source_wake(arg);
}

static void sending_free(struct source *source)
{
    struct sending *s = (struct sending *)source;

    if (s->is_subscribed)
        proc_unsubscribe(s->proc, &s->sub);
    proc_unref(s->proc);
    free(s);
}

/* After the signal the end no longer waits for processes that hold the output open. */
static int send_signal(struct sending *s, struct err *e)
{
    struct err why = {0};
    int r = proc_signal(s->proc, s->sig, s->is_tree, &why);

    if (r < 0 &&
        r != -ERR_PRECONDITION) /* PRECONDITION: reaped already, only its output is awaited */
        return err_set(e, ERR_INTERNAL, "error sending signal: %s", why.message);
    proc_waive_eof(s->proc);
    s->is_sent = true;
    return 0;
}

/* Returns SOURCE_WAIT, SOURCE_END when it is done, or an error. */
static int sending_step(struct sending *s, struct err *e)
{
    struct proc_info info;
    int r = 0;

    proc_get_info(s->proc, &info);
    if (info.state == PROC_STARTING)
        return SOURCE_WAIT;
    if (info.state != PROC_RUNNING && !s->is_sent)
        return process_not_found(&(struct selector){.has_pid = s->pid != 0,
                                                    .pid = s->pid,
                                                    .tag = proc_spec(s->proc)->tag},
                                 e);
    if (!s->is_sent)
        r = send_signal(s, e);
    if (r < 0)
        return r;
    if (info.state == PROC_RUNNING && s->sig == SIGKILL && clock_mono_ms() < s->until_ms)
        return SOURCE_WAIT;
    return SOURCE_END;
}

static int sending_next(struct source *source, json_t **ret_msg, struct err *e)
{
    struct sending *s = (struct sending *)source;
    int r = 0;

    if (s->is_over)
        return SOURCE_END;
    if (!s->is_subscribed)
        r = proc_subscribe(s->proc, &s->sub, e);
    if (r < 0)
        return r;
    s->is_subscribed = true;
    r = sending_step(s, e);
    if (r != SOURCE_END)
        return r;
    s->is_over = true;
    r = e2b_reply_empty(ret_msg, e);
    return r < 0 ? r : SOURCE_MESSAGE;
}

static const struct source_ops sending_ops = {.next = sending_next, .free = sending_free};

static int sending_new(const struct signal_params *p, struct proc *take, struct source **ret,
                       struct err *e)
{
    struct sending *s = calloc(1, sizeof(*s));

    if (!s) {
        proc_unref(take);
        return err_oom(e);
    }
    *s = (struct sending){
        .source = {.ops = &sending_ops},
        .proc = take,
        .pid = (uint32_t)proc_pid(take),
        .sig = p->signal,
        .is_tree = p->descendants,
        .until_ms = clock_mono_ms() + GONE_WAIT_MS,
    };
    s->sub = (struct proc_sub){.fn = on_source_change, .arg = s, .deadline_ms = s->until_ms};
    *ret = &s->source;
    return 0;
}

int e2b_process_send_signal(const struct rpc_call *call, struct source **ret, struct err *e)
{
    _cleanup_proc_ struct proc *proc = NULL;
    struct signal_params p = {0};
    int r;

    r = jx_decode_lax(call->params, signal_fields, &p, e);
    if (r == 0)
        r = process_find(call->agent, &p.process, false, &proc, e);
    if (r < 0)
        return r;
    if (p.signal != SIGKILL && p.signal != SIGTERM)
        return err_set(e, ERR_UNIMPLEMENTED, "invalid signal: %s",
                       p.signal == 0 ? "SIGNAL_UNSPECIFIED" : "unknown");
    return sending_new(&p, TAKE(proc), ret, e);
}

/* ---- SendInput, StreamInput ------------------------------------------------------------------- */

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
    struct proc_written written;
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
        r = proc_write(w->proc, NULL, -1, in->data.data, in->data.len, &w->written, NULL);
        if (r == -ERR_UNAVAILABLE)
            return 0;
        if (r < 0)
            return closed_error(&info, in->is_pty, e);
        w->is_queued = true;
        proc_get_info(w->proc, &info);
    }
    if (info.stdin_written >= w->written.end) {
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
    r = e2b_reply_empty(ret_msg, e);
    return r < 0 ? r : SOURCE_MESSAGE;
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
    s->writing.sub = (struct proc_sub){.fn = on_source_change, .arg = s};
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
    struct proc *proc = NULL;
    int r;

    if (!json_is_object(start))
        return err_set(e, ERR_INVALID, "'start' must be an object");
    r = process_find_in(s->agent, start, false, &proc, e);
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
    int r = e2b_reply_empty(ret, e);

    (void)f;
    return r < 0 ? r : INFLOW_DONE;
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
