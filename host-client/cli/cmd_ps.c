/* cmd_commands: ps, attach, wait and kill: what runs in a box, by its id. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"

#define COMMAND_COLUMNS 60 /* of a command in a table on a terminal */

struct args {
    bool all, input, only_new, tree;
    uint64_t stdout_offset, stderr_offset;
    int64_t timeout_ms;
    const char *signal;
};

#define O(name, letter, type, member, arg, help) \
    { \
        name, letter, type, offsetof(struct args, member), arg, help, NULL \
    }

/* ---- results ---- */

/* The agent's answer without what only says how it was started. */
static int print_result(void *arg, const struct bh_exec_info *info)
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
        r = bh_exec_get(exec, print_result, &output, err);
    (void)bh_exec_free(exec);
    return r;
}

/* ---- ps ---- */

struct ps {
    struct cli *cli;
    struct cli_table *table;
    json_t *json;
    bool all;
};

static const char *state_of(const struct bh_exec_info *i, char *out, size_t n)
{
    if (strcmp(i->state, "ended") != 0)
        return i->state;
    if (strcmp(i->result.reason, "exited") == 0)
        (void)snprintf(out, n, "exited %d", i->result.code);
    else if (strcmp(i->result.reason, "signaled") == 0)
        (void)snprintf(out, n, "%s", i->result.signal);
    else
        (void)snprintf(out, n, "%s", i->result.reason);
    return out;
}

static int add_command(void *arg, const struct bh_exec_info *i)
{
    struct ps *ps = arg;
    char state[40], pid[16], age[32], line[COMMAND_COLUMNS + 4];
    int64_t end = i->ended_ms ? i->ended_ms : clock_real_ms();
    size_t len = strlen(i->command), columns = len < COMMAND_COLUMNS ? len : COMMAND_COLUMNS;
    bool cut = ps->cli->tty_out && len > columns;

    if (!ps->all && (strcmp(i->state, "ended") == 0 || strcmp(i->state, "failed") == 0))
        return 0;
    if (ps->cli->json) {
        (void)json_array_append_new(ps->json, json_loads(i->json, JSON_ALLOW_NUL, NULL));
        return 0;
    }
    if (ps->cli->quiet) {
        (void)puts(cli_text(i->id));
        return 0;
    }
    (void)snprintf(pid, sizeof(pid), "%d", i->pid);
    (void)snprintf(line, sizeof(line), "%.*s%s", (int)str_utf8_whole(i->command, columns),
                   i->command, cut ? "..." : "");
    cli_table_add(ps->table,
                  (const char *const[]){i->id, state_of(i, state, sizeof(state)), pid,
                                        str_format_duration(end - i->started_ms, age, sizeof(age)),
                                        cut ? line : i->command, NULL});
    return 0;
}

static int run_ps(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    static const char *const heads[] = {"ID", "STATE", "PID", "TIME", "COMMAND", NULL};
    struct ps ps = {.cli = c, .json = json_array(), .all = ((const struct args *)args)->all};
    _cleanup_box_ struct bh_box *box = NULL;
    int r = cli_get_box(c, operands[0], &box, err);

    if (r == 0 && !c->json && !c->quiet)
        ps.table = cli_table_new(heads);
    if (r == 0)
        r = bh_exec_list(box, add_command, &ps, err);
    cli_table_print_free(ps.table, c->tty_out);
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:o}", "commands", ps.json));
    json_decref(ps.json);
    return r;
}

static const struct cli_option ps_options[] = {
    O("all", 'a', CLI_FLAG, all, NULL, "the commands that have ended too (kept for ten minutes)"),
    {0},
};

const struct cli_command cmd_ps = {
    .name = "ps",
    .group = "Work",
    .operands = "NAME",
    .summary = "list the commands that run in a box",
    .details = "What 'exec', the coding agent and other clients have started. TIME is how long a\n"
               "command runs, or has run. What ended says how: 'exited 0', 'SIGKILL', 'timeout',\n"
               "'oom', 'canceled' or 'lost'.",
    .examples = "  bellhop ps api\n"
                "  bellhop ps api --all\n"
                "  bellhop ps api -q | xargs -n1 bellhop kill api\n",
    .options = ps_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX,
    .run = run_ps,
};

/* ---- attach ---- */

static int run_attach(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    struct cli_attach how = {.input = a->input,
                             .only_new = a->only_new,
                             .offset = {0, a->stdout_offset, a->stderr_offset}};

    return cli_attach(c, operands[0], operands[1], &how, err);
}

