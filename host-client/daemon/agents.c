#include "daemon/agents.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "daemon/contexts.h"
#include "daemon/daemon.h"
#include "daemon/events.h"
#include "daemon/job.h"
#include "daemon/service.h"
#include "event/pool.h"
#include "http/request.h"
#include "lib/box/box.h"
#include "lib/util/procfs.h"
#include "lib/util/socket.h"

#define CONNECT_TRIES 3

enum agent_state {
    AGENT_SOUGHT, /* a worker looks for it */
    AGENT_KNOWN,
    AGENT_FAILED,
};

/* The agent of one box, under one name for it. */
struct known_agent {
    struct agents *owner;
    char *key; /* the box's name or id, as a request has it */
    struct known_agent *next;
    /* guarded by the lock of the agents: */
    unsigned n_refs; /* the list's, the worker's, the uses', a successor's */
    unsigned n_uses;
    int64_t idle_since_ms;
    bool is_listed;
    bool is_stale; /* something happened while it was sought */
    enum agent_state state;
    struct agent_use *waiting;
    struct known_agent *before; /* the worker's: is it still right? Or NULL */
    /* the worker's until it is known: */
    char box_id[BOX_ID_BYTES];
    char *socket;
    char *token;
    pid_t listener;
    uint64_t listener_start;
    int hold_fd;
    int r;
    struct err error;
};

struct agents {
    struct daemon *daemon;
    pthread_mutex_t lock;
    struct known_agent *list; /* guarded by lock */
};

int agents_new(struct daemon *d, struct agents **ret, struct err *e)
{
    struct agents *a = calloc(1, sizeof(*a));

    if (!a)
        return err_oom(e);
    a->daemon = d;
    (void)pthread_mutex_init(&a->lock, NULL);
    *ret = a;
    return 0;
}

/* With the lock. */
static void agent_unref(struct known_agent *n)
{
    if (!n || --n->n_refs > 0)
        return;
    agent_unref(n->before);
    fd_close(n->hold_fd);
    if (n->token)
        explicit_bzero(n->token, strlen(n->token));
    free(n->token);
    free(n->socket);
    free(n->key);
    free(n);
}

/* With the lock. */
static void agent_unlist(struct known_agent *n)
{
    struct known_agent **at = &n->owner->list;

    if (!n->is_listed)
        return;
    while (*at != n)
        at = &(*at)->next;
    *at = n->next;
    n->is_listed = false;
    agent_unref(n);
}

/* ---- looking for an agent, on a worker ---- */

/* Does the box run as it did when `before` was found? Then its hold goes on. */
static bool take_over_hold(struct known_agent *n, struct bh_box *box)
{
    const struct known_agent *before = n->before;

    if (!before || strcmp(before->box_id, n->box_id) != 0 ||
        bh_box_summary(box)->state != BH_STATE_RUNNING ||
        !procfs_is_alive(before->listener, before->listener_start))
        return false;
    n->hold_fd = fcntl(before->hold_fd, F_DUPFD_CLOEXEC, 3);
    return n->hold_fd >= 0;
}

/* Its listener is checked once; later connections must lead to the same process. */
static int find_listener(struct known_agent *n, struct bh_box *box, struct err *e)
{
    struct client_options o = {0};
    _cleanup_close_ int fd = -1;
    int r = box_client_options(box, -1, &o, &n->socket, &n->token, e);

    if (r == 0 && !n->socket)
        r = err_set(e, ERR_UNIMPLEMENTED, "the box's agent has no socket on this machine");
    if (r == 0)
        r = socket_connect(n->socket, SOCKET_CONNECT_MS, &fd, e);
    if (r == 0 && o.check_peer)
        r = o.check_peer(o.check_arg, fd, e);
    if (r == 0)
        r = socket_peer(fd, &n->listener, e);
    n->listener_start = r == 0 ? procfs_start_time(n->listener) : 0;
    return r;
}

