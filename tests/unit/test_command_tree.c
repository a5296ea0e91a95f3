#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/process.h"
#include "proc/command_tree.h"

/* No other run of these tests, which may be on the same machine, has this number. */
static uint32_t own_instance(void)
{
    return (uint32_t)getpid() * 2;
}

static rlim_t own_mark(uint32_t serial)
{
    return command_tree_mark(own_instance(), serial);
}

/* Also ends when the test has failed: the process may be in another session and group. */
__attribute__((noreturn)) static void wait_to_be_killed(void)
{
    (void)alarm(T_ALARM_S);
    for (;;)
        (void)pause();
}

static void set_mark(rlim_t mark)
{
    struct rlimit lim = {mark, mark};

    T_INT(setrlimit(RLIMIT_RTTIME, &lim), 0);
}

/*
 * Starts a process with this mark (0: none) in a session of its own, which starts `n` more that
 * leave the session.
 */
static pid_t start_tree(rlim_t mark, int n)
{
    int ready[2];
    char byte;
    pid_t pid;

    T_INT(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        (void)setsid();
        if (mark)
            set_mark(mark);
        for (int i = 0; i < n; i++) {
            if (fork() != 0)
                continue;
            (void)setsid();
            (void)!write(ready[1], "x", 1);
            wait_to_be_killed();
        }
        (void)!write(ready[1], "x", 1);
        wait_to_be_killed();
    }
    for (int i = 0; i <= n; i++)
        T_INT(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    return pid;
}

static void capture(struct command_tree *t, pid_t leader, rlim_t mark)
{
    struct process_stat s = {0};

    T_OK(process_read(leader, &s));
    command_tree_init(t, leader, s.start, false, mark);
}

/* Kills the tree and checks that no member is left. */
static void end_tree(struct command_tree *t)
{
    size_t left = 1;

    T_INT(command_tree_kill(t, 60000, &left, NULL), 0);
    T_INT(left, 0);
    T_INT(waitpid(t->leader, NULL, 0), t->leader);
    command_tree_done(t);
}

TEST(tree_counts_and_kills_its_own_and_nobody_else)
{
    rlim_t mark_a = own_mark(1), mark_b = own_mark(2);
    struct command_tree a, b;
    size_t n = 0;

    capture(&a, start_tree(mark_a, 3), mark_a);
    capture(&b, start_tree(mark_b, 1), mark_b);
    T_INT(command_tree_count(&a, &n, NULL), 0);
    T_INT(n, 4);
    end_tree(&a);
    T_INT(command_tree_count(&b, &n, NULL), 0);
    T_INT(n, 2);
    end_tree(&b);
}

TEST(tree_members_are_found_by_either_mark_after_the_leader)
{
    const int limits[] = COMMAND_TREE_MARK_LIMITS;

    for (size_t i = 0; i < N_ELEMENTS(limits); i++) {
        rlim_t mark = own_mark((uint32_t)i);
        pid_t leader = start_tree(0, 2);
        struct rlimit lim = {mark, mark};
        uint32_t serial = 99;
        struct command_tree t;
        size_t n = 0;

        /* Set before the fork it would mark the parent, too. */
        capture(&t, leader, mark);
        T_INT(command_tree_count(&t, &n, NULL), 0);
        T_INT(n, 3);
        for (size_t k = 0; k < t.seen.n; k++)
            if (t.seen.rows[k].is_member)
                T_INT(prlimit(t.seen.rows[k].stat.pid, limits[i], &lim, NULL), 0);
        T_OK(command_tree_find_serial(leader, own_instance(), &serial));
        T_INT(serial, i);
        T_OK(!command_tree_find_serial(leader, own_instance() + 1, &serial));
        command_tree_done(&t);

        T_INT(kill(leader, SIGKILL), 0);
        T_INT(waitpid(leader, NULL, 0), leader);
        command_tree_init(&t, leader, 0, true, mark);
        T_INT(command_tree_count(&t, &n, NULL), 0);
        T_INT(n, 2);
        T_INT(command_tree_kill(&t, 60000, &n, NULL), 0);
        T_INT(n, 0);
        command_tree_done(&t);
    }
}

TEST(tree_of_a_leader_that_was_waited_for_has_no_members_without_the_mark)
{
    pid_t other = start_tree(
        0, 1); /* it has the pid, the session and the group of the process that is gone */
    struct command_tree t;
    size_t n = 99;

    command_tree_init(&t, other, 0, true, own_mark(1));
    T_INT(command_tree_count(&t, &n, NULL), 0);
    T_INT(n, 0);
    T_INT(command_tree_kill(&t, 0, &n, NULL), 0);
    T_INT(command_tree_signal(&t, SIGKILL, &n, NULL), 0);
    T_INT(n, 0);
    command_tree_done(&t);
    capture(&t, other, own_mark(2));
    T_INT(command_tree_count(&t, &n, NULL), 0);
    T_INT(n, 2);
    end_tree(&t);
}

TEST(tree_whose_leader_is_waited_for_later_loses_the_session_and_keeps_its_members)
{
    struct command_tree fresh, t;
    pid_t leader = start_tree(0, 2);
    size_t n = 0;

    capture(&fresh, leader, own_mark(1));
    capture(&t, leader, own_mark(1));
    T_INT(command_tree_count(&t, &n, NULL), 0);
    T_INT(n, 3);
    T_INT(kill(leader, SIGKILL), 0);
    T_INT(waitpid(leader, NULL, 0), leader);
    T_INT(command_tree_count(&fresh, &n, NULL),
          0); /* no search was made while they could be recognised */
    T_INT(n, 0);
    command_tree_done(&fresh);
    T_INT(command_tree_count(&t, &n, NULL), 0);
    T_INT(n, 2);
    T_INT(command_tree_kill(&t, 60000, &n, NULL), 0);
    T_INT(n, 0);
    command_tree_done(&t);
}

/* In a process of its own: gets the mark and finds the members of a tree that it starts. */
static int count_below(rlim_t mark, bool is_older)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        pid_t agent;

        set_mark(mark);
        agent = fork();
        if (agent == 0) {
            size_t n = 99;
            struct command_tree t;

            capture(&t, start_tree(0, 1), mark);
            t.start += is_older ? 1000 : 0;
            T_INT(command_tree_count(&t, &n, NULL), 0);
            for (size_t i = 0; i < t.seen.n; i++)
                T_OK(!t.seen.rows[i].is_member || t.seen.rows[i].stat.pid != getppid());
            t.start = 0;
            end_tree(&t);
            _exit((int)n);
        }
        T_INT(waitpid(agent, &status, 0), agent);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
    }
    T_INT(waitpid(pid, &status, 0), pid);
    T_OK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(tree_never_has_the_caller_its_ancestors_or_a_process_older_than_the_command)
{
    T_INT(count_below(own_mark(1), false), 2);
    T_INT(count_below(own_mark(1), true), 0);
}

