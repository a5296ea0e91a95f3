#include "monitor/supervise.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/recipe/bootstrap.h"
#include "lib/recipe/bootstrap_guest.h"

#define CALL_MS 10000
#define RETRY_MS 1000
#define LOG_MS 2000
#define END_MS 10000     /* to end a hung coding agent: it is asked first */
#define ACTIVITY_MS 3500 /* the loop waits a little longer */
/* The monitor ends the box at the deadline. If there is no monitor, the box's first process
 * ends it later: the monitor asks three times, 4 s each with 10 s between (monitor.c), before
 * it gives up on an agent. */
#define LEASE_MARGIN_MS 40000
#define START_JSON_BYTES (4 * 1024 * 1024)
#define CAUSE_BYTES 512

struct supervisor {
    pthread_t thread;
    struct client *client;
    struct client *lease_client; /* a new order does not cancel it */
    struct bh_box *box;          /* the thread's own: the loop reads its one anew */
    char *start_path;
    int wake_fd;  /* cancels the thread's client */
    int stop_fd;  /* cancels the lease's client */
    int event_fd; /* wakes the loop */

    pthread_mutex_t lock;
    pthread_cond_t parked; /* the thread has answered supervisor_park() */
    /* guarded by lock: */
    enum { RUNS, PARK_ASKED, PARKED, PARK_FAILED } park;
    int64_t parked_at_mono_ms;
    int64_t frozen_ms; /* the thread adds this to its times */
    struct err park_error;
    bool is_stopping;
    bool watch_asked;
    bool lease_asked;
    bool probe_asked;
    bool activity_asked;
    json_t *activity; /* the answer until the loop takes it */
    int64_t lease_until_mono_ms;
    bool has_failed;
    char cause[CAUSE_BYTES];
    int restarts;

    /* the thread's: */
    json_t *start;                  /* the request that is kept running; NULL: none */
    struct bootstrap_record record; /* how to check its health; zeroed: no check */
    char *password;
    bool lease_pending;
    bool activity_pending;
    int64_t lease_until;
    int n_restarts;
    int max_restarts;
    int64_t running_since_mono_ms;
    int64_t restart_at_mono_ms; /* time of its restart; 0: it runs */
    int64_t probe_at_mono_ms;   /* 0: never */
    int n_failed_probes;        /* in a row */
    bool was_well;              /* healthy since its start */
};

static void eventfd_wake(int fd)
{
    uint64_t one = 1;

    (void)!write(fd, &one, sizeof(one));
}

static void eventfd_drain(int fd)
{
    uint64_t n;

    (void)!read(fd, &n, sizeof(n));
}

/* ---- the thread ---- */

/* Sleeps until the time is over or the loop has an order. */
static void pause_or_wake(struct supervisor *s, int ms)
{
    struct pollfd p = {.fd = s->wake_fd, .events = POLLIN};

    (void)poll(&p, 1, ms);
}

/* Resets the state of a command that was just started or found running. */
static void begin_watch(struct supervisor *s)
{
    int64_t now = clock_mono_ms();

    s->running_since_mono_ms = now;
    s->restart_at_mono_ms = 0;
    s->probe_at_mono_ms = s->record.agent ? now + s->record.recipe.health.interval_ms : 0;
    s->n_failed_probes = 0;
    s->was_well = false;
}

static void forget_start(struct supervisor *s)
{
    json_decref(TAKE(s->start));
    bootstrap_record_done(&s->record);
    if (s->password)
        explicit_bzero(s->password, strlen(s->password));
    free(TAKE(s->password));
}

static void load_start(struct supervisor *s)
{
    _cleanup_free_ char *text = NULL;
    json_t *obj = NULL, *max;
    size_t len = 0;

    forget_start(s);
    if (io_read_file(AT_FDCWD, s->start_path, START_JSON_BYTES, &text, &len, NULL) < 0 ||
        jx_parse(text, len, &obj, NULL) < 0)
        return;
    if (!json_is_string(json_object_get(obj, "id"))) {
        json_decref(obj);
        return;
    }
    max = json_object_get(obj, SUPERVISE_MAX_KEY);
    s->max_restarts = json_is_integer(max) ? (int)json_integer_value(max) : SUPERVISE_MAX_RESTARTS;
    (void)json_object_del(obj, SUPERVISE_MAX_KEY); /* the rest is the request */
    s->start = obj;
    s->n_restarts = 0;
    /* Without a record only its end is watched. */
    if (bootstrap_record_load(s->box->dir, &s->record, NULL) == 0 &&
        bootstrap_password(s->box->dir, false, &s->password, NULL) < 0)
        bootstrap_record_done(&s->record);
    begin_watch(s);
    s->was_well = true; /* the bootstrap has checked it */
}

