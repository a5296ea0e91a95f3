#include <stdio.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"

struct args {
    int64_t timeout_ms;
};

static const struct cli_option snapshots_options[] = {
    CLI_OPT("timeout", 't', CLI_DURATION, timeout_ms, "TIME",
            "verify: how long it may take (default: 30m)"),
    {0},
};

/* ---- ls ---- */

static int list_snapshot(void *arg, const struct bh_snapshot_info *i)
{
    struct cli_listing *l = arg;
    char size[32], when[CLOCK_TEXT_BYTES], layers[16];

    if (l->json)
        return json_array_append_new(l->json, json_loads(i->json, JSON_ALLOW_NUL, NULL)) < 0;
    clock_text(i->created_ms, when);
    (void)snprintf(layers, sizeof(layers), "%u", i->n_layers);
    cli_table_add(l->table, (const char *const[]){i->name, i->box_name, when,
                                                  str_format_size(i->bytes, size, sizeof(size)),
                                                  layers, i->image, NULL});
    return 0;
}

static int ls_snapshots(struct cli *c, struct args *a, char **operands, struct bh_error *err)
{
    static const char *const heads[] = {"NAME", "BOX", "MADE", "SIZE", "LAYERS", "IMAGE", NULL};
    struct cli_listing l;
    int r;

    (void)a;
    (void)operands;
    cli_listing_begin(&l, c, heads);
    r = bh_list_snapshots(c->ctx, list_snapshot, &l, err);
    return cli_listing_end(&l, "snapshots", r);
}

/* ---- rm, verify ---- */

/* Reports a snapshot as a line, or as an element of the JSON list. */
static void report_snapshot(const struct cli *c, const char *name, const char *what, json_t *list)
{
    if (c->json)
        (void)json_array_append_new(list, json_string(name));
    else if (!c->quiet)
        (void)printf("%s: %s\n", name, what);
}

static int rm_snapshot(struct cli *c, void *arg, const char *name, json_t *done,
                       struct bh_error *err)
{
    int r = bh_remove_snapshot(c->ctx, name, err);

    (void)arg;
    if (r == 0)
        report_snapshot(c, name, "removed", done);
    return r;
}

static int rm_snapshots(struct cli *c, struct args *a, char **operands, struct bh_error *err)
{
    return cli_each_name(c, operands, &(struct cli_each){"removed", json_array(), rm_snapshot, a},
                         err);
}

static int verify_snapshot(struct cli *c, void *arg, const char *name, json_t *done,
                           struct bh_error *err)
{
    const struct args *a = arg;
    int r = bh_verify_snapshot(c->ctx, name, a->timeout_ms, err);

    if (r == 0)
        report_snapshot(c, name, "whole", done);
    return r;
}

static int verify_snapshots(struct cli *c, struct args *a, char **operands, struct bh_error *err)
{
    return cli_each_name(c, operands,
                         &(struct cli_each){"verified", json_array(), verify_snapshot, a}, err);
}

/* ---- the verbs ---- */

static const struct {
    const char *name;
    bool takes_names;
    int (*run)(struct cli *c, struct args *a, char **operands, struct bh_error *err);
} snapshot_verbs[] = {
    {"ls", false, ls_snapshots},
    {"rm", true, rm_snapshots},
    {"verify", true, verify_snapshots},
};

static int run_snapshots(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    if (!operands[0])
        return ls_snapshots(c, args, operands, err);
    for (size_t i = 0; i < N_ELEMENTS(snapshot_verbs); i++) {
        if (!str_eq(snapshot_verbs[i].name, operands[0]))
            continue;
        if (snapshot_verbs[i].takes_names != (operands[1] != NULL))
            return cli_fail(err, BH_INVALID_ARGUMENT, "operands", "'snapshots %s' takes %s",
                            operands[0],
                            snapshot_verbs[i].takes_names ? "names of snapshots" : "no name");
        return snapshot_verbs[i].run(c, args, operands + 1, err);
    }
    return cli_fail(err, BH_INVALID_ARGUMENT, "operands",
                    "there is no 'snapshots %.40s': ls, rm or verify", operands[0]);
}

const struct cli_command cmd_snapshots = {
    .name = "snapshots",
    .group = "Boxes",
    .operands = "[ls|rm|verify [SNAPSHOT...]]",
    .summary = "list, remove and check snapshots",
    .details =
        "Without a word it lists them.\n\n"
        "'snapshots verify' reads every file of a snapshot, and names the first one that is not\n"
        "as it was; with the provider docker it asks the engine whether it has the image. A box\n"
        "is never made of a snapshot whose list of files was changed. 'snapshots rm' refuses a\n"
        "snapshot that a box has as its disk; content that other snapshots have stays. SIZE is\n"
        "that of the files that the box had changed.",
    .examples = "  bellhop snapshots ls\n"
                "  bellhop snapshots verify before-upgrade\n"
                "  bellhop snapshots rm api-1 api-2\n",
    .options = snapshots_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 0,
    .max_operands = 256,
    .flags = CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_snapshots,
};
