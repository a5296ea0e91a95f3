#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/io.h"

#include "common/banned.h"

int cli_get_box(struct cli *c, const char *name, struct bh_box **ret, struct bh_error *err)
{
    return bh_get(c->ctx, name, ret, err);
}

static int write_output(void *arg, int stream, const char *data, size_t len)
{
    (void)arg;
    return io_write_all(stream == 2 ? STDERR_FILENO : STDOUT_FILENO, data, len, NULL) < 0;
}

/* Signal names that a shell would turn into 128 + n. */
static int signal_number(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {{"SIGHUP", 1},   {"SIGINT", 2},   {"SIGQUIT", 3},  {"SIGILL", 4},
                   {"SIGTRAP", 5},  {"SIGABRT", 6},  {"SIGBUS", 7},   {"SIGFPE", 8},
                   {"SIGKILL", 9},  {"SIGUSR1", 10}, {"SIGSEGV", 11}, {"SIGUSR2", 12},
                   {"SIGPIPE", 13}, {"SIGALRM", 14}, {"SIGTERM", 15}, {"SIGXCPU", 24},
                   {"SIGXFSZ", 25}, {"SIGSYS", 31}};

    for (size_t i = 0; i < N_ELEMENTS(signals); i++)
        if (strcmp(signals[i].name, name) == 0)
            return signals[i].number;
    return 0;
}

int cli_exit_for_run(struct cli *c, const struct bh_run_result *r)
{
    if (strcmp(r->reason, "exited") == 0)
        return r->code;
    if (strcmp(r->reason, "timeout") == 0) {
        cli_warn(c, "the command ran out of time and was ended");
        return EXIT_EXEC_TIMEOUT;
    }
    if (strcmp(r->reason, "oom") == 0)
        cli_warn(c, "the command used more memory than it may, and was killed");
    if (strcmp(r->reason, "lost") == 0) {
        cli_warn(c, "what became of the command is not known");
        return EXIT_EXEC_BELLHOP;
    }
    return 128 + signal_number(r->signal);
}

/* Errors of exec have the statuses that env(1) and docker use, so that CMD's own stand out. */
int cli_exit_for_exec(struct cli *c, const struct bh_error *err)
{
    bool is_command = strncmp(err->field, "argv", 4) == 0;

    if (err->code == BH_CANCELED)
        return EXIT_CLI_INTERRUPTED;
    cli_print_error(c, err);
    if (is_command && err->code == BH_NOT_FOUND)
        return EXIT_EXEC_NOT_FOUND;
    return is_command ? EXIT_EXEC_CANNOT_RUN : EXIT_EXEC_BELLHOP;
}

int cli_run_attached(struct cli *c, const char *name, const struct cli_run *run,
                     struct bh_error *err)
{
    struct bh_run_options opts = {.size = sizeof(opts)};
    struct bh_run_result result = {.size = sizeof(result)};
    _cleanup_box_ struct bh_box *box = NULL;
    _cleanup_close_ int null_fd = -1;
    struct cli_signals *signals = NULL;
    struct bh_ctx *ctx = NULL;
    char id[40] = "cli-";
    int r;

    if (io_random_hex(8, id + strlen(id), NULL) < 0)
        return cli_fail(err, BH_INTERNAL, "", "no random bytes");
    r = cli_signals_start(c, name, id, run->pty, &signals, err);
    if (r < 0)
        return r;
    /* A context whose cancel_fd is the second ^C; the first goes to the command. */
    r = bh_open(&c->opts, &ctx, err);
    if (r == 0)
        r = bh_get(ctx, name, &box, err);
    opts.argv = run->argv;
    opts.shell = run->shell;
    opts.cwd = run->cwd;
    opts.user = run->user;
    opts.env = run->env;
    opts.timeout_ms = run->timeout_ms;
    opts.pty = run->pty;
    opts.id = id;
    opts.stdin_fd = run->no_stdin ? -1 : STDIN_FILENO;
    opts.output = write_output;
    cli_window_size(&opts.cols, &opts.rows);
    if (r == 0 && run->pty)
        r = cli_raw_mode(STDIN_FILENO, err);
    if (r == 0)
        r = bh_run(box, &opts, &result, err);
    cli_raw_restore();
    box = bh_box_free(box);
    (void)bh_close(ctx);
    (void)cli_signals_stop(signals);
    return r < 0 ? cli_exit_for_exec(c, err) : cli_exit_for_run(c, &result);
}
