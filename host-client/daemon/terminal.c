#include "daemon/terminal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "daemon/access.h"
#include "daemon/daemon.h"
#include "daemon/job.h"
#include "daemon/service.h"
#include "daemon/websocket.h"
#include "event/pool.h"
#include "http/relay.h"
#include "http/respond.h"

#define READ_BYTES (8 * 1024)
#define INPUT_MS \
    30000 /* the command takes a piece of input within this time, or the terminal ends */
#define CLOSE_MS 3000 /* the client has it to reply to a close frame */
#define HANG_UPS 5
#define HANG_UP_MS 1000 /* a command has it to end before it gets another SIGHUP */
#define DEFAULT_COLS 80
#define DEFAULT_ROWS 24
#define MAX_COLS 1000

/* A context of libbellhop, a box and a command of it; each of the two threads has its own. */
struct side {
    struct bh_ctx *ctx;
    struct bh_box *box;
    struct bh_exec *exec;
};

struct terminal {
    struct daemon *daemon;
    struct ask start;
    struct pool_item abandoned; /* ends the command: must not be refused */
    char *box, *cmd, *id, *user;
    int64_t cols, rows;
    char accept[WS_ACCEPT_BYTES];
    bool has_protocol; /* the client offers TERMINAL_PROTOCOL */
    bool has_input;    /* the thread of it runs, and ends the command */
    int client_fd;     /* the relay's end */
    int fd;            /* ours: frames */
    int end_fd;        /* readable: it ends: the command is over, the client or its right is gone */
    _Atomic bool is_revoked; /* the client's token has ended */
    struct side output, input;
    struct ws_reader reader; /* the input's thread */
    struct request *request; /* the same: a reference */
    int64_t end_ms;          /* the same: it ends, and waits so long for the client; 0: not yet */
    pthread_mutex_t lock;
    bool is_closed;   /* guarded by lock: a close frame was sent */
    _Atomic int refs; /* the request's and the threads' */
};

static _Atomic unsigned terminal_n;

/* ---- its life ---- */

static void side_done(struct side *s)
{
    (void)bh_exec_free(s->exec);
    (void)bh_box_free(s->box);
    (void)bh_close(s->ctx);
}

static void terminal_unref(struct terminal *t)
{
    if (atomic_fetch_sub(&t->refs, 1) > 1)
        return;
    side_done(&t->output);
    side_done(&t->input);
    fd_close(t->client_fd);
    fd_close(t->fd);
    fd_close(t->end_fd);
    (void)pthread_mutex_destroy(&t->lock);
    free(t->box);
    free(t->cmd);
    free(t->id);
    free(t->user);
    free(t);
    (void)atomic_fetch_sub(&terminal_n, 1);
}

/*
 * Repeated, because a shell can lose the first: bash 5.2 waits for input after its last look at the signals, and the
 * end of a real terminal would wake it there. A command that is still being started refuses it, and a busy agent may.
 */
static void hang_up(struct bh_exec *exec)
{
    struct bh_run_result result = {.size = sizeof(result)};

    for (int i = 0; i < HANG_UPS; i++) {
        int64_t again_ms = clock_mono_ms() + HANG_UP_MS;
        int r = bh_exec_signal(exec, "SIGHUP", true, NULL);

        if (r == -BH_DEADLINE_EXCEEDED) /* a silent agent has cost a whole timeout of this thread */
            return;
        r = bh_exec_wait(exec, HANG_UP_MS, &result, NULL);
        if (r == 0 || r == -BH_NOT_FOUND || r == -BH_CANCELED)
            return;
        (void)poll(NULL, 0, clock_until_ms(again_ms)); /* a wait that failed at once */
    }
}

static void run_abandoned(void *arg)
{
    struct terminal *t = arg;

    hang_up(t->output.exec);
    terminal_unref(t);
}

/*
 * The request is over: a relay has taken the client's end, or nobody will. A client that left while its command was
 * started leaves it to a worker.
 */
static void terminal_release(void *state)
{
    struct terminal *t = state;

    fd_close(TAKE_FD(t->client_fd));
    if (!t->output.exec || t->id || t->has_input) {
        terminal_unref(t);
        return;
    }
    t->abandoned = (struct pool_item){.fn = run_abandoned, .arg = t};
    pool_push(t->daemon->pool, &t->abandoned);
}

/* ---- frames to the client ---- */

