/* holdcmd: the command `bellhopd hold`. */
#include "system/hold.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/process.h"
#include "common/str.h"

#define EXIT_USAGE 2
#define EXIT_NO_HOLD 125
#define EXIT_NO_EXEC 126
#define EXIT_NO_COMMAND 127
#define EXIT_SIGNALED 128
#define ANSWER_BYTES 640

struct hold_options {
    const char *socket, *reason, *id, *release;
    int64_t for_ms; /* HOLD_OPEN: not given */
    char **command; /* NULL: none */
    bool is_help;
};

static void print_help(FILE *to)
{
    (void)fprintf(
        to,
        "Usage: bellhopd hold [--for TIME] [--reason TEXT] [--id ID] [-- COMMAND...]\n"
        "       bellhopd hold --release ID\n\n"
        "Tells the box's agent that there is work to do, so that the box is not taken for\n"
        "idle: while COMMAND runs (its exit status is passed on), or for TIME (default\n"
        "10m, at most 24h), printing the hold's id. The same --id renews. It does\n"
        "not lengthen the box's life (a lease). Needs no token.\n\n"
        "  --socket PATH   the agent's (default $BELLHOP_HOLD_SOCKET, or %s,\n"
        "                  or %s)\n",
        HOLDSOCK_PATH, HOLDSOCK_PATH_STRICT);
}

static int print_error(int status, const struct err *e)
{
    (void)fprintf(stderr, "bellhopd hold: %s\n", e->message);
    return status;
}

static int set_option(struct hold_options *o, const char *name, const char *value, struct err *e)
{
    const struct {
        const char *name;
        const char **at;
    } texts[] = {{"--socket", &o->socket},
                 {"--reason", &o->reason},
                 {"--id", &o->id},
                 {"--release", &o->release}};

    for (size_t i = 0; i < N_ELEMENTS(texts); i++) {
        if (!str_eq(name, texts[i].name))
            continue;
        *texts[i].at = value;
        return 0;
    }
    if (!str_eq(name, "--for"))
        return err_set(e, ERR_INVALID, "unknown option '%.80s'", name);
    if (str_parse_duration(value, &o->for_ms, e) < 0 || o->for_ms < 1 || o->for_ms > HOLD_MAX_MS)
        return err_set(e, ERR_INVALID, "--for needs a time of at most 24h, such as 90s or 10m");
    return 0;
}

static int parse_arguments(int argc, char **argv, struct hold_options *o, struct err *e)
{
    for (int i = 0; i < argc; i += 2) {
        int r;

        if (str_eq(argv[i], "--help")) {
            o->is_help = true;
            return 0;
        }
        if (str_eq(argv[i], "--") || argv[i][0] != '-') {
            o->command = argv + i + (argv[i][0] == '-');
            break;
        }
        if (i + 1 == argc)
            return err_set(e, ERR_INVALID, "option '%.80s' needs a value", argv[i]);
        r = set_option(o, argv[i], argv[i + 1], e);
        if (r < 0)
            return r;
    }
    if (o->command && !o->command[0])
        return err_set(e, ERR_INVALID, "a command must follow '--'");
    if (o->release && (o->command || o->id))
        return err_set(e, ERR_INVALID, "--release goes with nothing else");
    return 0;
}

static int connect_agent(const struct hold_options *o, int *ret_fd, struct err *e)
{
    const char *env = getenv("BELLHOP_HOLD_SOCKET");
    const char *given = o->socket ? o->socket : env && *env ? env : NULL;

    if (given)
        return unixsock_connect(given, ret_fd, e);
    if (unixsock_connect(HOLDSOCK_PATH, ret_fd, NULL) == 0)
        return 0;
    return unixsock_connect(HOLDSOCK_PATH_STRICT, ret_fd, e);
}

