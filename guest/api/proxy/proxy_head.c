/* proxy_head: writes the request's head for the server in the box. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "api/service.h"
#include "api/proxy/proxy.h"
#include "system/auth.h"

struct copying {
    struct proxy *p;
    const char *connection;
};

static bool is_our_token(const struct copying *c, const char *value)
{
    if (strncasecmp(value, "Bearer ", 7) == 0)
        value += 7;
    return auth_matches(request_agent(c->p->request)->auth, value);
}

static bool is_dropped(const struct copying *c, const char *name, const char *value)
{
    static const char *const names[] = {"Host",
                                        "Expect",
                                        "Content-Length",
                                        "X-Forwarded-For",
                                        "X-Forwarded-Host",
                                        "X-Forwarded-Proto",
                                        "X-Forwarded-Prefix",
                                        PROXY_TIMEOUT_HEADER};

    for (size_t i = 0; i < N_ELEMENTS(names); i++)
        if (strcasecmp(names[i], name) == 0)
            return true;
    if (strcasecmp(name, "Authorization") == 0 || strcasecmp(name, "X-Access-Token") == 0)
        return is_our_token(c, value);
    return http1_is_hop_by_hop(name, c->connection);
}

static int copy_header(void *arg, const char *name, const char *value)
{
    const struct copying *c = arg;

    return is_dropped(c, name, value) ? 0 : buf_addf(&c->p->hello, NULL, "%s: %s\r\n", name, value);
}

/* Appends the client's address to the X-Forwarded-For of the proxies in front of us. None for a unix socket. */
static int add_client(struct request *q, struct proxy *p, struct err *e)
{
    const char *before = request_header(q, "X-Forwarded-For");
    struct sockaddr_storage peer = {0};
    socklen_t len = sizeof(peer);
    char text[INET6_ADDRSTRLEN] = "";

    if (getpeername(request_fd(q), (struct sockaddr *)&peer, &len) == 0 &&
        peer.ss_family == AF_INET)
        (void)inet_ntop(AF_INET, &((struct sockaddr_in *)&peer)->sin_addr, text, sizeof(text));
    else if (peer.ss_family == AF_INET6)
        (void)inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&peer)->sin6_addr, text, sizeof(text));
    if (!before && !text[0])
        return 0;
    return buf_addf(&p->hello, e, "X-Forwarded-For: %s%s%s\r\n", before ? before : "",
                    before && text[0] ? ", " : "", text);
}

/* Keeps the X-Forwarded-Proto of a front that ends TLS: a server that redirects to https would loop otherwise. */
static int add_forwarded(struct request *q, struct proxy *p, struct err *e)
{
    const char *proto = request_header(q, "X-Forwarded-Proto");
    const char *host = request_header(q, "X-Forwarded-Host");
    int r = buf_addf(&p->hello, e,
                     "Host: localhost:%d\r\nX-Forwarded-Proto: %s\r\n"
                     "X-Forwarded-Prefix: /v1/proxy/%d\r\n",
                     (int)p->port, proto && strcasecmp(proto, "https") == 0 ? "https" : "http",
                     (int)p->port);

    if (!host)
        host = request_host(q);
    if (r == 0)
        r = add_client(q, p, e);
    if (r == 0 && host)
        r = buf_addf(&p->hello, e, "X-Forwarded-Host: %s\r\n", host);
    if (r == 0 && p->is_upgrade)
        return buf_addf(&p->hello, e, "Connection: Upgrade\r\nUpgrade: %s\r\n\r\n",
                        request_header(q, "Upgrade"));
    if (r == 0)
        r = buf_adds(&p->hello, "Connection: close\r\n", e);
    if (r == 0 && q->declared == UINT64_MAX)
        r = buf_adds(&p->hello, "Transfer-Encoding: chunked\r\n", e);
    else if (r == 0 && (q->declared || request_header(q, "Content-Length")))
        r = buf_addf(&p->hello, e, "Content-Length: %" PRIu64 "\r\n", q->declared);
    return r < 0 ? r : buf_adds(&p->hello, "\r\n", e);
}

int proxy_write_hello(struct request *q, struct proxy *p, const char *path, struct err *e)
{
    struct copying c = {.p = p, .connection = request_header(q, "Connection")};
    int r;

    r = buf_addf(&p->hello, e, "%s %s%s HTTP/1.1\r\n", q->verb_name, *path == '/' ? "" : "/", path);
    if (r < 0)
        return r;
    r = request_each_header(q, copy_header, &c);
    return r < 0 ? err_oom(e) : add_forwarded(q, p, e);
}