static int send_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR)
            return -1;
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int send_frame(struct terminal *t, enum ws_opcode opcode, const char *data, size_t len)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&t->lock);
    char header[WS_HEADER_BYTES];
    size_t n = ws_write_header(opcode, len, header);

    if (t->is_closed)
        return -1;
    t->is_closed = opcode == WS_CLOSE;
    return send_all(t->fd, header, n) < 0 || send_all(t->fd, data, len) < 0 ? -1 : 0;
}

static void send_close(struct terminal *t, int code, const char *why)
{
    char data[WS_CONTROL_BYTES + 1] = {(char)(code >> 8), (char)code};

    (void)snprintf(data + 2, sizeof(data) - 2, "%.100s", why);
    str_make_utf8(data + 2);
    (void)send_frame(t, WS_CLOSE, data, 2 + strlen(data + 2));
    (void)shutdown(t->fd, SHUT_WR);
}

static void send_json_take(struct terminal *t, json_t *v)
{
    _cleanup_json_ json_t *owned = v;
    _cleanup_free_ char *text = NULL;
    size_t len;

    if (v && jx_dump(v, &text, &len, NULL) == 0)
        (void)send_frame(t, WS_TEXT, text, len);
}

/* ---- the command's output, on a thread of the pool ---- */

static int pass_output(void *arg, int stream, const char *data, size_t len)
{
    (void)stream;
    return send_frame(arg, WS_BINARY, data, len);
}

static void run_output(void *arg)
{
    struct terminal *t = arg;
    struct bh_follow_options f = {
        .size = sizeof(f), .stdin_fd = -1, .lossless = !t->id, .output = pass_output, .arg = t};
    struct bh_run_result result = {.size = sizeof(result)};
    struct bh_error error = {0};
    int r;

    send_json_take(t, json_pack("{s:{s:s}}", "started", "id", bh_exec_id(t->output.exec)));
    r = bh_exec_follow(t->output.exec, &f, &result, &error);
    if (r == 0) {
        send_json_take(t, json_pack("{s:{s:s, s:i, s:s}}", "exit", "reason", result.reason, "code",
                                    result.code, "signal", result.signal));
        send_close(t, WS_NORMAL, "");
    } else if (t->is_revoked) {
        send_close(t, WS_POLICY, "the token was revoked or has expired");
    } else {
        send_close(t, r == -BH_CANCELED ? WS_AWAY : WS_INTERNAL, error.message);
    }
    (void)eventfd_write(t->end_fd, 1);
    terminal_unref(t);
}

/* ---- the client's messages, on another ---- */

struct resize {
    uint32_t cols, rows;
};
struct control {
    json_t *resize;
    const char *signal;
};

static const struct jx_field control_fields[] = {
    JX(struct control, resize, jx_object, 0),
    JX(struct control, signal, jx_str, 0),
    {0},
};
static const struct jx_field resize_fields[] = {
    JX_RANGE("cols", struct resize, cols, jx_u32, JX_REQUIRED, 1, MAX_COLS),
    JX_RANGE("rows", struct resize, rows, jx_u32, JX_REQUIRED, 1, MAX_COLS),
    {0},
};

/* A message that is wrong ends the terminal; a command that cannot be resized any more does not. */
static int take_control(struct terminal *t, const char *text, size_t len)
{
    _cleanup_json_ json_t *v = NULL;
    struct control control = {0};
    struct resize size = {0};
    struct err e = {0};
    int r = jx_parse_object(text, len, &v, &e);

    if (r == 0)
        r = jx_decode(v, control_fields, &control, &e);
    if (r == 0 && control.resize)
        r = jx_decode(control.resize, resize_fields, &size, &e);
    if (r < 0) {
        send_close(t, WS_POLICY, e.message);
        return -1;
    }
    if (control.resize)
        (void)bh_exec_resize(t->input.exec, (uint16_t)size.cols, (uint16_t)size.rows, NULL);
    if (control.signal)
        (void)bh_exec_signal(t->input.exec, control.signal, false, NULL);
    return 0;
}

static int on_message(void *arg, enum ws_opcode opcode, const char *data, size_t len)
{
    struct terminal *t = arg;

    if (t->end_ms && opcode != WS_CLOSE)
        return 0;
    switch (opcode) {
    case WS_BINARY:
        return bh_exec_write(t->input.exec, data, len, INPUT_MS, NULL) < 0 ? -1 : 0;
    case WS_TEXT:
        return take_control(t, data, len);
    case WS_PING:
        return send_frame(t, WS_PONG, data, len);
    case WS_CLOSE:
        (void)send_frame(t, WS_CLOSE, data, len < 2 ? 0 : 2);
        return -1;
    case WS_PONG:
    case WS_CONTINUATION:
        break;
    }
    return 0;
}