/* Starts a process in a session of its own whose parent is the returned child. */
static pid_t start_grandchild(pid_t *ret)
{
    int up[2];
    pid_t pid;

    T_INT(pipe(up), 0);
    pid = fork();
    if (pid == 0) {
        pid_t below = start_tree(0, 0);

        (void)!write(up[1], &below, sizeof(below));
        T_INT(waitpid(below, NULL, 0), below);
        _exit(0);
    }
    T_INT(read(up[0], ret, sizeof(*ret)), sizeof(*ret));
    (void)close(up[0]);
    (void)close(up[1]);
    return pid;
}

TEST(tree_of_a_leader_that_is_no_child_has_no_members_without_the_mark)
{
    pid_t grandchild = 0, child = start_grandchild(&grandchild);
    struct command_tree t;
    size_t n = 99;

    capture(&t, grandchild, own_mark(1));
    T_INT(command_tree_count(&t, &n, NULL), 0);
    T_INT(n, 0);
    command_tree_done(&t);
    T_INT(kill(grandchild, SIGKILL), 0);
    T_INT(waitpid(child, NULL, 0), child);
}

TEST(tree_marks_of_an_agent_within_an_agent_are_lower_than_its_own)
{
    struct rlimit lim = {command_tree_mark(1000, 7), command_tree_mark(1000, 7)};

    T_INT(command_tree_mark(command_tree_new_instance(UINT32_MAX), 0) >> 62, 1);
    T_INT(setrlimit(RLIMIT_RSS, &lim), 0);
    for (uint32_t random = 0; random < 5000; random += 7)
        T_OK(command_tree_mark(command_tree_new_instance(random), UINT32_MAX) < lim.rlim_max);
}

