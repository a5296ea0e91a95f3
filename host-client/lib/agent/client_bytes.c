/* client_bytes: the routes of the agent's API that carry bytes: files, archives, servers in the
 * box. */
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/agent/client_internal.h"

#define CLIENT_STALL_BYTES 1024 /* of content, within the stall timeout */
#define CLIENT_PORT_BODY_BYTES (256 * 1024)
#define ACCEPT_ANY "Accept: */*"
#define ACCEPT_BYTES "Accept: application/octet-stream" /* a directory is an error, not a list */

int client_add_encoded(struct buf *b, const char *s, bool keep_slash, struct err *e)
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

int client_new_url(struct client *c, const char *route, const char *path, const char *query,
                   char **ret, struct err *e)
{
    _cleanup_buf_ struct buf b = {0};
    bool is_query = str_has_suffix(route, "=");
    int r;

    buf_init(&b, 64 * 1024);
    r = buf_addf(&b, e, "%s%s", c->base, client_route(c, route));
    if (r == 0)
        r = client_add_encoded(&b, path, !is_query, e);
    if (r == 0 && query && *query)
        r = buf_addf(&b, e, "%c%s", is_query ? '&' : '?', query);
    if (r == 0)
        *ret = buf_take(&b);
    return r;
}

/* answer_ms: of an archive, whose content is made as it is sent (gigabytes of zeros are a few
 * compressed bytes after minutes), the work timeout; it is the stall timeout, too. */
static int get_bytes(struct client *c, const char *url, const char *accept,
                     int (*write)(void *, const char *, size_t), void *arg,
                     int64_t deadline_mono_ms, int64_t answer_ms, struct err *e)
{
    const char *headers[] = {accept, c->auth, c->quiet, NULL};
    struct http_response res = {0};
    struct http_request req = {.method = "GET",
                               .url = url,
                               .headers = headers,
                               .write = write,
                               .write_arg = arg,
                               .deadline_mono_ms = deadline_mono_ms,
                               .answer_timeout_ms = answer_ms,
                               .stall_timeout_ms =
                                   answer_ms > c->stall_ms ? answer_ms : c->stall_ms,
                               .stall_bytes = CLIENT_STALL_BYTES};
    int r = client_send(c, &req, &res, e);

    http_response_done(&res);
    return r;
}

int client_get(struct client *c, const char *route, int (*write)(void *, const char *, size_t),
               void *arg, int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_free_ char *url = NULL;

    if (asprintf(&url, "%s%s", c->base, client_route(c, route)) < 0)
        return err_oom(e);
    return get_bytes(c, url, ACCEPT_ANY, write, arg, deadline_mono_ms, c->answer_ms, e);
}

int client_get_file(struct client *c, const char *path, int (*write)(void *, const char *, size_t),
                    void *arg, int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_free_ char *url = NULL;
    int r = client_new_url(c, FILES_ROUTE, path, NULL, &url, e);

    return r < 0 ? r
                 : get_bytes(c, url, ACCEPT_BYTES, write, arg, deadline_mono_ms, c->answer_ms, e);
}

int client_get_archive(struct client *c, const char *path, const char *query,
                       int (*write)(void *, const char *, size_t), void *arg,
                       int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_free_ char *url = NULL;
    int r = client_new_url(c, "/v1/archive?path=", path, query, &url, e);

    return r < 0 ? r : get_bytes(c, url, ACCEPT_ANY, write, arg, deadline_mono_ms, c->work_ms, e);
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
                               .stall_timeout_ms = c->work_ms, /* as in get_bytes() */
                               .stall_bytes = CLIENT_STALL_BYTES};
    int r = client_new_url(c, "/v1/archive?path=", path, query, &url, e);

    if (r < 0)
        return r;
    req.url = url;
    r = client_send(c, &req, &res, e);
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
            r = client_add_encoded(&query, user, false, e);
    }
    if (r == 0)
        r = client_new_url(c, FILES_ROUTE, path, query.data, &url, e);
    if (r < 0)
        return r;
    req.url = url;
    r = client_send(c, &req, &res, e);
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
        r = add_header(text, headers, &n, "Accept", "application/octet-stream", e);
    if (r == 0)
        r = add_header(text, headers, &n, "If-Match", b->if_match, e);
    if (r == 0)
        r = add_header(text, headers, &n, "If-None-Match", b->if_none_match, e);
    if (r == 0)
        r = add_header(text, headers, &n, "Repr-Digest", b->digest, e);
    if (r == 0 && b->data)
        r = add_header(text, headers, &n, "Content-Type", "application/octet-stream", e);
    if (r == 0)
        r = client_new_url(c, FILES_ROUTE, path, b->query, &url, e);
    if (r < 0)
        return r;
    headers[n] = c->auth;
    req.url = url;
    r = client_send(c, &req, &res, e);
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

    r = client_new_url(c, "/v1/archive?path=", dir, query, &url, e);
    if (r < 0)
        return r;
    req.url = url;
    r = client_send(c, &req, &res, e);
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

/* The agent's token goes into X-Access-Token: Authorization belongs to the server in the box. */
int client_ask_port(struct client *c, const struct client_port_request *p, int64_t deadline_mono_ms,
                    int *ret_status, struct buf *ret_body, struct err *e)
{
    _cleanup_free_ char *url = NULL;
    _cleanup_free_ char *auth = NULL;
    _cleanup_free_ char *token = NULL;
    const char *headers[5] = {NULL};
    struct http_request req = {.method = p->method,
                               .unix_socket = c->socket,
                               .check_peer = c->check_peer,
                               .check_arg = c->check_arg,
                               .headers = headers,
                               .body = p->json,
                               .body_len = p->json ? strlen(p->json) : 0,
                               .max_body = p->max_body ? p->max_body : CLIENT_PORT_BODY_BYTES,
                               .deadline_mono_ms = deadline_mono_ms,
                               .answer_timeout_ms = c->work_ms};
    struct http_response res = {0};
    size_t n = 0;
    int r = p->basic ? basic_header(p->basic, &auth, e) : 0;

    if (r < 0)
        return r;
    if (asprintf(&url, "%s%s%u%s", c->base, client_route(c, "/v1/proxy/"), (unsigned)p->port,
                 p->path) < 0 ||
        asprintf(&token, TOKEN_HEADER ": %s", c->token ? c->token : "") < 0)
        return err_oom(e);
    if (c->token)
        headers[n++] = token;
    if (auth)
        headers[n++] = auth;
    if (c->is_quiet)
        headers[n++] = QUIET_HEADER;
    if (p->json)
        headers[n++] = "Content-Type: application/json";
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