/* left NULL: no end. Not canceled by a new order: a canceled request may be read late, and would
 * then replace a newer lease. An agent that is not the box's first process cannot end the box. */
static int set_lease_take(struct supervisor *s, json_t *left, struct err *e)
{
    json_t *params = json_pack("{s:o, s:b}", "expires_in_ms", left, "force", 1);
    int r = params ? client_call(s->lease_client, RPC_system_lease, params,
                                 clock_mono_ms() + CALL_MS, NULL, e)
                   : err_oom(e);

    json_decref(params);
    return r == -ERR_PRECONDITION || r == -ERR_UNIMPLEMENTED ? 0 : r;
}

static void push_lease(struct supervisor *s)
{
    int64_t left = s->lease_until - clock_mono_ms() + LEASE_MARGIN_MS;

    s->lease_pending = set_lease_take(s, json_integer(left > 0 ? left : 0), NULL) < 0;
}

/* An unresponsive agent is asked only once: the loop stops waiting by itself. */
static void look_at_activity(struct supervisor *s)
{
    json_t *reply = NULL;
    int r = client_call(s->client, RPC_system_activity, NULL, clock_mono_ms() + ACTIVITY_MS, &reply,
                        NULL);

    if (r == -ERR_CANCELED)
        return; /* a more urgent order; the question stays pending */
    s->activity_pending = false;
    if (r < 0)
        return;
    (void)pthread_mutex_lock(&s->lock);
    json_decref(s->activity);
    s->activity = reply;
    (void)pthread_mutex_unlock(&s->lock);
    eventfd_wake(s->event_fd);
}

static void give_up_agent(struct supervisor *s, const char *how)
{
    (void)pthread_mutex_lock(&s->lock);
    s->has_failed = true;
    (void)snprintf(s->cause, sizeof(s->cause),
                   "the coding agent ended %d times and was given up: %s", s->max_restarts + 1,
                   how);
    (void)pthread_mutex_unlock(&s->lock);
    forget_start(s);
    eventfd_wake(s->event_fd);
}

struct started {
    bool is_started;
};

static int on_started(void *arg, json_t *msg)
{
    struct started *st = arg;

    st->is_started = json_object_get(msg, "start") != NULL;
    return st->is_started; /* the guest agent keeps its output */
}

/* An order interrupts the start, which is then tried again. */
static void start_again(struct supervisor *s)
{
    json_t *id = json_pack("{s:O}", "id", json_object_get(s->start, "id"));
    struct started st = {false};
    int64_t deadline = clock_mono_ms() + CALL_MS;
    int r = client_call(s->client, RPC_exec_forget, id, deadline, NULL, NULL);

    json_decref(id);
    if (r != -ERR_CANCELED)
        r = client_stream(s->client, RPC_exec_start, s->start, deadline, on_started, &st, NULL);
    if (!st.is_started && r == -ERR_CANCELED)
        return;
    begin_watch(s); /* a failed start is found as an ended command */
    if (!st.is_started)
        return;
    (void)pthread_mutex_lock(&s->lock);
    s->restarts++;
    (void)pthread_mutex_unlock(&s->lock);
}

/* How it ended, and the last line of its output. */
static void describe_end(struct supervisor *s, json_t *reply, char *out, size_t out_bytes)
{
    json_t *exit = json_object_get(reply, "exit");
    const char *reason = json_string_value(json_object_get(exit, "reason"));
    const char *signal = json_string_value(json_object_get(exit, "signal"));
    _cleanup_free_ char *log =
        guest_log(s->client, json_string_value(json_object_get(s->start, "id")), s->password,
                  clock_mono_ms() + LOG_MS);
    size_t n = log ? strlen(log) : 0;
    const char *line;

    if (signal)
        (void)snprintf(out, out_bytes, "%s by %s", reason ? reason : "ended", signal);
    else
        (void)snprintf(out, out_bytes, "%s with %lld", reason ? reason : "ended",
                       (long long)json_integer_value(json_object_get(exit, "code")));
    if (n && log[n - 1] == '\n')
        log[n - 1] = '\0';
    line = log ? strrchr(log, '\n') : NULL;
    line = line ? line + 1 : log;
    n = strlen(out);
    if (line && *line)
        (void)snprintf(out + n, out_bytes - n, ": %.120s", line);
}

