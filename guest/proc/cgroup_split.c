#include "proc/cgroup_split.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/process.h"
#include "common/str.h"
#include "proc/cgroup.h"
#include "proc/oom.h"

#define AGENT "bellhop-agent"
#define BOX "bellhop-box"
#define AGENT_CPU_WEIGHT "500"       /* five times what a group has by default */
#define RESERVE_MIN_BYTES (24 << 20) /* of memory, not for commands; a sixteenth if that is more */
#define RESERVE_PIDS 128             /* of processes; an eighth if that is more */
#define FILE_MAX_BYTES 8192
#define ANCESTORS_MAX 64
#define MEMBERS_MAX \
    64 /* with the agent in its group: what it had started before it became the agent */

/* Set once, before there are threads. Empty: nothing was set up. */
static struct {
    char own[CGROUP_PATH_BYTES]; /* the group that the agent was found in */
    char agent[CGROUP_PATH_BYTES + 16], box[CGROUP_PATH_BYTES + 16];
    bool is_machine; /* the whole hierarchy, for as long as the machine runs */
} at;

static const char *const controllers[] = {"cpu", "memory", "pids", "io"};

/* ---- files ----------------------------------------------------------------------------------- */

static int put(const char *dir, const char *file, const char *text, struct err *e)
{
    _cleanup_close_ int fd = -1;
    char path[CGROUP_PATH_BYTES + 64];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, file);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        return err_sys(e, errno, "writing '%s'", path);
    return 0;
}

static void put_number(const char *dir, const char *file, uint64_t n)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%" PRIu64, n);
    (void)put(dir, file, text, NULL);
}

/* NULL: there is no such file, or more than is looked at. The caller's. */
static char *get(const char *dir, const char *file)
{
    char path[CGROUP_PATH_BYTES + 64];
    char *text = NULL;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, file);
    return io_read_file(AT_FDCWD, path, FILE_MAX_BYTES, &text, NULL, NULL) < 0 ? NULL : text;
}

static bool can(const char *dir, const char *file, int how)
{
    char path[CGROUP_PATH_BYTES + 64];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, file);
    return access(path, how) == 0;
}

/* The first number in the file, after `name` when that is not NULL; UINT64_MAX when there is none. */
static uint64_t get_number(const char *dir, const char *file, const char *name)
{
    _cleanup_free_ char *text = get(dir, file);
    const char *from = text && name ? strstr(text, name) : text;
    uint64_t n;

    return from && sscanf(from + (name ? strlen(name) : 0), " %" SCNu64, &n) == 1 ? n : UINT64_MAX;
}

static bool has_word(const char *dir, const char *file, const char *word)
{
    _cleanup_free_ char *text = get(dir, file);
    char *rest = text, *one;

    while ((one = strsep(&rest, " \n")))
        if (str_eq(one, word))
            return true;
    return false;
}

/* ---- whose group is it? ---------------------------------------------------------------------- */

/* What a shell has begun before it became the agent (exec) is the agent's. */
static bool is_of_agent(pid_t pid)
{
    for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
        struct process_stat s;

        if (pid == getpid())
            return true;
        if (!process_read(pid, &s))
            return false;
        pid = s.parent;
    }
    return pid == getpid();
}

/* The members of the group, when all are the agent's; -1: they are not. Foreign pids are told as 0. */
static int own_members(const char *dir, pid_t members[MEMBERS_MAX])
{
    _cleanup_free_ char *text = get(dir, "cgroup.procs");
    char *rest = text, *line;
    int n = 0;

    while ((line = strsep(&rest, "\n"))) {
        uint64_t pid;

        if (!*line)
            continue;
        if (n == MEMBERS_MAX || str_parse_u64(line, 1, INT32_MAX, &pid, NULL) < 0 ||
            !is_of_agent((pid_t)pid))
            return -1;
        members[n++] = (pid_t)pid;
    }
    return n;
}

/* Groups below that an earlier agent left are no obstacle, if none of it is at work. */
static bool has_others_below(const char *dir)
{
    _cleanup_closedir_ DIR *d = opendir(dir);
    char agent[CGROUP_PATH_BYTES + 16];
    struct dirent *entry;

    if (!d)
        return true;
    while ((entry = readdir(d)))
        if (entry->d_type == DT_DIR && !str_eq(entry->d_name, ".") &&
            !str_eq(entry->d_name, "..") && !str_eq(entry->d_name, AGENT) &&
            !str_eq(entry->d_name, BOX))
            return true;
    (void)snprintf(agent, sizeof(agent), "%s/" AGENT, dir);
    return has_word(agent, "cgroup.events", "populated") &&
           get_number(agent, "cgroup.events", "populated") != 0;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n > m && str_eq(s + n - m, end);
}

