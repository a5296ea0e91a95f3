#include "monitor/agent_bridge.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "lib/box/box_provider.h"
#include "lib/util/socket_relay.h"
#include "lib/util/socket.h"

#define BRIDGE_FILES (4 * BRIDGE_MAX_CONNECTIONS + 512) /* both ends, and a dial's own two */
#define BRIDGE_RETRY_MS 50
#define BRIDGE_REFUSAL_MS 1000
#define BRIDGE_REFUSAL_BYTES 8192
#define BRIDGE_STACK_BYTES (256 * 1024) /* libcurl's frames, when a provider dials by HTTP */

struct bridge {
    struct bh_ctx ctx;  /* the monitor's, with stop_fd as its cancel descriptor */
    struct bh_box *box; /* of its own, never read anew: threads share it */
    int listen_fd;
    int stop_fd; /* an eventfd that stays readable: the end of every thread */
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock: */
    unsigned n_connections;
    struct err last; /* of the last connection that could not be made; code 0: none yet */
    bool is_reached; /* the last connection was made */
};

struct bridge_connection {
    struct bridge *bridge;
    int client;
};

static void bridge_leave(void *arg)
{
    struct bridge *b = arg;

    WITH_LOCK (&b->lock) {
        b->n_connections--;
        (void)pthread_cond_broadcast(&b->changed);
    }
}

static int refusal_text(const struct err *why, struct buf *out)
{
    _cleanup_json_ json_t *obj = NULL;
    _cleanup_free_ char *body = NULL;
    struct err copy = {.code = ERR_UNAVAILABLE}; /* as of any connection that is not made */
    size_t len = 0;
    int r;

    memcpy(copy.message, why->message, sizeof(copy.message));
    obj = jx_new_error(&copy);
    r = obj ? jx_dump(obj, &body, &len, NULL) : -ERR_EXHAUSTED;
    if (r == 0)
        r = buf_addf(out, NULL,
                     "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                     len);
    return r < 0 ? r : buf_add(out, body, len, NULL);
}

/* The client speaks HTTP with the agent: it gets the provider's reason as an answer. An end of the socket while there is
 * input that nobody has read would take the answer away from it. */
static void refuse_client(struct bridge *b, int client, const struct err *why)
{
    int64_t until = clock_mono_ms() + BRIDGE_REFUSAL_MS;
    _cleanup_buf_ struct buf out;
    char unread[4096];

    buf_init(&out, BRIDGE_REFUSAL_BYTES);
    if (refusal_text(why, &out) < 0 ||
        send(client, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return;
    (void)shutdown(client, SHUT_WR);
    while (socket_wait(client, false, b->stop_fd, until, NULL) == 0 &&
           recv(client, unread, sizeof(unread), 0) > 0)
        ;
}

/* Of the first connection that fails: of a box that has ended, its end tells. */
static void note_unreachable(struct bridge *b, const struct err *why)
{
    struct provider_run run;
    bool was_reached;

    WITH_LOCK (&b->lock) {
        was_reached = b->is_reached;
        b->is_reached = false;
    }
    if (was_reached && why->code != ERR_CANCELED && box_provider_look(b->box, &run, NULL) == 1)
        box_provider_note_fault(b->box, "dial", why->message);
}

static void *connection_main(void *arg)
{
    struct bridge_connection *c = arg;
    struct bridge *b = c->bridge;
    struct socket_relay relay = {.left = c->client, .right = -1, .stop_fd = b->stop_fd};
    struct err e = {0};

    free(c);
    if (box_provider_dial(b->box, clock_mono_ms() + BRIDGE_DIAL_MS, &relay.right, &e) == 0) {
        WITH_LOCK (&b->lock)
            b->is_reached = true;
        socket_relay_run(&relay);
    } else {
        WITH_LOCK (&b->lock)
            b->last = e;
        refuse_client(b, relay.left, &e);
        fd_close(relay.left);
        note_unreachable(b, &e);
    }
    bridge_leave(b);
    return NULL;
}

/* Takes over the client's descriptor. */
static void serve_client(struct bridge *b, int client)
{
    struct bridge_connection *c = malloc(sizeof(*c));
    pthread_attr_t attr;
    pthread_t thread;
    int sys;

    if (!c) {
        fd_close(client);
        return;
    }
    *c = (struct bridge_connection){.bridge = b, .client = client};
    WITH_LOCK (&b->lock)
        b->n_connections++;
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, BRIDGE_STACK_BYTES);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sys = pthread_create(&thread, &attr, connection_main, c);
    (void)pthread_attr_destroy(&attr);
    if (sys == 0)
        return;
    free(c);
    fd_close(client);
    bridge_leave(b);
}

/* False: the bridge ends. */
static bool wait_for_room(struct bridge *b)
{
    struct pollfd stop = {.fd = b->stop_fd, .events = POLLIN};

    WITH_LOCK (&b->lock)
        while (b->n_connections >= BRIDGE_MAX_CONNECTIONS)
            (void)pthread_cond_wait(&b->changed, &b->lock);
    return poll(&stop, 1, 0) == 0;
}

static void *bridge_main(void *arg)
{
    struct bridge *b = arg;

    while (wait_for_room(b)) {
        struct pollfd p[2] = {{.fd = b->listen_fd, .events = POLLIN},
                              {.fd = b->stop_fd, .events = POLLIN}};
        int client;

        if (poll(p, 2, -1) < 0 || !p[0].revents)
            continue;
        client = accept4(b->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (client >= 0)
            serve_client(b, client);
        else
            (void)poll(&p[1], 1, BRIDGE_RETRY_MS); /* out of descriptors: some are given back */
    }
    return NULL;
}

/* Nothing of such a box is a child of the monitor, which would inherit it. */
static void raise_file_limit(void)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur >= BRIDGE_FILES)
        return;
    l.rlim_cur = l.rlim_max < BRIDGE_FILES ? l.rlim_max : BRIDGE_FILES;
    (void)setrlimit(RLIMIT_NOFILE, &l);
}

static int bridge_open(struct bridge *b, struct bh_box *box, struct err *e)
{
    _cleanup_free_ char *run = box_path(box, "run");
    _cleanup_free_ char *socket = box_path(box, "run/agent.sock");
    struct box_row row = {0};
    int r = run && socket ? io_mkdir_p(run, 0700, e) : err_oom(e);

    b->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r == 0 && b->stop_fd < 0)
        r = err_sys(e, errno, "eventfd");
    b->ctx = *box->ctx;
    b->ctx.cancel_fd = b->stop_fd;
    if (r == 0)
        r = store_get(box->ctx->store, box->row.id, &row, e);
    if (r == 0)
        r = box_new_take(&b->ctx, &row, &b->box, e);
    return r < 0 ? r : socket_listen(socket, &b->listen_fd, e);
}

