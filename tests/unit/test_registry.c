/* The Exec service below its JSON: commands started, read, ended, kept. */
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "common/clock.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "event/loop.h"
#include "proc/registry.h"
#include "event/pool.h"

struct box {
    struct loop *loop;
    struct pool *pool;
    struct registry *reg;
    struct registry_options options;
};

static void box_up(struct box *b)
{
    struct err e = {0};

    T_INT(loop_new(&b->loop, &e), 0);
    T_INT(pool_new(&b->pool, &e), 0);
    T_INT(registry_new(b->loop, b->pool, &b->options, &b->reg, &e), 0);
    T_INT(loop_start(b->loop, &e), 0);
}

static void box_down(struct box *b)
{
    pool_free(b->pool, 60000);
    loop_stop(b->loop);
    registry_free(b->reg);
    loop_free(b->loop);
}

/* A spec with these strings as argv. */
static struct proc_spec spec_of(const char *const *argv)
{
    struct proc_spec s;

    proc_spec_init(&s);
    for (; *argv; argv++)
        T_INT(strv_push(&s.argv, *argv, NULL), 0);
    return s;
}
#define SPEC(...) spec_of((const char *const[]){__VA_ARGS__, NULL})

static struct proc_spec script_of(const char *text)
{
    struct proc_spec s;

    proc_spec_init(&s);
    s.script = strdup(text);
    s.script_len = strlen(text);
    return s;
}

static void settle(struct proc *p, struct proc_info *ret)
{
    int64_t deadline = clock_mono_ms() + 100000;

    do {
        proc_get_info(p, ret);
        if (ret->state == PROC_ENDED || ret->state == PROC_FAILED)
            return;
        usleep(500);
    } while (clock_mono_ms() < deadline);
    T_OK(!"the command did not end");
}

static struct proc *run(struct box *b, struct proc_spec s, struct proc_info *ret)
{
    struct err e = {0};
    struct proc *p = NULL;
    bool is_new;

    T_INT(registry_start(b->reg, &s, &p, &is_new, &e), 0);
    settle(p, ret);
    return p;
}

static char *output(struct proc *p, enum proc_stream s)
{
    struct proc_output o;
    struct err e = {0};

    T_INT(proc_copy_output(p, s, &o, &e), 0);
    T_OK(!o.has_gap);
    o.head[o.head_len] = '\0';
    free(o.tail);
    return o.head;
}

static void expect_output(struct box *b, struct proc_spec s, const char *want)
{
    struct proc_info i;
    struct proc *p = run(b, s, &i);
    char *got = output(p, PROC_STDOUT);

    T_STR(got, want);
    T_INT(i.reason, REASON_EXITED);
    T_INT(i.code, 0);
    free(got);
    proc_unref(p);
}

static void expect_failure(struct box *b, struct proc_spec s, int code, const char *field)
{
    struct proc_info i;
    struct proc *p = run(b, s, &i);

    T_INT(i.state, PROC_FAILED);
    T_INT(i.error.code, code);
    T_STR(i.error.field, field);
    proc_unref(p);
}

TEST(command_gives_its_output_and_code)
{
    struct proc_info i;
    struct box b = {0};
    struct proc *p;
    char *out;

    box_up(&b);
    p = run(&b, script_of("echo out; echo err >&2; exit 3"), &i);
    T_INT(i.reason, REASON_EXITED);
    T_INT(i.code, 3);
    T_INT(i.tree, TREE_GONE);
    out = output(p, PROC_STDOUT);
    T_STR(out, "out\n");
    free(out);
    out = output(p, PROC_STDERR);
    T_STR(out, "err\n");
    free(out);
    proc_unref(p);
    box_down(&b);
}

TEST(command_killed_by_a_signal_names_it)
{
    struct proc_info i;
    struct box b = {0};

    box_up(&b);
    proc_unref(run(&b, script_of("kill -SEGV $$"), &i));
    T_INT(i.reason, REASON_SIGNALED);
    T_INT(i.signal, SIGSEGV);
    T_INT(i.code, -1);
    box_down(&b);
}

TEST(stdin_is_given_and_closed)
{
    struct proc_spec s = SPEC("sort", "-u");
    struct box b = {0};

    box_up(&b);
    s.stdin_data = strdup("b\na\nb\n");
    s.stdin_len = 6;
    expect_output(&b, s, "a\nb\n");
    expect_output(&b, SPEC("cat"), "");
    box_down(&b);
}

