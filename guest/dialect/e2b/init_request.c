#include "dialect/e2b/init_request.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "dialect/e2b/e2b.h"
#include "dialect/e2b/hosts.h"
#include "dialect/e2b/timetext.h"
#include "proc/registry.h"
#include "agent.h"
#include "system/auth.h"
#include "system/init.h"
#include "system/info.h"

#define EVENTS_HOST "events.e2b.local"
#define BEHIND_MS 50  /* our clock is kept if it is at most this far behind the time in /init */
#define AHEAD_MS 5000 /* or this far ahead: the message has travelled */

/* ---- time ---- */

static void set_clock(int64_t real_ns)
{
    int64_t behind_ms = (real_ns - clock_real_ns()) / 1000000;
    struct resync_clock done;

    if (behind_ms > BEHIND_MS || behind_ms < -AHEAD_MS)
        resync_clock(real_ns / 1000000, -1, &done); /* without permission the clock stays */
}

/* ---- /init ---- */

struct init_params {
    const char *token;
    json_t *env;
    const char *time;
    const char *user;
    const char *workdir;
    const char *events_ip;
    const char *ca_bundle;
    json_t *mounts;
};

/* An empty token is refused: it would leave the agent open although a token was asked for. */
static int jx_token(json_t *v, void *out, struct err *e)
{
    int r = jx_str(v, out, e);

    if (r == 0 && !**(const char **)out)
        return err_set(e, ERR_INVALID, "must not be empty");
    return r;
}

static const struct jx_field init_fields[] = {
    JX_AS("accessToken", struct init_params, token, jx_token, JX_NULLABLE),
    JX_AS("envVars", struct init_params, env, jx_object, JX_NULLABLE),
    JX_AS("timestamp", struct init_params, time, jx_str, JX_NULLABLE),
    JX_AS("defaultUser", struct init_params, user, jx_str, JX_NULLABLE),
    JX_AS("defaultWorkdir", struct init_params, workdir, jx_str, JX_NULLABLE),
    JX_AS("hyperloopIP", struct init_params, events_ip, jx_str, JX_NULLABLE),
    JX_AS("caBundle", struct init_params, ca_bundle, jx_str, JX_NULLABLE),
    JX_AS("volumeMounts", struct init_params, mounts, jx_array, JX_NULLABLE),
    {0},
};

/*
 * The first caller of an open agent may set the token; later callers must know it. Checked again when an /init that
 * waited for another one has its turn.
 */
static int check_token(struct agent *a, const char *token, struct err *e)
{
    if (auth_is_open(a->auth) || auth_matches(a->auth, token))
        return 0;
    return err_set(e, ERR_UNAUTHENTICATED,
                   token ? "access token validation failed" : "access token reset not authorized");
}

/* Refuses features that are not supported: a success would be a lie. */
static int check_known(const struct agent *a, const struct init_params *p, struct err *e)
{
    int r = p->events_ip ? hosts_check_address(p->events_ip, e) : 0;

    if (r < 0)
        return err_at(e, err_wrap(e, r, "hyperloopIP"), "hyperloopIP");
    if (p->events_ip && a->is_read_only)
        return err_field(e, ERR_DENIED, "hyperloopIP",
                         "hyperloopIP: it goes to /etc/hosts, and the agent is read-only");
    if (p->ca_bundle && *p->ca_bundle)
        return err_field(e, ERR_UNIMPLEMENTED, "caBundle", "'caBundle' is not supported here");
    if (json_array_size(p->mounts))
        return err_field(e, ERR_UNIMPLEMENTED, "volumeMounts",
                         "'volumeMounts' are not supported here");
    return 0;
}

static int add_variable(struct strv_list *env, const char *name, json_t *value, struct err *e)
{
    _cleanup_free_ char *setting = NULL;

    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
        return err_set(e, ERR_INVALID, "envVars['%.64s'] must be a string", name);
    if (asprintf(&setting, "%s=%s", name, json_string_value(value)) < 0)
        return err_oom(e);
    return strv_list_add(env, setting, e);
}

static int set_variables(struct agent *a, json_t *env, struct err *e)
{
    struct strv_list list = {0};
    const char *name;
    json_t *value;
    int r = 0;

    if (!env)
        return 0;
    json_object_foreach (env, name, value)
        if (r == 0 && !e2b_has_variable(name)) /* like envd, which keeps its own variables */
            r = add_variable(&list, name, value, e);
    if (r == 0)
        r = environ_change(a->registry, true, NULL, list.v, e);
    strv_free(list.v);
    return r;
}

/* Sets the address to which the orchestrator's events go: a name in /etc/hosts, and a variable. */
static int set_events(struct agent *a, const char *address, struct err *e)
{
    int r = hosts_set(a->root, EVENTS_HOST, address, e);

    if (r < 0)
        return err_at(e, err_wrap(e, r, "hyperloopIP"), "hyperloopIP");
    return e2b_set_events(e2b_of(a), address, e);
}

/* Sets the variables and the file. If the file fails, the variables are rolled back. */
static int set_env_and_events(struct agent *a, const struct init_params *p, struct err *e)
{
    _cleanup_strv_ char **before = NULL;
    int r = environ_copy(a->registry, &before, e);

    if (r == 0)
        r = set_variables(a, p->env, e);
    if (r < 0 || !p->events_ip)
        return r;
    r = set_events(a, p->events_ip, e);
    if (r < 0 && p->env)
        (void)environ_change(a->registry, true, NULL, before, NULL);
    return r;
}

/* Checks everything before anything changes. */
static int apply_init(struct agent *a, const struct init_params *p, struct err *e)
{
    int r = p->token ? auth_check_token(p->token, e) : 0;

    if (r == 0)
        r = set_env_and_events(a, p, e);
    if (r == 0)
        r = e2b_set_defaults(e2b_of(a), p->user, p->workdir, e);
    if (r == 0 && p->token)
        r = auth_claim(a->auth, p->token, e);
    return r;
}

/* A failed /init does not count as seen: a retry with the same time is run. */
static int do_init(struct agent *a, const struct init_params *p, int64_t time_ns, struct err *e)
{
    int r = check_token(a, p->token, e);

    if (r == 0)
        r = check_known(a, p, e);
    if (r < 0 || (p->time && !e2b_is_news(e2b_of(a), time_ns)))
        return r;
    r = apply_init(a, p, e);
    if (r < 0 || !p->time)
        return r;
    e2b_note_news(e2b_of(a), time_ns);
    set_clock(time_ns);
    return 0;
}

int e2b_init(struct agent *a, const char *body, size_t len, struct err *e)
{
    _cleanup_json_ json_t *obj = NULL;
    struct init_params p = {0};
    int64_t time_ns = 0;
    int r;

    r = jx_parse_object(body, len, &obj, e);
    if (r == 0)
        r = jx_decode_lax(obj, init_fields, &p, e);
    if (r == 0 && p.events_ip && !*p.events_ip)
        p.events_ip = NULL;
    if (r == 0 && p.time)
        r = timetext_parse(p.time, &time_ns, e);
    if (r == 0)
        r = check_token(
            a, p.token,
            e); /* check first: a stranger must not wait for another /init that writes a file */
    if (r < 0)
        return r;
    e2b_begin_init(e2b_of(a));
    r = do_init(a, &p, time_ns, e);
    e2b_end_init(e2b_of(a));
    return r;
}

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

int e2b_envs(struct agent *a, json_t **ret, struct err *e)
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

/* ---- /metrics ---- */

#define MIB (1024 * 1024)

int e2b_metrics(struct agent *a, json_t **ret, struct err *e)
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