static bool says_delegated(const char *dir)
{
    static const char *const names[] = {"trusted.delegate", "user.delegate"};
    char value;

    for (size_t i = 0; i < N_ELEMENTS(names); i++)
        if (getxattr(dir, names[i], &value, 1) == 1 && value == '1')
            return true;
    return false;
}

/*
 * A group below one of systemd's units is systemd's, unless the unit has Delegate=, which it marks. Where
 * no unit can be seen (a container's own view, another init) there is none to ask.
 */
static bool is_managers(const char *dir)
{
    static const char *const kinds[] = {".service", ".scope",  ".slice",
                                        ".mount",   ".socket", ".swap"};
    char path[CGROUP_PATH_BYTES], *slash;

    (void)snprintf(path, sizeof(path), "%s", dir);
    while ((slash = strrchr(path, '/')) && slash != path) {
        for (size_t i = 0; i < N_ELEMENTS(kinds); i++)
            if (ends_with(slash, kinds[i]))
                return !says_delegated(path);
        *slash = '\0';
    }
    return false;
}

/* Another agent's group for a command: it is that one's to count and to end. */
static bool is_of_other_agent(const char *dir)
{
    return strstr(dir, "/" BOX "/") || ends_with(dir, "/" BOX) || ends_with(dir, "/" AGENT);
}

/* Some of what keeps commands apart needs one of these. */
static bool has_controllers(const char *dir)
{
    return has_word(dir, "cgroup.controllers", "memory") ||
           has_word(dir, "cgroup.controllers", "pids");
}

static int check_own(const char *dir, struct err *e)
{
    pid_t members[MEMBERS_MAX];

    if (is_of_other_agent(dir))
        return err_set(e, ERR_UNIMPLEMENTED, "'%s' is another agent's", dir);
    if (!has_word(dir, "cgroup.type", "domain") || !has_controllers(dir))
        return err_set(e, ERR_UNIMPLEMENTED, "'%s' has nothing to divide", dir);
    if (!can(dir, "cgroup.procs", W_OK) || !can(dir, "cgroup.subtree_control", W_OK))
        return err_set(e, ERR_UNIMPLEMENTED, "'%s' may not be divided", dir);
    if (is_managers(dir))
        return err_set(e, ERR_UNIMPLEMENTED, "'%s' is not delegated", dir);
    if (own_members(dir, members) <= 0 || has_others_below(dir))
        return err_set(e, ERR_UNIMPLEMENTED, "'%s' has others in it", dir);
    return 0;
}

/* The kernel's own first process; in a pid namespace the whole hierarchy is the host's. */
static bool is_machines_first(void)
{
    return getpid() == 1 && oom_has_kernels_pids();
}

static int find_own(struct err *e)
{
    int r = cgroup_find_own(at.own, e);

    if (r < 0)
        return r;
    /* Only the root has no type. */
    at.is_machine = !can(at.own, "cgroup.type", F_OK);
    if (!at.is_machine)
        return check_own(at.own, e);
    return is_machines_first() ? 0 : err_set(e, ERR_UNIMPLEMENTED, "in no group");
}

/* ---- dividing it ----------------------------------------------------------------------------- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Of the group and all above that can be seen. */
static uint64_t least_max(const char *file)
{
    uint64_t n = UINT64_MAX;
    char dir[CGROUP_PATH_BYTES], *slash;

    (void)snprintf(dir, sizeof(dir), "%s", at.own);
    do {
        n = least(n, get_number(dir, file, NULL));
        slash = strrchr(dir, '/');
        if (slash)
            *slash = '\0';
    } while (slash && can(dir, "cgroup.procs", F_OK));
    return n;
}

/*
 * Those that there are: a command's limit that needs another is refused by name later. Busy: somebody has
 * come into the group meanwhile.
 */
static int enable_controllers(const char *dir, struct err *e)
{
    for (size_t i = 0; i < N_ELEMENTS(controllers); i++) {
        struct err why = {0};
        char text[16];

        (void)snprintf(text, sizeof(text), "+%s", controllers[i]);
        if (put(dir, "cgroup.subtree_control", text, &why) < 0 && why.sys == EBUSY)
            return err_set(e, ERR_UNIMPLEMENTED, "'%s' has others in it", dir);
    }
    return 0;
}

