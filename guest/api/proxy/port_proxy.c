/* port_proxy: /v1/proxy/{port}/...: HTTP/1.1 to a port in the box. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "agent.h"
#include "api/dialect.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "event/dial.h"
#include "http/proxy.h"
#include "system/auth.h"

#define PROXY_TIMEOUT_HEADER "Bellhop-Proxy-Timeout-Ms"
#define ANSWER_MAX_MS (24 * 3600 * 1000)

/* The token is the agent's: the server in the box must not get it. */
static bool port_drops_header(void *arg, const char *name, const char *value)
{
    const struct request *q = arg;

    if (strcasecmp(name, PROXY_TIMEOUT_HEADER) == 0 || strcasecmp(name, WIRE_HEADER_PREFIX) == 0)
        return true;
    if (strcasecmp(name, "Authorization") != 0 && strcasecmp(name, "X-Access-Token") != 0)
        return false;
    if (strncasecmp(value, "Bearer ", 7) == 0)
        value += 7;
    return auth_matches(request_agent(q)->auth, value);
}

/* The deadline of the reply's head. */
static int read_answer_ms(struct request *q, int64_t *ret, struct err *e)
{
    const char *value = request_header(q, PROXY_TIMEOUT_HEADER);
    uint64_t ms = 0;
    int r = value ? str_parse_u64(value, 1, ANSWER_MAX_MS, &ms, e) : 0;

    if (r < 0)
        return err_at(e, r, PROXY_TIMEOUT_HEADER);
    *ret = (int64_t)ms;
    return 0;
}

/*
 * The path below which the client sees the server. A gateway in front of the agent, which shows the server elsewhere,
 * says so; an empty value: at the root.
 */
static int read_prefix(struct request *q, char own[32], uint16_t port, const char **ret,
                       struct err *e)
{
    const char *prefix = request_header(q, WIRE_HEADER_PREFIX);

    (void)snprintf(own, 32, "/v1/proxy/%d", (int)port);
    *ret = own;
    if (!prefix)
        return 0;
    if (*prefix && *prefix != '/')
        return err_field(e, ERR_INVALID, WIRE_HEADER_PREFIX, "a prefix begins with '/'");
    *ret = *prefix ? prefix : NULL;
    return 0;
}

static int port_begin(struct request *q, struct err *e)
{
    char what[32], host[32], prefix[32];
    struct proxy_target t = {
        .fd = -1, .what = what, .host = host, .drops = port_drops_header, .arg = q};
    struct proxy *p = NULL;
    int r = dial_parse_port(q->raw_rest, &t.port, &t.path, e);

    if (r == 0)
        r = server_check_port(q->server, t.port, e);
    if (r == 0)
        r = read_answer_ms(q, &t.answer_ms, e);
    if (r == 0)
        r = read_prefix(q, prefix, t.port, &t.prefix, e);
    if (r < 0)
        return r;
    (void)snprintf(what, sizeof(what), "port %d in the box", (int)t.port);
    (void)snprintf(host, sizeof(host), "localhost:%d", (int)t.port);
    r = proxy_new_take(q, &t, &p, e);
    q->state = p;
    return r;
}

static int port_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    return proxy_body(q->state, data, len, e);
}

static int port_finish(struct request *q, struct err *e)
{
    return proxy_finish(q->state, e);
}

static void port_done(struct request *q)
{
    (void)proxy_leave(q->state);
}

const struct request_ops proxy_ops = {
    .begin = port_begin, .body = port_body, .finish = port_finish, .done = port_done};
