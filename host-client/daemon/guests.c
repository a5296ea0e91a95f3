#include "daemon/guests.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "common/wire/method.h"
#include "daemon/contexts.h"
#include "daemon/daemon.h"
#include "daemon/job.h"
#include "lib/agent/client.h"
#include "lib/box/box.h"
#include "lib/box/quota.h"
#include "lib/box/store_access.h"

#define AGENT_TEXT_BYTES (1u << 20)
#define FIGURE_MAX (UINT64_C(1) << 53) /* an agent may say anything */

/* An agent's figures. The last four grow as long as it lives. */
struct guest_figures {
    uint64_t memory_bytes, commands; /* now */
    uint64_t uptime_s;
    uint64_t cpu_ms, in_bytes, out_bytes, errors; /* since the agent started */
};

struct guest_box {
    char id[BOX_ID_BYTES];
    size_t owner; /* index of guests.owners */
    enum bh_state state;
    bool is_old;      /* it was there at the first reading: its figures are no growth */
    bool is_listed;   /* the box is still there */
    bool is_known;    /* its agent has answered once */
    bool is_answered; /* the last time */
    struct guest_figures last;
};

/* Use by the boxes of an owner since the daemon started, those that are gone included. */
struct guest_owner {
    char name[ACCESS_NAME_BYTES];
    uint64_t cpu_ms, in_bytes, out_bytes, errors;
};

struct guests {
    struct daemon *daemon;
    pthread_mutex_t reading; /* held while agents are asked; taken before lock */
    pthread_mutex_t lock;
    /* guarded by lock; changed only with reading held too: */
    int64_t read_ms; /* 0: never */
    struct guest_box *boxes;
    size_t n_boxes;
    struct guest_owner *owners; /* the first has no name, and takes those beyond the bound */
    size_t n_owners;
    /* guarded by reading: */
    size_t next; /* the box that is asked first */
};

int guests_new(struct daemon *d, struct guests **ret, struct err *e)
{
    struct guests *g = calloc(1, sizeof(*g));

    if (!g)
        return err_oom(e);
    g->daemon = d;
    (void)pthread_mutex_init(&g->reading, NULL);
    (void)pthread_mutex_init(&g->lock, NULL);
    *ret = g;
    return 0;
}

struct guests *guests_free(struct guests *g)
{
    if (!g)
        return NULL;
    free(g->boxes);
    free(g->owners);
    (void)pthread_mutex_destroy(&g->lock);
    (void)pthread_mutex_destroy(&g->reading);
    free(g);
    return NULL;
}

/* ---- which boxes there are ---- */

/* A label may be any text; a name that no token can have is nobody's. */
static size_t find_guest_owner(struct guests *g, const char *name)
{
    struct guest_owner *more;
    size_t i = 0;

    if (access_check_name("owner", name, NULL) < 0)
        name = "";
    while (i < g->n_owners && !str_eq(g->owners[i].name, name))
        i++;
    if (i < g->n_owners || i == GUESTS_OWNERS_MAX)
        return i < g->n_owners ? i : 0;
    more = realloc(g->owners, (g->n_owners + 1) * sizeof(*more));
    if (!more)
        return 0;
    g->owners = more;
    g->owners[i] = (struct guest_owner){0};
    (void)snprintf(g->owners[i].name, sizeof(g->owners[i].name), "%s", name);
    g->n_owners++;
    return i;
}

static struct guest_box *find_guest(struct guests *g, const char *id)
{
    for (size_t i = 0; i < g->n_boxes; i++)
        if (str_eq(g->boxes[i].id, id))
            return &g->boxes[i];
    return NULL;
}

