#include "lib/util/daemon_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "lib/util/transport.h"
#include "lib/util/unix_http.h"

/* A page of 100 boxes with labels and keys has 1 MiB; as values it takes three times that. */
#define DAEMON_ANSWER_BYTES (16 * 1024 * 1024)
#define DAEMON_PARSED_BYTES (48 * 1024 * 1024)
#define DAEMON_URL_BYTES 2048
#define UNIX_PREFIX "unix:"

struct daemon_client {
    struct http *http;           /* over TCP; made with the first call */
    struct unix_http *unix_http; /* the same to a unix socket */
    char *base;
    char *socket;
    char *token;
    char *auth;  /* "Authorization: Bearer ...", or NULL */
    char *actor; /* "Bellhop-Actor: ...", or NULL */
    char *ca_file;
    int cancel_fd;
    int status;
    const struct debug *debug;
};

static int refuse_url(const char *url, struct err *e)
{
    return err_field(e, ERR_INVALID, "daemon",
                     "daemon: '%.200s' is not http://HOST:PORT, https://HOST:PORT or unix:PATH",
                     url);
}

/* A host and a port, perhaps: the API is at the root of its server. */
static int read_base(const char *url, const char *host, char **ret, struct err *e)
{
    size_t n = strcspn(host, "/?#");

    if (!n || strspn(host + n, "/") != strlen(host + n) || strlen(url) > DAEMON_URL_BYTES ||
        strcspn(url, " \t\r\n\"\\") != strlen(url))
        return refuse_url(url, e);
    if (memchr(host, '@', n))
        return err_field(e, ERR_INVALID, "daemon",
                         "daemon: a URL has no user: the token comes from a file or "
                         "$BELLHOP_TOKEN");
    *ret = strndup(url, (size_t)(host - url) + n);
    return *ret ? 0 : err_oom(e);
}

static int read_url(struct daemon_client *d, const char *url, struct err *e)
{
    if (str_has_prefix(url, UNIX_PREFIX)) {
        if (!path_is_absolute(url + strlen(UNIX_PREFIX)))
            return refuse_url(url, e);
        d->socket = strdup(url + strlen(UNIX_PREFIX));
        d->base = strdup("http://bellhop");
        return d->socket && d->base ? 0 : err_oom(e);
    }
    if (str_has_prefix(url, "http://"))
        return read_base(url, url + strlen("http://"), &d->base, e);
    if (str_has_prefix(url, "https://"))
        return read_base(url, url + strlen("https://"), &d->base, e);
    return refuse_url(url, e);
}

static int read_token(struct daemon_client *d, const char *token, struct err *e)
{
    if (strcspn(token, " \t\r\n") != strlen(token) || !*token)
        return err_field(e, ERR_INVALID, "token", "token: it is empty, or has a space");
    d->token = strdup(token);
    if (!d->token || asprintf(&d->auth, "Authorization: Bearer %s", token) < 0) {
        d->auth = NULL;
        return err_oom(e);
    }
    return 0;
}

/* A text that is no value of a header has no actor: the daemon's own then. */
static int set_actor_header(struct daemon_client *d, const char *actor, struct err *e)
{
    if (!d->socket || !actor || strcspn(actor, "\r\n") != strlen(actor))
        return 0;
    if (asprintf(&d->actor, WIRE_HEADER_ACTOR ": %s", actor) >= 0)
        return 0;
    d->actor = NULL;
    return err_oom(e);
}

int daemon_client_new(const struct daemon_client_options *o, struct daemon_client **ret,
                      struct err *e)
{
    struct daemon_client *d = calloc(1, sizeof(*d));
    int r = d ? read_url(d, o->url, e) : err_oom(e);

    if (r == 0 && o->token)
        r = read_token(d, o->token, e);
    if (r == 0 && o->ca_file && access(o->ca_file, R_OK) < 0)
        r = err_at(e, err_sys(e, errno, "daemon-ca: '%s'", o->ca_file), "daemon-ca");
    if (r == 0 && o->ca_file && !(d->ca_file = strdup(o->ca_file)))
        r = err_oom(e);
    if (r == 0)
        r = set_actor_header(d, o->actor, e);
    if (r < 0) {
        (void)daemon_client_free(d);
        return r;
    }
    d->cancel_fd = o->cancel_fd;
    d->debug = o->debug;
    *ret = d;
    return 0;
}

