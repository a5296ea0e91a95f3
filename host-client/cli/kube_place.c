#include "cli/kube_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"

#define POD_TOKEN "/var/run/secrets/kubernetes.io/serviceaccount/token"

static bool is_place(const char *text)
{
    return str_has_prefix(text, "kubeconfig:") || str_has_prefix(text, "proxy:") ||
           str_has_prefix(text, "incluster:");
}

/* The real path: the box's monitor has another working directory. */
static int real_file(const char *path, char **ret, struct err *e)
{
    *ret = realpath(path, NULL);
    if (!*ret)
        *ret = strdup(path); /* the error comes where it is used */
    return *ret ? 0 : err_oom(e);
}

/* "proxy:SOCKET?reach=exec" with the real path. */
static int real_place(const char *place, char **ret, struct err *e)
{
    size_t way = strcspn(place, ":") + 1;
    _cleanup_free_ char *path = strndup(place + way, strcspn(place + way, "?"));
    _cleanup_free_ char *real = NULL;
    int r = path ? 0 : err_oom(e);

    if (r == 0 && !str_has_prefix(place, "incluster:"))
        r = real_file(path, &real, e);
    if (r < 0)
        return r;
    return asprintf(ret, "%.*s%s%s", (int)way, place, real ? real : path,
                    place + way + strlen(path)) < 0
               ? err_oom(e)
               : 0;
}

static int first_file(const char *list, char **ret, struct err *e)
{
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, ":");
        _cleanup_free_ char *path = strndup(p, n);

        if (!path)
            return err_oom(e);
        p += n;
        if (!*p || (*path && access(path, F_OK) == 0))
            return real_file(path, ret, e);
    }
}

int kube_place_resolve(const char *set, char **ret, struct err *e)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    const char *home = getenv("HOME");
    _cleanup_free_ char *path = NULL;

    *ret = NULL;
    if (set && *set && is_place(set))
        return real_place(set, ret, e);
    if (set && *set)
        return first_file(set, ret, e);
    if (host && port && access(POD_TOKEN, R_OK) == 0)
        return asprintf(ret, strchr(host, ':') ? "incluster:[%s]:%s" : "incluster:%s:%s", host,
                        port) < 0
                   ? err_oom(e)
                   : 0;
    path = path_join(home && *home ? home : "/", ".kube/config");
    if (!path)
        return err_oom(e);
    return access(path, F_OK) == 0 ? real_file(path, ret, e) : 0;
}
