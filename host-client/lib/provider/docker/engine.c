#include "lib/provider/docker/engine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/daemon_client.h"
#include "lib/util/socket.h"
#include "lib/util/transport.h"

#define ENGINE_ANSWER_BYTES (8 * 1024 * 1024)
#define ENGINE_PARSED_BYTES (32 * 1024 * 1024)
#define ENGINE_LOG_BYTES (256 * 1024)
#define ENGINE_PATH_BYTES 4096
#define ENGINE_HEAD_BYTES 8192
#define ENGINE_MESSAGE_CHARS 300
#define UNIX_PREFIX "unix://"
#define TCP_PREFIX "tcp://"
#define CERTS "?certs="
#define CONTEXT_PREFIX "context:" /* and the name of a context that is not there */
/* 1.40 is Docker 19.03's; the newest that was read for this file. */
#define MINOR_LEAST 40
#define MINOR_MOST 47

struct engine {
    struct bh_ctx *ctx;
    struct http *http;
    int64_t deadline_mono_ms;
    char *url;    /* as it was opened */
    char *base;   /* "http://docker", "https://HOST:PORT" */
    char *socket; /* or NULL */
    char *host;   /* "HOST:PORT", without a socket */
    char *ca, *cert, *key;
    unsigned minor;  /* of the version 1.N; 0: not agreed yet */
    unsigned newest; /* of the engine */
    bool is_podman;
};

/* ---- which one ---- */

int engine_choose(const struct bh_ctx *ctx, char **ret, struct err *e)
{
    const char *const formats[] = {"/var/run/docker.sock", "/run/user/%u/docker.sock",
                                   "/run/podman/podman.sock", "/run/user/%u/podman/podman.sock"};

    if (ctx->docker_host && *ctx->docker_host) {
        *ret = strdup(ctx->docker_host);
        return *ret ? 0 : err_oom(e);
    }
    for (size_t i = 0; i < N_ELEMENTS(formats); i++) {
        char path[64];

        if (strchr(formats[i], '%'))
            (void)snprintf(path, sizeof(path), "/run/user/%u%s", (unsigned)geteuid(),
                           formats[i] + strlen("/run/user/%u"));
        else
            (void)snprintf(path, sizeof(path), "%s", formats[i]);
        if (access(path, F_OK) == 0)
            return asprintf(ret, UNIX_PREFIX "%s", path) < 0 ? err_oom(e) : 0;
    }
    return err_field(
        e, ERR_UNAVAILABLE, "docker_host",
        "no engine is here: start Docker or Podman, or set DOCKER_HOST (none of these is "
        "there: /var/run/docker.sock, /run/user/%u/docker.sock, "
        "/run/podman/podman.sock, /run/user/%u/podman/podman.sock)",
        (unsigned)geteuid(), (unsigned)geteuid());
}

static int refuse_engine_url(const char *url, struct err *e)
{
    if (str_has_prefix(url, CONTEXT_PREFIX))
        return err_field(e, ERR_NOT_FOUND, "docker_host",
                         "Docker has no context '%.200s' ('docker context ls' lists them)",
                         url + strlen(CONTEXT_PREFIX));
    if (str_has_prefix(url, "ssh://"))
        return err_field(
            e, ERR_UNIMPLEMENTED, "docker_host",
            "the engine's address '%.200s' is not supported: forward the engine's socket "
            "(ssh -L), and name it as unix:///PATH",
            url);
    if (str_has_prefix(url, TCP_PREFIX) && url[strlen(TCP_PREFIX)] &&
        !strpbrk(url + strlen(TCP_PREFIX), ":/?[]@ "))
        return err_field(e, ERR_INVALID, "docker_host",
                         "the engine's address '%.200s' has no port: 2375, or 2376 with TLS, is "
                         "usual",
                         url);
    return err_field(e, ERR_INVALID, "docker_host",
                     "the engine's address '%.200s' is neither unix:///PATH nor tcp://HOST:PORT",
                     url);
}