static void free_secret(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

struct daemon_client *daemon_client_free(struct daemon_client *d)
{
    if (!d)
        return NULL;
    (void)http_free(d->http);
    (void)unix_http_free(d->unix_http);
    free(d->actor);
    free(d->base);
    free(d->socket);
    free(d->ca_file);
    free_secret(d->token);
    free_secret(d->auth);
    free(d);
    return NULL;
}

const char *daemon_client_base(const struct daemon_client *d)
{
    return d->base;
}

const char *daemon_client_socket(const struct daemon_client *d)
{
    return d->socket;
}

const char *daemon_client_token(const struct daemon_client *d)
{
    return d->token;
}

const char *daemon_client_ca(const struct daemon_client *d)
{
    return d->ca_file;
}

int daemon_client_check_peer(void *arg, int fd, struct err *e)
{
    struct ucred who = {0};
    socklen_t len = sizeof(who);

    (void)arg;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
        return err_sys(e, errno, "the daemon's socket");
    if (who.uid != 0 && who.uid != geteuid())
        return err_field(e, ERR_UNAUTHENTICATED, "daemon",
                         "daemon: the user %u listens there, neither you nor root",
                         (unsigned)who.uid);
    return 0;
}

int daemon_client_status(const struct daemon_client *d)
{
    return d->status;
}

char *daemon_client_encode(const char *part)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    char *out = malloc(3 * strlen(part) + 1);
    char *to = out;

    for (; out && *part; part++) {
        if (strchr(plain, *part))
            *to++ = *part;
        else
            to += snprintf(to, 4, "%%%02X", (unsigned char)*part);
    }
    if (out)
        *to = '\0';
    return out;
}

/* ---- calls ---- */

static int answer_error(int status, const struct buf *body, struct err *e)
{
    _cleanup_json_ json_t *obj = NULL;
    struct err told = {0};

    if (body->len && jx_parse_within(body->data, body->len, DAEMON_PARSED_BYTES, &obj, NULL) == 0 &&
        jx_read_error(obj, &told)) {
        if (e)
            *e = told;
        return -told.code;
    }
    return err_field(e, status == 401 ? ERR_UNAUTHENTICATED : ERR_UNAVAILABLE, "daemon",
                     "no daemon of Bellhop answers there: the status is %d", status);
}

static int read_answer(int status, const struct buf *body, json_t **ret, struct err *e)
{
    json_t *v = NULL;
    int r;

    if (status < 200 || status > 299)
        return answer_error(status, body, e);
    if (status != 204) {
        r = jx_parse_within(body->data ? body->data : "", body->len, DAEMON_PARSED_BYTES, &v, e);
        if (r == -ERR_EXHAUSTED)
            return err_wrap(e, r, "the daemon's answer");
        if (r < 0)
            return err_field(e, ERR_DATA_LOSS, "daemon", "the daemon's answer is not JSON");
    }
    if (ret)
        *ret = v;
    else
        json_decref(v);
    return 0;
}

/* A call on its way. */
struct call {
    const char *method, *path;
    const char *const *headers;
    const char *text; /* the body, or NULL */
    size_t len;
    int64_t deadline_mono_ms;
};

static int send_over_tcp(struct daemon_client *d, const struct call *c, int *ret_status,
                         struct buf *ret_body, struct err *e)
{
    _cleanup_free_ char *url = NULL;
    struct http_response res = {0};
    struct http_request req = {.method = c->method,
                               .headers = c->headers,
                               .body = c->text,
                               .body_len = c->len,
                               .deadline_mono_ms = c->deadline_mono_ms,
                               .max_body = DAEMON_ANSWER_BYTES};
    int r = d->http ? 0 : http_new(d->cancel_fd, &d->http, e);

    if (r < 0)
        return r;
    if (asprintf(&url, "%s%s", d->base, c->path) < 0) {
        url = NULL;
        return err_oom(e);
    }
    http_set_debug(d->http, d->debug);
    http_set_ca(d->http, d->ca_file);
    req.url = url;
    r = http_do(d->http, &req, &res, e);
    if (r < 0)
        return r;
    *ret_status = res.status;
    *ret_body = res.body;
    res.body = (struct buf){0};
    http_response_done(&res);
    return 0;
}

