/*
 * process_stream: Start and Connect: a command's events as they come. The order is: one start, data
 * and keepalives, the end. A stream holds a reference to its command and subscribes to its changes,
 * which arrive with the command's lock held; it unsubscribes before it is freed.
 *
 * A command gets back-pressure from its clients, so that slow ones get every byte, too. A client
 * that takes nothing for seconds is passed over, and told so at the end (see proc_sub.yields).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "dialect/e2b/e2b.h"
#include "dialect/e2b/process_json.h"
#include "agent.h"

struct events {
    struct source source; /* first: the server has a pointer to it */
    struct agent *agent;
    struct proc *proc; /* a reference */
    struct proc_sub sub;
    bool is_subscribed;
    bool is_start; /* of Start: its deadline is the command's */
    bool is_replay;
    bool is_started;
    bool is_wrapped; /* the command is started by a shell */
    bool is_over;
    uint64_t at[N_PROC_STREAMS];
    enum proc_stream next;
    int64_t keepalive_ms;
    int64_t silent_since_ms;
    int64_t wake_ms; /* sub's deadline; 0: none */
};

static void on_events_change(void *arg)
{
    source_wake(arg);
}

static void events_unsubscribe(struct events *ev)
{
    if (ev->is_subscribed)
        proc_unsubscribe(ev->proc, &ev->sub);
    ev->is_subscribed = false;
}

static void events_free(struct source *s)
{
    struct events *ev = (struct events *)s;

    events_unsubscribe(ev);
    proc_unref(ev->proc);
    free(ev);
}

/* Called by next(): the waker is set by then. */
static int events_subscribe(struct events *ev, struct err *e)
{
    int r;

    if (ev->is_subscribed)
        return 0;
    ev->sub =
        (struct proc_sub){.fn = on_events_change, .arg = ev, .is_lossless = true, .yields = true};
    memcpy(ev->sub.read_to, ev->at, sizeof(ev->at));
    r = proc_subscribe(ev->proc, &ev->sub, e);
    ev->is_subscribed = r == 0;
    ev->wake_ms = 0;
    return r;
}

static int events_give(struct events *ev, json_t *event, json_t **ret_msg, struct err *e)
{
    if (!event)
        return err_oom(e);
    ev->silent_since_ms = clock_mono_ms();
    *ret_msg = event;
    return SOURCE_MESSAGE;
}

/*
 * A client that asked for a replay learns of lost bytes by a field that other clients do not know.
 * Without a replay the client itself was too slow: an error.
 */
static int give_gap(struct events *ev, enum proc_stream s, uint64_t held, json_t **ret_msg,
                    struct err *e)
{
    uint64_t n = held - ev->at[s];
    json_t *event;

    if (!ev->is_replay)
        return err_set(e, ERR_DATA_LOSS,
                       "the client is too slow: %" PRIu64 " bytes of output are gone", n);
    event = process_new_event("keepalive", json_object());
    if (event)
        (void)json_object_set_new(event, "gap",
                                  json_pack("{s:s, s:I}", "stream",
                                            s == PROC_STDOUT ? "stdout" : "stderr", "bytes",
                                            (json_int_t)n));
    ev->at[s] = held;
    return events_give(ev, event, ret_msg, e);
}

static int read_stream(struct events *ev, enum proc_stream s, char *buf, json_t **ret_msg,
                       struct err *e)
{
    struct err why = {0};
    uint64_t held = 0;
    size_t n = 0;
    int r;

    r = proc_read(ev->proc, &ev->sub, s, ev->at[s], buf, PROCESS_CHUNK_BYTES, &n, &held, &why);
    if (r == -ERR_DATA_LOSS)
        return give_gap(ev, s, held, ret_msg, e);
    if (r < 0) {
        *e = why;
        return r;
    }
    if (!n)
        return SOURCE_WAIT;
    ev->at[s] += n;
    return events_give(ev, process_new_data(ev->proc, s, buf, n), ret_msg, e);
}

/* The streams take turns, so that a flood on one does not starve the other. */
static int read_output(struct events *ev, json_t **ret_msg, struct err *e)
{
    _cleanup_free_ char *buf = malloc(PROCESS_CHUNK_BYTES);
    int r = SOURCE_WAIT;

    if (!buf)
        return err_oom(e);
    for (size_t i = 0; i < N_PROC_STREAMS && r == SOURCE_WAIT; i++) {
        enum proc_stream s = ev->next;

        ev->next = s == PROC_STDOUT ? PROC_STDERR : PROC_STDOUT;
        r = read_stream(ev, s, buf, ret_msg, e);
    }
    return r;
}

