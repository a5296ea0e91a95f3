#include "daemon/routes.h"

#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/wire/wire.h"
#include "daemon/access.h"
#include "daemon/answers.h"
#include "daemon/events.h"
#include "daemon/gateway.h"
#include "daemon/job.h"
#include "daemon/metrics.h"
#include "daemon/page.h"
#include "daemon/service.h"
#include "daemon/terminal.h"

#define JOB_BODY_BYTES (1024 * 1024)

/* The status page may call each route; the pages of others have no token. */
#define FOR_PAGES (ROUTE_PAGES | ROUTE_OWN_PAGES)

/* The path is matched here, not by http: .path is for messages. */
#define R(verb, path_, scope_, ops_, answer_, flags_, summary_) \
    {.route = {.name = path_, \
               .path = path_, \
               .verbs = VERB_##verb, \
               .flags = (flags_) | FOR_PAGES | (SCOPE_##scope_ == SCOPE_OPEN ? ROUTE_OPEN : 0), \
               .max_body_bytes = UINT64_MAX, \
               .ops = &(ops_), \
               .summary = summary_}, \
     .path = path_, \
     .scope = SCOPE_##scope_, \
     .answer = answer_},
#define J(verb, path_, scope_, answer_, flags_, summary_) \
    Q(verb, path_, scope_, answer_, flags_, summary_, NULL)
#define Q(verb, path_, scope_, answer_, flags_, summary_, ...) \
    {.route = {.name = path_, \
               .path = path_, \
               .verbs = VERB_##verb, \
               .flags = (flags_) | FOR_PAGES, \
               .max_body_bytes = JOB_BODY_BYTES, \
               .ops = &job_ops, \
               .summary = summary_}, \
     .path = path_, \
     .scope = SCOPE_##scope_, \
     .query = (const char *const[]){__VA_ARGS__, NULL}, \
     .answer = answer_},
#define G(verb, path_, guest_path_, flags_, summary_) \
    {.route = {.name = path_, \
               .path = path_, \
               .verbs = VERB_##verb, \
               .flags = (flags_) | FOR_PAGES, \
               .max_body_bytes = UINT64_MAX, \
               .ops = &gateway_ops, \
               .summary = summary_}, \
     .path = path_, \
     .scope = SCOPE_USE, \
     .guest_path = guest_path_},

static const struct api_route api_rows[] = {
#include "daemon/routes.def"
};

const struct api_route *routes_at(size_t i)
{
    return i < N_ELEMENTS(api_rows) ? &api_rows[i] : NULL;
}

/* One segment of a path: up to the next '/' or the end. */
static size_t segment_len(const char *s, const char *end)
{
    const char *slash = memchr(s, '/', (size_t)(end - s));

    return (size_t)((slash ? slash : end) - s);
}

static bool is_rest(const char *segment, size_t len)
{
    return len > 5 && segment[0] == '{' && memcmp(segment + len - 4, "...}", 4) == 0;
}

/*
 * Compares a raw path with a row's. *ret_rest: what "{path...}" stands for, or NULL. fn, which may be NULL, gets each
 * variable segment.
 */
static int match_path(const char *pattern, const char *path, size_t len, const char **ret_rest,
                      int (*fn)(void *arg, const char *segment, size_t len), void *arg)
{
    const char *p = pattern, *p_end = pattern + strlen(pattern);
    const char *s = path, *s_end = path + len;

    *ret_rest = NULL;
    while (p < p_end && s < s_end && *p == '/' && *s == '/') {
        size_t p_len = segment_len(++p, p_end);
        size_t s_len = segment_len(++s, s_end);
        int r = 0;

        if (is_rest(p, p_len)) {
            *ret_rest = s;
            return 1;
        }
        if (*p == '{' && !s_len)
            return 0;
        if (*p == '{' && fn)
            r = fn(arg, s, s_len);
        else if (*p != '{' && (p_len != s_len || memcmp(p, s, p_len) != 0))
            return 0;
        if (r < 0)
            return r;
        p += p_len;
        s += s_len;
    }
    return p == p_end && s == s_end;
}

const struct api_route *routes_find(const char *path, size_t len, enum verb verb,
                                    struct route_match *ret)
{
    const struct api_route *first = NULL, *found = NULL;

    ret->verbs = 0;
    for (size_t i = 0; i < N_ELEMENTS(api_rows); i++) {
        const char *rest;

        /* Another pattern that fits as well has other meaning: the first one's path counts. */
        if ((first && strcmp(first->path, api_rows[i].path) != 0) ||
            match_path(api_rows[i].path, path, len, &rest, NULL, NULL) <= 0)
            continue;
        first = first ? first : &api_rows[i];
        ret->rest = rest;
        ret->verbs |= api_rows[i].route.verbs;
        if (!found && api_rows[i].route.verbs & verb)
            found = &api_rows[i];
    }
    return found ? found : first;
}

struct params {
    char **v;
    size_t n;
    struct err *e;
};

static int add_param(void *arg, const char *segment, size_t len)
{
    struct params *p = arg;
    int r = uri_decode(segment, len, &p->v[p->n], p->e);

    p->n += r == 0;
    return r;
}

int routes_params(const struct api_route *row, const char *path, char *ret[ROUTE_MAX_PARAMS],
                  struct err *e)
{
    struct params p = {.v = ret, .e = e};
    const char *rest;
    int r = match_path(row->path, path, strcspn(path, "?"), &rest, add_param, &p);

    return r < 0 ? r : 0;
}
