#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"

/* In the order of the overview; the commands of a group are adjacent. */
static const struct cli_command *const cli_commands[] = {
    &cmd_up,        &cmd_ls,     &cmd_status, &cmd_events,    &cmd_start,    &cmd_stop,
    &cmd_rm,        &cmd_keep,   &cmd_exec,   &cmd_shell,     &cmd_ps,       &cmd_attach,
    &cmd_wait,      &cmd_kill,   &cmd_ports,  &cmd_wait_port, &cmd_activity, &cmd_hold,
    &cmd_release,   &cmd_ready,  &cmd_url,    &cmd_logs,      &cmd_put,      &cmd_get,
    &cmd_cat,       &cmd_edit,   &cmd_watch,  &cmd_sync,      &cmd_glob,     &cmd_grep,
    &cmd_providers, &cmd_doctor, &cmd_gc,     &cmd_image,     &cmd_help,     &cmd_completion,
    &cmd_version,
};

const struct cli_command *cli_command_at(size_t i)
{
    return i < N_ELEMENTS(cli_commands) ? cli_commands[i] : NULL;
}

const struct cli_command *cli_find_command(const char *name)
{
    for (size_t i = 0; i < N_ELEMENTS(cli_commands); i++)
        if (strcmp(cli_commands[i]->name, name) == 0)
            return cli_commands[i];
    return NULL;
}

/* $BELLHOP_x, else $XDG_y/bellhop, else ~/.z/bellhop. NULL: no memory, or no home. */
static char *user_dir(const char *own, const char *xdg, const char *below_home)
{
    const char *set = getenv(own);
    const char *base = getenv(xdg);
    const char *home = getenv("HOME");
    char *dir = NULL;

    if (set && *set)
        return strdup(set);
    if (base && path_is_absolute(base))
        return path_join(base, "bellhop");
    if (asprintf(&dir, "%s/%s/bellhop", home && *home ? home : "/root", below_home) < 0)
        return NULL;
    return dir;
}

/* NULL if the variable is not set: the library then uses its own default. */
static const char *own_part(const char *variable)
{
    const char *set = getenv(variable);

    return set && *set ? set : NULL;
}

static int open_context(struct cli *c, struct bh_error *err)
{
    _cleanup_free_ char *state = user_dir("BELLHOP_STATE_DIR", "XDG_STATE_HOME", ".local/state");
    _cleanup_free_ char *cache = user_dir("BELLHOP_CACHE_DIR", "XDG_CACHE_HOME", ".cache");
    const char *answer = own_part("BELLHOP_ANSWER_TIMEOUT");
    const char *records = own_part("BELLHOP_RECORDS_FOR");
    char actor[64];
    int r;

    c->opts.size = sizeof(c->opts);
    if (answer && (str_parse_duration(answer, &c->opts.answer_timeout_ms, NULL) < 0 ||
                   c->opts.answer_timeout_ms <= 0))
        return cli_fail(err, BH_INVALID_ARGUMENT, "answer_timeout",
                        "BELLHOP_ANSWER_TIMEOUT: '%.40s' is not a time like 30s", answer);
    if (records && (str_parse_duration(records, &c->opts.records_for_ms, NULL) < 0 ||
                    c->opts.records_for_ms <= 0))
        return cli_fail(err, BH_INVALID_ARGUMENT, "records_for",
                        "BELLHOP_RECORDS_FOR: '%.40s' is not a time like 30d", records);
    (void)snprintf(actor, sizeof(actor), "bellhop %s", c->command->name);
    c->opts.actor = actor;
    c->opts.state_dir = state;
    c->opts.cache_dir = cache;
    c->opts.agent_path = own_part("BELLHOP_AGENT");
    c->opts.monitor_path = own_part("BELLHOP_MONITOR");
    c->opts.recipe_dir = own_part("BELLHOP_RECIPES");
    c->opts.image_dir = own_part("BELLHOP_IMAGES");
    c->opts.template_dir = own_part("BELLHOP_TEMPLATES");
    c->opts.image_cache_dir = own_part("BELLHOP_IMAGE_CACHE");
    c->opts.npm_registry = own_part("npm_config_registry");
    c->opts.no_resume = c->no_resume;
    c->opts.progress = cli_progress;
    c->opts.progress_arg = c;
    r = bh_open(&c->opts, &c->ctx, err);
    if (r == 0)
        bh_get_options(c->ctx, &c->opts); /* with every path filled in, for further contexts */
    return r;
}