int64_t supervise_pause_ms(int n_restarts)
{
    int64_t pause_ms = SUPERVISE_FIRST_PAUSE_MS;

    for (int i = 0; i < n_restarts && pause_ms < SUPERVISE_MOST_PAUSE_MS; i++)
        pause_ms *= 2;
    return pause_ms < SUPERVISE_MOST_PAUSE_MS ? pause_ms : SUPERVISE_MOST_PAUSE_MS;
}

/* `how` has text of the box: its control characters are escaped. */
__attribute__((format(printf, 2, 3))) static void log_step(const char *how, const char *fmt, ...)
{
    _cleanup_free_ char *text = str_escape(how, strlen(how), "", NULL);
    char step[64];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(step, sizeof(step), fmt, ap);
    va_end(ap);
    (void)fprintf(stderr, "bellhop-monitor: the coding agent ended (%s): %s\n", text ? text : "?",
                  step);
}

/* Schedules the restart of an ended command, with growing pauses. */
static void restart_later(struct supervisor *s, const char *how)
{
    int64_t now = clock_mono_ms();
    int64_t pause_ms;

    if (now - s->running_since_mono_ms > SUPERVISE_GOOD_MS)
        s->n_restarts = 0;
    if (s->n_restarts >= s->max_restarts) {
        log_step(how, "given up");
        give_up_agent(s, how);
        return;
    }
    pause_ms = supervise_pause_ms(s->n_restarts++);
    s->restart_at_mono_ms = now + pause_ms;
    log_step(how, "restart %d of %d in %lld ms", s->n_restarts, s->max_restarts,
             (long long)pause_ms);
}

static void on_ended(struct supervisor *s, json_t *reply)
{
    char how[CAUSE_BYTES / 2];

    describe_end(s, reply, how, sizeof(how));
    restart_later(s, how);
}

static void wait_for_restart(struct supervisor *s)
{
    int64_t left = clock_until_ms(s->restart_at_mono_ms);

    if (left > 0)
        pause_or_wake(s, s->lease_pending && left > RETRY_MS ? RETRY_MS : (int)left);
    else
        start_again(s);
}

/* A running command that stays unhealthy is ended; it comes back like one that ended. */
static void on_hung(struct supervisor *s, const char *why)
{
    char how[CAUSE_BYTES / 2];

    if (guest_end(s->client, clock_mono_ms() + END_MS, NULL) < 0)
        return; /* the next check tries again */
    (void)snprintf(how, sizeof(how), "it hung: %.200s", why);
    restart_later(s, how);
}

/* False if the guest agent does not answer: that says nothing about the coding agent. */
static bool is_running(struct supervisor *s)
{
    enum guest_state state = GUEST_ABSENT;

    return guest_state(s->client, clock_mono_ms() + CALL_MS, &state, NULL, 0, NULL) == 0 &&
           state == GUEST_RUNNING;
}

static void look_at_health(struct supervisor *s)
{
    const struct recipe_health *h = &s->record.recipe.health;
    struct bootstrap_probe p = {
        .client = s->client, .health = h, .port = s->record.port, .password = s->password};
    struct err why = {0};
    int64_t patience_ms =
        h->attempt_ms > SUPERVISE_ATTEMPT_MS ? h->attempt_ms : SUPERVISE_ATTEMPT_MS;
    int r = bootstrap_probe(&p, clock_mono_ms() + patience_ms, NULL, &why);

    if (r == -ERR_CANCELED)
        return; /* a more urgent order; the next round checks again */
    s->probe_at_mono_ms = clock_mono_ms() + h->interval_ms;
    if (r == 0) {
        s->was_well = true;
        s->n_failed_probes = 0;
    } else if (r != -ERR_ABORTED && is_running(s)) {
        int64_t age = clock_mono_ms() - s->running_since_mono_ms;

        s->n_failed_probes++;
        if (s->n_failed_probes >= SUPERVISE_PROBES && (s->was_well || age > h->total_ms))
            on_hung(s, why.message);
    }
}

