#include "test.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "common/cleanup.h"
#include "common/process.h"

/* Starts a child that sleeps, in a process group of its own. */
static pid_t start_sleeper(void)
{
    int ready[2];
    char byte;
    pid_t pid;

    T_INT(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        (void)setpgid(0, 0);
        (void)!write(ready[1], "x", 1);
        for (;;)
            (void)pause();
    }
    T_INT(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    return pid;
}

static bool is_alive(pid_t pid)
{
    struct process_stat s;

    return process_read(pid, &s) && !process_has_ended(&s);
}

static void end_sleeper(pid_t pid)
{
    T_INT(process_signal_child(pid, SIGKILL), 0);
    T_INT(waitpid(pid, NULL, 0), pid);
}

TEST(process_signal_reaches_the_one_with_this_start_time_alone)
{
    pid_t pid = start_sleeper();
    struct process_stat s = {0};
    int status;

    T_OK(process_read(pid, &s));
    T_INT(s.parent, getpid());
    T_INT(s.n_threads, 1);
    T_STR(s.name, "test_process");
    T_OK(!process_signal(pid, s.start + 1, SIGKILL));
    T_OK(!process_signal(1, 0, SIGKILL));
    T_OK(is_alive(pid));
    T_OK(process_signal(pid, s.start, SIGTERM));
    T_INT(waitpid(pid, &status, 0), pid);
    T_INT(WTERMSIG(status), SIGTERM);
    T_OK(!process_signal(pid, s.start, SIGTERM));
}

TEST(process_descriptor_knows_when_the_process_was_waited_for)
{
    pid_t pid = start_sleeper();
    int fd = process_open(pid);
    siginfo_t si;

    T_OK(fd >= 0 && process_is_there(fd));
    T_INT(kill(pid, SIGKILL), 0);
    T_INT(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), 0);
    T_OK(process_is_there(fd)); /* a zombie keeps its pid */
    T_INT(waitpid(pid, NULL, 0), pid);
    T_OK(!process_is_there(fd));
    (void)close(fd);
}

TEST(process_signals_go_to_children_that_were_not_waited_for_only)
{
    pid_t child = start_sleeper(), stranger = 0;
    int up[2];
    pid_t parent;

    T_INT(pipe(up), 0);
    parent = fork();
    if (parent == 0) {
        stranger = start_sleeper();
        (void)!write(up[1], &stranger, sizeof(stranger));
        (void)pause();
        _exit(0);
    }
    T_INT(read(up[0], &stranger, sizeof(stranger)), sizeof(stranger));
    T_INT(process_signal_child(stranger, SIGKILL), -ESRCH);
    T_INT(process_signal_child_group(stranger, SIGKILL), -ESRCH);
    T_OK(is_alive(stranger));
    T_INT(kill(stranger, SIGKILL), 0);
    end_sleeper(parent);

    end_sleeper(child);
    T_INT(process_signal_child(child, SIGKILL), -ESRCH);
    T_INT(process_signal_child_group(child, SIGKILL), -ESRCH);
    child = start_sleeper();
    T_INT(process_signal_child_group(child, SIGKILL), 0);
    T_INT(waitpid(child, NULL, 0), child);
}

TEST(process_signals_to_no_child_at_all_are_refused)
{
    static const pid_t numbers[] = {1, 0, -1};

    for (size_t i = 0; i < N_ELEMENTS(numbers); i++)
        for (int is_group = 0; is_group < 2; is_group++) {
            pid_t pid = fork();
            int status;

            if (pid == 0) {
                (void)close(2);
                (void)(is_group ? process_signal_child_group : process_signal_child)(numbers[i], 0);
                _exit(0);
            }
            T_INT(waitpid(pid, &status, 0), pid);
            T_OK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        }
}

/* A file in the format of cgroup.procs. */
static void list_pids(const pid_t *pids, size_t n)
{
    FILE *f = fopen("procs", "w");

    T_OK(f != NULL);
    for (size_t i = 0; i < n; i++)
        (void)fprintf(f, "%d\n", pids[i]);
    (void)fclose(f);
}

TEST(process_kill_listed_kills_all_that_are_listed_but_the_caller_and_pid_1)
{
    pid_t pids[133] = {0, 1, getpid()}; /* more than two batches */
    size_t n = 0;

    for (size_t i = 3; i < N_ELEMENTS(pids); i++)
        pids[i] = start_sleeper();
    list_pids(pids, N_ELEMENTS(pids));
    T_INT(process_count_listed("procs", &n, NULL), 0);
    T_INT(n, N_ELEMENTS(pids));
    T_INT(process_kill_listed("procs", &n, NULL), 0);
    T_INT(n, N_ELEMENTS(pids));
    for (size_t i = 3; i < N_ELEMENTS(pids); i++)
        T_INT(waitpid(pids[i], NULL, 0), pids[i]);
    T_INT(process_kill_listed("none", &n, NULL), -ERR_NOT_FOUND);
}

