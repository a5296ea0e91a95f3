#include "system/hold.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/list.h"
#include "common/str.h"
#include "event/loop.h"

#define GENERATED_ID_BYTES 8
#define BACKLOG 64
#define ACCEPT_BATCH 16

struct holds {
    pthread_mutex_t lock;
    /* guarded by lock: */
    struct hold list[HOLD_MAX];
    size_t n;
    int64_t ended_mono_ms;
};

int holds_new(struct holds **ret, struct err *e)
{
    struct holds *h = calloc(1, sizeof(*h));

    if (!h)
        return err_oom(e);
    (void)pthread_mutex_init(&h->lock, NULL);
    *ret = h;
    return 0;
}

struct holds *holds_free(struct holds *h)
{
    if (!h)
        return NULL;
    (void)pthread_mutex_destroy(&h->lock);
    free(h);
    return NULL;
}

/* ---- with the lock ---- */

static void holds_drop(struct holds *h, size_t i, int64_t when_ms)
{
    if (when_ms > h->ended_mono_ms)
        h->ended_mono_ms = when_ms;
    memmove(&h->list[i], &h->list[i + 1], (h->n - i - 1) * sizeof(h->list[0]));
    h->n--;
}

/* Takes the lock, and drops the expired holds. */
static pthread_mutex_t *holds_lock(struct holds *h)
{
    pthread_mutex_t *locked = mutex_lock(&h->lock);
    int64_t now_ms = clock_mono_ms();

    for (size_t i = h->n; i-- > 0;)
        if (h->list[i].until_mono_ms && h->list[i].until_mono_ms <= now_ms)
            holds_drop(h, i, h->list[i].until_mono_ms);
    return locked;
}

static struct hold *holds_find(struct holds *h, const char *id)
{
    for (size_t i = 0; i < h->n; i++)
        if (str_eq(h->list[i].id, id))
            return &h->list[i];
    return NULL;
}

static int holds_check_room(const struct holds *h, const struct hold *ask, struct err *e)
{
    size_t n = 0;

    if (h->n == HOLD_MAX)
        return err_set(e, ERR_EXHAUSTED, "there are %d holds, the most allowed", HOLD_MAX);
    for (size_t i = 0; ask->is_local && i < h->n; i++)
        n += h->list[i].is_local && h->list[i].uid == ask->uid;
    if (n < HOLD_MAX_PER_USER)
        return 0;
    return err_set(e, ERR_EXHAUSTED, "user %u has %d holds, the most allowed", ask->uid,
                   HOLD_MAX_PER_USER);
}

static int holds_put(struct holds *h, struct hold *ask, struct err *e)
{
    struct hold *old = holds_find(h, ask->id);
    int r;

    ask->since_mono_ms = old ? old->since_mono_ms : clock_mono_ms();
    if (old && ask->is_local && !(old->is_local && old->uid == ask->uid))
        return err_field(e, ERR_DENIED, "id", "'%s' is somebody else's", ask->id);
    if (old && ask->is_new)
        return err_field(e, ERR_EXISTS, "id", "'%s' is in force", ask->id);
    if (old) {
        *old = *ask;
        return 0;
    }
    r = holds_check_room(h, ask, e);
    if (r == 0)
        h->list[h->n++] = *ask;
    return r;
}

int holds_take(struct holds *h, struct hold *ask, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = NULL;
    int r = ask->id[0] ? 0 : io_random_hex(GENERATED_ID_BYTES, ask->id, e);

    if (r < 0)
        return r;
    locked = holds_lock(h);
    return holds_put(h, ask, e);
}

int holds_release(struct holds *h, const char *id, uid_t uid, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = holds_lock(h);
    struct hold *old = holds_find(h, id);

    if (!old)
        return err_field(e, ERR_NOT_FOUND, "id", "there is no hold '%.128s'", id);
    if (uid != (uid_t)-1 && !(old->is_local && old->uid == uid))
        return err_field(e, ERR_DENIED, "id", "'%.128s' is somebody else's", id);
    holds_drop(h, (size_t)(old - h->list), clock_mono_ms());
    return 0;
}

int holds_list(struct holds *h, struct hold **ret, size_t *ret_n, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = holds_lock(h);
    struct hold *copy = calloc(h->n ? h->n : 1, sizeof(*copy));

    if (!copy)
        return err_oom(e);
    memcpy(copy, h->list, h->n * sizeof(*copy));
    *ret = copy;
    *ret_n = h->n;
    return 0;
}

unsigned holds_count(struct holds *h)
{
    _cleanup_unlock_ pthread_mutex_t *locked = holds_lock(h);

    return (unsigned)h->n;
}

int64_t holds_ended_mono_ms(struct holds *h)
{
    _cleanup_unlock_ pthread_mutex_t *locked = holds_lock(h);

    return h->ended_mono_ms;
}

/* ---- the socket ---- */

struct peer {
    struct holdsock *sock;
    int fd;
    struct ucred who;
    struct loop_watch *watch;
    struct loop_timer *timer; /* deadline of the line */
    char line[HOLDSOCK_LINE_BYTES];
    size_t len;
    char id[HOLD_ID_BYTES]; /* of the hold that is bound to the connection; "": none */
    struct list_link link;  /* in peers */
};

struct holdsock {
    struct loop *loop;
    struct holds *holds;
    char *path;
    int fd;
    struct loop_watch *watch;
    struct list peers;
};

static void peer_free(struct peer *p)
{
    struct holdsock *s = p->sock;

    if (p->id[0])
        (void)holds_release(s->holds, p->id, p->who.uid, NULL);
    loop_watch_del(p->watch);
    loop_timer_del(p->timer);
    fd_close(p->fd);
    list_remove(&s->peers, &p->link);
    free(p);
}