/* Sends a keepalive if the stream was silent for long enough, else sets the timer for it. */
static int keep_alive(struct events *ev, json_t **ret_msg, struct err *e)
{
    int64_t now = clock_mono_ms(), due = ev->silent_since_ms + ev->keepalive_ms;

    if (now >= due)
        return events_give(ev, process_new_event("keepalive", json_object()), ret_msg, e);
    if (ev->wake_ms <= now) {
        ev->wake_ms = due;
        proc_wake_at(ev->proc, &ev->sub, due);
    }
    return SOURCE_WAIT;
}

/*
 * E2B starts every program by a shell, so a missing program is not an error of the call: a shell
 * reports it and ends with its own exit status.
 */
static int start_by_shell(struct events *ev, struct err *e)
{
    static const char *const shell[] = {"/bin/sh", "-c", "exec \"$@\"", "--"};
    _cleanup_(proc_spec_done) struct proc_spec s = {0};
    struct strv_list argv = {0};
    struct proc *p;
    bool is_new;
    int r = proc_spec_copy(proc_spec(ev->proc), &s, e);

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(shell); i++)
        r = strv_list_add(&argv, shell[i], e);
    for (char **arg = s.argv; r == 0 && *arg; arg++)
        r = strv_list_add(&argv, *arg, e);
    strv_free(s.argv);
    s.argv = argv.v;
    if (r < 0)
        return r;
    r = registry_start(ev->agent->registry, &s, &p, &is_new, e);
    if (r < 0)
        return r;
    events_unsubscribe(ev);
    proc_unref(ev->proc);
    ev->proc = p;
    ev->is_wrapped = true;
    return events_subscribe(ev, e);
}

static int handle_failure(struct events *ev, const struct proc_info *info, struct err *e)
{
    if (!ev->is_wrapped && str_eq(info->error.field, "argv[0]")) {
        int r = start_by_shell(ev, e);

        return r < 0 ? r : SOURCE_WAIT; /* the new subscription wakes */
    }
    return process_start_error(ev->proc, &info->error, e);
}

static int events_next(struct source *source, json_t **ret_msg, struct err *e)
{
    struct events *ev = (struct events *)source;
    struct proc_info info;
    int r;

    if (ev->is_over)
        return SOURCE_END;
    r = events_subscribe(ev, e);
    if (r < 0)
        return r;
    proc_get_info(ev->proc, &info); /* before the output is read: an end found here has all of it */
    if (info.state == PROC_FAILED) {
        r = handle_failure(ev, &info, e);
        if (r < 0)
            return r;
        proc_get_info(ev->proc, &info);
    }
    if (info.state == PROC_STARTING || info.state == PROC_FAILED)
        return SOURCE_WAIT;
    if (!ev->is_started) {
        ev->is_started = true;
        return events_give(
            ev, process_new_event("start", json_pack("{s:I}", "pid", (json_int_t)info.pid)),
            ret_msg, e);
    }
    r = read_output(ev, ret_msg, e);
    if (r != SOURCE_WAIT)
        return r;
    if (info.state != PROC_ENDED)
        return keep_alive(ev, ret_msg, e);
    ev->is_over = true;
    if (ev->is_start && info.reason == REASON_TIMEOUT)
        return e2b_set_late(e);
    return events_give(ev, process_new_end(&info), ret_msg, e);
}

static const struct source_ops events_ops = {.next = events_next, .free = events_free};

static int events_new(const struct rpc_call *call, struct proc *take, struct events **ret,
                      struct err *e)
{
    struct events *ev = calloc(1, sizeof(*ev));

    if (!ev) {
        proc_unref(take);
        return err_oom(e);
    }
    ev->source.ops = &events_ops;
    ev->agent = call->agent;
    ev->proc = take;
    ev->keepalive_ms = e2b_headers(call)->keepalive_ms;
    ev->silent_since_ms = clock_mono_ms();
    *ret = ev;
    return 0;
}

int e2b_process_start(const struct rpc_call *call, struct source **ret, struct err *e)
{
    struct process_request rq = {0};
    struct events *ev;
    struct proc *p;
    bool is_new;
    int r;

    proc_spec_init(&rq.spec);
    r = process_decode_start(call, &rq, e);
    if (r == 0)
        r = registry_start(call->agent->registry, &rq.spec, &p, &is_new, e);
    proc_spec_done(&rq.spec);
    if (r == 0)
        r = events_new(call, p, &ev, e);
    if (r < 0)
        return r;
    ev->is_start = true;
    *ret = &ev->source;
    return 0;
}

int e2b_process_connect(const struct rpc_call *call, struct source **ret, struct err *e)
{
    struct proc_info info;
    struct events *ev;
    struct proc *p;
    int r = process_find_in(call->agent, call->params, true, &p, e);

    if (r == 0)
        r = events_new(call, p, &ev, e);
    if (r < 0)
        return r;
    ev->is_replay = e2b_headers(call)->wants_replay;
    if (!ev->is_replay) {
        proc_get_info(p, &info);
        memcpy(ev->at, info.bytes, sizeof(ev->at));
    }
    *ret = &ev->source;
    return 0;
}