/* Another client writes as soon as the command runs, in a race with the launch. */
TEST(first_stdin_is_whole_and_first_though_another_client_writes_at_once)
{
    struct box b = {0};

    box_up(&b);
    for (int i = 0; i < 300; i++) {
        struct proc_spec s = SPEC("cat");
        int64_t deadline = clock_mono_ms() + 20000;
        struct proc_info info;
        struct err e = {0};
        struct proc *p = NULL;
        struct proc_written end;
        bool is_new;
        char *got;

        s.stdin_data = strdup("first\n");
        s.stdin_len = 6;
        s.stdin_open = true;
        T_INT(registry_start(b.reg, &s, &p, &is_new, &e), 0);
        while (proc_write(p, NULL, -1, "second\n", 7, &end, &e) < 0 && clock_mono_ms() < deadline)
            ;
        T_INT(end.offset, 13);
        T_INT(proc_close_stdin(p, &e), 0);
        settle(p, &info);
        got = output(p, PROC_STDOUT);
        T_STR(got, "first\nsecond\n");
        free(got);
        proc_unref(p);
    }
    box_down(&b);
}

TEST(spawn_errors_name_the_field)
{
    struct proc_spec s;
    struct box b = {0};
    char *big = malloc(200 * 1024);

    memset(big, 'x', 200 * 1024);
    big[200 * 1024 - 1] = '\0';
    box_up(&b);
    expect_failure(&b, SPEC("no-such-program-here"), ERR_NOT_FOUND, "argv[0]");
    expect_failure(&b, SPEC("/etc/passwd"), ERR_DENIED, "argv[0]");
    expect_failure(&b, SPEC("true", "a", big), ERR_INVALID, "argv[2]");
    s = SPEC("true");
    s.cwd = strdup("/no/such/dir");
    expect_failure(&b, s, ERR_NOT_FOUND, "cwd");
    s = SPEC("true");
    s.cwd = strdup("/etc/passwd");
    expect_failure(&b, s, ERR_NOT_FOUND, "cwd");
    s = SPEC("true");
    s.user = strdup("nobody-by-this-name");
    expect_failure(&b, s, ERR_NOT_FOUND, "user");
    s = SPEC("true");
    s.n_limits = 1;
    s.limits[0] = (struct spawn_limit){.resource = 999, .field = "rlimits.x"};
    expect_failure(&b, s, ERR_INVALID, "rlimits.x");
    box_down(&b);
    free(big);
}

TEST(argv_and_env_together_too_long_is_an_error)
{
    struct proc_spec s = SPEC("true");
    char *big = malloc(100 * 1024);
    struct box b = {0};

    memset(big, 'x', 100 * 1024);
    big[100 * 1024 - 1] = '\0';
    for (int i = 0; i < 100; i++)
        T_INT(strv_push(&s.argv, big, NULL), 0);
    box_up(&b);
    expect_failure(&b, s, ERR_INVALID, "argv");
    box_down(&b);
    free(big);
}

TEST(environment_is_exactly_what_was_asked)
{
    struct proc_spec s = SPEC("sh", "-c", "env -0 | tr '\\0' '\\n' | grep -v '^_=' | sort");
    char cwd[4096], want[8192];
    struct box b = {0};

    T_OK(getcwd(cwd, sizeof(cwd)));
    T_INT(setenv("PATH", "/usr/bin:/bin", 1), 0);
    T_INT(setenv("SECRET", "1", 1), 0);
    T_INT(strv_push(&s.env, "A=b c", NULL), 0);
    T_INT(strv_push(&s.env, "HOME=/nowhere", NULL), 0);
    s.cwd = strdup(cwd);
    (void)snprintf(want, sizeof(want),
                   "A=b c\nHOME=/nowhere\nLOGNAME=root\nPATH=/usr/bin:/bin\nPWD=%s\nUSER=root\n",
                   cwd);
    if (geteuid() != 0)
        t_skip("needs root");
    box_up(&b);
    expect_output(&b, s, want);
    box_down(&b);
}

TEST(no_descriptor_of_the_agent_reaches_a_command)
{
    int leak = open("/dev/null", O_RDONLY); /* not close-on-exec, on purpose */
    struct box b = {0};

    T_OK(leak >= 0);
    box_up(&b);
    expect_output(&b, SPEC("sh", "-c", "cd /proc/self/fd && echo *"), "0 1 2 3\n");
    box_down(&b);
    (void)close(leak);
}