static int list_guest(void *arg, struct bh_box *box)
{
    struct guests *g = arg;
    enum bh_state state = box->row.state;
    struct guest_box *b = find_guest(g, box->row.id), *more;

    if (state != BH_STATE_RUNNING && state != BH_STATE_PAUSED)
        return 0;
    if (!b) {
        if (g->n_boxes == GUESTS_MAX)
            return 0;
        more = realloc(g->boxes, (g->n_boxes + 1) * sizeof(*more));
        if (!more)
            return -1;
        g->boxes = more;
        b = &g->boxes[g->n_boxes++];
        *b = (struct guest_box){.owner = find_guest_owner(g, quota_owner(&box->spec)),
                                .is_old = !g->read_ms};
        (void)snprintf(b->id, sizeof(b->id), "%s", box->row.id);
    }
    b->state = state;
    b->is_listed = true;
    return 0;
}

/* With both locks: the table has the boxes that run or are paused, and no other. */
static int list_guests(struct guests *g, struct bh_ctx *ctx, struct err *e)
{
    struct bh_error error = {0};
    size_t n = 0;
    int r;

    if (!g->n_owners) /* the one without a name */
        (void)find_guest_owner(g, "");
    if (!g->n_owners)
        return err_oom(e);
    for (size_t i = 0; i < g->n_boxes; i++)
        g->boxes[i].is_listed = false;
    r = bh_list(ctx, list_guest, g, &error);
    if (r < 0)
        return error.code ? contexts_error(e, r, &error) : err_oom(e);
    for (size_t i = 0; i < g->n_boxes; i++)
        if (g->boxes[i].is_listed)
            g->boxes[n++] = g->boxes[i];
    g->n_boxes = n;
    return 0;
}

/* ---- one agent ---- */

static uint64_t figure_of(const json_t *v)
{
    json_int_t n = json_integer_value(v);

    return n < 0 ? 0 : (uint64_t)n > FIGURE_MAX ? FIGURE_MAX : (uint64_t)n;
}

static int add_agent_text(void *arg, const char *data, size_t len)
{
    return buf_add(arg, data, len, NULL) < 0;
}

/* A status that says that the agent failed. */
static bool is_error_line(const char *line, size_t len)
{
    const char *code = memmem(line, len, ",code=\"", 7);

    return code && (code[7] == '5' || strncmp(code + 7, "cut_off", 7) == 0);
}

/* A line of Prometheus' text: NAME VALUE, or NAME{...} VALUE. */
static void read_agent_line(struct guest_figures *f, const char *line, size_t len)
{
    const struct {
        const char *name;
        uint64_t *sum;
    } sums[] = {{"bellhop_received_bytes_total ", &f->in_bytes},
                {"bellhop_relayed_received_bytes_total ", &f->in_bytes},
                {"bellhop_sent_bytes_total ", &f->out_bytes},
                {"bellhop_relayed_sent_bytes_total ", &f->out_bytes},
                {"bellhop_commands_failed_total ", &f->errors},
                {"bellhop_requests_total{", is_error_line(line, len) ? &f->errors : NULL},
                {"bellhop_uptime_seconds ", &f->uptime_s}};
    const char *space = memrchr(line, ' ', len);
    char text[24];
    uint64_t n;

    for (size_t i = 0; space && i < N_ELEMENTS(sums); i++) {
        if (!sums[i].sum || !str_has_prefix(line, sums[i].name))
            continue;
        (void)snprintf(text, sizeof(text), "%.*s", (int)(line + len - space - 1), space + 1);
        if (str_parse_u64(text, 0, FIGURE_MAX, &n, NULL) == 0 && *sums[i].sum <= FIGURE_MAX - n)
            *sums[i].sum += n;
    }
}

