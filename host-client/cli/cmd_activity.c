#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "common/str.h"

static void print_holds(json_t *holds)
{
    json_t *hold;
    size_t i;

    json_array_foreach (holds, i, hold) {
        json_t *reason = json_object_get(hold, "reason");
        char left[32];

        const char *id = json_string_value(json_object_get(hold, "id"));

        (void)printf("hold %s for another %s%s%s\n", cli_text(id ? id : ""),
                     str_format_duration(json_integer_value(json_object_get(hold, "expires_in_ms")),
                                         left, sizeof(left)),
                     json_string_length(reason) ? ": " : "",
                     json_is_string(reason) ? cli_text(json_string_value(reason)) : "");
    }
}

static void print_activity(const struct bh_activity *a)
{
    json_t *whole = json_loads(a->json, JSON_ALLOW_NUL, NULL);
    char idle[32];

    if (a->busy)
        (void)printf("busy: %s\n", cli_text(a->reasons));
    else
        (void)printf("idle for %s\n", str_format_duration(a->idle_ms, idle, sizeof(idle)));
    (void)printf("%u commands, %u open calls, %u connections", a->commands, a->calls,
                 a->connections);
    if (a->cpu_ms >= 0)
        (void)printf(", %.1f s of processor time in %.1f s", (double)a->cpu_ms / 1000,
                     (double)a->cpu_window_ms / 1000);
    (void)putchar('\n');
    print_holds(json_object_get(whole, "holds"));
    json_decref(whole);
}

static int run_activity(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    struct bh_activity a = {.size = sizeof(a)};
    int r = bh_get(c->ctx, operands[0], &box, err);

    (void)args;
    if (r == 0)
        r = bh_activity(box, &a, err);
    if (r < 0)
        return r;
    if (c->json)
        cli_puts_json(a.json);
    else
        print_activity(&a);
    free(a.json);
    return EXIT_CLI_OK;
}

const struct cli_command cmd_activity = {
    .name = "activity",
    .group = "Work",
    .operands = "NAME",
    .summary = "report whether a box is in use, and by what",
    .details = "Reports running commands, open calls, connections to its ports, processor time and "
               "holds.\n"
               "The query itself does not count as use.",
    .examples = "  bellhop activity api\n"
                "  bellhop activity --json api | jq .busy\n",
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX | CLI_AT_DAEMON,
    .run = run_activity,
};
