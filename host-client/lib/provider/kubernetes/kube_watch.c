#include "lib/provider/kubernetes/kube_watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/util/socket.h"

#define WATCH_STACK_BYTES (256 * 1024) /* libcurl's frames */
#define WATCH_EVENT_BYTES ((size_t)4 << 20)
#define WATCH_PARSED_BYTES ((size_t)16 << 20)
#define WATCH_CONNECT_MS 10000
#define WATCH_RESUME_MS 10000 /* tries to resume for so long; then the object is read anew */
#define WATCH_PAUSE_MS 500    /* the first one, which doubles */
#define WATCH_PAUSE_MOST_MS 4000
#define WATCH_VERSION_BYTES 33
#define FRAME_CLOSE 8 /* RFC 6455: 8 and above are control frames */

/* Owned by its thread. */
struct watch {
    struct bh_ctx
        ctx; /* cancel_fd alone: `fd`, which is readable once the caller has closed its end */
    char *engine;
    enum kube_kind kind;
    char name[KUBE_POD_BYTES];
    char version[WATCH_VERSION_BYTES];
    int fd;     /* our end of the pair: its end is the message */
    int socket; /* of the watch */
};

static struct watch *watch_free(struct watch *w)
{
    if (!w)
        return NULL;
    fd_close(w->fd);
    fd_close(w->socket);
    free(w->engine);
    free(w);
    return NULL;
}

/* ---- events ---- */

/* -1: the watch was cut, or nobody waits for it any more. */
static int watch_recv(struct watch *w, void *data, size_t len)
{
    for (size_t n = 0; n < len;) {
        ssize_t got;

        if (socket_wait(w->socket, false, w->fd, 0, NULL) < 0)
            return -1;
        got = recv(w->socket, (char *)data + n, len - n, 0);
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
            return -1;
        n += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* A message of a server: neither masked nor in pieces. NULL: none can be read. */
static char *watch_read_frame(struct watch *w, unsigned *ret_opcode, size_t *ret_len)
{
    _cleanup_free_ char *data = NULL;
    unsigned char head[2], more[8];
    uint64_t len;
    size_t n;

    if (watch_recv(w, head, sizeof(head)) < 0)
        return NULL;
    len = head[1];
    n = len == 127 ? 8 : len == 126 ? 2 : 0;
    if (n) {
        if (watch_recv(w, more, n) < 0)
            return NULL;
        len = 0;
        for (size_t i = 0; i < n; i++)
            len = len << 8 | more[i];
    }
    if (len > WATCH_EVENT_BYTES)
        return NULL;
    data = malloc((size_t)len + 1);
    if (!data || watch_recv(w, data, (size_t)len) < 0)
        return NULL;
    *ret_opcode = head[0] & 0x0f;
    *ret_len = (size_t)len;
    return TAKE(data);
}

/* True: a bookmark, which is noted. */
static bool take_bookmark(struct watch *w, const char *data, size_t len)
{
    _cleanup_json_ json_t *event = NULL;
    const char *version;

    if (jx_parse_within(data, len, WATCH_PARSED_BYTES, &event, NULL) < 0 ||
        !str_eq(kube_text(event, "type"), "BOOKMARK"))
        return false;
    version = kube_text(event, "object", "metadata", "resourceVersion");
    if (*version && strlen(version) < sizeof(w->version))
        (void)snprintf(w->version, sizeof(w->version), "%s", version);
    return true;
}

/* 1: the object is to be read anew; 0: the watch was cut. */
static int watch_until_change(struct watch *w)
{
    for (;;) {
        _cleanup_free_ char *data = NULL;
        unsigned opcode = 0;
        size_t len = 0;

        data = watch_read_frame(w, &opcode, &len);
        if (!data || opcode == FRAME_CLOSE)
            return 0;
        if (opcode < FRAME_CLOSE && !take_bookmark(w, data, len))
            return 1; /* also an error: "410 Gone" says that the version is too old */
    }
}

/* ---- the thread ---- */

static int watch_connect(struct watch *w, int *ret_status)
{
    _cleanup_kube_ struct kube *k = NULL;
    int r = kube_open(&w->ctx, w->engine, clock_mono_ms() + WATCH_CONNECT_MS, &k, NULL);

    return r < 0 ? r
                 : kube_watch_socket(k, w->kind, w->name, w->version, ret_status, &w->socket, NULL);
}

/* False: it is not resumed. */
static bool watch_resume(struct watch *w)
{
    int64_t until = clock_mono_ms() + WATCH_RESUME_MS;
    int pause_ms = WATCH_PAUSE_MS;

    fd_close(TAKE_FD(w->socket));
    for (;;) {
        int status = 0;

        /* Before the first try too: an API server that ends each watch at once is not to be kept busy. */
        if (socket_wait_canceled(w->fd, pause_ms))
            return false;
        if (watch_connect(w, &status) == 0)
            return true;
        if ((status >= 400 && status < 500 && status != 429) || clock_until_ms(until) == 0)
            return false;
        pause_ms = pause_ms * 2 < WATCH_PAUSE_MOST_MS ? pause_ms * 2 : WATCH_PAUSE_MOST_MS;
    }
}

static void *watch_main(void *arg)
{
    struct watch *w = arg;

    while (watch_until_change(w) == 0 && watch_resume(w))
        ;
    (void)watch_free(w);
    return NULL;
}

/* Takes the watch over. */
static int watch_start_take(struct watch *w, struct err *e)
{
    pthread_attr_t attr;
    pthread_t thread;
    int sys;

    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, WATCH_STACK_BYTES);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sys = pthread_create(&thread, &attr, watch_main, w);
    (void)pthread_attr_destroy(&attr);
    if (sys == 0)
        return 0;
    (void)watch_free(w);
    return err_sys(e, sys, "start a thread");
}

int kube_watch(struct kube *k, enum kube_kind kind, const char *name, const char *version,
               int *ret_fd, struct err *e)
{
    struct watch *w = calloc(1, sizeof(*w));
    int pair[2] = {-1, -1};
    int r;

    if (!w)
        return err_oom(e);
    w->fd = w->socket = -1;
    w->kind = kind;
    (void)snprintf(w->name, sizeof(w->name), "%s", name);
    (void)snprintf(w->version, sizeof(w->version), "%.32s", version);
    w->engine = strdup(kube_engine(k));
    r = w->engine ? kube_watch_socket(k, kind, name, version, NULL, &w->socket, e) : err_oom(e);
    if (r == 0)
        r = socket_pair(pair, e);
    if (r < 0) {
        (void)watch_free(w);
        return r;
    }
    w->fd = w->ctx.cancel_fd = pair[1];
    r = watch_start_take(w, e);
    if (r < 0)
        fd_close(pair[0]);
    else
        *ret_fd = pair[0];
    return r;
}
