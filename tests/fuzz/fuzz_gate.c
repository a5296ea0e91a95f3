/*
 * The request gate, with any method, address and headers. An accepted request has one framing, one
 * host, names that are tokens, the token if one is needed, a route with that verb, and a path
 * without a NUL; this target checks all of that by rules of its own. An agent without a token
 * accepts nothing that a web page may have sent. A refusal has an error, and a value that a NUL has
 * cut is one. Three functions of libmicrohttpd are replaced: the headers come from the input.
 * fuzz-flags: -max_len=2048
 */
#include "fuzz.h"

#include <microhttpd.h>
#include <strings.h>

#include "common/cleanup.h"
#include "api/dialect.h"
#include "dialect/dialects.h"
#include "dialect/e2b/e2b.h"
#include "http/gate.h"
#include "http/state.h"
#include "system/auth.h"

#define MAX_HEADERS 12
#define TOKEN "0123456789abcdef"

static struct {
    char *name, *value;
} headers[MAX_HEADERS];
static size_t n_headers;
static size_t head_bytes;

const union MHD_ConnectionInfo *MHD_get_connection_info(struct MHD_Connection *c,
                                                        enum MHD_ConnectionInfoType type, ...)
{
    static union MHD_ConnectionInfo info;

    (void)c;
    CHECK(type == MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    info.header_size = head_bytes;
    return &info;
}

int MHD_get_connection_values(struct MHD_Connection *c, enum MHD_ValueKind kind,
                              MHD_KeyValueIterator fn, void *cls)
{
    (void)c;
    for (size_t i = 0; i < n_headers; i++)
        (void)fn(cls, kind, headers[i].name, headers[i].value);
    return (int)n_headers;
}

const char *MHD_lookup_connection_value(struct MHD_Connection *c, enum MHD_ValueKind kind,
                                        const char *name)
{
    (void)c;
    (void)kind;
    for (size_t i = 0; i < n_headers; i++)
        if (strcasecmp(headers[i].name, name) == 0)
            return headers[i].value;
    return NULL;
}

static const char *header(const char *name)
{
    return MHD_lookup_connection_value(NULL, MHD_HEADER_KIND, name);
}

static size_t count(const char *name)
{
    size_t n = 0;

    for (size_t i = 0; i < n_headers; i++)
        n += strcasecmp(headers[i].name, name) == 0;
    return n;
}

static bool has_token(const struct request *q)
{
    const char *auth = header("Authorization"), *e2b = header("X-Access-Token");

    if (auth && strncasecmp(auth, "bearer ", 7) == 0 && e2b && *e2b && strcmp(auth + 7, e2b) != 0 &&
        !(q->route->flags & ROUTE_RELAYS))
        return false;
    return (auth && strncasecmp(auth, "bearer ", 7) == 0 && strcmp(auth + 7, TOKEN) == 0) ||
           (e2b && strcmp(e2b, TOKEN) == 0);
}

/* An unknown host is accepted only if it is an address. */
static void check_no_page(const struct request *q, const struct server *s)
{
    const struct agent *a = s->o.owner;
    const char *host = q->authority ? q->authority : header("Host");
    const char *origin = header("Origin"), *site = header("Sec-Fetch-Site");

    CHECK(!host || strncasecmp(host, "evil", 4) != 0);
    CHECK(!host || !*host || strchr("0123456789[lL", *host) ||
          (s->o.allow_hosts && strncasecmp(host, "box", 3) == 0));
    if (a->allows_pages && q->group == &e2b_dialect)
        return;
    CHECK(!site || strcmp(site, "none") == 0 || strcmp(site, "same-origin") == 0);
    CHECK(!origin || (host && strlen(origin) > strlen(host) &&
                      strcasecmp(origin + strlen(origin) - strlen(host), host) == 0));
}

static void check_accepted(const struct request *q, const struct server *s, const char *verb)
{
    const struct agent *a = s->o.owner;
    const struct rpc_method *m = q->method;
    size_t lengths = count("Content-Length"), encodings = count("Transfer-Encoding");
    const char *length = header("Content-Length");

    CHECK(q->route && q->path);
    CHECK(q->route->verbs & q->verb && q->route_verbs & q->verb);
    CHECK(lengths + encodings <= 1 && count("Host") <= 1);
    CHECK(!encodings || (q->is_http11 && strcasecmp(header("Transfer-Encoding"), "chunked") == 0));
    if (lengths) {
        char digits[32];

        CHECK(strspn(length, "0123456789") == strlen(length));
        (void)snprintf(digits, sizeof(digits), "%llu", (unsigned long long)q->declared);
        CHECK(strcmp(length + strspn(length, "0"), digits + (q->declared == 0)) == 0);
    } else {
        CHECK(q->declared == (encodings ? UINT64_MAX : 0));
    }
    CHECK(q->declared == UINT64_MAX ? q->route->max_body_bytes > 0
                                    : q->declared <= q->route->max_body_bytes);
    if (auth_is_open(a->auth))
        check_no_page(q, s);
    else
        CHECK(has_token(q) || q->route->flags & ROUTE_OPEN);
    CHECK(!header("Origin") || q->route->flags & ROUTE_PAGES);
    for (size_t i = 0; i < n_headers; i++)
        CHECK(*headers[i].name && !strpbrk(headers[i].name, " \t:\r\n()<>@,;\\\"/[]?={}"));
    CHECK(!a->is_read_only || !m || m->flags & RPC_READS);
    CHECK(!a->is_read_only || m || !(q->route->flags & ROUTE_CHANGES));
    /* Of the native routes those that change nothing by these verbs are these. */
    CHECK(!a->is_read_only || m || q->group == &e2b_dialect || strcmp(verb, "GET") == 0 ||
          strcmp(verb, "HEAD") == 0 || strcmp(verb, "OPTIONS") == 0 ||
          (strcmp(verb, "POST") == 0 && strcmp(q->route->path, "/v1/archive") == 0));
    CHECK(!(q->route->flags & ROUTE_REST) == !q->rest);
}

/* A name or value: one of the meaningful ones, or free text. */
static char *take(struct fuzz_in *in, const char *const *known, size_t n_known)
{
    uint8_t which = fuzz_byte(in);
    char *s;

    if (which >= n_known)
        return fuzz_str(in, 300, NULL);
    s = strdup(known[which]);
    CHECK(s);
    return s;
}

static void take_headers(struct fuzz_in *in)
{
    static const char *const names[] = {
        "Content-Length", "Transfer-Encoding", "Host",   "Expect",
        "Authorization",  "X-Access-Token",    "Origin", "Access-Control-Request-Method",
        "Sec-Fetch-Site"};
    static const char *const values[] = {"chunked",
                                         "0",
                                         "2",
                                         "Bearer " TOKEN,
                                         TOKEN,
                                         "box",
                                         "100-continue",
                                         "http://x",
                                         "localhost",
                                         "evil.example",
                                         "http://box",
                                         "cross-site",
                                         "same-origin",
                                         "none",
                                         "[::1]:80",
                                         "127.0.0.1:80",
                                         "http://localhost"};

    for (n_headers = 0; n_headers < MAX_HEADERS && in->len; n_headers++) {
        headers[n_headers].name = take(in, names, N_ELEMENTS(names));
        headers[n_headers].value = take(in, values, N_ELEMENTS(values));
    }
}

static char *append(char *to, const char *s)
{
    size_t n = strlen(s) + 1;

    memcpy(to, s, n);
    return to + n;
}

/* The headers stand behind the verb, one after another, as in the library's buffer. rest: what a
 * NUL has cut off the last value. Returns the verb. */
static char *lay_out(char *verb, const char *rest)
{
    size_t n = strlen(verb) + 1 + strlen(rest) + 3;
    char *head, *p;

    for (size_t i = 0; i < n_headers; i++)
        n += strlen(headers[i].name) + strlen(headers[i].value) + 2;
    head = malloc(n);
    CHECK(head);
    p = append(head, verb);
    free(verb);
    for (size_t i = 0; i < n_headers; i++) {
        char *name = headers[i].name, *value = headers[i].value;

        headers[i].name = p;
        p = append(p, name);
        headers[i].value = p;
        p = append(p, value);
        free(name);
        free(value);
    }
    p = append(p, rest);
    memcpy(p, "\r\n", 2);
    head_bytes = n;
    return head;
}

FUZZ(data, size)
{
    static const char *const verbs[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
    static const char *const targets[] = {"/v1/health",
                                          "/bellhop.v1.Exec/Run",
                                          "/v1/files//a",
                                          "/v1/archive?path=a",
                                          "/v1/proxy/80/x",
                                          "/process.Process/Start",
                                          "/health",
                                          "http://localhost/health",
                                          "http://evil.example/v1/health",
                                          "https://box?a=b"};
    static char box[] = "box";
    char *const names[] = {box, NULL};
    static struct dialect_slot slots[] = {{&native_dialect, NULL}, {&e2b_dialect, NULL}, {0}};
    struct agent agent = {.dialects = slots};
    struct server server = {.o = {.service = &agent_service, .owner = &agent}};
    struct conn conn = {.fd = -1};
    struct fuzz_in in = {data, size};
    uint8_t flags = fuzz_byte(&in);
    char *verb = take(&in, verbs, N_ELEMENTS(verbs));
    struct request *q = calloc(1, sizeof(*q));
    struct err e = {0};
    int status = 0, r;

    CHECK(q);
    CHECK(auth_new(flags & 8 ? NULL : TOKEN, strlen(TOKEN), &agent.auth, NULL) == 0);
    agent.is_read_only = flags & 1;
    agent.allows_pages = flags & 16;
    server.o.allow_hosts = flags & 32 ? names : NULL;
    conn.is_reserve = flags & 2;
    q->refs = 1;
    q->server = &server;
    q->conn = &conn;
    q->target = take(&in, targets, N_ELEMENTS(targets));
    (void)pthread_mutex_init(&q->lock, NULL);
    take_headers(&in);
    verb = lay_out(verb, flags & 64 ? "rest" : "");

    r = gate_check(q, verb, flags & 4 ? "HTTP/1.0" : "HTTP/1.1", &status, &e);
    CHECK(r == 0 || (r == -e.code && e.message[0]));
    CHECK(r == 0 || status == 0 || (status >= 400 && status < 600));
    CHECK(r < 0 || !(flags & 64) || !n_headers);
    if (r == 0)
        check_accepted(q, &server, verb);

    request_unref(q);
    auth_free(agent.auth);
    free(verb);
    return 0;
}
