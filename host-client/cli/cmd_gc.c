#include <stdio.h>

#include "cli/cli.h"
#include "common/str.h"

static void gc_line(void *arg, const char *line)
{
    json_t *lines = arg;

    (void)json_array_append_new(lines, json_string(line));
}

struct args {
    const char *stopped_for, *records_for; /* not parsed: "0" differs from no option */
    bool dry_run;
};

static const struct cli_option gc_options[] = {
    CLI_OPT("stopped-for", 0, CLI_STR, stopped_for, "TIME",
            "remove boxes that have been stopped this long, such as 7d"),
    CLI_OPT("records-for", 0, CLI_STR, records_for, "TIME",
            "forget records of boxes destroyed this long ago (default: 30d)"),
    CLI_OPT("dry-run", 0, CLI_FLAG, dry_run, NULL, "only tell, change nothing"),
    {0},
};

/* 0 means everything to a person, and the default to the library. */
static int parse_age(const char *text, const char *field, int64_t *ret_ms, struct bh_error *err)
{
    struct err e = {0};

    if (text && str_parse_duration(text, ret_ms, &e) < 0)
        return cli_fail(err, BH_INVALID_ARGUMENT, field, "%s: %s", field, e.message);
    if (text && *ret_ms == 0)
        *ret_ms = 1;
    return 0;
}

static int run_gc(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    struct bh_gc_options o = {.size = sizeof(o), .dry_run = a->dry_run};
    json_t *lines, *line;
    size_t i;
    int r = parse_age(a->stopped_for, "stopped-for", &o.stopped_for_ms, err);

    (void)operands;
    if (r == 0)
        r = parse_age(a->records_for, "records-for", &o.records_for_ms, err);
    if (r < 0)
        return r;
    lines = json_array();
    r = bh_gc_run(c->ctx, &o, gc_line, lines, err);
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
        "as stopped since then. Concurrent gcs share the work. The record of a destroyed box (ls "
        "--all,\n"
        "events) is kept for 30 days, or for $BELLHOP_RECORDS_FOR.",
    .examples =
        "  bellhop gc\n"
        "  bellhop gc --dry-run --stopped-for 30d\n"
        "  bellhop gc --stopped-for 30d   # and the boxes that nobody started for a month\n",
    .options = gc_options,
    .args_bytes = sizeof(struct args),
    .run = run_gc,
};
