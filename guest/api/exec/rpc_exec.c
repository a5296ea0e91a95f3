/* The Exec service: JSON to guest/proc and back; guest/proc has the contracts. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/exec/exec_json.h"
#include "api/rpc.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/signals.h"
#include "common/str.h"

/* The requests that name a command. */
struct exec_params {
    const char *id;
    bool output, tree, lossless, between_lines;
    int signal;
    uint32_t cols, rows;
    uint64_t timeout_ms;
    /* of Read: */
    enum proc_stream stream;
    uint64_t from;
    uint32_t max_bytes;
    /* of Attach: */
    uint64_t at[N_PROC_STREAMS];
    /* of Write: */
    const char *writer;
    int64_t offset;
    struct jx_bytes data;
};

#define FIELD(name, member, fn, flags) JX_AS(name, struct exec_params, member, fn, flags)
#define ID_FIELD FIELD("id", id, jx_str, JX_REQUIRED)

static const struct jx_field no_fields[] = {{0}};
static const struct jx_field id_fields[] = {ID_FIELD, {0}};

/* Decodes the request and finds its command; *ret is a reference. */
static int decode_and_get(const struct rpc_call *call, const struct jx_field *fields,
                          struct exec_params *p, struct proc **ret, struct err *e)
{
    int r = jx_decode(call->params, fields, p, e);

    return r < 0 ? r : registry_get(call->agent->registry, p->id, ret, e);
}

/* {"id"}: success. */
static int reply_id(int r, const struct exec_params *p, json_t **ret, struct err *e)
{
    return r < 0 ? r : rpc_reply_take(json_pack("{s:s}", "id", p->id), ret, e);
}

/* ---- Read ---- */

static const struct jx_field read_fields[] = {
    ID_FIELD,
    FIELD("stream", stream, exec_jx_stream, JX_NULLABLE),
    FIELD("offset", from, jx_u64, JX_NULLABLE),
    FIELD("max_bytes", max_bytes, jx_u32, JX_NULLABLE),
    {0},
};

int rpc_exec_read(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct exec_params p = {.max_bytes = EXEC_CHUNK_BYTES};
    _cleanup_proc_ struct proc *proc = NULL;
    _cleanup_free_ char *buf = NULL;
    _cleanup_json_ json_t *obj = NULL;
    struct proc_info info;
    uint64_t held;
    size_t n, max;
    int r;

    r = decode_and_get(call, read_fields, &p, &proc, e);
    if (r < 0)
        return r;
    max = p.max_bytes < EXEC_CHUNK_BYTES ? p.max_bytes : EXEC_CHUNK_BYTES;
    buf = malloc(max + 1);
    if (!buf)
        return err_oom(e);
    proc_get_info(proc, &info); /* before the read: an end found here has all the bytes */
    r = proc_read(proc, NULL, p.stream, p.from, buf, max, &n, &held, e);
    if (r == -ERR_DATA_LOSS)
        return err_detail_u64(e, r, "first_held", held);
    if (r < 0)
        return r;
    obj = json_pack("{s:s, s:s, s:I, s:I, s:b}", "id", p.id, "stream", exec_stream_name(p.stream),
                    "offset", (json_int_t)p.from, "next_offset", (json_int_t)(p.from + n), "eof",
                    info.is_eof[p.stream] && p.from + n >= info.bytes[p.stream]);
    if (!obj)
        return err_oom(e);
    r = jx_add_bytes(obj, buf, n, e);
    return r < 0 ? r : rpc_reply_take(json_incref(obj), ret, e);
}

/* ---- CloseStdin, Resize, Forget, Signal ---- */

int rpc_exec_close_stdin(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_proc_ struct proc *proc = NULL;
    struct exec_params p = {0};
    int r = decode_and_get(call, id_fields, &p, &proc, e);

    return reply_id(r < 0 ? r : proc_close_stdin(proc, e), &p, ret, e);
}

static const struct jx_field resize_fields[] = {
    ID_FIELD,
    FIELD("cols", cols, jx_u32, JX_REQUIRED),
    FIELD("rows", rows, jx_u32, JX_REQUIRED),
    {0},
};

int rpc_exec_resize(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_proc_ struct proc *proc = NULL;
    struct exec_params p = {0};
    int r = decode_and_get(call, resize_fields, &p, &proc, e);

    return reply_id(r < 0 ? r : proc_resize(proc, p.cols, p.rows, e), &p, ret, e);
}

int rpc_exec_forget(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct exec_params p = {0};
    int r = jx_decode(call->params, id_fields, &p, e);

    return reply_id(r < 0 ? r : registry_forget(call->agent->registry, p.id, e), &p, ret, e);
}