static int find_agent(struct known_agent *n, struct err *e)
{
    struct contexts *contexts = n->owner->daemon->contexts;
    struct bh_error error = {0};
    struct bh_box *box = NULL;
    struct bh_ctx *ctx = NULL;
    int r = contexts_take(contexts, "daemon", &ctx, e);

    if (r == 0)
        r = job_find_box(ctx, n->key, &box, e);
    if (r == 0) {
        (void)snprintf(n->box_id, sizeof(n->box_id), "%s", bh_box_summary(box)->id);
        if (!take_over_hold(n, box))
            r = contexts_error(e, bh_hold(box, &n->hold_fd, &error), &error);
    }
    if (r == 0)
        r = find_listener(n, box, e);
    (void)bh_box_free(box);
    contexts_give(contexts, ctx);
    return r;
}

/* request_wake() must not be called with the lock held. */
static struct request **take_waiting(struct known_agent *n, size_t *ret_n)
{
    struct request **list;
    size_t count = 0;

    for (struct agent_use *u = n->waiting; u; u = u->next)
        count++;
    list = count ? calloc(count, sizeof(struct request *)) : NULL;
    *ret_n = 0;
    for (struct agent_use *u = n->waiting; u; u = u->next) {
        u->is_waiting = false;
        if (list)
            list[(*ret_n)++] = request_ref(u->request);
    }
    n->waiting = NULL;
    return list;
}

static void run_search(void *arg)
{
    struct known_agent *n = arg;
    struct agents *a = n->owner;
    struct request **waiting = NULL;
    size_t n_waiting = 0;
    struct err e = {0};
    int r = find_agent(n, &e);

    WITH_LOCK (&a->lock) {
        n->state = r < 0 ? AGENT_FAILED : AGENT_KNOWN;
        n->r = r;
        n->error = e;
        n->idle_since_ms = clock_mono_ms();
        agent_unref(TAKE(n->before));
        waiting = take_waiting(n, &n_waiting);
        if (r < 0 || n->is_stale)
            agent_unlist(n);
        agent_unref(n);
    }
    for (size_t i = 0; i < n_waiting; i++) {
        request_wake(waiting[i]);
        request_unref(waiting[i]);
    }
    free(waiting);
}

/* ---- a request's use ---- */

/* With the lock: a new entry, which a worker fills; in the place of `before`, if there is one. */
static int seek_agent(struct agents *a, const char *key, struct known_agent *before,
                      struct known_agent **ret, struct err *e)
{
    struct known_agent *n = calloc(1, sizeof(*n));
    int r;

    if (!n)
        return err_oom(e);
    *n = (struct known_agent){.owner = a,
                              .key = strdup(key),
                              .next = a->list,
                              .n_refs = 2, /* the list's and the worker's */
                              .is_listed = true,
                              .before = before,
                              .hold_fd = -1};
    if (before) {
        before->n_refs++;
        agent_unlist(before);
        n->next = a->list;
    }
    a->list = n;
    r = n->key ? pool_run(a->daemon->pool, run_search, n, e) : err_oom(e);
    if (r < 0) {
        agent_unlist(n);
        agent_unref(n);
        return r;
    }
    *ret = n;
    return 0;
}

/* With the lock. */
static int choose_agent(struct agents *a, struct agent_use *u, const char *box, struct err *e)
{
    struct known_agent *n = a->list;
    int r = 0;

    while (n && strcmp(n->key, box) != 0)
        n = n->next;
    /* An event that was not read yet may be one of this box. */
    if (!n || (n->state == AGENT_KNOWN && hub_has_news(a->daemon->hub)))
        r = seek_agent(a, box, n, &n, e);
    if (r < 0)
        return r;
    u->agent = n;
    n->n_refs++;
    n->n_uses++;
    return 0;
}

/* With the lock. */
static void drop_use(struct agent_use *u)
{
    struct known_agent *n = TAKE(u->agent);
    struct agent_use **at;

    if (!n)
        return;
    for (at = &n->waiting; u->is_waiting && *at != u;)
        at = &(*at)->next;
    if (u->is_waiting)
        *at = u->next;
    u->is_waiting = false;
    if (--n->n_uses == 0)
        n->idle_since_ms = clock_mono_ms();
    agent_unref(n);
}

