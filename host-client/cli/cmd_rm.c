#include <stdio.h>

#include "cli/cli.h"
#include "common/cleanup.h"

struct args {
    bool force;
};

static int force_rm(struct cli *c, void *arg, const char *name, json_t *done, struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    _cleanup_free_ char *left = NULL;
    json_t *entry;
    int r = bh_get(c->ctx, name, &box, err);

    (void)arg;
    if (r == -BH_NOT_FOUND)
        return 0;
    if (r == 0)
        r = bh_forget(box, CLI_BOX_WAIT_MS, &left, err);
    if (r < 0)
        return r;
    if (left)
        cli_warn(c,
                 "%s is forgotten here, and not removed from its engine: %s; what it has there is "
                 "'bellhop-%s': 'bellhop gc' removes it once that engine is in force",
                 name, left, bh_box_info(box)->id);
    if (!c->json && !c->quiet)
        (void)printf("%s: removed\n", name);
    if (!c->json)
        return 0;
    entry = json_pack("{s:s, s:s, s:s*}", "name", name, "state", "removed", "left", left);
    (void)json_array_append_new(done, entry);
    return 0;
}

static int run_rm(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;

    if (a->force)
        return cli_each_name(c, operands, &(struct cli_each){"boxes", json_array(), force_rm, NULL},
                             err);
    return cli_each_box(c, operands, "removed", bh_destroy, err);
}

static const struct cli_option rm_options[] = {
    CLI_OPT("force", 'f', CLI_FLAG, force, NULL,
            "ignore missing boxes; forget those whose engine does not answer"),
    {0},
};

const struct cli_command cmd_rm = {
    .name = "rm",
    .group = "Boxes",
    .operands = "NAME...",
    .summary = "remove boxes and everything in them",
    .details =
        "Their names and keys are free again. What remains is a record without any content:\n"
        "when and why the box ended, its events, and the last lines of its guest agent. It is\n"
        "kept for 30 days (ls --all, events, gc --records-for).\n\n"
        "--force also removes a box whose engine (Docker, Podman, Kubernetes) is gone, or does "
        "not\n"
        "answer. It says what is left there; 'bellhop gc' removes it if the engine comes back.\n\n"
        "A name that fails does not keep the others from being removed: each error is printed, "
        "and\n"
        "the exit status is that of the first.",
    .examples = "  bellhop rm api\n",
    .options = rm_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 256,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_rm,
};
