#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "lib/box/signature.h"
#include "lib/box/store_access.h"
#include "lib/util/context.h"
#include "lib/util/daemon_lock.h"

#define URL_FOR_MS (3600 * 1000)

struct args {
    uint16_t port;
    bool is_signed, is_public, is_private;
    const char *file;
    int64_t for_ms;
};

static const struct cli_option url_options[] = {
    CLI_OPT("port", 'p', CLI_U16, port, "PORT", "port in the box (default: the agent's)"),
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

struct daemon_address {
    json_t *facts; /* has the strings */
    const char *scheme, *address, *domain;
    char port[8]; /* of the daemon */
};

static int find_daemon(struct cli *c, struct daemon_address *d, struct err *e)
{
    int r = daemon_lock_read(c->opts.state_dir, &d->facts, e);

    if (r < 0)
        return r;
    d->address = json_string_value(json_array_get(json_object_get(d->facts, "tcp"), 0));
    if (!d->address)
        return err_set(e, ERR_PRECONDITION,
                       "no daemon listens on TCP: bellhop daemon --listen "
                       "127.0.0.1:7070");
    d->scheme = json_is_true(json_object_get(d->facts, "tls")) ? "https" : "http";
    d->domain = json_string_value(json_object_get(d->facts, "domain"));
    (void)snprintf(d->port, sizeof(d->port), "%s", strrchr(d->address, ':') + 1);
    return 0;
}

/* The bytes of a path that may stand in a URL, and the rest in hex. */
static char *escape_path(const char *path)
{
    char *out = malloc(3 * strlen(path) + 1), *p = out;

    for (; out && *path; path++) {
        if (strchr("/-._~", *path) || isalnum((unsigned char)*path))
            *p++ = *path;
        else
            p += snprintf(p, 4, "%%%02X", (unsigned char)*path);
    }
    if (out)
        *p = '\0';
    return out;
}

static int sign_text(struct cli *c, const char *text, int64_t for_ms,
                     char ret[SIGNATURE_TEXT_BYTES], struct err *e)
{
    uint8_t key[SIGNATURE_KEY_BYTES];
    int64_t now_ms = clock_real_ms();
    int r = signature_read_key(c->opts.state_dir, key, e);

    return r < 0
               ? r
               : signature_make(key, text, now_ms, now_ms + (for_ms ? for_ms : URL_FOR_MS), ret, e);
}

static int port_url(const struct daemon_address *d, const char *id, uint16_t port,
                    const char *signature, char **ret, struct err *e)
{
    bool is_signed = *signature;

    return asprintf(ret, "%s://%u-%s.%s:%s/%s%s", d->scheme, (unsigned)port, id,
                    d->domain ? d->domain : "localhost", d->port,
                    is_signed ? "?" SIGNATURE_PARAMETER "=" : "", signature) < 0
               ? err_oom(e)
               : 0;
}

static int file_url(const struct daemon_address *d, const char *id, const char *path,
                    const char *signature, char **ret, struct err *e)
{
    _cleanup_free_ char *escaped = escape_path(path);
    bool is_any = str_has_prefix(d->address, "0.0.0.0:");

    if (!escaped || asprintf(ret, "%s://%s%s/v1/boxes/%s/files/%s?" SIGNATURE_PARAMETER "=%s",
                             d->scheme, is_any ? "localhost:" : "", is_any ? d->port : d->address,
                             id, escaped, signature) < 0)
        return err_oom(e);
    return 0;
}

static int signed_url(struct cli *c, const struct args *a, const struct daemon_address *d,
                      const char *id, char **ret, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    char signature[SIGNATURE_TEXT_BYTES];
    int r;

    if (a->file && (a->file[0] != ':' || a->file[1] != '/'))
        return err_field(e, ERR_INVALID, "file", "'%.200s': a file in the box is as :/etc/hosts",
                         a->file);
    if ((a->file ? asprintf(&text, "file %s %s", id, a->file + 1)
                 : asprintf(&text, "port %s %u", id, (unsigned)a->port)) < 0)
        return err_oom(e);
    r = sign_text(c, text, a->for_ms, signature, e);
    if (r < 0)
        return r;
    return a->file ? file_url(d, id, a->file + 1, signature, ret, e)
                   : port_url(d, id, a->port, signature, ret, e);
}

static int daemon_url(struct cli *c, const struct args *a, const char *id, char **ret,
                      struct err *e)
{
    struct daemon_address d = {0};
    struct store_open_port port = {.port = a->port};
    int r = 0;

    (void)snprintf(port.box_id, sizeof(port.box_id), "%s", id);
    if (a->is_signed + a->is_public + a->is_private > 1)
        return err_field(e, ERR_INVALID, "signed", "one of --signed, --public and --private");
    if (!a->file == !a->port || (a->file && !a->is_signed))
        return err_field(e, ERR_INVALID, "port", "name a port of the box: --port 8080");
    if (!a->is_private)
        r = find_daemon(c, &d, e);
    if (r == 0 && !a->is_signed)
        r = store_set_open_port(c->ctx->store, &port, a->is_public, e);
    if (r == 0 && !a->is_private)
        r = a->is_signed ? signed_url(c, a, &d, id, ret, e) : port_url(&d, id, a->port, "", ret, e);
    json_decref(d.facts);
    return r;
}

static int local_url(struct cli *c, const struct args *a, struct bh_box *box, char **ret,
                     struct bh_error *err)
{
    return a->port ? bh_get_url(box, a->port, ret, err) : agent_url(c, box, ret, err);
}

static int run_url(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    _cleanup_box_ struct bh_box *box = NULL;
    _cleanup_free_ char *url = NULL;
    int r = bh_get(c->ctx, operands[0], &box, err);

    if (r < 0)
        return r;
    if (a->is_signed || a->is_public || a->is_private || a->file) {
        struct err e = {0};

        r = daemon_url(c, a, bh_box_summary(box)->id, &url, &e);
        if (r < 0)
            return cli_fail(err, (enum bh_code) - r, e.field, "%s", e.message);
        if (!url)
            return EXIT_CLI_OK;
    } else {
        r = local_url(c, a, box, &url, err);
    }
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
    .details =
        "The URL works on this machine's loopback only. With --signed and --public it is one of "
        "the "
        "daemon:\n"
        "whoever has a signed URL reaches the port, or reads the file, until its time is over; a "
        "public\n"
        "port is open to all who reach the daemon, until --private closes it.",
    .examples = "  bellhop url api               # the coding agent's\n"
                "  curl \"$(bellhop url api -p 8080)\"\n"
                "  bellhop url api -p 8080 --signed --for 2h   # to show it to somebody\n"
                "  bellhop url api --signed --file :/workspace/report.pdf\n",
    .options = url_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX,
    .run = run_url,
};
