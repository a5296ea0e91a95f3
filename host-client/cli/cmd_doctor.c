#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/provider.h"

#define DISK_LOW_BYTES (2ull << 30)

/* ---- gc ---- */

static void gc_line(void *arg, const char *line)
{
    json_t *lines = arg;

    (void)json_array_append_new(lines, json_string(line));
}

struct gc_args {
    const char *stopped_for; /* a text: "0" is not the same as nothing */
};

static const struct cli_option gc_options[] = {
    {"stopped-for", 0, CLI_STR, offsetof(struct gc_args, stopped_for), "TIME",
     "remove boxes stopped for at least so long, such as 7d", NULL},
    {0},
};

static int run_gc(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct gc_args *a = args;
    int64_t stopped_for_ms = -1;
    json_t *lines, *line;
    struct err e = {0};
    size_t i;
    int r;

    (void)operands;
    if (a->stopped_for && str_parse_duration(a->stopped_for, &stopped_for_ms, &e) < 0)
        return cli_fail(err, BH_INVALID_ARGUMENT, "stopped-for", "stopped-for: %s", e.message);
    lines = json_array();
    r = bh_gc_stopped(c->ctx, stopped_for_ms, gc_line, lines, err);
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:o}", "done", lines));
    json_array_foreach (lines, i, line) {
        (void)printf("%s\n", cli_text(json_string_value(line)));
    }
    if (r == 0 && !i && !c->quiet)
        (void)puts("nothing to clean up");
    json_decref(lines);
    return r;
}

const struct cli_command cmd_gc = {
    .name = "gc",
    .group = "Machine",
    .operands = "",
    .summary = "finish or undo what was interrupted, remove what no box owns",
    .details =
        "A box is never removed unasked: one that is stopped keeps its disk until 'bellhop rm',\n"
        "or until gc is told with --stopped-for how long a box must have been stopped to go. A\n"
        "box whose start failed counts as stopped since then.",
    .examples =
        "  bellhop gc\n"
        "  bellhop gc --stopped-for 30d   # and the boxes that nobody started for a month\n",
    .options = gc_options,
    .args_bytes = sizeof(struct gc_args),
    .run = run_gc,
};

/* ---- providers ---- */

struct providers {
    struct cli *cli;
    struct cli_table *table;
    json_t *json;
};

static void add_provider(void *arg, const struct bh_provider_info *i)
{
    struct providers *p = arg;

    if (p->json)
        (void)json_array_append_new(p->json, json_pack("{s:s, s:b, s:s, s:s, s:s}", "name", i->name,
                                                       "usable", i->usable, "runtime", i->runtime,
                                                       "summary", i->summary, "why", i->why));
    cli_table_add(p->table, (const char *const[]){i->name, i->usable ? "yes" : "no", i->runtime,
                                                  i->usable ? i->summary : i->why, NULL});
}

static int run_providers(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    static const char *const heads[] = {"NAME", "USABLE", "RUNTIME", "", NULL};
    struct providers p = {.cli = c};
    int r;

    (void)args;
    (void)operands;
    if (c->json)
        p.json = json_array();
    else
        p.table = cli_table_new(heads);
    r = bh_providers(c->ctx, add_provider, &p, err);
    cli_table_print_free(p.table, c->tty_out);
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:o}", "providers", p.json));
    json_decref(p.json);
    return r;
}

const struct cli_command cmd_providers = {
    .name = "providers",
    .group = "Machine",
    .operands = "",
    .summary = "show where boxes can come from, each one tried",
    .examples = "  bellhop providers\n",
    .run = run_providers,
};

/* ---- doctor ---- */

struct doctor {
    struct cli *cli;
    json_t *checks;
    bool failed;
};

static void check_take(struct doctor *d, bool ok, bool needed, const char *name, const char *text)
{
    const char *state = ok ? "ok" : needed ? "missing" : "optional";

    d->failed |= needed && !ok;
    if (d->cli->json)
        (void)json_array_append_new(
            d->checks, json_pack("{s:s, s:s, s:s}", "name", name, "state", state, "text", text));
    else
        (void)printf("%-9s %-22s %s\n", state, name, text);
}

static void check_file(struct doctor *d, const char *name, const char *path, const char *mend)
{
    struct stat st;
    bool ok = path && stat(path, &st) == 0;

    check_take(d, ok, true, name, ok ? path : mend);
}

/* Without it the first box takes minutes, but it comes. */
static void check_image(struct doctor *d)
{
    _cleanup_free_ char *path = path_join(d->cli->opts.image_dir, "slim/manifest.json");
    bool ok = path && access(path, F_OK) == 0;

    check_take(d, ok, false, "image slim",
               ok ? path
                  : "not built yet: 'bellhop image build slim', or the first 'bellhop up', does");
}

static void doctor_provider(void *arg, const struct bh_provider_info *i)
{
    struct doctor *d = arg;
    char name[48];
    bool is_default = strcmp(i->name, provider_at(0)->name) == 0;

    (void)snprintf(name, sizeof(name), "provider %s", i->name);
    check_take(d, i->usable, is_default, name,
               !i->usable    ? i->why
               : *i->runtime ? i->runtime
                             : i->summary);
}

