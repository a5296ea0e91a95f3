#include "common/path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool path_is_absolute(const char *p)
{
    return p[0] == '/';
}

const char *path_name(const char *p)
{
    const char *slash = strrchr(p, '/');

    return slash ? slash + 1 : p;
}

char *path_dir(const char *p)
{
    const char *slash = strrchr(p, '/');

    if (!slash)
        return strdup(".");
    while (slash > p && slash[-1] == '/')
        slash--;
    return slash == p ? strdup("/") : strndup(p, (size_t)(slash - p));
}

char *path_join(const char *a, const char *b)
{
    size_t n = strlen(a);
    char *joined;

    if (path_is_absolute(b) || !n)
        return strdup(b);
    if (asprintf(&joined, a[n - 1] == '/' ? "%s%s" : "%s/%s", a, b) < 0)
        return NULL;
    return joined;
}

/* Removes the last component of out[0..len), unless it is ".." or there is none. */
static bool pop_component(const char *out, size_t *len, bool absolute)
{
    size_t at = *len;

    if (at == (absolute ? 1u : 0u))
        return absolute; /* "/.." is "/"; a relative ".." must stay */
    while (at && out[at - 1] != '/')
        at--;
    if (*len - at == 2 && out[at] == '.' && out[at + 1] == '.')
        return false;
    *len = at > (absolute ? 1u : 0u) ? at - 1 : at;
    return true;
}

static char *clean_path(const char *p, bool resolves_dotdot)
{
    bool absolute = path_is_absolute(p);
    char *out = malloc(strlen(p) + 2);
    size_t len = 0;

    if (!out)
        return NULL;
    if (absolute)
        out[len++] = '/';
    while (*p) {
        size_t n = strcspn(p, "/");
        bool skip = n == 0 || (n == 1 && p[0] == '.');

        if (resolves_dotdot && n == 2 && p[0] == '.' && p[1] == '.')
            skip = pop_component(out, &len, absolute);
        if (!skip) {
            if (len && out[len - 1] != '/')
                out[len++] = '/';
            memcpy(out + len, p, n);
            len += n;
        }
        p += n + (p[n] == '/');
    }
    if (!len)
        out[len++] = '.';
    out[len] = '\0';
    return out;
}

char *path_clean(const char *p)
{
    return clean_path(p, true);
}

char *path_squeeze(const char *p)
{
    return clean_path(p, false);
}

bool path_is_within(const char *p, const char *dir)
{
    size_t n = strlen(dir);

    if (strcmp(dir, "/") == 0)
        return path_is_absolute(p);
    return strncmp(p, dir, n) == 0 && (p[n] == '\0' || p[n] == '/');
}

int path_compare(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    if (*a == '/' || *b == '/')
        return !*a ? -1 : !*b ? 1 : *a == '/' ? -1 : 1;
    return (unsigned char)*a - (unsigned char)*b;
}
