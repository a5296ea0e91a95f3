#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"

#include "common/banned.h"

/* In the order of the overview: a group's commands stand together. */
static const struct cli_command *const commands[] = {
    &cmd_up,   &cmd_ls,        &cmd_status, &cmd_start, &cmd_stop, &cmd_rm,         &cmd_keep,
    &cmd_exec, &cmd_shell,     &cmd_url,    &cmd_logs,  &cmd_put,  &cmd_get,        &cmd_glob,
    &cmd_grep, &cmd_providers, &cmd_doctor, &cmd_gc,    &cmd_help, &cmd_completion, &cmd_version,
};

const struct cli_command *cli_command_at(size_t i)
{
    return i < N_ELEMENTS(commands) ? commands[i] : NULL;
}

const struct cli_command *cli_find_command(const char *name)
{
    for (size_t i = 0; i < N_ELEMENTS(commands); i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
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

/* The first of two places, seen from the folder of this program, that is there. */
static char *find_part(const char *own, const char *exe_dir, const char *in_tree,
                       const char *installed)
{
    const char *set = getenv(own);
    _cleanup_free_ char *near = path_join(exe_dir, in_tree);
    struct stat st;
    char *path, *clean;

    if (set && *set)
        return strdup(set);
    if (near && stat(near, &st) == 0)
        return path_clean(near);
    path = path_join(exe_dir, installed);
    clean = path ? path_clean(path) : NULL;
    free(path);
    return clean;
}

struct places {
    char *state, *cache, *agent, *monitor, *recipes, *images;
};

static void find_places(struct places *p)
{
    char exe[4096] = "";
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    _cleanup_free_ char *dir = n > 0 ? path_dir(exe) : strdup(".");

    if (!dir)
        return;
    p->state = user_dir("BELLHOP_STATE_DIR", "XDG_STATE_HOME", ".local/state");
    p->cache = user_dir("BELLHOP_CACHE_DIR", "XDG_CACHE_HOME", ".cache");
    p->agent = find_part("BELLHOP_AGENT", dir, "bellhopd", "../lib/bellhop/bellhopd");
    p->monitor =
        find_part("BELLHOP_MONITOR", dir, "bellhop-monitor", "../libexec/bellhop/bellhop-monitor");
    p->recipes = find_part("BELLHOP_RECIPES", dir, "../../bootstrap", "../share/bellhop/bootstrap");
    p->images = find_part("BELLHOP_IMAGES", dir, "../image", "../share/bellhop/images");
}

static void places_done(struct places *p)
{
    free(p->state);
    free(p->cache);
    free(p->agent);
    free(p->monitor);
    free(p->recipes);
    free(p->images);
}

static int open_context(struct cli *c, const struct places *p, struct bh_error *err)
{
    if (!p->state || !p->cache)
        return cli_fail(err, BH_FAILED_PRECONDITION, "", "no place for the state: set HOME");
    c->opts.size = sizeof(c->opts);
    c->opts.state_dir = p->state;
    c->opts.cache_dir = p->cache;
    c->opts.agent_path = p->agent;
    c->opts.monitor_path = p->monitor;
    c->opts.recipe_dir = p->recipes;
    c->opts.image_dir = p->images;
    c->opts.npm_registry = getenv("npm_config_registry"); /* as npm itself has it */
    c->opts.progress = cli_progress;
    c->opts.progress_arg = c;
    return bh_open(&c->opts, &c->ctx, err);
}

/* Bad words on the command line become a bh_error, as the library's do. */
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
            return false; /* exec BOX CMD --help is CMD's */
    }
    return false;
}

static int run_command(struct cli *c, const struct cli_command *cmd, char **argv)
{
    struct places places = {0};
    struct bh_error failed = {0};
    struct err e = {0};
    _cleanup_strv_ char **operands = NULL;
    void *args = calloc(1, cmd->args_bytes ? cmd->args_bytes : 1);
    int r;

    c->command = cmd;
    /* --json first: also errors of parsing are then JSON. */
    for (char **a = argv; *a && strcmp(*a, "--") != 0; a++)
        c->json |= strcmp(*a, "--json") == 0 && !(cmd->flags & CLI_STOP_AT_OPERAND);
    r = args ? cli_parse(c, cmd, argv, args, &operands, &e) : err_oom(&e);
    if (r < 0) {
        cli_args_done(cmd, args);
        return usage_error(c, r, &e);
    }
    if (!(cmd->flags & CLI_NO_CONTEXT)) {
        find_places(&places);
        r = cli_cancel_init(c, &e);
        if (r == 0)
            r = open_context(c, &places, &failed);
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
    places_done(&places);
    return r;
}

int main(int argc, char **argv)
{
    struct cli c = {.program = "bellhop", .opts.cancel_fd = -1};
    const struct cli_command *cmd;

    (void)argc;
    c.tty_out = isatty(STDOUT_FILENO) == 1;
    c.tty_err = isatty(STDERR_FILENO) == 1;
    if (!argv[1]) {
        cli_print_overview(stderr);
        return EXIT_CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        cli_print_overview(stdout);
        return EXIT_CLI_OK;
    }
    cmd = strcmp(argv[1], "--version") == 0 ? &cmd_version : cli_find_command(argv[1]);
    if (!cmd) {
        (void)fprintf(stderr, "bellhop: unknown command '%s'\nTry 'bellhop help'.\n", argv[1]);
        return EXIT_CLI_USAGE;
    }
    if (wants_help(argv + 2, cmd)) {
        cli_print_help(stdout, cmd);
        return EXIT_CLI_OK;
    }
    return run_command(&c, cmd, argv + 2);
}
