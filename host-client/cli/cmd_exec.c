#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/str.h"

#include "common/banned.h"

struct args {
    const char *cwd, *user;
    char **env;
    int64_t timeout_ms;
    bool tty, detach, no_stdin;
};

#define O(name, letter, type, member, arg, help) \
    { \
        name, letter, type, offsetof(struct args, member), arg, help, NULL \
    }

static const struct cli_option options[] = {
    O("cwd", 'C', CLI_STR, cwd, "DIR", "where to run it (default: the project)"),
    O("user", 'u', CLI_STR, user, "USER", "as this user of the box"),
    O("env", 'e', CLI_LIST, env, "K=V", "an environment variable"),
    O("timeout", 't', CLI_DURATION, timeout_ms, "TIME", "end it after this time, with status 124"),
    O("tty", 'T', CLI_FLAG, tty, NULL, "give it a terminal"),
    O("no-stdin", 'n', CLI_FLAG, no_stdin, NULL, "give it no input"),
    O("detach", 'd', CLI_FLAG, detach, NULL, "return when it has started; prints its id"),
    {0},
};

static int run_detached(struct cli *c, const char *name, const struct cli_run *run,
                        struct bh_error *err)
{
    struct bh_run_options o = {.size = sizeof(o), .stdin_fd = -1, .detach = true};
    struct bh_run_result result = {.size = sizeof(result)};
    _cleanup_box_ struct bh_box *box = NULL;
    int r = cli_get_box(c, name, &box, err);

    o.argv = run->argv;
    o.cwd = run->cwd;
    o.user = run->user;
    o.env = run->env;
    o.timeout_ms = run->timeout_ms;
    o.pty = run->pty;
    cli_window_size(&o.cols, &o.rows);
    if (r == 0)
        r = bh_run(box, &o, &result, err);
    if (r < 0)
        return r;
    if (c->json)
        return cli_print_json_take(json_pack("{s:s, s:i}", "id", result.id, "pid", result.pid));
    (void)puts(result.id);
    return EXIT_CLI_OK;
}

/* The status that the command's end gives, from Exec/Run's reply. */
static int exit_for_reply(struct cli *c, const char *reply)
{
    struct bh_run_result result = {.size = sizeof(result)};
    json_t *whole = json_loads(reply, 0, NULL), *end = json_object_get(whole, "exit");
    const char *reason = json_string_value(json_object_get(end, "reason"));
    const char *sig = json_string_value(json_object_get(end, "signal"));

    result.code = (int)json_integer_value(json_object_get(end, "code"));
    (void)snprintf(result.reason, sizeof(result.reason), "%s", reason ? reason : "lost");
    (void)snprintf(result.signal, sizeof(result.signal), "%s", sig ? sig : "");
    json_decref(whole);
    return cli_exit_for_run(c, &result);
}

/* With --json: the result as one document, output included. */
static int run_json(struct cli *c, const char *name, const struct cli_run *run,
                    struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    _cleanup_free_ char *reply = NULL;
    _cleanup_free_ char *params = NULL;
    json_t *p = json_object(), *argv = json_array(), *env = json_object();
    int r = cli_get_box(c, name, &box, err);

    for (const char *const *a = run->argv; *a; a++)
        (void)json_array_append_new(argv, json_string(*a));
    for (const char *const *v = run->env; v && *v; v++) {
        _cleanup_free_ char *key = strndup(*v, strcspn(*v, "="));

        if (key)
            (void)json_object_set_new(env, key, json_string(*v + strcspn(*v, "=") + 1));
    }
    (void)json_object_set_new(p, "argv", argv);
    (void)json_object_set_new(p, "env", env);
    if (run->cwd)
        (void)json_object_set_new(p, "cwd", json_string(run->cwd));
    if (run->user)
        (void)json_object_set_new(p, "user", json_string(run->user));
    if (run->timeout_ms)
        (void)json_object_set_new(p, "timeout_ms", json_integer(run->timeout_ms));
    params = json_dumps(p, JSON_COMPACT);
    json_decref(p);
    if (r == 0 && !params)
        return cli_fail(err, BH_INVALID_ARGUMENT, "argv", "--json needs words that are UTF-8");
    if (r == 0)
        r = bh_call(box, "Exec/Run", params, NULL, NULL, 0, &reply, err);
    if (r < 0)
        return r;
    (void)puts(reply);
    return exit_for_reply(c, reply);
}

static int run(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    struct cli_run run = {
        .argv = (const char *const *)operands + 1,
        .cwd = a->cwd,
        .user = a->user,
        .env = (const char *const *)a->env,
        .timeout_ms = a->timeout_ms,
        .pty = a->tty,
        .no_stdin = a->no_stdin,
    };
    int r;

    if (a->detach || c->json) {
        r = a->detach ? run_detached(c, operands[0], &run, err)
                      : run_json(c, operands[0], &run, err);
        return r < 0 ? cli_exit_for_exec(c, err) : r;
    }
    if (a->tty && !isatty(STDIN_FILENO))
        return cli_fail(err, BH_INVALID_ARGUMENT, "tty", "--tty: standard input is not a terminal");
    return cli_run_attached(c, operands[0], &run, err);
}

const struct cli_command cmd_exec = {
    .name = "exec",
    .group = "Work",
    .operands = "NAME [--] CMD ARG...",
    .summary = "run a command in a box; its exit status is the command's",
    .details =
        "Input, output and errors are this terminal's, byte for byte. ^C goes to the command; a\n"
        "second ^C stops waiting for it. A stopped box is started first.",
    .examples = "  bellhop exec api -- make test\n"
                "  bellhop exec api -C /tmp -e CI=1 -- env\n"
                "  tar c src | bellhop exec api -- tar x     # input and output are exact\n"
                "  bellhop exec api --timeout 30s -- ./slow  # status 124 when it takes longer\n"
                "  bellhop exec api -d -- ./server           # leave it running\n",
    .options = options,
    .args_bytes = sizeof(struct args),
    .min_operands = 2,
    .max_operands = 4096,
    .flags = CLI_STOP_AT_OPERAND | CLI_TAKES_BOX,
    .run = run,
};

/* ---- shell ---- */

static const struct cli_option shell_options[] = {
    O("cwd", 'C', CLI_STR, cwd, "DIR", "where to start (default: the project)"),
    O("user", 'u', CLI_STR, user, "USER", "as this user of the box"),
    {0},
};

static int run_shell(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    static const char *const login[] = {
        "sh", "-c", "command -v bash >/dev/null && exec bash -il; exec sh -il", NULL};
    const struct args *a = args;
    struct cli_run run = {.argv = login, .cwd = a->cwd, .user = a->user, .pty = true};

    if (!isatty(STDIN_FILENO))
        return cli_fail(err, BH_FAILED_PRECONDITION, "",
                        "a shell needs a terminal; use 'bellhop exec %s -- sh' in a script",
                        operands[0]);
    return cli_run_attached(c, operands[0], &run, err);
}

const struct cli_command cmd_shell = {
    .name = "shell",
    .group = "Work",
    .operands = "NAME",
    .summary = "open a shell in a box",
    .examples = "  bellhop shell api\n"
                "  bellhop shell -u root api\n",
    .options = shell_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX,
    .run = run_shell,
};
