#include "daemon/events.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "daemon/agents.h"
#include "daemon/access.h"
#include "daemon/answers.h"
#include "daemon/attention.h"
#include "daemon/contexts.h"
#include "daemon/daemon.h"
#include "daemon/job.h"
#include "daemon/metrics.h"
#include "daemon/service.h"
#include "daemon/webhooks.h"
#include "event/loop.h"
#include "http/respond.h"
#include "lib/box/box.h"
#include "lib/box/quota.h"
#include "lib/util/context.h"

#define TYPE_SSE "text/event-stream"
#define BLOCK_BYTES 64   /* the library's buffer, which chunked replies do not use */
#define LOOK_MS 5000     /* the store is read so often even if no change was reported */
#define BATCH_EVENTS 256 /* read from the store at a time */
#define TEXT_MAX (64u << 20)
#define STATES_BYTES (64 * 1024) /* of boxes: so much is read, and then sent, at a time */
#define BOX_ID_MAX 40
#define HELPERS_MAX 4 /* threads of the pool that read the store for clients */

struct entry {
    int64_t position;
    char box_id[BOX_ID_MAX];
    char owner[ACCESS_NAME_BYTES];
    char *text; /* as on the wire */
    size_t len;
};

struct follower {
    struct request *request; /* whose state it is */
    struct stream_hub *hub;
    struct follower *next, **link; /* guarded by the hub's lock; link NULL: not in the list */
    char box_id[BOX_ID_MAX];       /* "": all boxes that its sender may see */
    const char *owner;             /* of the sender's token; "": boxes of all owners */
    int64_t position;              /* of the last event that it has */
    bool has_position;             /* the client gave it: it gets the events since, and no states */
    bool keeps;                    /* its box's lease is extended while it is there */
    bool has_states;               /* the states of the boxes behind `after` are still to be read */
    char after[BOX_NAME_BYTES];
    bool is_over; /* its box is destroyed, and all is sent */
    struct buf out;
    size_t sent; /* of out */
    struct ask start;
    void (*work)(struct request *q); /* a helper is to run it */
    struct follower *next_waiting;   /* guarded by the hub's lock */
    char *box;                       /* as the path names it, or NULL */
    /* A worker reads states or older events from the store: */
    bool is_reading;
    _Atomic bool has_read;
    int r; /* its error: start.error */
};

struct stream_hub {
    struct daemon *daemon;
    struct bh_ctx *reader_ctx; /* of the worker that reads new events */
    int inotify_fd;
    struct loop_watch *watch;
    struct loop_timer *timer;
    pthread_mutex_t lock;
    /* guarded by lock: */
    struct entry kept[EVENTS_KEPT]; /* a ring: kept[(first + i) % EVENTS_KEPT] */
    size_t first, n;
    size_t bytes;
    int64_t position; /* of the newest event that was read */
    bool is_reading;  /* a worker reads new events */
    bool must_read;   /* once more */
    bool is_over;     /* hub_quiesce() */
    struct follower *followers;
    struct follower *waiting, **waiting_end; /* for a helper */
    unsigned n_helpers;
    struct attention *attention;
};

/* ---- the text of events ---- */

static int add_event(struct buf *out, int64_t position, const char *name, const char *json,
                     struct err *e)
{
    return buf_addf(out, e, "id: %" PRId64 "\nevent: %s\ndata: %s\n\n", position, name, json);
}

/* ---- new events: read once for all ---- */

static void drop_oldest(struct stream_hub *h)
{
    struct entry *old = &h->kept[h->first];

    h->bytes -= old->len;
    free(TAKE(old->text));
    h->first = (h->first + 1) % EVENTS_KEPT;
    h->n--;
}

/* With the lock. Without memory the events are not kept: who wants them reads the store. */
static void drop_all(struct stream_hub *h)
{
    while (h->n)
        drop_oldest(h);
}

