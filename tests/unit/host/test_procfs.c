#include "test.h"

#include "common/cleanup.h"
#include "lib/util/procfs.h"

extern char **environ;

/* A child with the mark in its environment; it tells when it is there. */
static pid_t start(const char *script)
{
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
    char *env[] = {(char *)"PATH=/usr/bin:/bin", (char *)"BELLHOP_TEST=mark-of-this-test", NULL};
    char byte;
    pid_t pid;
    int p[2];

    T_INT(pipe(p), 0);
    pid = fork();
    if (pid == 0) {
        (void)dup2(p[1], 9);
        (void)close(p[0]);
        (void)close(p[1]);
        (void)execve("/bin/sh", argv, env);
        _exit(127);
    }
    (void)close(p[1]);
    T_INT(read(p[0], &byte, 1), 1);
    (void)close(p[0]);
    return pid;
}

TEST(a_process_is_itself_only_with_its_start_time)
{
    uint64_t start_time = procfs_start_time(getpid());

    T_OK(start_time > 0);
    T_OK(procfs_is_alive(getpid(), start_time));
    T_OK(!procfs_is_alive(getpid(), start_time + 1));
    T_OK(!procfs_kill(getpid(), start_time + 1, SIGKILL));
    T_INT(procfs_start_time(0), 0);
}

TEST(a_zombie_is_not_alive)
{
    pid_t pid = start("echo >&9; exit 0");
    uint64_t at = procfs_start_time(pid);
    siginfo_t si;

    T_INT(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), 0);
    T_INT(procfs_start_time(pid), 0);
    T_OK(!procfs_is_alive(pid, at));
}

/* It forks a child that ends at once, and one that stays and forks in turn, for as long as it
 * lives. */
TEST(a_tree_that_forks_is_ended_whole)
{
    for (int i = 0; i < 20; i++) {
        struct procfs_group g = {.mark = "BELLHOP_TEST=mark-of-this-test"};
        size_t n = 0;
        pid_t pid = start(
            "f() { /bin/true & sh -c 'sleep 0.01; exec /bin/sleep 100' 9>&- & sleep 0.01; f; };"
            " ulimit -t 20; echo >&9; exec 9>&-; f");

        T_INT(procfs_end(&g, 0, NULL), 0);
        T_INT(procfs_count(&g, &n, NULL), 0);
        T_INT(n, 0);
        T_OK(waitpid(pid, NULL, 0) == pid);
    }
}

TEST(a_marked_tree_is_ended_with_those_that_left_its_session)
{
    struct procfs_group g = {.mark = "BELLHOP_TEST=mark-of-this-test"};
    struct err e = {0};
    size_t n = 0;
    pid_t pid = start("setsid sh -c 'sleep 100 & trap \"\" TERM; sleep 100' 9>&- & "
                      "env -i /bin/sleep 100 9>&- & echo >&9; exec 9>&-; wait");

    T_INT(procfs_count(&g, &n, &e), 0);
    T_OK(n >= 3);
    T_INT(procfs_end(&g, 100, &e), 0);
    T_INT(procfs_count(&g, &n, &e), 0);
    T_INT(n, 0);
    T_OK(waitpid(pid, NULL, 0) == pid);
}
