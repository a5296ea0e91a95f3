#include "proc/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/process.h"
#include "common/str.h"

#define MOUNT "/sys/fs/cgroup"
#define PREFIX "bellhop-cmd-"
#define NAME_RANDOM_BYTES 8
#define PATH_BYTES CGROUP_PATH_BYTES
#define POLL_MS 5
#define KILL_WAITS_MAX 20 /* times the caller's wait: many processes take time to exit */
#define FILE_MAX_BYTES (1024 * 1024)

#define MAX_WRITES 2 /* of a row in limits.def */

struct limit_write {
    const char *file;
    const char *text; /* N in it stands for the number */
    bool is_optional;
};

struct limit {
    const char *name;
    const char *field; /* of the request, in errors */
    const char *controller;
    size_t offset; /* in struct cgroup_limits */
    uint64_t scale;
    struct cgroup_limits probe;
    struct limit_write v1[MAX_WRITES], v2[MAX_WRITES];
};

static const struct limit limit_rows[N_CGROUP_LIMITS] = {
#define SET(file, text) \
    { \
        file, text, false \
    }
#define TRY(file, text) \
    { \
        file, text, true \
    }
#define V1(...) \
    { \
        __VA_ARGS__ \
    }
#define V2 V1
/* clang-format off */
#define LIMIT(field, name, unit, probe, controller, scale, v1, v2) \
    {#name, "limits." #field, #controller, offsetof(struct cgroup_limits, field), scale, \
     {.field = probe}, v1, v2},
#include "common/wire/limits.def"
    /* clang-format on */
};

struct cgroup {
    bool is_v2;
    size_t n_dirs; /* one on v2; one for each controller with a limit on v1 */
    char *dirs[CGROUP_MAX_DIRS];
    const char *controllers[CGROUP_MAX_DIRS]; /* v1: of each directory */
    char *memory_dir;                         /* one of dirs; NULL: memory is not counted */
};

/* Set once, before there are threads; NULL: the hierarchy is not the agent's. */
static const char *own_base;

static uint64_t limit_value(const struct cgroup_limits *l, const struct limit *row)
{
    return *(const uint64_t *)(const void *)((const char *)l + row->offset);
}

/* NULL: no limit is set. */
static const struct limit *limit_first_set(const struct cgroup_limits *l)
{
    for (size_t i = 0; i < N_CGROUP_LIMITS; i++)
        if (limit_value(l, &limit_rows[i]))
            return &limit_rows[i];
    return NULL;
}

bool cgroup_is_wanted(const struct cgroup_limits *l)
{
    return own_base || limit_first_set(l);
}

const char *cgroup_limit_name(size_t i)
{
    return limit_rows[i].name;
}

/* ---- files ---- */

static int open_file(const char *dir, const char *file, int flags)
{
    char path[PATH_BYTES + 64];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, file);
    return open(path, flags | O_CLOEXEC);
}

int cgroup_write(const char *dir, const char *file, const char *text, struct err *e)
{
    _cleanup_close_ int fd = open_file(dir, file, O_WRONLY);
    size_t len = strlen(text);

    if (fd < 0 || write(fd, text, len) != (ssize_t)len)
        return err_sys(e, errno, "writing '%s/%s'", dir, file);
    return 0;
}

char *cgroup_read(const char *dir, const char *file)
{
    char path[PATH_BYTES + 64], *text = NULL;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, file);
    return io_read_file(AT_FDCWD, path, FILE_MAX_BYTES, &text, NULL, NULL) < 0 ? NULL : text;
}

bool cgroup_can_access(const char *dir, const char *file, int mode)
{
    char path[PATH_BYTES + 64];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, file);
    return access(path, mode) == 0;
}

int64_t cgroup_read_number(const char *dir, const char *file, const char *name)
{
    _cleanup_free_ char *text = cgroup_read(dir, file);
    size_t len = name ? strlen(name) : 0;
    char *at = text, *line;
    int64_t n;

    while ((line = strsep(&at, "\n"))) {
        if (name && (strncmp(line, name, len) != 0 || line[len] != ' '))
            continue;
        return sscanf(line + len, "%" SCNd64, &n) == 1 ? n : -1;
    }
    return -1;
}