TEST(large_script_runs_without_leaking_its_file)
{
    size_t len = 2 * 1024 * 1024;
    struct proc_spec s = script_of("");
    struct box b = {0};
    size_t at;

    free(s.script);
    s.script = malloc(len + 256);
    at = 10;
    memcpy(s.script, "#!/bin/sh\n", at);
    while (at < len) {
        memcpy(s.script + at, ": nothing at all\n", 17);
        at += 17;
    }
    at += (size_t)snprintf(s.script + at, 256, "%s", "sh -c 'ls /proc/self/fd | wc -l'\n");
    s.script_len = at;
    box_up(&b);
    expect_output(&b, s, "4\n");
    box_down(&b);
}

TEST(user_is_switched_with_groups)
{
    struct proc_spec s = SPEC("sh", "-c", "id -u; id -g; id -G; echo $HOME $USER; umask");
    struct box b = {0};

    if (geteuid() != 0)
        t_skip("needs root");
    s.user = strdup("daemon");
    s.umask = 027;
    box_up(&b);
    expect_output(&b, s, "1\n1\n1\n/usr/sbin daemon\n0027\n");
    box_down(&b);
}

TEST(background_child_does_not_hold_up_the_end)
{
    struct proc_info i;
    struct box b = {0};
    struct proc *p;

    box_up(&b);
    p = run(&b, script_of("sleep 600 & echo done"), &i);
    T_INT(i.reason, REASON_EXITED);
    T_INT(i.tree, TREE_LEFT);
    T_INT(i.bytes[PROC_STDOUT], 5);
    T_INT(proc_signal(p, SIGKILL, true, NULL), 0);
    proc_unref(p);
    box_down(&b);
}

static bool is_running(const char *words)
{
    char command[256];

    (void)snprintf(command, sizeof(command), "pgrep -fx '%s' >/dev/null", words);
    return system(command) == 0;
}

TEST(timeout_takes_the_whole_tree)
{
    char sleeps[3][32], script[256]; /* differs from those of the same test running beside it */
    struct proc_spec s;
    struct proc_info i;
    struct box b = {0};

    for (size_t k = 0; k < 3; k++)
        (void)snprintf(sleeps[k], sizeof(sleeps[k]), "sleep 777%zu.%d", 7 + k, (int)getpid());
    (void)snprintf(script, sizeof(script),
                   "setsid %s & env -i setsid sh -c '%s & wait' & trap '' TERM; %s", sleeps[0],
                   sleeps[1], sleeps[2]);
    s = script_of(script);
    s.timeout_ms = 300;
    s.kill_grace_ms = 200;
    box_up(&b);
    proc_unref(run(&b, s, &i));
    T_INT(i.reason, REASON_TIMEOUT);
    T_OK(i.tree != TREE_LEFT);
    for (size_t k = 0; k < 3; k++)
        T_OK(!is_running(sleeps[k]));
    box_down(&b);
}

TEST(signal_to_a_tree_that_can_not_be_read_fails)
{
    static const int signals[] = {SIGTERM, SIGKILL};
    struct box b = {0};

    box_up(&b);
    for (size_t i = 0; i < 2; i++) {
        struct proc_spec s = SPEC("cat");
        struct rlimit old, none;
        struct proc_info info;
        struct err e = {0};
        struct proc *p = NULL;
        struct proc_written end;
        bool is_new;
        int r;

        s.stdin_open = true;
        T_INT(registry_start(b.reg, &s, &p, &is_new, &e), 0);
        do
            proc_get_info(p, &info);
        while (info.state == PROC_STARTING);
        T_INT(getrlimit(RLIMIT_NOFILE, &old), 0);
        none = (struct rlimit){.rlim_cur = 0, .rlim_max = old.rlim_max};
        T_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
        r = proc_signal(p, signals[i], true, &e);
        T_INT(setrlimit(RLIMIT_NOFILE, &old), 0);
        T_OK(r < 0);
        T_INT(e.sys, EMFILE);
        T_OK(strstr(e.message, "no process of"));
        T_INT(proc_write(p, NULL, -1, "x", 1, &end, &e), 0); /* it runs on */
        T_INT(proc_signal(p, signals[i], true, &e), 0);
        settle(p, &info);
        T_INT(info.signal, signals[i]);
        proc_unref(p);
    }
    box_down(&b);
}

TEST(leaving_owner_cancels)
{
    struct proc_spec s = script_of("sleep 7776");
    struct err e = {0};
    struct proc_info i;
    struct box b = {0};
    struct proc *p;
    bool is_new;

    s.cancel_on_leave = true;
    box_up(&b);
    T_INT(registry_start(b.reg, &s, &p, &is_new, &e), 0);
    proc_own(p);
    proc_disown(p);
    settle(p, &i);
    T_INT(i.reason, REASON_CANCELED);
    proc_unref(p);
    box_down(&b);
}

