#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "lib/box/remote.h"
#include "lib/box/shared_url.h"
#include "lib/util/context.h"
#include "lib/util/daemon_client.h"

struct args {
    uint16_t port;
    bool is_lan, is_signed, is_public, is_private;
    const char *file;
    int64_t for_ms;
};

static const struct cli_option url_options[] = {
    CLI_OPT("port", 'p', CLI_U16, port, "PORT", "port in the box (default: the agent's)"),
    CLI_OPT("lan", 0, CLI_FLAG, is_lan, NULL,
            "a URL at the daemon for other machines; requests need a token"),
    CLI_OPT("signed", 0, CLI_FLAG, is_signed, NULL,
            "a URL at the daemon that needs no token, for a while"),
    CLI_OPT("for", 0, CLI_DURATION, for_ms, "TIME",
            "signed: for how long (default: 1h; up to 30d)"),
    CLI_OPT("file", 0, CLI_STR, file, ":/PATH", "signed: to read this file, in place of a port"),
    CLI_OPT("public", 0, CLI_FLAG, is_public, NULL,
            "open the port to everybody who reaches the daemon"),
    CLI_OPT("private", 0, CLI_FLAG, is_private, NULL, "close it again"),
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

/* ---- at the daemon ---- */

static int daemon_url(struct cli *c, const struct args *a, const char *id, char **ret,
                      struct err *e)
{
    const struct shared_target target = {
        .box_id = id, .port = a->port, .file = a->file ? a->file + 1 : NULL, .is_lan = a->is_lan};

    int r = remote_leave(c->ctx, "a URL at the daemon", e);

    if (r < 0)
        return r;
    if (a->is_signed + a->is_public + a->is_private > 1)
        return err_field(e, ERR_INVALID, "signed", "one of --signed, --public and --private");
    if (!a->file == !a->port || (a->file && !a->is_signed))
        return err_field(e, ERR_INVALID, "port", "name a port of the box: --port 8080");
    if (a->file && (a->file[0] != ':' || a->file[1] != '/'))
        return err_field(e, ERR_INVALID, "file", "'%.200s': a file in the box is as :/etc/hosts",
                         a->file);
    if (a->is_private)
        return shared_close_port(c->ctx->store, id, a->port, e);
    if (a->is_public)
        return shared_open_port(c->ctx->store, c->opts.state_dir, &target, ret, e);
    return a->is_signed ? shared_url_sign(c->opts.state_dir, &target, a->for_ms, ret, NULL, e)
                        : shared_url_port(c->opts.state_dir, &target, ret, e);
}

static int local_url(struct cli *c, const struct args *a, struct bh_box *box, char **ret,
                     struct bh_error *err)
{
    return a->port ? bh_get_url(box, a->port, ret, err) : agent_url(c, box, ret, err);
}

/* The credentials that a request needs: "token" of the daemon, "password" of the coding agent, or "nothing". */
static const char *needs_of(const struct cli *c, const struct args *a, struct bh_box *box)
{
    bool is_gateway = c->ctx->daemon && !daemon_client_socket(c->ctx->daemon);

    if (is_gateway || (a->is_lan && !a->is_signed && !a->is_public))
        return "token";
    return !a->port && !a->file && *bh_box_info(box)->agent_password ? "password" : "nothing";
}

static int print_url(struct cli *c, const struct args *a, struct bh_box *box, const char *url)
{
    const char *needs = needs_of(c, a, box);

    if (c->json)
        return cli_print_json_take(json_pack("{s:s, s:s}", "url", url, "needs", needs));
    (void)puts(url);
    if (str_eq(needs, "token"))
        cli_warn(c, "requests need a token of the scope 'use': -H 'Authorization: Bearer TOKEN' "
                    "(see 'bellhop token')");
    return EXIT_CLI_OK;
}

/* "url api 3000" is "url api --port 3000". */
static int take_port(struct args *a, const char *word, struct bh_error *err)
{
    struct err e = {0};
    uint64_t port;

    if (!word)
        return 0;
    if (a->port)
        return cli_fail(err, BH_INVALID_ARGUMENT, "port", "the port is given twice");
    if (str_parse_u64(word, 1, UINT16_MAX, &port, &e) < 0)
        return cli_fail(err, BH_INVALID_ARGUMENT, "port", "the port %s", e.message);
    a->port = (uint16_t)port;
    return 0;
}

static int run_url(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    struct args *a = args;
    _cleanup_box_ struct bh_box *box = NULL;
    _cleanup_free_ char *url = NULL;
    int r = take_port(a, operands[1], err);

    if (r == 0)
        r = bh_get(c->ctx, operands[0], &box, err);
    if (r < 0)
        return r;
    if (a->is_lan || a->is_signed || a->is_public || a->is_private || a->file) {
        struct err e = {0};

        r = daemon_url(c, a, bh_box_summary(box)->id, &url, &e);
        if (r < 0)
            return cli_fail(err, (enum bh_code) - r, e.field, "%s", e.message);
        if (!url)
            return EXIT_CLI_OK;
    } else {
        r = local_url(c, a, box, &url, err);
    }
    return r < 0 ? r : print_url(c, a, box, url);
}

const struct cli_command cmd_url = {
    .name = "url",
    .group = "Work",
    .operands = "NAME [PORT]",
    .summary = "print a local URL for a port in a box",
    .details =
        "The URL works on this machine's loopback only; with --daemon and TCP it is the gateway's, "
        "and\n"
        "needs the token. With --lan, --signed and --public it is "
        "one "
        "of\n"
        "the daemon: --lan gives an address that other machines reach; whoever has a signed URL "
        "reaches\n"
        "the port, or reads the file, until its time is over; a public port is open to all who "
        "reach the\n"
        "daemon, until --private closes it. With --json, \"needs\" tells what a request must "
        "bring: "
        "a\n"
        "\"token\" of the daemon, the \"password\" of the coding agent (see 'status --json'), or "
        "\"nothing\".",
    .examples = "  bellhop url api               # the coding agent's\n"
                "  curl \"$(bellhop url api 8080)\"\n"
                "  bellhop url api -p 8080 --lan   # for other machines\n"
                "  bellhop url api -p 8080 --signed --for 2h   # to show it to somebody\n"
                "  bellhop url api --signed --file :/workspace/report.pdf\n",
    .options = url_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 2,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_url,
};
