#include "lib/provider/freezer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"
#include "lib/util/context.h"

#define NAME_PREFIX "/bellhop-"
#define MARK_CHARS 8
#define PATH_BYTES 256
#define TEXT_BYTES 4096
#define POLL_FIRST_MS 1 /* doubled with each look: v1 has no event for it */
#define POLL_MOST_MS 16
#ifndef GUARD_THAW_MS /* a test has its own */
#define GUARD_THAW_MS 10000
#endif
#define GUARD_TRY_MS 1000

void freezer_name(const char *state_dir, const char *id, char out[FREEZER_NAME_BYTES])
{
    uint32_t h = 2166136261u; /* FNV-1a */

    for (const char *s = state_dir; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    (void)snprintf(out, FREEZER_NAME_BYTES, NAME_PREFIX "%08x-%s", h, id);
}

bool freezer_is_box_group(const char *name)
{
    return str_has_prefix(name, NAME_PREFIX) && name[sizeof(NAME_PREFIX) - 1] &&
           !strchr(name + 1, '/');
}

bool freezer_group_id(const char *name, char id[17])
{
    const char *mark = name + sizeof(NAME_PREFIX) - 1;

    if (!freezer_is_box_group(name) || strspn(mark, "0123456789abcdef") != MARK_CHARS ||
        mark[MARK_CHARS] != '-' || !ctx_is_box_id(mark + MARK_CHARS + 1))
        return false;
    (void)snprintf(id, 17, "%s", mark + MARK_CHARS + 1);
    return true;
}

static bool is_listed(char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (str_eq(*names, name))
            return true;
    return false;
}

/* The hierarchies are FREEZER_ROOT itself, or directories in it. */
static int list_hierarchy(const char *dir, int depth, char ***names, struct err *e)
{
    _cleanup_closedir_ DIR *d = opendir(dir);
    int r = 0;

    for (struct dirent *de; r == 0 && d && (de = readdir(d));) {
        char name[NAME_MAX + 2], path[PATH_BYTES], id[17];

        if (de->d_name[0] == '.' || de->d_type != DT_DIR)
            continue;
        (void)snprintf(name, sizeof(name), "/%s", de->d_name);
        (void)snprintf(path, sizeof(path), "%s/%.200s", dir, de->d_name);
        if (freezer_group_id(name, id))
            r = is_listed(*names, name) ? 0 : strv_push(names, name, e);
        else if (depth)
            r = list_hierarchy(path, depth - 1, names, e);
    }
    return r;
}

int freezer_list(char ***ret, struct err *e)
{
    _cleanup_strv_ char **names = NULL;
    int r = list_hierarchy(FREEZER_ROOT, 1, &names, e);

    if (r == 0)
        *ret = TAKE(names);
    return r;
}

/* Where a freezer can be. The file is there in every group but the root's. */
struct freezer_kind {
    const char *mount;
    const char *file;
    const char *frozen, *thawed; /* written to the file */
    const char *events;          /* tells the state; NULL: the file itself does */
    const char *is_frozen, *is_thawed;
};

static const struct freezer_kind freezer_kinds[] = {
    {FREEZER_ROOT "/freezer", "freezer.state", "FROZEN", "THAWED", NULL, "FROZEN\n", "THAWED\n"},
    {FREEZER_ROOT, "cgroup.freeze", "1", "0", "cgroup.events", "frozen 1\n", "frozen 0\n"},
    {FREEZER_ROOT "/unified", "cgroup.freeze", "1", "0", "cgroup.events", "frozen 1\n",
     "frozen 0\n"},
};

static void group_file(const struct freezer_kind *k, const char *name, const char *file,
                       char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "%s%s/%s", k->mount, name, file);
}

/* NULL: the group has no freezer. */
static const struct freezer_kind *find_kind(const char *name)
{
    char path[PATH_BYTES];

    for (size_t i = 0; freezer_is_box_group(name) && i < N_ELEMENTS(freezer_kinds); i++) {
        group_file(&freezer_kinds[i], name, freezer_kinds[i].file, path);
        if (access(path, W_OK) == 0)
            return &freezer_kinds[i];
    }
    return NULL;
}

/* ---- the group ---- */

int freezer_make(const char *name, int *ret_procs_fd, struct err *e)
{
    if (!freezer_is_box_group(name))
        return err_set(e, ERR_INVALID, "'%s' is not the control group of a box", name);
    for (size_t i = 0; i < N_ELEMENTS(freezer_kinds); i++) {
        const struct freezer_kind *k = &freezer_kinds[i];
        char path[PATH_BYTES];
        int fd;

        (void)snprintf(path, sizeof(path), "%s%s", k->mount, name);
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            continue;
        if (find_kind(name) == k) {
            group_file(k, name, "cgroup.procs", path);
            fd = open(path, O_WRONLY | O_CLOEXEC);
            if (fd >= 0) {
                *ret_procs_fd = fd;
                return 0;
            }
            (void)snprintf(path, sizeof(path), "%s%s", k->mount, name);
        }
        (void)rmdir(path);
    }
    return err_set(e, ERR_DENIED, "this process cannot make a control group with a freezer");
}

void freezer_remove(const char *name)
{
    char path[PATH_BYTES];

    for (size_t i = 0; freezer_is_box_group(name) && i < N_ELEMENTS(freezer_kinds); i++) {
        (void)snprintf(path, sizeof(path), "%s%s", freezer_kinds[i].mount, name);
        (void)rmdir(path);
    }
}

