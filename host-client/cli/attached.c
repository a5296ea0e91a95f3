/* attached: commands of a box with this process's input, output and signals. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/io.h"

#include "common/banned.h"

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
    if (r->lost_bytes) {
        cli_warn(c, "%llu bytes of output were lost while the connection was broken",
                 (unsigned long long)r->lost_bytes);
        return EXIT_EXEC_BELLHOP;
    }
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

/* ---- exec ---- */

int cli_run_attached(struct cli *c, const char *name, struct bh_run_options *o,
                     struct bh_error *err)
{
    struct bh_run_result result = {.size = sizeof(result)};
    _cleanup_box_ struct bh_box *box = NULL;
    struct cli_signals *signals = NULL;
    struct bh_ctx *ctx = NULL;
    char id[40] = "cli-";
    int r;

    if (!o->id && io_random_hex(8, id + strlen(id), NULL) < 0)
        return cli_fail(err, BH_INTERNAL, "", "no random bytes");
    if (!o->id)
        o->id = id;
    r = cli_signals_start(c, name, o->id, o->pty, true, &signals, err);
    if (r < 0)
        return r;
    /* A context whose cancel_fd is the second ^C; the first goes to the command. */
    r = bh_open(&c->opts, &ctx, err);
    if (r == 0)
        r = bh_get(ctx, name, &box, err);
    if (!o->output && !c->json)
        o->output = write_output;
    cli_window_size(&o->cols, &o->rows);
    if (r == 0 && o->pty)
        r = cli_raw_mode(STDIN_FILENO, err);
    if (r == 0)
        r = bh_run(box, o, &result, err);
    cli_raw_restore();
    box = bh_box_free(box);
    (void)bh_close(ctx);
    (void)cli_signals_stop(signals);
    return r < 0 ? cli_exit_for_exec(c, err) : cli_exit_for_run(c, &result);
}

/* ---- attach ---- */

struct attached {
    struct cli *cli;
    bool pty;
    bool stdin_open;
    uint64_t bytes[3]; /* of output so far, by stream */
};

static int take_info(void *arg, const struct bh_exec_info *info)
{
    struct attached *a = arg;

    a->pty = info->pty;
    a->stdin_open = info->stdin_open;
    a->bytes[1] = info->stdout_bytes;
    a->bytes[2] = info->stderr_bytes;
    return 0;
}

static void say_gap(void *arg, int stream, uint64_t bytes)
{
    const struct attached *a = arg;

    cli_warn(a->cli, "%llu bytes of %s are not held any more", (unsigned long long)bytes,
             stream == 2 ? "standard error" : "output");
}

/* From the terminal by way of the keys that detach, from anything else as it is. */
static int follow(struct cli *c, struct bh_exec *exec, const struct attached *at, bool input,
                  struct cli_signals *signals, struct bh_run_result *result, bool *ret_detached,
                  struct bh_error *err)
{
    struct bh_follow_options f = {.size = sizeof(f),
                                  .stdin_fd = input && at->stdin_open ? STDIN_FILENO : -1,
                                  .output = write_output,
                                  .gap = say_gap,
                                  .arg = (void *)at};
    bool is_terminal = f.stdin_fd >= 0 && at->pty && isatty(STDIN_FILENO);
    struct cli_keys *keys = NULL;
    uint16_t cols, rows;
    int r = 0;

    if (is_terminal) {
        f.stdin_fd = -1;
        r = cli_keys_start(STDIN_FILENO, signals, &keys, err);
        cli_window_size(&cols, &rows);
        if (r == 0)
            r = cli_raw_mode(STDIN_FILENO, err);
        if (r == 0)
            (void)bh_exec_resize(exec, cols, rows, NULL);
        if (r == 0 && !c->quiet)
            (void)fputs("(^P ^Q detaches)\r\n", stderr);
    }
    if (r == 0)
        r = bh_exec_follow(exec, &f, result, err);
    (void)cli_keys_stop(keys, ret_detached);
    cli_raw_restore();
    return r;
}

static int attach_in(struct cli *c, struct bh_box *box, const char *id, const struct cli_attach *a,
                     struct cli_signals *signals, struct bh_error *err)
{
    struct bh_run_result result = {.size = sizeof(result)};
    struct attached at = {.cli = c};
    struct bh_exec *exec = NULL;
    bool detached = false;
    int hold = -1;
    int r = bh_exec_attach(box, id, &exec, err);

    if (r == 0)
        r = bh_exec_get(exec, take_info, &at, err);
    for (int s = 1; r == 0 && s <= 2; s++)
        bh_exec_seek(exec, s, a->only_new ? at.bytes[s] : a->offset[s]);
    if (r == 0)
        r = bh_hold(box, &hold, err);
    if (r == 0)
        r = follow(c, exec, &at, a->input || (at.pty && isatty(STDIN_FILENO)), signals, &result,
                   &detached, err);
    fd_close(hold);
    (void)bh_exec_free(exec);
    if (r == -BH_CANCELED) {
        cli_warn(c,
                 "detached; '%s' goes on: 'bellhop attach' comes back to it, 'bellhop kill' "
                 "ends it",
                 id);
        return detached ? EXIT_CLI_OK : EXIT_CLI_INTERRUPTED;
    }
    result.lost_bytes = 0; /* it was told where it happened */
    return r < 0 ? r : cli_exit_for_run(c, &result);
}

int cli_attach(struct cli *c, const char *name, const char *id, const struct cli_attach *a,
               struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    struct cli_signals *signals = NULL;
    struct bh_ctx *ctx = NULL;
    int r = cli_signals_start(c, name, id, true, false, &signals, err);

    if (r < 0)
        return r;
    r = bh_open(&c->opts, &ctx, err);
    if (r == 0)
        r = bh_get(ctx, name, &box, err);
    if (r == 0)
        r = attach_in(c, box, id, a, signals, err);
    box = bh_box_free(box);
    (void)bh_close(ctx);
    (void)cli_signals_stop(signals);
    return r < 0 ? cli_exit_for_exec(c, err) : r;
}