static void peer_answer(struct peer *p, const char *word, const char *text)
{
    char line[ERR_MESSAGE_BYTES + 16];
    int n = snprintf(line, sizeof(line), "%s %s\n", word, text);

    (void)send(p->fd, line, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void set_text(char *to, size_t size, const char *from)
{
    (void)snprintf(to, size, "%s", from);
    for (char *c = to; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = ' ';
    str_make_utf8(to);
}

/* rest: "MS ID REASON". */
static int take_hold(struct peer *p, char *rest, bool is_bound, struct hold *h, struct err *e)
{
    char *ms = strsep(&rest, " ");
    char *id = strsep(&rest, " ");
    uint64_t for_ms;
    int r;

    if (!id)
        return err_set(e, ERR_INVALID, "expected: take MS ID REASON");
    r = str_parse_u64(ms, !is_bound, HOLD_MAX_MS, &for_ms, e);
    if (r < 0)
        return r;
    if (strlen(id) >= HOLD_ID_BYTES)
        return err_set(e, ERR_INVALID, "an id has at most %d bytes", HOLD_ID_BYTES - 1);
    *h = (struct hold){.is_local = true,
                       .is_new = is_bound,
                       .uid = p->who.uid,
                       .pid = p->who.pid,
                       .until_mono_ms = for_ms ? clock_mono_ms() + (int64_t)for_ms : HOLD_OPEN};
    if (!str_eq(id, "-"))
        set_text(h->id, sizeof(h->id), id);
    set_text(h->reason, sizeof(h->reason), rest ? rest : "");
    return holds_take(p->sock->holds, h, e);
}

/* True: the connection stays open, with its hold. */
static bool run_request(struct peer *p)
{
    char *rest = p->line;
    char *word = strsep(&rest, " ");
    bool is_bound = str_eq(word, "bind");
    struct hold h = {0};
    struct err e = {0};
    int r;

    if ((is_bound || str_eq(word, "take")) && rest) {
        r = take_hold(p, rest, is_bound, &h, &e);
    } else if (str_eq(word, "release") && rest) {
        set_text(h.id, sizeof(h.id), rest);
        r = holds_release(p->sock->holds, h.id, p->who.uid, &e);
    } else {
        r = err_set(&e, ERR_INVALID, "expected: take, bind or release");
    }
    peer_answer(p, r < 0 ? "error" : "ok", r < 0 ? e.message : h.id);
    if (r < 0 || !is_bound)
        return false;
    (void)snprintf(p->id, sizeof(p->id), "%s", h.id);
    return true;
}

/* Before the line is complete: more of it. After: only the end of the connection matters. */
static void on_peer_input(struct loop *l, uint32_t events, void *arg)
{
    struct peer *p = arg;
    char scrap[64];
    char *end;
    ssize_t n;

    (void)l;
    (void)events;
    n = p->id[0] ? recv(p->fd, scrap, sizeof(scrap), MSG_DONTWAIT)
                 : recv(p->fd, p->line + p->len, sizeof(p->line) - p->len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        peer_free(p);
        return;
    }
    if (p->id[0])
        return;
    p->len += (size_t)n;
    end = memchr(p->line, '\n', p->len);
    if (!end && p->len < sizeof(p->line))
        return;
    if (end)
        *end = '\0';
    else
        peer_answer(p, "error", "the line is too long");
    p->timer = loop_timer_del(p->timer);
    if (!end || !run_request(p))
        peer_free(p);
}

static void on_line_deadline(struct loop *l, void *arg)
{
    struct peer *p = arg;

    (void)l;
    p->timer = NULL;
    peer_free(p);
}

static void add_peer(struct holdsock *s, int fd)
{
    struct peer *p = calloc(1, sizeof(*p));
    socklen_t len = sizeof(p->who);

    if (!p) {
        fd_close(fd);
        return;
    }
    *p = (struct peer){.sock = s, .fd = fd};
    list_append(&s->peers, &p->link);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &p->who, &len) < 0 ||
        loop_watch_add(s->loop, fd, EPOLLIN, on_peer_input, p, &p->watch, NULL) < 0 ||
        loop_timer_add(s->loop, clock_mono_ms() + HOLDSOCK_LINE_MS, on_line_deadline, p, &p->timer,
                       NULL) < 0)
        peer_free(p);
}

static void on_acceptable(struct loop *l, uint32_t events, void *arg)
{
    struct holdsock *s = arg;

    (void)l;
    (void)events;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0)
            return;
        if (s->peers.n < HOLDSOCK_MAX_CONNECTIONS)
            add_peer(s, fd);
        else
            fd_close(fd);
    }
}

int holdsock_new(struct loop *l, struct holds *h, const char *path, struct holdsock **ret,
                 struct err *e)
{
    struct holdsock *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return err_oom(e);
    *s = (struct holdsock){.loop = l, .holds = h, .fd = -1};
    r = unixsock_bind(path, 0666, &s->fd, e);
    if (r == 0) {
        s->path = strdup(path);
        r = s->path ? 0 : err_oom(e);
    }
    if (r == 0 && listen(s->fd, BACKLOG) < 0)
        r = err_sys(e, errno, "listen on '%s'", path);
    if (r == 0)
        r = loop_watch_add(l, s->fd, EPOLLIN, on_acceptable, s, &s->watch, e);
    if (r < 0) {
        holdsock_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

struct holdsock *holdsock_free(struct holdsock *s)
{
    if (!s)
        return NULL;
    LIST_EACH (struct peer, link, p, &s->peers)
        peer_free(p);
    loop_watch_del(s->watch);
    fd_close(s->fd);
    if (s->path)
        (void)unlink(s->path);
    free(s->path);
    free(s);
    return NULL;
}
