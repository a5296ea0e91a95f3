/*
 * A day of two hundred boxes by a virtual clock: they are used, idle, paused, resumed, stopped and removed by janitors,
 * while clients follow the daemon's events and a webhook posts them. The daemon's own events.c, attention.c and
 * webhooks.c on a real store; HTTP, the loop and the monitors are scripted here.
 */
#include "test.h"

#include <poll.h>
#include <pthread.h>
#include <sqlite3.h>
#include <sys/ioctl.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "daemon/access.h"
#include "daemon/agents.h"
#include "daemon/attention.h"
#include "daemon/contexts.h"
#include "daemon/daemon.h"
#include "daemon/events.h"
#include "daemon/metrics.h"
#include "daemon/service.h"
#include "daemon/webhooks.h"
#include "event/loop.h"
#include "http/respond.h"
#include "lib/box/box.h"
#include "lib/box/bringup.h"
#include "lib/box/lease.h"
#include "lib/util/context.h"
#include "lib/util/transport.h"
#include "store_help.h"

#define MIN_MS (60 * 1000LL)
#define HOUR_MS (60 * MIN_MS)
#define DAY_MS (24 * HOUR_MS)
#define NEVER_MS INT64_MAX
#define START_MS (1800000000LL * 1000) /* of the wall clock */

#define N_BOXES 200
#define N_FOLLOWERS 4
#define TIMER_LATE_MS 25000 /* the daemon's machine is busy */
#define IDS_MAX 32768
#define VISITS_MAX 1000
#define BOXES_MAX 2000

/* ---- the clocks ---- */

static _Atomic int64_t now_ms = 5 * DAY_MS;
static int64_t first_ms;

int64_t __wrap_clock_mono_ms(void);
int64_t __wrap_clock_mono_ms(void)
{
    return now_ms;
}

int64_t __wrap_clock_real_ms(void);
int64_t __wrap_clock_real_ms(void)
{
    return START_MS + now_ms;
}

/* The same day each time. */
static int64_t between(int64_t least, int64_t most)
{
    static uint64_t seed = 1;

    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return least + (int64_t)((seed >> 33) % (uint64_t)(most - least + 1));
}

/* The test is about what is stored, not about power failures. */
int __real_sqlite3_open_v2(const char *path, sqlite3 **ret, int flags, const char *vfs);
int __wrap_sqlite3_open_v2(const char *path, sqlite3 **ret, int flags, const char *vfs);
int __wrap_sqlite3_open_v2(const char *path, sqlite3 **ret, int flags, const char *vfs)
{
    int r = __real_sqlite3_open_v2(path, ret, flags, vfs);

    if (r == SQLITE_OK)
        (void)sqlite3_exec(*ret, "PRAGMA synchronous=OFF", NULL, NULL, NULL);
    if (r == SQLITE_OK) /* less work for the sanitizer's malloc */
        (void)sqlite3_db_config(*ret, SQLITE_DBCONFIG_LOOKASIDE, NULL, 1024, 400);
    return r;
}

/* ---- the boxes, as their monitors see them ---- */

struct model {
    char id[BOX_ID_BYTES];
    enum bh_state state;
    struct lease lease;
    int64_t use_ms;    /* the next use begins */
    int64_t used_till; /* the present or last one ends */
    unsigned n_keepers;
    int64_t
        kept_ms; /* its lease was extended because clients follow it; 0: not by the present ones */
    int64_t checked_ms; /* its provider was asked; 0: never */
};

struct change {
    char box_id[BOX_ID_BYTES];
    enum bh_state after;
};

static struct model boxes[N_BOXES];
static struct change changes[IDS_MAX]; /* all that was made, in order */
static size_t n_changes, n_paused, n_resumed, n_expired, n_made, n_removed, n_kept, n_checks;
static struct bh_ctx *monitors;

static struct model *model_of(const char *id)
{
    for (size_t i = 0; i < N_BOXES; i++)
        if (strcmp(boxes[i].id, id) == 0)
            return &boxes[i];
    t_fail(__FILE__, __LINE__, "no box %s", id);
}