TEST(same_id_attaches_or_is_refused)
{
    struct proc_spec a = SPEC("true"), again = SPEC("true"), other = SPEC("false");
    struct err e = {0};
    struct proc *p, *q;
    struct proc_info i;
    struct box b = {0};
    bool is_new;

    a.id = strdup("x");
    again.id = strdup("x");
    other.id = strdup("x");
    other.digest[0] = 1;
    box_up(&b);
    T_INT(registry_start(b.reg, &a, &p, &is_new, &e), 0);
    T_OK(is_new);
    T_INT(registry_start(b.reg, &again, &q, &is_new, &e), 0);
    T_OK(!is_new && p == q);
    proc_unref(q);
    T_INT(registry_start(b.reg, &other, &q, &is_new, &e), -ERR_EXISTS);
    T_STR(e.field, "id");
    settle(p, &i);
    T_INT(registry_forget(b.reg, "x", &e), 0);
    T_INT(registry_get(b.reg, "x", &q, &e), -ERR_NOT_FOUND);
    T_OK(strstr(e.message, "forgotten"));
    proc_unref(p);
    box_down(&b);
}

TEST(output_past_every_bound_is_counted)
{
    struct proc_spec s = script_of("head -c 10000000 /dev/zero; printf end");
    struct proc_output o;
    struct err e = {0};
    struct proc_info i;
    struct box b = {0};
    struct proc *p;

    s.head_bytes = 1000;
    s.tail_bytes = 500;
    box_up(&b);
    p = run(&b, s, &i);
    T_INT(proc_copy_output(p, PROC_STDOUT, &o, &e), 0);
    T_INT(i.bytes[PROC_STDOUT], 10000003);
    T_INT(o.head_len, 1000);
    T_INT(o.tail_len, 500);
    T_OK(o.has_gap);
    T_INT(i.dropped[PROC_STDOUT], 10000003 - 1500);
    T_OK(memcmp(o.tail + 497, "end", 3) == 0);
    proc_output_done(&o);
    proc_unref(p);
    box_down(&b);
}

/* Reads a stream from its start, across gaps; counts the bytes and checks them. */
static uint64_t read_seq(struct proc *p, uint64_t *ret_gaps)
{
    uint64_t at = 0, n_read = 0, held = 0;
    char want[16], buf[7777];
    size_t n;

    *ret_gaps = 0;
    for (;;) {
        int r = proc_read(p, NULL, PROC_STDOUT, at, buf, sizeof(buf), &n, &held, NULL);

        if (r == -ERR_DATA_LOSS) {
            *ret_gaps += held - at;
            at = held;
            continue;
        }
        T_INT(r, 0);
        if (n == 0)
            return n_read;
        for (size_t k = 0; k < n; k++) { /* eight bytes a line, numbered */
            (void)snprintf(want, sizeof(want), "%07u\n", (unsigned)((at + k) / 8));
            T_OK(buf[k] == want[(at + k) % 8]);
        }
        at += n;
        n_read += n;
    }
}

TEST(spilled_output_is_read_back_from_every_offset_within_its_bounds)
{
    static const struct {
        size_t spill, budget;
        const char *dir;
        uint64_t spilled;
        bool has_error;
    } cases[] = {
        {0, 0, NULL, 0, false},
        {100000000, 0, NULL, 3200000 - 1000, false},
        {500, 0, NULL, 500, false},
        {2000000, 0, "/tmp", 2000000, false},
        {100000000, 65536, NULL, 0, true}, /* less than one piece: the disk is full at once */
        {100000000, 0, "/no/such/directory", 0, true},
    };

    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        struct box b = {.options = {.spill_bytes = cases[k].budget, .spill_dir = cases[k].dir}};
        struct proc_spec s = script_of("seq -f %07.0f 0 399999");
        uint64_t gaps, kept;
        struct proc_info i;
        struct proc *p;

        s.head_bytes = 1000;
        s.tail_bytes = 500;
        s.spill_bytes = cases[k].spill;
        box_up(&b);
        p = run(&b, s, &i);
        T_INT(i.bytes[PROC_STDOUT], 3200000);
        if (cases[k].has_error)
            T_OK(i.spilled[PROC_STDOUT] <= cases[k].budget);
        else
            T_INT(i.spilled[PROC_STDOUT], cases[k].spilled);
        T_OK((i.spill_sys[PROC_STDOUT] != 0) == cases[k].has_error);
        kept = read_seq(p, &gaps);
        T_INT(gaps, i.dropped[PROC_STDOUT]);
        T_INT(kept + gaps, 3200000);
        T_OK(cases[k].spilled < 3000000 || gaps == 0);
        proc_unref(p);
        box_down(&b);
    }
}