/* False: the terminal has ended, and its client has not closed in time: it is cut off. */
static bool wait_for_input(struct terminal *t)
{
    for (;;) {
        struct pollfd p[] = {{.fd = t->fd, .events = POLLIN},
                             {.fd = t->end_ms ? -1 : t->end_fd, .events = POLLIN}};
        int n = poll(p, N_ELEMENTS(p), t->end_ms ? clock_until_ms(t->end_ms) : -1);

        if (n == 0 || (t->end_ms && clock_until_ms(t->end_ms) == 0)) {
            request_cut(t->request);
            return false;
        }
        if (n > 0 && p[1].revents)
            t->end_ms = clock_mono_ms() + CLOSE_MS;
        else if (n > 0)
            return true;
    }
}

static void run_input(void *arg)
{
    struct terminal *t = arg;
    char data[READ_BYTES];
    int r = 0;

    while (r == 0 && wait_for_input(t)) {
        ssize_t n = recv(t->fd, data, sizeof(data), 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        r = ws_read(&t->reader, data, (size_t)n, on_message, t);
        if (r > 0)
            send_close(t, r, "");
    }
    (void)eventfd_write(t->end_fd, 1);
    (void)shutdown(t->fd, SHUT_RDWR);
    request_unref(t->request);
    if (!t->id)
        hang_up(t->input.exec);
    terminal_unref(t);
}

/* ---- the start ---- */

static int side_open(const struct request *q, struct terminal *t, struct side *s, struct err *e)
{
    struct bh_options o = t->daemon->options;
    struct bh_error error = {0};
    int r;

    if (s == &t->output)
        o.cancel_fd = t->end_fd;
    r = job_fail(e, bh_open(&o, &s->ctx, &error), &error);
    return r < 0 ? r : job_find_seen_box(q, s->ctx, t->box, &s->box, e);
}

static int start_command(struct terminal *t, struct err *e)
{
    static const char *const login[] = {
        "sh", "-c", "command -v bash >/dev/null && exec bash -il; exec sh -il", NULL};
    static const char *const env[] = {"TERM=xterm-256color", NULL};
    struct bh_run_options o = {.size = sizeof(o),
                               .argv = t->cmd ? NULL : login,
                               .shell = t->cmd,
                               .user = t->user,
                               .env = env,
                               .pty = true,
                               .cols = (uint16_t)t->cols,
                               .rows = (uint16_t)t->rows,
                               .stdin_fd = -1,
                               .stdin_open = true};
    struct bh_error error = {0};
    int r = t->id ? bh_exec_attach(t->output.box, t->id, &t->output.exec, &error)
                  : bh_exec_start(t->output.box, &o, &t->output.exec, &error);

    return job_fail(e, r, &error);
}

static void run_terminal_start(struct request *q)
{
    struct terminal *t = q->state;
    struct err *e = &t->start.error;
    struct bh_error error = {0};
    int r = side_open(q, t, &t->output, e);

    if (r == 0)
        r = side_open(q, t, &t->input, e);
    if (r == 0)
        r = start_command(t, e);
    if (r == 0)
        r = job_fail(
            e, bh_exec_attach(t->input.box, bh_exec_id(t->output.exec), &t->input.exec, &error),
            &error);
    t->start.r = r;
    request_answer(q, &t->start);
}

/* The headers of RFC 6455, section 4.1. */
static int read_handshake(struct request *q, struct terminal *t, struct err *e)
{
    const char *version = request_header(q, "Sec-WebSocket-Version");

    if (!request_header_has(q, "Upgrade", "websocket") ||
        !request_header_has(q, "Connection", "upgrade")) {
        q->error_status = HTTP_UPGRADE_REQUIRED;
        return err_field(e, ERR_INVALID, "Upgrade", "a terminal is a WebSocket");
    }
    if (!str_eq(version, "13")) {
        q->error_status = HTTP_UPGRADE_REQUIRED;
        (void)request_reply_header(q, "Sec-WebSocket-Version", "13", NULL);
        return err_field(e, ERR_INVALID, "Sec-WebSocket-Version", "the version must be 13");
    }
    t->has_protocol = request_header_has(q, "Sec-WebSocket-Protocol", TERMINAL_PROTOCOL);
    return ws_accept(request_header(q, "Sec-WebSocket-Key"), t->accept, e);
}

static int read_size(struct request *q, const char *name, int64_t *ret, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    int r = request_query(q, name, &text, e);

    if (r == 0 && text)
        r = str_parse_i64(text, 1, MAX_COLS, ret, e);
    return r < 0 ? err_at(e, r, name) : 0;
}

static int read_terminal_query(struct request *q, struct terminal *t, struct err *e)
{
    static const char *const known[] = {"cols", "rows", "cmd", "id", "user", "access_token", NULL};
    char *params[ROUTE_MAX_PARAMS] = {NULL};
    int r = job_check_query(q, known, e);

    if (r == 0)
        r = read_size(q, "cols", &t->cols, e);
    if (r == 0)
        r = read_size(q, "rows", &t->rows, e);
    if (r == 0)
        r = request_query(q, "cmd", &t->cmd, e);
    if (r == 0)
        r = request_query(q, "id", &t->id, e);
    if (r == 0)
        r = request_query(q, "user", &t->user, e);
    if (r == 0)
        r = routes_params(request_row(q), q->target, params, e);
    t->box = params[0];
    return r;
}

static int terminal_begin(struct request *q, struct err *e)
{
    struct terminal *t = calloc(1, sizeof(*t));
    int fds[2], r;

    if (!t)
        return err_oom(e);
    *t = (struct terminal){.daemon = request_daemon(q),
                           .cols = DEFAULT_COLS,
                           .rows = DEFAULT_ROWS,
                           .client_fd = -1,
                           .fd = -1,
                           .refs = 1};
    (void)pthread_mutex_init(&t->lock, NULL);
    t->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    q->state = t;
    q->free_state = terminal_release;
    if (atomic_fetch_add(&terminal_n, 1) >= TERMINAL_MAX)
        return err_set(e, ERR_EXHAUSTED, "%d terminals are open", TERMINAL_MAX);
    r = read_handshake(q, t, e);
    if (r == 0)
        r = read_terminal_query(q, t, e);
    if (r < 0)
        return r;
    r = access_watch(q, e);
    if (r < 0)
        return r;
    if (t->end_fd < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return err_sys(e, errno, "socketpair");
    t->client_fd = fds[0];
    t->fd = fds[1];
    return io_set_nonblock(t->client_fd, true, e);
}

static void terminal_revoke(struct request *q)
{
    struct terminal *t = q->state;

    t->is_revoked = true;
    (void)eventfd_write(t->end_fd, 1);
}

static int take_terminal_peer(void *arg, const char **ret_late, size_t *ret_late_len)
{
    struct terminal *t = arg;

    (void)ret_late;
    (void)ret_late_len;
    return TAKE_FD(t->client_fd);
}

/* Once the threads run they end by themselves: the relay closes the socket when the client has left. */
static int start_threads(struct request *q, struct terminal *t, struct err *e)
{
    int r;

    t->refs += 2;
    t->request = request_ref(q);
    r = pool_run(t->daemon->pool, run_input, t, e);
    if (r < 0) {
        t->refs -= 2;
        request_unref(q);
        return r;
    }
    t->has_input = true;
    r = pool_run(t->daemon->pool, run_output, t, e);
    if (r < 0) {
        (void)atomic_fetch_sub(&t->refs, 1);
        (void)shutdown(t->fd, SHUT_RDWR);
    }
    return r;
}

static int terminal_finish(struct request *q, struct err *e)
{
    struct terminal *t = q->state;
    struct reply *reply;
    int r = request_ask(q, &t->start, run_terminal_start, e);

    if (r != 0)
        return r == REQUEST_PARKED ? 0 : r;
    reply = relay_new_reply(q, take_terminal_peer, t);
    if (!reply)
        return err_oom(e);
    r = start_threads(q, t, e);
    if (r < 0) {
        (void)reply_free(reply);
        return r;
    }
    reply_add_header(reply, "Upgrade", "websocket");
    reply_add_header(reply, "Sec-WebSocket-Accept", t->accept);
    if (t->has_protocol)
        reply_add_header(reply, "Sec-WebSocket-Protocol", TERMINAL_PROTOCOL);
    return respond_queue_plain(q, HTTP_SWITCHING_PROTOCOLS, reply, e);
}

const struct request_ops terminal_ops = {
    .begin = terminal_begin, .finish = terminal_finish, .revoke = terminal_revoke};
