#include "lib/agent/client.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/b64.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "lib/util/socket.h"
#include "lib/agent/tunnel.h"

/*
 * What an agent may make us hold. A reply is there as text (half as much again while it grows), as
 * parser's copy (twice) and as value; a message of a stream may be relayed as text and parsed again. With
 * these, no answer makes a command of 12 MiB larger than 64 MiB.
 */
#define CLIENT_SMALL_BYTES (256 * 1024)
#define CLIENT_LARGE_BYTES (8 * 1024 * 1024) /* LARGE in rpc.def: 2,000 commands, 4 MiB of output */
#define CLIENT_LARGE_PARSED_BYTES (24 * 1024 * 1024)
#define CLIENT_LINE_BYTES (4 * 1024 * 1024) /* 64 KiB of output, or a match with 200 long lines */
#define CLIENT_LINE_PARSED_BYTES (12 * 1024 * 1024)
#define CLIENT_WORK_FACTOR 20   /* of the answer timeout, for what works before it answers */
#define CLIENT_STALL_MS 30000   /* at least; a stream says something every ten seconds */
#define CLIENT_STALL_BYTES 1024 /* of content, in that time */
#define CLIENT_READY_FIRST_MS 5
#define CLIENT_READY_MOST_MS 100
#define CLIENT_READY_TRY_MS 2000
#define CLIENT_PORT_BODY_BYTES (256 * 1024)

static const char quiet_header[] = WIRE_HEADER_QUIET ": 1";

struct client {
    struct http *http;
    char *socket;      /* or NULL */
    char *base;        /* "http://box" */
    char *auth;        /* "Authorization: Bearer ...", or NULL */
    const char *quiet; /* quiet_header, when auth is not that */
    bool is_quiet;
    char *token;
    int cancel_fd;
    int (*check_peer)(void *arg, int fd, struct err *e);
    void *check_arg;
    int64_t answer_ms, work_ms, stall_ms;
};

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
    c->answer_ms = opts->answer_timeout_ms > 0 ? opts->answer_timeout_ms : CLIENT_ANSWER_MS;
    c->work_ms = c->answer_ms * CLIENT_WORK_FACTOR;
    c->stall_ms = 2 * c->answer_ms > CLIENT_STALL_MS ? 2 * c->answer_ms : CLIENT_STALL_MS;
    c->socket = opts->socket ? strdup(opts->socket) : NULL;
    c->base = strdup(opts->url ? opts->url : "http://box");
    c->token = opts->token ? strdup(opts->token) : NULL;
    r = !c->base || (opts->socket && !c->socket) || (opts->token && !c->token) ? err_oom(e) : 0;
    if (r == 0 && opts->token && asprintf(&c->auth, "Authorization: Bearer %s", opts->token) < 0) {
        c->auth = NULL;
        r = err_oom(e);
    }
    if (r == 0)
        r = http_new(opts->cancel_fd, &c->http, e);
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
    free(c->auth);
    if (c->token)
        explicit_bzero(c->token, strlen(c->token));
    free(c->token);
    free(c);
    return NULL;
}

/* ---- answers ---- */

/* What the agent said went wrong, as it said it. */
static int answer_error(int status, const char *body, size_t len, struct err *e)
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

