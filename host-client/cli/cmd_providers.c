#include "cli/cli.h"

struct providers {
    struct cli *cli;
    struct cli_table *table;
    json_t *json;
};

static void add_provider(void *arg, const struct bh_provider_info *i)
{
    struct providers *p = arg;

    if (p->json)
        (void)json_array_append_new(p->json, json_pack("{s:s, s:b, s:s, s:s, s:s}", "name", i->name,
                                                       "usable", i->usable, "runtime", i->runtime,
                                                       "summary", i->summary, "why", i->why));
    cli_table_add(p->table, (const char *const[]){i->name, i->usable ? "yes" : "no", i->runtime,
                                                  i->usable ? i->summary : i->why, NULL});
}

static int run_providers(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    static const char *const heads[] = {"NAME", "USABLE", "RUNTIME", "", NULL};
    struct providers p = {.cli = c};
    int r;

    (void)args;
    (void)operands;
    if (c->json)
        p.json = json_array();
    else
        p.table = cli_table_new(heads);
    r = bh_providers(c->ctx, add_provider, &p, err);
    cli_table_print_free(p.table, c->tty_out);
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:o}", "providers", p.json));
    json_decref(p.json);
    return r;
}

const struct cli_command cmd_providers = {
    .name = "providers",
    .group = "Machine",
    .operands = "",
    .summary = "list the providers of boxes, and test each one",
    .examples = "  bellhop providers\n",
    .run = run_providers,
};
