#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"

static const char *state_of_tool(bool ok, bool required, const char *error)
{
    if (ok)
        return "ok";
    if (error && !strstr(error, "not found"))
        return "fails";
    return required ? "missing" : "not there";
}

static void print_ready(const struct cli *c, const char *report)
{
    static const char *const heads[] = {"TOOL", "STATE", "VERSION", NULL};
    json_t *whole = json_loads(report, JSON_ALLOW_NUL, NULL), *tool;
    struct cli_table *t = cli_table_new(heads);
    size_t i;

    json_array_foreach (json_object_get(whole, "tools"), i, tool) {
        bool ok = json_is_true(json_object_get(tool, "ok"));
        bool required = json_is_true(json_object_get(tool, "required"));
        const char *name = json_string_value(json_object_get(tool, "name"));
        const char *text = json_string_value(json_object_get(tool, ok ? "version" : "error"));

        cli_table_add(t,
                      (const char *const[]){name, state_of_tool(ok, required, text), text, NULL});
    }
    cli_table_print_free(t, c->tty_out);
    json_decref(whole);
}

static int run_ready(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    _cleanup_free_ char *report = NULL;
    int r = bh_get(c->ctx, operands[0], &box, err);

    (void)args;
    if (r == 0)
        r = bh_ready(box, &report, err);
    if (report && c->json) {
        cli_puts_json(report);
        return r < 0 ? cli_exit_for(err) : EXIT_CLI_OK;
    }
    if (report && !c->quiet)
        print_ready(c, report);
    return r;
}

const struct cli_command cmd_ready = {
    .name = "ready",
    .group = "Work",
    .operands = "NAME",
    .summary = "run every tool that a box promises, and report which work",
    .details = "The exit status is 4 if a required tool does not run.",
    .examples = "  bellhop ready api\n"
                "  bellhop ready --json api | jq .tools\n",
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX | CLI_AT_DAEMON,
    .run = run_ready,
};