static void disable_controllers(const char *dir)
{
    for (size_t i = 0; i < N_ELEMENTS(controllers); i++) {
        char text[16];

        (void)snprintf(text, sizeof(text), "-%s", controllers[i]);
        (void)put(dir, "cgroup.subtree_control", text, NULL);
    }
}

static void leave_room(void)
{
    uint64_t memory = get_number("/proc", "meminfo", "MemTotal:");
    uint64_t pids =
        least(get_number("/proc/sys/kernel", "threads-max", NULL),
              least(get_number("/proc/sys/kernel", "pid_max", NULL), least_max("pids.max")));

    memory = memory < UINT64_MAX / 1024 ? memory * 1024 : UINT64_MAX;
    memory = least(memory, least_max("memory.max"));
    if (memory < UINT64_MAX && memory > 2 * RESERVE_MIN_BYTES)
        put_number(at.box, "memory.max",
                   memory - (memory / 16 > RESERVE_MIN_BYTES ? memory / 16 : RESERVE_MIN_BYTES));
    if (pids < UINT64_MAX && pids > 2 * RESERVE_PIDS)
        put_number(at.box, "pids.max", pids - (pids / 8 > RESERVE_PIDS ? pids / 8 : RESERVE_PIDS));
    (void)put(at.agent, "cpu.weight", AGENT_CPU_WEIGHT, NULL);
    put_number(at.agent, "memory.min", RESERVE_MIN_BYTES / 2);
}

/*
 * Moves the agent and those of its processes that were listed. One may be gone by now, and its number be another's:
 * a process that is moved for that is put into `from`, the nearest there is to where it was.
 */
static int move_members(const pid_t *members, int n, const char *from, const char *to,
                        struct err *e)
{
    int r = put(to, "cgroup.procs", "0", e);

    for (int i = 0; r == 0 && i < n; i++) {
        _cleanup_close_ int fd = -1;

        if (members[i] == getpid())
            continue;
        fd = process_open(members[i]);
        if ((fd < 0 && errno != ENOSYS) || !is_of_agent(members[i]))
            continue;
        put_number(to, "cgroup.procs", (uint64_t)members[i]);
        if (fd >= 0 && !process_is_there(fd))
            put_number(from, "cgroup.procs", (uint64_t)members[i]);
    }
    return r;
}

/* As root of the machine, only itself: there are the kernel's threads as well. */
static int move_to_agents_part(struct err *e)
{
    pid_t members[MEMBERS_MAX];
    int n = at.is_machine ? 0 : own_members(at.own, members);

    if (n < 0)
        return err_set(e, ERR_UNIMPLEMENTED, "'%s' has others in it", at.own);
    return move_members(members, n, at.own, at.agent, e);
}

static int make_dir(char *path, size_t bytes, const char *name, struct err *e)
{
    (void)snprintf(path, bytes, "%s/%s", at.own, name);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return err_sys(e, errno, "making '%s'", path);
    return 0;
}

static int divide(struct err *e)
{
    int r = make_dir(at.agent, sizeof(at.agent), AGENT, e);

    if (r == 0)
        r = make_dir(at.box, sizeof(at.box), BOX, e);
    if (r == 0)
        r = move_to_agents_part(e);
    if (r == 0)
        r = enable_controllers(at.own, e);
    if (r == 0)
        r = cgroup_use_base(at.box, e);
    return r;
}

/* With the members of the agent's part, which are the agent's own. */
static void take_back(void)
{
    pid_t members[MEMBERS_MAX];
    int n;

    disable_controllers(at.own);
    n = own_members(at.agent, members);
    (void)move_members(members, n, at.agent, at.own, NULL);
    (void)rmdir(at.agent);
    (void)rmdir(at.box);
    at.own[0] = '\0';
}

int cgroup_split_set_up(struct err *e)
{
    int r = find_own(e);

    if (r < 0) {
        at.own[0] = '\0';
        return r;
    }
    r = divide(e);
    if (r < 0) {
        take_back();
        return r;
    }
    (void)enable_controllers(at.box, NULL);
    leave_room();
    return 0;
}

void cgroup_split_undo(void)
{
    if (!at.own[0] || at.is_machine)
        return;
    cgroup_leave_base();
    disable_controllers(at.box);
    if (rmdir(at.box) == 0) /* else there are processes of commands, with their limits */
        take_back();
}