TEST(spilled_output_of_the_oldest_gives_way_to_new)
{
    struct box b = {.options = {.spill_bytes = 4000000}};
    uint64_t gaps;
    struct proc *p[2];
    struct proc_info i;

    box_up(&b);
    for (int n = 0; n < 2; n++) {
        struct proc_spec s = script_of("seq -f %07.0f 0 399999");

        s.head_bytes = 1000;
        s.tail_bytes = 500;
        s.spill_bytes = 3200000;
        p[n] = run(&b, s, &i);
        T_INT(i.dropped[PROC_STDOUT], 0);
    }
    T_INT(read_seq(p[0], &gaps), 1500);
    T_INT(gaps, 3200000 - 1500);
    T_INT(read_seq(p[1], &gaps), 3200000);
    proc_unref(p[0]);
    proc_unref(p[1]);
    box_down(&b);
}

/* Is the id known? Returns 0 or a negative error. */
static int look_up(struct box *b, const char *id, struct err *e)
{
    struct proc *p = NULL;
    int r = registry_get(b->reg, id, &p, e);

    proc_unref(p);
    return r;
}

static void run_as(struct box *b, const char *id, const char *script)
{
    struct proc_spec s = script_of(script);
    struct proc_info i;

    s.id = strdup(id);
    proc_unref(run(b, s, &i));
}

TEST(results_are_forgotten_by_their_number_oldest_first)
{
    struct box b = {.options = {.max_kept = 3}};
    struct err e = {0};
    char id[2] = "a";

    box_up(&b);
    for (; id[0] <= 'e'; id[0]++)
        run_as(&b, id, "true");
    T_INT(look_up(&b, "a", &e), -ERR_NOT_FOUND);
    T_OK(strstr(e.message, "forgotten") != NULL);
    T_INT(look_up(&b, "b", &e), -ERR_NOT_FOUND);
    T_INT(look_up(&b, "c", &e), 0);
    T_INT(look_up(&b, "e", &e), 0);
    T_INT(look_up(&b, "f", &e), -ERR_NOT_FOUND);
    T_OK(strstr(e.message, "forgotten") == NULL);
    box_down(&b);
}

TEST(results_are_forgotten_by_their_time)
{
    struct box b = {.options = {.keep_ms = 3000}};
    int64_t deadline = clock_mono_ms() + 60000;
    struct err e = {0};

    box_up(&b);
    run_as(&b, "a", "true");
    T_INT(look_up(&b, "a", &e), 0);
    while (look_up(&b, "a", &e) == 0 && clock_mono_ms() < deadline)
        (void)usleep(10000);
    T_OK(strstr(e.message, "forgotten") != NULL);
    box_down(&b);
}

TEST(oldest_finished_output_gives_way_first_and_its_counts_stay)
{
    struct box b = {.options = {.output_bytes = 1024 * 1024}};
    struct proc *p[4];
    struct proc_info i;

    box_up(&b);
    for (int n = 0; n < 4; n++) {
        struct proc_spec s = script_of("head -c 400000 /dev/zero");

        p[n] = run(&b, s, &i);
    }
    proc_get_info(p[0], &i);
    T_INT(i.bytes[PROC_STDOUT], 400000);
    T_INT(i.dropped[PROC_STDOUT], 400000);
    proc_get_info(p[3], &i);
    T_INT(i.dropped[PROC_STDOUT], 0);
    for (int n = 0; n < 4; n++)
        proc_unref(p[n]);
    box_down(&b);
}

static void on_change(void *arg)
{
    (void)arg;
}

/* Reads the output of "seq -f %07.0f 0 n" to its end, in small steps. */
static void read_all(struct proc *p, struct proc_sub *s, uint64_t wanted)
{
    int64_t deadline = clock_mono_ms() + 100000;
    char want[16], buf[7777];
    uint64_t at = 0, held = 0;
    size_t n;

    while (at < wanted && clock_mono_ms() < deadline) {
        T_INT(proc_read(p, s, PROC_STDOUT, at, buf, sizeof(buf), &n, &held, NULL), 0);
        for (size_t k = 0; k < n; k++) {
            (void)snprintf(want, sizeof(want), "%07u\n", (unsigned)((at + k) / 8));
            T_OK(buf[k] == want[(at + k) % 8]);
        }
        at += n;
        if (!n)
            (void)usleep(1000);
    }
    T_INT(at, wanted);
}

