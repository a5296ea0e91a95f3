/* prompt: a prompt to a box's coding agent. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"

#define TEXT_MAX_BYTES (1024 * 1024)

struct args {
    const char *session;
    int64_t timeout_ms, action_timeout_ms, warn_after_ms, stale_after_ms;
};

static const struct cli_option prompt_options[] = {
    CLI_OPT("session", 0, CLI_STR, session, "ID", "go on with this session (default: a new one)"),
    CLI_OPT("timeout", 0, CLI_DURATION, timeout_ms, "TIME",
            "abort the turn after this time (default: never)"),
    CLI_OPT("action-timeout", 0, CLI_DURATION, action_timeout_ms, "TIME",
            "for the answer to one request to the agent (default: 2m)"),
    CLI_OPT("warn-after", 0, CLI_DURATION, warn_after_ms, "TIME",
            "an agent silent for so long: event turn_warning (default: 30s)"),
    CLI_OPT("stale-after", 0, CLI_DURATION, stale_after_ms, "TIME",
            "the same: event turn_stale (default: 5m)"),
    {0},
};

static int read_prompt(const char *operand, char **ret, struct bh_error *err)
{
    struct err e = {0};
    size_t len = 0;
    int r;

    if (operand && !str_eq(operand, "-")) {
        *ret = strdup(operand);
        return *ret ? 0 : cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
    }
    r = io_read_file(AT_FDCWD, "/dev/stdin", TEXT_MAX_BYTES, ret, &len, &e);
    if (r < 0)
        return cli_fail(err, (enum bh_code) - r, "text", "%s", e.message);
    return strlen(*ret) == len ? 0
                               : cli_fail(err, BH_INVALID_ARGUMENT, "text",
                                          "text: a prompt must be UTF-8, without NUL");
}

static int run_prompt(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    _cleanup_box_ struct bh_box *box = NULL;
    _cleanup_free_ char *text = NULL, *json = NULL;
    _cleanup_json_ json_t *reply = NULL;
    const char *answer;
    struct bh_prompt_options o = {.size = sizeof(o),
                                  .session = a->session,
                                  .timeout_ms = a->timeout_ms,
                                  .action_timeout_ms = a->action_timeout_ms,
                                  .warn_after_ms = a->warn_after_ms,
                                  .stale_after_ms = a->stale_after_ms};
    int r = read_prompt(operands[1], &text, err);

    o.text = text;
    if (r == 0)
        r = bh_get(c->ctx, operands[0], &box, err);
    if (r == 0)
        r = bh_prompt(box, &o, &json, err);
    if (r < 0)
        return r;
    reply = json_loads(json, JSON_ALLOW_NUL, NULL);
    if (c->json)
        return cli_print_json_take(json_incref(reply));
    answer = json_string_value(json_object_get(reply, "text"));
    cli_put_content(answer ? answer : "", answer ? strlen(answer) : 0);
    (void)putchar('\n');
    return EXIT_CLI_OK;
}

const struct cli_command cmd_prompt = {
    .name = "prompt",
    .group = "Work",
    .operands = "NAME [TEXT]",
    .summary = "give the coding agent a prompt, and wait for its answer",
    .details =
        "Prints the agent's last message when its turn is over. Without TEXT, or with -, the "
        "prompt is\n"
        "read from standard input. ^C aborts the turn. For agents whose recipe has "
        "'conversation',\n"
        "such as opencode.",
    .examples = "  bellhop prompt api 'Why does make fail?'\n"
                "  session=$(bellhop prompt api --json 'Look around.' | jq -r .session)\n"
                "  bellhop prompt api --session $session --timeout 10m - <task.md\n",
    .options = prompt_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 2,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_prompt,
};