static int jx_signal(json_t *v, void *out, struct err *e)
{
    int r;

    if (json_is_string(v))
        return signal_parse(json_string_value(v), out, e);
    if (!json_is_integer(v))
        return err_set(e, ERR_INVALID, "must be a signal's name or number");
    r = signal_check(json_integer_value(v), e);
    if (r == 0)
        *(int *)out = (int)json_integer_value(v);
    return r;
}

static const struct jx_field signal_fields[] = {
    ID_FIELD,
    FIELD("signal", signal, jx_signal, JX_REQUIRED),
    FIELD("tree", tree, jx_bool, JX_NULLABLE),
    {0},
};

int rpc_exec_signal(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_proc_ struct proc *proc = NULL;
    struct exec_params p = {0};
    int r = decode_and_get(call, signal_fields, &p, &proc, e);

    return reply_id(r < 0 ? r : proc_signal(proc, p.signal, p.tree, e), &p, ret, e);
}

/* ---- Get, List ---- */

static const struct jx_field get_fields[] = {
    ID_FIELD,
    FIELD("output", output, jx_bool, JX_NULLABLE),
    {0},
};

int rpc_exec_get(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *obj = NULL;
    _cleanup_proc_ struct proc *proc = NULL;
    struct exec_params p = {0};
    int r = decode_and_get(call, get_fields, &p, &proc, e);

    if (r == 0)
        r = exec_new_state(proc, p.output, &obj, e);
    return r < 0 ? r : rpc_reply_take(json_incref(obj), ret, e);
}

int rpc_exec_list(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *list = json_array();
    struct proc **all = NULL;
    size_t n = 0;
    int r;

    r = list ? jx_decode(call->params, no_fields, NULL, e) : err_oom(e);
    if (r == 0)
        r = registry_list(call->agent->registry, &all, &n, e);
    for (size_t i = 0; i < n; i++) {
        json_t *obj = NULL;

        if (r == 0)
            r = exec_new_state(all[i], false, &obj, e);
        if (r == 0 && json_array_append_new(list, obj) < 0)
            r = err_oom(e);
        proc_unref(all[i]);
    }
    free(all);
    return r < 0 ? r : rpc_reply_take(json_pack("{s:O}", "commands", list), ret, e);
}

/* ==== the methods that answer over time ==== */

/*
 * Each source holds a reference to its command and subscribes to its changes, which arrive with the
 * command's lock held; it unsubscribes before it is freed.
 */
struct exec_source {
    struct source source; /* first: the server has a pointer to it */
    struct proc *proc;    /* a reference */
    struct proc_sub sub;
    bool is_subscribed;
    bool is_owner;   /* proc_disown() at the end */
    bool is_over;    /* the last message has been returned */
    bool has_output; /* the result contains the bytes of the output */
    int64_t deadline_ms;
    /* of a stream: */
    bool is_started;
    uint64_t at[N_PROC_STREAMS];
    enum proc_stream next;
    /* of a write: */
    struct jx_bytes data;
    char writer[PROC_WRITER_MOST + 1]; /* or empty */
    int64_t offset;
    bool between_lines;
    bool is_queued;
    struct proc_written written;
};

static int source_new(const struct source_ops *ops, struct proc *take, struct exec_source **ret,
                      struct err *e)
{
    struct exec_source *es = calloc(1, sizeof(*es));

    if (!es) {
        proc_unref(take);
        return err_oom(e);
    }
    es->source.ops = ops;
    es->proc = take;
    es->sub.fn = source_wake;
    es->sub.arg = es;
    *ret = es;
    return 0;
}

static void exec_source_free(struct source *s)
{
    struct exec_source *es = (struct exec_source *)s;

    if (es->is_subscribed && !es->is_over)
        proc_leave(es->proc, &es->sub);
    else if (es->is_subscribed)
        proc_unsubscribe(es->proc, &es->sub);
    if (es->is_owner)
        proc_disown(es->proc);
    proc_unref(es->proc);
    jx_bytes_done(&es->data);
    free(es);
}

/*
 * The start of each next(): 0 when the command is there, with its state in *info; else what next()
 * returns. It subscribes at the first call: the waker is set by then.
 */
static int source_look(struct exec_source *es, struct proc_info *info, struct err *e)
{
    if (es->is_over)
        return SOURCE_END;
    if (!es->is_subscribed) {
        int r;

        es->sub.deadline_ms = es->deadline_ms;
        memcpy(es->sub.read_to, es->at, sizeof(es->at));
        r = proc_subscribe(es->proc, &es->sub, e);
        if (r < 0)
            return r;
        es->is_subscribed = true;
    }
    proc_get_info(es->proc, info); /* before the output is read: an end found here has all of it */
    if (info->state != PROC_FAILED)
        return 0;
    if (e)
        *e = info->error;
    return -info->error.code;
}