/* The first command ended before its reader began; the others flood meanwhile. */
TEST(reader_that_must_not_miss_any_gets_all_though_the_memory_for_output_is_used_up)
{
    struct box b = {.options = {.output_bytes = 200 * 1000}};
    struct proc_sub s[3] = {0};
    struct proc *p[3];
    struct proc_info i;
    bool is_new;

    box_up(&b);
    for (int n = 0; n < 3; n++) {
        struct proc_spec spec =
            script_of(n ? "exec seq -f %07.0f 0 199999" : "exec seq -f %07.0f 0 9999");

        s[n] = (struct proc_sub){.fn = on_change, .is_lossless = true};
        T_INT(registry_start(b.reg, &spec, &p[n], &is_new, NULL), 0);
        T_INT(proc_subscribe(p[n], &s[n], NULL), 0);
        do
            proc_get_info(p[n], &i);
        while (n == 0 && i.state != PROC_ENDED && usleep(1000) == 0);
    }
    read_all(p[1], &s[1], 1600000);
    read_all(p[2], &s[2], 1600000);
    read_all(p[0], &s[0], 80000);
    for (int n = 0; n < 3; n++) {
        proc_unsubscribe(p[n], &s[n]);
        proc_unref(p[n]);
    }
    box_down(&b);
}

TEST(command_past_the_most_at_once_is_refused_at_once)
{
    struct box b = {.options = {.max_running = 2}};
    struct proc *p[3] = {0};
    struct proc_info i;
    struct err e = {0};
    bool is_new;

    box_up(&b);
    for (int n = 0; n < 3; n++) {
        struct proc_spec s = script_of("exec sleep 7979");

        T_INT(registry_start(b.reg, &s, &p[n], &is_new, &e), n < 2 ? 0 : -ERR_EXHAUSTED);
    }
    for (int n = 0; n < 2; n++) {
        int64_t deadline = clock_mono_ms() + 60000;

        while (proc_signal(p[n], SIGKILL, false, NULL) < 0 && clock_mono_ms() < deadline)
            (void)usleep(1000);
        settle(p[n], &i);
        proc_unref(p[n]);
    }
    proc_unref(run(&b, script_of("true"), &i));
    T_INT(i.code, 0);
    box_down(&b);
}

/* Runs on the reaper's own thread, so the reaper can't be faster. */
static void steal(struct loop *l, void *pid)
{
    (void)l;
    T_INT(kill(*(pid_t *)pid, SIGKILL), 0);
    T_INT(waitpid(*(pid_t *)pid, NULL, 0), *(pid_t *)pid);
}

/* A foreign waitpid() in the agent's process takes the exit status: it is lost. */
TEST(stolen_exit_status_is_lost_and_not_a_success)
{
    struct proc_spec s = script_of("exec sleep 600");
    struct proc_info i = {0}, end;
    struct box b = {0};
    struct proc *p;
    bool is_new;

    box_up(&b);
    T_INT(registry_start(b.reg, &s, &p, &is_new, NULL), 0);
    while (i.pid <= 0)
        proc_get_info(p, &i);
    T_INT(loop_post(b.loop, steal, &i.pid, NULL), 0);
    settle(p, &end);
    T_INT(end.reason, REASON_LOST);
    T_INT(end.code, -1);
    proc_unref(p);
    box_down(&b);
}

/* Runs, and its stdin stays open. */
static struct proc *start_with_stdin(struct box *b, struct proc_spec *s)
{
    struct err e = {0};
    struct proc_info i;
    struct proc *p = NULL;
    bool is_new;

    s->stdin_open = true;
    T_INT(registry_start(b->reg, s, &p, &is_new, &e), 0);
    do
        proc_get_info(p, &i);
    while (i.state == PROC_STARTING);
    return p;
}

TEST(writes_are_idempotent_by_offset)
{
    struct proc_spec s = SPEC("cat");
    struct err e = {0};
    struct proc_info i;
    struct proc_written end;
    struct box b = {0};
    struct proc *p;
    char *out;

    box_up(&b);
    p = start_with_stdin(&b, &s);
    T_INT(proc_write(p, NULL, 0, "hello", 5, &end, &e), 0);
    T_INT(proc_write(p, NULL, 0, "hello", 5, &end, &e), 0);
    T_INT(proc_write(p, NULL, 3, "lo world", 8, &end, &e), 0);
    T_INT(end.offset, 11);
    T_INT(proc_write(p, NULL, 20, "x", 1, &end, &e), -ERR_RANGE);
    T_INT(proc_close_stdin(p, &e), 0);
    settle(p, &i);
    out = output(p, PROC_STDOUT);
    T_STR(out, "hello world");
    free(out);
    T_INT(proc_write(p, NULL, -1, "x", 1, &end, &e), -ERR_PRECONDITION);
    proc_unref(p);
    box_down(&b);
}