/* ---- the agent's own group ---- */

/* The path of the agent's group in the hierarchy of a v1 controller, or in v2's (controller ""). */
static int own_path(const char *controller, char out[PATH_BYTES])
{
    _cleanup_free_ char *text = cgroup_read("/proc/self", "cgroup");
    char *at = text, *line;

    while ((line = strsep(&at, "\n"))) {
        char *names, *name;

        (void)strsep(&line, ":");
        names = strsep(&line, ":");
        if (!names || !line)
            continue;
        while ((name = strsep(&names, ","))) {
            if (!str_eq(name, controller))
                continue;
            (void)snprintf(out, PATH_BYTES, "%s", str_eq(line, "/") ? "" : line);
            return 0;
        }
    }
    return -ERR_NOT_FOUND;
}

static bool is_v2_mount(const char *mount)
{
    return cgroup_can_access(mount, "cgroup.controllers", F_OK);
}

static int limit_unimplemented(const struct limit *row, struct err *e)
{
    return err_field(e, ERR_UNIMPLEMENTED, row->field,
                     "'%s' needs a cgroup that the agent may write to, and there is none%s",
                     row->field,
                     is_v2_mount(MOUNT) ? ""
                                        : ": cgroup v1 gives none to a box, only a host with v2 "
                                          "does; a limit of the whole box works with both");
}

/* Is the agent's group the root of this mount, as in a container without a cgroup namespace? */
static bool is_mounted_as(const char *mount, const char *own)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/self/mountinfo", "re");
    char line[PATH_BYTES * 4], root[PATH_BYTES], at[PATH_BYTES];

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "%*s %*s %*s %1023s %1023s", root, at) == 2 && str_eq(at, mount) &&
            str_eq(root, own))
            return true;
    return false;
}

int cgroup_open_own_memory(const char *v2_file, const char *v1_file)
{
    bool is_v2 = is_v2_mount(MOUNT);
    const char *mount = is_v2 ? MOUNT : MOUNT "/memory";
    const char *file = is_v2 ? v2_file : v1_file;
    char own[PATH_BYTES], dir[PATH_BYTES];
    int fd;

    if (own_path(is_v2 ? "" : "memory", own) < 0)
        return -1;
    (void)snprintf(dir, sizeof(dir), "%s%s", mount, own);
    fd = open_file(dir, file, O_RDONLY);
    return fd >= 0 || !is_mounted_as(mount, own) ? fd : open_file(mount, file, O_RDONLY);
}

/*
 * The kernel lists the agent there, so the path belongs to this mount and to this cgroup namespace.
 */
static bool is_member_of(const char *dir)
{
    _cleanup_free_ char *text = cgroup_read(dir, "cgroup.procs");
    char *at = text, *line;
    uint64_t pid;

    while ((line = strsep(&at, "\n")))
        if (str_parse_u64(line, 1, INT_MAX, &pid, NULL) == 0 && (pid_t)pid == getpid())
            return true;
    return false;
}

int cgroup_find_own(char ret[CGROUP_PATH_BYTES], struct err *e)
{
    char own[PATH_BYTES];

    if (!is_v2_mount(MOUNT))
        return err_set(e, ERR_UNIMPLEMENTED, "no cgroup v2");
    if (own_path("", own) < 0 || strlen(own) + sizeof(MOUNT) > PATH_BYTES)
        return err_set(e, ERR_UNIMPLEMENTED, "no cgroup");
    (void)snprintf(ret, PATH_BYTES, MOUNT "%s", own);
    if (is_member_of(ret))
        return 0;
    (void)snprintf(ret, PATH_BYTES, MOUNT);
    if (is_mounted_as(MOUNT, own) && is_member_of(ret))
        return 0;
    return err_set(e, ERR_UNIMPLEMENTED, "the agent's cgroup can't be seen");
}

/*
 * Removes groups of agents that are gone. The groups of a living agent are left alone: an empty one
 * may be about to get its first process.
 */