static void change_state(struct model *b, enum bh_state to)
{
    T_OK(n_changes < IDS_MAX);
    walk(monitors->store, b->id, to);
    memcpy(changes[n_changes].box_id, b->id, BOX_ID_BYTES);
    changes[n_changes++].after = b->state = to;
}

static void start_model(struct model *b)
{
    change_state(b, BH_STATE_PROVISIONING);
    change_state(b, BH_STATE_BOOTSTRAPPING);
    change_state(b, BH_STATE_RUNNING);
}

static void begin_lease(struct model *b, int64_t idle_ms)
{
    lease_init(&b->lease, now_ms, SPEC_TTL_MS, now_ms + SPEC_TTL_MS);
    lease_set_idle(&b->lease, idle_ms, now_ms);
}

static void make_model(struct model *b)
{
    static const char spec[] =
        "{\"provider\":\"process\",\"image\":\"\",\"image_dir\":\"\",\"runtime\":\"\",\"agent\":"
        "\"none\",\"dest\":\"/workspace\",\"network\":\"host\",\"privilege\":\"sudo\","
        "\"on_timeout\":\"stop\",\"timeout_ms\":600000,\"cpu_millis\":0,\"memory_bytes\":0,"
        "\"disk_bytes\":0,\"pids\":4096,\"agent_port\":0,\"asked\":0,\"env\":[],\"labels\":[],"
        "\"allow_missing\":[]}";
    json_t *v = json_loads(spec, 0, NULL);
    struct box_row row = {0};
    struct err e = {0};
    char name[32];

    (void)snprintf(name, sizeof(name), "box-%zu", ++n_made);
    if (store_add(monitors->store, name, v, NULL, &row, &e) < 0)
        t_fail(__FILE__, __LINE__, "add: %s", e.message);
    *b = (struct model){.use_ms = now_ms + between(1, 240) * MIN_MS};
    memcpy(b->id, row.id, BOX_ID_BYTES);
    memcpy(changes[n_changes].box_id, row.id, BOX_ID_BYTES);
    changes[n_changes++].after = BH_STATE_REQUESTED;
    box_row_done(&row);
    json_decref(v);
    start_model(b);
    begin_lease(b, SPEC_IDLE_MS);
}

/* Somebody uses the box for a while, and comes back; or does not, so that it ends. */
static void begin_use(struct model *b)
{
    if (b->state == BH_STATE_PAUSED) {
        change_state(b, BH_STATE_RESUMING);
        change_state(b, BH_STATE_RUNNING);
        begin_lease(b, SPEC_IDLE_MS);
        n_resumed++;
    } else if (b->state == BH_STATE_STOPPED) {
        start_model(b);
        begin_lease(b, SPEC_IDLE_MS);
    }
    b->used_till = now_ms + between(30, 300) * MIN_MS;
    b->use_ms = NEVER_MS;
    if (between(0, 7)) /* it is idle, paused after 10 minutes, and stopped after 10 more */
        b->use_ms = b->used_till + (between(0, 2) ? between(5, 18) : between(30, 480)) * MIN_MS;
    lease_attach(&b->lease, now_ms);
    lease_set_used(&b->lease, now_ms);
}

static int64_t next_of_model(const struct model *b)
{
    int64_t next = b->state == BH_STATE_RUNNING  ? lease_next_ms(&b->lease)
                   : b->state == BH_STATE_PAUSED ? lease_end_ms(&b->lease)
                                                 : NEVER_MS;

    return b->use_ms < next ? b->use_ms : next;
}

static void end_model(struct model *b)
{
    change_state(b, BH_STATE_STOPPING);
    change_state(b, BH_STATE_STOPPED);
    n_expired++;
}

