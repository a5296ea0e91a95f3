#include "lib/box/shared_url.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/signature.h"
#include "lib/box/store_access.h"
#include "lib/util/daemon_lock.h"

struct daemon_address {
    json_t *facts; /* has the strings */
    const char *scheme, *domain;
    char host[INET6_ADDRSTRLEN + 2];
    char port[8]; /* of the daemon */
};

static void address_done(struct daemon_address *d)
{
    json_decref(d->facts);
}
#define _cleanup_address_ __attribute__((cleanup(address_done)))

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

static int find_daemon(const char *state_dir, bool is_lan, struct daemon_address *d, struct err *e)
{
    int r = daemon_lock_read(state_dir, &d->facts, e);
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

/* The bytes of a path that may stand in a URL, and the rest in hex. NULL: no memory. */
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

/* By host name where there is a name that leads here, else by path. localhost is a name of this machine alone. */
static int format_port_url(const struct daemon_address *d, const struct shared_target *t,
                           const char *signature, char **ret, struct err *e)
{
    const char *query = *signature ? "?" SIGNATURE_PARAMETER "=" : "";
    int n;

    if (t->is_lan && !d->domain)
        n = asprintf(ret, "%s://%s:%s/v1/boxes/%s/proxy/%u/%s%s", d->scheme, d->host, d->port,
                     t->box_id, (unsigned)t->port, query, signature);
    else
        n = asprintf(ret, "%s://%u-%s.%s:%s/%s%s", d->scheme, (unsigned)t->port, t->box_id,
                     d->domain ? d->domain : "localhost", d->port, query, signature);
    return n < 0 ? err_oom(e) : 0;
}

static int format_file_url(const struct daemon_address *d, const struct shared_target *t,
                           const char *signature, char **ret, struct err *e)
{
    _cleanup_free_ char *escaped = escape_path(t->file);

    return !escaped || asprintf(ret, "%s://%s:%s/v1/boxes/%s/files/%s?" SIGNATURE_PARAMETER "=%s",
                                d->scheme, d->host, d->port, t->box_id, escaped, signature) < 0
               ? err_oom(e)
               : 0;
}

static int sign_target(const char *state_dir, const struct shared_target *t, int64_t until_ms,
                       char ret[SIGNATURE_TEXT_BYTES], struct err *e)
{
    _cleanup_free_ char *text = NULL;
    uint8_t key[SIGNATURE_KEY_BYTES];
    int r;

    if ((t->file ? asprintf(&text, "file %s %s", t->box_id, t->file)
                 : asprintf(&text, "port %s %u", t->box_id, (unsigned)t->port)) < 0) {
        text = NULL;
        return err_oom(e);
    }
    r = signature_read_key(state_dir, key, e);
    return r < 0 ? r : signature_make(key, text, clock_real_ms(), until_ms, ret, e);
}

int shared_url_sign(const char *state_dir, const struct shared_target *t, int64_t for_ms,
                    char **ret, int64_t *ret_until_ms, struct err *e)
{
    struct daemon_address d _cleanup_address_ = {0};
    char signature[SIGNATURE_TEXT_BYTES];
    int64_t until_ms;
    int r;

    if (for_ms < 0 || for_ms > SIGNATURE_MAX_MS)
        return err_field(e, ERR_INVALID, "for", "a signed URL is for at most 30 days");
    until_ms = clock_real_ms() + (for_ms ? for_ms : SHARED_URL_FOR_MS);
    r = find_daemon(state_dir, t->is_lan, &d, e);
    if (r == 0)
        r = sign_target(state_dir, t, until_ms, signature, e);
    if (r == 0)
        r = t->file ? format_file_url(&d, t, signature, ret, e)
                    : format_port_url(&d, t, signature, ret, e);
    if (r == 0 && ret_until_ms)
        *ret_until_ms = until_ms;
    return r;
}

int shared_url_port(const char *state_dir, const struct shared_target *t, char **ret, struct err *e)
{
    struct daemon_address d _cleanup_address_ = {0};
    int r = find_daemon(state_dir, t->is_lan, &d, e);

    return r < 0 ? r : format_port_url(&d, t, "", ret, e);
}

static int set_open_port(struct store *store, const char *box_id, uint16_t port, bool is_open,
                         struct err *e)
{
    struct store_open_port p = {.port = port};

    (void)snprintf(p.box_id, sizeof(p.box_id), "%s", box_id);
    return store_set_open_port(store, &p, is_open, e);
}

int shared_open_port(struct store *store, const char *state_dir, const struct shared_target *t,
                     char **ret_url, struct err *e)
{
    _cleanup_free_ char *url = NULL;
    int r = shared_url_port(state_dir, t, &url, e);

    if (r == 0)
        r = set_open_port(store, t->box_id, t->port, true, e);
    if (r == 0)
        *ret_url = TAKE(url);
    return r;
}

int shared_close_port(struct store *store, const char *box_id, uint16_t port, struct err *e)
{
    return set_open_port(store, box_id, port, false, e);
}
