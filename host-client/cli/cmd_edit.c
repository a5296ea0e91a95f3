#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/jsonx.h"

struct args {
    const char *old_text, *new_text, *if_match;
    uint32_t count;
    bool all, dry_run;
};

static int run_edit(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    struct bh_edit edit = {a->old_text, a->new_text, a->count, a->all};
    struct bh_edit_options o = {.size = sizeof(o),
                                .edits = &edit,
                                .n_edits = 1,
                                .dry_run = a->dry_run,
                                .if_match = a->if_match};
    struct bh_edit_result result = {.size = sizeof(result)};
    _cleanup_box_ struct bh_box *box = NULL;
    int r = cli_box_path(operands[1], "path", &o.path, err);

    if (r == 0 && (!a->old_text || !a->new_text))
        r = cli_fail(err, BH_INVALID_ARGUMENT, "old", "--old TEXT and --new TEXT are required");
    if (r == 0)
        r = bh_get(c->ctx, operands[0], &box, err);
    if (r == 0)
        r = bh_file_edit(box, &o, &result, err);
    if (r < 0)
        return r;
    if (c->json)
        r = cli_print_json_take(json_pack("{s:I, s:s, s:o, s:b}", "replaced",
                                          (json_int_t)result.replaced, "etag", result.etag, "diff",
                                          result.diff ? jx_new_path(result.diff) : json_null(),
                                          "dry_run", (int)a->dry_run));
    else if (result.diff && !c->quiet)
        cli_put_content(result.diff, strlen(result.diff));
    free(result.diff);
    return r;
}

static const struct cli_option edit_options[] = {
    CLI_OPT("old", 0, CLI_STR, old_text, "TEXT", "the text to replace; may span lines"),
    CLI_OPT("new", 0, CLI_STR, new_text, "TEXT", "the text to put in its place"),
    CLI_OPT("count", 0, CLI_U32, count, "N", "expected number of occurrences (default: 1)"),
    CLI_OPT("all", 'a', CLI_FLAG, all, NULL, "replace every occurrence"),
    CLI_OPT("dry-run", 'n', CLI_FLAG, dry_run, NULL, "print the diff, but change nothing"),
    CLI_OPT("if-match", 0, CLI_STR, if_match, "TAG",
            "edit only the version with this tag, else status 4"),
    {0},
};

const struct cli_command cmd_edit = {
    .name = "edit",
    .group = "Files",
    .operands = "NAME :PATH",
    .summary = "replace text in a file of a box; prints the change as a diff",
    .details = "The text is literal. If the number of its occurrences is not the expected one, the "
               "command\n"
               "fails and changes nothing.",
    .examples = "  bellhop edit api :main.c --old 'int x;' --new 'long x;'\n"
                "  bellhop edit -n api :README.md --old foo --new bar --all\n",
    .options = edit_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 2,
    .max_operands = 2,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_edit,
};