TEST(each_writer_repeats_its_own_writes)
{
    struct proc_spec s = SPEC("cat");
    struct err e = {0};
    struct proc_info i;
    struct proc_written at;
    struct box b = {0};
    struct proc *p;
    char *out, name[16];

    box_up(&b);
    p = start_with_stdin(&b, &s);
    T_INT(proc_write(p, "one", 0, "1a ", 3, &at, &e), 0);
    T_INT(proc_write(p, "two", 0, "2a ", 3, &at, &e), 0);
    T_INT(at.offset, 3);
    T_INT(at.end, 6);
    T_INT(proc_write(p, "one", 3, "1b ", 3, &at, &e), 0);
    T_INT(proc_write(p, "one", 0, "1a 1b 1c ", 9, &at, &e), 0);
    T_INT(at.offset, 9);
    T_INT(proc_write(p, "two", 0, "2a ", 3, &at, &e), 0);
    T_INT(at.offset, 3);
    T_INT(proc_write(p, "two", 4, "x", 1, &at, &e), -ERR_RANGE);
    T_INT(proc_write(p, NULL, -1, "all ", 4, &at, &e), 0);
    T_INT(at.offset, 16);
    T_INT(proc_write(p, "one", -1, "1d\n", 3, &at, &e), 0);
    T_INT(at.offset, 12);
    /* The one that wrote first is forgotten, and nobody for a write of nothing or one that fails. */
    T_INT(proc_write(p, "three", 0, "", 0, &at, &e), 0);
    T_INT(proc_write(p, "three", 9, "x", 1, &at, &e), -ERR_RANGE);
    do
        proc_get_info(p, &i);
    while (i.stdin_written < i.stdin_accepted);
    for (int n = 0; n < PROC_WRITERS - 1; n++) {
        (void)snprintf(name, sizeof(name), "other-%d", n);
        T_INT(proc_write(p, name, 0, "\n", 1, &at, &e), 0);
    }
    T_INT(proc_write(p, "one", 12, "", 0, &at, &e), 0);
    T_INT(proc_write(p, "two", 3, "", 0, &at, &e), -ERR_RANGE);
    T_INT(proc_close_stdin(p, &e), 0);
    settle(p, &i);
    out = output(p, PROC_STDOUT);
    T_INT(strncmp(out, "1a 2a 1b 1c all 1d\n\n", 20), 0);
    free(out);
    T_INT(proc_write(p, "one", 9, "1d\n", 3, &at, &e),
          0); /* repeated after the end: as it was answered */
    T_INT(proc_write(p, "one", 12, "x", 1, &at, &e), -ERR_PRECONDITION);
    proc_unref(p);
    box_down(&b);
}

TEST(no_writer_that_waits_for_its_answer_is_forgotten)
{
    struct proc_spec s = SPEC("sleep", "1000");
    struct err e = {0};
    struct proc_info i;
    struct proc_written at;
    struct box b = {0};
    struct proc *p;
    char name[16], *fill = calloc(1, 1 << 20);

    box_up(&b);
    p = start_with_stdin(&b, &s);
    T_INT(proc_write(p, "first", 0, fill, 1 << 20, &at, &e), 0); /* more than a pipe holds */
    for (int n = 1; n < PROC_WRITERS; n++) {
        (void)snprintf(name, sizeof(name), "other-%d", n);
        T_INT(proc_write(p, name, 0, "x", 1, &at, &e), 0);
    }
    T_INT(proc_write(p, "one more", 0, "x", 1, &at, &e), -ERR_UNAVAILABLE);
    T_INT(proc_write(p, "first", 0, fill, 1 << 20, &at, &e), 0);
    T_INT(at.offset, 1 << 20);
    proc_get_info(p, &i);
    T_INT(i.stdin_accepted, (1 << 20) + PROC_WRITERS - 1);
    T_INT(proc_signal(p, SIGKILL, false, &e), 0);
    settle(p, &i);
    free(fill);
    proc_unref(p);
    box_down(&b);
}

TEST(pty_is_the_controlling_terminal)
{
    struct proc_spec s =
        SPEC("sh", "-c", "stty size; test -t 0 && echo tty; : >/dev/tty && echo ctl");

    struct box b = {0};

    s.has_pty = true;
    s.cols = 100;
    s.rows = 40;
    box_up(&b);
    expect_output(&b, s, "40 100\r\ntty\r\nctl\r\n");
    box_down(&b);
}

