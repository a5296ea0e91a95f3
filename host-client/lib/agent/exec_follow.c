/*
 * exec_follow: the output of a command by offset. After a broken connection the stream resumes at
 * the handle's offsets, so no byte is lost or delivered twice. A start is repeated with the same
 * id, under which the agent starts one command.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/agent/exec.h"
#include "lib/util/socket.h"

/* ---- input: by offset too, so that bytes accepted before a break are not written twice ---- */

#define PTY_EOF "\004"

/*
 * After a failed request that has one effect however often it arrives. True: it may succeed now. EXEC_RETRIES, of
 * which the last pauses take EXEC_RETRY_MOST_MS, are a quarter of a minute.
 */
static bool wait_to_repeat(int *r, unsigned *n_failures, int64_t deadline_mono_ms, int cancel_fd,
                           struct err *e)
{
    int left = clock_until_ms(deadline_mono_ms);
    int ms = EXEC_RETRY_MS;

    if (*r != -ERR_UNAVAILABLE && *r != -ERR_EXHAUSTED && *r != -ERR_DATA_LOSS &&
        *r != -ERR_INTERNAL && (*r != -ERR_DEADLINE || deadline_mono_ms))
        return false;
    for (unsigned i = 0; i < *n_failures && ms < EXEC_RETRY_MOST_MS; i++)
        ms *= 2;
    if (++*n_failures >= EXEC_RETRIES || (left >= 0 && left <= ms))
        return false;
    if (!socket_wait_canceled(cancel_fd, ms))
        return true;
    *r = err_set(e, ERR_CANCELED, "canceled");
    return false;
}

int exec_input_new(struct exec_input *in, struct err *e)
{
    *in = (struct exec_input){0};
    return io_random_hex(8, in->writer, e);
}

/* FNV-1a of the data and its length; not 0. */
static uint64_t hash_data(const char *data, size_t len)
{
    uint64_t h = 14695981039346656037u ^ len;

    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)data[i]) * 1099511628211u;
    return h ? h : 1;
}

static int write_piece(struct bh_exec *exec, struct exec_input *in, struct client *c,
                       const char *data, size_t len, int64_t deadline_mono_ms, int cancel_fd,
                       struct err *e)
{
    _cleanup_json_ json_t *params =
        json_pack("{s:s, s:s, s:I, s:o}", "id", exec->id, "writer", in->writer, "offset",
                  (json_int_t)in->written, "data", jx_new_bytes(data, len));
    unsigned n_failures = 0;
    int r;

    if (!params)
        return err_oom(e);
    do {
        int left = clock_until_ms(deadline_mono_ms);

        if (deadline_mono_ms > 0)
            (void)json_object_set_new(params, "timeout_ms", json_integer(left > 0 ? left : 1));
        r = client_call(c, RPC_exec_write, params,
                        deadline_mono_ms > 0 ? deadline_mono_ms + EXEC_GRACE_MS : 0, NULL, e);
    } while (r < 0 && wait_to_repeat(&r, &n_failures, deadline_mono_ms, cancel_fd, e));
    if (r == -ERR_INVALID && e && str_eq(e->field, "writer")) {
        /* An agent that was started before an update knows no writers: it takes the bytes once, without an offset. */
        (void)json_object_del(params, "writer");
        (void)json_object_del(params, "offset");
        r = client_call(c, RPC_exec_write, params,
                        deadline_mono_ms > 0 ? deadline_mono_ms + EXEC_GRACE_MS : 0, NULL, e);
    }
    if (r == 0)
        in->written += len;
    return r;
}

/* After a write that failed, only its own data is compared with what has arrived: other data comes under a new name. */
static int settle_failed(struct exec_input *in, uint64_t hash, struct err *e)
{
    return in->failed_hash && in->failed_hash != hash ? exec_input_new(in, e) : 0;
}

int exec_write(struct bh_exec *exec, struct exec_input *in, struct client *c, const char *data,
               size_t len, int64_t deadline_mono_ms, int cancel_fd, struct err *e)
{
    uint64_t hash = hash_data(data, len), begin;
    bool is_repeated = in->failed_hash == hash;
    int r = settle_failed(in, hash, e);

    begin = in->written;
    for (size_t done = 0; r == 0 && done < len;) {
        size_t n = len - done < EXEC_PIECE_BYTES ? len - done : EXEC_PIECE_BYTES;

        r = write_piece(exec, in, c, data + done, n, deadline_mono_ms, cancel_fd, e);
        if (r == -ERR_RANGE && done == 0 && begin && !is_repeated) {
            /* So many others have written since that the agent has forgotten this one. */
            begin = 0;
            r = exec_input_new(in, e);
            continue;
        }
        done += n;
    }
    in->failed_hash = r < 0 ? hash : 0;
    if (r < 0)
        in->written = begin;
    return r;
}