static int keep_event(void *arg, const struct bh_event *event)
{
    struct stream_hub *h = arg;
    _cleanup_buf_ struct buf text = {0};
    char owner[ACCESS_NAME_BYTES] = "";
    bool has_text;

    metrics_count_event(h->daemon->metrics, event);
    (void)store_owner_of(h->reader_ctx->store, event->box_id, owner, NULL);
    buf_init(&text, TEXT_MAX);
    agents_forget(h->daemon->agents, event->box_id);
    has_text = add_event(&text, event->position, event->kind, event->json, NULL) == 0;
    WITH_LOCK (&h->lock) {
        struct entry *entry;

        h->position = event->position;
        while (h->n && (h->n == EVENTS_KEPT || h->bytes + text.len > EVENTS_KEPT_BYTES))
            drop_oldest(h);
        entry = &h->kept[(h->first + h->n) % EVENTS_KEPT];
        entry->position = event->position;
        (void)snprintf(entry->box_id, sizeof(entry->box_id), "%s", event->box_id);
        memcpy(entry->owner, owner, sizeof(entry->owner));
        entry->len = text.len;
        entry->text = has_text ? buf_take(&text) : NULL;
        if (entry->text) {
            h->n++;
            h->bytes += entry->len;
        } else {
            drop_all(h);
        }
    }
    return 0;
}

/* request_wake() must not be called with the lock held. */
static void wake_followers(struct stream_hub *h)
{
    struct request **list = NULL;
    size_t n = 0;

    WITH_LOCK (&h->lock) {
        for (const struct follower *f = h->followers; f; f = f->next)
            n++;
        list = n ? calloc(n, sizeof(struct request *)) : NULL;
        n = 0;
        for (const struct follower *f = h->followers; list && f; f = f->next)
            list[n++] = request_ref(f->request);
    }
    for (size_t i = 0; i < n; i++) {
        request_wake(list[i]);
        request_unref(list[i]);
    }
    free(list);
}

static int64_t newest_position(struct stream_hub *h)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&h->lock);

    return h->position;
}

static int read_new(struct stream_hub *h, struct err *e)
{
    int64_t before = newest_position(h);
    struct bh_event_options o = {.size = sizeof(o), .since = before};
    struct bh_error error = {0};
    struct bh_ctx *ctx;
    int r = contexts_take(h->daemon->contexts, "daemon", &ctx, e);

    if (r < 0)
        return r;
    h->reader_ctx = ctx;
    r = contexts_error(e, bh_list_events(ctx, &o, keep_event, h, &error), &error);
    contexts_give(h->daemon->contexts, ctx);
    if (newest_position(h) != before) {
        wake_followers(h);
        webhooks_look(h->daemon->webhooks);
    }
    return r;
}

/* A store that cannot be read now is tried again with the next change, or after LOOK_MS. */
static void run_reader(void *arg)
{
    struct stream_hub *h = arg;
    bool again = true;

    while (again) {
        WITH_LOCK (&h->lock) {
            h->must_read = false;
        }
        (void)read_new(h, NULL);
        (void)access_read(h->daemon->access, NULL); /* a token may have come or gone too */
        WITH_LOCK (&h->lock) {
            again = h->must_read;
            h->is_reading = again;
        }
    }
}

static void look_at_store(struct stream_hub *h)
{
    bool must_start;

    WITH_LOCK (&h->lock) {
        must_start = !h->is_reading && !h->is_over;
        h->must_read = true;
        h->is_reading = h->is_reading || must_start;
    }
    if (must_start && pool_run(h->daemon->pool, run_reader, h, NULL) < 0)
        WITH_LOCK (&h->lock) {
            h->is_reading = false;
        }
}

static void on_store_change(struct loop *l, uint32_t events, void *arg)
{
    struct stream_hub *h = arg;
    char buffer[4096];

    (void)l;
    (void)events;
    WITH_LOCK (&h->lock) {
        h->must_read = true; /* hub_has_news(): before the kernel forgets it */
    }
    while (read(h->inotify_fd, buffer, sizeof(buffer)) > 0)
        ;
    look_at_store(h);
}

bool hub_has_news(struct stream_hub *h)
{
    int n = 0;
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&h->lock);

    return h->must_read || h->is_reading || (ioctl(h->inotify_fd, FIONREAD, &n) == 0 && n > 0);
}

/* ---- helpers: all clients may come at once, after a restart, and more than the pool takes ---- */

static struct follower *next_waiting(struct stream_hub *h)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&h->lock);
    struct follower *f = h->waiting;

    if (!f) {
        h->n_helpers--;
        return NULL;
    }
    h->waiting = f->next_waiting;
    if (!h->waiting)
        h->waiting_end = &h->waiting;
    return f;
}

