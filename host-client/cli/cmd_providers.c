#include "cli/cli.h"

static void add_provider(void *arg, const struct bh_provider_info *i)
{
    struct cli_listing *l = arg;

    if (l->json)
        (void)json_array_append_new(l->json,
                                    json_pack("{s:s, s:b, s:s, s:s, s:s, s:s}", "name", i->name,
                                              "usable", i->usable, "runtime", i->runtime, "summary",
                                              i->summary, "why", i->why, "engine", i->engine));
    cli_table_add(l->table, (const char *const[]){i->name, i->usable ? "yes" : "no", i->runtime,
                                                  !i->usable   ? i->why
                                                  : *i->engine ? i->engine
                                                               : i->summary,
                                                  NULL});
}

static int run_providers(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    static const char *const heads[] = {"NAME", "USABLE", "RUNTIME", "", NULL};
    struct cli_listing l;
    int r;

    (void)args;
    (void)operands;
    cli_listing_begin(&l, c, heads);
    r = bh_providers(c->ctx, add_provider, &l, err);
    return cli_listing_end(&l, "providers", r);
}

const struct cli_command cmd_providers = {
    .name = "providers",
    .group = "Machine",
    .operands = "",
    .summary = "list the providers of boxes, and test each one",
    .examples = "  bellhop providers\n",
    .run = run_providers,
};