static void run_model(struct model *b)
{
    bool is_used = now_ms < b->used_till;

    if (b->use_ms <= now_ms)
        begin_use(b);
    if (b->state == BH_STATE_STOPPED)
        return;
    if (b->state == BH_STATE_PAUSED) {
        if (lease_is_over(&b->lease, now_ms))
            end_model(b);
        return;
    }
    lease_set_used(&b->lease, is_used ? now_ms : b->used_till < now_ms ? b->used_till : now_ms);
    (void)lease_look(&b->lease, now_ms, is_used ? LEASE_ATTACHED : LEASE_UNUSED);
    if (lease_is_idle(&b->lease, now_ms)) {
        T_OK(!is_used && (!b->n_keepers || !b->kept_ms));
        change_state(b, BH_STATE_PAUSING);
        change_state(b, BH_STATE_PAUSED);
        begin_lease(b, 0);
        n_paused++;
    } else if (lease_is_over(&b->lease, now_ms)) {
        T_OK(!is_used);
        end_model(b);
    }
}

/* ---- the daemon's calls on boxes ---- */

/* The lease of a box with clients: at once, then every two minutes, and not without clients. */
int __wrap_bh_extend(struct bh_box *box, int64_t for_ms, int64_t *ret_deadline_ms,
                     struct bh_error *err);
int __wrap_bh_extend(struct bh_box *box, int64_t for_ms, int64_t *ret_deadline_ms,
                     struct bh_error *err)
{
    struct model *b = model_of(box->row.id);

    (void)ret_deadline_ms;
    (void)err;
    T_INT(b->state, BH_STATE_RUNNING);
    T_OK(b->n_keepers > 0);
    T_OK(!b->kept_ms || now_ms - b->kept_ms >= ATTENTION_KEEP_MS);
    (void)lease_extend(&b->lease, now_ms + for_ms);
    lease_stay_awake(&b->lease, now_ms + for_ms);
    b->kept_ms = now_ms;
    n_kept++;
    return 0;
}

void __wrap_bringup_notice(struct bh_box *box);
void __wrap_bringup_notice(struct bh_box *box)
{
    struct model *b;

    if (!box_row_is_live(&box->row) || box->ctx->trusts_store)
        return;
    b = model_of(box->row.id);
    T_OK(!b->checked_ms || now_ms - b->checked_ms >= ATTENTION_CHECK_MS);
    b->checked_ms = now_ms;
    n_checks++;
}

/* The janitors ask the monitors of boxes that should run. */
int __wrap_control_ping(struct bh_ctx *ctx, const char *box_id, struct err *e);
int __wrap_control_ping(struct bh_ctx *ctx, const char *box_id, struct err *e)
{
    (void)ctx;
    (void)e;
    T_OK(model_of(box_id)->state == BH_STATE_RUNNING || model_of(box_id)->state == BH_STATE_PAUSED);
    return 0;
}

/* ---- the loop, the pool and HTTP ---- */

static struct daemon the_daemon;
static loop_fd_fn on_inotify;
static int inotify_fd;
static loop_fn on_timer;
static int64_t timer_ms = NEVER_MS;

int pool_run(struct pool *p, void (*fn)(void *arg), void *arg, struct err *e)
{
    (void)p;
    (void)e;
    fn(arg);
    return 0;
}

int loop_watch_add(struct loop *l, int fd, uint32_t events, loop_fd_fn fn, void *arg,
                   struct loop_watch **ret, struct err *e)
{
    (void)l;
    (void)events;
    (void)arg;
    (void)e;
    on_inotify = fn;
    inotify_fd = fd;
    *ret = NULL;
    return 0;
}

struct loop_watch *loop_watch_del(struct loop_watch *w)
{
    (void)w;
    return NULL;
}

int loop_timer_add(struct loop *l, int64_t at_mono_ms, loop_fn fn, void *arg,
                   struct loop_timer **ret, struct err *e)
{
    (void)l;
    (void)arg;
    (void)e;
    on_timer = fn;
    timer_ms = at_mono_ms;
    *ret = NULL;
    return 0;
}

struct loop_timer *loop_timer_del(struct loop_timer *t)
{
    (void)t;
    return NULL;
}

