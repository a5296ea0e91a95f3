#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"

#define SCRIPT_MAX_BYTES (8 * 1024 * 1024)

struct args {
    const char *cwd, *user, *id, *shell, *script, *env_file, *umask;
    char **env, **limits, **rlimits;
    int64_t timeout_ms, grace_ms;
    bool tty, interactive, detach, no_stdin, kill_on_exit;
};

static const struct cli_option exec_options[] = {
    CLI_OPT("cwd", 'C', CLI_STR, cwd, "DIR", "working directory (default: the project)"),
    CLI_OPT("user", 'u', CLI_STR, user, "USER", "run as this user of the box"),
    CLI_OPT("env", 'e', CLI_LIST, env, "K=V|K",
            "an environment variable; K alone passes on your value"),
    CLI_OPT("env-file", 0, CLI_STR, env_file, "FILE", "a file of K=V lines"),
    CLI_OPT("interactive", 'i', CLI_FLAG, interactive, NULL,
            "pass input on (default); with -d: keep it open for 'attach -i'"),
    CLI_OPT("tty", 't', CLI_FLAG, tty, NULL, "allocate a terminal"),
    CLI_OPT("no-stdin", 'n', CLI_FLAG, no_stdin, NULL, "empty standard input"),
    CLI_OPT("detach", 'd', CLI_FLAG, detach, NULL,
            "return once the command has started; print its id"),
    CLI_OPT("id", 0, CLI_STR, id, "ID",
            "id of the command; repeating the exec returns the same command"),
    CLI_OPT("shell", 'c', CLI_STR, shell, "SCRIPT", "run this in a shell instead of CMD"),
    CLI_OPT("script", 's', CLI_STR, script, "FILE",
            "run this script, with its #! or a shell, instead of CMD"),
    CLI_OPT("timeout", 0, CLI_DURATION, timeout_ms, "TIME",
            "end the command after this time, with status 124"),
    CLI_OPT("grace", 0, CLI_DURATION, grace_ms, "TIME",
            "time from SIGTERM to SIGKILL after --timeout (default: 2s)"),
    CLI_OPT("kill-on-exit", 0, CLI_FLAG, kill_on_exit, NULL,
            "kill the descendants when the command exits"),
    CLI_OPT("limit", 'l', CLI_LIST, limits, "L",
            "limits, separated by commas: memory=512M, pids=64, cpu=1.5 (cgroup v2)"),
    CLI_OPT("rlimit", 0, CLI_LIST, rlimits, "R",
            "resource limit as in prlimit(1): nofile=1024, core=unlimited"),
    CLI_OPT("umask", 0, CLI_STR, umask, "MASK", "file mode mask, octal, such as 022"),
    {0},
};

/* ---- options ---- */

static int parse_COUNT(const char *text, uint32_t *ret, struct err *e)
{
    uint64_t n;
    int r = str_parse_u64(text, 1, UINT32_MAX, &n, e);

    if (r == 0)
        *ret = (uint32_t)n;
    return r;
}
#define parse_SIZE str_parse_size
#define parse_CPUS cli_parse_cpus

