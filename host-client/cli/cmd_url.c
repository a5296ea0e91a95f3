#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"

struct args {
    uint16_t port;
};

static const struct cli_option url_options[] = {
    CLI_OPT("port", 'p', CLI_U16, port, "PORT", "port in the box (default: the agent's)"),
    {0},
};

/* The agent has a URL only while the box runs, so a stopped box is started, as by any command. */
static int agent_url(struct cli *c, struct bh_box *box, char **ret, struct bh_error *err)
{
    const struct bh_box_info *i = bh_box_info(box);
    bool has_agent = strcmp(i->agent_name, "none") != 0;
    int r = 0;

    if (has_agent && i->state != BH_STATE_RUNNING) {
        r = c->no_resume ? cli_fail(err, BH_FAILED_PRECONDITION, "state", "the box '%s' is %s",
                                    i->name, bh_state_name(i->state))
                         : bh_start(box, CLI_BOX_WAIT_MS, err);
        i = bh_box_info(box);
    }
    if (r < 0)
        return r;
    if (!*i->agent_url)
        return cli_fail(err, BH_FAILED_PRECONDITION, "port",
                        "the agent of '%s' has no URL; name a port of the box: --port 8080",
                        i->name);
    *ret = strdup(i->agent_url);
    return *ret ? 0 : cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
}

static int run_url(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    _cleanup_box_ struct bh_box *box = NULL;
    _cleanup_free_ char *url = NULL;
    int r = bh_get(c->ctx, operands[0], &box, err);

    if (r < 0)
        return r;
    r = a->port ? bh_get_url(box, a->port, &url, err) : agent_url(c, box, &url, err);
    if (r < 0)
        return r;
    if (c->json)
        return cli_print_json_take(json_pack("{s:s}", "url", url));
    (void)puts(url);
    return EXIT_CLI_OK;
}

const struct cli_command cmd_url = {
    .name = "url",
    .group = "Work",
    .operands = "NAME",
    .summary = "print a local URL for a port in a box",
    .details = "The URL works on this machine's loopback only.",
    .examples = "  bellhop url api               # the coding agent's\n"
                "  curl \"$(bellhop url api -p 8080)\"\n",
    .options = url_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX,
    .run = run_url,
};
