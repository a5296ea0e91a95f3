#include "api/dialect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/files/resume.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "http/respond.h"
#include "system/auth.h"
#include "system/metrics.h"

#define PROBLEM_TYPES "https://iana.org/assignments/http-problem-types#"

struct agent *request_agent(const struct request *q)
{
    return request_owner(q);
}

const struct dialect *request_dialect(const struct request *q)
{
    return q->group ? q->group : request_agent(q)->dialects[0].row;
}

const struct rpc_method *request_method(const struct request *q)
{
    return q->method;
}

const struct codec *request_codec(const struct request *q)
{
    return q->codec;
}

/* ---- the table of dialects ---- */

/* One counter for all rows of a name in a dialect, and one for each method. */
static struct {
    const struct dialect *dialect;
    const char *route;
    const struct rpc_method *method;
} route_counters[METRICS_MAX_ROUTES];
static size_t n_counters;

static int find_counter(const struct dialect *d, const struct route *route,
                        const struct rpc_method *m)
{
    for (size_t i = 1; i < n_counters; i++)
        if (m ? route_counters[i].method == m
              : route_counters[i].dialect == d && route_counters[i].route &&
                    strcmp(route_counters[i].route, route->name) == 0)
            return (int)i;
    return 0;
}

static void add_counter(const struct dialect *d, const struct route *route,
                        const struct rpc_method *m)
{
    if (n_counters == N_ELEMENTS(route_counters) || (!route && !m) || find_counter(d, route, m))
        return;
    route_counters[n_counters].dialect = d;
    route_counters[n_counters].route = m ? NULL : route->name;
    route_counters[n_counters++].method = m;
}

/* Counter 0 is for requests without a route. */
static int name_counters(const struct dialect *const *rows, struct err *e)
{
    static char names[METRICS_MAX_ROUTES][64];
    const char *all[METRICS_MAX_ROUTES] = {"none"};

    n_counters = 1;
    for (size_t i = 0; rows[i]; i++) {
        add_counter(rows[i], rows[i]->call_route, NULL);
        add_counter(rows[i], rows[i]->inflow_route, NULL);
        for (size_t j = 0; j < rows[i]->n_routes; j++)
            add_counter(rows[i], &rows[i]->routes[j], NULL);
    }
    for (size_t i = 0; rows[i]; i++)
        for (size_t j = 0; j < rows[i]->n_methods; j++)
            add_counter(rows[i], NULL, &rows[i]->methods[j]);
    for (size_t i = 1; i < n_counters; i++) {
        const struct rpc_method *m = route_counters[i].method;

        all[i] = names[i];
        if (m)
            (void)snprintf(names[i], sizeof(names[i]), "%s/%s", m->service, m->name);
        else
            (void)snprintf(names[i], sizeof(names[i]), "%s", route_counters[i].route);
    }
    return metrics_init(all, n_counters, e);
}

int dialects_start(struct agent *a, const struct dialect *const *rows, struct err *e)
{
    size_t n = 0;
    int r = name_counters(rows, e);

    if (r < 0)
        return r;
    while (rows[n])
        n++;
    a->dialects = calloc(n + 1, sizeof(*a->dialects));
    if (!a->dialects)
        return err_oom(e);
    for (size_t i = 0; i < n && r == 0; i++) {
        a->dialects[i].row = rows[i];
        if (rows[i]->init)
            r = rows[i]->init(a, &a->dialects[i].state, e);
    }
    return r;
}

void dialects_stop(struct agent *a)
{
    for (struct dialect_slot *s = a->dialects; s && s->row; s++)
        if (s->state)
            s->row->free(s->state);
    free(TAKE(a->dialects));
}

void *dialect_state(const struct agent *a, const struct dialect *row)
{
    for (const struct dialect_slot *s = a->dialects; s->row; s++)
        if (s->row == row)
            return s->state;
    return NULL;
}

