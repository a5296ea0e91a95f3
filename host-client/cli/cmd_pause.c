#include <string.h>

#include "cli/cli.h"

struct args {
    const char *level;
};

static const char *const pause_levels[] = {"freeze", "disk", NULL};

static const struct cli_option pause_options[] = {
    CLI_OPT_VALUES("level", 0, CLI_STR, level, "LEVEL",
                   "freeze (memory stays; default where it works) or disk (as stop)", pause_levels),
    {0},
};

static int pause_box(struct bh_box *box, int64_t timeout_ms, struct bh_error *err)
{
    return bh_pause(box, NULL, timeout_ms, err);
}

static int freeze_box(struct bh_box *box, int64_t timeout_ms, struct bh_error *err)
{
    return bh_pause(box, "freeze", timeout_ms, err);
}

static int pause_box_to_disk(struct bh_box *box, int64_t timeout_ms, struct bh_error *err)
{
    return bh_pause(box, "disk", timeout_ms, err);
}

static int run_pause(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;

    if (!a->level)
        return cli_each_box(c, operands, NULL, pause_box, err);
    if (strcmp(a->level, "freeze") == 0)
        return cli_each_box(c, operands, NULL, freeze_box, err);
    if (strcmp(a->level, "disk") == 0)
        return cli_each_box(c, operands, NULL, pause_box_to_disk, err);
    return cli_fail(err, BH_INVALID_ARGUMENT, "level",
                    "level: '%.40s' is neither 'freeze' nor 'disk'", a->level);
}

const struct cli_command cmd_pause = {
    .name = "pause",
    .group = "Boxes",
    .operands = "NAME...",
    .summary = "let boxes stand still; their memory and their disks stay",
    .details =
        "The processes of a paused box use no processor time, and continue where they were. Any\n"
        "command that needs the box resumes it, and so does a connection to one of its published\n"
        "ports; ls, status, events and logs do not. After its time to live (up --timeout) a "
        "paused\n"
        "box is stopped or removed, as a running one is.",
    .examples = "  bellhop pause api\n"
                "  bellhop pause --level disk api   # as stop; 'bellhop resume' starts it\n",
    .options = pause_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 256,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_pause,
};