static void run_helper(void *arg)
{
    struct follower *f;

    while ((f = next_waiting(arg))) {
        struct request *q = f->request;

        f->work(q);
        request_unref(q);
    }
}

/* With the lock, after no helper could be started. False: another one has it, or will. */
static bool take_back(struct stream_hub *h, struct follower *f)
{
    struct follower **at = &h->waiting;

    if (--h->n_helpers > 0)
        return false;
    while (*at && *at != f)
        at = &(*at)->next_waiting;
    if (!*at)
        return false;
    *at = f->next_waiting;
    if (!*at)
        h->waiting_end = at;
    return true;
}

/* Runs work(f->request) on a thread of the pool. */
static int ask_helper(struct follower *f, void (*work)(struct request *q), struct err *e)
{
    struct stream_hub *h = f->hub;
    bool must_start, is_back = false;
    int r;

    f->work = work;
    f->next_waiting = NULL;
    (void)request_ref(f->request);
    WITH_LOCK (&h->lock) {
        *h->waiting_end = f;
        h->waiting_end = &f->next_waiting;
        must_start = h->n_helpers < HELPERS_MAX;
        h->n_helpers += must_start;
    }
    r = must_start ? pool_run(h->daemon->pool, run_helper, h, e) : 0;
    if (r == 0)
        return 0;
    WITH_LOCK (&h->lock) {
        is_back = take_back(h, f);
    }
    if (!is_back)
        return 0;
    request_unref(f->request);
    return r;
}

/* ---- the states that a client gets first ---- */

/* 1: enough for now. */
static int add_state(void *arg, struct bh_box *box)
{
    _cleanup_buf_ struct buf text = {.max = TEXT_MAX};
    struct follower *f = arg;

    (void)snprintf(f->after, sizeof(f->after), "%s", box->row.name);
    if (*f->owner && strcmp(f->owner, quota_owner(&box->spec)) != 0)
        return 0;
    attention_check(f->hub->attention, box);
    if (f->has_position)
        return 0;
    if (box_write_json(box, false, &text, NULL) < 0 || buf_add(&text, "", 1, NULL) < 0 ||
        add_event(&f->out, f->position, "box", text.data, NULL) < 0)
        return -1;
    return f->out.len >= STATES_BYTES;
}

/* Of the boxes behind f->after. */
static int read_states(struct follower *f, struct bh_ctx *ctx, struct err *e)
{
    const struct store_filter rest = {.after = f->after};
    struct bh_error error = {0};
    int r = contexts_error(e, box_list(ctx, &rest, add_state, f, &error), &error);

    f->has_states = r > 0;
    return r < 0 ? r : 0;
}

/* On a worker, after run_start(). */
static void run_states(struct request *q)
{
    struct follower *f = q->state;
    struct contexts *contexts = f->hub->daemon->contexts;
    struct bh_ctx *ctx = NULL;
    int r = contexts_take(contexts, "daemon", &ctx, &f->start.error);

    if (r == 0) {
        ctx->trusts_store = true; /* attention_check() asks the provider */
        r = read_states(f, ctx, &f->start.error);
    }
    contexts_give(contexts, ctx);
    f->r = r;
    f->has_read = true;
    request_wake(q);
}

/* ---- one client ---- */

struct older {
    struct follower *f;
    struct store *store;
    int64_t position;
    unsigned n;
    struct err *e;
};

static bool is_owners_event(const struct older *o, const char *box_id)
{
    char owner[ACCESS_NAME_BYTES] = "";

    return !*o->f->owner ||
           (store_owner_of(o->store, box_id, owner, NULL) == 0 && strcmp(owner, o->f->owner) == 0);
}

static int add_older(void *arg, const struct bh_event *event)
{
    struct older *o = arg;

    o->position = event->position;
    if (o->f->box_id[0] && strcmp(o->f->box_id, event->box_id) != 0)
        return 0;
    if (!is_owners_event(o, event->box_id))
        return 0;
    if (add_event(&o->f->out, event->position, event->kind, event->json, o->e) < 0)
        return -1;
    return ++o->n == BATCH_EVENTS;
}