static void remove_stale(const char *base)
{
    _cleanup_closedir_ DIR *dir = opendir(base);
    struct dirent *d;

    while (dir && (d = readdir(dir))) {
        int pid;

        if (sscanf(d->d_name, PREFIX "%d-", &pid) != 1 || pid <= 0)
            continue;
        if (kill(pid, 0) < 0 && errno == ESRCH)
            (void)unlinkat(dirfd(dir), d->d_name, AT_REMOVEDIR); /* fails if it is in use */
    }
}

/* ---- directories that could not be removed yet ---- */

static struct leftover {
    char *dir; /* owned */
    struct leftover *next;
} * leftovers; /* guarded by leftovers_lock; one for each ended command whose group has processes */
static pthread_mutex_t leftovers_lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_removed(const char *dir)
{
    return rmdir(dir) == 0 || errno == ENOENT;
}

/* Out of memory: the directory stays until a later agent removes it. */
static void remove_later(const char *dir)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&leftovers_lock);
    struct leftover *l;

    for (l = leftovers; l; l = l->next)
        if (str_eq(l->dir, dir))
            return;
    l = malloc(sizeof(*l));
    if (!l)
        return;
    *l = (struct leftover){.dir = strdup(dir), .next = leftovers};
    if (l->dir)
        leftovers = l;
    else
        free(l);
}

static void remove_leftovers(void)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&leftovers_lock);

    for (struct leftover **at = &leftovers; *at;) {
        struct leftover *l = *at;

        if (!is_removed(l->dir)) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        free(l->dir);
        free(l);
    }
}

/*
 * The name is unique for ever, also among agents with the same pid in other namespaces: the group
 * may be killed by its path after the directory has been removed.
 */
static int make_group_dir(const char *base, char **ret, struct err *e)
{
    char path[PATH_BYTES], once[NAME_RANDOM_BYTES * 2 + 1];
    int r = io_random_hex(NAME_RANDOM_BYTES, once, e);

    if (r < 0)
        return r;
    (void)snprintf(path, sizeof(path), "%s/" PREFIX "%d-%s", base, getpid(), once);
    if (mkdir(path, 0755) < 0)
        return err_sys(e, errno, "making '%s'", path);
    *ret = strdup(path);
    if (!*ret) {
        (void)rmdir(path);
        return err_oom(e);
    }
    return 0;
}

static int write_limit(const char *dir, const struct limit *row, const struct limit_write *files,
                       const struct cgroup_limits *l, struct err *e)
{
    uint64_t value = limit_value(l, row) * row->scale;

    for (size_t i = 0; i < MAX_WRITES && files[i].file; i++) {
        size_t before = strcspn(files[i].text, "N");
        char text[64];
        int r;

        if (files[i].text[before])
            (void)snprintf(text, sizeof(text), "%.*s%" PRIu64 "%s", (int)before, files[i].text,
                           value, files[i].text + before + 1);
        else
            (void)snprintf(text, sizeof(text), "%s", files[i].text);
        r = cgroup_write(dir, files[i].file, text, files[i].is_optional ? NULL : e);
        if (r < 0 && !files[i].is_optional)
            return r;
    }
    return 0;
}

/* ---- v2 ---- */

static int try_v2(struct cgroup *g, const char *base, const struct cgroup_limits *l, struct err *e)
{
    int r;

    for (size_t i = 0; i < N_CGROUP_LIMITS; i++) {
        const struct limit *row = &limit_rows[i];
        char text[16];

        if (!limit_value(l, row))
            continue;
        (void)snprintf(text, sizeof(text), "+%s", row->controller);
        if (cgroup_write(base, "cgroup.subtree_control", text, NULL) < 0)
            return limit_unimplemented(row, e);
    }
    if (!l->memory_bytes) /* without a limit, too, memory is counted and OOM kills are known */
        (void)cgroup_write(base, "cgroup.subtree_control", "+memory", NULL);
    if (!own_base)
        remove_stale(base);
    r = make_group_dir(base, &g->dirs[0], e);
    if (r < 0)
        return r;
    g->n_dirs = 1;
    g->is_v2 = true;
    if (cgroup_can_access(g->dirs[0], "memory.events", F_OK))
        g->memory_dir = g->dirs[0];
    for (size_t i = 0; r == 0 && i < N_CGROUP_LIMITS; i++)
        if (limit_value(l, &limit_rows[i]))
            r = write_limit(g->dirs[0], &limit_rows[i], limit_rows[i].v2, l, e);
    return r;
}