static int ask_agent(struct bh_ctx *ctx, const char *id, struct guest_figures *ret, struct err *e)
{
    int64_t until_ms = clock_mono_ms() + GUESTS_ANSWER_MS;
    struct bh_box *box _cleanup_box_ = NULL;
    _cleanup_json_ json_t *activity = NULL;
    _cleanup_buf_ struct buf text = {0};
    struct client *c = NULL;
    int r = job_find_box(ctx, id, &box, e);

    if (r == 0 && box->row.state != BH_STATE_RUNNING)
        return err_set(e, ERR_PRECONDITION, "the box does not run");
    buf_init(&text, AGENT_TEXT_BYTES);
    if (r == 0)
        r = box_client(box, &c, e);
    if (r == 0)
        r = client_set_quiet(c, e);
    if (r == 0)
        r = client_call(c, RPC_system_activity, NULL, until_ms, &activity, e);
    if (r == 0)
        r = client_get(c, "/v1/metrics", add_agent_text, &text, until_ms, e);
    if (r < 0)
        return r;
    *ret = (struct guest_figures){
        .memory_bytes =
            figure_of(json_object_get(json_object_get(activity, "memory"), "resident_bytes")),
        .commands = figure_of(json_object_get(json_object_get(activity, "commands"), "running")),
        .cpu_ms = figure_of(json_object_get(json_object_get(activity, "cpu"), "total_ms"))};
    for (const char *line = text.data, *end; line && *line; line = end + (*end == '\n')) {
        end = strchrnul(line, '\n');
        read_agent_line(ret, line, (size_t)(end - line));
    }
    return 0;
}

static uint64_t count_growth(uint64_t before, uint64_t now)
{
    return now > before ? now - before : 0;
}

/* With both locks. An agent that was started anew begins at 0. */
static void count_figures(struct guests *g, struct guest_box *b, const struct guest_figures *f)
{
    struct guest_owner *o = &g->owners[b->owner];
    const struct guest_figures zero = {0};
    const struct guest_figures *from = b->is_known && f->uptime_s >= b->last.uptime_s ? &b->last
                                       : !b->is_known && b->is_old                    ? f
                                                                                      : &zero;

    o->cpu_ms += count_growth(from->cpu_ms, f->cpu_ms);
    o->in_bytes += count_growth(from->in_bytes, f->in_bytes);
    o->out_bytes += count_growth(from->out_bytes, f->out_bytes);
    o->errors += count_growth(from->errors, f->errors);
    b->last = *f;
    b->is_known = true;
}

/* With reading held, which keeps the table as it is. */
static void ask_guest(struct guests *g, struct bh_ctx *ctx, struct guest_box *b)
{
    struct guest_figures f = {0};
    struct err e = {0};
    int r = ask_agent(ctx, b->id, &f, &e);

    WITH_LOCK (&g->lock) {
        b->is_answered = r == 0;
        if (r == 0)
            count_figures(g, b, &f);
    }
}

/* With reading held. */
static int read_guests(struct guests *g, struct bh_ctx *ctx, struct err *e)
{
    int64_t until_ms = clock_mono_ms() + GUESTS_READ_MS;
    size_t asked = 0;
    int r = 0;

    WITH_LOCK (&g->lock) {
        r = list_guests(g, ctx, e);
    }
    if (r == 0 && g->next >= g->n_boxes)
        g->next = 0;
    for (; r == 0 && asked < g->n_boxes && clock_mono_ms() < until_ms; asked++) {
        struct guest_box *b = &g->boxes[(g->next + asked) % g->n_boxes];

        if (b->state == BH_STATE_RUNNING)
            ask_guest(g, ctx, b);
    }
    g->next += asked;
    WITH_LOCK (&g->lock) {
        g->read_ms = clock_mono_ms();
    }
    return r;
}

/* A caller that comes while another reads gets the figures of before. */
static int refresh_guests(struct guests *g, struct bh_ctx *ctx, struct err *e)
{
    bool is_old = false;
    int r = 0;

    if (pthread_mutex_trylock(&g->reading) != 0)
        return 0;
    WITH_LOCK (&g->lock) {
        is_old = !g->read_ms || clock_mono_ms() - g->read_ms >= GUESTS_EVERY_MS;
    }
    if (is_old)
        r = read_guests(g, ctx, e);
    (void)pthread_mutex_unlock(&g->reading);
    return r;
}

/* ---- the text ---- */

struct gauge_row {
    uint64_t boxes, memory_bytes, commands;
};

/* The boxes of an owner in a state. */
static struct gauge_row sum_gauges(const struct guests *g, size_t owner, enum bh_state state)
{
    struct gauge_row sum = {0};