/* "HOST:PORT" of n bytes. */
static bool has_host_and_port(const char *at, size_t n)
{
    const char *colon = memrchr(at, ':', n);
    char port[8];
    uint64_t number;

    if (!colon || colon == at || (size_t)(at + n - colon) > sizeof(port))
        return false;
    (void)snprintf(port, sizeof(port), "%.*s", (int)(at + n - colon - 1), colon + 1);
    return str_parse_u64(port, 1, 65535, &number, NULL) == 0;
}

static int read_certs(struct engine *d, const char *dir, struct err *e)
{
    const struct {
        const char *name;
        char **at;
    } files[] = {{"ca.pem", &d->ca}, {"cert.pem", &d->cert}, {"key.pem", &d->key}};

    for (size_t i = 0; i < N_ELEMENTS(files); i++) {
        *files[i].at = path_join(dir, files[i].name);
        if (!*files[i].at)
            return err_oom(e);
        if (access(*files[i].at, R_OK) < 0)
            return err_at(e, err_sys(e, errno, "the engine's certificates: '%s'", *files[i].at),
                          "docker_host");
    }
    return 0;
}

static int read_engine_url(struct engine *d, const char *url, struct err *e)
{
    const char *host = url + strlen(TCP_PREFIX);
    const char *certs = strstr(url, CERTS);
    size_t n = strcspn(host, "/?");
    struct stat st;
    int r;

    if (str_has_prefix(url, UNIX_PREFIX)) {
        d->socket = strdup(url + strlen(UNIX_PREFIX));
        d->base = strdup("http://docker");
        if (!d->socket || !d->base)
            return err_oom(e);
        if (!path_is_absolute(d->socket))
            return refuse_engine_url(url, e);
        if (stat(d->socket, &st) == 0 &&
            !S_ISSOCK(st.st_mode)) /* the kernel refuses a connection */
            return err_field(e, ERR_UNAVAILABLE, "docker_host", "the engine: '%.200s' is no socket",
                             d->socket);
        return 0;
    }
    if (!str_has_prefix(url, TCP_PREFIX) || !has_host_and_port(host, n) ||
        strlen(url) > ENGINE_URL_BYTES || strcspn(url, " \t\r\n\"\\@") != strlen(url))
        return refuse_engine_url(url, e);
    r = certs ? read_certs(d, certs + strlen(CERTS), e) : 0;
    if (r < 0)
        return r;
    d->host = strndup(host, n);
    if (!d->host || asprintf(&d->base, "%s://%s", certs ? "https" : "http", d->host) < 0)
        return err_oom(e);
    return 0;
}

/* ---- open ---- */

static int engine_request(struct engine *d, struct http_request *req, const char *path,
                          struct http_response *ret, struct err *e)
{
    _cleanup_free_ char *url = NULL;
    char version[16] = "";
    int r;

    if (d->minor)
        (void)snprintf(version, sizeof(version), "/v1.%u", d->minor);
    if (asprintf(&url, "%s%s%s", d->base, version, path) < 0) {
        url = NULL;
        return err_oom(e);
    }
    req->url = url;
    req->unix_socket = d->socket;
    req->deadline_mono_ms = d->deadline_mono_ms;
    r = http_do(d->http, req, ret, e);
    req->url = NULL;
    if (r == -ERR_INVALID || r == -ERR_INTERNAL) { /* it speaks no HTTP: not the caller's fault */
        r = -ERR_DATA_LOSS;
        if (e)
            e->code = ERR_DATA_LOSS;
    }
    if (r >= 0 || r == -ERR_CANCELED)
        return r;
    return err_at(e, err_wrap(e, r, "the engine"), "docker_host");
}

/* A server of TLS may end a connection that does not begin with its handshake. */
static bool is_broken_off(const struct err *why)
{
    return why->sys == ECONNRESET || strstr(why->message, "Empty reply") ||
           strstr(why->message, "reset by peer");
}