int cgroup_use_base(const char *dir, struct err *e)
{
    if (!is_v2_mount(MOUNT) || access(dir, W_OK) < 0)
        return err_set(e, ERR_UNIMPLEMENTED, "'%s' is no cgroup that can be written to", dir);
    remove_stale(dir);
    own_base = dir;
    return 0;
}

void cgroup_leave_base(void)
{
    remove_leftovers();
    own_base = NULL;
}

/*
 * Tries beside the agent's group first: a group with processes can't have children with
 * controllers.
 */
static int make_v2(struct cgroup *g, const char *mount, const struct cgroup_limits *l,
                   struct err *e)
{
    char own[PATH_BYTES], base[PATH_BYTES];
    char *slash;
    int r;

    if (own_base)
        return try_v2(g, own_base, l, e);
    if (own_path("", own) < 0)
        return err_set(e, ERR_UNIMPLEMENTED, "no cgroup");
    slash = strrchr(own, '/');
    if (slash) {
        *slash = '\0';
        (void)snprintf(base, sizeof(base), "%s%s", mount, own);
        r = try_v2(g, base, l, e);
        if (r == 0)
            return 0;
        *slash = '/';
    }
    (void)snprintf(base, sizeof(base), "%s%s", mount, own);
    return try_v2(g, base, l, e);
}

/* ---- v1 ---- */

/* The group's directory in the controller's hierarchy; made when there is none yet. */
static int make_v1_dir(struct cgroup *g, const struct limit *row, const char **ret, struct err *e)
{
    char own[PATH_BYTES], base[PATH_BYTES];
    size_t i = 0;

    while (i < g->n_dirs && !str_eq(g->controllers[i], row->controller))
        i++;
    if (i == g->n_dirs) {
        if (own_path(row->controller, own) < 0)
            return limit_unimplemented(row, e);
        (void)snprintf(base, sizeof(base), MOUNT "/%s%s", row->controller, own);
        remove_stale(base);
        if (make_group_dir(base, &g->dirs[i], NULL) < 0)
            return limit_unimplemented(row, e);
        g->controllers[i] = row->controller;
        g->n_dirs++;
        if (str_eq(row->controller, "memory"))
            g->memory_dir = g->dirs[i];
    }
    *ret = g->dirs[i];
    return 0;
}

static int make_v1(struct cgroup *g, const struct cgroup_limits *l, struct err *e)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < N_CGROUP_LIMITS; i++) {
        const struct limit *row = &limit_rows[i];
        const char *dir;

        if (!limit_value(l, row))
            continue;
        r = make_v1_dir(g, row, &dir, e);
        if (r == 0)
            r = write_limit(dir, row, row->v1, l, e);
    }
    return r;
}

int cgroup_new(const struct cgroup_limits *l, struct cgroup **ret, struct err *e)
{
    struct cgroup *g = calloc(1, sizeof(*g));
    int r;

    if (!g)
        return err_oom(e);
    remove_leftovers();
    r = is_v2_mount(MOUNT) ? make_v2(g, MOUNT, l, e) : make_v1(g, l, e);
    if (r < 0) {
        const struct limit *row = limit_first_set(l);

        /* Whatever the kernel's reason, the caller needs to know which limit can't be kept. */
        if (e && !e->field[0] && row)
            r = err_at(e, r, row->field);
        cgroup_free(g);
        return r;
    }
    *ret = g;
    return 0;
}

