/*
 * process_methods: the methods of process.Process with one answer; process_stream.c has the others.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "dialect/e2b/methods.h"
#include "dialect/e2b/process_json.h"
#include "dialect/e2b/proto.h"
#include "agent.h"

static int process_reply_empty(json_t **ret, struct err *e)
{
    *ret = json_object();
    return *ret ? 0 : err_oom(e);
}

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
    if (r < 0)
        return r;
    *ret = json_array_size(list) ? json_pack("{s:O}", "processes", list) : json_object();
    return *ret ? 0 : err_oom(e);
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
    return process_reply_empty(ret, e);
}

struct close_params {
    struct selector process;
};

static const struct jx_field close_fields[] = {
    JX(struct close_params, process, jx_selector, JX_NULLABLE),
    {0},
};

int e2b_process_close_stdin(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_proc_ struct proc *proc = NULL;
    struct close_params p = {0};
    int r;

    r = jx_decode_lax(call->params, close_fields, &p, e);
    if (r == 0)
        r = process_find(call->agent, &p.process, false, &proc, e);
    if (r < 0)
        return r;
    if (proc_spec(proc)->has_pty)
        return err_set(e, ERR_UNKNOWN,
                       "error closing stdin: cannot close stdin for PTY process — send Ctrl+D "
                       "(0x04) instead");
    r = proc_close_stdin(proc, e);
    return r < 0 ? r : process_reply_empty(ret, e);
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

static void on_sending_change(void *arg)
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
    r = process_reply_empty(ret_msg, e);
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
    s->sub = (struct proc_sub){.fn = on_sending_change, .arg = s, .deadline_ms = s->until_ms};
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