/* "memory=512M": a row of limits.def */
static int take_limit(const char *word, struct bh_run_options *o, struct err *e)
{
#define LABEL_SIZE "SIZE"
#define LABEL_COUNT "N"
#define LABEL_CPUS "N"
    static const char *const forms[] = {
#define LIMIT(field, name, unit, ...) #name "=" LABEL_##unit,
#include "common/wire/limits.def"
    };
    char list[256] = "";

#define LIMIT(field, name, unit, ...) \
    if (str_has_prefix(word, #name "=")) \
        return parse_##unit(word + strlen(#name "="), &o->field, e);
#include "common/wire/limits.def"

    for (size_t i = 0, n = 0; i < N_ELEMENTS(forms); i++)
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s",
                              !i                          ? ""
                              : i + 1 < N_ELEMENTS(forms) ? ", "
                                                          : " and ",
                              forms[i]);
    return err_set(e, ERR_INVALID, "'%.60s' is none of %s", word, list);
}

static int take_limits(char **list, struct bh_run_options *o, struct err *e)
{
    int r = 0;

    for (; r == 0 && list && *list; list++)
        for (const char *at = *list; r == 0 && *at;) {
            size_t len = strcspn(at, ",");
            _cleanup_free_ char *word = strndup(at, len);

            r = word ? take_limit(word, o, e) : err_oom(e);
            at += len + (at[len] == ',');
        }
    return r < 0 ? err_wrap(e, err_at(e, r, "limit"), "--limit") : 0;
}

/* Reads the script; "-": from standard input, in which case the command gets no input. */
static int read_script(const char *path, char **ret, struct err *e)
{
    size_t len = 0;
    int r = io_read_file(AT_FDCWD, str_eq(path, "-") ? "/dev/stdin" : path, SCRIPT_MAX_BYTES, ret,
                         &len, e);

    if (r < 0)
        return err_at(e, r, "script");
    if (memchr(*ret, '\0', len)) {
        free(TAKE(*ret));
        return err_field(e, ERR_INVALID, "script", "the script '%.200s' has a zero byte", path);
    }
    return 0;
}

/* Exactly one of CMD, --shell and --script is required. */
static int check_command(const struct args *a, char **operands, struct err *e)
{
    unsigned n = (operands[1] != NULL) + (a->shell != NULL) + (a->script != NULL);

    if (n == 0)
        return err_field(e, ERR_INVALID, "operands", "too few arguments: bellhop exec %s",
                         cmd_exec.operands);
    if (n > 1)
        return err_field(e, ERR_INVALID, "shell", "CMD, --shell and --script exclude each other");
    if (a->detach && a->no_stdin && a->interactive)
        return err_field(e, ERR_INVALID, "interactive",
                         "--interactive and --no-stdin exclude each other");
    return 0;
}

static int fill_run_options(const struct args *a, char **operands, char ***env, char **script,
                            struct bh_run_options *o, struct err *e)
{
    int r = check_command(a, operands, e);

    if (r == 0 && a->env_file)
        r = cli_read_env_file(a->env_file, env, e);
    if (r == 0)
        r = cli_expand_env(a->env, "env", false, env, e);
    if (r == 0)
        r = take_limits(a->limits, o, e);
    if (r == 0 && a->script)
        r = read_script(a->script, script, e);
    if (r < 0)
        return r;
    o->argv = operands[1] ? (const char *const *)operands + 1 : NULL;
    o->shell = a->script ? *script : a->shell;
    o->cwd = a->cwd;
    o->user = a->user;
    o->env = (const char *const *)*env;
    o->id = a->id;
    o->timeout_ms = a->timeout_ms;
    o->grace_ms = a->grace_ms;
    o->kill_on_exit = a->kill_on_exit;
    o->pty = a->tty;
    o->umask = a->umask;
    o->rlimits = (const char *const *)a->rlimits;
    o->stdin_fd = a->no_stdin || str_eq(a->script, "-") ? -1 : STDIN_FILENO;
    o->stdin_open = a->interactive;
    return 0;
}

/* ---- the ways to run it ---- */

static int run_detached(struct cli *c, const char *name, struct bh_run_options *o,
                        struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    struct bh_exec *exec = NULL;
    int r = bh_get(c->ctx, name, &box, err);

    cli_window_size(&o->cols, &o->rows);
    if (r == 0)
        r = bh_exec_start(box, o, &exec, err);
    if (r < 0)
        return cli_exit_for_exec(c, err);
    if (c->json)
        r = cli_print_json_take(
            json_pack("{s:s, s:i}", "id", bh_exec_id(exec), "pid", bh_exec_pid(exec)));
    else
        (void)puts(bh_exec_id(exec));
    (void)bh_exec_free(exec);
    return r;
}

/* With --json: the result and the kept output as one document. */
static int run_json(struct cli *c, const char *name, struct bh_run_options *o, struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    char id[40] = "cli-";
    int status, r;

    if (!o->id && io_random_hex(8, id + strlen(id), NULL) < 0)
        return cli_fail(err, BH_INTERNAL, "", "no random bytes");
    if (!o->id)
        o->id = id;
    status = cli_run_attached(c, name, o, err);
    if (err->code != 0)
        return status;
    r = bh_get(c->ctx, name, &box, err);
    if (r == 0)
        r = cli_print_result(box, o->id, true, err);
    return r < 0 ? cli_exit_for_exec(c, err) : status;
}

static int run_exec(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    struct bh_run_options o = {.size = sizeof(o)};
    _cleanup_strv_ char **env = NULL;
    _cleanup_free_ char *script = NULL;
    struct err e = {0};
    int r = fill_run_options(a, operands, &env, &script, &o, &e);

    if (r < 0)
        r = cli_fail(err, (enum bh_code) - r, e.field, "%s", e.message);
    if (r < 0) /* a missing script is an error of exec, not of usage */
        return r == -BH_INVALID_ARGUMENT ? r : cli_exit_for_exec(c, err);
    if (a->detach)
        return run_detached(c, operands[0], &o, err);
    if (a->tty && !isatty(STDIN_FILENO))
        return cli_fail(err, BH_INVALID_ARGUMENT, "tty", "--tty: standard input is not a terminal");
    return c->json ? run_json(c, operands[0], &o, err) : cli_run_attached(c, operands[0], &o, err);
}

const struct cli_command cmd_exec = {
    .name = "exec",
    .group = "Work",
    .operands = "NAME [--] CMD ARG...",
    .summary = "run a command in a box; its exit status is the command's",
    .details =
        "Standard input, output and error are this terminal's, byte for byte. ^C goes to the\n"
        "command; a second ^C kills it and its descendants. A stopped box is started first. After "
        "a\n"
        "broken connection the stream resumes where it was.\n"
        "\n"
        "With --detach the command runs in the background: 'bellhop ps' lists it, 'attach' shows "
        "its\n"
        "output from the first byte, 'wait' returns its result, and 'kill' ends it. Repeating an "
        "exec\n"
        "with the same --id returns the same command; a different command with that id is "
        "refused.\n"
        "\n"
        "A script whose first line is '#!INTERPRETER [ARGUMENT]' runs with that interpreter of "
        "the\n"
        "box. Any other script runs with bash, or with sh if the box has no bash.\n"
        "\n"
        "--limit applies to this command and its descendants. It needs a host with cgroup v2, "
        "where a\n"
        "box may divide its own group; with v1 it is refused ('unimplemented'). The limits of the\n"
        "whole box work with both: 'bellhop up --memory', --cpus and --pids.",
    .examples = "  bellhop exec api -- make test\n"
                "  bellhop exec api -C /tmp -e CI=1 -- env\n"
                "  tar c src | bellhop exec api -- tar x     # input and output are exact\n"
                "  bellhop exec -it api -- vim README.md\n"
                "  bellhop exec api -c 'make && ./run-tests | tail'\n"
                "  bellhop exec api -s build.sh              # a script of this machine\n"
                "  bellhop exec --timeout 30s api -- ./slow  # status 124 when it takes longer\n"
                "  bellhop exec -l memory=1G,pids=100 api -- make -j8\n"
                "  bellhop exec -d --id server api -- ./server\n",
    .options = exec_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 4096,
    .flags = CLI_STOP_AT_OPERAND | CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_exec,
};