/* 1: a worker looks for the agent, and wakes the request. */
static int check_agent(struct agents *a, struct agent_use *u, const char *box, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&a->lock);
    int r = u->agent ? 0 : choose_agent(a, u, box, e);

    if (r < 0)
        return r;
    if (u->agent->state == AGENT_FAILED) {
        *e = u->agent->error;
        return u->agent->r;
    }
    if (u->agent->state == AGENT_KNOWN)
        return 0;
    if (!u->is_waiting) {
        u->is_waiting = true;
        u->next = u->agent->waiting;
        u->agent->waiting = u;
    }
    return 1;
}

/* To connect to a unix socket does not wait. */
static int connect_known(const struct known_agent *n, int *ret_fd, struct err *e)
{
    _cleanup_close_ int fd = -1;
    pid_t pid = 0;
    int r = socket_connect(n->socket, 0, &fd, e);

    if (r == 0)
        r = socket_peer(fd, &pid, e);
    if (r < 0)
        return r;
    if (pid != n->listener || !procfs_is_alive(pid, n->listener_start))
        return err_set(e, ERR_UNAVAILABLE, "another process listens in place of the guest agent");
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int wait_for_agent(struct request *q, struct agent_use *u, struct err *e)
{
    int r = u->deadline ? 0 : deadline_new(q, AGENTS_WAKE_MS, request_make_late, &u->deadline, e);

    if (r < 0)
        return r;
    if (request_is_late(q))
        return err_set(e, ERR_DEADLINE, "the box did not wake within %d ms", AGENTS_WAKE_MS);
    if (request_park(q))
        return REQUEST_PARKED;
    return request_is_gone(q) ? err_set(e, ERR_CANCELED, "the client has gone") : 0;
}

int agents_connect(struct request *q, struct agent_use *u, const char *box, int *ret_fd,
                   struct err *e)
{
    struct agents *a = request_daemon(q)->agents;

    u->request = q;
    for (;;) {
        int r = check_agent(a, u, box, e);

        if (r > 0)
            r = wait_for_agent(q, u, e);
        else if (r == 0 && (r = connect_known(u->agent, ret_fd, e)) == 0)
            return 0;
        else if (u->agent && u->agent->state == AGENT_KNOWN && ++u->n_tries < CONNECT_TRIES)
            /* It ended since: look again. */
            WITH_LOCK (&a->lock) {
                agent_unlist(u->agent);
                drop_use(u);
                r = 0;
            }
        if (r != 0)
            return r;
    }
}

const char *agents_token(const struct agent_use *u)
{
    return u->agent->token;
}

const char *agents_box_id(const struct agent_use *u)
{
    return u->agent->box_id;
}

void agents_leave(struct agent_use *u)
{
    deadline_drop(TAKE(u->deadline));
    if (!u->agent)
        return;
    WITH_LOCK (&u->agent->owner->lock) {
        drop_use(u);
    }
}

/* ---- the boxes' life ---- */

void agents_forget(struct agents *a, const char *box_id)
{
    WITH_LOCK (&a->lock) {
        struct known_agent *next;

        for (struct known_agent *n = a->list; n; n = next) {
            next = n->next;
            if (n->state != AGENT_KNOWN) /* whose box the worker may not know yet */
                n->is_stale = true;
            else if (strcmp(n->box_id, box_id) == 0)
                agent_unlist(n);
        }
    }
}

void agents_sweep(struct agents *a, int64_t now_ms)
{
    WITH_LOCK (&a->lock) {
        struct known_agent *next;

        for (struct known_agent *n = a->list; n; n = next) {
            next = n->next;
            if (n->state == AGENT_KNOWN && !n->n_uses &&
                now_ms - n->idle_since_ms >= AGENTS_LINGER_MS)
                agent_unlist(n);
        }
    }
}

struct agents *agents_free(struct agents *a)
{
    if (!a)
        return NULL;
    while (a->list)
        agent_unlist(a->list);
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
    return NULL;
}