    for (size_t i = 0; i < g->n_boxes; i++) {
        const struct guest_box *b = &g->boxes[i];

        if (b->owner != owner || b->state != state || !b->is_known)
            continue;
        sum.boxes++;
        sum.memory_bytes += b->last.memory_bytes;
        sum.commands += b->last.commands;
    }
    return sum;
}

static int add_gauge(const struct guests *g, struct buf *out, const char *name, const char *help,
                     size_t offset, struct err *e)
{
    static const enum bh_state states[] = {BH_STATE_RUNNING, BH_STATE_PAUSED};
    int r = buf_addf(out, e, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);

    for (size_t i = 0; r == 0 && i < g->n_owners; i++)
        for (size_t k = 0; r == 0 && k < N_ELEMENTS(states); k++) {
            struct gauge_row sum = sum_gauges(g, i, states[k]);

            if (sum.boxes)
                r = buf_addf(out, e, "%s{state=\"%s\",owner=\"%s\"} %" PRIu64 "\n", name,
                             bh_state_name(states[k]), g->owners[i].name,
                             *(const uint64_t *)(const void *)((const char *)&sum + offset));
        }
    return r;
}

static int add_counter(const struct guests *g, struct buf *out, const char *name, const char *help,
                       size_t offset, double unit, struct err *e)
{
    int r = buf_addf(out, e, "# HELP %s %s\n# TYPE %s counter\n", name, help, name);

    for (size_t i = 0; r == 0 && i < g->n_owners; i++) {
        const char *at = (const char *)&g->owners[i] + offset;

        r = buf_addf(out, e, "%s{owner=\"%s\"} %.15g\n", name, g->owners[i].name,
                     (double)*(const uint64_t *)(const void *)at / unit);
    }
    return r;
}

static int add_silent(const struct guests *g, struct buf *out, struct err *e)
{
    unsigned n = 0;

    for (size_t i = 0; i < g->n_boxes; i++)
        n += g->boxes[i].state == BH_STATE_RUNNING && !g->boxes[i].is_answered;
    return buf_addf(out, e,
                    "# HELP bellhop_guest_silent Running boxes whose agent did not answer in time."
                    "\n# TYPE bellhop_guest_silent gauge\nbellhop_guest_silent %u\n",
                    n);
}

int guests_add_text(struct guests *g, struct bh_ctx *ctx, struct buf *out, struct err *e)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } gauges[] = {{"bellhop_guest_memory_bytes",
                   "Resident memory of the processes in boxes; paused ones as they were before.",
                   offsetof(struct gauge_row, memory_bytes)},
                  {"bellhop_guest_commands", "Commands that run in boxes.",
                   offsetof(struct gauge_row, commands)}};
    static const struct {
        const char *name, *help;
        size_t offset;
        double unit;
    } counters[] = {{"bellhop_guest_cpu_seconds_total", "Processor time of the processes in boxes.",
                     offsetof(struct guest_owner, cpu_ms), 1000},
                    {"bellhop_guest_in_bytes_total", "Bytes that guest agents have received.",
                     offsetof(struct guest_owner, in_bytes), 1},
                    {"bellhop_guest_out_bytes_total", "Bytes that guest agents have sent.",
                     offsetof(struct guest_owner, out_bytes), 1},
                    {"bellhop_guest_errors_total",
                     "Requests that guest agents failed at, and commands that could not start.",
                     offsetof(struct guest_owner, errors), 1}};
    int r = refresh_guests(g, ctx, e);
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&g->lock);

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(gauges); i++)
        r = add_gauge(g, out, gauges[i].name, gauges[i].help, gauges[i].offset, e);
    for (size_t i = 0; r == 0 && i < N_ELEMENTS(counters); i++)
        r = add_counter(g, out, counters[i].name, counters[i].help, counters[i].offset,
                        counters[i].unit, e);
    return r < 0 ? r : add_silent(g, out, e);
}