static int check_deadline(const struct exec_source *es, const char *what, struct err *e)
{
    if (es->deadline_ms && clock_mono_ms() >= es->deadline_ms)
        return err_set(e, ERR_DEADLINE, "'%s' %s", proc_id(es->proc), what);
    return SOURCE_WAIT;
}

/* 0: no deadline, also for a timeout that would overflow. */
static int64_t deadline_in(uint64_t timeout_ms)
{
    if (timeout_ms == 0 || timeout_ms > INT64_MAX / 2)
        return 0;
    return clock_mono_ms() + (int64_t)timeout_ms;
}

/* ---- Run and Wait: one object at the end ---- */

static int result_next(struct source *s, json_t **ret_msg, struct err *e)
{
    struct exec_source *es = (struct exec_source *)s;
    struct proc_info info;
    int r = source_look(es, &info, e);

    if (r != 0)
        return r;
    if (info.state != PROC_ENDED)
        return check_deadline(es, "is still running", e);
    r = exec_new_result(es->proc, es->has_output, ret_msg, e);
    if (r < 0)
        return r;
    es->is_over = true;
    return SOURCE_MESSAGE;
}

static const struct source_ops result_ops = {.next = result_next, .free = exec_source_free};

static const struct jx_field wait_fields[] = {
    ID_FIELD,
    FIELD("timeout_ms", timeout_ms, jx_u64, JX_NULLABLE),
    {0},
};

int rpc_exec_wait(const struct rpc_call *call, struct source **ret, struct err *e)
{
    struct exec_params p = {0};
    struct exec_source *es;
    struct proc *proc;
    int r = decode_and_get(call, wait_fields, &p, &proc, e);

    if (r == 0)
        r = source_new(&result_ops, proc, &es, e);
    if (r < 0)
        return r;
    es->sub.is_end_only = true;
    es->deadline_ms = deadline_in(p.timeout_ms);
    *ret = &es->source;
    return 0;
}

/* ---- Start and Attach: output as it comes ---- */

/* Reports bytes that a slow reader has lost; it continues after the gap. */
static int new_gap(struct exec_source *es, enum proc_stream s, uint64_t first_held,
                   json_t **ret_msg, struct err *e)
{
    uint64_t from = es->at[s];

    es->at[s] = first_held;
    return source_message_take(json_pack("{s:{s:s, s:I, s:I}}", "gap", "stream",
                                         exec_stream_name(s), "offset", (json_int_t)from, "bytes",
                                         (json_int_t)(first_held - from)),
                               ret_msg, e);
}

static int new_data(struct exec_source *es, enum proc_stream s, const char *data, size_t len,
                    json_t **ret_msg, struct err *e)
{
    json_t *obj =
        json_pack("{s:s, s:I}", "stream", exec_stream_name(s), "offset", (json_int_t)es->at[s]);

    if (obj && jx_add_bytes(obj, data, len, e) < 0) {
        json_decref(obj);
        obj = NULL;
    }
    es->at[s] += len;
    return source_message_take(json_pack("{s:o}", "data", obj), ret_msg, e);
}

/* Text is cut between characters, unless it is the end of the output. */
static size_t count_whole_characters(const struct proc_info *info, enum proc_stream s,
                                     const char *data, size_t len)
{
    bool is_last = info->state == PROC_ENDED || info->is_eof[s];
    size_t whole = str_utf8_whole(data, len);

    return is_last && len < EXEC_CHUNK_BYTES ? len : whole;
}

static int stream_read(struct exec_source *es, const struct proc_info *info, enum proc_stream s,
                       char *buf, json_t **ret_msg, struct err *e)
{
    struct err why = {0};
    uint64_t held = 0;
    size_t n = 0;
    int r;

    r = proc_read(es->proc, &es->sub, s, es->at[s], buf, EXEC_CHUNK_BYTES, &n, &held, &why);
    if (r == -ERR_DATA_LOSS)
        return new_gap(es, s, held, ret_msg, e);
    if (r < 0) {
        *e = why;
        return r;
    }
    n = count_whole_characters(info, s, buf, n);
    return n > 0 ? new_data(es, s, buf, n, ret_msg, e) : SOURCE_WAIT;
}

/* The streams take turns, so that a flood on one does not starve the other. */
static int stream_output(struct exec_source *es, const struct proc_info *info, json_t **ret_msg,
                         struct err *e)
{
    _cleanup_free_ char *buf = malloc(EXEC_CHUNK_BYTES);
    int r = SOURCE_WAIT;

