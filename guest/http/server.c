#include "http/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/str.h"
#include "event/loop.h"
#include "http/listen.h"
#include "http/relay.h"
#include "http/request.h"
#include "http/state.h"

#define GIVE_BACK_EVERY 64 /* connections closed: so many leave memory behind at most */
#define SWEEP_MS 1000
#define VANISH_BATCH 64
#define SLOT_MARGIN 64 /* connections may be closing while as many new ones have begun */
#define MHD_STACK_BYTES (256 * 1024)

/* ---- the table of connections ---- */

unsigned server_n_conns(struct server *s)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->table_lock);

    return s->n_conns;
}

struct conn *server_conn(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

static int take_slot(struct server *s, struct conn *c)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->table_lock);

    for (unsigned i = 0; i < s->n_slots; i++) {
        unsigned slot = (s->first_free + i) % s->n_slots;

        if (s->conns[slot])
            continue;
        c->slot = slot;
        c->generation = ++s->generation ? s->generation : ++s->generation;
        c->is_reserve = s->n_conns >= s->o.max_connections;
        s->conns[slot] = c;
        s->n_conns++;
        s->first_free = (slot + 1) % s->n_slots;
        return 0;
    }
    return -1;
}

static void conn_started(struct server *s, const struct tls_library *library,
                         struct MHD_Connection *mhd, void **socket_context)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *from =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const union MHD_ConnectionInfo *tls =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    struct conn *c = calloc(1, sizeof(*c));

    if (!c)
        return; /* its first request is refused */
    *c = (struct conn){.fd = info->connect_fd,
                       .is_tcp = from && from->client_addr->sa_family != AF_UNIX,
                       .library = library,
                       .tls = tls ? tls->tls_session : NULL,
                       .idle_since_ms = clock_mono_ms()};
    if (take_slot(s, c) < 0)
        free(c);
    else
        *socket_context = c;
}

/* The library closes the descriptor only after this. */
static void conn_closed(struct server *s, struct conn *c)
{
    if (!c)
        return;
    if (c->is_watched)
        (void)epoll_ctl(s->vanish_fd, EPOLL_CTL_DEL, c->fd, NULL);
    (void)pthread_mutex_lock(&s->table_lock);
    s->conns[c->slot] = NULL;
    s->n_conns--;
    s->first_free = c->slot;
    (void)pthread_mutex_unlock(&s->table_lock);
    free(c);
}

/* On the connection's own thread, whose heap its memory was of. */
static void maybe_trim_heap(const struct server *s)
{
    static _Thread_local unsigned n_closed, quiet_seen;
    unsigned n_quiet = s->n_quiet;

    if (++n_closed % GIVE_BACK_EVERY == 0 || quiet_seen != n_quiet)
        mem_trim_heap();
    quiet_seen = n_quiet;
}

/* A descriptor of the same socket, that the library gives to this one of its threads. */
static int for_thread(int fd, int thread)
{
    int from = 0, copy;

    while ((copy = fcntl(fd, F_DUPFD_CLOEXEC, from)) >= 0 && copy % SERVER_THREADS != thread) {
        from = copy + 1;
        fd_close(copy);
    }
    return copy;
}

/*
 * Memory of a thread that other threads have freed can be returned by that thread alone. A thread that serves
 * sockets runs only for them: so each gets a connection that is closed already.
 */
static void on_quiet(struct loop *loop, void *arg)
{
    struct server *s = arg;

    (void)loop;
    s->n_quiet++;
    for (int i = 0; i < SERVER_THREADS && !s->stopping; i++) {
        struct sockaddr_un nobody = {.sun_family = AF_UNIX};
        int fds[2], fd;

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
            return;
        fd = for_thread(fds[0], i);
        fd_close(fds[0]);
        fd_close(fds[1]);
        if (fd >= 0) /* the library closes it in any case */
            (void)MHD_add_connection(s->daemon, fd, (struct sockaddr *)&nobody, sizeof(nobody));
    }
}

static void note_connection(struct server *s, const struct tls_library *library,
                            struct MHD_Connection *mhd, void **socket_context,
                            enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        conn_started(s, library, mhd, socket_context);
    else
        conn_closed(s, *socket_context);
    if (code == MHD_CONNECTION_NOTIFY_CLOSED)
        maybe_trim_heap(s);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    note_connection(cls, NULL, mhd, socket_context, code);
}

static void on_tls_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
                              enum MHD_ConnectionNotificationCode code)
{
    const struct tls_library *library = cls;

    note_connection(library->server, library, mhd, socket_context, code);
}

void server_set_request(struct server *s, struct conn *c, struct request *q)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->table_lock);

    c->request = q;
    c->idle_since_ms = q ? 0 : clock_mono_ms();
}