/* On a worker: the next events after the follower's position from the store, into its out. */
static void run_older(struct request *q)
{
    struct follower *f = q->state;
    struct older o = {.f = f, .position = f->position, .e = &f->start.error};
    struct bh_event_options options = {.size = sizeof(options), .since = f->position};
    struct contexts *contexts = f->hub->daemon->contexts;
    int64_t newest = newest_position(f->hub);
    struct bh_error error = {0};
    struct bh_ctx *ctx = NULL;
    int r = contexts_take(contexts, "daemon", &ctx, &f->start.error);

    o.store = r == 0 ? ctx->store : NULL;
    if (r == 0)
        r = contexts_error(&f->start.error, bh_list_events(ctx, &options, add_older, &o, &error),
                           &error);
    contexts_give(contexts, ctx);
    /* Events of records that were forgotten are not there any more. */
    f->position = r == 0 && o.position < newest ? newest : o.position;
    f->r = r < 0 ? r : 0;
    f->has_read = true;
    request_wake(q);
}

/* With the lock: the events in memory that are newer than the follower's. False: some are in the store only. */
static bool take_kept(struct follower *f)
{
    struct stream_hub *h = f->hub;

    if (f->position >= h->position)
        return true;
    if (!h->n || f->position < h->kept[h->first].position - 1)
        return false;
    for (size_t i = 0; i < h->n && f->out.len < BLOCK_BYTES; i++) {
        const struct entry *entry = &h->kept[(h->first + i) % EVENTS_KEPT];

        if (entry->position <= f->position)
            continue;
        if ((!f->box_id[0] || strcmp(f->box_id, entry->box_id) == 0) &&
            (!*f->owner || strcmp(f->owner, entry->owner) == 0) &&
            buf_add(&f->out, entry->text, entry->len, NULL) < 0)
            return true;
        f->position = entry->position;
    }
    return true;
}

/* Fills out with what is new. REQUEST_PARKED: a worker reads. */
static int take_new(struct follower *f, struct err *e)
{
    bool is_kept;
    int r;

    if (f->is_reading) {
        if (!f->has_read)
            return REQUEST_PARKED;
        f->is_reading = false;
        *e = f->start.error;
        if (f->r < 0 || f->out.len)
            return f->r;
    } /* nothing for this client: what came meanwhile has woken nobody */
    WITH_LOCK (&f->hub->lock) {
        f->is_over = f->hub->is_over;
        is_kept = !f->has_states && take_kept(f);
    }
    if (is_kept || f->is_over)
        return 0;
    f->has_read = false;
    r = ask_helper(f, f->has_states ? run_states : run_older, e);
    f->is_reading = r == 0;
    return r < 0 ? r : REQUEST_PARKED;
}

/* The token has ended: the stream says so, and ends. */
static void add_end(struct follower *f, const struct err *why)
{
    json_t *v = jx_new_error(why);
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;

    if (text)
        (void)buf_addf(&f->out, NULL, "event: error\ndata: %s\n\n", text);
    free(text);
    json_decref(v);
    f->is_over = true;
}

static ssize_t read_events(void *arg, uint64_t pos, char *data, size_t max)
{
    struct follower *f = arg;
    struct request *q = f->request;

    (void)pos;
    for (;;) {
        struct err e = {0};
        int r = 0;

        if (request_is_gone(q))
            return request_break_off(q, data);
        if (!f->is_reading && f->sent < f->out.len) {
            size_t n = f->out.len - f->sent < max ? f->out.len - f->sent : max;

            request_set_silent(q, false);
            memcpy(data, f->out.data + f->sent, n);
            f->sent += n;
            q->bytes_out += n;
            if (f->sent == f->out.len) { /* many clients are idle: none holds a buffer */
                buf_done(&f->out);
                buf_init(&f->out, TEXT_MAX);
                f->sent = 0;
            }
            return (ssize_t)n;
        }
        if (f->is_over)
            return REPLY_END;
        if (!f->is_reading && access_has_ended(q, &e)) {
            add_end(f, &e);
            continue;
        }
        request_set_silent(q, true);
        r = take_new(f, &e);
        if (r < 0)
            return request_break_off(q, data);
        if (r == 0 && !f->out.len && request_take_keepalive(q))
            (void)buf_adds(&f->out, ":\n\n", NULL);
        if (r == 0 && (f->out.len || f->is_over))
            continue;
        if (request_park(q))
            return 0;
    }
}

/* ---- a look now and then ---- */