static int ask_version(struct engine *d, struct err *e)
{
    struct http_request req = {.method = "GET", .max_body = 4096};
    struct http_response res = {0};
    char text[32] = "";
    const char *name = d->socket ? d->socket : d->host;
    unsigned theirs = 0;
    bool wants_tls;
    struct err why = {0};
    int r = engine_request(d, &req, "/_ping", &res, &why);

    if (r == -ERR_UNAVAILABLE && d->host && !d->ca && is_broken_off(&why))
        return err_field(e, ERR_UNAVAILABLE, "docker_host",
                         "%.300s: if it wants TLS, name the directory of its certificates by "
                         "DOCKER_CERT_PATH",
                         why.message);
    if (r < 0) {
        if (e)
            *e = why;
        return r;
    }
    if (res.status == 200 && http_header(&res, "Api-Version", text, sizeof(text)))
        (void)sscanf(text, "1.%3u", &theirs);
    d->is_podman = http_header(&res, "Libpod-Api-Version", text, sizeof(text));
    wants_tls =
        res.status == 400 && res.body.len && memmem(res.body.data, res.body.len, "HTTPS", 5);
    r = res.status;
    http_response_done(&res);
    if (wants_tls)
        return err_field(e, ERR_UNAVAILABLE, "docker_host",
                         "'%s' wants TLS: name the directory of its certificates by "
                         "DOCKER_CERT_PATH",
                         name);
    if (!theirs)
        return err_field(e, ERR_UNAVAILABLE, "docker_host",
                         "'%s' answers with status %d: it is no engine of Docker or Podman", name,
                         r);
    if (theirs < MINOR_LEAST)
        return err_field(e, ERR_UNIMPLEMENTED, "docker_host",
                         "the engine has the API 1.%u: 1.%d to 1.%d is needed", theirs, MINOR_LEAST,
                         MINOR_MOST);
    d->newest = theirs;
    if (theirs <= MINOR_MOST)
        d->minor = theirs;
    return 0;
}

/* An engine that is newer than what we know says which versions it still has. Asked without a version. */
static int check_least_version(struct engine *d, struct err *e)
{
    _cleanup_json_ json_t *version = NULL;
    unsigned least = 0;
    const char *text;
    int r = engine_call(d, "GET", "/version", NULL, &version, e);

    if (r < 0)
        return r;
    text = json_string_value(json_object_get(version, "MinAPIVersion"));
    if (text)
        (void)sscanf(text, "1.%3u", &least);
    if (least > MINOR_MOST)
        return err_field(e, ERR_UNIMPLEMENTED, "docker_host",
                         "the engine has the API 1.%u to 1.%u: 1.%d to 1.%d is needed", least,
                         d->newest, MINOR_LEAST, MINOR_MOST);
    return 0;
}

int engine_open(struct bh_ctx *ctx, const char *url, int64_t deadline_mono_ms, struct engine **ret,
                struct err *e)
{
    struct engine *d = calloc(1, sizeof(*d));
    int r = d && (d->url = strdup(url)) ? read_engine_url(d, url, e) : err_oom(e);

    if (r == 0)
        r = http_new(ctx->cancel_fd, &d->http, e);
    if (r == 0) {
        d->ctx = ctx;
        d->deadline_mono_ms = deadline_mono_ms;
        http_set_debug(d->http, &ctx->debug);
        http_set_ca(d->http, d->ca);
        http_set_certificate(d->http, d->cert, d->key);
        r = ask_version(d, e);
    }
    if (r == 0 && !d->minor) {
        r = check_least_version(d, e);
        d->minor = MINOR_MOST;
    }
    if (r < 0) {
        (void)engine_free(d);
        return r;
    }
    *ret = d;
    return 0;
}

void engine_set_deadline(struct engine *d, int64_t deadline_mono_ms)
{
    d->deadline_mono_ms = deadline_mono_ms;
}

struct engine *engine_free(struct engine *d)
{
    if (!d)
        return NULL;
    (void)http_free(d->http);
    free(d->url);
    free(d->base);
    free(d->socket);
    free(d->host);
    free(d->ca);
    free(d->cert);
    free(d->key);
    free(d);
    return NULL;
}

const char *engine_url(const struct engine *d)
{
    return d->url;
}

bool engine_is_local(const struct engine *d)
{
    return d->socket ||
           (d->host && (str_has_prefix(d->host, "127.") || str_has_prefix(d->host, "localhost:")));
}