/* ---- clients that vanish while their connection is suspended ---- */

void server_watch_vanish(struct server *s, struct conn *c)
{
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLONESHOT,
                             .data.u64 = (uint64_t)c->generation << 32 | c->slot};

    if (epoll_ctl(s->vanish_fd, c->is_watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->fd, &ev) == 0)
        c->is_watched = true; /* if not, the sweep finds out a second later */
}

/* The request of this slot, with a reference; generation 0: of whatever connection is there. */
static struct request *get_request(struct server *s, uint32_t slot, uint32_t generation)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->table_lock);
    struct conn *c = slot < s->n_slots ? s->conns[slot] : NULL;

    return c && c->request && (!generation || c->generation == generation) ? request_ref(c->request)
                                                                           : NULL;
}

static void on_vanish(struct loop *loop, uint32_t events, void *arg)
{
    struct server *s = arg;
    struct epoll_event ev[VANISH_BATCH];
    int n = epoll_wait(s->vanish_fd, ev, VANISH_BATCH, 0);

    (void)loop;
    (void)events;
    for (int i = 0; i < n; i++) {
        struct request *q =
            get_request(s, (uint32_t)ev[i].data.u64, (uint32_t)(ev[i].data.u64 >> 32));

        if (q)
            request_vanished(q);
        request_unref(q);
    }
}

bool server_has_ended(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/*
 * The library's edge-triggered epoll misses an end that comes in one edge with the last data, and
 * some resets around a resume: such a connection would stay for ever.
 */
bool server_peer_has_left(int fd)
{
    struct pollfd p = {.fd = fd};

    if (poll(&p, 1, 0) == 1 && p.revents & (POLLERR | POLLHUP))
        return true;
    return server_has_ended(fd);
}

/*
 * Closes connections that have been without a request for longer than for_ms, and those whose peer has left. The
 * latter a sweep later: the library may be about to take the next of several requests that it has read already.
 */
static unsigned close_idle(struct server *s, int64_t now_ms, int64_t for_ms)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->table_lock);
    unsigned n = 0;

    for (unsigned i = 0; i < s->n_slots; i++) {
        const struct conn *c = s->conns[i];
        int64_t idle_ms = c && c->idle_since_ms ? now_ms - c->idle_since_ms : -1;

        if (idle_ms < 0)
            continue;
        if (idle_ms > for_ms || (idle_ms >= SWEEP_MS && server_peer_has_left(c->fd)))
            n += shutdown(c->fd, SHUT_RDWR) == 0; /* the library sees the end and closes */
    }
    return n;
}

unsigned server_drop_idle(struct server *s)
{
    return close_idle(s, clock_mono_ms(), -1);
}

static struct tls_library *tls_library_free(struct tls_library *library)
{
    if (library && library->daemon)
        MHD_stop_daemon(library->daemon);
    free(library);
    return NULL;
}

/* The library must not be stopped while it has connections: they may be suspended. */
static void free_retired(struct server *s)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->n_retired; i++) {
        const union MHD_DaemonInfo *info =
            MHD_get_daemon_info(s->retired[i]->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);

        if (info && info->num_connections)
            s->retired[kept++] = s->retired[i];
        else
            (void)tls_library_free(s->retired[i]);
    }
    s->n_retired = kept;
}

static void on_sweep(struct loop *loop, void *arg)
{
    struct server *s = arg;
    int64_t now_ms = clock_mono_ms();

    s->sweep_timer = NULL;
    free_retired(s);
    (void)close_idle(s, now_ms, SERVER_IDLE_MS);
    if (s->o.service->sweep)
        s->o.service->sweep(s->o.owner, now_ms);
    for (unsigned i = 0; i < s->n_slots; i++) {
        struct request *q = get_request(s, i, 0);

        if (q)
            request_sweep(q, now_ms);
        request_unref(q);
    }
    (void)loop_timer_add(loop, now_ms + SWEEP_MS, on_sweep, s, &s->sweep_timer, NULL);
}

/* ---- life ---- */

