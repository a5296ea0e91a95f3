#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "lib/agent/client_internal.h"
#include "lib/util/socket.h"

#define CLIENT_WORK_FACTOR 20 /* answer timeouts, for a call that works before it answers */
#define CLIENT_STALL_MS 30000 /* at least; a stream has a keep-alive every ten seconds */
#define CLIENT_READY_FIRST_MS 5
#define CLIENT_READY_MOST_MS 100
#define CLIENT_READY_TRY_MS 2000
#define RESYNC_BYTES 64
#define RESYNC_TRY_MS 5000

/* The flags of rpc.def that bound a call. */
#define BLOCKS (1u << 0)
#define SINGLE (1u << 1)
#define READS 0
#define QUIET 0
#define LARGE (1u << 2)
static const unsigned method_flags[] = {
#define R(service, method, fn, kind, flags) [RPC_##fn] = (flags),
#include "common/wire/rpc.def"
#undef R
};

/* A name that is not in rpc.def is a newer agent's method: it gets the widest bounds. */
static unsigned flags_by_name(const char *name)
{
    for (unsigned i = 0; i < RPC_N_METHODS; i++)
        if (strcmp(rpc_method_name((enum rpc_method)i), name) == 0)
            return method_flags[i];
    return BLOCKS | LARGE;
}