/* A client of /v1/events, or of a box's. */
struct client {
    struct request q;  /* first member */
    struct model *box; /* or NULL: all boxes */
    char box_id[BOX_ID_BYTES];
    bool keeps;
    bool is_open, is_woken;
    char last_id[24]; /* of the event that it got last; "": none */
    int64_t since;    /* the position of its first start */
    int64_t until_ms;
    ssize_t (*read)(void *arg, uint64_t pos, char *data, size_t max);
    void *read_arg;
    struct buf text;
    int64_t ids[IDS_MAX];
    size_t n_ids, n_states;
};

static struct client *client_of(const struct request *q)
{
    return (struct client *)q;
}

struct daemon *request_daemon(const struct request *q)
{
    (void)q;
    return &the_daemon;
}

const struct api_route *request_row(const struct request *q)
{
    (void)q;
    return NULL;
}

int routes_params(const struct api_route *row, const char *target, char *ret[ROUTE_MAX_PARAMS],
                  struct err *e)
{
    (void)row;
    (void)e;
    ret[0] = target ? strdup(target) : NULL;
    return 0;
}

const struct principal *access_principal(const struct request *q)
{
    static const struct principal all = {.is_local = true};

    (void)q;
    return &all;
}

int access_read(struct access *a, struct err *e)
{
    (void)a;
    (void)e;
    return 0;
}

int access_watch(struct request *q, struct err *e)
{
    (void)q;
    (void)e;
    return 0;
}

bool access_has_ended(const struct request *q, struct err *e)
{
    (void)q;
    (void)e;
    return false;
}

const char *request_header(struct request *q, const char *name)
{
    const char *last = client_of(q)->last_id;

    T_STR(name, "Last-Event-ID");
    return *last ? last : NULL;
}

int request_query(struct request *q, const char *name, char **ret, struct err *e)
{
    (void)q;
    (void)name;
    (void)e;
    *ret = NULL;
    return 0;
}

int request_query_bool(struct request *q, const char *name, bool *ret, struct err *e)
{
    (void)e;
    T_STR(name, "keep");
    *ret = client_of(q)->keeps;
    return 0;
}

struct request *request_ref(struct request *q)
{
    return q;
}

struct request *request_unref(struct request *q)
{
    (void)q;
    return NULL;
}

void request_wake(struct request *q)
{
    client_of(q)->is_woken = true;
}

bool request_park(struct request *q)
{
    bool is_woken = client_of(q)->is_woken;

    client_of(q)->is_woken = false;
    return !is_woken;
}

bool request_is_gone(struct request *q)
{
    (void)q;
    return false;
}

ssize_t request_break_off(struct request *q, char *data)
{
    (void)data;
    t_fail(__FILE__, __LINE__, "the stream of %s broke off", q->target ? q->target : "all");
}

void request_set_silent(struct request *q, bool on)
{
    (void)q;
    (void)on;
}

bool request_take_keepalive(struct request *q)
{
    (void)q;
    return false;
}

void request_limit_unsent(const struct request *q)
{
    (void)q;
}

int request_ask(struct request *q, struct ask *a, void (*fn)(struct request *q), struct err *e)
{
    (void)q;
    (void)fn;
    *e = a->error;
    return a->is_done ? a->r : REQUEST_PARKED;
}

void request_answer(struct request *q, struct ask *a)
{
    (void)q;
    a->is_done = true;
}

struct reply *reply_new_stream(uint64_t size, size_t block,
                               ssize_t (*read)(void *arg, uint64_t pos, char *data, size_t max),
                               void *arg, void (*unref)(void *arg))
{
    struct client *c = client_of(*(struct request **)arg); /* the follower's first member */

    (void)size;
    (void)block;
    (void)unref;
    c->read = read;
    c->read_arg = arg;
    return (struct reply *)c;
}

void reply_add_header(struct reply *reply, const char *name, const char *value)
{
    (void)reply;
    (void)name;
    (void)value;
}

int respond_queue(struct request *q, int status, struct reply *reply, struct err *e)
{
    (void)e;
    T_INT(status, HTTP_OK);
    T_OK((void *)reply == (void *)q);
    return 0;
}

void agents_forget(struct agents *a, const char *box_id)
{
    (void)a;
    (void)box_id;
}

void metrics_count_event(struct metrics *m, const struct bh_event *event)
{
    (void)m;
    (void)event;
}

