#include "cli/cli.h"
#include "common/str.h"

struct args {
    int64_t timeout_ms;
    const char *path, *id;
};

static int run_wait_port(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    struct bh_wait_port_options o = {
        .size = sizeof(o), .timeout_ms = a->timeout_ms, .path = a->path, .exec_id = a->id};
    _cleanup_box_ struct bh_box *box = NULL;
    struct err e = {0};
    uint64_t port = 0;
    int status = 0;
    int r = str_parse_u64(operands[1], 1, UINT16_MAX, &port, &e);

    if (r < 0)
        return cli_fail(err, BH_INVALID_ARGUMENT, "port", "the port %s", e.message);
    o.port = (uint16_t)port;
    r = bh_get(c->ctx, operands[0], &box, err);
    if (r == 0)
        r = bh_wait_port(box, &o, &status, err);
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:i, s:o}", "port", (int)port, "status",
                                             status ? json_integer(status) : json_null()));
    return r;
}

static const struct cli_option wait_port_options[] = {
    CLI_OPT("timeout", 't', CLI_DURATION, timeout_ms, "TIME",
            "stop waiting after this time, with status 6 (default: 30s)"),
    CLI_OPT("path", 'p', CLI_STR, path, "PATH",
            "request PATH by HTTP until the status is below 400"),
    CLI_OPT("id", 0, CLI_STR, id, "ID", "stop waiting when this command ends, with status 4"),
    {0},
};

const struct cli_command cmd_wait_port = {
    .name = "wait-port",
    .group = "Work",
    .operands = "NAME PORT",
    .summary = "wait until something listens on a port in a box",
    .examples = "  id=$(bellhop exec -d api -- npm run dev)\n"
                "  bellhop wait-port api 3000 --id $id && bellhop url api --port 3000\n"
                "  bellhop wait-port api 8080 --path /health --timeout 2m\n",
    .options = wait_port_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 2,
    .max_operands = 2,
    .flags = CLI_TAKES_BOX | CLI_AT_DAEMON,
    .run = run_wait_port,
};
