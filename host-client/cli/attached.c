/* attached: commands of a box that use this process's input, output and signals. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/signals.h"

/* This process's output. */
struct sink {
    int sys; /* errno of a failed write; 0: none */
    int stream;
    bool is_pty;             /* bytes of a terminal: not escaped */
    struct cli_held held[3]; /* by stream */
};

/* Another process that shares this terminal may have made it non-blocking. */
static int write_bytes(struct sink *sink, int stream, const char *data, size_t len)
{
    int fd = stream == 2 ? STDERR_FILENO : STDOUT_FILENO;

    while (len) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        ssize_t n = write(fd, data, len);

        if (n < 0 && errno == EAGAIN)
            (void)poll(&p, 1, -1);
        else if (n < 0 && errno != EINTR) {
            *sink = (struct sink){.sys = errno, .stream = stream};
            return -1;
        }
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int write_text(struct sink *sink, int stream, const char *data, size_t len, bool is_last)
{
    _cleanup_free_ char *text = cli_escape_content(&sink->held[stream], data, len, is_last, &len);

    if (text)
        return write_bytes(sink, stream, text, len);
    *sink = (struct sink){.sys = ENOMEM, .stream = stream};
    return -1;
}

static int write_output(void *arg, int stream, const char *data, size_t len)
{
    struct sink *sink = arg;

    if (sink->is_pty || cli_shows_raw(stream == 2 ? STDERR_FILENO : STDOUT_FILENO))
        return write_bytes(sink, stream, data, len);
    return write_text(sink, stream, data, len, false);
}

/* Flushes incomplete characters that were held back for the next bytes. */
static void end_output(struct sink *sink)
{
    for (int s = 1; s <= 2; s++)
        if (sink->held[s].n && !sink->sys)
            (void)write_text(sink, s, NULL, 0, true);
}

/* The status of a local command that fails to write there: SIGPIPE's, or an error's. */
static int exit_for_sink(struct cli *c, const struct sink *sink, struct bh_error *err)
{
    struct err e = {0};

    if (sink->sys == EPIPE)
        return 128 + SIGPIPE;
    (void)err_sys(&e, sink->sys, "writing standard %s", sink->stream == 2 ? "error" : "output");
    (void)cli_fail(err, (enum bh_code)e.code, "", "%s", e.message);
    cli_print_error(c, err);
    return EXIT_EXEC_BELLHOP;
}

int cli_exit_for_run(struct cli *c, const struct bh_run_result *r)
{
    int sig = 0;

    if (r->lost_bytes) {
        cli_warn(c, "%llu bytes of output were lost while the connection was broken",
                 (unsigned long long)r->lost_bytes);
        return EXIT_EXEC_BELLHOP;
    }
    if (strcmp(r->reason, "exited") == 0 && r->code >= 0 && r->code <= 255)
        return r->code;
    if (strcmp(r->reason, "timeout") == 0) {
        cli_warn(c, "the command reached its timeout and was killed");
        return EXIT_EXEC_TIMEOUT;
    }
    if (strcmp(r->reason, "oom") == 0)
        cli_warn(c, "the command exceeded its memory limit and was killed");
    if (strcmp(r->reason, "lost") == 0 || strcmp(r->reason, "exited") == 0) {
        cli_warn(c, "it is not known how the command ended");
        return EXIT_EXEC_BELLHOP;
    }
    /* as a shell reports it */
    return signal_parse(r->signal, &sig, NULL) < 0 ? EXIT_EXEC_BELLHOP : 128 + sig;
}

/* Errors of exec have the statuses of env(1) and docker, which differ from most commands' own. */
int cli_exit_for_exec(struct cli *c, const struct bh_error *err)
{
    bool is_command = strncmp(err->field, "argv", 4) == 0 || strcmp(err->field, "shell") == 0;

    if (err->code != BH_CANCELED || err->field[0]) /* "id": the command may still run */
        cli_print_error(c, err);
    if (err->code == BH_CANCELED)
        return EXIT_CLI_INTERRUPTED;
    if (is_command && err->code == BH_NOT_FOUND)
        return EXIT_EXEC_NOT_FOUND;
    return is_command ? EXIT_EXEC_CANNOT_RUN : EXIT_EXEC_BELLHOP;
}

/* ---- results ---- */

/* Prints the agent's reply without the fields that repeat the request. */
static int print_exec_result(void *arg, const struct bh_exec_info *info)
{
    static const char *const keys[] = {"id", "pid", "exit", "usage", "stdout", "stderr"};
    const bool *output = arg;
    json_t *whole = json_loads(info->json, JSON_ALLOW_NUL, NULL), *v = json_object();

    for (size_t i = 0; i < N_ELEMENTS(keys); i++) {
        json_t *part = json_object_get(whole, keys[i]);

        if (part && !*output) {
            (void)json_object_del(part, "text");
            (void)json_object_del(part, "b64");
            (void)json_object_del(part, "tail");
        }
        if (part)
            (void)json_object_set(v, keys[i], part);
    }
    json_decref(whole);
    return cli_print_json_take(v);
}

int cli_print_result(struct bh_box *box, const char *id, bool output, struct bh_error *err)
{
    struct bh_exec *exec = NULL;
    int r = bh_exec_attach(box, id, &exec, err);

    if (r == 0)
        r = bh_exec_get(exec, print_exec_result, &output, err);
    (void)bh_exec_free(exec);
    return r;
}

/* ---- exec ---- */

static int run_in(const struct cli *c, struct bh_box *box, const struct bh_run_options *asked,
                  struct sink *sink, struct bh_run_result *result, struct bh_error *err)
{
    struct bh_run_options o = *asked;

    if (!c->json) {
        o.output = write_output;
        o.output_arg = sink;
    }
    return bh_run(box, &o, result, err);
}

int cli_run_attached(struct cli *c, const char *name, struct bh_run_options *o,
                     struct bh_error *err)
{
    struct bh_run_result result = {.size = sizeof(result)};
    _cleanup_box_ struct bh_box *box = NULL;
    struct cli_signals *signals = NULL;
    struct bh_ctx *ctx = NULL;
    struct sink sink = {.is_pty = o->pty};
    char id[40] = "cli-";
    int r;

    if (!o->id && io_random_hex(8, id + strlen(id), NULL) < 0)
        return cli_fail(err, BH_INTERNAL, "", "no random bytes");
    if (!o->id)
        o->id = id;
    r = cli_signals_start(c, name, o->id, o->pty, true, &signals, err);
    if (r < 0)
        return r;
    /* The context's cancel_fd is the second ^C; the first ^C goes to the command. */
    r = bh_open(&c->opts, &ctx, err);
    if (r == 0)
        r = bh_get(ctx, name, &box, err);
    cli_window_size(&o->cols, &o->rows);
    if (r == 0 && o->pty)
        r = cli_raw_mode(STDIN_FILENO, err);
    if (r == 0)
        r = run_in(c, box, o, &sink, &result, err);
    end_output(&sink);
    cli_raw_restore();
    box = bh_box_free(box);
    (void)bh_close(ctx);
    (void)cli_signals_stop(signals);
    if (sink.sys)
        return exit_for_sink(c, &sink, err);
    return r < 0 ? cli_exit_for_exec(c, err) : cli_exit_for_run(c, &result);
}

/* ---- attach ---- */

struct attached {
    struct sink sink; /* first: write_output() gets the same pointer */
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

/* Input from a terminal passes the filter for the detach keys; any other input is copied. */
static int follow_attached(struct cli *c, struct bh_exec *exec, struct attached *at, bool input,
                           struct cli_signals *signals, struct bh_run_result *result,
                           bool *ret_detached, struct bh_error *err)
{
    struct bh_follow_options f = {.size = sizeof(f),
                                  .stdin_fd = input && at->stdin_open ? STDIN_FILENO : -1,
                                  .output = write_output,
                                  .gap = say_gap,
                                  .arg = at};
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
    at->sink.is_pty = at->pty;
    if (r == 0)
        r = bh_exec_follow(exec, &f, result, err);
    end_output(&at->sink);
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
        r = follow_attached(c, exec, &at, a->input || (at.pty && isatty(STDIN_FILENO)), signals,
                            &result, &detached, err);
    fd_close(hold);
    (void)bh_exec_free(exec);
    if (at.sink.sys)
        return exit_for_sink(c, &at.sink, err);
    if (r == -BH_CANCELED) {
        cli_warn(c,
                 "detached; '%s' goes on: 'bellhop attach' comes back to it, 'bellhop kill' "
                 "ends it",
                 id);
        return detached ? EXIT_CLI_OK : EXIT_CLI_INTERRUPTED;
    }
    result.lost_bytes = 0; /* each gap was reported when it occurred */
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