void metrics_count_followers(struct metrics *m, int n)
{
    (void)m;
    (void)n;
}

void metrics_count_webhook(struct metrics *m, bool is_taken)
{
    (void)m;
    (void)is_taken;
}

/* ---- clients ---- */

static void take_block(struct client *c, const char *block)
{
    if (strstr(block, "\nevent: box\n")) {
        c->n_states++;
        return;
    }
    T_OK(c->n_ids < IDS_MAX && strncmp(block, "id: ", 4) == 0);
    c->ids[c->n_ids] = atoll(block + 4); /* NOLINT(cert-err34-c) */
    (void)snprintf(c->last_id, sizeof(c->last_id), "%lld", (long long)c->ids[c->n_ids++]);
}

static void read_client(struct client *c)
{
    char data[4096], *at, *end;
    ssize_t n;

    while ((n = c->read(c->read_arg, 0, data, sizeof(data))) > 0)
        T_INT(buf_add(&c->text, data, (size_t)n, NULL), 0);
    T_INT(n, 0);
    T_INT(buf_reserve(&c->text, 1, NULL), 0);
    c->text.data[c->text.len] = '\0';
    for (at = c->text.data; (end = strstr(at, "\n\n")); at = end + 2) {
        *end = '\0';
        take_block(c, at);
    }
    buf_consume(&c->text, (size_t)(at - c->text.data));
}

static int64_t newest_stored(void)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    int64_t newest;

    T_INT(sqlite3_open("state/store.db", &db), SQLITE_OK);
    T_INT(sqlite3_prepare_v2(db, "SELECT MAX(position) FROM events", -1, &st, NULL), SQLITE_OK);
    T_INT(sqlite3_step(st), SQLITE_ROW);
    newest = sqlite3_column_int64(st, 0);
    (void)sqlite3_finalize(st);
    (void)sqlite3_close(db);
    return newest;
}

static void open_client(struct client *c, struct model *box)
{
    struct err e = {0};

    c->box = box;
    if (box)
        memcpy(c->box_id, box->id, BOX_ID_BYTES);
    c->q = (struct request){.target = box ? c->box_id : NULL};
    if (!c->n_ids)
        c->since = newest_stored();
    buf_init(&c->text, 16 << 20);
    if (box && c->keeps && !box->n_keepers++)
        box->kept_ms = 0; /* it is kept at once */
    T_INT(events_ops.begin(&c->q, &e), 0);
    T_INT(events_ops.finish(&c->q, &e), 0);
    c->is_open = true;
}

static void close_client(struct client *c)
{
    c->is_open = false;
    if (c->box && c->keeps)
        c->box->n_keepers--;
    events_ops.done(&c->q);
    c->q.free_state(c->q.state);
    buf_done(&c->text);
}

/* ---- the webhook ---- */

static pthread_mutex_t hook_lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by hook_lock: */
static int64_t hook_ids[IDS_MAX];
static size_t n_hook_ids, n_posts, n_refused;
static int longest_wait_ms;

int __wrap_http_new(int cancel_fd, struct http **ret, struct err *e);
int __wrap_http_new(int cancel_fd, struct http **ret, struct err *e)
{
    (void)cancel_fd;
    (void)e;
    *ret = NULL;
    return 0;
}

struct http *__wrap_http_free(struct http *h);
struct http *__wrap_http_free(struct http *h)
{
    (void)h;
    return NULL;
}

/* The receiver is away now and then, for a while. */
int __wrap_http_do(struct http *h, const struct http_request *req, struct http_response *res,
                   struct err *e);
int __wrap_http_do(struct http *h, const struct http_request *req, struct http_response *res,
                   struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&hook_lock);

    (void)h;
    (void)e;
    res->status = n_posts++ % 500 < 10 ? 503 : 204;
    if (res->status == 503)
        n_refused++;
    else
        hook_ids[n_hook_ids++] = atoll(strchr(req->headers[2], ':') + 1); /* NOLINT */
    return 0;
}

