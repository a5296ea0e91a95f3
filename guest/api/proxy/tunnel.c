/* tunnel: GET /v1/tunnel/{port} with Upgrade: tcp. After the 101 the connection is joined with the port. */
#include <stdatomic.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "event/loop.h"
#include "agent.h"
#include "event/dial.h"
#include "api/dialect.h"
#include "http/relay.h"
#include "http/respond.h"
#include "http/server.h"

struct tunnel {
    _Atomic int refs;        /* the request's, the loop's while it dials, the response's */
    struct request *request; /* a reference */
    struct server *server;
    uint16_t port;
    bool is_asked;
    struct dial *dial; /* the loop's */
    _Atomic bool is_done;
    int fd; /* connected; set before is_done */
    struct err error;
};

static void tunnel_unref(struct tunnel *t)
{
    if (--t->refs > 0)
        return;
    fd_close(t->fd);
    request_unref(t->request);
    free(t);
}

static int tunnel_begin(struct request *q, struct err *e)
{
    struct tunnel *t;
    const char *end;
    uint16_t port;
    int r;

    r = dial_parse_port(q->rest, &port, &end, e);
    if (r == 0)
        r = server_check_port(q->server, port, e);
    if (r < 0)
        return r;
    if (*end)
        return err_field(e, ERR_INVALID, "port", "nothing may follow the port");
    if (!request_header_has(q, "Connection", "upgrade") ||
        !request_header_has(q, "Upgrade", "tcp")) {
        q->error_status = HTTP_UPGRADE_REQUIRED;
        return err_field(e, ERR_INVALID, "Upgrade",
                         "a tunnel needs the headers Connection: Upgrade and Upgrade: tcp");
    }
    t = calloc(1, sizeof(*t));
    if (!t)
        return err_oom(e);
    *t = (struct tunnel){
        .refs = 1, .request = request_ref(q), .server = q->server, .port = port, .fd = -1};
    q->state = t;
    return 0;
}

static void finish_dial(struct tunnel *t)
{
    t->is_done = true;
    request_wake(t->request);
    tunnel_unref(t);
}

static void on_tunnel_dialed(void *arg, int fd, const struct err *error)
{
    struct tunnel *t = arg;

    t->fd = fd;
    if (fd < 0)
        t->error = *error;
    finish_dial(t);
}

static void start_dial(struct loop *l, void *arg)
{
    struct tunnel *t = arg;

    if (dial_new(l, NULL, t->port, on_tunnel_dialed, t, &t->dial, &t->error) < 0)
        finish_dial(t);
}

static int take_tunnel_peer(void *arg, const char **ret_late, size_t *ret_late_len)
{
    struct tunnel *t = arg;

    (void)ret_late;
    (void)ret_late_len;
    return TAKE_FD(t->fd);
}

static int send_upgrade(struct request *q, struct tunnel *t, struct err *e)
{
    struct reply *response;

    if (t->fd < 0) {
        q->error_status = HTTP_BAD_GATEWAY;
        *e = t->error;
        return -t->error.code;
    }
    response = relay_new_reply(q, take_tunnel_peer, t);
    if (!response)
        return err_oom(e);
    reply_add_header(response, "Upgrade", "tcp");
    return respond_queue_plain(q, HTTP_SWITCHING_PROTOCOLS, response, e);
}

static int tunnel_finish(struct request *q, struct err *e)
{
    struct tunnel *t = q->state;

    if (!t->is_asked) {
        int r;

        t->is_asked = true;
        t->refs++;
        r = loop_post(server_loop(q->server), start_dial, t, e);
        if (r < 0) {
            t->refs--;
            return r;
        }
    }
    while (!t->is_done)
        if (request_park(q))
            return 0;
    return send_upgrade(q, t, e);
}

static void tunnel_done(struct request *q)
{
    struct tunnel *t = q->state;

    if (t)
        tunnel_unref(t);
}

const struct request_ops tunnel_ops = {
    .begin = tunnel_begin, .finish = tunnel_finish, .done = tunnel_done};
