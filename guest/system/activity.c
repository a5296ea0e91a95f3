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

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "system/ports.h"

#define STAT_BYTES 1024
#define MAX_DEPTH 256 /* of processes below a command */

struct sample {
    int64_t at_ms, cpu_ms;
};

struct activity {
    pthread_mutex_t lock;
    struct sample ring[ACTIVITY_SAMPLES]; /* guarded by lock */
    size_t n;                             /* guarded by lock; ever */
};

struct process {
    pid_t pid, parent;
    uint64_t ticks; /* its own and those of the children it has waited for */
    bool is_ours;
    char name[ACTIVITY_NAME_BYTES];
};

struct table {
    struct process *list;
    size_t n, cap;
};

int activity_new(struct activity **ret, struct err *e)
{
    struct activity *a = calloc(1, sizeof(*a));

    if (!a)
        return err_oom(e);
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

/* ---- what /proc says ---- */

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

static int add(struct table *t, const struct process *p, struct err *e)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 256;
        struct process *list;

        if (cap > ACTIVITY_MAX_PROCESSES)
            return err_set(e, ERR_EXHAUSTED, "more than %d processes", ACTIVITY_MAX_PROCESSES);
        list = reallocarray(t->list, cap, sizeof(*list));
        if (!list)
            return err_oom(e);
        t->list = list;
        t->cap = cap;
    }
    t->list[t->n++] = *p;
    return 0;
}

static int read_all(struct table *t, struct err *e)
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
        r = add(t, &p, e);
    }
    return r;
}

static int compare(const void *a, const void *b)
{
    const struct process *x = a, *y = b;

    return (x->pid > y->pid) - (x->pid < y->pid);
}

static const struct process *find(const struct table *t, pid_t pid)
{
    struct process key = {.pid = pid};

    return t->n ? bsearch(&key, t->list, t->n, sizeof(key), compare) : NULL;
}

static bool has_our_parent(const struct table *t, const struct process *p)
{
    const struct process *parent = find(t, p->parent);

    return parent && parent->is_ours;
}

/* Parents are usually older than their children: one pass finds most, a second that it is done. */
static uint64_t sum_of_ours(struct table *t)
{
    pid_t self = getpid();
    uint64_t ticks = 0;
    bool has_new = true;

    if (t->n)
        qsort(t->list, t->n, sizeof(*t->list), compare);
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

/* The tree that a process is in; NULL: in none. Ids that were read while they were given to others
 * may make a circle of parents: the steps are bounded. */
static struct activity_tree *tree_of(const struct table *t, const struct process *p,
                                     struct activity_tree *trees, size_t n)
{
    for (unsigned steps = 0; p && steps < MAX_DEPTH; steps++) {
        for (size_t i = 0; i < n; i++)
            if (trees[i].root == p->pid)
                return &trees[i];
        p = find(t, p->parent);
    }
    return NULL;
}

static void fill_trees(const struct table *t, struct activity_tree *trees, size_t n,
                       const struct ports *ports)
{
    for (size_t i = 0; i < t->n && n; i++) {
        const struct process *p = &t->list[i];
        struct activity_tree *tree = p->is_ours ? tree_of(t, p, trees, n) : NULL;

        if (!tree)
            continue;
        if (tree->root == p->pid)
            memcpy(tree->name, p->name, sizeof(tree->name));
        tree->n_processes++;
        tree->cpu_ms += ticks_ms(p->ticks);
        for (size_t k = 0; k < ports->n; k++)
            tree->is_server |= !ports->list[k].is_udp && ports->list[k].pid == p->pid;
    }
}

static int measure(struct activity_tree *trees, size_t n, const struct ports *ports,
                   int64_t *ret_ms, struct err *e)
{
    struct table t = {0};
    struct rusage ended = {0};
    int r;

    r = read_all(&t, e);
    if (r == 0) {
        (void)getrusage(RUSAGE_CHILDREN, &ended);
        *ret_ms = ticks_ms(sum_of_ours(&t)) +
                  (ended.ru_utime.tv_sec + ended.ru_stime.tv_sec) * 1000 +
                  (ended.ru_utime.tv_usec + ended.ru_stime.tv_usec) / 1000;
        fill_trees(&t, trees, n, ports);
    }
    free(t.list);
    return r;
}

/* ---- the last while ---- */

/* With the lock: the newest look that is old enough, or else the oldest there is. */
static const struct sample *base(const struct activity *a, int64_t now_ms)
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

int activity_cpu(struct activity *a, struct activity_tree *trees, size_t n,
                 const struct ports *ports, struct activity_cpu *ret, struct err *e)
{
    struct activity_cpu cpu = {0};
    const struct sample *from;
    int64_t now_ms;
    int r;

    r = measure(trees, n, ports, &cpu.total_ms, e);
    if (r < 0)
        return r;
    (void)pthread_mutex_lock(&a->lock);
    now_ms = clock_mono_ms();
    from = base(a, now_ms);
    if (from && now_ms > from->at_ms) {
        cpu.window_ms = now_ms - from->at_ms;
        /* A process that did not wait for its children takes their time with it. */
        cpu.recent_ms = cpu.total_ms > from->cpu_ms ? cpu.total_ms - from->cpu_ms : 0;
    }
    if (!a->n || now_ms - a->ring[(a->n - 1) % ACTIVITY_SAMPLES].at_ms >= ACTIVITY_SAMPLE_MS)
        a->ring[a->n++ % ACTIVITY_SAMPLES] = (struct sample){now_ms, cpu.total_ms};
    (void)pthread_mutex_unlock(&a->lock);
    *ret = cpu;
    return 0;
}