void cgroup_probe_limits(bool ret[N_CGROUP_LIMITS])
{
    for (size_t i = 0; i < N_CGROUP_LIMITS; i++) {
        struct cgroup *g = NULL;

        ret[i] = cgroup_new(&limit_rows[i].probe, &g, NULL) == 0;
        cgroup_free(g);
    }
}

void cgroup_remove(const struct cgroup *g)
{
    for (size_t i = 0; i < g->n_dirs; i++)
        if (!is_removed(g->dirs[i]))
            remove_later(g->dirs[i]);
}

struct cgroup *cgroup_free(struct cgroup *g)
{
    if (!g)
        return NULL;
    cgroup_remove(g);
    for (size_t i = 0; i < g->n_dirs; i++)
        free(g->dirs[i]);
    free(g);
    return NULL;
}

/* ---- use ---- */

int cgroup_open(const struct cgroup *g, int fds[CGROUP_MAX_DIRS], size_t *ret_n, struct err *e)
{
    for (size_t i = 0; i < g->n_dirs; i++) {
        fds[i] = open_file(g->dirs[i], "cgroup.procs", O_WRONLY);
        if (fds[i] < 0) {
            int sys = errno;

            for (size_t k = 0; k < i; k++)
                fd_close(fds[k]);
            return err_at(e, err_sys(e, sys, "open '%s/cgroup.procs'", g->dirs[i]), "limits");
        }
    }
    *ret_n = g->n_dirs;
    return 0;
}

bool cgroup_counts_memory(const struct cgroup *g)
{
    return g->memory_dir != NULL;
}

long long cgroup_oom_kills(const struct cgroup *g)
{
    if (!g->memory_dir)
        return -1;
    return cgroup_read_number(g->memory_dir, g->is_v2 ? "memory.events" : "memory.oom_control",
                              "oom_kill");
}

void cgroup_get_usage(const struct cgroup *g, struct cgroup_usage *ret)
{
    *ret = (struct cgroup_usage){-1, -1, -1};
    if (g->memory_dir)
        ret->peak_bytes = cgroup_read_number(
            g->memory_dir, g->is_v2 ? "memory.peak" : "memory.max_usage_in_bytes", NULL);
    if (g->is_v2) {
        ret->user_us = cgroup_read_number(g->dirs[0], "cpu.stat", "user_usec");
        ret->system_us = cgroup_read_number(g->dirs[0], "cpu.stat", "system_usec");
    }
}

/* Counts the members; with is_kill, sends SIGKILL to each. */
static int visit_members(const struct cgroup *g, bool is_kill, size_t *ret, struct err *e)
{
    char path[PATH_BYTES];
    size_t n = 0;
    int r;

    (void)snprintf(path, sizeof(path), "%s/cgroup.procs", g->dirs[0]);
    r = is_kill ? process_kill_listed(path, &n, e) : process_count_listed(path, &n, e);
    if (r < 0)
        return r;
    /* A command that can create groups may have moved into one below. */
    if (n == 0 && g->is_v2 && cgroup_read_number(g->dirs[0], "cgroup.events", "populated") > 0)
        n = 1;
    *ret = n;
    return 0;
}

int cgroup_count(const struct cgroup *g, size_t *ret, struct err *e)
{
    return visit_members(g, false, ret, e);
}

int cgroup_kill(const struct cgroup *g, int wait_ms, size_t *ret_left, struct err *e)
{
    int64_t last = clock_mono_ms() + (int64_t)KILL_WAITS_MAX * wait_ms;
    int64_t deadline = clock_mono_ms() + wait_ms;
    bool is_atomic = g->is_v2 && cgroup_write(g->dirs[0], "cgroup.kill", "1", NULL) == 0;
    size_t least = SIZE_MAX;
    size_t n = 0;
    int r;

    for (;;) {
        int64_t now;

        r = visit_members(g, !is_atomic, &n, e);
        if (r < 0)
            return r;
        now = clock_mono_ms();
        if (n < least) {
            least = n;
            deadline = now + wait_ms;
        }
        if (n == 0 || now >= deadline || now >= last)
            break;
        (void)poll(NULL, 0, POLL_MS);
    }
    *ret_left = n;
    return 0;
}
