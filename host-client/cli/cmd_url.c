#include <arpa/inet.h>
#include <ctype.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

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

struct daemon_address {
    json_t *facts; /* has the strings */
    const char *scheme, *domain;
    char host[INET6_ADDRSTRLEN + 2];
    char port[8]; /* of the daemon */
};

/* The address by which others reach this machine: that of the route to the world (addresses for documentation, to which
 * nothing is sent). */
static int find_own_address(int family, char *out, size_t n)
{
    const struct sockaddr_in world4 = {
        .sin_family = AF_INET, .sin_port = 9, .sin_addr.s_addr = htonl(0xc6336401)};
    const struct sockaddr_in6 world6 = {
        .sin6_family = AF_INET6, .sin6_port = 9, .sin6_addr.s6_addr = {0x20, 0x01, 0x0d, 0xb8}};
    _cleanup_close_ int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage own = {0};
    socklen_t len = sizeof(own);
    bool is_4 = family == AF_INET;
    char host[INET6_ADDRSTRLEN];

    if (fd < 0 ||
        connect(fd, is_4 ? (const struct sockaddr *)&world4 : (const struct sockaddr *)&world6,
                is_4 ? sizeof(world4) : sizeof(world6)) < 0 ||
        getsockname(fd, (struct sockaddr *)&own, &len) < 0 ||
        getnameinfo((struct sockaddr *)&own, len, host, sizeof(host), NULL, 0, NI_NUMERICHOST) != 0)
        return -1;
    (void)snprintf(out, n, is_4 ? "%s" : "[%s]", host);
    return 0;
}

/* address: of the daemon, as ADDR:PORT. False: who asks cannot reach it there. */
static bool reach_address(struct daemon_address *d, const char *address, bool is_lan)
{
    const char *colon = strrchr(address, ':');
    size_t len = (size_t)(colon - address);
    bool is_any6 = str_has_prefix(address, "[::]:");
    bool is_any = is_any6 || str_has_prefix(address, "0.0.0.0:");

    (void)snprintf(d->port, sizeof(d->port), "%s", colon + 1);
    if (is_any && is_lan)
        return find_own_address(is_any6 ? AF_INET6 : AF_INET, d->host, sizeof(d->host)) == 0;
    if (is_lan && (str_has_prefix(address, "127.") || str_has_prefix(address, "[::1]:")))
        return false;
    (void)snprintf(d->host, sizeof(d->host), "%.*s", is_any ? 9 : (int)len,
                   is_any ? "localhost" : address);
    return true;
}

static int find_daemon(struct cli *c, bool is_lan, struct daemon_address *d, struct err *e)
{
    int r = daemon_lock_read(c->opts.state_dir, &d->facts, e);
    const json_t *tcp = json_object_get(d->facts, "tcp"), *address;
    size_t i;

    if (r < 0)
        return r;
    d->scheme = json_is_true(json_object_get(d->facts, "tls")) ? "https" : "http";
    d->domain = json_string_value(json_object_get(d->facts, "domain"));
    json_array_foreach (tcp, i, address)
        if (reach_address(d, json_string_value(address), is_lan))
            return 0;
    if (is_lan && json_array_size(tcp))
        return err_field(e, ERR_PRECONDITION, "lan",
                         "other machines do not reach the daemon: bellhop daemon --listen "
                         "0.0.0.0:7070");
    return err_set(e, ERR_PRECONDITION,
                   "no daemon listens on TCP: bellhop daemon --listen 127.0.0.1:7070");
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

/* By host name where there is a name that leads here, else by path. localhost is a name of this machine alone. */
static int port_url(const struct daemon_address *d, const struct args *a, const char *id,
                    const char *signature, char **ret, struct err *e)
{
    const char *query = *signature ? "?" SIGNATURE_PARAMETER "=" : "";
    int n;

    if (a->is_lan && !d->domain)
        n = asprintf(ret, "%s://%s:%s/v1/boxes/%s/proxy/%u/%s%s", d->scheme, d->host, d->port, id,
                     (unsigned)a->port, query, signature);
    else
        n = asprintf(ret, "%s://%u-%s.%s:%s/%s%s", d->scheme, (unsigned)a->port, id,
                     d->domain ? d->domain : "localhost", d->port, query, signature);
    return n < 0 ? err_oom(e) : 0;
}

static int file_url(const struct daemon_address *d, const char *id, const char *path,
                    const char *signature, char **ret, struct err *e)
{
    _cleanup_free_ char *escaped = escape_path(path);

    return !escaped || asprintf(ret, "%s://%s:%s/v1/boxes/%s/files/%s?" SIGNATURE_PARAMETER "=%s",
                                d->scheme, d->host, d->port, id, escaped, signature) < 0
               ? err_oom(e)
               : 0;
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
                   : port_url(d, a, id, signature, ret, e);
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
        r = find_daemon(c, a->is_lan, &d, e);
    if (r == 0 && (a->is_public || a->is_private))
        r = store_set_open_port(c->ctx->store, &port, a->is_public, e);
    if (r == 0 && !a->is_private)
        r = a->is_signed ? signed_url(c, a, &d, id, ret, e) : port_url(&d, a, id, "", ret, e);
    json_decref(d.facts);
    return r;
}

static int local_url(struct cli *c, const struct args *a, struct bh_box *box, char **ret,
                     struct bh_error *err)
{
    return a->port ? bh_get_url(box, a->port, ret, err) : agent_url(c, box, ret, err);
}

/* The credentials that a request needs: "token" of the daemon, "password" of the coding agent, or "nothing". */
static const char *needs_of(const struct args *a, struct bh_box *box)
{
    if (a->is_lan && !a->is_signed && !a->is_public)
        return "token";
    return !a->port && !a->file && *bh_box_info(box)->agent_password ? "password" : "nothing";
}

static int print_url(struct cli *c, const struct args *a, struct bh_box *box, const char *url)
{
    const char *needs = needs_of(a, box);

    if (c->json)
        return cli_print_json_take(json_pack("{s:s, s:s}", "url", url, "needs", needs));
    (void)puts(url);
    if (str_eq(needs, "token"))
        cli_warn(c, "requests need a token of the scope 'use': -H 'Authorization: Bearer TOKEN' "
                    "(see 'bellhop token')");
    return EXIT_CLI_OK;
}

static int run_url(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    _cleanup_box_ struct bh_box *box = NULL;
    _cleanup_free_ char *url = NULL;
    int r = bh_get(c->ctx, operands[0], &box, err);

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
    .operands = "NAME",
    .summary = "print a local URL for a port in a box",
    .details =
        "The URL works on this machine's loopback only. With --lan, --signed and --public it is "
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
                "  curl \"$(bellhop url api -p 8080)\"\n"
                "  bellhop url api -p 8080 --lan   # for other machines\n"
                "  bellhop url api -p 8080 --signed --for 2h   # to show it to somebody\n"
                "  bellhop url api --signed --file :/workspace/report.pdf\n",
    .options = url_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX,
    .run = run_url,
};
