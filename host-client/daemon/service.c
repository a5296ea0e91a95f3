#include "daemon/service.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "daemon/access.h"
#include "daemon/agents.h"
#include "daemon/daemon.h"
#include "daemon/gateway.h"
#include "daemon/metrics.h"
#include "http/request.h"
#include "http/respond.h"
#include "lib/box/audit.h"

#define TYPE_JSON "application/json"

const struct api_route *request_row(const struct request *q)
{
    return q->method;
}

struct daemon *request_daemon(const struct request *q)
{
    return request_owner(q);
}

static void service_find_route(struct request *q, const char *path, size_t len,
                               struct route_match *ret)
{
    const struct api_route *row = gateway_by_name(q);

    if (row) {
        ret->rest = path;
        ret->verbs = row->route.verbs;
    } else {
        row = gateway_refine(q, routes_find(path, len, q->verb, ret));
    }
    ret->route = row ? &row->route : NULL;
    ret->method = row;
}

bool request_is_admin(const struct request *q)
{
    return access_is_admin(q);
}

static bool service_is_open(struct request *q)
{
    return access_is_of_socket(q);
}

static int service_write_error(const struct request *q, const struct err *error,
                               struct error_reply *ret, struct err *e)
{
    _cleanup_json_ json_t *body = jx_new_error(error);

    (void)q;
    if (!body)
        return err_oom(e);
    ret->challenge = "Bearer realm=\"bellhop\"";
    ret->type = TYPE_JSON;
    return jx_dump(body, &ret->text, &ret->len, e);
}

static void service_sweep(void *owner, int64_t now_ms)
{
    const struct daemon *d = owner;

    agents_sweep(d->agents, now_ms);
    access_sweep(d->access);
}

/* The address of the client, or "socket". */
static void name_peer(const struct request *q, char *out, size_t n)
{
    struct sockaddr_storage from = {0};
    socklen_t len = sizeof(from);
    char host[NI_MAXHOST], port[NI_MAXSERV];

    if (getpeername(request_fd(q), (struct sockaddr *)&from, &len) == 0 &&
        from.ss_family != AF_UNIX &&
        getnameinfo((struct sockaddr *)&from, len, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        (void)snprintf(out, n, "%s %s", host, port);
    else
        (void)snprintf(out, n, "socket");
}

/* The path, whose bytes may be any, as text; with the file that it is about, where the query names that. */
static char *new_target(const struct request *q)
{
    _cleanup_free_ char *file = NULL, *whole = NULL;
    const char *path = q->path ? q->path : "";
    size_t len = 0;
    char *text;

    if (uri_query_get(q->query, "path", &file, NULL) == 0 && file &&
        asprintf(&whole, "%s?path=%s", path, file) < 0)
        whole = NULL;
    if (whole)
        path = whole;
    text = str_escape(path, strlen(path), "", &len);
    if (text && len > AUDIT_TARGET_BYTES)
        text[str_utf8_whole(text, AUDIT_TARGET_BYTES)] = '\0';
    return text;
}

/*
 * The record of calls that change something, also of those that were refused. A line goes into the kernel's cache, which
 * no client waits for. The query may have secrets: all of it but a file's path is left out.
 */
static void record_call(const struct request *q, int64_t took_ms)
{
    const struct principal *p = access_principal(q);
    char who[80], from[NI_MAXHOST + NI_MAXSERV];
    _cleanup_free_ char *target = new_target(q);
    struct err e = {0};
    json_t *entry;
    int r;

    access_actor(q, who, sizeof(who));
    name_peer(q, from, sizeof(from));
    entry = json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:I}", "time_ms",
                      (json_int_t)clock_real_ms(), "who",
                      p && !*p->token && !p->is_local ? "nobody" : who, "token", p ? p->token : "",
                      "owner", p ? p->owner : "", "from", from, "verb", q->verb_name, "target",
                      target ? target : "", "status", q->status, "took_ms", (json_int_t)took_ms);
    r = entry ? audit_append(request_daemon(q)->audit, entry, &e) : err_oom(&e);
    if (r < 0)
        (void)fprintf(stderr, "bellhop-daemon: a call is not in the audit record: %s\n", e.message);
    json_decref(entry);
}

static void service_relayed(void *owner, uint64_t bytes_in, uint64_t bytes_out)
{
    metrics_count_relayed(((struct daemon *)owner)->metrics, bytes_in, bytes_out);
}

static void service_done(const struct request *q, int64_t took_ms)
{
    access_unwatch(q);
    metrics_count_request(request_daemon(q)->metrics, q);
    if (q->route && q->route->flags & ROUTE_CHANGES)
        record_call(q, took_ms);
}

const struct http_service daemon_service = {
    .find_route = service_find_route,
    .is_open = service_is_open,
    .authorize = access_authorize,
    .write_error = service_write_error,
    .done = service_done,
    .relayed = service_relayed,
    .sweep = service_sweep,
};

static int health_finish(struct request *q, struct err *e)
{
    struct reply *reply = reply_new_empty();

    /* By which a command knows that this is the daemon of its state directory. */
    if (reply)
        reply_add_header(reply, WIRE_HEADER_DAEMON, request_daemon(q)->instance);
    return respond_queue(q, HTTP_NO_CONTENT, reply, e);
}

const struct request_ops health_ops = {.finish = health_finish};
