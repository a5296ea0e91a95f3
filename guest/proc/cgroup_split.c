#include "proc/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/process.h"
#include "common/str.h"
#include "proc/oom.h"

#define AGENT "bellhop-agent"
#define BOX "bellhop-box"
#define AGENT_CPU_WEIGHT "500" /* five times what a group has by default */
#define RESERVE_MIN_BYTES \
    (24 << 20)           /* of memory, kept from commands; a sixteenth if that is more */
#define RESERVE_PIDS 128 /* processes kept from commands; an eighth if that is more */
#define ANCESTORS_MAX 64
/* Of processes that the agent's process had started before it executed the agent, and itself. */
#define MEMBERS_MAX 64

struct cgroup_split {
    char own[CGROUP_PATH_BYTES]; /* the group that the agent was found in */
    char agent[CGROUP_PATH_BYTES + 16], box[CGROUP_PATH_BYTES + 16];
    bool is_machine; /* own is the root of the hierarchy: it stays divided while the machine runs */
};

/* Set once, before there are threads. own is empty: nothing was set up. */
static struct cgroup_split split_state;

static const char *const wanted_controllers[] = {"cpu", "memory", "pids", "io"};

/* ---- files ---- */

static void write_number(const char *dir, const char *file, uint64_t n)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%" PRIu64, n);
    (void)cgroup_write(dir, file, text, NULL);
}

/* As cgroup_read_number(), but UINT64_MAX if there is none ("max"). */
static uint64_t read_bound(const char *dir, const char *file, const char *name)
{
    int64_t n = cgroup_read_number(dir, file, name);

    return n < 0 ? UINT64_MAX : (uint64_t)n;
}

static bool has_word(const char *dir, const char *file, const char *word)
{
    _cleanup_free_ char *text = cgroup_read(dir, file);
    char *rest = text, *one;

    while ((one = strsep(&rest, " \n")))
        if (str_eq(one, word))
            return true;
    return false;
}

/* ---- does the group belong to the agent? ---- */

/*
 * A shell may have started processes before it executed the agent: they descend from the agent's
 * pid.
 */
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

/*
 * The members of the group, if all are the agent's; else -1. The kernel lists pids of other
 * namespaces as 0.
 */
static int own_members(const char *dir, pid_t members[MEMBERS_MAX])
{
    _cleanup_free_ char *text = cgroup_read(dir, "cgroup.procs");
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

/* Groups that an earlier agent left below are no obstacle, unless that agent still runs. */
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
           read_bound(agent, "cgroup.events", "populated") != 0;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n > m && str_eq(s + n - m, end);
}

static bool is_delegated(const char *dir)
{
    static const char *const names[] = {"trusted.delegate", "user.delegate"};
    char value;

    for (size_t i = 0; i < N_ELEMENTS(names); i++)
        if (getxattr(dir, names[i], &value, 1) == 1 && value == '1')
            return true;
    return false;
}

/*
 * A group below a unit of systemd belongs to systemd, unless the unit has Delegate=, which an
 * attribute marks. Without a visible unit (in a container, under another init) no manager owns the
 * group.
 */
static bool belongs_to_manager(const char *dir)
{
    static const char *const kinds[] = {".service", ".scope",  ".slice",
                                        ".mount",   ".socket", ".swap"};
    char path[CGROUP_PATH_BYTES], *slash;

    (void)snprintf(path, sizeof(path), "%s", dir);
    while ((slash = strrchr(path, '/')) && slash != path) {
        for (size_t i = 0; i < N_ELEMENTS(kinds); i++)
            if (ends_with(slash, kinds[i]))
                return !is_delegated(path);
        *slash = '\0';
    }
    return false;
}

/* Another agent's group for a command: that agent counts and kills its members. */
static bool is_of_other_agent(const char *dir)
{
    return strstr(dir, "/" BOX "/") || ends_with(dir, "/" BOX) || ends_with(dir, "/" AGENT);
}

/* The division needs at least one of these. */
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
    if (!cgroup_can_access(dir, "cgroup.procs", W_OK) ||
        !cgroup_can_access(dir, "cgroup.subtree_control", W_OK))
        return err_set(e, ERR_UNIMPLEMENTED, "'%s' may not be divided", dir);
    if (belongs_to_manager(dir))
        return err_set(e, ERR_UNIMPLEMENTED, "'%s' is not delegated", dir);
    if (own_members(dir, members) <= 0 || has_others_below(dir))
        return err_set(e, ERR_UNIMPLEMENTED, "'%s' has others in it", dir);
    return 0;
}

/* The first process of the machine. In a pid namespace the root of the hierarchy is the host's. */
static bool is_machines_first(void)
{
    return getpid() == 1 && oom_has_kernels_pids();
}

static int find_own_group(struct err *e)
{
    int r = cgroup_find_own(split_state.own, e);

    if (r < 0)
        return r;
    /* Only the root has no type. */
    split_state.is_machine = !cgroup_can_access(split_state.own, "cgroup.type", F_OK);
    if (!split_state.is_machine)
        return check_own(split_state.own, e);
    return is_machines_first() ? 0 : err_set(e, ERR_UNIMPLEMENTED, "in no group");
}

/* ---- division ---- */

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The lowest bound of the group and its visible ancestors. */
static uint64_t read_lowest_bound(const char *file)
{
    uint64_t n = UINT64_MAX;
    char dir[CGROUP_PATH_BYTES], *slash;

    (void)snprintf(dir, sizeof(dir), "%s", split_state.own);
    do {
        n = min_u64(n, read_bound(dir, file, NULL));
        slash = strrchr(dir, '/');
        if (slash)
            *slash = '\0';
    } while (slash && cgroup_can_access(dir, "cgroup.procs", F_OK));
    return n;
}