/* The pause before it tries again has no descriptor for new events: it takes no time. */
int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    bool is_retry = n == 2 && fds[1].fd == -1;

    if (is_retry)
        WITH_LOCK (&hook_lock) {
            longest_wait_ms = timeout_ms > longest_wait_ms ? timeout_ms : longest_wait_ms;
        }
    return __real_poll(fds, n, is_retry ? 0 : timeout_ms);
}

static int64_t newest_posted(void)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&hook_lock);

    return n_hook_ids ? hook_ids[n_hook_ids - 1] : 0;
}

/* ---- the janitors ---- */

static void count_line(void *arg, const char *line)
{
    *(size_t *)arg += strstr(line, ", removed") != NULL;
}

/* Two at once would do the same: each box is removed by one of them. */
static void run_janitors(struct bh_ctx *janitors[2])
{
    const struct bh_gc_options o = {.size = sizeof(o), .stopped_for_ms = 4 * HOUR_MS};
    size_t n = 0, n_gone = 0;
    struct bh_error err;

    for (int i = 0; i < 2; i++)
        T_INT(bh_gc_run(janitors[i], &o, count_line, &n, &err), 0);
    for (size_t i = 0; i < N_BOXES; i++) {
        struct box_row row = {0};

        if (store_get(monitors->store, boxes[i].id, &row, NULL) == 0) {
            box_row_done(&row);
            continue;
        }
        T_INT(boxes[i].state, BH_STATE_STOPPED);
        T_INT(boxes[i].n_keepers, 0);
        n_gone++;
        make_model(&boxes[i]);
    }
    T_INT(n, n_gone);
    n_removed += n;
}

/* ---- the day ---- */

static struct client all, slow, comes_and_goes, viewer, followers[N_FOLLOWERS];
static struct client *const clients[] = {&all,          &slow,         &comes_and_goes,
                                         &viewer,       &followers[0], &followers[1],
                                         &followers[2], &followers[3]};

struct stored {
    int64_t position, seq, time_ms;
    char box_id[BOX_ID_BYTES];
    enum bh_state before, after;
};
static struct stored events[IDS_MAX];
static size_t n_events;

static int note_event(void *arg, const struct bh_event *event)
{
    struct stored *s = &events[n_events++];

    (void)arg;
    T_OK(n_events < IDS_MAX);
    *s = (struct stored){event->position, event->seq,  event->time_ms, {0},
                         event->before,   event->after};
    memcpy(s->box_id, event->box_id, BOX_ID_BYTES);
    return 0;
}

/* The events that a client of one box got, from its start to its end. */
struct visit {
    char box_id[BOX_ID_BYTES];
    int64_t since, until, *ids;
    size_t n_ids;
};
static struct visit visits[VISITS_MAX];
static size_t n_visits;

static void note_visit(const struct client *c)
{
    struct visit *v = &visits[n_visits++];

    T_OK(n_visits < VISITS_MAX);
    *v = (struct visit){.since = c->since, .until = newest_stored(), .n_ids = c->n_ids};
    memcpy(v->box_id, c->box_id, BOX_ID_BYTES);
    v->ids = calloc(c->n_ids + 1, sizeof(*v->ids));
    T_OK(v->ids);
    memcpy(v->ids, c->ids, c->n_ids * sizeof(*v->ids));
}

/* They are the events of the box ("": of all) since then. */
static void check_visit(const struct visit *v)
{
    size_t n = 0;

    for (size_t i = 0; i < n_events; i++) {
        if (events[i].position <= v->since || events[i].position > v->until ||
            (*v->box_id && strcmp(v->box_id, events[i].box_id) != 0))
            continue;
        T_OK(n < v->n_ids);
        T_INT(v->ids[n], events[i].position);
        n++;
    }
    T_INT(v->n_ids, n);
}

static void read_stored(void)
{
    struct bh_event_options o = {.size = sizeof(o)};
    struct bh_error err;

    n_events = 0;
    T_INT(bh_list_events(monitors, &o, note_event, NULL, &err), 0);
}