int engine_owner(const struct engine *d, uid_t *ret, struct err *e)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    _cleanup_close_ int fd = -1;
    int r = d->socket ? socket_connect(d->socket, 0, &fd, e)
                      : err_set(e, ERR_UNIMPLEMENTED, "the engine is reached by TCP");

    if (r < 0)
        return r;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return err_sys(e, errno, "ask the engine's socket for its owner");
    *ret = peer.uid;
    return 0;
}

bool engine_is_podman(const struct engine *d)
{
    return d->is_podman;
}

char *engine_encode_take(json_t *value)
{
    _cleanup_free_ char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;

    json_decref(value);
    return text ? daemon_client_encode(text) : NULL;
}

/* ---- calls ---- */

#define NO_SPACE "no space left on device"

static enum err_code code_of_status(int status, const char *message)
{
    if (strstr(message, NO_SPACE))
        return ERR_EXHAUSTED;
    return status == 404                    ? ERR_NOT_FOUND
           : status == 409                  ? ERR_EXISTS
           : status == 400                  ? ERR_INVALID
           : status == 401 || status == 403 ? ERR_DENIED
                                            : ERR_UNAVAILABLE;
}

/* Of one line, for people: the text may be anything. Podman tries the formats of an image one by one, and has the reason
 * that counts behind those of all others. */
static int engine_says(int status, const char *text, struct err *e)
{
    _cleanup_free_ char *line = str_clamp(text ? text : "", ENGINE_MESSAGE_CHARS);
    enum err_code code = code_of_status(status, text ? text : "");

    if (!line)
        return err_oom(e);
    return err_set(e, code, "the engine: %s%s (status %d)", *line ? line : "no reason is given",
                   code == ERR_EXHAUSTED && !strstr(line, NO_SPACE) ? ": " NO_SPACE : "", status);
}

static int engine_refusal(const struct http_response *res, struct err *e)
{
    _cleanup_json_ json_t *obj = NULL;

    if (res->body.len)
        (void)jx_parse_within(res->body.data, res->body.len, ENGINE_PARSED_BYTES, &obj, NULL);
    return engine_says(res->status, json_string_value(json_object_get(obj, "message")), e);
}

static int read_engine_answer(const struct http_response *res, json_t **ret, struct err *e)
{
    int r;

    if ((res->status < 200 || res->status > 299) && res->status != 304)
        return engine_refusal(res, e);
    if (!ret)
        return 0;
    *ret = NULL;
    if (!res->body.len)
        return 0;
    r = jx_parse_within(res->body.data, res->body.len, ENGINE_PARSED_BYTES, ret, e);
    return r < 0 ? err_field(e, ERR_DATA_LOSS, "docker_host", "the engine's answer is not JSON")
                 : 0;
}

static int engine_do(struct engine *d, struct http_request *req, const char *path, json_t **ret,
                     struct err *e)
{
    struct http_response res = {0};
    int r;

    req->max_body = ENGINE_ANSWER_BYTES;
    r = engine_request(d, req, path, &res, e);
    if (r == 0)
        r = read_engine_answer(&res, ret, e);
    http_response_done(&res);
    return r;
}

static int engine_send_json(struct engine *d, const char *method, const char *path,
                            const json_t *body, bool is_sent_once, json_t **ret, struct err *e)
{
    const char *headers[] = {"Content-Type: application/json", NULL};
    struct http_request req = {.method = method, .headers = headers, .is_sent_once = is_sent_once};
    _cleanup_free_ char *text = NULL;
    int r = body ? jx_dump(body, &text, &req.body_len, e) : 0;

    if (r < 0)
        return r;
    req.body = text ? text : "";
    if (str_eq(method, "GET") || str_eq(method, "HEAD"))
        req.body = NULL;
    return engine_do(d, &req, path, ret, e);
}

int engine_call(struct engine *d, const char *method, const char *path, const json_t *body,
                json_t **ret, struct err *e)
{
    return engine_send_json(d, method, path, body, false, ret, e);
}