struct exec_pump {
    struct bh_exec *exec;
    struct client *client; /* canceled by stop_fd */
    pthread_t thread;
    bool is_running;
    int fd;
    int stop_fd;
    int failed; /* the thread's, until it is joined */
    struct err why;
};

static int send_input(struct exec_pump *p, const char *data, size_t len, struct err *e)
{
    return exec_write(p->exec, &p->exec->pumped, p->client, data, len, 0, p->stop_fd, e);
}

/* The agent writes a terminal's end of input as a byte, which CloseStdin repeated would write twice. */
static int end_input(struct exec_pump *p, struct err *e)
{
    _cleanup_json_ json_t *params = json_pack("{s:s}", "id", p->exec->id);
    unsigned n_failures = 0;
    int r;

    if (p->exec->is_pty)
        return send_input(p, PTY_EOF, strlen(PTY_EOF), e);
    if (!params)
        return err_oom(e);
    do
        r = client_call(p->client, RPC_exec_close_stdin, params, clock_mono_ms() + EXEC_CALL_MS,
                        NULL, e);
    while (r < 0 && wait_to_repeat(&r, &n_failures, 0, p->stop_fd, e));
    return r;
}

/* Data that an earlier follow had read comes before what the descriptor has. */
static int send_unsent(struct exec_pump *p, struct err *e)
{
    int r = p->exec->unsent_len ? send_input(p, p->exec->unsent, p->exec->unsent_len, e) : 0;

    if (r == 0)
        p->exec->unsent_len = 0;
    return r;
}

static int copy_input(struct exec_pump *p, struct err *e)
{
    int r = 0;

    if (!p->exec->unsent && !(p->exec->unsent = malloc(EXEC_PIECE_BYTES)))
        return err_oom(e);
    while ((r = send_unsent(p, e)) == 0 && (r = socket_wait(p->fd, false, p->stop_fd, 0, e)) == 0) {
        ssize_t n = read(p->fd, p->exec->unsent, EXEC_PIECE_BYTES);

        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0) {
            r = err_sys(e, errno,
                        "read"); /* not the end: the command would take a part for the whole */
            return isatty(p->fd) ? end_input(p, e) : r;
        }
        if (n == 0)
            return end_input(p, e);
        p->exec->unsent_len = (size_t)n;
    }
    return r;
}

/* If the agent says that the command takes no more input, or is not there any more, its end tells why. */
static void *pump_main(void *arg)
{
    struct exec_pump *p = arg;
    int r = copy_input(p, &p->why);

    if (r < 0 && r != -ERR_CANCELED &&
        ((r != -ERR_PRECONDITION && r != -ERR_NOT_FOUND) || p->why.sys)) {
        p->failed = err_wrap(&p->why, r, "the input of '%s'", p->exec->id);
        (void)eventfd_write(p->exec->input_failed_fd, 1);
    }
    return NULL;
}

/* Accepts NULL. Returns the follow's result, or the failure of the input that has ended the follow. */
static int exec_pump_stop(struct exec_pump *p, int r, struct err *e)
{
    eventfd_t ignored;

    if (!p)
        return r;
    if (p->is_running) {
        (void)eventfd_write(p->stop_fd, 1);
        (void)pthread_join(p->thread, NULL);
    }
    if (p->failed < 0)
        (void)eventfd_read(p->exec->input_failed_fd,
                           &ignored); /* the next follow is not canceled */
    if (p->failed < 0 && r == -ERR_CANCELED) {
        p->exec->is_input_lost = true;
        r = p->failed;
        if (e)
            *e = p->why;
    }
    (void)client_free(p->client);
    fd_close(p->stop_fd);
    free(p);
    return r;
}

/* Copies a descriptor to the command's input. */
static int exec_pump_start(struct bh_exec *exec, int fd, struct exec_pump **ret, struct err *e)
{
    struct exec_pump *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return err_oom(e);
    p->exec = exec;
    p->fd = fd;
    p->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = p->stop_fd < 0 ? err_sys(e, errno, "eventfd") : 0;
    if (r == 0)
        r = agent_ops(exec->box)->new_client(exec->box, p->stop_fd, &p->client, e);
    if (r == 0) {
        int failed = pthread_create(&p->thread, NULL, pump_main, p);

        p->is_running = failed == 0;
        r = failed ? err_sys(e, failed, "start a thread") : 0;
    }
    if (r < 0)
        return exec_pump_stop(p, r, e);
    *ret = p;
    return 0;
}

