#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"

struct args {
    char **excludes;
    bool flat;
    uint32_t count;
    int64_t timeout_ms;
};

struct watch {
    struct cli *cli;
    uint32_t left; /* events until the end; 0: no limit */
    bool is_enough;
};

static void print_event(const struct bh_watch_event *e)
{
    (void)printf("%-10s ", cli_text(e->type));
    if (strcmp(e->type, "renamed") == 0) {
        cli_put_name(e->from, strlen(e->from));
        (void)fputs(" -> ", stdout);
    }
    cli_put_name(e->path, strlen(e->path));
    (void)puts(e->directory && strcmp(e->type, "renamed") != 0 ? "/" : "");
}

static int on_event(void *arg, const struct bh_watch_event *e)
{
    struct watch *w = arg;
    bool is_frame = strcmp(e->type, "started") == 0 || strcmp(e->type, "end") == 0;

    if (w->cli->json)
        cli_puts_json(e->json);
    else if (!is_frame)
        print_event(e);
    else if (strcmp(e->type, "started") == 0 && !w->cli->quiet)
        cli_warn(w->cli, "watching %s", e->path);
    if (fflush(stdout) != 0)
        return 1;
    w->is_enough = !is_frame && w->left && --w->left == 0;
    return w->is_enough;
}

static int run_watch(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    struct bh_watch_options o = {.size = sizeof(o),
                                 .not_recursive = a->flat,
                                 .excludes = (const char *const *)a->excludes,
                                 .timeout_ms = a->timeout_ms};
    struct watch w = {.cli = c, .left = a->count};
    _cleanup_box_ struct bh_box *box = NULL;
    int hold = -1, r = 0;

    if (operands[1])
        r = cli_box_path(operands[1], "path", &o.path, err);
    if (r == 0)
        r = bh_get(c->ctx, operands[0], &box, err);
    if (r == 0)
        r = bh_hold(box, &hold, err);
    if (r == 0)
        r = bh_file_watch(box, &o, on_event, &w, err);
    fd_close(hold);
    return w.is_enough ? EXIT_CLI_OK : r;
}

static const struct cli_option watch_options[] = {
    CLI_OPT("exclude", 'E', CLI_LIST, excludes, "GLOB", "skip matches, as in a .gitignore"),
    CLI_OPT("no-recursive", 0, CLI_FLAG, flat, NULL, "do not watch subdirectories"),
    CLI_OPT("count", 'c', CLI_U32, count, "N", "end after N events"),
    CLI_OPT("timeout", 't', CLI_DURATION, timeout_ms, "TIME", "end after this time, with status 6"),
    {0},
};

const struct cli_command cmd_watch = {
    .name = "watch",
    .group = "Files",
    .operands = "NAME [:PATH]",
    .summary = "report changes to the files of a box, one line for each event",
    .details =
        "The events are created, removed, renamed, modified, written and attributes. 'overflow' "
        "means\n"
        "that events were lost and the directory must be read again. No event is missed once the\n"
        "command reports that it is watching. With --json each line is one message. The box counts "
        "as\n"
        "used meanwhile.",
    .examples = "  bellhop watch api\n"
                "  bellhop watch api :src -E node_modules -E '*.o'\n"
                "  bellhop watch -q -c 1 api :done --timeout 10m && echo finished\n",
    .options = watch_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 2,
    .flags = CLI_TAKES_BOX | CLI_AT_DAEMON,
    .run = run_watch,
};