static bool is_in_group(pid_t pid, const char *name)
{
    _cleanup_free_ char *text = NULL;
    char path[64], line[FREEZER_NAME_BYTES + 4];
    size_t len = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
    (void)snprintf(line, sizeof(line), ":%s\n", name);
    return io_read_file(AT_FDCWD, path, TEXT_BYTES, &text, &len, NULL) == 0 && strstr(text, line);
}

int freezer_check(const char *name, pid_t pid, struct err *e)
{
    if (!find_kind(name))
        return err_field(e, ERR_UNIMPLEMENTED, "level",
                         "freeze: the box has no control group with a freezer on this machine");
    if (!is_in_group(pid, name))
        return err_field(e, ERR_UNIMPLEMENTED, "level",
                         "freeze: the box's processes are not in a control group of their own");
    return 0;
}

/* ---- its freezer ---- */

static int write_state(const struct freezer_kind *k, const char *name, const char *state,
                       struct err *e)
{
    _cleanup_close_ int fd = -1;
    char path[PATH_BYTES];

    group_file(k, name, k->file, path);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", path);
    return write(fd, state, strlen(state)) < 0 ? err_sys(e, errno, "write '%s'", path) : 0;
}

/* Waits for the state that was written. */
static int wait_state(const struct freezer_kind *k, const char *name, const char *wanted,
                      int64_t timeout_ms, struct err *e)
{
    int64_t deadline = clock_mono_ms() + timeout_ms;
    int pause_ms = POLL_FIRST_MS;
    char path[PATH_BYTES];

    group_file(k, name, k->events ? k->events : k->file, path);
    for (;;) {
        _cleanup_free_ char *text = NULL;
        size_t len = 0;
        int r = io_read_file(AT_FDCWD, path, TEXT_BYTES, &text, &len, e);

        if (r < 0)
            return r;
        if (k->events ? strstr(text, wanted) != NULL : str_eq(text, wanted))
            return 0;
        if (clock_until_ms(deadline) == 0)
            return err_set(e, ERR_DEADLINE, "a process of the box does not stand still");
        (void)poll(NULL, 0, pause_ms);
        pause_ms = pause_ms < POLL_MOST_MS ? pause_ms * 2 : pause_ms;
    }
}

int freezer_freeze(const char *name, int64_t timeout_ms, struct err *e)
{
    const struct freezer_kind *k = find_kind(name);
    int r;

    if (!k)
        return err_set(e, ERR_NOT_FOUND, "there is no freezer for the control group '%s'", name);
    r = write_state(k, name, k->frozen, e);
    if (r == 0)
        r = wait_state(k, name, k->is_frozen, timeout_ms, e);
    if (r < 0)
        (void)write_state(k, name, k->thawed, NULL);
    return r;
}

bool freezer_is_frozen(const char *name)
{
    const struct freezer_kind *k = find_kind(name);

    return k && wait_state(k, name, k->is_frozen, 0, NULL) == 0;
}

int freezer_thaw(const char *name, int64_t timeout_ms, struct err *e)
{
    const struct freezer_kind *k = find_kind(name);
    int r = k ? write_state(k, name, k->thawed, e) : 0;

    return r == 0 && k ? wait_state(k, name, k->is_thawed, timeout_ms, e) : r;
}

/* ---- frozen for a moment ---- */

/* Thaws the group unless it was told that this has been done. Status 0: it is thawed. */
static void guard_child(const char *name, int fd)
{
    int64_t deadline_ms;
    char told;
    int r;
    ssize_t n;

    (void)setsid(); /* a signal for the group of the command's processes is not for this one */
    do
        n = read(fd, &told, 1);
    while (n < 0 && errno == EINTR);
    deadline_ms = clock_mono_ms() + GUARD_THAW_MS;
    do
        r = n == 1 ? 0 : freezer_thaw(name, GUARD_TRY_MS, NULL);
    while (r < 0 && clock_until_ms(deadline_ms) > 0 && poll(NULL, 0, POLL_MOST_MS) == 0);
    _exit(r < 0);
}

/* A child that is not told that the group is thawed goes on trying. True: the group is thawed. */
static bool guard_dismiss(struct freezer_guard *g, bool is_thawed)
{
    int status = 0;

    if (is_thawed)
        (void)!write(g->fd, "t", 1);
    fd_close(TAKE_FD(g->fd));
    while (waitpid(g->child, &status, 0) < 0)
        if (errno != EINTR)
            return is_thawed;
    return is_thawed || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int freezer_guard_begin(struct freezer_guard *g, const char *name, int64_t timeout_ms,
                        struct err *e)
{
    int ends[2], r;

    (void)snprintf(g->name, sizeof(g->name), "%s", name);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(e, errno, "pipe");
    g->child = fork();
    if (g->child == 0) {
        fd_close(ends[1]);
        guard_child(g->name, ends[0]);
    }
    fd_close(ends[0]);
    g->fd = ends[1];
    if (g->child < 0) {
        fd_close(TAKE_FD(g->fd));
        return err_sys(e, errno, "fork");
    }
    r = freezer_freeze(g->name, timeout_ms, e);
    if (r < 0 && !guard_dismiss(g, false))
        return err_wrap(e, r, "the box stays frozen");
    return r;
}

int freezer_guard_end(struct freezer_guard *g, int64_t timeout_ms, struct err *e)
{
    int r = freezer_thaw(g->name, timeout_ms, e);

    if (guard_dismiss(g, r == 0))
        return 0;
    return err_wrap(e, r, "the box stays frozen");
}