/* One of a box ends, and another begins, with another box. */
static void change_follower(struct client *c)
{
    if (c->is_open) {
        read_client(c);
        close_client(c);
        note_visit(c);
    }
    c->n_ids = 0;
    c->last_id[0] = '\0';
    c->keeps = true;
    c->until_ms = now_ms + between(10, 60) * MIN_MS;
    do
        c->box = &boxes[between(1, N_BOXES - 1)]; /* the first one has a mere viewer */
    while (c->box->state == BH_STATE_STOPPED);
    open_client(c, c->box);
}

static void run_clients(void)
{
    for (size_t i = 0; i < N_FOLLOWERS; i++)
        if (followers[i].until_ms <= now_ms)
            change_follower(&followers[i]);
    if (slow.until_ms <= now_ms) {
        read_client(&slow);
        slow.until_ms = now_ms + 6 * HOUR_MS;
    }
    if (comes_and_goes.until_ms <= now_ms && comes_and_goes.is_open) {
        read_client(&comes_and_goes);
        close_client(&comes_and_goes);
        comes_and_goes.until_ms = now_ms + 20 * MIN_MS;
    } else if (comes_and_goes.until_ms <= now_ms) {
        open_client(&comes_and_goes, NULL);
        comes_and_goes.until_ms = now_ms + 3 * HOUR_MS;
    }
}

/* The work of the loop and of the connections' threads at this moment. */
static void run_daemon(void)
{
    int n = 0;

    if (timer_ms <= now_ms)
        on_timer(NULL, the_daemon.hub);
    if (ioctl(inotify_fd, FIONREAD, &n) == 0 && n > 0)
        on_inotify(NULL, 0, the_daemon.hub);
    for (size_t i = 0; i < N_ELEMENTS(clients); i++)
        if (clients[i]->is_open && clients[i] != &slow && clients[i]->is_woken)
            read_client(clients[i]);
}

static int64_t next_moment(int64_t janitor_ms)
{
    int64_t next = timer_ms + TIMER_LATE_MS < janitor_ms ? timer_ms + TIMER_LATE_MS : janitor_ms;

    for (size_t i = 0; i < N_BOXES; i++)
        if (next_of_model(&boxes[i]) < next)
            next = next_of_model(&boxes[i]);
    for (size_t i = 0; i < N_ELEMENTS(clients); i++)
        if (clients[i]->until_ms < next)
            next = clients[i]->until_ms;
    return next > now_ms ? next : now_ms + 1;
}

static void start_daemon(void)
{
    static char url[] = "http://hook.example/";
    static char *const urls[] = {url, NULL};
    struct err e = {0};

    the_daemon.options = (struct bh_options){
        .size = sizeof(struct bh_options), .state_dir = "state", .cache_dir = "cache"};
    T_INT(contexts_new(&the_daemon.options, &the_daemon.contexts, &e), 0);
    T_INT(hub_new(&the_daemon, 0, &the_daemon.hub, &e), 0);
    T_INT(webhooks_new(&the_daemon, urls, NULL, &the_daemon.webhooks, &e), 0);
}

static struct bh_ctx *open_ctx(void)
{
    struct bh_options o = {.size = sizeof(o), .state_dir = "state", .cache_dir = "cache"};
    struct bh_ctx *ctx = NULL;
    struct bh_error err;

    if (bh_open(&o, &ctx, &err) < 0)
        t_fail(__FILE__, __LINE__, "open: %s", err.message);
    return ctx;
}

/* The last event of a box before the i-th. */
static const struct stored *event_before(size_t i)
{
    static size_t last[BOXES_MAX]; /* of each box, its index + 1 */
    static char ids[BOXES_MAX][BOX_ID_BYTES];
    static size_t n;
    const struct stored *found;
    size_t k = 0;

    while (k < n && strcmp(ids[k], events[i].box_id) != 0)
        k++;
    found = k < n ? &events[last[k] - 1] : NULL;
    if (k == n)
        memcpy(ids[n++], events[i].box_id, BOX_ID_BYTES);
    T_OK(n < BOXES_MAX);
    last[k] = i + 1;
    return found;
}

