#include "http/origin.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "http/request.h"
#include "http/http_service.h"
#include "http/state.h"

#define NAME_MAX_BYTES 253 /* of a host name, by DNS */

/* "name:80", "[::1]:80" -> the name or address alone, in out. False: neither. */
static bool split_port(const char *host, char out[NAME_MAX_BYTES + 1])
{
    bool has_brackets = host[0] == '[';
    const char *begin = host + has_brackets;
    size_t len = strcspn(begin, has_brackets ? "]" : ":");
    const char *rest = begin + len + has_brackets;

    if (!len || len > NAME_MAX_BYTES || (has_brackets && begin[len] != ']'))
        return false;
    if (*rest && (*rest != ':' || rest[1 + strspn(rest + 1, "0123456789")]))
        return false;
    (void)memcpy(out, begin, len);
    out[len] = '\0';
    return true;
}

static bool is_address(const char *host, const char *name)
{
    struct in6_addr a;

    return inet_pton(host[0] == '[' ? AF_INET6 : AF_INET, name, &a) == 1;
}

/* "a.example" matches "a.example", and ".example", as each name below it does. */
static bool is_name_of(const char *name, const char *allowed)
{
    size_t len = strlen(name), n = strlen(allowed);

    if (allowed[0] != '.')
        return strcasecmp(name, allowed) == 0;
    return strcasecmp(name, allowed + 1) == 0 ||
           (len > n && strcasecmp(name + len - n, allowed) == 0);
}

bool origin_host_is_allowed(const char *host, char *const *names)
{
    char name[NAME_MAX_BYTES + 1];
    size_t len;

    if (!split_port(host, name))
        return false;
    if (is_address(host, name))
        return true;
    if (host[0] == '[')
        return false;
    len = strlen(name);
    if (name[len - 1] == '.') /* the name in absolute form */
        name[len - 1] = '\0';
    if (strcasecmp(name, "localhost") == 0)
        return true;
    for (; names && *names; names++)
        if (is_name_of(name, *names))
            return true;
    return false;
}

bool origin_is_own(const char *origin, const char *host)
{
    const char *rest = strstr(origin, "://");

    /* The scheme is not compared: a proxy may terminate TLS. */
    return rest && rest > origin && strcasecmp(rest + 3, host) == 0;
}

int origin_check_name(const char *name, struct err *e)
{
    static const char chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    size_t len = strlen(name);

    if (!name[name[0] == '.'] || len > NAME_MAX_BYTES || name[strspn(name, chars)] ||
        strstr(name, "..") || name[len - 1] == '.')
        return err_set(e, ERR_INVALID,
                       "'%.80s' is no host name, nor '.NAME' for that name and all below it", name);
    return 0;
}

static bool is_of_unix_socket(const struct request *q)
{
    struct sockaddr_storage own = {0};
    socklen_t len = sizeof(own);

    return getsockname(q->conn->fd, (struct sockaddr *)&own, &len) == 0 && own.ss_family == AF_UNIX;
}

/* A request without a host comes from no browser. */
static int check_host(const struct request *q, const char *host, struct err *e)
{
    if (!host || !*host || origin_host_is_allowed(host, q->server->o.allow_hosts) ||
        is_of_unix_socket(q))
        return 0;
    return err_field(e, ERR_DENIED, "Host",
                     "an agent without a token does not answer to the host '%.200s', only to "
                     "addresses, 'localhost' and the names of --allow-host",
                     host);
}

/*
 * Returns the header that shows that a web page sent the request, or NULL. "none": the user did, by the
 * address bar or a bookmark. A page of the server's own origin was served by a route with
 * ROUTE_OWN_PAGES, and may call such routes alone.
 */
static const char *page_header(struct request *q, const char *host)
{
    bool is_own = q->route->flags & ROUTE_OWN_PAGES;
    const char *origin = request_header(q, "Origin");
    const char *site = request_header(q, "Sec-Fetch-Site");

    if (origin && !(is_own && host && origin_is_own(origin, host)))
        return "Origin";
    if (!site || str_eq(site, "none") || (is_own && str_eq(site, "same-origin")))
        return NULL;
    return origin ? "Origin" : "Sec-Fetch-Site";
}

int origin_check(struct request *q, struct err *e)
{
    const struct http_service *service = q->server->o.service;
    const char *host = request_host(q);
    const char *header;
    int r = check_host(q, host, e);

    if (r < 0)
        return r;
    header = page_header(q, host);
    if (!header)
        return 0;
    if (service->check_page)
        return service->check_page(q, header, e);
    return err_field(e, ERR_DENIED, header,
                     "a service without a token takes no requests of web pages");
}
