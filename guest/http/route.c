#include "http/route.h"

#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"

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