int server_new(const struct server_options *o, struct server **ret, struct err *e)
{
    struct server *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return err_oom(e);
    *s = (struct server){.o = *o, .vanish_fd = -1};
    (void)pthread_mutex_init(&s->table_lock, NULL);
    s->n_slots = o->max_connections + SERVER_RESERVE + SLOT_MARGIN;
    s->conns = calloc(s->n_slots, sizeof(struct conn *));
    s->vanish_fd = epoll_create1(EPOLL_CLOEXEC);
    r = !s->conns ? err_oom(e) : s->vanish_fd < 0 ? err_sys(e, errno, "epoll_create1") : 0;
    if (r < 0) {
        server_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

static int add_listener(struct server *s, const char *at,
                        int (*make)(struct server *s, const char *at, struct listener **ret,
                                    struct err *e),
                        struct err *e)
{
    int r;

    if (s->n_listeners == SERVER_MAX_LISTENERS)
        return err_set(e, ERR_INVALID, "more than %d addresses to listen on", SERVER_MAX_LISTENERS);
    r = make(s, at, &s->listeners[s->n_listeners], e);
    s->n_listeners += r == 0;
    return r;
}

int server_listen_tcp(struct server *s, const char *addr, struct err *e)
{
    return add_listener(s, addr, listener_new_tcp, e);
}

int server_listen_fd(struct server *s, int fd, struct err *e)
{
    int r;

    if (s->n_listeners == SERVER_MAX_LISTENERS) {
        fd_close(fd);
        return err_set(e, ERR_INVALID, "more than %d addresses to listen on", SERVER_MAX_LISTENERS);
    }
    r = listener_new_fd(s, fd, &s->listeners[s->n_listeners], e);
    s->n_listeners += r == 0;
    return r;
}

int server_listen_unix(struct server *s, const char *path, struct err *e)
{
    return add_listener(s, path, listener_new_unix, e);
}

/*
 * Our own bounds count; the library's are a backstop. That of connections is split over its
 * threads. That of time is for a connection that was reset just when the library had more to
 * do with it: it loses the event, and would keep the descriptor for ever. It does not run for
 * suspended connections, so silent streams live; a client that takes nothing for so long is
 * cut off, and can go on from an offset.
 */
#define TLS_PRIORITIES (void *)"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:%SERVER_PRECEDENCE"

/* library: with TLS, else NULL. */
static struct MHD_Daemon *start_library(struct server *s, struct tls_library *library,
                                        const char *cert, const char *key)
{
    struct MHD_OptionItem items[] = {
        {library ? MHD_OPTION_HTTPS_MEM_KEY : MHD_OPTION_END, 0, (void *)key},
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)cert},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, TLS_PRIORITIES},
        {MHD_OPTION_END, 0, NULL},
    };

    return MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_USE_NO_LISTEN_SOCKET |
            MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE | (library ? (unsigned)MHD_USE_TLS : 0),
        0, NULL, NULL, request_on_access, s, MHD_OPTION_THREAD_POOL_SIZE, SERVER_THREADS,
        MHD_OPTION_CONNECTION_LIMIT, 4 * s->n_slots, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)SERVER_POOL_BYTES, MHD_OPTION_THREAD_STACK_SIZE, (size_t)MHD_STACK_BYTES,
        MHD_OPTION_URI_LOG_CALLBACK, request_on_uri, s, MHD_OPTION_NOTIFY_COMPLETED,
        request_on_completed, s, MHD_OPTION_NOTIFY_CONNECTION,
        library ? on_tls_connection : on_connection, library ? (void *)library : (void *)s,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(SERVER_IDLE_MS / 1000),
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_ARRAY,
        items, MHD_OPTION_END);
}

/* ---- the certificate ---- */

static int tls_library_new(struct server *s, const char *cert, const char *key,
                           struct tls_library **ret, struct err *e)
{
    struct tls_library *library = calloc(1, sizeof(*library));

    if (!library)
        return err_oom(e);
    library->server = s;
    library->daemon = start_library(s, library, cert, key);
    if (!library->daemon) {
        free(library);
        return err_field(e, ERR_INVALID, "tls-cert",
                         "the certificate and the key are no pair in PEM");
    }
    *ret = library;
    return 0;
}

/* As clients that vanish: their requests end, and the library closes. */
static void cut_connections_of(struct server *s, const struct tls_library *library)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->table_lock);

    for (unsigned i = 0; i < s->n_slots; i++)
        if (s->conns[i] && s->conns[i]->library == library)
            (void)shutdown(s->conns[i]->fd, SHUT_RDWR);
}

int server_reload_tls(struct server *s, const char *cert, const char *key, struct err *e)
{
    struct tls_library *fresh = NULL;
    int r;

    free_retired(s);
    if (!s->tls || s->stopping)
        return err_set(e, ERR_PRECONDITION, "the server has no TLS");
    if (s->n_retired == SERVER_MAX_RETIRED)
        return err_set(e, ERR_EXHAUSTED, "connections still use %d earlier certificates",
                       SERVER_MAX_RETIRED);
    r = tls_library_new(s, cert, key, &fresh, e);
    if (r < 0)
        return r;
    s->retired[s->n_retired++] = s->tls;
    s->tls = fresh;
    if (s->n_retired == SERVER_MAX_RETIRED) /* the next one needs its place */
        cut_connections_of(s, s->retired[0]);
    return 0;
}

