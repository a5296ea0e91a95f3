#include <poll.h>
#include <stdio.h>

#include "cli/cli.h"
#include "common/str.h"

#define EVERY_LEAST_MS 1000
#define EVERY_MOST_MS (24 * 3600 * 1000)

static void gc_line(void *arg, const char *line)
{
    json_t *lines = arg;

    (void)json_array_append_new(lines, json_string(line));
}

struct args {
    const char *stopped_for, *records_for; /* not parsed: "0" differs from no option */
    int64_t every_ms;
    bool dry_run;
};

static const struct cli_option gc_options[] = {
    CLI_OPT("stopped-for", 0, CLI_STR, stopped_for, "TIME",
            "remove boxes that have been stopped this long, such as 7d"),
    CLI_OPT("records-for", 0, CLI_STR, records_for, "TIME",
            "forget records of boxes destroyed this long ago (default: 30d)"),
    CLI_OPT("every", 0, CLI_DURATION, every_ms, "TIME",
            "go on, and do it again after each of these times, such as 60s"),
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

/* is_again: a round of many says nothing if there was nothing to do. */
static int run_round(struct cli *c, const struct bh_gc_options *o, bool is_again,
                     struct bh_error *err)
{
    json_t *lines = json_array(), *line;
    size_t i;
    int r = bh_gc_run(c->ctx, o, gc_line, lines, err);

    if (r == 0 && c->json && (!is_again || json_array_size(lines)))
        return cli_print_json_take(json_pack("{s:o}", "done", lines));
    json_array_foreach (lines, i, line) {
        if (!c->json)
            (void)printf("%s\n", cli_text(json_string_value(line)));
    }
    if (r == 0 && !i && !c->quiet && !is_again)
        (void)puts("nothing to clean up");
    json_decref(lines);
    return r;
}

/* An error of a round is told, and the next round tries again. */
static int run_janitor(struct cli *c, const struct bh_gc_options *o, int64_t every_ms,
                       struct bh_error *err)
{
    struct pollfd cancel = {.fd = c->opts.cancel_fd, .events = POLLIN};

    for (;;) {
        int r = run_round(c, o, true, err);

        if (r == -BH_CANCELED)
            return r;
        if (r < 0)
            (void)fprintf(stderr, "bellhop: %s\n", cli_text(err->message));
        (void)fflush(stdout);
        if (poll(&cancel, 1, (int)every_ms) > 0)
            return cli_fail(err, BH_CANCELED, "", "canceled");
    }
}

static int run_gc(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    struct bh_gc_options o = {.size = sizeof(o), .dry_run = a->dry_run};
    int r = parse_age(a->stopped_for, "stopped-for", &o.stopped_for_ms, err);

    (void)operands;
    if (r == 0)
        r = parse_age(a->records_for, "records-for", &o.records_for_ms, err);
    if (r < 0)
        return r;
    if (a->every_ms && (a->every_ms < EVERY_LEAST_MS || a->every_ms > EVERY_MOST_MS))
        return cli_fail(err, BH_INVALID_ARGUMENT, "every", "every: must be from 1s to 24h");
    return a->every_ms ? run_janitor(c, &o, a->every_ms, err) : run_round(c, &o, false, err);
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
        "events) is kept for 30 days, or for $BELLHOP_RECORDS_FOR. Boxes on this machine that no "
        "store\n"
        "knows are reported ('not ours, kept') and not touched, also if this store itself was lost "
        "or\n"
        "replaced: their processes, disks and snapshots stay.\n\n"
        "With --every gc is a janitor, until an interrupt ends it: each round does the same, and "
        "says\n"
        "only what it did. An error is told, and the next round tries again. With --json a round "
        "that\n"
        "did something is one document a line.",
    .examples =
        "  bellhop gc\n"
        "  bellhop gc --dry-run --stopped-for 30d\n"
        "  bellhop gc --every 60s --stopped-for 7d   # a janitor\n"
        "  bellhop gc --stopped-for 30d   # and the boxes that nobody started for a month\n",
    .options = gc_options,
    .args_bytes = sizeof(struct args),
    .flags = CLI_CHANGES,
    .run = run_gc,
};