/* ---- output ---- */

struct follow {
    struct bh_exec *exec;
    const struct bh_follow_options *opts;
    struct bh_run_result *result;
    struct exec_pump *pump;
    int64_t deadline_mono_ms;
    bool until_started; /* return once the command has started */
    bool is_done;       /* the end has come; with until_started: the start */
    unsigned n_failures;
    int64_t failing_since_ms; /* clock_mono_ms() of the first of them */
    int failed;
    struct err why; /* error of a message */
};

/* ---- messages ---- */

static int give_output(struct follow *f, int stream, const char *data, size_t len, struct err *e)
{
    f->exec->offset[stream] += len;
    if (len == 0 || !f->opts->output || f->opts->output(f->opts->arg, stream, data, len) == 0)
        return 0;
    return err_set(e, ERR_CANCELED, "canceled by the output function");
}

static int take_data(struct follow *f, int stream, json_t *msg, struct err *e)
{
    struct jx_bytes data = {0};
    int r = reply_bytes(msg, &data, e);

    if (r == 0)
        r = give_output(f, stream, data.data, data.len, e);
    jx_bytes_done(&data);
    return r;
}

static int stream_of(json_t *data)
{
    return str_eq(json_string_value(json_object_get(data, "stream")), "stderr") ? 2 : 1;
}

/* The agent dropped these bytes: advances the offset and reports the gap. */
static void skip_lost(struct follow *f, int stream, uint64_t bytes)
{
    f->exec->offset[stream] += bytes;
    f->result->lost_bytes += bytes;
    if (bytes && f->opts->gap)
        f->opts->gap(f->opts->arg, stream, bytes);
}

static void take_start(struct follow *f, json_t *start)
{
    struct bh_exec *exec = f->exec;

    exec->is_started = true;
    exec->pid = (int)json_integer_value(json_object_get(start, "pid"));
    f->is_done = f->until_started;
    if (f->opts->stdin_fd >= 0 && !f->until_started && !f->pump)
        f->failed = exec_pump_start(exec, f->opts->stdin_fd, &f->pump, &f->why);
}

static int take_follow_message(void *arg, json_t *msg)
{
    struct follow *f = arg;
    json_t *v;

    /* A repeated start is no progress: an agent that breaks off right after it would be retried for
     * ever. */
    if (!f->exec->is_started || !json_object_get(msg, "start"))
        f->n_failures = 0;
    if (!f->exec->is_started && (json_object_get(msg, "data") || json_object_get(msg, "gap"))) {
        f->failed = err_set(&f->why, ERR_DATA_LOSS, "the guest agent sent output before its start");
    } else if ((v = json_object_get(msg, "start"))) {
        take_start(f, v);
    } else if ((v = json_object_get(msg, "data"))) {
        f->failed = take_data(f, stream_of(v), v, &f->why);
    } else if ((v = json_object_get(msg, "gap"))) {
        skip_lost(f, stream_of(v), (uint64_t)json_integer_value(json_object_get(v, "bytes")));
    } else if ((v = json_object_get(msg, "end"))) {
        exec_read_result(v, f->result);
        f->is_done = true;
    }
    return f->failed < 0 || (f->is_done && f->until_started);
}

/* ---- connections ---- */

static json_t *new_attach(const struct follow *f)
{
    return json_pack("{s:s, s:I, s:I, s:b}", "id", f->exec->id, "stdout_offset",
                     (json_int_t)f->exec->offset[1], "stderr_offset",
                     (json_int_t)f->exec->offset[2], "lossless", f->opts->lossless);
}

/* One connection: starts the command, or attaches at the offsets. */
static int follow_once(struct follow *f, struct err *e)
{
    struct bh_exec *exec = f->exec;
    bool starts = exec->request && !exec->is_started;
    _cleanup_json_ json_t *params = starts ? json_incref(exec->request) : new_attach(f);
    int r = params ? client_stream(exec->stream, starts ? RPC_exec_start : RPC_exec_attach, params,
                                   f->deadline_mono_ms, take_follow_message, f, e)
                   : err_oom(e);

    if (f->failed < 0) {
        if (e)
            *e = f->why;
        return f->failed;
    }
    return f->is_done ? 0 : r;
}

/* The first byte that the agent still keeps, as its error says; if it does not say, the byte after
 * the last. 0: not known. */