TEST(tree_refuses_a_leader_that_can_be_no_command)
{
    static const pid_t leaders[] = {1, 0, -1};

    for (size_t i = 0; i < N_ELEMENTS(leaders); i++) {
        pid_t pid = fork();
        int status;

        if (pid == 0) {
            struct command_tree t;

            (void)close(2); /* the assertion's message */
            command_tree_init(&t, leaders[i], 0, false, own_mark(1));
            _exit(0);
        }
        T_INT(waitpid(pid, &status, 0), pid);
        T_OK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

static void *sleep_on(void *arg)
{
    char byte = 'x';

    (void)!write(*(int *)arg, &byte, 1);
    for (;;)
        (void)pause();
    return NULL;
}

TEST(tree_kills_a_process_whose_first_thread_has_ended)
{
    struct process_stat s = {0};
    int ready[2];
    char byte;
    size_t n = 0;
    struct command_tree t;
    pid_t pid;

    T_INT(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        pthread_t thread;

        (void)setsid();
        if (pthread_create(&thread, NULL, sleep_on, &ready[1]) != 0)
            _exit(1);
        pthread_exit(NULL);
    }
    T_INT(read(ready[0], &byte, 1), 1);
    do
        T_OK(process_read(pid, &s));
    while (s.state != 'Z');
    T_OK(!process_has_ended(&s));
    capture(&t, pid, own_mark(1));
    T_INT(command_tree_count(&t, &n, NULL), 0);
    T_INT(n, 1);
    end_tree(&t);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

TEST(tree_signal_reaches_every_member_also_stopped_ones)
{
    rlim_t mark = own_mark(3);
    int64_t deadline = clock_mono_ms() + 60000;
    struct command_tree a;
    size_t n = 0;

    capture(&a, start_tree(mark, 2), mark);
    T_INT(command_tree_signal(&a, SIGSTOP, &n, NULL), 0);
    T_INT(n, 3);
    T_INT(command_tree_signal(&a, SIGTERM, &n, NULL), 0);
    T_INT(n, 3);
    do
        T_INT(command_tree_count(&a, &n, NULL), 0);
    while (n > 0 && clock_mono_ms() < deadline);
    T_INT(n, 0);
    T_INT(waitpid(a.leader, NULL, 0), a.leader);
    command_tree_done(&a);
}

/* Forks as fast as it can, up to a bound; none of its children exits by itself. */
static pid_t start_forking(rlim_t mark)
{
    int ready[2];
    char byte;
    pid_t pid;

    T_INT(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        (void)setsid();
        set_mark(mark);
        (void)alarm(T_ALARM_S);
        for (int i = 0; i < 3000; i++) {
            if (fork() == 0)
                wait_to_be_killed();
            if (i == 0)
                (void)!write(ready[1], "x", 1);
        }
        wait_to_be_killed();
    }
    T_INT(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    return pid;
}

TEST(tree_signal_that_ends_misses_nothing_that_is_forked_meanwhile)
{
    rlim_t mark = own_mark(4);
    int64_t deadline = clock_mono_ms() + 90000;
    struct command_tree a;
    size_t n = 0;

    capture(&a, start_forking(mark), mark);
    T_INT(command_tree_signal(&a, SIGTERM, &n, NULL), 0);
    T_OK(n > 0);
    do
        T_INT(command_tree_count(&a, &n, NULL), 0);
    while (n > 0 && clock_mono_ms() < deadline);
    if (n > 0)
        (void)command_tree_kill(&a, 5000, &(size_t){0}, NULL);
    T_INT(n, 0);
    T_INT(waitpid(a.leader, NULL, 0), a.leader);
    command_tree_done(&a);
}
