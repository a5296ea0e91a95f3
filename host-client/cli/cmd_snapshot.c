#include <stdio.h>

#include "cli/cli.h"
#include "common/str.h"

struct args {
    const char *name;
    int64_t timeout_ms;
};

static const struct cli_option snapshot_options[] = {
    CLI_OPT("name", 'n', CLI_STR, name, "S", "the snapshot's name (default: NAME and a number)"),
    CLI_OPT("timeout", 't', CLI_DURATION, timeout_ms, "TIME",
            "how long it may take (default: 30m)"),
    {0},
};

static int print_snapshot(void *arg, const struct bh_snapshot_info *i)
{
    const struct cli *c = arg;
    char size[32], copied[32];

    (void)str_format_size(i->bytes, size, sizeof(size));
    if (c->json)
        cli_puts_json(i->json);
    else if (c->quiet)
        (void)puts(i->name);
    else if (!i->entries && i->bytes) /* the provider counts no files */
        (void)printf("%s: %s\n", i->name, size);
    else
        (void)printf("%s: %llu files and directories, %s, of which %s are new\n", i->name,
                     (unsigned long long)i->entries, size,
                     str_format_size(i->copied_bytes, copied, sizeof(copied)));
    return 0;
}

static int run_snapshot(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    const struct bh_snapshot_options o = {
        .size = sizeof(o), .name = a->name, .timeout_ms = a->timeout_ms};
    _cleanup_box_ struct bh_box *box = NULL;
    int r = bh_get(c->ctx, operands[0], &box, err);

    return r < 0 ? r : bh_snapshot(box, &o, print_snapshot, c, err);
}

const struct cli_command cmd_snapshot = {
    .name = "snapshot",
    .group = "Boxes",
    .operands = "NAME",
    .summary = "keep the content of a box's disk as it is now",
    .details =
        "A running box stands still for the moment of the copy, so that no file is half written,\n"
        "and keeps running. Content that an earlier snapshot of the box has is shared with it. A\n"
        "snapshot has what programs wrote to the disk, secrets included; it has no memory, no\n"
        "--secret of 'up' and no values of --env. It stays when the box is removed. 'bellhop up\n"
        "--from' makes a box of it, 'bellhop restore' gives it back to its own box. Boxes of the\n"
        "providers oci and docker can have snapshots.",
    .examples = "  bellhop snapshot api\n"
                "  bellhop snapshot api --name before-upgrade\n",
    .options = snapshot_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_snapshot,
};
