#include <stdio.h>

#include "cli/cli.h"
#include "common/str.h"

static void gc_line(void *arg, const char *line)
{
    json_t *lines = arg;

    (void)json_array_append_new(lines, json_string(line));
}

struct args {
    const char *stopped_for; /* not parsed: "0" differs from no option */
};

static const struct cli_option gc_options[] = {
    CLI_OPT("stopped-for", 0, CLI_STR, stopped_for, "TIME",
            "remove boxes that have been stopped this long, such as 7d"),
    {0},
};

static int run_gc(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
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
    .summary = "finish or roll back interrupted changes, remove what no box owns",
    .details =
        "gc removes a box only with --stopped-for, once the box has been stopped for that long.\n"
        "Otherwise a stopped box keeps its disk until 'bellhop rm'. A box whose start failed "
        "counts\n"
        "as stopped since then.",
    .examples =
        "  bellhop gc\n"
        "  bellhop gc --stopped-for 30d   # and the boxes that nobody started for a month\n",
    .options = gc_options,
    .args_bytes = sizeof(struct args),
    .run = run_gc,
};