static uint64_t first_held(struct follow *f, const struct err *told, const char *name)
{
    _cleanup_json_ json_t *params = NULL;
    _cleanup_json_ json_t *state = NULL;
    uint64_t first = 0;

    if (str_eq(told->detail_name, "first_held") &&
        str_parse_u64(told->detail, 0, UINT64_MAX, &first, NULL) == 0)
        return first;
    params = json_pack("{s:s}", "id", f->exec->id);
    if (client_call(f->exec->calls, RPC_exec_get, params, 0, &state, NULL) < 0)
        return 0;
    return (uint64_t)json_integer_value(json_object_get(json_object_get(state, name), "bytes"));
}

/* The agent dropped the bytes at the offsets, since newer commands used up the budget: continues
 * at the first byte that it keeps. */
static int skip_forgotten(struct follow *f, const struct err *told)
{
    static const char *const fields[] = {NULL, "stdout_offset", "stderr_offset"};
    static const char *const names[] = {NULL, "stdout", "stderr"};

    for (int s = 1; s <= 2; s++) {
        uint64_t first;

        if (!str_eq(told->field, fields[s]))
            continue;
        first = first_held(f, told, names[s]);
        if (first <= f->exec->offset[s])
            return -ERR_DATA_LOSS;
        skip_lost(f, s, first - f->exec->offset[s]);
        return 0;
    }
    return -ERR_DATA_LOSS;
}

/* 0: retry. */
static int after_failure(struct follow *f, int r, struct err *e)
{
    int gone;

    if (f->failed < 0)
        return r;
    if (f->n_failures == 0)
        f->failing_since_ms = clock_mono_ms();
    if (r == -ERR_DEADLINE && clock_until_ms(f->deadline_mono_ms) == 0)
        return err_set(e, ERR_DEADLINE, "'%s' is still running", f->exec->id);
    if (r == -ERR_DEADLINE) { /* a silent agent has cost a whole timeout: retry once */
        f->n_failures += EXEC_RETRIES / 2;
        r = -ERR_UNAVAILABLE;
        e->code = ERR_UNAVAILABLE;
    }
    if (r == -ERR_DATA_LOSS && f->exec->is_started && e->field[0] && skip_forgotten(f, e) == 0)
        return 0;
    if (r != -ERR_UNAVAILABLE && r != -ERR_DATA_LOSS && r != -ERR_NOT_FOUND &&
        !(r == -ERR_EXHAUSTED && f->exec->is_started)) /* a busy agent: the command runs on */
        return r;
    gone = agent_ops(f->exec->box)->check_gone(f->exec->box, f->exec->mark, e);
    if (gone < 0)
        return gone;
    if (r == -ERR_NOT_FOUND || ++f->n_failures > EXEC_RETRIES ||
        clock_mono_ms() - f->failing_since_ms > EXEC_FAILING_MS)
        return r;
    /* The first retry is immediate: the agent keeps output for a bounded number of bytes. */
    if (socket_wait_canceled(f->exec->stop_fd, f->n_failures > 1 ? EXEC_RETRY_MS : 0))
        return err_set(e, ERR_CANCELED, "canceled");
    return 0;
}

static int follow_all(struct follow *f, struct err *e)
{
    struct err told = {0};

    for (;;) {
        int r = follow_once(f, &told);

        if (r == 0)
            return 0;
        r = after_failure(f, r, &told);
        /* The agent was replaced: the end of the command is unknown. */
        if (r == -ERR_NOT_FOUND && f->exec->is_started && f->exec->request) {
            (void)snprintf(f->result->reason, sizeof(f->result->reason), "lost");
            return 0;
        }
        if (r < 0) {
            if (e)
                *e = told;
            return r;
        }
    }
}

int exec_follow(struct bh_exec *exec, const struct bh_follow_options *opts,
                struct bh_run_result *ret, struct err *e)
{
    struct bh_run_result result = {.size = sizeof(result)};
    struct follow f = {.exec = exec,
                       .opts = opts,
                       .result = &result,
                       .deadline_mono_ms = agent_deadline(opts->timeout_ms)};
    int r = follow_all(&f, e);

    r = exec_pump_stop(f.pump, r, e);
    if (r < 0)
        return r;
    (void)snprintf(result.id, sizeof(result.id), "%s", exec->id);
    result.pid = exec->pid;
    *ret = result;
    return 0;
}

int exec_start(struct bh_exec *exec, struct err *e)
{
    struct bh_follow_options opts = {.stdin_fd = -1};
    struct bh_run_result ignored = {0};
    struct follow f = {.exec = exec, .opts = &opts, .result = &ignored, .until_started = true};

    return follow_all(&f, e);
}