/* Sends one line and reads one line; *ret_id has HOLD_ID_BYTES. */
static int request_hold(int fd, const struct hold_options *o, char *ret_id, struct err *e)
{
    char line[HOLDSOCK_LINE_BYTES], answer[ANSWER_BYTES] = "";
    int64_t for_ms = o->command ? o->for_ms : o->for_ms ? o->for_ms : HOLD_DEFAULT_MS;
    size_t len = 0;
    int n, r;

    n = o->release
            ? snprintf(line, sizeof(line), "release %s\n", o->release)
            : snprintf(line, sizeof(line), "%s %" PRId64 " %s %.*s\n", o->command ? "bind" : "take",
                       for_ms, o->id ? o->id : "-", HOLD_REASON_BYTES - 1,
                       o->reason    ? o->reason
                       : o->command ? o->command[0]
                                    : "");
    if (n < 0 || (size_t)n >= sizeof(line) || memchr(line, '\n', (size_t)n - 1) ||
        (o->id && (!*o->id || strchr(o->id, ' '))))
        return err_set(e, ERR_INVALID, "the id or the reason is too long, or has blanks or lines");
    r = io_write_all(fd, line, (size_t)n, e);
    while (r == 0 && len < sizeof(answer) - 1 && !memchr(answer, '\n', len)) {
        size_t got = 0;

        r = io_read_full(fd, answer + len, 1, &got, e);
        if (r == 0 && !got)
            return err_set(e, ERR_UNAVAILABLE, "the agent closed without an answer");
        len += got;
    }
    if (r < 0)
        return r;
    answer[strcspn(answer, "\n")] = '\0';
    if (!str_has_prefix(answer, "ok "))
        return err_set(e, ERR_PRECONDITION, "%s",
                       str_has_prefix(answer, "error ") ? answer + 6 : answer);
    (void)snprintf(ret_id, HOLD_ID_BYTES, "%s", answer + 3);
    return 0;
}

/*
 * Waits for the command, and forwards signals to it. Signals are taken with sigwaitinfo, not by a handler: so
 * none is forwarded after the wait, when the pid may be another process.
 */
static int wait_and_forward_signals(pid_t pid, const sigset_t *signals)
{
    int status;

    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        int sig;

        if (got == pid)
            return WIFSIGNALED(status) ? EXIT_SIGNALED + WTERMSIG(status) : WEXITSTATUS(status);
        if (got < 0 && errno != EINTR)
            return EXIT_NO_HOLD;
        sig = sigwaitinfo(signals, NULL);
        if (sig > 0 && sig != SIGCHLD)
            (void)process_signal_child(pid, sig);
    }
}

/* The terminal sends its signals to the command itself; the others are forwarded. */
static int run_command(char **command)
{
    static const int passed[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    sigset_t mask, before;
    pid_t pid;

    (void)signal(SIGCHLD, SIG_DFL); /* if it were ignored, there would be no child to wait for */
    (void)sigemptyset(&mask);
    (void)sigaddset(&mask, SIGCHLD);
    for (size_t i = 0; i < N_ELEMENTS(passed); i++)
        (void)sigaddset(&mask, passed[i]);
    (void)sigprocmask(SIG_BLOCK, &mask, &before);
    pid = fork();
    if (pid == 0) {
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        (void)execvp(command[0], command);
        (void)fprintf(stderr, "bellhopd hold: '%s': %m\n", command[0]);
        _exit(errno == ENOENT ? EXIT_NO_COMMAND : EXIT_NO_EXEC);
    }
    if (pid < 0)
        return print_error(EXIT_NO_HOLD, &(struct err){.message = "can't make a process"});
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGQUIT, SIG_IGN);
    return wait_and_forward_signals(pid, &mask);
}

int holdcmd_main(int argc, char **argv)
{
    struct hold_options o = {.for_ms = HOLD_OPEN};
    _cleanup_close_ int fd = -1;
    char id[HOLD_ID_BYTES] = "";
    struct err e = {0};

    (void)signal(SIGPIPE, SIG_DFL);
    if (parse_arguments(argc, argv, &o, &e) < 0) {
        (void)print_error(EXIT_USAGE, &e);
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (o.is_help) {
        print_help(stdout);
        return 0;
    }
    if (connect_agent(&o, &fd, &e) < 0 || request_hold(fd, &o, id, &e) < 0)
        return print_error(EXIT_NO_HOLD, &e);
    if (o.command)
        return run_command(o.command);
    if (!o.release)
        (void)printf("%s\n", id);
    return 0;
}
