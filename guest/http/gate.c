#include "http/gate.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "http/respond.h"
#include "http/route.h"
#include "http/state.h"

/* Splits "http://host/path", the form that is sent to a proxy, into the path and the host. */
static int split_absolute_form(struct request *q, struct err *e)
{
    size_t scheme = uri_scheme_len(q->target);
    size_t host = strcspn(q->target + scheme, "/?");
    char *path = q->target + scheme + host;

    if (!scheme)
        return 0;
    if (!host || memchr(q->target + scheme, '@', host))
        return err_set(e, ERR_INVALID, "a request address without a host, or with a user");
    q->authority = strndup(q->target + scheme, host);
    if (!q->authority)
        return err_oom(e);
    if (*path != '/')
        *--path = '/'; /* overwrites the end of the host, which is copied */
    (void)memmove(q->target, path, strlen(path) + 1);
    return 0;
}

static int check_target(struct request *q, struct err *e)
{
    size_t len;
    int r;

    if (strlen(q->target) > URI_MAX_BYTES)
        return err_set(e, ERR_INVALID, "a request address of more than %d bytes", URI_MAX_BYTES);
    r = split_absolute_form(q, e);
    if (r < 0)
        return r;
    len = strcspn(q->target, "?");
    q->query = q->target[len] ? q->target + len + 1 : NULL;
    return uri_decode(q->target, len, &q->path, e);
}

/* Looks the raw target up: an encoded slash is no separator. */
static int check_route(struct request *q, struct err *e)
{
    size_t len = strcspn(q->target, "?");
    struct route_match match = {0};

    q->server->o.service->find_route(q, q->target, len, &match);
    q->route = match.route;
    q->route_verbs = match.verbs;
    q->group = match.group;
    q->method = match.method;
    q->counter = match.counter;
    if (!q->route)
        return err_set(e, ERR_NOT_FOUND, "there is no '%.200s' here", q->path);
    if (!match.rest)
        return 0;
    q->raw_rest = match.rest;
    return uri_decode(match.rest, len - (size_t)(match.rest - q->target), &q->rest, e);
}

static int check_verb(struct request *q, int *ret_status, struct err *e)
{
    if (q->route->verbs & q->verb)
        return 0;
    *ret_status = HTTP_METHOD_NOT_ALLOWED;
    return err_set(e, ERR_UNIMPLEMENTED, "%.20s is not a method of '%.200s'", q->verb_name,
                   q->path);
}

struct framing {
    unsigned n_lengths;
    unsigned n_encodings;
    unsigned n_hosts;
    bool has_bad_name;
    bool has_bad_value;
    bool is_cut;
    const char *end; /* of the value before */
    const char *length;
    const char *encoding;
};

/* A token of RFC 9110: a proxy could take "Host ", with a space, for another header. */
static bool is_token(const char *s)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    const char *c = s;

    while (*c && (('0' <= *c && *c <= '9') || ('a' <= (*c | 0x20) && (*c | 0x20) <= 'z') ||
                  strchr(others, *c)))
        c++;
    return c > s && !*c;
}

/* A carriage return alone ends a line for some servers that the request may be passed on to. */
static bool has_control(const char *s, const char *allowed)
{
    while (*s && (((unsigned char)*s >= ' ' && *s != 127) || strchr(allowed, *s)))
        s++;
    return *s;
}

/*
 * The library ends values in place, at a NUL too, and drops what follows it. Whether there is more than a line end up to
 * the next header shows that. A folded line, which no client should send, is refused for the same.
 */
static bool has_rest(const char *end, const char *next)
{
    if (next <= end || next - end > SERVER_POOL_BYTES) /* in another place */
        return false;
    while (end < next && (!*end || strchr(" \t\r\n", *end)))
        end++;
    return end < next;
}

static enum MHD_Result count_framing(void *cls, enum MHD_ValueKind kind, const char *name,
                                     const char *value)
{
    struct framing *f = cls;

    (void)kind;
    if (strcasecmp(name, "Content-Length") == 0) {
        f->n_lengths++;
        f->length = value;
    } else if (strcasecmp(name, "Transfer-Encoding") == 0) {
        f->n_encodings++;
        f->encoding = value;
    } else if (strcasecmp(name, "Host") == 0) {
        f->n_hosts++;
    }
    f->is_cut = f->is_cut || (f->end && has_rest(f->end, name));
    f->end = value ? value + strlen(value) : NULL;
    f->has_bad_name = f->has_bad_name || !is_token(name);
    f->has_bad_value = f->has_bad_value || (value && has_control(value, "\t"));
    return MHD_YES;
}