    if (!buf)
        return err_oom(e);
    for (size_t i = 0; i < N_PROC_STREAMS && r == SOURCE_WAIT; i++) {
        enum proc_stream s = es->next;

        es->next = s == PROC_STDOUT ? PROC_STDERR : PROC_STDOUT;
        r = stream_read(es, info, s, buf, ret_msg, e);
    }
    return r;
}

static int stream_next(struct source *source, json_t **ret_msg, struct err *e)
{
    struct exec_source *es = (struct exec_source *)source;
    struct proc_info info;
    json_t *end;
    int r = source_look(es, &info, e);

    if (r != 0 || info.state == PROC_STARTING)
        return r;
    if (!es->is_started) {
        es->is_started = true;
        return source_message_take(json_pack("{s:{s:s, s:I}}", "start", "id", proc_id(es->proc),
                                             "pid", (json_int_t)info.pid),
                                   ret_msg, e);
    }
    r = stream_output(es, &info, ret_msg, e);
    if (r != SOURCE_WAIT || info.state != PROC_ENDED)
        return r;
    r = exec_new_result(es->proc, false, &end, e);
    if (r < 0)
        return r;
    es->is_over = true;
    return source_message_take(json_pack("{s:o}", "end", end), ret_msg, e);
}

static const struct source_ops stream_ops = {.next = stream_next, .free = exec_source_free};

static void exec_request_done(struct exec_request *rq)
{
    proc_spec_done(&rq->spec);
}

static int start_command(const struct rpc_call *call, bool is_run, struct source **ret,
                         struct err *e)
{
    _cleanup_(exec_request_done) struct exec_request rq = {0};
    struct exec_source *es;
    struct proc *p;
    bool is_new;
    int r;

    proc_spec_init(&rq.spec);
    rq.spec.cancel_on_leave = is_run;
    r = exec_decode_request(call->params, call->agent, &rq, e);
    if (r == 0 && is_run && rq.is_lossless)
        r = err_field(e, ERR_INVALID, "lossless", "field 'lossless' is for streams");
    if (r == 0)
        r = registry_start(call->agent->registry, &rq.spec, &p, &is_new, e);
    if (r < 0)
        return r;
    if (is_run)
        proc_own(p);
    else
        proc_detach(p);
    r = source_new(is_run ? &result_ops : &stream_ops, p, &es, e);
    if (r < 0)
        return r;
    es->sub.is_lossless = rq.is_lossless;
    es->sub.is_end_only = es->is_owner = es->has_output = is_run;
    *ret = &es->source;
    return 0;
}

int rpc_exec_run(const struct rpc_call *call, struct source **ret, struct err *e)
{
    return start_command(call, true, ret, e);
}

int rpc_exec_start(const struct rpc_call *call, struct source **ret, struct err *e)
{
    return start_command(call, false, ret, e);
}

static const struct jx_field attach_fields[] = {
    ID_FIELD,
    FIELD("stdout_offset", at[PROC_STDOUT], jx_u64, JX_NULLABLE),
    FIELD("stderr_offset", at[PROC_STDERR], jx_u64, JX_NULLABLE),
    FIELD("lossless", lossless, jx_bool, JX_NULLABLE),
    {0},
};

/*
 * Bytes that are gone before the reader attaches are an error; bytes that go while it reads are a
 * gap.
 */
static int check_offsets(struct proc *p, const uint64_t at[N_PROC_STREAMS], struct err *e)
{
    static const char *const fields[] = {"stdout_offset", "stderr_offset"};
    int r = 0;

    for (size_t s = 0; r == 0 && s < N_PROC_STREAMS; s++) {
        struct err why = {0};
        uint64_t held;
        size_t n;
        char byte;

        r = proc_read(p, NULL, (enum proc_stream)s, at[s], &byte, 0, &n, &held, &why);
        if (r < 0)
            (void)err_field(e, (enum err_code) - r, fields[s], "%s", why.message);
        if (r == -ERR_DATA_LOSS)
            (void)err_detail_u64(e, r, "first_held", held);
    }
    return r;
}

int rpc_exec_attach(const struct rpc_call *call, struct source **ret, struct err *e)
{
    _cleanup_proc_ struct proc *proc = NULL;
    struct exec_params p = {0};
    struct exec_source *es;
    int r = decode_and_get(call, attach_fields, &p, &proc, e);

    if (r == 0)
        r = check_offsets(proc, p.at, e);
    if (r == 0)
        r = source_new(&stream_ops, TAKE(proc), &es, e);
    if (r < 0)
        return r;
    es->sub.is_lossless = p.lossless;
    memcpy(es->at, p.at, sizeof(p.at));
    *ret = &es->source;
    return 0;
}

