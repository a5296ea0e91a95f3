#include "dialect/e2b/e2b.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "dialect/e2b/hosts.h"
#include "dialect/e2b/proto.h"
#include "proc/registry.h"
#include "system/auth.h"
#include "system/init.h"
#include "system/info.h"

#define INIT_BUDGET_BYTES (8 * 1024 * 1024)
#define EVENTS_HOST "events.e2b.local"
#define BEHIND_MS 50  /* our clock is kept if it is at most this far behind the time in /init */
#define AHEAD_MS 5000 /* or this far ahead: the message has travelled */

struct e2b {
    struct usage_clock *usage;
    _Atomic uint64_t init_bytes; /* charged now */
    struct watchers *watchers;
    pthread_mutex_t init; /* before lock, and the locks of what an /init sets */
    int64_t newest_ns;    /* guarded by init: the time of the newest /init that was run */
    pthread_mutex_t lock;
    /* guarded by lock: */
    char *user;
    char *workdir;
    char *events; /* "E2B_EVENTS_ADDRESS=http://ADDRESS", or NULL */
};

/* With the lock. */
static void replace_setting(char **at, char **with)
{
    char *old = *at;

    if (!*with)
        return;
    *at = *with;
    *with = old;
}

/* NULL or "": leave it as it is. */
static int e2b_set_defaults(struct e2b *s, const char *user, const char *workdir, struct err *e)
{
    _cleanup_free_ char *new_user = user && *user ? strdup(user) : NULL;
    _cleanup_free_ char *new_workdir = workdir && *workdir ? strdup(workdir) : NULL;
    _cleanup_unlock_ pthread_mutex_t *locked = NULL;

    if ((user && *user && !new_user) || (workdir && *workdir && !new_workdir))
        return err_oom(e);
    locked = mutex_lock(&s->lock);
    replace_setting(&s->user, &new_user);
    replace_setting(&s->workdir, &new_workdir);
    return 0;
}

int e2b_new(const char *user, const char *workdir, struct e2b **ret, struct err *e)
{
    struct e2b *s = calloc(1, sizeof(*s));

    if (!s)
        return err_oom(e);
    (void)pthread_mutex_init(&s->init, NULL);
    (void)pthread_mutex_init(&s->lock, NULL);
    if (usage_clock_new(&s->usage, e) < 0 || watchers_new(&s->watchers, e) < 0 ||
        e2b_set_defaults(s, user, workdir, e) < 0) {
        e2b_free(s);
        return -ERR_EXHAUSTED;
    }
    *ret = s;
    return 0;
}

struct e2b *e2b_free(struct e2b *s)
{
    if (!s)
        return NULL;
    usage_clock_free(s->usage);
    watchers_free(s->watchers);
    free(s->user);
    free(s->workdir);
    free(s->events);
    (void)pthread_mutex_destroy(&s->init);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
    return NULL;
}

struct watchers *e2b_watchers(struct e2b *s)
{
    return s->watchers;
}

static int copy_setting(struct e2b *s, char *const *from, char **ret, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->lock);
    char *text = *from ? strdup(*from) : NULL;

    if (*from && !text)
        return err_oom(e);
    *ret = text;
    return 0;
}

int e2b_default_user(struct e2b *s, char **ret, struct err *e)
{
    return copy_setting(s, &s->user, ret, e);
}

int e2b_default_workdir(struct e2b *s, char **ret, struct err *e)
{
    return copy_setting(s, &s->workdir, ret, e);
}

#define SANDBOX "E2B_SANDBOX"
#define EVENTS "E2B_EVENTS_ADDRESS"

/* Whether it is one of e2b_add_variables(), set or not. */
static bool is_own_variable(const char *name)
{
    return str_eq(name, SANDBOX) || str_eq(name, EVENTS);
}

int e2b_add_variables(struct e2b *s, struct strv_list *list, struct err *e)
{
    _cleanup_free_ char *events = NULL;
    int r = copy_setting(s, &s->events, &events, e);

    if (r == 0)
        r = strv_list_add(list, SANDBOX "=true", e);
    return r == 0 && events ? strv_list_add(list, events, e) : r;
}

/* address: of IPv4 or IPv6, as text. */
static int set_events_variable(struct e2b *s, const char *address, struct err *e)
{
    bool is_v6 = strchr(address, ':') != NULL;
    _cleanup_free_ char *setting = NULL;
    _cleanup_unlock_ pthread_mutex_t *locked = NULL;

    if (asprintf(&setting, EVENTS "=http://%s%s%s", is_v6 ? "[" : "", address, is_v6 ? "]" : "") <
        0) {
        setting = NULL;
        return err_oom(e);
    }
    locked = mutex_lock(&s->lock);
    replace_setting(&s->events, &setting);
    return 0;
}

int e2b_charge_init(struct e2b *s, size_t len, struct err *e)
{
    if (s->init_bytes + len > INIT_BUDGET_BYTES)
        return err_set(e, ERR_EXHAUSTED, "too many large requests at once");
    s->init_bytes += len;
    return 0;
}

void e2b_discharge_init(struct e2b *s, size_t len)
{
    s->init_bytes -= len;
}

struct usage_clock *e2b_usage_clock(struct e2b *s)
{
    return s->usage;
}

/* ---- /init ------------------------------------------------------------------------------------ */

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
        if (r == 0 && !is_own_variable(name)) /* like envd, which keeps its own variables */
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
    return set_events_variable(e2b_of(a), address, e);
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

static void set_clock(int64_t real_ns)
{
    int64_t behind_ms = (real_ns - clock_real_ns()) / 1000000;
    struct resync_clock done;

    if (behind_ms > BEHIND_MS || behind_ms < -AHEAD_MS)
        resync_clock(real_ns / 1000000, -1, &done); /* without permission the clock stays */
}

/* A failed /init does not count as seen: a retry with the same time is run. */
static int do_init(struct agent *a, const struct init_params *p, int64_t time_ns, struct err *e)
{
    struct e2b *s = e2b_of(a);
    /* One /init at a time: its permission must still hold when it is done. */
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&s->init);
    int r = check_token(a, p->token, e);

    if (r == 0)
        r = check_known(a, p, e);
    /* The same time once more is run again: its reply was lost, maybe. */
    if (r < 0 || (p->time && time_ns < s->newest_ns))
        return r;
    r = apply_init(a, p, e);
    if (r < 0 || !p->time)
        return r;
    s->newest_ns = time_ns;
    set_clock(time_ns);
    return 0;
}

int e2b_init(struct agent *a, const char *body, size_t len, struct err *e)
{
    _cleanup_json_ json_t *obj = NULL;
    struct init_params p = {0};
    int64_t time_ns = 0;
    int r = jx_parse_object(body, len, &obj, e);

    if (r == 0)
        r = jx_decode_lax(obj, init_fields, &p, e);
    if (r == 0 && p.events_ip && !*p.events_ip)
        p.events_ip = NULL;
    if (r == 0 && p.time)
        r = proto_parse_time(p.time, &time_ns, e);
    if (r == 0) /* first: a stranger must not wait for another /init that writes a file */
        r = check_token(a, p.token, e);
    return r < 0 ? r : do_init(a, &p, time_ns, e);
}