/* Each change was stored once, in its order; and each box's events follow from one another. */
static void check_history(void)
{
    size_t at = 0;

    for (size_t i = 0; i < n_events; i++) {
        const struct stored *s = &events[i], *before = event_before(i);

        T_OK(i == 0 || s->position > events[i - 1].position);
        T_INT(s->seq, before ? before->seq + 1 : 1);
        T_OK(!before || (s->before == before->after && s->time_ms >= before->time_ms));
        if (s->after == BH_STATE_DESTROYING || s->after == BH_STATE_DESTROYED)
            continue; /* the janitors' */
        T_OK(at < n_changes && strcmp(changes[at].box_id, s->box_id) == 0);
        T_INT(s->after, changes[at].after);
        at++;
    }
    T_INT(at, n_changes);
}

static void check_webhook(void)
{
    int64_t newest = newest_stored();

    webhooks_look(the_daemon.webhooks);
    for (int i = 0; newest_posted() < newest && i < 60 * 100; i++)
        (void)usleep(10 * 1000);
    WITH_LOCK (&hook_lock) {
        T_INT(n_hook_ids, n_events);
        for (size_t i = 0; i < n_events; i++)
            T_INT(hook_ids[i], events[i].position);
        T_OK(n_refused >= 10);
        T_OK(longest_wait_ms > 60000 / 2 && longest_wait_ms <= 60000);
    }
}

static void live_a_day(struct bh_ctx *janitors[2])
{
    int64_t janitor_ms = first_ms;

    while (now_ms < first_ms + DAY_MS) {
        if (janitor_ms <= now_ms) {
            run_janitors(janitors);
            janitor_ms += 6 * HOUR_MS;
        }
        for (size_t i = 0; i < N_BOXES; i++)
            if (next_of_model(&boxes[i]) <= now_ms)
                run_model(&boxes[i]);
        run_daemon();
        run_clients();
        run_daemon();
        now_ms = next_moment(janitor_ms);
    }
}

TEST(in_a_day_of_two_hundred_boxes_nothing_is_lost_done_twice_or_out_of_order)
{
    struct bh_ctx *janitors[2];

    first_ms = now_ms;
    monitors = open_ctx();
    janitors[0] = open_ctx();
    janitors[1] = open_ctx();
    start_daemon();
    open_client(&all, NULL);
    open_client(&slow, NULL);
    open_client(&comes_and_goes, NULL);
    all.until_ms = viewer.until_ms = NEVER_MS;
    slow.until_ms = comes_and_goes.until_ms = now_ms + HOUR_MS;
    for (size_t i = 0; i < N_BOXES; i++)
        make_model(&boxes[i]);
    open_client(&viewer, &boxes[0]); /* it keeps nothing */
    live_a_day(janitors);

    run_daemon();
    read_client(&slow);
    if (!comes_and_goes.is_open)
        open_client(&comes_and_goes, NULL);
    read_client(&comes_and_goes);
    read_stored();
    check_history();
    note_visit(&all);
    note_visit(&slow);
    note_visit(&comes_and_goes);
    for (size_t i = 0; i < n_visits; i++) {
        check_visit(&visits[i]);
        free(visits[i].ids);
    }
    check_webhook();
    (void)fprintf(
        stderr,
        "# %zu boxes, %zu events: %zu pauses, %zu resumes, %zu ends, %zu removed; %zu leases kept, "
        "%zu boxes checked, %zu posts\n",
        n_made, n_events, n_paused, n_resumed, n_expired, n_removed, n_kept, n_checks, n_posts);
    T_OK(n_paused > 500 && n_resumed > 200 && n_expired > 300 && n_removed > 50 && n_kept > 500);

    hub_quiesce(the_daemon.hub);
    for (size_t i = 0; i < N_ELEMENTS(clients); i++)
        if (clients[i]->is_open)
            close_client(clients[i]);
    the_daemon.webhooks = webhooks_free(the_daemon.webhooks);
    (void)hub_free(the_daemon.hub);
    (void)contexts_free(the_daemon.contexts);
    (void)bh_close(janitors[0]);
    (void)bh_close(janitors[1]);
    (void)bh_close(monitors);
}