/* ---- Write: answers when the bytes are in the pipe or terminal ---- */

static int jx_offset(json_t *v, void *out, struct err *e)
{
    if (json_is_integer(v) && json_integer_value(v) < 0)
        return err_set(e, ERR_INVALID, "must not be negative");
    return jx_i64(v, out, e);
}

static const struct jx_field write_fields[] = {
    ID_FIELD,
    FIELD("writer", writer, jx_str, JX_NULLABLE),
    FIELD("offset", offset, jx_offset, JX_NULLABLE),
    FIELD("data", data, jx_bytes, JX_REQUIRED),
    FIELD("timeout_ms", timeout_ms, jx_u64, JX_NULLABLE),
    FIELD("between_lines", between_lines, jx_bool, JX_NULLABLE),
    {0},
};

static bool is_writer_name(const char *s)
{
    size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-");

    return n > 0 && n <= PROC_WRITER_MOST && !s[n];
}

/* between_lines adds whole lines that no offset counts, while no other line is incomplete. */
static int check_write(const struct exec_params *w, struct err *e)
{
    if (w->writer && !is_writer_name(w->writer))
        return err_field(e, ERR_INVALID, "writer",
                         "writer is not 1 to %d of A-Z, a-z, 0-9, '_', '.' and '-'",
                         PROC_WRITER_MOST);
    if (!w->between_lines)
        return 0;
    if (w->writer)
        return err_field(e, ERR_INVALID, "writer", "writer and between_lines exclude each other");
    if (w->offset >= 0)
        return err_field(e, ERR_INVALID, "offset", "offset and between_lines exclude each other");
    if (!w->data.len || w->data.data[w->data.len - 1] != '\n')
        return err_field(e, ERR_INVALID, "data",
                         "with between_lines data must end with a line feed");
    return 0;
}

static int write_queue(struct exec_source *es, struct err *e)
{
    struct err why = {0};
    int r;

    if (es->is_queued)
        return 0;
    if (es->between_lines)
        r = proc_write_between_lines(es->proc, es->data.data, es->data.len, &es->written, &why);
    else
        r = proc_write(es->proc, *es->writer ? es->writer : NULL, es->offset, es->data.data,
                       es->data.len, &es->written, &why);
    if (r == -ERR_UNAVAILABLE)
        return check_deadline(es, "does not read its stdin", e);
    if (r < 0) {
        *e = why;
        return r;
    }
    es->is_queued = true;
    jx_bytes_done(&es->data);
    return 0;
}

static int write_next(struct source *source, json_t **ret_msg, struct err *e)
{
    struct exec_source *es = (struct exec_source *)source;
    struct proc_info info;
    int r = source_look(es, &info, e);

    if (r != 0)
        return r;
    if (info.state == PROC_STARTING)
        return check_deadline(es, "is still being started", e);
    r = write_queue(es, e);
    if (r < 0 || !es->is_queued)
        return r;
    proc_get_info(es->proc, &info);
    if (info.stdin_written >= es->written.end) {
        es->is_over = true;
        return source_message_take(json_pack("{s:s, s:I}", "id", proc_id(es->proc), "offset",
                                             (json_int_t)es->written.offset),
                                   ret_msg, e);
    }
    if (!info.is_stdin_open)
        return err_field(e, ERR_PRECONDITION, "id", "'%s' closed its stdin after %" PRIu64 " bytes",
                         proc_id(es->proc), info.stdin_written);
    return check_deadline(es, "does not read its stdin", e);
}

static const struct source_ops write_ops = {.next = write_next, .free = exec_source_free};

int rpc_exec_write(const struct rpc_call *call, struct source **ret, struct err *e)
{
    struct exec_params p = {.offset = -1};
    struct exec_source *es;
    struct proc *proc;
    int r = jx_decode(call->params, write_fields, &p, e);

    if (r == 0)
        r = check_write(&p, e);
    if (r == 0)
        r = registry_get(call->agent->registry, p.id, &proc, e);
    if (r == 0)
        r = source_new(&write_ops, proc, &es, e);
    if (r < 0) {
        jx_bytes_done(&p.data);
        return r;
    }
    es->data = p.data;
    (void)snprintf(es->writer, sizeof(es->writer), "%s", p.writer ? p.writer : "");
    es->offset = p.offset;
    es->between_lines = p.between_lines;
    es->deadline_ms = deadline_in(p.timeout_ms);
    *ret = &es->source;
    return 0;
}