/* Waits until the command ends or there is something else to do. */
static void watch_agent(struct supervisor *s)
{
    json_t *params = json_pack("{s:O}", "id", json_object_get(s->start, "id"));
    _cleanup_json_ json_t *reply = NULL;
    int64_t deadline = s->lease_pending ? clock_mono_ms() + RETRY_MS : 0;
    int r;

    if (s->probe_at_mono_ms && (!deadline || s->probe_at_mono_ms < deadline))
        deadline = s->probe_at_mono_ms;
    r = client_call(s->client, RPC_exec_wait, params, deadline, &reply, NULL);
    json_decref(params);
    if (r == 0 || r == -ERR_NOT_FOUND)
        on_ended(s, reply);
    else if (r != -ERR_CANCELED && r != -ERR_DEADLINE)
        pause_or_wake(s, RETRY_MS);
    else if (r == -ERR_DEADLINE && s->probe_at_mono_ms && !clock_until_ms(s->probe_at_mono_ms))
        look_at_health(s);
}

/* ---- parking ---- */

static void add_frozen_time(int64_t *at_mono_ms, int64_t frozen_ms)
{
    if (*at_mono_ms)
        *at_mono_ms += frozen_ms;
}

/* Answers supervisor_park(). The lease comes last: every earlier call has ended. */
static void answer_park(struct supervisor *s)
{
    struct err e = {0};
    int r = set_lease_take(s, json_null(), &e);

    s->activity_pending = false;
    s->lease_pending = false; /* supervisor_unpark() asks for it */
    (void)pthread_mutex_lock(&s->lock);
    s->park = r < 0 ? PARK_FAILED : PARKED;
    s->park_error = e;
    s->parked_at_mono_ms = clock_mono_ms();
    (void)pthread_cond_broadcast(&s->parked);
    (void)pthread_mutex_unlock(&s->lock);
}

/* Moves the times of the watched command on by the time that it was frozen. */
static void forget_frozen_time(struct supervisor *s, int64_t frozen_ms)
{
    add_frozen_time(&s->running_since_mono_ms, frozen_ms);
    add_frozen_time(&s->restart_at_mono_ms, frozen_ms);
    add_frozen_time(&s->probe_at_mono_ms, frozen_ms);
    s->n_failed_probes = 0;
}

/* Takes the loop's orders; false: stop. */
static bool take_orders(struct supervisor *s)
{
    bool watch_asked, is_stopping, park_asked, probe_asked;
    int64_t frozen_ms;

    eventfd_drain(s->wake_fd);
    (void)pthread_mutex_lock(&s->lock);
    park_asked = s->park == PARK_ASKED;
    while (s->park == PARKED && !s->is_stopping) {
        (void)pthread_mutex_unlock(&s->lock);
        pause_or_wake(s, -1);
        eventfd_drain(s->wake_fd);
        (void)pthread_mutex_lock(&s->lock);
    }
    frozen_ms = s->frozen_ms;
    s->frozen_ms = 0;
    is_stopping = s->is_stopping;
    watch_asked = s->watch_asked;
    s->watch_asked = false;
    probe_asked = s->probe_asked;
    s->probe_asked = false;
    if (s->lease_asked) {
        s->lease_asked = false;
        s->lease_pending = true;
        s->lease_until = s->lease_until_mono_ms;
    }
    s->activity_pending = s->activity_pending || s->activity_asked;
    s->activity_asked = false;
    (void)pthread_mutex_unlock(&s->lock);
    if (frozen_ms)
        forget_frozen_time(s, frozen_ms);
    if (probe_asked && s->probe_at_mono_ms)
        s->probe_at_mono_ms = clock_mono_ms();
    if (watch_asked && !is_stopping)
        load_start(s);
    if (park_asked && !is_stopping)
        answer_park(s);
    return !is_stopping;
}

static bool is_parked(struct supervisor *s)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->lock);

    return s->park == PARKED;
}

static void *supervisor_run(void *arg)
{
    struct supervisor *s = arg;

    while (take_orders(s)) {
        if (is_parked(s))
            continue;
        if (s->activity_pending) /* the loop waits for it */
            look_at_activity(s);
        if (s->lease_pending)
            push_lease(s);
        if (s->start && s->restart_at_mono_ms)
            wait_for_restart(s);
        else if (s->start)
            watch_agent(s);
        else
            pause_or_wake(s, s->lease_pending || s->activity_pending ? RETRY_MS : -1);
    }
    return NULL;
}

/* ---- the loop's side ---- */

