#include "http/route.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/cleanup.h"
#include "common/str.h"

static const struct {
    enum verb verb;
    const char *name;
} verb_names[] = {
    {VERB_GET, "GET"},     {VERB_HEAD, "HEAD"},     {VERB_POST, "POST"},       {VERB_PUT, "PUT"},
    {VERB_PATCH, "PATCH"}, {VERB_DELETE, "DELETE"}, {VERB_OPTIONS, "OPTIONS"},
};

static bool route_has_path(const struct route *route, const char *path, size_t len)
{
    size_t n = strlen(route->path);

    return (route->flags & ROUTE_REST ? len >= n : len == n) && memcmp(path, route->path, n) == 0;
}

const struct route *route_find(const struct route *routes, size_t n, const char *path, size_t len,
                               enum verb verb, struct route_match *match)
{
    const struct route *first = NULL, *found = NULL;

    match->verbs = 0;
    for (size_t i = 0; i < n; i++) {
        const struct route *route = &routes[i];

        if (first ? strcmp(route->path, first->path) != 0 : !route_has_path(route, path, len))
            continue;
        first = first ? first : route;
        found = !found && route->verbs & verb ? route : found;
        match->verbs |= route->verbs;
    }
    if (first && first->flags & ROUTE_REST)
        match->rest = path + strlen(first->path);
    return found ? found : first;
}

enum verb verb_parse(const char *name)
{
    for (size_t i = 0; i < N_ELEMENTS(verb_names); i++)
        if (strcmp(verb_names[i].name, name) == 0)
            return verb_names[i].verb;
    return VERB_OTHER;
}

enum verb verb_at(size_t i, const char **ret_name)
{
    if (i >= N_ELEMENTS(verb_names))
        return VERB_NONE;
    *ret_name = verb_names[i].name;
    return verb_names[i].verb;
}

void route_allow(unsigned allowed, char *out, size_t size)
{
    size_t n = 0;

    out[0] = '\0';
    for (size_t i = 0; i < N_ELEMENTS(verb_names) && n < size; i++)
        if (allowed & verb_names[i].verb)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "", verb_names[i].name);
}

/* ---- request targets -------------------------------------------------------------------------- */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static int uri_decode_bytes(const char *s, size_t len, bool plus_is_space, char **ret,
                            struct err *e)
{
    _cleanup_free_ char *out = malloc(len + 1);
    size_t n = 0;

    if (!out)
        return err_oom(e);
    for (size_t i = 0; i < len; i++) {
        int c = (unsigned char)s[i];

        if (c == '%') {
            int hi = i + 2 < len ? hex_value(s[i + 1]) : -1;
            int lo = i + 2 < len ? hex_value(s[i + 2]) : -1;

            if (hi < 0 || lo < 0)
                return err_set(e, ERR_INVALID, "a '%%' that is not followed by two hex digits");
            c = hi * 16 + lo;
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        if (!c)
            return err_set(e, ERR_INVALID, "a NUL in the request's address");
        out[n++] = (char)c;
    }
    out[n] = '\0';
    *ret = TAKE(out);
    return 0;
}

int uri_decode(const char *s, size_t len, char **ret, struct err *e)
{
    return uri_decode_bytes(s, len, false, ret, e);
}

size_t uri_scheme_len(const char *target)
{
    static const char *const schemes[] = {"http://", "https://"};

    for (size_t i = 0; i < N_ELEMENTS(schemes); i++)
        if (strncasecmp(target, schemes[i], strlen(schemes[i])) == 0)
            return strlen(schemes[i]);
    return 0;
}

/* Steps to the next "name=value" of a query; false at the end. */
static bool next_pair(const char **p, const char **name, size_t *name_len, const char **value,
                      size_t *value_len)
{
    size_t n, eq;

    while (**p == '&')
        (*p)++;
    if (!**p)
        return false;
    n = strcspn(*p, "&");
    eq = strcspn(*p, "=&");
    *name = *p;
    *name_len = eq;
    *value = eq < n ? *p + eq + 1 : *p + n;
    *value_len = eq < n ? n - eq - 1 : 0;
    *p += n;
    return true;
}

int uri_query_get(const char *query, const char *name, char **ret, struct err *e)
{
    _cleanup_free_ char *found = NULL;
    const char *p = query ? query : "";
    const char *n, *v;
    size_t n_len, v_len;

    while (next_pair(&p, &n, &n_len, &v, &v_len)) {
        _cleanup_free_ char *key = NULL;
        int r = uri_decode_bytes(n, n_len, true, &key, e);

        if (r < 0)
            return r;
        if (strcmp(key, name) != 0)
            continue;
        if (found)
            return err_field(e, ERR_INVALID, name, "parameter '%s' is given twice", name);
        r = uri_decode_bytes(v, v_len, true, &found, e);
        if (r < 0)
            return r;
    }
    *ret = TAKE(found);
    return 0;
}

int uri_query_all(const char *query, const char *name, size_t max, char ***ret, struct err *e)
{
    _cleanup_strv_ char **list = NULL;
    const char *p = query ? query : "";
    const char *n, *v;
    size_t n_len, v_len;
    size_t found = 0;

    while (next_pair(&p, &n, &n_len, &v, &v_len)) {
        _cleanup_free_ char *key = NULL;
        _cleanup_free_ char *value = NULL;
        int r = uri_decode_bytes(n, n_len, true, &key, e);

        if (r == 0 && strcmp(key, name) == 0) {
            if (found++ == max)
                return err_field(e, ERR_INVALID, name, "more than %zu of '%s'", max, name);
            r = uri_decode_bytes(v, v_len, true, &value, e);
            if (r == 0)
                r = strv_push(&list, value, e);
        }
        if (r < 0)
            return r;
    }
    *ret = TAKE(list);
    return 0;
}

int uri_query_unknown(const char *query, const char *const *known, char **ret, struct err *e)
{
    const char *p = query ? query : "";
    const char *n, *v;
    size_t n_len, v_len;

    while (next_pair(&p, &n, &n_len, &v, &v_len)) {
        _cleanup_free_ char *key = NULL;
        const char *const *k = known;
        int r = uri_decode_bytes(n, n_len, true, &key, e);

        if (r < 0)
            return r;
        while (*k && strcmp(*k, key) != 0)
            k++;
        if (!*k) {
            *ret = TAKE(key);
            return 0;
        }
    }
    *ret = NULL;
    return 0;
}