const struct rpc_method *dialect_find_method(const struct dialect *d, const char *path, size_t len)
{
    size_t prefix = d->method_prefix ? strlen(d->method_prefix) : len + 1;

    if (len < prefix || memcmp(path, d->method_prefix, prefix) != 0)
        return NULL;
    path += prefix;
    len -= prefix;
    for (size_t i = 0; i < d->n_methods; i++) {
        const struct rpc_method *m = &d->methods[i];
        size_t n = strlen(m->service);

        if (len == n + 1 + strlen(m->name) && memcmp(path, m->service, n) == 0 && path[n] == '/' &&
            memcmp(path + n + 1, m->name, len - n - 1) == 0)
            return m;
    }
    return NULL;
}

int dialect_set_late(const struct request *q, struct err *e)
{
    const struct dialect *d = request_dialect(q);

    return d->set_late ? d->set_late(e)
                       : err_field(e, ERR_DEADLINE, "Connect-Timeout-Ms",
                                   "the time that the client gave is over");
}

/* ---- http_service ---- */

static void service_find_route(struct request *q, const char *path, size_t len,
                               struct route_match *ret)
{
    for (const struct dialect_slot *s = request_agent(q)->dialects; s->row && !ret->route; s++) {
        const struct dialect *d = s->row;
        const struct rpc_method *m = dialect_find_method(d, path, len);

        ret->method = m;
        ret->group = d;
        if (m) {
            ret->route = m->kind == RPC_INFLOW ? d->inflow_route : d->call_route;
            ret->verbs = ret->route->verbs;
        } else {
            ret->route = route_find(d->routes, d->n_routes, path, len, q->verb, ret);
        }
    }
    if (!ret->route) {
        ret->group = NULL;
        return;
    }
    ret->counter = find_counter(ret->group, ret->route, ret->method);
    if (q->verb == VERB_OPTIONS && ((const struct dialect *)ret->group)->preflight) {
        const struct route *preflight = ((const struct dialect *)ret->group)->preflight(q);

        if (preflight) {
            ret->route = preflight;
            ret->verbs = preflight->verbs;
            ret->rest = NULL;
        }
    }
}

static bool service_is_open(struct request *q)
{
    return auth_is_open(request_agent(q)->auth);
}

static int service_check_page(struct request *q, const char *header, struct err *e)
{
    const struct dialect *d = request_dialect(q);

    if (d->check_page)
        return d->check_page(q, header, e);
    return err_field(e, ERR_DENIED, header,
                     "an agent without a token takes no requests of web pages");
}

/* NULL: none. */
static const char *bearer_token(struct request *q)
{
    const char *text = request_header(q, "Authorization");

    return text && strncasecmp(text, "Bearer ", 7) == 0 ? text + 7 : NULL;
}

int request_check_tokens(struct request *q, struct err *e)
{
    const char *bearer = bearer_token(q), *other = request_header(q, "X-Access-Token");

    if (q->route->flags & ROUTE_RELAYS || !bearer || !other || !*other || str_eq(bearer, other))
        return 0;
    return err_set(e, ERR_UNAUTHENTICATED,
                   "Authorization and X-Access-Token have different tokens");
}

static bool has_token(struct request *q, struct auth *known)
{
    return auth_matches(known, bearer_token(q)) ||
           auth_matches(known, request_header(q, "X-Access-Token"));
}

static int refuse_token(struct request *q, struct err *e)
{
    const struct dialect *d = request_dialect(q);

    if (d->refuse_token)
        return d->refuse_token(q, e);
    return err_set(e, ERR_UNAUTHENTICATED,
                   request_header(q, "Authorization") || request_header(q, "X-Access-Token")
                       ? "the token is not the right one"
                       : "a token is needed: Authorization: Bearer TOKEN");
}

