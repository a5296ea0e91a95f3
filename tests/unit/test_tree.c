#include "test.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "common/clock.h"
#include "proc/tree.h"

/* A process with this mark, in a session of its own, that made `n` more which left that session. */
static pid_t start_tree(rlim_t mark, int n)
{
    struct rlimit lim = {mark, mark};
    int ready[2];
    char byte;
    pid_t pid;

    T_INT(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        (void)setsid();
        (void)setrlimit(RLIMIT_RTTIME, &lim);
        for (int i = 0; i < n; i++) {
            if (fork() != 0)
                continue;
            (void)setsid();
            (void)!write(ready[1], "x", 1);
            (void)pause();
        }
        (void)!write(ready[1], "x", 1);
        (void)pause();
        _exit(0);
    }
    for (int i = 0; i <= n; i++)
        T_INT(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    return pid;
}

TEST(tree_counts_and_kills_its_own_and_nobody_else)
{
    struct tree a = {.mark = tree_mark(4711, 1)}, b = {.mark = tree_mark(4711, 2)};
    size_t n = 0;

    a.leader = start_tree(a.mark, 3);
    b.leader = start_tree(b.mark, 1);
    T_INT(tree_count(&a, &n, NULL), 0);
    T_INT(n, 4);
    T_INT(tree_kill(&a, 60000, &n, NULL), 0);
    T_INT(n, 0);
    T_INT(tree_count(&b, &n, NULL), 0);
    T_INT(n, 2);
    T_INT(tree_kill(&b, 60000, &n, NULL), 0);
    T_INT(waitpid(a.leader, NULL, 0), a.leader);
    T_INT(waitpid(b.leader, NULL, 0), b.leader);
}

TEST(tree_with_a_used_again_session_number_is_not_taken_for_another)
{
    struct tree a = {.mark = tree_mark(4711, 1)}, b = {.mark = tree_mark(4711, 2)};
    size_t n = 0;

    b.leader = start_tree(b.mark, 0);
    a.leader = b.leader; /* a's is long gone, and its number is b's now */
    T_INT(tree_count(&a, &n, NULL), 0);
    T_INT(n, 0);
    T_INT(tree_kill(&b, 60000, &n, NULL), 0);
    T_INT(waitpid(b.leader, NULL, 0), b.leader);
}

TEST(tree_signal_reaches_every_member_also_stopped_ones)
{
    struct tree a = {.mark = tree_mark(4711, 3)};
    int64_t deadline = clock_mono_ms() + 60000;
    size_t n = 0;

    a.leader = start_tree(a.mark, 2);
    T_INT(tree_signal(&a, SIGSTOP, &n, NULL), 0);
    T_INT(n, 3);
    T_INT(tree_signal(&a, SIGTERM, &n, NULL), 0);
    T_INT(n, 3);
    do
        T_INT(tree_count(&a, &n, NULL), 0);
    while (n > 0 && clock_mono_ms() < deadline);
    T_INT(n, 0);
    T_INT(waitpid(a.leader, NULL, 0), a.leader);
}

/* It forks as fast as it can, up to a bound, and none of its children ends by itself. */
static pid_t start_forking(rlim_t mark)
{
    struct rlimit lim = {mark, mark};
    int ready[2];
    char byte;
    pid_t pid;

    T_INT(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        (void)setsid();
        (void)setrlimit(RLIMIT_RTTIME, &lim);
        for (int i = 0; i < 3000; i++) {
            if (fork() == 0)
                for (;;)
                    (void)pause();
            if (i == 0)
                (void)!write(ready[1], "x", 1);
        }
        for (;;)
            (void)pause();
    }
    T_INT(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    return pid;
}

TEST(tree_signal_that_ends_misses_nothing_that_is_forked_meanwhile)
{
    struct tree a = {.mark = tree_mark(4711, 4)};
    int64_t deadline = clock_mono_ms() + 90000;
    size_t n = 0;

    a.leader = start_forking(a.mark);
    T_INT(tree_signal(&a, SIGTERM, &n, NULL), 0);
    T_OK(n > 0);
    do
        T_INT(tree_count(&a, &n, NULL), 0);
    while (n > 0 && clock_mono_ms() < deadline);
    if (n > 0)
        (void)tree_kill(&a, 5000, &(size_t){0}, NULL);
    T_INT(n, 0);
    T_INT(waitpid(a.leader, NULL, 0), a.leader);
}