static int send_to_socket(struct daemon_client *d, const struct call *c,
                          struct unix_http_answer *ret, struct err *e)
{
    const struct unix_http_options o = {
        .path = d->socket, .cancel_fd = d->cancel_fd, .check_peer = daemon_client_check_peer};
    const struct unix_http_request q = {.method = c->method,
                                        .target = c->path,
                                        .headers = c->headers,
                                        .body = c->text,
                                        .body_len = c->len,
                                        .deadline_mono_ms = c->deadline_mono_ms};
    int64_t begun_ms = clock_mono_ms();
    int r = d->unix_http ? 0 : unix_http_new(&o, &d->unix_http, e);

    buf_init(&ret->body, DAEMON_ANSWER_BYTES);
    if (r == 0)
        r = unix_http_do(d->unix_http, &q, ret, e);
    debug_line(d->debug, "http", "%s %s%.*s %d %zu bytes %lld ms%s%s", c->method, d->base,
               (int)strcspn(c->path, "?"), c->path, r < 0 ? 0 : ret->status, ret->body.len,
               (long long)(clock_mono_ms() - begun_ms), r < 0 ? " " : "",
               r < 0 ? err_wire_name(r) : "");
    if (r < 0)
        buf_done(&ret->body);
    return r;
}

/* The headers of a call; each list of them ends at the first NULL. */
static void list_headers(const struct daemon_client *d, bool has_body, const char *out[4])
{
    size_t n = 0;

    if (has_body)
        out[n++] = "Content-Type: " WIRE_TYPE_JSON;
    if (d->auth)
        out[n++] = d->auth;
    if (d->actor)
        out[n++] = d->actor;
    out[n] = NULL;
}

static int send_call(struct daemon_client *d, const struct call *c, int *ret_status,
                     struct buf *ret_body, struct err *e)
{
    struct unix_http_answer answer = {0};
    int r;

    if (!d->socket) {
        r = send_over_tcp(d, c, ret_status, ret_body, e);
    } else {
        r = send_to_socket(d, c, &answer, e);
        *ret_status = answer.status;
        *ret_body = answer.body;
    }
    return r < 0 ? err_at(e, err_wrap(e, r, "the daemon"), "daemon") : 0;
}

int daemon_client_call(struct daemon_client *d, const char *method, const char *path,
                       const json_t *body, int64_t timeout_ms, json_t **ret, struct err *e)
{
    const char *headers[4];
    _cleanup_free_ char *text = NULL;
    struct buf answer _cleanup_buf_ = {0};
    struct call c = {.method = method,
                     .path = path,
                     .headers = headers,
                     .deadline_mono_ms = clock_mono_ms() + timeout_ms};
    int status = 0;
    int r = body ? jx_dump(body, &text, &c.len, e) : 0;

    list_headers(d, body != NULL, headers);
    c.text = text;
    if (r == 0)
        r = send_call(d, &c, &status, &answer, e);
    d->status = r == 0 ? status : 0;
    if (r == 0)
        r = read_answer(status, &answer, ret, e);
    free_secret(TAKE(text)); /* it may have variables and secrets */
    return r;
}

bool daemon_client_is_unconnected(const struct daemon_client *d)
{
    return d->unix_http && unix_http_is_unconnected(d->unix_http);
}

int daemon_client_greet(struct daemon_client *d, const char *instance, int64_t timeout_ms,
                        struct err *e)
{
    const struct call c = {
        .method = "GET", .path = "/v1/health", .deadline_mono_ms = clock_mono_ms() + timeout_ms};
    struct unix_http_answer answer = {.see = WIRE_HEADER_DAEMON};
    int r = send_to_socket(d, &c, &answer, e);

    if (r == 0 && !str_eq(answer.seen, instance))
        r = err_set(e, ERR_NOT_FOUND, "another daemon answers at '%s'", d->socket);
    free(answer.seen);
    buf_done(&answer.body);
    return r;
}
