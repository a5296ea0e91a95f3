#include "daemon/webhooks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <nettle/hmac.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"
#include "daemon/contexts.h"
#include "daemon/daemon.h"
#include "daemon/metrics.h"
#include "lib/box/store_access.h"
#include "lib/util/context.h"
#include "lib/util/transport.h"

#define SECRET_MAX_BYTES 4096
#define BATCH_EVENTS 64
#define POST_MS 10000
#define REPLY_MOST_BYTES 65536
#define RETRY_LEAST_MS 500
#define RETRY_MOST_MS 60000
#define LOOK_MS 5000 /* the store is read so often even if no change was reported */
#define POSITION_EVERY \
    16 /* events that were taken, then the position is stored; and when there are no more */

struct webhook {
    struct webhooks *all;
    const char *url;
    pthread_t thread;
    int wake_fd; /* readable: there may be new events */
    int64_t position;
    struct http *http;
};

struct webhooks {
    struct daemon *daemon;
    struct webhook hooks[WEBHOOKS_MAX];
    size_t n; /* whose threads run */
    int stop_fd;
    char *secret;
    size_t secret_len;
};

struct hook_batch {
    struct {
        int64_t position;
        char *json;
    } events[BATCH_EVENTS];
    size_t n;
};

/* ---- one post ---- */

static void sign_body(const struct webhooks *w, int64_t time_s, const char *body, char *out,
                      size_t n)
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    char hex[2 * SHA256_DIGEST_SIZE + 1], stamp[24];
    struct hmac_sha256_ctx mac;

    (void)snprintf(stamp, sizeof(stamp), "%" PRId64 ".", time_s);
    hmac_sha256_set_key(&mac, w->secret_len, (const uint8_t *)w->secret);
    hmac_sha256_update(&mac, strlen(stamp), (const uint8_t *)stamp);
    hmac_sha256_update(&mac, strlen(body), (const uint8_t *)body);
    hmac_sha256_digest(&mac, sizeof(digest), digest);
    str_hex(digest, sizeof(digest), hex);
    (void)snprintf(out, n, "Bellhop-Signature: t=%" PRId64 ",v1=%s", time_s, hex);
}

struct hook_reply {
    bool is_taken;
    size_t n_dropped;
};

/* Of the body of a 2xx reply, which nobody needs: a receiver whose reply has no end has taken the event all the same. */
static int drop_reply(void *arg, const char *data, size_t len)
{
    struct hook_reply *r = arg;

    (void)data;
    r->is_taken = true;
    r->n_dropped += len;
    return r->n_dropped > REPLY_MOST_BYTES;
}

static bool post_event(struct webhook *h, const char *body, int64_t position)
{
    struct hook_reply reply = {0};
    char signature[128] = "Bellhop-Signature: none", id[48];
    const char *const headers[] = {"Content-Type: application/json", signature, id, NULL};
    const struct http_request req = {.method = "POST",
                                     .url = h->url,
                                     .headers = headers,
                                     .body = body,
                                     .body_len = strlen(body),
                                     .write = drop_reply,
                                     .write_arg = &reply,
                                     .deadline_mono_ms = clock_mono_ms() + POST_MS};
    struct http_response res = {0};

    if (h->all->secret)
        sign_body(h->all, clock_real_ms() / 1000, body, signature, sizeof(signature));
    (void)snprintf(id, sizeof(id), "Bellhop-Event-Id: %" PRId64, position);
    if (http_do(h->http, &req, &res, NULL) == 0)
        reply.is_taken = res.status >= 200 && res.status < 300;
    http_response_done(&res);
    metrics_count_webhook(h->all->daemon->metrics, reply.is_taken);
    return reply.is_taken;
}

/* ---- the thread ---- */

/* Waits for new events (or not, with is_retry), for ms at most. False: it ends. */
static bool hook_wait(struct webhook *h, bool is_retry, int64_t ms)
{
    struct pollfd p[] = {{.fd = h->all->stop_fd, .events = POLLIN},
                         {.fd = is_retry ? -1 : h->wake_fd, .events = POLLIN}};
    uint64_t n;

    (void)poll(p, 2, (int)ms);
    if (p[1].revents)
        (void)!read(h->wake_fd, &n, sizeof(n));
    return !p[0].revents;
}

static int add_to_batch(void *arg, const struct bh_event *event)
{
    struct hook_batch *b = arg;
    char *copy = strdup(event->json);

    if (!copy)
        return -1;
    b->events[b->n].position = event->position;
    b->events[b->n].json = copy;
    return ++b->n == BATCH_EVENTS;
}

static void read_batch(struct webhook *h, struct hook_batch *b)
{
    struct bh_event_options o = {.size = sizeof(o), .since = h->position};
    struct bh_ctx *ctx = NULL;

    if (contexts_take(h->all->daemon->contexts, "daemon", &ctx, NULL) < 0)
        return; /* a store that cannot be read now is tried again */
    (void)bh_list_events(ctx, &o, add_to_batch, b, NULL);
    contexts_give(h->all->daemon->contexts, ctx);
}

static void store_position(struct webhook *h)
{
    struct bh_ctx *ctx = NULL;

    if (contexts_take(h->all->daemon->contexts, "daemon", &ctx, NULL) < 0)
        return; /* after a restart events come again */
    (void)store_set_webhook(ctx->store, h->url, h->position, NULL);
    contexts_give(h->all->daemon->contexts, ctx);
}