int engine_post_once(struct engine *d, const char *path, const json_t *body, json_t **ret,
                     struct err *e)
{
    return engine_send_json(d, "POST", path, body, true, ret, e);
}

int engine_get(struct engine *d, json_t **ret, struct err *e, const char *fmt, ...)
{
    char path[ENGINE_PATH_BYTES];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(path, sizeof(path), fmt, ap);
    va_end(ap);
    return engine_call(d, "GET", path, NULL, ret, e);
}

int engine_post(struct engine *d, const json_t *body, struct err *e, const char *fmt, ...)
{
    char path[ENGINE_PATH_BYTES];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(path, sizeof(path), fmt, ap);
    va_end(ap);
    return engine_call(d, "POST", path, body, NULL, e);
}

struct tar_file {
    int fd;
    int64_t at, len;
};

static int64_t read_tar(void *arg, char *out, size_t max, struct err *e)
{
    struct tar_file *t = arg;
    size_t left = (size_t)(t->len - t->at);
    ssize_t n = pread(t->fd, out, left < max ? left : max, t->at);

    if (n < 0)
        return err_sys(e, errno, "read the image");
    if (n == 0 && left)
        return err_set(e, ERR_ABORTED, "the image's file became shorter");
    t->at += n;
    return n;
}

/* A load is a success before it is done: its answer is a JSON document a line, and one may be an error. */
static int read_load_errors(const struct http_response *res, struct err *e)
{
    const char *end = res->body.data + res->body.len, *line_end;

    if (res->status < 200 || res->status > 299)
        return engine_refusal(res, e);
    for (const char *line = res->body.data; line && line < end; line = line_end + 1) {
        _cleanup_json_ json_t *obj = NULL;
        const char *text = NULL;

        line_end = memchr(line, '\n', (size_t)(end - line));
        line_end = line_end ? line_end : end;
        if (jx_parse_within(line, (size_t)(line_end - line), ENGINE_PARSED_BYTES, &obj, NULL) == 0)
            text = json_string_value(json_object_get(obj, "error"));
        if (text)
            return engine_says(500, text, e);
    }
    return 0;
}

int engine_load(struct engine *d, int fd, int64_t len, struct err *e)
{
    const char *headers[] = {"Content-Type: application/x-tar", "Expect:", NULL};
    struct tar_file t = {.fd = fd, .len = len};
    struct http_request req = {.method = "POST",
                               .headers = headers,
                               .read = read_tar,
                               .read_arg = &t,
                               .read_len = len,
                               .max_body = ENGINE_ANSWER_BYTES};
    struct http_response res = {0};
    int r = engine_request(d, &req, "/images/load?quiet=1", &res, e);

    if (r == 0)
        r = read_load_errors(&res, e);
    http_response_done(&res);
    return r;
}

int engine_send_bytes(struct engine *d, const char *method, const char *path, const void *data,
                      size_t len, struct err *e)
{
    const char *headers[] = {"Content-Type: application/x-tar", NULL};
    struct http_request req = {.method = method, .headers = headers, .body = data, .body_len = len};

    return engine_do(d, &req, path, NULL, e);
}

/* ---- output ---- */

/* The frames of a container without a terminal: a byte for the stream, three of zero, the length in four. */
static void strip_frames(struct buf *b)
{
    size_t from = 0, to = 0;

    while (b->len - from >= 8) {
        const unsigned char *h = (const unsigned char *)b->data + from;
        size_t n = (size_t)h[4] << 24 | (size_t)h[5] << 16 | (size_t)h[6] << 8 | h[7];

        from += 8;
        if (n > b->len - from)
            n = b->len - from;
        memmove(b->data + to, b->data + from, n);
        from += n;
        to += n;
    }
    b->len = to;
}

