#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "common/clock.h"
#include "common/str.h"

#define COMMAND_COLUMNS 60 /* of a command in a table on a terminal */

struct args {
    bool all;
};

struct ps {
    struct cli_listing list;
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
    const struct cli *c = ps->list.cli;
    bool cut = c->tty_out && len > columns;

    if (!ps->all && (strcmp(i->state, "ended") == 0 || strcmp(i->state, "failed") == 0))
        return 0;
    if (c->json) {
        (void)json_array_append_new(ps->list.json, json_loads(i->json, JSON_ALLOW_NUL, NULL));
        return 0;
    }
    if (c->quiet) {
        (void)puts(cli_text(i->id));
        return 0;
    }
    (void)snprintf(pid, sizeof(pid), "%d", i->pid);
    (void)snprintf(line, sizeof(line), "%.*s%s", (int)str_utf8_whole(i->command, columns),
                   i->command, cut ? "..." : "");
    cli_table_add(ps->list.table,
                  (const char *const[]){i->id, state_of(i, state, sizeof(state)), pid,
                                        str_format_duration(end - i->started_ms, age, sizeof(age)),
                                        cut ? line : i->command, NULL});
    return 0;
}

static int run_ps(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    static const char *const heads[] = {"ID", "STATE", "PID", "TIME", "COMMAND", NULL};
    struct ps ps = {.all = ((const struct args *)args)->all};
    _cleanup_box_ struct bh_box *box = NULL;
    int r = bh_get(c->ctx, operands[0], &box, err);

    if (r < 0)
        return r;
    cli_listing_begin(&ps.list, c, c->quiet ? NULL : heads);
    r = bh_exec_list(box, add_command, &ps, err);
    return cli_listing_end(&ps.list, "commands", r);
}

static const struct cli_option ps_options[] = {
    CLI_OPT("all", 'a', CLI_FLAG, all, NULL, "include ended commands (kept for ten minutes)"),
    {0},
};

const struct cli_command cmd_ps = {
    .name = "ps",
    .group = "Work",
    .operands = "NAME",
    .summary = "list the commands that run in a box",
    .details =
        "Lists the commands that 'exec', the coding agent and other clients started. TIME is how\n"
        "long a command has run. For one that has ended, the state says how: 'exited 0', "
        "'SIGKILL',\n"
        "'timeout', 'oom', 'canceled' or 'lost'.",
    .examples = "  bellhop ps api\n"
                "  bellhop ps api --all\n"
                "  bellhop ps api -q | xargs -n1 bellhop kill api\n",
    .options = ps_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX | CLI_AT_DAEMON,
    .run = run_ps,
};