static int supervisor_fill(struct supervisor *s, struct bh_box *box, struct err *e)
{
    struct box_row row = {0};
    int r;

    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake_fd < 0 || s->stop_fd < 0 || s->event_fd < 0)
        return err_sys(e, errno, "eventfd");
    r = store_get(box->ctx->store, box->row.id, &row, e);
    if (r == 0)
        r = box_new_take(box->ctx, &row, &s->box, e);
    if (r < 0)
        return r;
    s->start_path = box_path(s->box, "agent-start.json");
    if (!s->start_path)
        return err_oom(e);
    r = box_new_client(s->box, s->wake_fd, &s->client, e);
    if (r == 0)
        r = box_new_client(s->box, s->stop_fd, &s->lease_client, e);
    if (r == 0)
        r = client_set_quiet(s->lease_client, e);
    return r < 0 ? r : client_set_quiet(s->client, e); /* supervision is no use of the box */
}

static void supervisor_done(struct supervisor *s)
{
    (void)client_free(s->client);
    (void)client_free(s->lease_client);
    forget_start(s);
    json_decref(s->activity);
    (void)bh_box_free(s->box);
    free(s->start_path);
    fd_close(s->wake_fd);
    fd_close(s->stop_fd);
    fd_close(s->event_fd);
    (void)pthread_cond_destroy(&s->parked);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

int supervisor_new(struct bh_box *box, bool is_parked, struct supervisor **ret, struct err *e)
{
    struct supervisor *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return err_oom(e);
    s->wake_fd = -1;
    s->stop_fd = -1;
    s->event_fd = -1;
    s->park = is_parked ? PARKED : RUNS;
    s->parked_at_mono_ms = clock_mono_ms();
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->parked, NULL);
    r = supervisor_fill(s, box, e);
    if (r == 0) {
        int sys = pthread_create(&s->thread, NULL, supervisor_run, s);

        r = sys ? err_sys(e, sys, "start a thread") : 0;
    }
    if (r < 0) {
        supervisor_done(s);
        return r;
    }
    *ret = s;
    return 0;
}

struct supervisor *supervisor_free(struct supervisor *s)
{
    if (!s)
        return NULL;
    (void)pthread_mutex_lock(&s->lock);
    s->is_stopping = true;
    (void)pthread_mutex_unlock(&s->lock);
    eventfd_wake(s->stop_fd);
    eventfd_wake(s->wake_fd);
    (void)pthread_join(s->thread, NULL);
    supervisor_done(s);
    return NULL;
}

void supervisor_watch(struct supervisor *s)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->lock);

    s->watch_asked = true;
    eventfd_wake(s->wake_fd);
}

void supervisor_set_lease(struct supervisor *s, int64_t until_mono_ms)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->lock);

    s->lease_asked = true;
    s->lease_until_mono_ms = until_mono_ms;
    eventfd_wake(s->wake_fd);
}

int supervisor_park(struct supervisor *s, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->lock);

    if (s->park == PARKED)
        return 0;
    s->park = PARK_ASKED;
    s->activity_asked = false;
    eventfd_wake(s->wake_fd);
    while (s->park == PARK_ASKED) /* every call in its way has a deadline */
        (void)pthread_cond_wait(&s->parked, &s->lock);
    if (s->park == PARKED)
        return 0;
    s->park = RUNS;
    s->lease_asked = true; /* the answer may be lost, and not the request */
    eventfd_wake(s->wake_fd);
    if (e)
        *e = s->park_error;
    return -s->park_error.code;
}

void supervisor_unpark(struct supervisor *s, bool is_well)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->lock);

    if (s->park != PARKED)
        return;
    s->park = RUNS;
    s->frozen_ms += clock_mono_ms() - s->parked_at_mono_ms;
    s->lease_asked = true;
    s->probe_asked = !is_well;
    eventfd_wake(s->wake_fd);
}

void supervisor_ask_activity(struct supervisor *s)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->lock);

    s->activity_asked = true;
    eventfd_wake(s->wake_fd);
}

json_t *supervisor_take_activity(struct supervisor *s)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->lock);

    return TAKE(s->activity);
}

int supervisor_event_fd(const struct supervisor *s)
{
    return s->event_fd;
}

bool supervisor_take_failure(struct supervisor *s, char *cause, size_t cause_bytes)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->lock);
    bool has_failed = s->has_failed;

    s->has_failed = false;
    (void)snprintf(cause, cause_bytes, "%s", s->cause);
    return has_failed;
}

void supervisor_drain(struct supervisor *s)
{
    eventfd_drain(s->event_fd);
}

int supervisor_restarts(struct supervisor *s)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->lock);

    return s->restarts;
}
