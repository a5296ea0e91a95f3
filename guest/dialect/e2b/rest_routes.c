/* rest_routes: E2B's routes for the control plane: /health, /init, /envs, /metrics. */
#include "dialect/e2b/rest_routes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/dialect.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "dialect/e2b/e2b.h"
#include "http/respond.h"
#include "proc/registry.h"
#include "system/info.h"

int e2b_drop_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    (void)q;
    (void)data;
    (void)e;
    *len = 0;
    return 0;
}

/* ---- /health ---- */

static int health_finish(struct request *q, struct err *e)
{
    return respond_empty(q, HTTP_NO_CONTENT, e);
}

const struct request_ops e2b_health_ops = {.body = e2b_drop_body, .finish = health_finish};

/* ---- a method that there is not: in plain text, which clients take for "unimplemented" ---- */

static int unknown_finish(struct request *q, struct err *e)
{
    static const char text[] = "404 page not found\n";
    char *copy = strdup(text);

    if (!copy)
        return err_oom(e);
    return respond_text_take(q, HTTP_NOT_FOUND, "text/plain; charset=utf-8", copy, strlen(text), e);
}

const struct request_ops e2b_unknown_ops = {.body = e2b_drop_body, .finish = unknown_finish};

/* ---- /init ---- */

struct init_body {
    struct ask ask;
    struct e2b *e2b;
    struct buf text;
    size_t charged; /* of the budget */
};

/* There was a secret in it. */
static void free_init(void *state)
{
    struct init_body *body = state;

    if (body->text.data)
        explicit_bzero(body->text.data, body->text.len);
    e2b_discharge_init(body->e2b, body->charged);
    buf_done(&body->text);
    free(body);
}

static int init_begin(struct request *q, struct err *e)
{
    struct init_body *body = calloc(1, sizeof(*body));

    if (!body)
        return err_oom(e);
    body->e2b = e2b_of(request_agent(q));
    buf_init(&body->text, INIT_MAX_BYTES);
    q->state = body;
    q->free_state = free_init;
    return request_reply_header(q, "X-Envd-Version", E2B_VERSION, e);
}

static int init_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    struct init_body *body = q->state;
    int r;

    r = e2b_charge_init(body->e2b, *len, e);
    if (r < 0)
        return r;
    body->charged += *len;
    r = buf_add(&body->text, data, *len, e);
    if (r < 0)
        return r;
    *len = 0;
    return 0;
}

static void run_init(struct request *q)
{
    struct init_body *body = q->state;

    body->ask.r = e2b_init(request_agent(q), body->text.data, body->text.len, &body->ask.error);
    request_answer(q, &body->ask);
}

static int init_finish(struct request *q, struct err *e)
{
    struct reply *response;
    struct init_body *body = q->state;
    int r = request_ask(q, &body->ask, run_init, e);

    if (r != 0)
        return r == REQUEST_PARKED ? 0 : r;
    response = reply_new_empty();
    if (!response)
        return err_oom(e);
    reply_add_header(response, "X-Envd-Version", E2B_VERSION);
    return respond_queue(q, HTTP_NO_CONTENT, response, e);
}

const struct request_ops e2b_init_ops = {
    .begin = init_begin, .body = init_body, .finish = init_finish};

/* ---- /envs ---- */

/* Of two variables of one name the first counts. */
static int add_envs(json_t *v, char **env, struct err *e)
{
    for (; env && *env; env++) {
        char *value = *env + strcspn(*env, "=");

        *value++ = '\0';
        str_make_utf8(value);
        if (!json_object_get(v, *env) && json_object_set_new(v, *env, json_string(value)) < 0)
            return err_oom(e);
    }
    return 0;
}

/* {"NAME":"value"}: the environment of every command. */
static int new_envs(struct agent *a, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *v = json_object();
    _cleanup_strv_ char **env = NULL;
    struct strv_list own = {0};
    int r;

    r = v ? e2b_add_variables(e2b_of(a), &own, e) : err_oom(e);
    if (r == 0)
        r = add_envs(v, own.v, e);
    strv_free(own.v);
    if (r == 0)
        r = environ_copy(a->registry, &env, e);
    if (r == 0)
        r = add_envs(v, env, e);
    if (r == 0)
        *ret = json_incref(v);
    return r;
}

static int envs_finish(struct request *q, struct err *e)
{
    _cleanup_json_ json_t *envs = NULL;
    int r = new_envs(request_agent(q), &envs, e);

    return r < 0 ? r : respond_json(q, HTTP_OK, envs, e);
}

const struct request_ops e2b_envs_ops = {.body = e2b_drop_body, .finish = envs_finish};

/* ---- /metrics: E2B's as JSON, ours as text for who asks for it ---- */

struct asked_metrics {
    struct ask ask;
    json_t *reply;
};

static void free_metrics(void *state)
{
    struct asked_metrics *m = state;

    json_decref(m->reply);
    free(m);
}

static int metrics_begin(struct request *q, struct err *e)
{
    struct asked_metrics *m = calloc(1, sizeof(*m));

    if (!m)
        return err_oom(e);
    q->state = m;
    q->free_state = free_metrics;
    return 0;
}

#define MIB (1024 * 1024)

/* Blocks. */
static int new_metrics(struct agent *a, json_t **ret, struct err *e)
{
    struct usage u;
    int r;

    r = usage_get(e2b_usage_clock(e2b_of(a)), &u, e);
    if (r < 0)
        return r;
    *ret = json_pack("{s:I, s:i, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "ts",
                     (json_int_t)(clock_real_ms() / 1000), "cpu_count", (int)u.n_cpus,
                     "cpu_used_pct", round(u.cpu_percent * 100) / 100, "mem_total_mib",
                     (json_int_t)(u.mem_total / MIB), "mem_used_mib",
                     (json_int_t)(u.mem_used / MIB), "mem_total", (json_int_t)u.mem_total,
                     "mem_used", (json_int_t)u.mem_used, "mem_cache", (json_int_t)u.mem_cache,
                     "disk_used", (json_int_t)u.disk_used, "disk_total", (json_int_t)u.disk_total);
    return *ret ? 0 : err_oom(e);
}

static void run_metrics(struct request *q)
{
    struct asked_metrics *m = q->state;

    m->ask.r = new_metrics(request_agent(q), &m->reply, &m->ask.error);
    request_answer(q, &m->ask);
}

static bool wants_text(struct request *q)
{
    const char *accept = request_header(q, "Accept");

    return accept && (strcasestr(accept, "text/plain") || strcasestr(accept, "openmetrics-text"));
}

static int metrics_finish(struct request *q, struct err *e)
{
    struct asked_metrics *m = q->state;
    int r;

    if (wants_text(q))
        return metrics_ops.finish(q, e);
    r = request_ask(q, &m->ask, run_metrics, e);
    if (r != 0)
        return r == REQUEST_PARKED ? 0 : r;
    return respond_json(q, HTTP_OK, m->reply, e);
}

const struct request_ops e2b_metrics_ops = {
    .begin = metrics_begin, .body = e2b_drop_body, .finish = metrics_finish};