static void on_look(struct loop *l, void *arg)
{
    struct stream_hub *h = arg;

    look_at_store(h);
    attention_tick(h->attention);
    (void)loop_timer_add(l, clock_mono_ms() + attention_tick_ms(h->attention, LOOK_MS), on_look, h,
                         &h->timer, NULL);
}

/* ---- the start of a stream ---- */

/* The box of another owner is not there. */
static int check_follower(const struct follower *f, struct bh_ctx *ctx, struct err *e)
{
    char owner[ACCESS_NAME_BYTES] = "";
    int r = *f->owner ? store_owner_of(ctx->store, f->box_id, owner, e) : 0;

    return r < 0 || strcmp(f->owner, owner) == 0
               ? r
               : err_field(e, ERR_NOT_FOUND, "name", "there is no box '%.64s'", f->box);
}

/* One that is destroyed has events, as long as its record is there, and no state. */
static int find_followed(struct follower *f, struct bh_ctx *ctx, struct err *e)
{
    struct bh_box *box = NULL;
    struct bh_error error = {0};
    int r;

    if (!f->box)
        return read_states(f, ctx, e);
    r = bh_get_by_id(ctx, f->box, &box, &error);
    if (r < 0 && !bh_error_gone(&error, NULL)) {
        error = (struct bh_error){0};
        r = bh_get(ctx, f->box, &box, &error);
    }
    if (r == 0) {
        (void)snprintf(f->box_id, sizeof(f->box_id), "%s", bh_box_summary(box)->id);
        r = check_follower(f, ctx, e);
        if (r == 0)
            r = add_state(f, box) < 0 ? err_oom(e) : 0;
        (void)bh_box_free(box);
        return r;
    }
    struct bh_gone gone = {.size = sizeof(gone)};

    if (!bh_error_gone(&error, &gone))
        return contexts_error(e, r, &error);
    (void)snprintf(f->box_id, sizeof(f->box_id), "%s", gone.id);
    return check_follower(f, ctx, e);
}

/* On a worker. The position is taken first: an event that comes meanwhile is sent, also if the states know it. */
static void run_start(struct request *q)
{
    struct follower *f = q->state;
    struct err *e = &f->start.error;
    struct bh_ctx *ctx = NULL;
    int r;

    /* A position that no event has yet is of another store. */
    f->has_position = f->has_position && f->position <= newest_position(f->hub);
    if (!f->has_position)
        f->position = newest_position(f->hub);
    r = contexts_take(f->hub->daemon->contexts, "daemon", &ctx, e);
    if (r == 0) {
        ctx->trusts_store = true; /* attention_check() asks the provider */
        r = find_followed(f, ctx, e);
    }
    contexts_give(f->hub->daemon->contexts, ctx);
    f->start.r = r;
    request_answer(q, &f->start);
}

static void free_follower(void *state)
{
    struct follower *f = state;

    buf_done(&f->out);
    free(f->box);
    free(f);
}

static int read_position(struct request *q, struct follower *f, struct err *e)
{
    _cleanup_free_ char *since = NULL;
    const char *last = request_header(q, "Last-Event-ID");
    int r = request_query(q, "since", &since, e);

    if (r < 0)
        return r;
    if (!last && !since)
        return 0;
    f->has_position = true;
    r = str_parse_i64(last ? last : since, 0, INT64_MAX, &f->position, e);
    return r < 0 ? err_at(e, r, last ? "Last-Event-ID" : "since") : 0;
}

static int events_begin(struct request *q, struct err *e)
{
    struct follower *f = calloc(1, sizeof(*f));
    char *params[ROUTE_MAX_PARAMS] = {NULL};
    int r;

    if (!f)
        return err_oom(e);
    f->request = q;
    f->keeps = true;
    f->hub = request_daemon(q)->hub;
    f->owner = access_principal(q)->owner;
    buf_init(&f->out, TEXT_MAX);
    q->state = f;
    q->free_state = free_follower;
    r = routes_params(request_row(q), q->target, params, e);
    f->box = params[0];
    if (r == 0)
        r = request_query_bool(q, "keep", &f->keeps, e); /* a mere viewer says false */
    if (r == 0)
        r = read_position(q, f, e);
    return r < 0 ? r : access_watch(q, e);
}

static void unref_request(void *arg)
{
    request_unref(((struct follower *)arg)->request);
}

