#include "system/activity.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/process.h"
#include "system/hold.h"

#define MAX_DEPTH 256 /* of processes below a command */

struct sample {
    int64_t at_ms, cpu_ms;
};

struct activity {
    struct registry *registry;
    struct holds *holds;
    pthread_mutex_t lock;
    struct sample ring[ACTIVITY_SAMPLES]; /* guarded by lock */
    size_t n;                             /* guarded by lock; samples taken so far */
};

int activity_new(struct registry *reg, struct holds *holds, struct activity **ret, struct err *e)
{
    struct activity *a = calloc(1, sizeof(*a));

    if (!a)
        return err_oom(e);
    a->registry = reg;
    a->holds = holds;
    (void)pthread_mutex_init(&a->lock, NULL);
    *ret = a;
    return 0;
}

struct activity *activity_free(struct activity *a)
{
    if (!a)
        return NULL;
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
    return NULL;
}

/* ---- processes, from /proc ---- */

static bool has_our_parent(const struct proctable *t, const struct process_stat *s)
{
    const struct proctable_row *parent = proctable_find(t, s->parent);

    return parent && parent->is_member;
}

/* Repeats until a pass finds nothing new. Parents are usually older than their children: two passes do. */
static uint64_t sum_of_ours(struct proctable *t, uint64_t *ret_pages)
{
    pid_t self = getpid();
    uint64_t ticks = 0, pages = 0;
    bool has_new = true;

    while (has_new) {
        has_new = false;
        for (size_t i = 0; i < t->n; i++) {
            const struct process_stat *s = &t->rows[i].stat;

            if (t->rows[i].is_member || !(self == 1 || s->parent == self || has_our_parent(t, s)))
                continue;
            t->rows[i].is_member = has_new = true;
            ticks += s->ticks;
            pages += s->resident_pages > 0 ? (uint64_t)s->resident_pages : 0;
        }
    }
    *ret_pages = pages;
    return ticks;
}

static int64_t ticks_ms(uint64_t ticks)
{
    return (int64_t)(ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK));
}

/*
 * The command that a process belongs to; NULL: none. A pid that was reused while /proc was read may make a
 * cycle of parents: the steps are bounded.
 */
static struct activity_command *
command_of(const struct proctable *t, const struct proctable_row *row, struct activity_facts *f)
{
    for (unsigned steps = 0; row && steps < MAX_DEPTH; steps++) {
        for (size_t i = 0; i < f->n_commands; i++)
            if (f->commands[i].root == row->stat.pid)
                return &f->commands[i];
        row = proctable_find(t, row->stat.parent);
    }
    return NULL;
}

static void add_processes(const struct proctable *t, struct activity_facts *f)
{
    for (size_t i = 0; i < t->n && f->n_commands; i++) {
        const struct process_stat *s = &t->rows[i].stat;
        struct activity_command *c = t->rows[i].is_member ? command_of(t, &t->rows[i], f) : NULL;

        if (!c)
            continue;
        if (c->root == s->pid)
            memcpy(c->name, s->name, sizeof(c->name));
        c->n_processes++;
        c->cpu_ms += ticks_ms(s->ticks);
        for (size_t k = 0; k < f->ports.n; k++)
            c->is_server |= !f->ports.list[k].is_udp && f->ports.list[k].pid == s->pid;
    }
}

static int measure_processes(struct activity_facts *f, struct err *e)
{
    _cleanup_(proctable_done) struct proctable t = {0};
    struct rusage ended = {0};
    uint64_t pages = 0;
    int r = proctable_read(&t, true, ACTIVITY_MAX_PROCESSES, e);

    if (r < 0)
        return r;
    (void)getrusage(RUSAGE_CHILDREN, &ended);
    f->cpu.total_ms = ticks_ms(sum_of_ours(&t, &pages)) +
                      (ended.ru_utime.tv_sec + ended.ru_stime.tv_sec) * 1000 +
                      (ended.ru_utime.tv_usec + ended.ru_stime.tv_usec) / 1000;
    f->resident_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    add_processes(&t, f);
    return 0;
}

/* ---- the window ---- */