/* Is it where the library looks for it? That is not the caller's PATH. */
static bool is_installed(const char *program)
{
    static const char *const dirs[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                       "/usr/bin",        "/sbin",          "/bin"};

    for (size_t i = 0; i < N_ELEMENTS(dirs); i++) {
        _cleanup_free_ char *file = path_join(dirs[i], program);

        if (file && access(file, X_OK) == 0)
            return true;
    }
    return false;
}

static void check_disk(struct doctor *d, const char *dir)
{
    struct statvfs st;
    char size[24], text[64];
    uint64_t bytes;

    if (statvfs(dir, &st) < 0)
        return;
    bytes = (uint64_t)st.f_bavail * st.f_frsize;
    (void)snprintf(text, sizeof(text), "%s free", str_format_size(bytes, size, sizeof(size)));
    check_take(d, bytes >= DISK_LOW_BYTES, false, "disk", text);
}

static int run_doctor(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    struct doctor d = {.cli = c, .checks = json_array()};
    int r;

    (void)args;
    (void)operands;
    check_file(&d, "guest agent", c->opts.agent_path, "build it with 'make'");
    check_file(&d, "monitor", c->opts.monitor_path, "build it with 'make'");
    check_file(&d, "recipes", c->opts.recipe_dir, "set BELLHOP_RECIPES to their folder");
    check_image(&d);
    check_take(&d, is_installed("slirp4netns") || is_installed("pasta"), true, "network user",
               is_installed("slirp4netns") ? "slirp4netns"
               : is_installed("pasta")     ? "pasta"
                                           : "install slirp4netns or pasta");
    check_take(&d, is_installed("nft"), true, "nft",
               is_installed("nft") ? "found" : "install nftables");
    check_take(&d, is_installed("git"), false, "git",
               is_installed("git") ? "found" : "install git");
    check_disk(&d, c->opts.state_dir);
    r = bh_providers(c->ctx, doctor_provider, &d, err);
    if (r < 0) {
        json_decref(d.checks);
        return r;
    }
    if (c->json)
        (void)cli_print_json_take(json_pack("{s:b, s:o}", "ok", !d.failed, "checks", d.checks));
    else
        json_decref(d.checks);
    return d.failed ? EXIT_CLI_UNAVAILABLE : EXIT_CLI_OK;
}

const struct cli_command cmd_doctor = {
    .name = "doctor",
    .group = "Machine",
    .operands = "",
    .summary = "check what this machine has and lacks for boxes",
    .examples = "  bellhop doctor\n",
    .run = run_doctor,
};

/* ---- completion, help, version ---- */

static int run_completion(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    (void)c;
    (void)args;
    if (cli_print_completion(stdout, operands[0]) < 0)
        return cli_fail(err, BH_INVALID_ARGUMENT, "shell",
                        "no completion for '%.60s': bash, zsh or fish", operands[0]);
    return EXIT_CLI_OK;
}

const struct cli_command cmd_completion = {
    .name = "completion",
    .group = "Help",
    .operands = "bash|zsh|fish",
    .summary = "print a completion script for a shell",
    .examples = "  eval \"$(bellhop completion bash)\"\n",
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_NO_CONTEXT,
    .run = run_completion,
};

struct help_args {
    bool man;
};

static const struct cli_option help_options[] = {
    {"man", 0, CLI_FLAG, offsetof(struct help_args, man), NULL, "as a man page's source", NULL},
    {0},
};

static int run_help(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct help_args *a = args;
    const struct cli_command *cmd = operands[0] ? cli_find_command(operands[0]) : NULL;

    (void)c;
    if (operands[0] && !cmd && cli_print_topic(stdout, operands[0]) == 0)
        return EXIT_CLI_OK;
    if (operands[0] && !cmd)
        return cli_fail(err, BH_INVALID_ARGUMENT, "command", "no command or topic '%.60s'",
                        operands[0]);
    if (a->man)
        cli_print_man(stdout, cmd);
    else if (cmd)
        cli_print_help(stdout, cmd);
    else
        cli_print_overview(stdout);
    return EXIT_CLI_OK;
}

const struct cli_command cmd_help = {
    .name = "help",
    .group = "Help",
    .operands = "[COMMAND|TOPIC]",
    .summary = "explain a command",
    .examples = "  bellhop help up\n",
    .options = help_options,
    .args_bytes = sizeof(struct help_args),
    .max_operands = 1,
    .flags = CLI_NO_CONTEXT,
    .run = run_help,
};

static int run_version(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    (void)args;
    (void)operands;
    (void)err;
    if (c->json)
        return cli_print_json_take(json_pack("{s:s}", "version", bh_version()));
    (void)printf("bellhop %s\n", bh_version());
    return EXIT_CLI_OK;
}

const struct cli_command cmd_version = {
    .name = "version",
    .group = "Help",
    .operands = "",
    .summary = "print the version",
    .flags = CLI_NO_CONTEXT,
    .run = run_version,
};