static int events_finish(struct request *q, struct err *e)
{
    struct follower *f = q->state;
    struct stream_hub *h = f->hub;
    struct reply *reply;
    int r = f->start.is_asked ? 0 : ask_helper(f, run_start, e);

    if (r < 0)
        return r;
    f->start.is_asked = true;
    r = request_ask(q, &f->start, run_start, e);
    if (r != 0)
        return r == REQUEST_PARKED ? 0 : r;
    reply = reply_new_stream(REPLY_SIZE_UNKNOWN, BLOCK_BYTES, read_events, f, unref_request);
    if (!reply)
        return err_oom(e);
    (void)request_ref(q); /* the reply's */
    WITH_LOCK (&h->lock) {
        f->next = h->followers;
        f->link = &h->followers;
        if (f->next)
            f->next->link = &f->next;
        h->followers = f;
    }
    metrics_count_followers(h->daemon->metrics, 1);
    if (f->keeps)
        attention_follow(h->attention, f->box_id);
    reply_add_header(reply, "Content-Type", TYPE_SSE);
    reply_add_header(reply, "X-Accel-Buffering", "no");
    request_limit_unsent(q);
    return respond_queue(q, HTTP_OK, reply, e);
}

static void events_done(struct request *q)
{
    struct follower *f = q->state;
    bool was_listed = false;

    if (!f)
        return;
    WITH_LOCK (&f->hub->lock) {
        was_listed = f->link != NULL;
        if (was_listed)
            *f->link = f->next;
        if (was_listed && f->next)
            f->next->link = f->link;
        f->link = NULL;
    }
    if (!was_listed)
        return;
    metrics_count_followers(f->hub->daemon->metrics, -1);
    if (f->keeps)
        attention_unfollow(f->hub->attention, f->box_id);
}

const struct request_ops events_ops = {
    .begin = events_begin, .finish = events_finish, .done = events_done, .revoke = request_wake};

/* ---- the hub ---- */

/* The events that there are already are in the store; those from now on are kept. */
static int skip_event(void *arg, const struct bh_event *event)
{
    ((struct stream_hub *)arg)->position = event->position;
    return 0;
}

static int find_position(struct stream_hub *h, struct err *e)
{
    struct bh_event_options o = {.size = sizeof(o)};
    struct bh_error error = {0};
    struct bh_ctx *ctx;
    int r = contexts_take(h->daemon->contexts, "daemon", &ctx, e);

    if (r < 0)
        return r;
    r = contexts_error(e, bh_list_events(ctx, &o, skip_event, h, &error), &error);
    contexts_give(h->daemon->contexts, ctx);
    return r;
}

int hub_new(struct daemon *d, int64_t keep_ms, struct stream_hub **ret, struct err *e)
{
    struct stream_hub *h = calloc(1, sizeof(*h));
    int r;

    if (!h)
        return err_oom(e);
    h->daemon = d;
    h->waiting_end = &h->waiting;
    (void)pthread_mutex_init(&h->lock, NULL);
    h->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    *ret = h;
    r = find_position(h, e); /* makes the directory, if it is new */
    if (r == 0)
        r = attention_new(d, keep_ms, &h->attention, e);
    if (r < 0)
        return r;
    if (h->inotify_fd >= 0 &&
        inotify_add_watch(h->inotify_fd, d->options.state_dir, IN_MODIFY | IN_CREATE) >= 0)
        r = loop_watch_add(d->loop, h->inotify_fd, EPOLLIN, on_store_change, h, &h->watch, e);
    else
        r = err_sys(e, errno, "watch '%s'", d->options.state_dir);
    if (r == 0)
        r = loop_timer_add(d->loop, clock_mono_ms() + attention_tick_ms(h->attention, LOOK_MS),
                           on_look, h, &h->timer, e);
    return r;
}

void hub_quiesce(struct stream_hub *h)
{
    if (!h)
        return;
    WITH_LOCK (&h->lock) {
        h->is_over = true;
    }
    attention_quiesce(h->attention);
    wake_followers(h);
}

struct stream_hub *hub_free(struct stream_hub *h)
{
    if (!h)
        return NULL;
    h->timer = loop_timer_del(h->timer);
    if (h->watch)
        h->watch = loop_watch_del(h->watch);
    fd_close(h->inotify_fd);
    drop_all(h);
    (void)attention_free(h->attention);
    (void)pthread_mutex_destroy(&h->lock);
    free(h);
    return NULL;
}