static int send_request(struct client *c, struct http_request *req, struct http_response *ret,
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
        return err_wrap(e, r, "the guest agent");
    if (res.status < 200 || res.status > 299) {
        r = answer_error(res.status, res.body.data, res.body.len, e);
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
        c->quiet = quiet_header;
    else
        c->auth = strdup(quiet_header); /* the lists of headers end at the first that is missing */
    return c->auth ? 0 : err_oom(e);
}

/* ---- health ---- */

int client_health(struct client *c, int64_t timeout_ms, struct err *e)
{
    _cleanup_free_ char *url = NULL;
    struct http_response res = {0};
    struct http_request req = {.method = "GET", .max_body = 4096};
    int r;

    if (asprintf(&url, "%s/v1/health", c->base) < 0)
        return err_oom(e);
    req.url = url;
    req.deadline_mono_ms = clock_mono_ms() + timeout_ms;
    r = send_request(c, &req, &res, e);
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

/* ---- methods ---- */

/* "Exec/Run" -> "http://box/bellhop.v1.Exec/Run"; params as one line. */
static int prepare_call(struct client *c, const char *method, json_t *params, char **ret_url,
                        char **ret_body, size_t *ret_len, struct err *e)
{
    if (asprintf(ret_url, "%s/" WIRE_SERVICE_PREFIX "%s", c->base, method) < 0) {
        *ret_url = NULL;
        return err_oom(e);
    }
    if (params)
        return jx_dump(params, ret_body, ret_len, e);
    *ret_body = strdup("{}");
    *ret_len = 2;
    return *ret_body ? 0 : err_oom(e);
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
    r = send_request(c, &req, &res, e);
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
    uint64_t n; /* whole ones */
    int (*fn)(void *arg, json_t *msg);
    void *arg;
    int failed;
    bool has_ended;
    struct err why;
};

/* An empty line or {"keepalive":...} only says that the agent is there. */
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
        return err_set(&l->why, ERR_CANCELED, "ended by the receiver");
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
    r = send_request(c, &req, &res, e);
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

/* ---- bytes ---- */

/* Percent-encodes all but unreserved characters and '/'. */
static int add_encoded(struct buf *b, const char *s, bool keep_slash, struct err *e)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    int r = 0;

    for (; *s && r == 0; s++) {
        if (strchr(plain, *s) || (keep_slash && *s == '/'))
            r = buf_add(b, s, 1, e);
        else
            r = buf_addf(b, e, "%%%02X", (unsigned char)*s);
    }
    return r;
}

static int new_url(struct client *c, const char *route, const char *path, const char *query,
                   char **ret, struct err *e)
{
    _cleanup_buf_ struct buf b = {0};
    bool is_query = str_has_suffix(route, "=");
    int r;

    buf_init(&b, 64 * 1024);
    r = buf_addf(&b, e, "%s%s", c->base, route);
    if (r == 0)
        r = add_encoded(&b, path, !is_query, e);
    if (r == 0 && query && *query)
        r = buf_addf(&b, e, "%c%s", is_query ? '&' : '?', query);
    if (r == 0)
        *ret = buf_take(&b);
    return r;
}

static int get_bytes(struct client *c, const char *url, int (*write)(void *, const char *, size_t),
                     void *arg, int64_t deadline_mono_ms, int64_t answer_ms, struct err *e)
{
    const char *headers[] = {c->auth, c->quiet, NULL};
    struct http_response res = {0};
    struct http_request req = {.method = "GET",
                               .url = url,
                               .headers = headers,
                               .write = write,
                               .write_arg = arg,
                               .deadline_mono_ms = deadline_mono_ms,
                               .answer_timeout_ms = answer_ms,
                               .stall_timeout_ms = c->stall_ms,
                               .stall_bytes = CLIENT_STALL_BYTES};
    int r = send_request(c, &req, &res, e);

    http_response_done(&res);
    return r;
}

int client_get(struct client *c, const char *route, int (*write)(void *, const char *, size_t),
               void *arg, int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_free_ char *url = NULL;

    if (asprintf(&url, "%s%s", c->base, route) < 0)
        return err_oom(e);
    return get_bytes(c, url, write, arg, deadline_mono_ms, c->answer_ms, e);
}

int client_get_file(struct client *c, const char *path, int (*write)(void *, const char *, size_t),
                    void *arg, int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_free_ char *url = NULL;
    int r = new_url(c, "/v1/files/", path, NULL, &url, e);

    return r < 0 ? r : get_bytes(c, url, write, arg, deadline_mono_ms, c->answer_ms, e);
}

int client_get_archive(struct client *c, const char *path, const char *query,
                       int (*write)(void *, const char *, size_t), void *arg,
                       int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_free_ char *url = NULL;
    int r = new_url(c, "/v1/archive?path=", path, query, &url, e);

    return r < 0 ? r : get_bytes(c, url, write, arg, deadline_mono_ms, c->work_ms, e);
}

int client_post_archive(struct client *c, const char *path, const char *query, const char *names,
                        size_t names_bytes, int (*write)(void *, const char *, size_t), void *arg,
                        int64_t deadline_mono_ms, struct err *e)
{
    const char *headers[] = {"Content-Type: application/octet-stream", c->auth, NULL};
    _cleanup_free_ char *url = NULL;
    struct http_response res = {0};
    struct http_request req = {.method = "POST",
                               .headers = headers,
                               .body = names,
                               .body_len = names_bytes,
                               .write = write,
                               .write_arg = arg,
                               .deadline_mono_ms = deadline_mono_ms,
                               .answer_timeout_ms = c->work_ms,
                               /* gigabytes of zeros are little that is long in coming */
                               .stall_timeout_ms = c->work_ms,
                               .stall_bytes = CLIENT_STALL_BYTES};
    int r = new_url(c, "/v1/archive?path=", path, query, &url, e);

    if (r < 0)
        return r;
    req.url = url;
    r = send_request(c, &req, &res, e);
    http_response_done(&res);
    return r;
}

int client_put_file(struct client *c, const char *path, const void *data, size_t len, uint32_t mode,
                    const char *user, int64_t deadline_mono_ms, struct err *e)
{
    const char *headers[] = {"Content-Type: application/octet-stream", c->auth, NULL};
    _cleanup_free_ char *url = NULL;
    _cleanup_buf_ struct buf query = {0};
    struct http_response res = {0};
    struct http_request req = {.method = "PUT",
                               .headers = headers,
                               .body = len ? data : "",
                               .body_len = len,
                               .deadline_mono_ms = deadline_mono_ms,
                               .answer_timeout_ms = c->work_ms};
    int r;

    buf_init(&query, 4096);
    r = buf_addf(&query, e, "mode=%04o", (unsigned)mode);
    if (r == 0 && user) {
        r = buf_adds(&query, "&user=", e);
        if (r == 0)
            r = add_encoded(&query, user, false, e);
    }
    if (r == 0)
        r = new_url(c, "/v1/files/", path, query.data, &url, e);
    if (r < 0)
        return r;
    req.url = url;
    r = send_request(c, &req, &res, e);
    http_response_done(&res);
    return r;
}

#define BYTES_HEADERS 8
#define BYTES_HEADER_BYTES 512

static int add_header(char headers[][BYTES_HEADER_BYTES], const char **list, size_t *n,
                      const char *name, const char *value, struct err *e)
{
    if (!value)
        return 0;
    if (strlen(name) + strlen(value) + 3 > BYTES_HEADER_BYTES || strpbrk(value, "\r\n"))
        return err_field(e, ERR_INVALID, name, "this is not a value for the header %s", name);
    (void)snprintf(headers[*n], BYTES_HEADER_BYTES, "%s: %s", name, value);
    list[*n] = headers[*n];
    (*n)++;
    return 0;
}

static void take_etag(const struct http_response *res, const struct client_bytes *b)
{
    char tag[BYTES_HEADER_BYTES];
    size_t len;

    if (!b->etag || b->etag_bytes == 0)
        return;
    if (!http_header(res, "ETag", tag, sizeof(tag)))
        tag[0] = '\0';
    len = strlen(tag);
    if (len >= 2 && tag[0] == '"' && tag[len - 1] == '"') {
        tag[len - 1] = '\0';
        (void)snprintf(b->etag, b->etag_bytes, "%s", tag + 1);
    } else {
        (void)snprintf(b->etag, b->etag_bytes, "%s", tag);
    }
}

int client_bytes(struct client *c, const char *method, const char *path,
                 const struct client_bytes *b, int64_t deadline_mono_ms, struct err *e)
{
    char text[BYTES_HEADERS][BYTES_HEADER_BYTES];
    const char *headers[BYTES_HEADERS + 2] = {NULL};
    _cleanup_free_ char *url = NULL;
    struct http_response res = {0};
    struct http_request req = {.method = method,
                               .headers = headers,
                               .body = b->data,
                               .body_len = b->len,
                               .write = b->write,
                               .write_arg = b->arg,
                               .deadline_mono_ms = deadline_mono_ms,
                               .answer_timeout_ms = b->data ? c->work_ms : c->answer_ms,
                               .stall_timeout_ms = c->stall_ms,
                               .stall_bytes = CLIENT_STALL_BYTES};
    size_t n = 0;
    int r = add_header(text, headers, &n, "Range", b->range, e);

    if (r == 0)
        r = add_header(text, headers, &n, "If-Match", b->if_match, e);
    if (r == 0)
        r = add_header(text, headers, &n, "If-None-Match", b->if_none_match, e);
    if (r == 0)
        r = add_header(text, headers, &n, "Repr-Digest", b->digest, e);
    if (r == 0 && b->data)
        r = add_header(text, headers, &n, "Content-Type", "application/octet-stream", e);
    if (r == 0)
        r = new_url(c, "/v1/files/", path, b->query, &url, e);
    if (r < 0)
        return r;
    headers[n] = c->auth;
    req.url = url;
    r = send_request(c, &req, &res, e);
    if (r == 0)
        take_etag(&res, b);
    http_response_done(&res);
    return r;
}

int client_put_archive(struct client *c, const char *dir, const char *query,
                       int64_t (*read)(void *arg, char *out, size_t max, struct err *e), void *arg,
                       int64_t deadline_mono_ms, json_t **ret, struct err *e)
{
    const char *headers[] = {"Content-Type: application/octet-stream", c->auth, NULL};
    _cleanup_free_ char *url = NULL;
    struct http_response res = {0};
    struct http_request req = {.method = "PUT",
                               .headers = headers,
                               .read = read,
                               .read_arg = arg,
                               .read_len = -1,
                               .deadline_mono_ms = deadline_mono_ms,
                               .answer_timeout_ms = c->work_ms};
    json_t *reply = NULL;
    int r;

    r = new_url(c, "/v1/archive?path=", dir, query, &url, e);
    if (r < 0)
        return r;
    req.url = url;
    r = send_request(c, &req, &res, e);
    if (r < 0)
        return r;
    if (res.body.len == 0)
        reply = json_object();
    else if (jx_parse_within(res.body.data, res.body.len, CLIENT_LARGE_PARSED_BYTES, &reply, NULL) <
             0)
        r = err_set(e, ERR_DATA_LOSS, "the guest agent's answer to the archive is not JSON");
    http_response_done(&res);
    if (r == 0 && ret)
        *ret = reply;
    else
        json_decref(reply);
    return r;
}

/* ---- servers in the box ---- */

static int basic_header(const char *basic, char **ret, struct err *e)
{
    size_t len = basic ? strlen(basic) : 0;
    _cleanup_free_ char *text = malloc(B64_LEN(len) + 1);

    if (!text)
        return err_oom(e);
    b64_encode(basic ? basic : "", len, text);
    text[B64_LEN(len)] = '\0';
    return asprintf(ret, "Authorization: Basic %s", text) < 0 ? err_oom(e) : 0;
}

/* The agent's own token goes by its other header: Authorization is the server's. */
int client_get_port(struct client *c, uint16_t port, const char *path, const char *basic,
                    int64_t deadline_mono_ms, int *ret_status, struct buf *ret_body, struct err *e)
{
    _cleanup_free_ char *url = NULL;
    _cleanup_free_ char *auth = NULL;
    _cleanup_free_ char *token = NULL;
    const char *headers[4] = {NULL};
    struct http_request req = {.method = "GET",
                               .unix_socket = c->socket,
                               .check_peer = c->check_peer,
                               .check_arg = c->check_arg,
                               .headers = headers,
                               .max_body = CLIENT_PORT_BODY_BYTES,
                               .deadline_mono_ms = deadline_mono_ms,
                               .answer_timeout_ms = c->work_ms};
    struct http_response res = {0};
    size_t n = 0;
    int r = basic ? basic_header(basic, &auth, e) : 0;

    if (r < 0)
        return r;
    if (asprintf(&url, "%s/v1/proxy/%u%s", c->base, (unsigned)port, path) < 0 ||
        asprintf(&token, "X-Access-Token: %s", c->token ? c->token : "") < 0)
        return err_oom(e);
    if (c->token)
        headers[n++] = token;
    if (auth)
        headers[n++] = auth;
    if (c->is_quiet)
        headers[n++] = quiet_header;
    req.url = url;
    r = http_do(c->http, &req, &res, e);
    if (r < 0)
        return r;
    *ret_status = res.status;
    *ret_body = res.body;
    res.body = (struct buf){0};
    http_response_done(&res);
    return 0;
}

/* ---- tunnel ---- */

int client_tunnel(const struct client_options *opts, uint16_t port, int64_t deadline_mono_ms,
                  int *ret_fd, struct err *e)
{
    _cleanup_buf_ struct buf request = {0};
    _cleanup_buf_ struct buf answer = {0};
    _cleanup_close_ int fd = -1;
    int r;

    if (!opts->socket)
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
        /* One byte at a time until the empty line: what follows belongs to the caller. */
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