int client_new(const struct client_options *opts, struct client **ret, struct err *e)
{
    struct client *c = calloc(1, sizeof(*c));
    int r;

    if (!c)
        return err_oom(e);
    c->cancel_fd = opts->cancel_fd;
    c->check_peer = opts->check_peer;
    c->check_arg = opts->check_arg;
    c->is_gateway = opts->is_gateway;
    c->answer_ms = opts->answer_timeout_ms > 0 ? opts->answer_timeout_ms : CLIENT_ANSWER_MS;
    c->work_ms = c->answer_ms * CLIENT_WORK_FACTOR;
    c->stall_ms = 2 * c->answer_ms > CLIENT_STALL_MS ? 2 * c->answer_ms : CLIENT_STALL_MS;
    c->socket = opts->socket ? strdup(opts->socket) : NULL;
    c->base = strdup(opts->url ? opts->url : "http://box");
    c->token = opts->token ? strdup(opts->token) : NULL;
    c->ca_file = opts->ca_file ? strdup(opts->ca_file) : NULL;
    r = !c->base || (opts->ca_file && !c->ca_file) || (opts->socket && !c->socket) ||
                (opts->token && !c->token)
            ? err_oom(e)
            : 0;
    if (r == 0 && opts->token && asprintf(&c->auth, TOKEN_HEADER ": %s", opts->token) < 0) {
        c->auth = NULL;
        r = err_oom(e);
    }
    if (r == 0)
        r = http_new(opts->cancel_fd, &c->http, e);
    if (r == 0) {
        http_set_debug(c->http, opts->debug);
        http_set_ca(c->http, c->ca_file);
    }
    if (r < 0) {
        (void)client_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

struct client *client_free(struct client *c)
{
    if (!c)
        return NULL;
    (void)http_free(c->http);
    free(c->socket);
    free(c->base);
    free(c->ca_file);
    free(c->auth);
    if (c->token)
        explicit_bzero(c->token, strlen(c->token));
    free(c->token);
    free(c);
    return NULL;
}

const char *client_route(const struct client *c, const char *route)
{
    return c->is_gateway ? route + strlen("/v1") : route;
}

/* ---- answers ---- */

/* The error that an answer with this status and body stands for. */
static int client_answer_error(int status, const char *body, size_t len, struct err *e)
{
    _cleanup_json_ json_t *obj = NULL;
    struct err told = {0};

    if (len && jx_parse_within(body, len, CLIENT_LINE_PARSED_BYTES, &obj, NULL) == 0 &&
        jx_read_error(obj, &told)) {
        if (e)
            *e = told;
        return -told.code;
    }
    return err_set(e, status == 401 ? ERR_UNAUTHENTICATED : ERR_INTERNAL,
                   "the guest agent answered with status %d", status);
}

int client_send(struct client *c, struct http_request *req, struct http_response *ret,
                struct err *e)
{
    struct http_response res = {0};
    int r;

    if (!req->max_body)
        req->max_body = CLIENT_SMALL_BYTES;
    req->unix_socket = c->socket;
    req->check_peer = c->check_peer;
    req->check_arg = c->check_arg;
    r = http_do(c->http, req, &res, e);
    if (r < 0)
        return err_wrap(e, r, c->is_gateway ? "the daemon" : "the guest agent");
    if (res.status < 200 || res.status > 299) {
        r = client_answer_error(res.status, res.body.data, res.body.len, e);
        http_response_done(&res);
        return r;
    }
    *ret = res;
    return 0;
}

int client_set_quiet(struct client *c, struct err *e)
{
    c->is_quiet = true;
    if (c->auth)
        c->quiet = QUIET_HEADER;
    else
        c->auth = strdup(QUIET_HEADER); /* a list of headers ends at the first NULL */
    return c->auth ? 0 : err_oom(e);
}

/* ---- health ---- */

int client_health(struct client *c, int64_t timeout_ms, struct err *e)
{
    _cleanup_free_ char *url = NULL;
    struct http_response res = {0};
    struct http_request req = {.method = "GET", .max_body = 4096};
    int r;

    if (asprintf(&url, "%s%s", c->base, client_route(c, "/v1/health")) < 0)
        return err_oom(e);
    req.url = url;
    req.deadline_mono_ms = clock_mono_ms() + timeout_ms;
    r = client_send(c, &req, &res, e);
    http_response_done(&res);
    return r;
}

int client_wait_ready(struct client *c, int64_t deadline_mono_ms, struct err *e)
{
    int64_t pause_ms = CLIENT_READY_FIRST_MS;

    for (;;) {
        int left = clock_until_ms(deadline_mono_ms);
        int r = client_health(
            c, left >= 0 && left < CLIENT_READY_TRY_MS ? left : CLIENT_READY_TRY_MS, e);

        if (r == 0 || r == -ERR_CANCELED)
            return r;
        left = clock_until_ms(deadline_mono_ms);
        if (left >= 0 && left <= pause_ms)
            return err_wrap(e, r, "the guest agent did not become ready");
        if (socket_wait_canceled(c->cancel_fd, (int)pause_ms))
            return err_set(e, ERR_CANCELED, "canceled while waiting for the guest agent");
        pause_ms = pause_ms * 2 > CLIENT_READY_MOST_MS ? CLIENT_READY_MOST_MS : pause_ms * 2;
    }
}

/* {"now_ms", "entropy"}; the agent counts the generation itself. */
static json_t *new_resync(void)
{
    unsigned char entropy[RESYNC_BYTES];
    char text[B64_LEN(RESYNC_BYTES) + 1] = "";
    json_t *params;

    if (io_random(entropy, sizeof(entropy), NULL) < 0)
        return NULL;
    b64_encode(entropy, sizeof(entropy), text);
    params =
        json_pack("{s:I, s:{s:s}}", "now_ms", (json_int_t)clock_real_ms(), "entropy", "b64", text);
    explicit_bzero(entropy, sizeof(entropy));
    explicit_bzero(text, sizeof(text));
    return params;
}

int client_resync(struct client *c, int64_t deadline_mono_ms, struct err *e)
{
    for (;;) {
        _cleanup_json_ json_t *params = new_resync(); /* with the time of this attempt */
        int64_t attempt_ms = clock_mono_ms() + RESYNC_TRY_MS;
        int r = params ? client_call(c, RPC_system_resync, params,
                                     attempt_ms < deadline_mono_ms ? attempt_ms : deadline_mono_ms,
                                     NULL, e)
                       : err_oom(e);

        if (r != -ERR_UNAVAILABLE && r != -ERR_DEADLINE)
            return r == -ERR_UNIMPLEMENTED ? 0 : r; /* an agent from before an update */
        if (clock_until_ms(deadline_mono_ms) == 0)
            return err_wrap(e, r, "the guest agent does not answer after the resume");
        if (socket_wait_canceled(c->cancel_fd, CLIENT_READY_MOST_MS))
            return err_set(e, ERR_CANCELED, "canceled while the box resumes");
    }
}

/* ---- methods ---- */

/* "Exec/Run" -> "http://box/bellhop.v1.Exec/Run"; params as one line. */
static int prepare_call(struct client *c, const char *method, json_t *params, char **ret_url,
                        char **ret_body, size_t *ret_len, struct err *e)
{
    if (asprintf(ret_url, "%s/%s%s", c->base, c->is_gateway ? "rpc/" : WIRE_SERVICE_PREFIX,
                 method) < 0) {
        *ret_url = NULL;
        return err_oom(e);
    }
    if (params)
        return jx_dump(params, ret_body, ret_len, e);
    *ret_body = strdup("{}");
    *ret_len = 2;
    return *ret_body ? 0 : err_oom(e);
}

int64_t client_answer_ms(const struct client *c)
{
    return c->answer_ms;
}

int client_call_named(struct client *c, const char *method, json_t *params,
                      int64_t deadline_mono_ms, json_t **ret, struct err *e)
{
    const char *headers[] = {"Content-Type: " WIRE_TYPE_JSON, c->auth, c->quiet, NULL};
    unsigned flags = flags_by_name(method);
    _cleanup_free_ char *url = NULL;
    _cleanup_free_ char *body = NULL;
    struct http_response res = {0};
    struct http_request req = {.method = "POST",
                               .headers = headers,
                               .deadline_mono_ms = deadline_mono_ms,
                               .answer_timeout_ms = flags & SINGLE   ? 0
                                                    : flags & BLOCKS ? c->work_ms
                                                                     : c->answer_ms,
                               .max_body = flags & LARGE ? CLIENT_LARGE_BYTES : CLIENT_SMALL_BYTES};
    json_t *reply = NULL;
    int r;

    r = prepare_call(c, method, params, &url, &body, &req.body_len, e);
    if (r < 0)
        return r;
    req.url = url;
    req.body = body;
    r = client_send(c, &req, &res, e);
    if (r < 0)
        return r;
    r = jx_parse_within(res.body.data ? res.body.data : "", res.body.len, CLIENT_LARGE_PARSED_BYTES,
                        &reply, e);
    http_response_done(&res);
    if (r == -ERR_EXHAUSTED)
        return err_wrap(e, r, "the guest agent's answer to %s", method);
    if (r < 0)
        return err_set(e, ERR_DATA_LOSS, "the guest agent's answer to %s is not JSON", method);
    if (ret)
        *ret = reply;
    else
        json_decref(reply);
    return 0;
}

int client_call(struct client *c, enum rpc_method method, json_t *params, int64_t deadline_mono_ms,
                json_t **ret, struct err *e)
{
    return client_call_named(c, rpc_method_name(method), params, deadline_mono_ms, ret, e);
}

/* ---- streams ---- */

struct lines {
    struct buf line;
    uint64_t n; /* complete lines so far */
    int (*fn)(void *arg, json_t *msg);
    void *arg;
    int failed;
    bool has_ended;
    struct err why;
};

/* An empty line and {"keepalive":...} carry no message. */
static int take_line(struct lines *l)
{
    _cleanup_json_ json_t *msg = NULL;
    json_t *error;
    struct err told = {0};
    int r;

    if (l->line.len == 0)
        return 0;
    r = jx_parse_within(l->line.data, l->line.len, CLIENT_LINE_PARSED_BYTES, &msg, &l->why);
    if (r == -ERR_EXHAUSTED)
        return err_wrap(&l->why, r, "a message of the guest agent");
    if (r < 0)
        return err_set(&l->why, ERR_DATA_LOSS, "a message of the guest agent is not JSON");
    if (l->has_ended)
        return err_set(&l->why, ERR_DATA_LOSS, "the guest agent's answer goes on after its end");
    if (json_object_get(msg, "keepalive"))
        return 0;
    error = json_object_get(msg, "error");
    if (error && jx_read_error(error, &told)) {
        l->why = told;
        return -told.code;
    }
    l->has_ended = l->has_ended || json_object_get(msg, "end");
    if (l->fn && l->fn(l->arg, msg) != 0)
        return err_set(&l->why, ERR_CANCELED, "canceled by the caller");
    return 0;
}

static int on_stream(void *arg, const char *data, size_t len)
{
    struct lines *l = arg;

    while (len) {
        const char *end = memchr(data, '\n', len);
        size_t n = end ? (size_t)(end - data) : len;

        l->failed = buf_add(&l->line, data, n, &l->why);
        if (l->failed == 0 && end) {
            l->n++;
            l->failed = take_line(l);
            buf_clear(&l->line);
        }
        if (l->failed < 0)
            return 1;
        n += end ? 1 : 0;
        data += n;
        len -= n;
    }
    return 0;
}

static int stream_result(struct lines *l, int r, struct err *e)
{
    if (l->failed < 0) {
        if (e)
            *e = l->why;
        return l->failed;
    }
    if (r < 0 || l->has_ended)
        return r;
    return err_set(e, ERR_DATA_LOSS, "the guest agent's answer broke off");
}

int client_stream_named(struct client *c, const char *method, json_t *params,
                        int64_t deadline_mono_ms, int (*fn)(void *arg, json_t *msg), void *arg,
                        struct err *e)
{
    const char *headers[] = {"Content-Type: " WIRE_TYPE_JSON, "Accept: " WIRE_TYPE_NDJSON, c->auth,
                             c->quiet, NULL};
    _cleanup_free_ char *url = NULL;
    _cleanup_free_ char *body = NULL;
    struct lines l = {.fn = fn, .arg = arg};
    struct http_response res = {0};
    struct http_request req = {.method = "POST",
                               .headers = headers,
                               .write = on_stream,
                               .write_arg = &l,
                               .deadline_mono_ms = deadline_mono_ms,
                               .answer_timeout_ms = c->answer_ms,
                               .stall_timeout_ms = c->stall_ms,
                               .n_taken = &l.n};
    int r;

    r = prepare_call(c, method, params, &url, &body, &req.body_len, e);
    if (r < 0)
        return r;
    req.url = url;
    req.body = body;
    buf_init(&l.line, CLIENT_LINE_BYTES);
    r = client_send(c, &req, &res, e);
    http_response_done(&res);
    r = stream_result(&l, r, e);
    buf_done(&l.line);
    return r;
}

int client_stream(struct client *c, enum rpc_method method, json_t *params,
                  int64_t deadline_mono_ms, int (*fn)(void *arg, json_t *msg), void *arg,
                  struct err *e)
{
    return client_stream_named(c, rpc_method_name(method), params, deadline_mono_ms, fn, arg, e);
}

/* ---- tunnel ---- */

int tunnel_request(uint16_t port, const char *token, struct buf *out, struct err *e)
{
    int r = buf_addf(out, e,
                     "GET /v1/tunnel/%u HTTP/1.1\r\nHost: box\r\nConnection: Upgrade\r\n"
                     "Upgrade: tcp\r\n",
                     (unsigned)port);

    if (r == 0 && token)
        r = buf_addf(out, e, TOKEN_HEADER ": %s\r\n", token);
    return r < 0 ? r : buf_adds(out, "\r\n", e);
}

size_t tunnel_head_bytes(const struct buf *answer)
{
    const char *end = answer->len ? memmem(answer->data, answer->len, "\r\n\r\n", 4) : NULL;

    return end ? (size_t)(end - answer->data) + 4 : 0;
}

int tunnel_check(const struct buf *answer, struct err *e)
{
    static const char ok[] = "HTTP/1.1 101 ";
    size_t line = answer->len ? strcspn(answer->data, "\r\n") : 0;
    size_t head = tunnel_head_bytes(answer);
    _cleanup_json_ json_t *obj = NULL;
    struct err told = {0};

    if (answer->len > sizeof(ok) - 1 && memcmp(answer->data, ok, sizeof(ok) - 1) == 0)
        return 0;
    if (answer->len > head && head &&
        jx_parse(answer->data + head, answer->len - head, &obj, NULL) == 0 &&
        jx_read_error(obj, &told))
        return err_set(e, ERR_UNAVAILABLE, "no connection to the port in the box: %.400s",
                       told.message);
    return err_set(e, ERR_UNAVAILABLE, "no connection to the port in the box: '%.*s'",
                   (int)(line < 100 ? line : 100), answer->len ? answer->data : "");
}

int client_tunnel(const struct client_options *opts, uint16_t port, int64_t deadline_mono_ms,
                  int *ret_fd, struct err *e)
{
    _cleanup_buf_ struct buf request = {0};
    _cleanup_buf_ struct buf answer = {0};
    _cleanup_close_ int fd = -1;
    int r;

    if (!opts->socket || opts->is_gateway)
        return err_set(e, ERR_UNIMPLEMENTED, "a tunnel needs the agent's socket");
    r = socket_connect(opts->socket, SOCKET_CONNECT_MS, &fd, e);
    if (r == 0 && opts->check_peer)
        r = opts->check_peer(opts->check_arg, fd, e);
    if (r < 0)
        return r;
    if (!deadline_mono_ms)
        deadline_mono_ms = clock_mono_ms() + CLIENT_ANSWER_MS;
    buf_init(&request, TUNNEL_HEAD_BYTES);
    buf_init(&answer, TUNNEL_HEAD_BYTES);
    r = tunnel_request(port, opts->token, &request, e);
    if (r == 0)
        r = io_write_all(fd, request.data, request.len, e);
    while (r == 0) {
        /* One byte at a time: the bytes after the empty line belong to the caller. */
        char c;
        ssize_t n;

        r = socket_wait(fd, false, opts->cancel_fd, deadline_mono_ms, e);
        if (r < 0)
            return r;
        n = read(fd, &c, 1);
        if (n <= 0)
            return err_set(e, ERR_UNAVAILABLE, "the guest agent ended the tunnel");
        r = buf_add(&answer, &c, 1, e);
        if (r == 0 && tunnel_head_bytes(&answer))
            break;
    }
    if (r == 0)
        r = tunnel_check(&answer, e);
    if (r == 0)
        *ret_fd = TAKE_FD(fd);
    return r;
}