/* With the lock: the newest sample that is old enough, else the oldest. */
static const struct sample *window_start(const struct activity *a, int64_t now_ms)
{
    size_t held = a->n < ACTIVITY_SAMPLES ? a->n : ACTIVITY_SAMPLES;
    const struct sample *found = NULL;

    for (size_t i = 1; i <= held; i++) {
        found = &a->ring[(a->n - i) % ACTIVITY_SAMPLES];
        if (now_ms - found->at_ms >= ACTIVITY_WINDOW_MS)
            break;
    }
    return found;
}

static void add_sample(struct activity *a, struct activity_cpu *cpu)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&a->lock);
    int64_t now_ms = clock_mono_ms();
    const struct sample *from = window_start(a, now_ms);

    if (from && now_ms > from->at_ms) {
        cpu->window_ms = now_ms - from->at_ms;
        /* A process that did not wait for its children takes their time with it. */
        cpu->recent_ms = cpu->total_ms > from->cpu_ms ? cpu->total_ms - from->cpu_ms : 0;
    }
    if (!a->n || now_ms - a->ring[(a->n - 1) % ACTIVITY_SAMPLES].at_ms >= ACTIVITY_SAMPLE_MS)
        a->ring[a->n++ % ACTIVITY_SAMPLES] = (struct sample){now_ms, cpu->total_ms};
}

/* ---- the facts ---- */

static void list_commands(struct registry *reg, struct activity_facts *f)
{
    struct proc **list = NULL;
    size_t n = 0;

    if (registry_list(reg, &list, &n, NULL) < 0)
        n = 0;
    for (size_t i = 0; i < n; i++) {
        struct proc_info info;

        proc_get_info(list[i], &info);
        if (info.state < PROC_ENDED && f->n_commands < ACTIVITY_MAX_COMMANDS) {
            struct activity_command *c = &f->commands[f->n_commands++];

            (void)snprintf(c->id, sizeof(c->id), "%s", proc_id(list[i]));
            c->has_pty = proc_spec(list[i])->has_pty;
            c->output_bytes = info.bytes[PROC_STDOUT] + info.bytes[PROC_STDERR];
            c->root = info.pid;
        }
        proc_unref(list[i]);
    }
    free(list);
}

int activity_read(struct activity *a, struct activity_facts *ret, struct err *e)
{
    int r;

    list_commands(a->registry, ret);
    /* The processes that listen are looked up only if one of them may be a command's. */
    r = ports_read(ret->n_commands ? PORTS_PROCESSES : 0, &ret->ports, e);
    if (r == 0)
        r = measure_processes(ret, e);
    if (r < 0)
        return r;
    add_sample(a, &ret->cpu);
    ret->n_connections = ports_connections(&ret->ports);
    registry_count(a->registry, &ret->counts);
    metrics_use(&ret->calls);
    ret->n_holds = holds_count(a->holds);
    ret->hold_ended_mono_ms = holds_ended_mono_ms(a->holds);
    return 0;
}

void activity_facts_done(struct activity_facts *f)
{
    ports_done(&f->ports);
}

bool activity_is_busy(const struct activity_facts *f, enum activity_reason reason)
{
    switch (reason) {
    case BUSY_CALLS:
        return f->calls.open > 0;
    case BUSY_COMMANDS:
        return f->counts.running > 0;
    case BUSY_CONNECTIONS:
        return f->n_connections > 0;
    case BUSY_CPU:
        return f->cpu.recent_ms * ACTIVITY_BUSY_SHARE > f->cpu.window_ms;
    case BUSY_HOLDS:
        return f->n_holds > 0;
    case N_BUSY_REASONS:
        break;
    }
    return false;
}

const char *activity_reason_name(enum activity_reason reason)
{
    static const char *const names[N_BUSY_REASONS] = {
        [BUSY_CALLS] = "calls", [BUSY_COMMANDS] = "commands", [BUSY_CONNECTIONS] = "connections",
        [BUSY_CPU] = "cpu",     [BUSY_HOLDS] = "holds",
    };

    return names[reason];
}

int64_t activity_idle_ms(const struct activity_facts *f)
{
    int64_t last_ms = f->calls.last_mono_ms;

    if (f->counts.last_output_mono_ms > last_ms)
        last_ms = f->counts.last_output_mono_ms;
    if (f->counts.last_end_mono_ms > last_ms)
        last_ms = f->counts.last_end_mono_ms;
    if (f->hold_ended_mono_ms > last_ms)
        last_ms = f->hold_ended_mono_ms;
    return clock_mono_ms() - last_ms;
}
