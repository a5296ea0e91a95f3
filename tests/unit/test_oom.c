/* oom: tells OOM kills from other deaths by counters and the kernel log. */
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "common/io.h"
#include "proc/oom.h"

TEST(oom_log_records_are_told_from_others)
{
    static const struct {
        const char *record;
        pid_t pid; /* 0: none */
        int64_t at;
    } cases[] = {
        {"3,1203,5140900123,-;Out of memory: Killed process 4711 (python3) total-vm:1kB\n", 4711,
         5140900123},
        {"3,9,77,-;Memory cgroup out of memory: Killed process 12 (a b) (c)) total-vm:1kB\n", 12,
         77},
        {"3,9,77,-;Out of memory (oom_kill_allocating_task): Killed process 12 (x)", 12, 77},
        {"6,9,77,-;systemd: Killed process 12 (x)", 0, 0},
        {"6,9,77,-;oom_reaper: reaped process 12 (x)", 0, 0},
        {"12,9,77,-;somebody\n TEXT=Out of memory: Killed process 12 (x)", 0, 0},
        {"no record: Out of memory: Killed process 12 (x)", 0, 0},
        {";Out of memory: Killed process 12 (x)", 0, 0},
        {"", 0, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t at = 0;
        pid_t pid = 0;

        T_OK(oom_parse_log(cases[i].record, &pid, &at) == (cases[i].pid != 0));
        if (!cases[i].pid)
            continue;
        T_INT(pid, cases[i].pid);
        T_INT(at, cases[i].at);
    }
}

static void set_count(int fd, long long n)
{
    char text[64];
    int len = snprintf(text, sizeof(text), "oom_kill_disable 0\nunder_oom 0\noom_kill %lld\n", n);

    T_INT(pwrite(fd, text, (size_t)len, 0), len);
}

TEST(shared_counter_says_yes_once_for_each_kill_and_never_guesses)
{
    struct oom o = {.counter_fd = open("count", O_RDWR | O_CREAT, 0600), .log_fd = -1};
    struct oom_death d = {.pid = 5, .signal = SIGKILL, .before = 3};

    set_count(o.counter_fd, 3);
    oom_check(&o);
    T_INT(oom_verdict(&o, &d), OOM_NO); /* a SIGKILL from an unknown sender */
    set_count(o.counter_fd, 4);
    T_INT(oom_verdict(&o, &d), OOM_YES);
    T_INT(oom_verdict(&o, &d),
          OOM_UNKNOWN); /* a second one at the same time: it is unknown which was killed */
    oom_check(&o);
    T_INT(oom_verdict(&o, &d), OOM_UNKNOWN); /* the count rose before the last check */
    d.before = 4;
    T_INT(oom_verdict(&o, &d), OOM_NO);
    d.is_killed_by_us = true;
    set_count(o.counter_fd, 5);
    T_INT(oom_verdict(&o, &d), OOM_NO);
    d.is_killed_by_us = false;
    d.signal = 0;
    T_INT(oom_verdict(&o, &d), OOM_NO);
    d.signal = SIGKILL;
    d.before = -1;
    T_INT(oom_verdict(&o, &d), OOM_UNKNOWN);
    oom_done(&o);
    d.before = 4;
    T_INT(oom_verdict(&o, &d), OOM_UNKNOWN); /* no counter to read */
}