/* Errors of parsing are printed like those of the library. */
static int usage_error(struct cli *c, int r, const struct err *e)
{
    struct bh_error err = {0};

    (void)cli_fail(&err, (enum bh_code) - r, e->field, "%s", e->message);
    cli_print_error(c, &err);
    return EXIT_CLI_USAGE;
}

static bool wants_help(char **argv, const struct cli_command *cmd)
{
    for (; *argv && strcmp(*argv, "--") != 0; argv++) {
        if (strcmp(*argv, "--help") == 0 || strcmp(*argv, "-h") == 0)
            return true;
        if (cmd->flags & CLI_STOP_AT_OPERAND && (*argv)[0] != '-')
            return false; /* the --help of 'exec BOX CMD --help' belongs to CMD */
    }
    return false;
}

static int run_command(struct cli *c, const struct cli_command *cmd, char **argv)
{
    struct bh_error failed = {0};
    struct err e = {0};
    _cleanup_strv_ char **operands = NULL;
    void *args = calloc(1, cmd->args_bytes ? cmd->args_bytes : 1);
    int r;

    c->command = cmd;
    /* Before parsing, so that its errors are JSON too. */
    for (char **a = argv; *a && strcmp(*a, "--") != 0; a++)
        c->json |= strcmp(*a, "--json") == 0 && !(cmd->flags & CLI_STOP_AT_OPERAND);
    r = args ? cli_parse(c, cmd, argv, args, &operands, &e) : err_oom(&e);
    if (r < 0) {
        cli_args_done(cmd, args);
        return usage_error(c, r, &e);
    }
    cli_output_init(c);
    if (!(cmd->flags & CLI_NO_CONTEXT)) {
        r = cli_cancel_init(c, &e);
        if (r == 0)
            r = open_context(c, &failed);
    }
    if (r == 0)
        r = cmd->run(c, args, operands, &failed);
    if (r < 0) {
        cli_print_error(c, &failed);
        r = cli_exit_for(&failed);
    }
    cli_progress_clear(c);
    (void)bh_close(c->ctx);
    cli_args_done(cmd, args);
    return r;
}

int main(int argc, char **argv)
{
    struct cli c = {.program = "bellhop", .opts.cancel_fd = -1};
    const struct cli_command *cmd;
    struct err e = {0};

    (void)argc;
    c.tty_out = isatty(STDOUT_FILENO) == 1;
    c.tty_err = isatty(STDERR_FILENO) == 1;
    cli_output_init(&c);
    if (!argv[1]) {
        cli_print_overview(stderr);
        return EXIT_CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        cli_print_overview(stdout);
        return EXIT_CLI_OK;
    }
    argv++;
    if (strcmp(*argv, "--version") != 0) {
        int r = cli_parse_common(&c, &argv, &e);

        if (r < 0)
            return usage_error(&c, r, &e);
        if (!*argv) {
            cli_print_overview(stderr);
            return EXIT_CLI_USAGE;
        }
    }
    cmd = strcmp(*argv, "--version") == 0 ? &cmd_version : cli_find_command(*argv);
    if (!cmd) {
        (void)err_field(&e, ERR_INVALID, "command", "unknown command '%.100s'", *argv);
        (void)usage_error(&c, -ERR_INVALID, &e);
        if (!c.json)
            (void)fputs("Try 'bellhop help'.\n", stderr);
        return EXIT_CLI_USAGE;
    }
    if (wants_help(argv + 1, cmd)) {
        cli_print_help(stdout, cmd);
        return EXIT_CLI_OK;
    }
    return run_command(&c, cmd, argv + 1);
}