/* A body with two lengths is refused: request smuggling relies on it. */
static int check_framing(struct request *q, struct err *e)
{
    const union MHD_ConnectionInfo *size;
    struct framing f = {0};

    (void)MHD_get_connection_values(q->mhd, MHD_HEADER_KIND, count_framing, &f);
    size = MHD_get_connection_info(q->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (f.is_cut || (f.end && size && has_rest(f.end, q->verb_name + size->header_size)))
        return err_set(e, ERR_INVALID, "a header with a NUL");
    if (f.n_lengths > 1 || f.n_encodings > 1 || (f.n_lengths && f.n_encodings))
        return err_set(e, ERR_INVALID, "a body with more than one length");
    if (f.has_bad_name)
        return err_set(e, ERR_INVALID, "a header's name with what can't be in one");
    if (f.has_bad_value)
        return err_set(e, ERR_INVALID, "a header with a control character");
    if (!is_token(q->verb_name) || has_control(q->target, ""))
        return err_set(e, ERR_INVALID, "a request line with what can't be in one");
    if (f.n_hosts > 1)
        return err_field(e, ERR_INVALID, "Host", "more than one Host");
    if (f.encoding && strcasecmp(f.encoding, "chunked") != 0)
        return err_set(e, ERR_INVALID, "transfer encoding '%.40s' is not known", f.encoding);
    if (f.encoding && !q->is_http11)
        return err_set(e, ERR_INVALID, "a transfer encoding in HTTP/1.0");
    q->declared = f.encoding ? UINT64_MAX : 0;
    if (f.length)
        return str_parse_u64(f.length, 0, INT64_MAX, &q->declared, e);
    return 0;
}

/* ---- requests of web pages -------------------------------------------------------------------- */

#define NAME_MAX_BYTES 253 /* of a host name, by DNS */

/* "name:80", "[::1]:80" -> the name or address alone, in out. False: neither. */
static bool split_port(const char *host, char out[NAME_MAX_BYTES + 1])
{
    bool has_brackets = host[0] == '[';
    const char *begin = host + has_brackets;
    size_t len = strcspn(begin, has_brackets ? "]" : ":");
    const char *rest = begin + len + has_brackets;

    if (!len || len > NAME_MAX_BYTES || (has_brackets && begin[len] != ']'))
        return false;
    if (*rest && (*rest != ':' || rest[1 + strspn(rest + 1, "0123456789")]))
        return false;
    (void)memcpy(out, begin, len);
    out[len] = '\0';
    return true;
}

static bool is_address(const char *host, const char *name)
{
    struct in6_addr a;

    return inet_pton(host[0] == '[' ? AF_INET6 : AF_INET, name, &a) == 1;
}

/* "a.example" matches "a.example", and ".example", as each name below it does. */
static bool is_name_of(const char *name, const char *allowed)
{
    size_t len = strlen(name), n = strlen(allowed);

    if (allowed[0] != '.')
        return strcasecmp(name, allowed) == 0;
    return strcasecmp(name, allowed + 1) == 0 ||
           (len > n && strcasecmp(name + len - n, allowed) == 0);
}

bool origin_host_is_allowed(const char *host, char *const *names)
{
    char name[NAME_MAX_BYTES + 1];
    size_t len;

    if (!split_port(host, name))
        return false;
    len = strlen(name);
    if (host[0] != '[' && name[len - 1] == '.') /* the name in absolute form */
        name[len - 1] = '\0';
    if (is_address(host, name))
        return true;
    if (host[0] == '[')
        return false;
    if (strcasecmp(name, "localhost") == 0)
        return true;
    for (; names && *names; names++)
        if (is_name_of(name, *names))
            return true;
    return false;
}

bool origin_is_own(const char *origin, const char *host)
{
    const char *rest = strstr(origin, "://");

    /* The scheme is not compared: a proxy may terminate TLS. */
    return rest && rest > origin && strcasecmp(rest + 3, host) == 0;
}

int origin_check_name(const char *name, struct err *e)
{
    static const char chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    size_t len = strlen(name);

    if (!name[name[0] == '.'] || len > NAME_MAX_BYTES || name[strspn(name, chars)] ||
        strstr(name, "..") || name[len - 1] == '.')
        return err_set(e, ERR_INVALID,
                       "'%.80s' is no host name, nor '.NAME' for that name and all below it", name);
    return 0;
}

static bool is_of_unix_socket(const struct request *q)
{
    struct sockaddr_storage own = {0};
    socklen_t len = sizeof(own);

    return getsockname(q->conn->fd, (struct sockaddr *)&own, &len) == 0 && own.ss_family == AF_UNIX;
}

/* A request without a host comes from no browser. */
static int check_host(const struct request *q, const char *host, struct err *e)
{
    if (!host || !*host || origin_host_is_allowed(host, q->server->o.allow_hosts) ||
        is_of_unix_socket(q))
        return 0;
    return err_field(e, ERR_DENIED, "Host",
                     "an agent without a token does not answer to the host '%.200s', only to "
                     "addresses, 'localhost' and the names of --allow-host",
                     host);
}

/*
 * Returns the header that shows that a web page sent the request, or NULL. "none": the user did, by the
 * address bar or a bookmark. A page of the server's own origin was served by a route with
 * ROUTE_OWN_PAGES, and may call such routes alone.
 */
static const char *page_header(struct request *q, const char *host)
{
    bool is_own = q->route->flags & ROUTE_OWN_PAGES;
    const char *origin = request_header(q, "Origin");
    const char *site = request_header(q, "Sec-Fetch-Site");

    if (origin && !(is_own && host && origin_is_own(origin, host)))
        return "Origin";
    if (!site || str_eq(site, "none") || (is_own && str_eq(site, "same-origin")))
        return NULL;
    return origin ? "Origin" : "Sec-Fetch-Site";
}

static int origin_check(struct request *q, struct err *e)
{
    const struct http_service *service = q->server->o.service;
    const char *host = request_host(q);
    const char *header;
    int r = check_host(q, host, e);

    if (r < 0)
        return r;
    header = page_header(q, host);
    if (!header)
        return 0;
    if (service->check_page)
        return service->check_page(q, header, e);
    return err_field(e, ERR_DENIED, header,
                     "a service without a token takes no requests of web pages");
}

/*
 * Requests of web pages are refused: each one that could do harm has an Origin header. Routes that are
 * made for pages rely on the token, or without one on origin_check().
 */
static int check_origin(struct request *q, struct err *e)
{
    if (request_header(q, "Origin") && !(q->route->flags & ROUTE_PAGES))
        return err_set(e, ERR_DENIED, "requests of web pages (with an Origin header) are refused");
    return q->server->o.service->is_open(q) ? origin_check(q, e) : 0;
}

/* ---- the gate --------------------------------------------------------------------------------- */

int gate_too_large(const struct request *q, struct err *e)
{
    if (!q->route->max_body_bytes)
        return err_set(e, ERR_EXHAUSTED, "'%.200s' takes no body", q->path);
    return err_set(e, ERR_EXHAUSTED, "the body is larger than %" PRIu64 " bytes",
                   q->route->max_body_bytes);
}

static int check_size(struct request *q, int *ret_status, struct err *e)
{
    bool chunked = q->declared == UINT64_MAX;

    if (chunked ? q->route->max_body_bytes > 0 : q->declared <= q->route->max_body_bytes)
        return 0;
    *ret_status = HTTP_CONTENT_TOO_LARGE;
    return gate_too_large(q, e);
}

static int check_room(struct request *q, int *ret_status, struct err *e)
{
    if (q->server->stopping)
        return err_set(e, ERR_UNAVAILABLE, "the agent is stopping");
    if (!q->conn->is_reserve || q->route->flags & ROUTE_RESERVE)
        return 0;
    *ret_status = HTTP_SERVICE_UNAVAILABLE;
    return err_set(e, ERR_EXHAUSTED, "too many connections: %u are open",
                   q->server->o.max_connections);
}

int gate_check(struct request *q, const char *verb, const char *version, int *ret_status,
               struct err *e)
{
    const struct http_service *service = q->server->o.service;
    int r;

    q->is_http11 = strcmp(version, "HTTP/1.0") != 0;
    q->expects_continue = request_header_has(q, "Expect", "100-continue");
    q->verb = verb_parse(verb);
    q->verb_name = verb;
    (void)((r = check_framing(q, e)) < 0 || (r = check_target(q, e)) < 0 ||
           (r = check_route(q, e)) < 0 || (r = check_verb(q, ret_status, e)) < 0 ||
           (r = check_origin(q, e)) < 0 || (r = service->authorize(q, e)) < 0 ||
           (r = check_room(q, ret_status, e)) < 0 || (r = check_size(q, ret_status, e)) < 0);
    if (r == 0 && service->admitted)
        service->admitted(q);
    return r;
}