static int service_authorize(struct request *q, struct err *e)
{
    const struct agent *a = request_agent(q);
    const struct rpc_method *m = request_method(q);
    bool needs_token = !(q->route->flags & ROUTE_OPEN) && !auth_is_open(a->auth);
    int r = needs_token ? request_check_tokens(q, e) : 0;

    if (r < 0)
        return r;
    if (needs_token && !has_token(q, a->auth))
        return refuse_token(q, e);
    if (a->is_read_only && (m ? !(m->flags & RPC_READS) : q->route->flags & ROUTE_CHANGES))
        return err_set(e, ERR_DENIED, "the agent is read-only");
    return 0;
}

static void service_admitted(struct request *q)
{
    const struct rpc_method *m = request_method(q);

    q->is_use = !(q->route->flags & ROUTE_QUIET || (m && m->flags & RPC_QUIET) ||
                  request_header_has(q, WIRE_HEADER_QUIET, "1"));
    if (q->is_use)
        metrics_use_begin();
}

/* RFC 9457: a problem's members stand beside ours. */
static int add_problem(const struct problem *p, const struct err *error, int status, json_t *body)
{
    int r = json_object_set_new(body, "type", json_sprintf("%s%s", PROBLEM_TYPES, p->type));

    r |= json_object_set_new(body, "title", json_string(error->message));
    r |= json_object_set_new(body, "status", json_integer(status));
    if (p->has_offsets) {
        r |= json_object_set_new(body, "expected-offset",
                                 json_integer((json_int_t)p->expected_offset));
        r |= json_object_set_new(body, "provided-offset",
                                 json_integer((json_int_t)p->provided_offset));
    }
    return r;
}

int service_write_json_error(const struct request *q, const struct err *error,
                             struct error_reply *ret, struct err *e)
{
    _cleanup_json_ json_t *body = jx_new_error(error);

    if (!body || (q->problem.type && add_problem(&q->problem, error, ret->status, body) < 0))
        return err_oom(e);
    ret->type = q->problem.type ? "application/problem+json" : WIRE_TYPE_JSON;
    return jx_dump(body, &ret->text, &ret->len, e);
}

static int service_write_error(const struct request *q, const struct err *error,
                               struct error_reply *ret, struct err *e)
{
    const struct dialect *d = request_dialect(q);

    if (d->write_error)
        return d->write_error(q, error, ret, e);
    ret->challenge = "Bearer realm=\"bellhop\"";
    return service_write_json_error(q, error, ret, e);
}

static void service_add_headers(struct request *q, struct reply *response)
{
    const struct dialect *d = request_dialect(q);

    if (d->add_headers)
        d->add_headers(q, response);
}

static void service_done(const struct request *q, int64_t took_ms)
{
    if (q->is_use)
        metrics_use_end();
    metrics_request(q->counter, q->status, q->bytes_in, q->bytes_out, took_ms);
}

static void service_connection_refused(void *owner)
{
    (void)owner;
    metrics_connection_refused();
}

static void service_relayed(void *owner, uint64_t bytes_in, uint64_t bytes_out)
{
    (void)owner;
    metrics_relayed(bytes_in, bytes_out);
}

static void service_sweep(void *owner, int64_t now_ms)
{
    const struct agent *a = owner;

    resumes_sweep(a->resumes, now_ms);
}

const struct http_service agent_service = {
    .find_route = service_find_route,
    .is_open = service_is_open,
    .check_page = service_check_page,
    .authorize = service_authorize,
    .admitted = service_admitted,
    .write_error = service_write_error,
    .add_headers = service_add_headers,
    .done = service_done,
    .connection_refused = service_connection_refused,
    .relayed = service_relayed,
    .sweep = service_sweep,
};

int respond_json(struct request *q, int status, const json_t *body, struct err *e)
{
    char *text;
    size_t len;
    int r = jx_dump(body, &text, &len, e);

    return r < 0 ? r : respond_text_take(q, status, WIRE_TYPE_JSON, text, len, e);
}