int bridge_new(struct bh_box *box, struct bridge **ret, struct err *e)
{
    struct bridge *b;
    int r;

    *ret = NULL;
    if (!box->provider->dial)
        return 0;
    b = calloc(1, sizeof(*b));
    if (!b)
        return err_oom(e);
    b->listen_fd = b->stop_fd = -1;
    raise_file_limit();
    (void)pthread_mutex_init(&b->lock, NULL);
    (void)pthread_cond_init(&b->changed, NULL);
    r = bridge_open(b, box, e);
    if (r == 0) {
        r = -pthread_create(&b->thread, NULL, bridge_main, b);
        b->has_thread = r == 0;
        r = r < 0 ? err_sys(e, -r, "start a thread") : 0;
    }
    if (r < 0) {
        (void)bridge_free(b);
        return r;
    }
    *ret = b;
    return 0;
}

int bridge_explain(struct bridge *b, int r, struct err *e)
{
    if (!b || r >= 0)
        return r;
    WITH_LOCK (&b->lock)
        if (b->last.code) {
            r = -b->last.code;
            if (e)
                *e = b->last;
        }
    return r;
}

struct bridge *bridge_free(struct bridge *b)
{
    if (!b)
        return NULL;
    if (b->stop_fd >= 0)
        (void)eventfd_write(b->stop_fd, 1);
    if (b->has_thread)
        (void)pthread_join(b->thread, NULL);
    WITH_LOCK (&b->lock)
        while (b->n_connections)
            (void)pthread_cond_wait(&b->changed, &b->lock);
    if (b->listen_fd >= 0 && b->box) {
        _cleanup_free_ char *socket = box_path(b->box, "run/agent.sock");

        if (socket)
            (void)unlink(socket);
    }
    fd_close(b->listen_fd);
    fd_close(b->stop_fd);
    (void)bh_box_free(b->box);
    (void)pthread_cond_destroy(&b->changed);
    (void)pthread_mutex_destroy(&b->lock);
    free(b);
    return NULL;
}