int engine_logs(struct engine *d, const char *id, char **ret, size_t *ret_len, struct err *e)
{
    struct http_request req = {.method = "GET", .max_body = ENGINE_LOG_BYTES};
    struct http_response res = {0};
    char path[256];
    int r;

    (void)snprintf(path, sizeof(path), "/containers/%.80s/logs?stdout=1&stderr=1&tail=1000", id);
    r = engine_request(d, &req, path, &res, e);
    if (r < 0)
        return r;
    if (res.status != 200) {
        r = engine_refusal(&res, e);
        http_response_done(&res);
        return r;
    }
    strip_frames(&res.body);
    *ret_len = res.body.len;
    r = buf_add(&res.body, "", 1, NULL);
    *ret = r == 0 ? buf_take(&res.body) : NULL;
    http_response_done(&res);
    return *ret ? 0 : err_oom(e);
}

/* ---- raw connections ---- */

int engine_hijack(struct engine *d, const char *path, const json_t *body, int *ret_fd,
                  struct err *e)
{
    const char *headers[] = {"Content-Type: application/json", "Upgrade: tcp", NULL};
    struct http_request req = {.method = "POST",
                               .headers = headers,
                               .unix_socket = d->socket,
                               .deadline_mono_ms = d->deadline_mono_ms};
    _cleanup_free_ char *text = NULL, *url = NULL;
    int r = body ? jx_dump(body, &text, &req.body_len, e) : 0;

    if (r == 0 && asprintf(&url, "%s/v1.%u%s", d->base, d->minor, path) < 0) {
        url = NULL;
        r = err_oom(e);
    }
    req.url = url;
    req.body = text;
    return r < 0 ? r : http_upgrade(d->http, &req, ret_fd, e);
}

static int connect_plainly(struct engine *d, int *ret_fd, struct err *e)
{
    _cleanup_free_ char *host = NULL;
    uint64_t port = 0;
    char *colon;

    if (d->ca)
        return err_set(e, ERR_UNIMPLEMENTED, "the engine is reached by TLS");
    if (d->socket)
        return socket_connect(d->socket, 0, ret_fd, e);
    host = strdup(d->host);
    colon = host ? strrchr(host, ':') : NULL;
    if (!colon || str_parse_u64(colon + 1, 1, UINT16_MAX, &port, e) < 0)
        return err_set(e, ERR_INVALID, "'%.100s' has no port", d->host);
    *colon = '\0';
    return socket_connect_tcp(host, (uint16_t)port, d->ctx->cancel_fd, d->deadline_mono_ms, ret_fd,
                              e);
}

/* Up to the empty line: the next byte is that of an event. */
static int skip_head(struct engine *d, int fd, struct err *e)
{
    char head[ENGINE_HEAD_BYTES];

    for (size_t n = 0; n < sizeof(head); n++) {
        int r = socket_wait(fd, false, d->ctx->cancel_fd, d->deadline_mono_ms, e);

        if (r < 0)
            return r;
        if (recv(fd, head + n, 1, 0) != 1)
            break;
        if (n < 3 || memcmp(head + n - 3, "\r\n\r\n", 4) != 0)
            continue;
        if (n > 12 && memcmp(head, "HTTP/1.", 7) == 0 && memcmp(head + 8, " 200", 4) == 0)
            return 0;
        break;
    }
    return err_set(e, ERR_UNAVAILABLE, "the engine tells no events");
}

/* "die" is Docker's word, "died" Podman's. */
int engine_watch(struct engine *d, const char *id, int *ret_fd, struct err *e)
{
    _cleanup_free_ char *filter = engine_encode_take(json_pack(
        "{s:[s], s:[s, s, s, s]}", "container", id, "event", "die", "died", "pause", "unpause"));
    _cleanup_free_ char *request = NULL;
    _cleanup_close_ int fd = -1;
    int r;

    if (!filter ||
        asprintf(&request, "GET /v1.%u/events?filters=%s HTTP/1.1\r\nHost: docker\r\n\r\n",
                 d->minor, filter) < 0) {
        request = NULL;
        return err_oom(e);
    }
    r = connect_plainly(d, &fd, e);
    if (r == 0 && send(fd, request, strlen(request), MSG_NOSIGNAL) != (ssize_t)strlen(request))
        r = err_set(e, ERR_UNAVAILABLE, "the engine takes no request: %m");
    if (r == 0)
        r = skip_head(d, fd, e);
    if (r < 0)
        return r;
    *ret_fd = TAKE_FD(fd);
    return 0;
}
