/* audit: the record of calls and commands that change something. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"
#include "common/clock.h"
#include "common/str.h"
#include "lib/box/audit.h"

static int fail_audit(struct bh_error *err, int r, const struct err *e)
{
    return r < 0 ? cli_fail(err, (enum bh_code) - r, e->field, "%s", e->message) : r;
}

static int verify_audit(struct cli *c, struct bh_error *err)
{
    struct err e = {0};
    uint64_t n = 0;
    int r = audit_verify(c->opts.state_dir, &n, &e);

    if (r < 0)
        return fail_audit(err, r, &e);
    if (c->json)
        return cli_print_json_take(json_pack("{s:b, s:I}", "whole", 1, "calls", (json_int_t)n));
    (void)printf("%" PRIu64 " calls, the chain is whole\n", n);
    return EXIT_CLI_OK;
}

struct audit_listing {
    struct cli_table *table;
    json_t *json;
};

static const char *audit_text(json_t *entry, const char *key)
{
    const char *text = json_string_value(json_object_get(entry, key));

    return text ? text : "";
}

static int list_audit(void *arg, json_t *entry)
{
    struct audit_listing *l = arg;
    char when[CLOCK_TEXT_BYTES], status[16];

    if (l->json)
        return json_array_append(l->json, entry) < 0;
    clock_text(json_integer_value(json_object_get(entry, "time_ms")), when);
    (void)snprintf(status, sizeof(status), "%d",
                   (int)json_integer_value(json_object_get(entry, "status")));
    cli_table_add(l->table, (const char *const[]){when, audit_text(entry, "who"), status,
                                                  audit_text(entry, "verb"),
                                                  audit_text(entry, "target"), NULL});
    return 0;
}

static int ls_audit(struct cli *c, struct bh_error *err)
{
    static const char *const heads[] = {"TIME", "WHO", "STATUS", "CALL", "", NULL};
    struct audit_listing l = {0};
    struct err e = {0};
    int r;

    if (c->json)
        l.json = json_array();
    else
        l.table = cli_table_new(heads);
    r = fail_audit(err, audit_list(c->opts.state_dir, list_audit, &l, &e), &e);
    cli_table_print_free(l.table, c->tty_out);
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:o}", "calls", l.json));
    json_decref(l.json);
    return r;
}

static int run_audit(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    (void)args;
    if (str_eq(operands[0], "verify"))
        return verify_audit(c, err);
    if (str_eq(operands[0], "ls"))
        return ls_audit(c, err);
    return cli_fail(err, BH_INVALID_ARGUMENT, "operands", "there is no 'audit %.40s': ls or verify",
                    operands[0]);
}

const struct cli_command cmd_audit = {
    .name = "audit",
    .group = "Machine",
    .operands = "ls|verify",
    .summary = "list and check the record of calls that change something",
    .details = "The daemon records each call that changes something, and bellhop each such "
               "command: who, when,\n"
               "what, the result. A line is chained to the one before: 'audit verify' names the "
               "first that was\n"
               "changed, or before which one is missing, or says that the last ones are; it ends "
               "with 11 then.",
    .examples = "  bellhop audit ls\n"
                "  bellhop audit verify\n",
    .min_operands = 1,
    .max_operands = 1,
    .run = run_audit,
};
