#include "system/activity.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/array.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "system/hold.h"

#define STAT_BYTES 1024
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

struct process {
    pid_t pid, parent;
    uint64_t ticks; /* its own and those of the children it has waited for */
    bool is_ours;
    char name[ACTIVITY_NAME_BYTES];
};

struct process_table {
    struct process *list;
    size_t n, cap;
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

/* "PID (any (name)) S PPID ... UTIME STIME CUTIME CSTIME (14th to 17th)" */
static bool read_process(int proc_fd, const char *name, struct process *ret)
{
    _cleanup_close_ int fd = -1;
    char path[300], text[STAT_BYTES], *at, *open;
    uint64_t user, system, children_user, children_system;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "%s/stat", name);
    fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return false;
    text[n] = '\0';
    at = strrchr(text, ')');
    if (!at || sscanf(at + 1,
                      " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64 " %" SCNu64
                      " %" SCNu64,
                      &ret->parent, &user, &system, &children_user, &children_system) != 5)
        return false;
    ret->ticks = user + system + children_user + children_system;
    open = strchr(text, '(');
    if (open && open < at)
        (void)snprintf(ret->name, sizeof(ret->name), "%.*s", (int)(at - open - 1), open + 1);
    return true;
}

static int read_processes(struct process_table *t, struct err *e)
{
    _cleanup_closedir_ DIR *d = opendir("/proc");
    struct dirent *entry;
    int r = 0;

    if (!d)
        return err_sys(e, errno, "open '/proc'");
    while (r == 0 && (entry = readdir(d))) {
        struct process p = {0};
        uint64_t pid;

        if (str_parse_u64(entry->d_name, 1, INT32_MAX, &pid, NULL) < 0 ||
            !read_process(dirfd(d), entry->d_name, &p))
            continue;
        p.pid = (pid_t)pid;
        if (t->n == ACTIVITY_MAX_PROCESSES)
            return err_set(e, ERR_EXHAUSTED, "more than %d processes", ACTIVITY_MAX_PROCESSES);
        r = array_grow(&t->list, &t->cap, t->n + 1, ACTIVITY_MAX_PROCESSES, e);
        if (r < 0)
            return r;
        t->list[t->n++] = p;
    }
    return r;
}

static int compare_pids(const void *a, const void *b)
{
    const struct process *x = a, *y = b;

    return (x->pid > y->pid) - (x->pid < y->pid);
}

static const struct process *find_process(const struct process_table *t, pid_t pid)
{
    struct process key = {.pid = pid};

    return t->n ? bsearch(&key, t->list, t->n, sizeof(key), compare_pids) : NULL;
}

static bool has_our_parent(const struct process_table *t, const struct process *p)
{
    const struct process *parent = find_process(t, p->parent);

    return parent && parent->is_ours;
}

/* Repeats until a pass finds nothing new. Parents are usually older than their children: two passes do. */
static uint64_t sum_of_ours(struct process_table *t)
{
    pid_t self = getpid();
    uint64_t ticks = 0;
    bool has_new = true;

    if (t->n)
        qsort(t->list, t->n, sizeof(*t->list), compare_pids);
    while (has_new) {
        has_new = false;
        for (size_t i = 0; i < t->n; i++) {
            struct process *p = &t->list[i];

            if (p->is_ours || p->pid == self ||
                !(self == 1 || p->parent == self || has_our_parent(t, p)))
                continue;
            p->is_ours = has_new = true;
            ticks += p->ticks;
        }
    }
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
static struct activity_command *command_of(const struct process_table *t, const struct process *p,
                                           struct activity_facts *f)
{
    for (unsigned steps = 0; p && steps < MAX_DEPTH; steps++) {
        for (size_t i = 0; i < f->n_commands; i++)
            if (f->commands[i].root == p->pid)
                return &f->commands[i];
        p = find_process(t, p->parent);
    }
    return NULL;
}

static void add_processes(const struct process_table *t, struct activity_facts *f)
{
    for (size_t i = 0; i < t->n && f->n_commands; i++) {
        const struct process *p = &t->list[i];
        struct activity_command *c = p->is_ours ? command_of(t, p, f) : NULL;

        if (!c)
            continue;
        if (c->root == p->pid)
            memcpy(c->name, p->name, sizeof(c->name));
        c->n_processes++;
        c->cpu_ms += ticks_ms(p->ticks);
        for (size_t k = 0; k < f->ports.n; k++)
            c->is_server |= !f->ports.list[k].is_udp && f->ports.list[k].pid == p->pid;
    }
}

static int measure_processes(struct activity_facts *f, struct err *e)
{
    struct process_table t = {0};
    struct rusage ended = {0};
    int r;

    r = read_processes(&t, e);
    if (r == 0) {
        (void)getrusage(RUSAGE_CHILDREN, &ended);
        f->cpu.total_ms = ticks_ms(sum_of_ours(&t)) +
                          (ended.ru_utime.tv_sec + ended.ru_stime.tv_sec) * 1000 +
                          (ended.ru_utime.tv_usec + ended.ru_stime.tv_usec) / 1000;
        add_processes(&t, f);
    }
    free(t.list);
    return r;
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