/*
 * Enables the controllers that exist: a command's limit that needs another is refused by name
 * later. EBUSY: a process has entered the group meanwhile.
 */
static int enable_controllers(const char *dir, struct err *e)
{
    for (size_t i = 0; i < N_ELEMENTS(wanted_controllers); i++) {
        struct err why = {0};
        char text[16];

        (void)snprintf(text, sizeof(text), "+%s", wanted_controllers[i]);
        if (cgroup_write(dir, "cgroup.subtree_control", text, &why) < 0 && why.sys == EBUSY)
            return err_set(e, ERR_UNIMPLEMENTED, "'%s' has others in it", dir);
    }
    return 0;
}

static void disable_controllers(const char *dir)
{
    for (size_t i = 0; i < N_ELEMENTS(wanted_controllers); i++) {
        char text[16];

        (void)snprintf(text, sizeof(text), "-%s", wanted_controllers[i]);
        (void)cgroup_write(dir, "cgroup.subtree_control", text, NULL);
    }
}

static void reserve_for_agent(void)
{
    uint64_t memory = read_bound("/proc", "meminfo", "MemTotal:");
    uint64_t pids = min_u64(
        read_bound("/proc/sys/kernel", "threads-max", NULL),
        min_u64(read_bound("/proc/sys/kernel", "pid_max", NULL), read_lowest_bound("pids.max")));

    memory = memory < UINT64_MAX / 1024 ? memory * 1024 : UINT64_MAX;
    memory = min_u64(memory, read_lowest_bound("memory.max"));
    if (memory < UINT64_MAX && memory > 2 * RESERVE_MIN_BYTES)
        write_number(split_state.box, "memory.max",
                     memory - (memory / 16 > RESERVE_MIN_BYTES ? memory / 16 : RESERVE_MIN_BYTES));
    if (pids < UINT64_MAX && pids > 2 * RESERVE_PIDS)
        write_number(split_state.box, "pids.max",
                     pids - (pids / 8 > RESERVE_PIDS ? pids / 8 : RESERVE_PIDS));
    (void)cgroup_write(split_state.agent, "cpu.weight", AGENT_CPU_WEIGHT, NULL);
    write_number(split_state.agent, "memory.min", RESERVE_MIN_BYTES / 2);
}

/*
 * Moves the agent and its listed processes. If a process has ended meanwhile, its number may belong
 * to another, which is then moved by mistake; it is put into `from`, the closest known group to its
 * own.
 */
static int move_members(const pid_t *members, int n, const char *from, const char *to,
                        struct err *e)
{
    int r = cgroup_write(to, "cgroup.procs", "0", e);

    for (int i = 0; r == 0 && i < n; i++) {
        _cleanup_close_ int fd = -1;

        if (members[i] == getpid())
            continue;
        fd = process_open(members[i]);
        if ((fd < 0 && errno != ENOSYS) || !is_of_agent(members[i]))
            continue;
        write_number(to, "cgroup.procs", (uint64_t)members[i]);
        if (fd >= 0 && !process_is_there(fd))
            write_number(from, "cgroup.procs", (uint64_t)members[i]);
    }
    return r;
}

/* In the root of a machine's hierarchy only the agent moves: kernel threads are there, too. */
static int move_to_agents_part(struct err *e)
{
    pid_t members[MEMBERS_MAX];
    int n = split_state.is_machine ? 0 : own_members(split_state.own, members);

    if (n < 0)
        return err_set(e, ERR_UNIMPLEMENTED, "'%s' has others in it", split_state.own);
    return move_members(members, n, split_state.own, split_state.agent, e);
}

static int make_part(char *path, size_t bytes, const char *name, struct err *e)
{
    (void)snprintf(path, bytes, "%s/%s", split_state.own, name);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return err_sys(e, errno, "making '%s'", path);
    return 0;
}

static int split_divide(struct err *e)
{
    int r = make_part(split_state.agent, sizeof(split_state.agent), AGENT, e);

    if (r == 0)
        r = make_part(split_state.box, sizeof(split_state.box), BOX, e);
    if (r == 0)
        r = move_to_agents_part(e);
    if (r == 0)
        r = enable_controllers(split_state.own, e);
    if (r == 0)
        r = cgroup_use_base(split_state.box, e);
    return r;
}

/* Moves all members of the agent's part back: they are the agent's own. */
static void split_take_back(void)
{
    pid_t members[MEMBERS_MAX];
    int n;

    disable_controllers(split_state.own);
    n = own_members(split_state.agent, members);
    (void)move_members(members, n, split_state.agent, split_state.own, NULL);
    (void)rmdir(split_state.agent);
    (void)rmdir(split_state.box);
    split_state.own[0] = '\0';
}

int cgroup_split_set_up(struct err *e)
{
    int r = find_own_group(e);

    if (r < 0) {
        split_state.own[0] = '\0';
        return r;
    }
    r = split_divide(e);
    if (r < 0) {
        split_take_back();
        return r;
    }
    (void)enable_controllers(split_state.box, NULL);
    reserve_for_agent();
    return 0;
}

void cgroup_split_undo(void)
{
    if (!split_state.own[0] || split_state.is_machine)
        return;
    cgroup_leave_base();
    disable_controllers(split_state.box);
    if (rmdir(split_state.box) == 0) /* else processes of commands remain, with their limits */
        split_take_back();
}