static const struct cli_option attach_options[] = {
    O("interactive", 'i', CLI_FLAG, input, NULL,
      "pass the input on, if the command's is open (always so for a terminal)"),
    O("new", 'n', CLI_FLAG, only_new, NULL, "only what is written from now on"),
    O("stdout-offset", 0, CLI_SIZE, stdout_offset, "N", "output from this byte on"),
    O("stderr-offset", 0, CLI_SIZE, stderr_offset, "N", "errors from this byte on"),
    {0},
};

const struct cli_command cmd_attach = {
    .name = "attach",
    .group = "Work",
    .operands = "NAME ID",
    .summary = "show the output of a command that runs, and type into it",
    .details =
        "First what is held of its output, then the rest as it comes, to its end; the exit\n"
        "status is the command's, as exec's is. Any number may be attached, and none holds the\n"
        "command up. ^C detaches with status 130, and the command goes on. A command with a\n"
        "terminal (exec -dt) gets every key, also ^C; ^P ^Q detaches from it.",
    .examples = "  id=$(bellhop exec -d api -- make all)\n"
                "  bellhop attach api $id\n"
                "  bellhop exec -dt --id top api -- top; bellhop attach api top\n"
                "  echo yes | bellhop attach -i api $id    # started by exec -d -i\n",
    .options = attach_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 2,
    .max_operands = 2,
    .flags = CLI_TAKES_BOX,
    .run = run_attach,
};

/* ---- wait ---- */

static int wait_for(struct bh_box *box, const struct args *a, const char *id,
                    struct bh_run_result *result, struct bh_error *err)
{
    struct bh_exec *exec = NULL;
    int hold = -1;
    int r = bh_exec_attach(box, id, &exec, err);

    if (r == 0)
        r = bh_hold(box, &hold, err);
    if (r == 0)
        r = bh_exec_wait(exec, a->timeout_ms, result, err);
    fd_close(hold);
    (void)bh_exec_free(exec);
    return r;
}

static int run_wait(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    struct bh_run_result result = {.size = sizeof(result)};
    _cleanup_box_ struct bh_box *box = NULL;
    int r = cli_get_box(c, operands[0], &box, err);

    if (r == 0)
        r = wait_for(box, args, operands[1], &result, err);
    if (r == -BH_DEADLINE_EXCEEDED) {
        cli_print_error(c, err);
        return EXIT_EXEC_TIMEOUT;
    }
    if (r == 0 && c->json)
        r = cli_print_result(box, operands[1], false, err);
    return r < 0 ? cli_exit_for_exec(c, err) : cli_exit_for_run(c, &result);
}

static const struct cli_option wait_options[] = {
    O("timeout", 't', CLI_DURATION, timeout_ms, "TIME", "wait no longer: status 124"),
    {0},
};

const struct cli_command cmd_wait = {
    .name = "wait",
    .group = "Work",
    .operands = "NAME ID",
    .summary = "wait for a command's end; the exit status is the command's",
    .details = "The end of a command is kept for ten minutes. The box counts as used meanwhile.",
    .examples = "  id=$(bellhop exec -d api -- make all)\n"
                "  bellhop wait api $id && echo built\n"
                "  bellhop wait --json api $id | jq .usage\n",
    .options = wait_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 2,
    .max_operands = 2,
    .flags = CLI_TAKES_BOX,
    .run = run_wait,
};

/* ---- kill ---- */

static int run_kill(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    _cleanup_box_ struct bh_box *box = NULL;
    int r = cli_get_box(c, operands[0], &box, err);

    for (char **id = operands + 1; r == 0 && *id; id++) {
        struct bh_exec *exec = NULL;

        r = bh_exec_attach(box, *id, &exec, err);
        if (r == 0)
            r = bh_exec_signal(exec, a->signal ? a->signal : "SIGTERM", a->tree, err);
        (void)bh_exec_free(exec);
    }
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:i}", "signaled", (int)strv_len(operands + 1)));
    return r;
}

static const struct cli_option kill_options[] = {
    O("signal", 's', CLI_STR, signal, "SIGNAL", "a name or a number (default: TERM)"),
    O("tree", 0, CLI_FLAG, tree, NULL, "and all that it has started"),
    {0},
};

const struct cli_command cmd_kill = {
    .name = "kill",
    .group = "Work",
    .operands = "NAME ID...",
    .summary = "send a signal to a command in a box",
    .details = "With --tree also to what it started, in whatever session that is, and even when\n"
               "the command itself has ended.",
    .examples = "  bellhop kill api server\n"
                "  bellhop kill --tree -s KILL api $id\n",
    .options = kill_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 2,
    .max_operands = 256,
    .flags = CLI_TAKES_BOX,
    .run = run_kill,
};
