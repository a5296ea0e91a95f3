#include <stdio.h>

#include "cli/cli.h"
#include "common/clock.h"
#include "common/str.h"

struct args {
    bool all;
};

static int list_add_box(void *arg, struct bh_box *box)
{
    struct cli_listing *l = arg;
    const struct bh_box_info *i = l->cli->json ? bh_box_info(box) : bh_box_summary(box);
    char age[32], left[32];

    if (l->cli->json) {
        json_t *v = json_loads(i->json, JSON_ALLOW_NUL, NULL);

        (void)json_array_append_new(l->json, v ? v : cli_box_json(i));
        return 0;
    }
    if (l->cli->quiet) {
        (void)puts(i->name);
        return 0;
    }
    cli_table_add(l->table,
                  (const char *const[]){
                      i->name, bh_state_name(i->state), i->provider, i->agent_name,
                      str_format_duration(clock_real_ms() - i->created_ms, age, sizeof(age)),
                      cli_time_left(i, left, sizeof(left)), *i->agent_url ? i->agent_url : "-",
                      NULL});
    return 0;
}

static int list_add_record(void *arg, const struct bh_record *r)
{
    struct cli_listing *l = arg;
    char age[32];

    if (l->cli->json) {
        (void)json_array_append_new(l->json, json_loads(r->json, JSON_ALLOW_NUL, NULL));
        return 0;
    }
    if (l->cli->quiet) {
        (void)puts(r->name);
        return 0;
    }
    cli_table_add(l->table,
                  (const char *const[]){
                      r->name, bh_state_name(BH_STATE_DESTROYED), r->provider, "-",
                      str_format_duration(clock_real_ms() - r->created_ms, age, sizeof(age)), "-",
                      "-", NULL});
    return 0;
}

static int run_ls(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    static const char *const heads[] = {"NAME", "STATE",     "PROVIDER", "AGENT",
                                        "AGE",  "TIME LEFT", "URL",      NULL};
    const struct args *a = args;
    struct cli_listing l;
    int r;

    (void)operands;
    cli_listing_begin(&l, c, c->quiet ? NULL : heads);
    r = bh_list(c->ctx, list_add_box, &l, err);
    if (r == 0 && a->all)
        r = bh_list_records(c->ctx, list_add_record, &l, err);
    return cli_listing_end(&l, "boxes", r);
}

static const struct cli_option ls_options[] = {
    CLI_OPT("all", 'a', CLI_FLAG, all, NULL, "also the boxes that are destroyed, newest first"),
    {0},
};

const struct cli_command cmd_ls = {
    .name = "ls",
    .group = "Boxes",
    .operands = "",
    .summary = "list the boxes",
    .examples = "  bellhop ls\n"
                "  bellhop ls -q      # only the names\n"
                "  bellhop ls --json\n"
                "  bellhop ls --all   # those that are gone too, for 30 days\n",
    .options = ls_options,
    .args_bytes = sizeof(struct args),
    .flags = CLI_AT_DAEMON,
    .run = run_ls,
};
