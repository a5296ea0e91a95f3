/* quota: what the boxes of an owner may use together. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "lib/box/store_access.h"
#include "lib/util/context.h"

struct args {
    uint32_t boxes, cpu_millis;
    uint64_t memory_bytes, disk_bytes;
};

static const struct cli_option quota_options[] = {
    CLI_OPT("boxes", 0, CLI_U32, boxes, "N", "set: boxes"),
    CLI_OPT("cpus", 0, CLI_CPUS, cpu_millis, "N", "set: processors of all of them"),
    CLI_OPT("memory", 0, CLI_SIZE, memory_bytes, "SIZE", "set: memory of all of them"),
    CLI_OPT("disk", 0, CLI_SIZE, disk_bytes, "SIZE", "set: disk of all of them"),
    {0},
};

static int fail_quota(struct bh_error *err, int r, const struct err *e)
{
    return r < 0 ? cli_fail(err, (enum bh_code) - r, e->field, "%s", e->message) : r;
}

static int set_quota(struct cli *c, const struct args *a, const char *owner, struct bh_error *err)
{
    struct store_quota q = {.boxes = a->boxes,
                            .cpu_millis = a->cpu_millis,
                            .memory_bytes = a->memory_bytes,
                            .disk_bytes = a->disk_bytes};
    struct err e = {0};
    int r = owner ? access_check_name("owner", owner, &e)
                  : err_field(&e, ERR_INVALID, "operands", "whose quota? quota set OWNER");

    if (r == 0) {
        memcpy(q.owner, owner, strlen(owner) + 1);
        r = store_set_quota(c->ctx->store, &q, &e);
    }
    return r < 0 ? fail_quota(err, r, &e) : EXIT_CLI_OK;
}

struct quota_listing {
    struct cli_table *table;
    json_t *json;
};

static int list_quota(void *arg, const struct store_quota *q)
{
    struct quota_listing *l = arg;
    char boxes[16] = "-", cpus[24] = "-", memory[24] = "-", disk[24] = "-";

    if (l->json)
        return json_array_append_new(l->json, store_quota_json(q)) < 0;
    if (q->boxes)
        (void)snprintf(boxes, sizeof(boxes), "%u", q->boxes);
    if (q->cpu_millis)
        (void)snprintf(cpus, sizeof(cpus), "%.15g", q->cpu_millis / 1000.0);
    if (q->memory_bytes)
        (void)str_format_size(q->memory_bytes, memory, sizeof(memory));
    if (q->disk_bytes)
        (void)str_format_size(q->disk_bytes, disk, sizeof(disk));
    cli_table_add(l->table, (const char *const[]){q->owner, boxes, cpus, memory, disk, NULL});
    return 0;
}

static int ls_quotas(struct cli *c, struct bh_error *err)
{
    static const char *const heads[] = {"OWNER", "BOXES", "CPUS", "MEMORY", "DISK", NULL};
    struct quota_listing l = {0};
    struct err e = {0};
    int r;

    if (c->json)
        l.json = json_array();
    else
        l.table = cli_table_new(heads);
    r = fail_quota(err, store_list_quotas(c->ctx->store, list_quota, &l, &e), &e);
    cli_table_print_free(l.table, c->tty_out);
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:o}", "quotas", l.json));
    json_decref(l.json);
    return r;
}

static int run_quota(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    if (str_eq(operands[0], "set"))
        return set_quota(c, args, operands[1], err);
    if (str_eq(operands[0], "ls") && !operands[1])
        return ls_quotas(c, err);
    return cli_fail(err, BH_INVALID_ARGUMENT, "operands",
                    "there is no 'quota %.40s': set OWNER or ls", operands[0]);
}

const struct cli_command cmd_quota = {
    .name = "quota",
    .group = "Machine",
    .operands = "set OWNER|ls",
    .summary = "bound what the boxes of an owner use together",
    .details = "The boxes of an owner are those with the label owner=NAME; a token with an owner "
               "gives the "
               "label\n"
               "to those that it makes. 'quota set' replaces the owner's quota; without options it "
               "removes "
               "it.\n"
               "A new box that would exceed it is refused before anything is made, and so is one "
               "without a "
               "limit\n"
               "of its own on what is bounded.",
    .examples = "  bellhop quota set ann --boxes 5 --cpus 8 --memory 16G\n"
                "  bellhop quota ls\n",
    .options = quota_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 2,
    .flags = CLI_CHANGES,
    .run = run_quota,
};