/* ---- start, stop ---- */

int server_start(struct server *s, struct err *e)
{
    int r;

    s->daemon = start_library(s, NULL, NULL, NULL);
    if (!s->daemon)
        return err_set(e, ERR_INTERNAL, "the HTTP library does not start");
    r = s->o.tls_cert ? tls_library_new(s, s->o.tls_cert, s->o.tls_key, &s->tls, e) : 0;
    if (r == 0)
        r = loop_watch_add(s->o.loop, s->vanish_fd, EPOLLIN, on_vanish, s, &s->vanish_watch, e);
    if (r < 0)
        return r;
    on_sweep(s->o.loop, s);
    loop_on_quiet(s->o.loop, on_quiet, s);
    for (size_t i = 0; i < s->n_listeners && r == 0; i++)
        r = listener_start(s->listeners[i], e);
    return r;
}

/* Ends every request that runs: what is parked goes on and sees that its client has gone. */
static void end_requests(struct server *s)
{
    (void)pthread_mutex_lock(&s->table_lock);
    for (unsigned i = 0; i < s->n_slots; i++)
        if (s->conns[i])
            (void)shutdown(s->conns[i]->fd, SHUT_RDWR);
    (void)pthread_mutex_unlock(&s->table_lock);
    for (unsigned i = 0; i < s->n_slots; i++) {
        struct request *q = get_request(s, i, 0);

        if (q)
            request_vanished(q);
        request_unref(q);
    }
}

static unsigned n_requests(struct server *s)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->table_lock);
    unsigned n = 0;

    for (unsigned i = 0; i < s->n_slots; i++)
        n += s->conns[i] && s->conns[i]->request;
    return n;
}

void server_quiesce(struct server *s)
{
    s->stopping = true;
    for (size_t i = 0; i < s->n_listeners; i++)
        listener_stop(s->listeners[i]);
}

bool server_is_idle(struct server *s)
{
    return n_requests(s) == 0;
}

/*
 * The library must not be stopped while connections are suspended, and a request may park again
 * after it was woken: so end them until there are none.
 */
bool server_stop(struct server *s, int wait_ms)
{
    int64_t until_ms = clock_mono_ms() + wait_ms;

    server_quiesce(s);
    relay_end_all(s);
    if (!s->daemon)
        return true;
    do {
        end_requests(s);
        (void)poll(NULL, 0, 2);
    } while (n_requests(s) && clock_mono_ms() < until_ms);
    if (n_requests(s))
        return false; /* one hangs in a handler: the process ends with it */
    MHD_stop_daemon(s->daemon);
    s->daemon = NULL;
    s->tls = tls_library_free(s->tls);
    while (s->n_retired)
        (void)tls_library_free(s->retired[--s->n_retired]);
    return true;
}

struct server *server_free(struct server *s)
{
    if (!s || s->daemon)
        return NULL; /* its threads still use it */
    for (size_t i = 0; i < s->n_listeners; i++)
        listener_free(s->listeners[i]);
    loop_on_quiet(s->o.loop, NULL, NULL);
    if (s->vanish_watch)
        loop_watch_del(s->vanish_watch);
    loop_timer_del(s->sweep_timer);
    fd_close(s->vanish_fd);
    free(s->conns);
    (void)pthread_mutex_destroy(&s->table_lock);
    free(s);
    return NULL;
}

static const char *address_at(const struct server *s, size_t i,
                              const char *(*get)(const struct listener *l))
{
    for (size_t j = 0; j < s->n_listeners; j++)
        if (get(s->listeners[j]) && i-- == 0)
            return get(s->listeners[j]);
    return NULL;
}

const char *server_tcp_address(const struct server *s, size_t i)
{
    return address_at(s, i, listener_tcp_address);
}

const char *server_unix_path(const struct server *s, size_t i)
{
    return address_at(s, i, listener_unix_path);
}

int server_check_port(const struct server *s, uint16_t port, struct err *e)
{
    static const char *const hosts[] = {"127.0.0.1", "0.0.0.0", "[::1]", "[::]"};
    const char *address;

    for (size_t i = 0; (address = server_tcp_address(s, i)); i++)
        for (size_t j = 0; j < N_ELEMENTS(hosts); j++) {
            char own[64];

            (void)snprintf(own, sizeof(own), "%s:%d", hosts[j], (int)port);
            if (str_eq(own, address))
                return err_field(e, ERR_INVALID, "port", "port %d is the agent's own", (int)port);
        }
    return 0;
}

unsigned server_n_relays(const struct server *s)
{
    return s->n_relays;
}

struct loop *server_loop(const struct server *s)
{
    return s->o.loop;
}

const char *server_library(void)
{
    return MHD_get_version();
}