/* The linker redirects calls of io_read_file() here (see the Makefile). */
int __wrap_io_read_file(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len,
                        struct err *e);
int __real_io_read_file(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len,
                        struct err *e);

/* The length of the text from the second read on; 0: it does not change. */
static pid_t listed_later;

int __wrap_io_read_file(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len,
                        struct err *e)
{
    int r = __real_io_read_file(dirfd, path, max, ret, ret_len, e);

    if (listed_later)
        list_pids(&listed_later, 1);
    return r;
}

TEST(process_kill_listed_spares_who_is_not_listed_any_more)
{
    pid_t member = start_sleeper(), other = start_sleeper();
    const pid_t before[] = {member, other};
    size_t n = 0;

    list_pids(before, 2);
    listed_later = member;
    T_INT(process_kill_listed("procs", &n, NULL), 0);
    T_INT(n, 2);
    T_INT(waitpid(member, NULL, 0), member);
    T_OK(is_alive(other));
    end_sleeper(other);
}

TEST(proctable_has_everyone_but_the_caller_and_pid_1_and_is_bounded)
{
    struct proctable t = {0};
    pid_t pid = start_sleeper();

    T_INT(proctable_read(&t, false, 100000, NULL), 0);
    T_OK(proctable_find(&t, pid) != NULL);
    T_OK(!proctable_find(&t, getpid()));
    T_OK(!proctable_find(&t, 1));
    for (size_t i = 1; i < t.n; i++)
        T_OK(t.rows[i - 1].stat.pid < t.rows[i].stat.pid);
    T_INT(proctable_read(&t, false, 1, NULL), -ERR_EXHAUSTED);
    T_OK(proctable_find(&t, pid) != NULL); /* unchanged */
    proctable_done(&t);
    T_OK(!proctable_find(&t, pid));
    end_sleeper(pid);
}

TEST(proctable_has_zombies_only_when_asked)
{
    struct proctable t = {0};
    pid_t pid = start_sleeper();
    siginfo_t si;

    T_INT(process_signal_child(pid, SIGKILL), 0);
    T_INT(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), 0);
    T_INT(proctable_read(&t, false, 100000, NULL), 0);
    T_OK(!proctable_find(&t, pid));
    T_INT(proctable_read(&t, true, 100000, NULL), 0);
    T_OK(proctable_find(&t, pid) != NULL);
    proctable_done(&t);
    T_INT(waitpid(pid, NULL, 0), pid);
}

TEST(process_ticks_count_the_children_it_has_waited_for)
{
    struct process_stat before = {0}, after = {0};
    pid_t pid;

    T_OK(process_read(getpid(), &before));
    T_OK(before.resident_pages > 100 && before.resident_pages < INT64_C(1) << 32);
    pid = fork();
    if (pid == 0) {
        struct process_stat own = {0};

        while (process_read(getpid(), &own) && own.ticks < 3)
            ;
        _exit(0);
    }
    T_INT(waitpid(pid, NULL, 0), pid);
    T_OK(process_read(getpid(), &after));
    T_OK(after.ticks >= before.ticks + 3);
}

TEST(proctable_is_not_read_without_descriptors)
{
    struct rlimit few = {0, 0};
    struct proctable t = {0};
    DIR *dir = opendir("/proc");

    T_OK(dir != NULL);
    few.rlim_cur = few.rlim_max = (rlim_t)dirfd(dir) + 1; /* one for /proc, none for its entries */
    T_INT(closedir(dir), 0);
    T_INT(setrlimit(RLIMIT_NOFILE, &few), 0);
    T_INT(proctable_read(&t, false, 100000, NULL), -ERR_EXHAUSTED);
    proctable_done(&t);
}

TEST(proctable_takes_no_number_of_a_parent_for_the_parent)
{
    pid_t parent = start_sleeper(), child = start_sleeper();
    struct proctable t = {0};

    T_INT(proctable_read(&t, false, 100000, NULL), 0);
    /* As if the parent's pid had belonged to another process when the child was read. */
    proctable_find(&t, child)->stat.parent = parent;
    proctable_find(&t, parent)->is_member = true;
    proctable_add_descendants(&t);
    T_INT(proctable_count_members(&t), 1);
    proctable_done(&t);
    end_sleeper(child);
    end_sleeper(parent);
}
