#pragma once
/*
 * test: a unit test program in one header. A file includes it once, writes
 * TEST(name_that_is_a_sentence) { ... } and has a main() that prints TAP.
 * Each test runs in its own process and process group, in an empty directory
 * that is removed afterwards, under an alarm. A failed T_ check ends that test
 * only. With the sanitizers a leak or an error fails the test it happened in.
 *
 * Run with arguments, a program runs only the tests whose names it is given.
 */

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef T_ALARM_S
#define T_ALARM_S \
    120 /* seconds a single test may take; define it before the include to change it */
#endif
#ifndef T_DIR
#define T_DIR "/tmp" /* each test has a directory of its own there, or in $TMPDIR */
#endif

#define T_EXIT_SKIP 77
#define T_REASON_BYTES 256

struct t_case {
    const char *name;
    void (*run)(void);
    struct t_case *next;
};

static struct t_case *t_first;
static struct t_case **t_last = &t_first;

static void t_register(struct t_case *c)
{
    *t_last = c;
    t_last = &c->next;
}

#define TEST(name_) \
    static void name_(void); \
    __attribute__((constructor)) static void t_register_##name_(void) \
    { \
        static struct t_case c = {.name = #name_, .run = name_}; \
        t_register(&c); \
    } \
    static void name_(void)

/* Ends the running test as failed. */
__attribute__((noreturn, format(printf, 3, 4))) static inline void
t_fail(const char *file, int line, const char *fmt, ...)
{
    va_list ap;

    (void)fprintf(stderr, "# %s:%d: ", file, line);
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fputc('\n', stderr);
    _exit(1);
}

static char *t_skip_reason; /* shared with the parent, T_REASON_BYTES long */

/* Ends the running test as skipped; the reason stands in the result. */
__attribute__((noreturn)) static inline void t_skip(const char *reason)
{
    (void)snprintf(t_skip_reason, T_REASON_BYTES, "%s", reason);
    _exit(T_EXIT_SKIP);
}

static inline void t_check_int(const char *file, int line, const char *what, long long got,
                               long long want)
{
    if (got != want)
        t_fail(file, line, "%s is %lld, expected %lld", what, got, want);
}

static inline void t_check_str(const char *file, int line, const char *what, const char *got,
                               const char *want)
{
    if (!got && !want)
        return;
    if (!got || !want || strcmp(got, want) != 0)
        t_fail(file, line, "%s is '%s', expected '%s'", what, got ? got : "(null)",
               want ? want : "(null)");
}

static inline void t_check_mem(const char *file, int line, const char *what, const void *got,
                               const void *want, size_t size)
{
    const unsigned char *g = got;
    const unsigned char *w = want;

    for (size_t i = 0; i < size; i++) {
        if (g[i] != w[i])
            t_fail(file, line, "%s differs at byte %zu: 0x%02x, expected 0x%02x", what, i, g[i],
                   w[i]);
    }
}

#define T_OK(x_) \
    do { \
        if (!(x_)) \
            t_fail(__FILE__, __LINE__, "not true: %s", #x_); \
    } while (0)
#define T_INT(got_, want_) \
    t_check_int(__FILE__, __LINE__, #got_, (long long)(got_), (long long)(want_))
#define T_STR(got_, want_) t_check_str(__FILE__, __LINE__, #got_, (got_), (want_))
#define T_MEM(got_, want_, size_) t_check_mem(__FILE__, __LINE__, #got_, (got_), (want_), (size_))
#define T_SKIP(reason_) t_skip(reason_)

static int t_remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    (void)remove(path); /* a leftover in a temporary directory fails no test */
    return 0;
}

/* Runs one test in a child; returns its wait status. */
static int t_run_in_child(const struct t_case *c, const char *dir)
{
    int status = 0;
    pid_t pid;

    (void)fflush(NULL);
    pid = fork();
    if (pid < 0)
        return 1 << 8;
    if (pid == 0) {
        (void)setpgid(0, 0);
        if (chdir(dir) < 0)
            _exit(1);
        (void)alarm(T_ALARM_S);
        c->run();
        exit(0); /* not _exit: the leak check runs at exit */
    }

    (void)setpgid(pid, pid);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    (void)kill(-pid, SIGKILL); /* processes that the test left behind in its group */
    return status;
}

static bool t_report(int number, const struct t_case *c, int status)
{
    bool skipped = WIFEXITED(status) && WEXITSTATUS(status) == T_EXIT_SKIP;
    bool ok = skipped || (WIFEXITED(status) && WEXITSTATUS(status) == 0);

    if (WIFSIGNALED(status))
        (void)fprintf(stderr, "# %s: killed by signal %d%s\n", c->name, WTERMSIG(status),
                      WTERMSIG(status) == SIGALRM ? ", it took too long" : "");
    (void)printf("%sok %d %s%s%s\n", ok ? "" : "not ", number, c->name, skipped ? " # skip " : "",
                 skipped ? t_skip_reason : "");
    (void)fflush(stdout);
    return ok;
}

static bool t_is_wanted(const struct t_case *c, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], c->name) == 0)
            return true;
    }
    return argc < 2;
}

int main(int argc, char **argv)
{
    const char *tmp = getenv("TMPDIR");
    char dir[4096];
    int n_wanted = 0;
    int number = 0;
    bool ok = true;

    for (struct t_case *c = t_first; c; c = c->next)
        n_wanted += t_is_wanted(c, argc, argv);
    (void)printf("1..%d\n", n_wanted);
    t_skip_reason =
        mmap(NULL, T_REASON_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t_skip_reason == MAP_FAILED) {
        perror("mmap");
        return 1;
    }

    for (struct t_case *c = t_first; c; c = c->next) {
        if (!t_is_wanted(c, argc, argv))
            continue;
        (void)snprintf(dir, sizeof dir, "%s/bellhop-unit-XXXXXX", tmp ? tmp : T_DIR);
        if (!mkdtemp(dir)) {
            perror("mkdtemp");
            return 1;
        }
        ok = t_report(++number, c, t_run_in_child(c, dir)) && ok;
        (void)nftw(dir, t_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    }
    return ok ? 0 : 1;
}