/* False: it ends. */
static bool post_batch(struct webhook *h, const struct hook_batch *b)
{
    for (size_t i = 0; i < b->n; i++) {
        int64_t wait_ms = RETRY_LEAST_MS;

        while (!post_event(h, b->events[i].json, b->events[i].position)) {
            if (!hook_wait(h, true, wait_ms))
                return false;
            wait_ms = 2 * wait_ms < RETRY_MOST_MS ? 2 * wait_ms : RETRY_MOST_MS;
        }
        h->position = b->events[i].position;
        if ((i + 1) % POSITION_EVERY == 0 || i + 1 == b->n)
            store_position(h);
    }
    return true;
}

static void *run_hook(void *arg)
{
    struct webhook *h = arg;
    bool goes_on = true;

    while (goes_on) {
        struct hook_batch b = {0};

        read_batch(h, &b);
        goes_on = post_batch(h, &b) && (b.n == BATCH_EVENTS || hook_wait(h, false, LOOK_MS));
        while (b.n)
            free(b.events[--b.n].json);
    }
    store_position(h);
    return NULL;
}

/* ---- life ---- */

static int skip_to(void *arg, const struct bh_event *event)
{
    *(int64_t *)arg = event->position;
    return 0;
}

/* A new URL begins behind the events that there are. */
static int find_hook_position(struct webhook *h, struct err *e)
{
    struct bh_event_options o = {.size = sizeof(o)};
    struct bh_error error = {0};
    struct bh_ctx *ctx = NULL;
    int r = contexts_take(h->all->daemon->contexts, "daemon", &ctx, e);

    if (r < 0)
        return r;
    r = store_get_webhook(ctx->store, h->url, &h->position, e);
    if (r == 0)
        r = contexts_error(e, bh_list_events(ctx, &o, skip_to, &h->position, &error), &error);
    if (r == 0)
        r = store_set_webhook(ctx->store, h->url, h->position, e);
    contexts_give(h->all->daemon->contexts, ctx);
    return r < 0 ? r : 0;
}

static int start_hook(struct webhooks *w, const char *url, struct err *e)
{
    struct webhook *h = &w->hooks[w->n];
    int r;

    if (w->n == WEBHOOKS_MAX)
        return err_field(e, ERR_INVALID, "webhook", "more than %d webhooks", WEBHOOKS_MAX);
    if (!str_has_prefix(url, "http://") && !str_has_prefix(url, "https://"))
        return err_field(e, ERR_INVALID, "webhook", "'%.200s' is no URL of http or https", url);
    *h = (struct webhook){.all = w, .url = url, .wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (h->wake_fd < 0)
        return err_sys(e, errno, "eventfd");
    r = http_new(w->stop_fd, &h->http, e);
    if (r == 0)
        r = find_hook_position(h, e);
    if (r == 0 && pthread_create(&h->thread, NULL, run_hook, h) != 0)
        r = err_set(e, ERR_EXHAUSTED, "no thread for a webhook");
    if (r < 0) {
        fd_close(h->wake_fd);
        (void)http_free(h->http);
        return r;
    }
    w->n++;
    return 0;
}

static int read_secret(struct webhooks *w, const char *path, struct err *e)
{
    int r = io_read_file(AT_FDCWD, path, SECRET_MAX_BYTES, &w->secret, &w->secret_len, e);

    if (r < 0)
        return err_at(e, r, "webhook-secret-file");
    while (w->secret_len && w->secret[w->secret_len - 1] == '\n')
        w->secret_len--;
    return w->secret_len ? 0
                         : err_field(e, ERR_INVALID, "webhook-secret-file", "'%s' is empty", path);
}

int webhooks_new(struct daemon *d, char *const *urls, const char *secret_file,
                 struct webhooks **ret, struct err *e)
{
    struct webhooks *w;
    int r;

    if (!urls)
        return 0;
    w = calloc(1, sizeof(*w));
    if (!w)
        return err_oom(e);
    w->daemon = d;
    w->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    *ret = w;
    r = w->stop_fd < 0 ? err_sys(e, errno, "eventfd") : 0;
    if (r == 0 && secret_file)
        r = read_secret(w, secret_file, e);
    for (; r == 0 && *urls; urls++)
        r = start_hook(w, *urls, e);
    return r;
}

void webhooks_look(struct webhooks *w)
{
    uint64_t one = 1;

    for (size_t i = 0; w && i < w->n; i++)
        (void)!write(w->hooks[i].wake_fd, &one, sizeof(one));
}

struct webhooks *webhooks_free(struct webhooks *w)
{
    uint64_t one = 1;

    if (!w)
        return NULL;
    (void)!write(w->stop_fd, &one, sizeof(one));
    for (size_t i = 0; i < w->n; i++) {
        (void)pthread_join(w->hooks[i].thread, NULL);
        (void)http_free(w->hooks[i].http);
        fd_close(w->hooks[i].wake_fd);
    }
    fd_close(w->stop_fd);
    if (w->secret)
        explicit_bzero(w->secret, w->secret_len);
    free(w->secret);
    free(w);
    return NULL;
}