TEST(wait_for_eof_waits)
{
    struct proc_spec s = script_of("(sleep 0.3; echo late) & echo early");
    struct box b = {0};

    s.wait_eof = true;
    box_up(&b);
    expect_output(&b, s, "early\nlate\n");
    box_down(&b);
}

TEST(orphans_are_reaped)
{
    struct registry_counts c;
    int64_t deadline = clock_mono_ms() + 60000;
    struct proc_info i;
    struct box b = {0};

    box_up(&b);
    proc_unref(
        run(&b, script_of("(sleep 0.1 >/dev/null 2>&1 &) ; (sleep 0.1 >/dev/null 2>&1 &)"), &i));
    do {
        usleep(1000);
        registry_count(b.reg, &c);
    } while (c.adopted_total < 2 && clock_mono_ms() < deadline);
    T_OK(c.adopted_total >= 2);
    box_down(&b);
}

TEST(many_at_once_each_have_their_own_code)
{
    enum { N = 300 };
    struct proc *p[N];
    struct err e = {0};
    struct box b = {0};
    bool is_new;

    box_up(&b);
    for (int n = 0; n < N; n++) {
        char text[64];
        struct proc_spec s;

        (void)snprintf(text, sizeof(text), "echo %d; exit %d", n, n % 100);
        s = script_of(text);
        T_INT(registry_start(b.reg, &s, &p[n], &is_new, &e), 0);
    }
    for (int n = 0; n < N; n++) {
        struct proc_info i;

        settle(p[n], &i);
        T_INT(i.reason, REASON_EXITED);
        T_INT(i.code, n % 100);
        proc_unref(p[n]);
    }
    box_down(&b);
}

static size_t n_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    size_t n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        (void)closedir(d);
    return n;
}

/* On one processor the command has often ended before the thread that starts it continues. */
TEST(command_that_ends_before_its_start_has_returned_is_whole)
{
    int64_t deadline = clock_mono_ms() + 100000;
    struct registry_counts c;
    struct box b = {0};
    size_t before;
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET((unsigned)sched_getcpu(), &one);
    T_INT(sched_setaffinity(0, sizeof(one), &one), 0);
    box_up(&b);
    expect_output(&b, SPEC("echo", "first"), "first\n");
    before = n_descriptors();
    for (int n = 0; n < 200; n++)
        expect_output(&b, SPEC("echo", "some", "words"), "some words\n");
    expect_failure(&b, SPEC("/nowhere/no-program"), ERR_NOT_FOUND, "argv[0]");
    registry_count(b.reg, &c);
    T_INT(c.started_total, 201);
    T_INT(c.ended_total[REASON_EXITED], 201);
    T_INT(c.failed_total, 1);
    T_INT(c.running, 0);
    while (n_descriptors() > before && clock_mono_ms() < deadline)
        (void)usleep(1000); /* the loop may still be working on the last one */
    T_INT(n_descriptors(), before);
    box_down(&b);
}

TEST(memory_limit_ends_in_oom_or_is_refused)
{
    struct proc_spec s = script_of("exec dd if=/dev/zero of=/dev/null bs=300M count=1");
    struct proc_info i;
    struct box b = {0};

    s.cgroup.memory_bytes = 32 * 1024 * 1024;
    box_up(&b);
    proc_unref(run(&b, s, &i));
    if (i.state == PROC_FAILED) {
        T_INT(i.error.code, ERR_UNIMPLEMENTED);
        T_STR(i.error.field, "limits.memory_bytes");
    } else {
        T_INT(i.reason, REASON_OOM);
        T_INT(i.oom, OOM_YES);
        T_INT(i.signal, SIGKILL);
        T_INT(i.tree, TREE_GONE);
    }
    box_down(&b);
}

TEST(pids_limit_stops_a_fork_bomb_or_is_refused)
{
    struct proc_spec s = script_of("b() { b | b & }; b; sleep 7775");
    struct proc_info i;
    struct box b = {0};

    s.cgroup.pids = 20;
    s.timeout_ms = 500;
    s.kill_grace_ms = 100;
    box_up(&b);
    proc_unref(run(&b, s, &i));
    if (i.state == PROC_FAILED) {
        T_INT(i.error.code, ERR_UNIMPLEMENTED);
        T_STR(i.error.field, "limits.pids");
    } else {
        T_INT(i.reason, REASON_TIMEOUT);
        T_INT(i.tree, TREE_GONE);
    }
    box_down(&b);
}
