/* create: makes boxes. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "daemon/access.h"
#include "daemon/answers.h"
#include "daemon/contexts.h"
#include "daemon/daemon.h"
#include "daemon/repeat.h"
#include "http/respond.h"
#include "lib/box/box.h"
#include "lib/box/quota.h"
#include "lib/provider/provider.h"

#define ACCEPTED 202
#define FORKED_MS (2 * 60 * 1000) /* to start a box of a fork that was killed */
#define ATTACH_MOST_MS 60000
#define SEEN_MS 20 /* between two looks for the box that is being made */

/* ---- the body ---- */

struct create_body {
    struct bh_create_options o;
    uint32_t agent_port;
    json_t *env, *secrets, *labels;
    char **allow_missing;
};

#define OPTION(field, fn) JX_AS(#field, struct create_body, o.field, fn, JX_NULLABLE)

static const struct jx_field create_fields[] = {
    OPTION(name, jx_str),
    OPTION(provider, jx_str),
    OPTION(image, jx_str),
    OPTION(runtime, jx_str),
    OPTION(agent, jx_str),
    OPTION(agent_config, jx_str),
    OPTION(project, jx_str),
    OPTION(dest, jx_str),
    OPTION(git, jx_str),
    OPTION(with_secrets, jx_bool),
    OPTION(repo_url, jx_str),
    OPTION(git_token_file, jx_str),
    OPTION(network, jx_str),
    OPTION(privilege, jx_str),
    OPTION(on_timeout, jx_str),
    OPTION(timeout_ms, jx_i64),
    OPTION(cpu_millis, jx_u32),
    OPTION(memory_bytes, jx_u64),
    OPTION(pids, jx_u32),
    JX_RANGE("agent_port", struct create_body, agent_port, jx_u32, JX_NULLABLE, 1, UINT16_MAX),
    JX(struct create_body, env, jx_object, 0),
    JX(struct create_body, secrets, jx_object, 0),
    JX(struct create_body, labels, jx_object, 0),
    JX(struct create_body, allow_missing, jx_strv, 0),
    OPTION(start_timeout_ms, jx_i64),
    OPTION(disk_bytes, jx_u64),
    OPTION(no_upload, jx_bool),
    OPTION(key, jx_str),
    OPTION(on_idle, jx_str),
    OPTION(idle_ms, jx_i64),
    OPTION(from, jx_str),
    OPTION(on_gone, jx_str),
    OPTION(read_only, jx_bool),
    OPTION(defer_agent, jx_bool),
    OPTION(pool, jx_str),
    {0},
};

/* {"K":"V"} as "K=V". */
static int read_pairs(json_t *object, const char *field, char ***ret, struct err *e)
{
    const char *key;
    json_t *v;
    int r = 0;

    json_object_foreach (object, key, v) {
        _cleanup_free_ char *pair = NULL;

        if (!json_is_string(v) || strchr(key, '=') || !*key ||
            strlen(json_string_value(v)) != json_string_length(v))
            return err_field(e, ERR_INVALID, field, "%s: '%.60s' must be a text without a NUL",
                             field, key);
        if (asprintf(&pair, "%s=%s", key, json_string_value(v)) < 0)
            return err_oom(e);
        r = strv_push(ret, pair, e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- what only an administrator may ask for ---- */

static bool is_local_image(const char *image)
{
    return image && (strchr(image, '/') || strcmp(image, "host") == 0);
}

/* One that is not there is refused later. */
static bool is_isolating(const char *name)
{
    const struct provider *p = name ? provider_find(name) : NULL;

    return !p || p->isolates;
}

/* Names files of this machine, or would do without the isolation. The default provider isolates. */
static const char *privileged_option(const struct create_body *b)
{
    const struct bh_create_options *o = &b->o;

    return o->project                                      ? "project"
           : o->agent_config                               ? "agent_config"
           : o->git_token_file                             ? "git_token_file"
           : o->agent && strchr(o->agent, '/')             ? "agent"
           : is_local_image(o->image)                      ? "image"
           : o->network && strcmp(o->network, "host") == 0 ? "network"
           : !is_isolating(o->provider)                    ? "provider"
           : b->allow_missing && b->allow_missing[0]       ? "allow_missing"
                                                           : NULL;
}

static int check_rights(const struct job *j, const struct create_body *b, struct err *e)
{
    const char *option = j->is_admin ? NULL : privileged_option(b);

    return option ? err_field(e, ERR_DENIED, option,
                              "%s: this value needs a token of the scope 'admin'", option)
                  : 0;
}

/* ---- owners ---- */

/* The label "owner" of a token's owner is on all boxes that it makes. */
static int add_owner(const struct job *j, char ***labels, struct err *e)
{
    const char *owner = access_principal(j->q)->owner;
    _cleanup_free_ char *label = NULL;
    bool is_there = false;

    if (!*owner)
        return 0;
    if (asprintf(&label, "owner=%s", owner) < 0)
        return err_oom(e);
    for (char **l = *labels; l && *l; l++) {
        if (str_has_prefix(*l, "owner=") && !str_eq(*l, label))
            return err_field(e, ERR_DENIED, "labels", "labels: this token makes boxes of '%s'",
                             owner);
        is_there = is_there || str_eq(*l, label);
    }
    return is_there ? 0 : strv_push(labels, label, e);
}

/*
 * Creation returns the box that has the name or the key, unless it is one of another owner: bh_create() compares the
 * labels. Here the answer comes before anything is read, and names no box.
 */
static int check_taken(struct job *j, const struct bh_create_options *o, struct err *e)
{
    struct bh_box *named _cleanup_box_ = NULL;
    struct bh_box *keyed _cleanup_box_ = NULL;

    if (access_sees_owner(j->q, ""))
        return 0;
    if (o->name)
        (void)bh_get(j->ctx, o->name, &named, NULL);
    if (o->key)
        (void)bh_get_by_key(j->ctx, o->key, &keyed, NULL);
    if (named && !access_sees_owner(j->q, quota_owner(&named->spec)))
        return err_field(e, ERR_EXISTS, "name", "the name '%.64s' is taken", o->name);
    if (keyed && !access_sees_owner(j->q, quota_owner(&keyed->spec)))
        return err_field(e, ERR_EXISTS, "key", "the key '%.64s' is taken", o->key);
    return o->from ? job_check_snapshot(j, o->from, e) : 0;
}

/* ---- one creation, which goes on when its client has left ---- */

struct creation {
    struct daemon *daemon;
    json_t *body;
    struct create_body b;
    char **env, **secrets, **labels;
    char name[REPEAT_NAME_BYTES];
    bool is_new; /* it was made by this call */
    pthread_mutex_t lock;
    pthread_cond_t over;
    /* guarded by lock: */
    unsigned refs; /* the request's, and the worker's of one that nobody waits for */
    bool is_over;
    int r;
    struct err error;
};

static void creation_unref(struct creation *c)
{
    bool is_last = false;

    if (!c)
        return;
    WITH_LOCK (&c->lock) {
        is_last = --c->refs == 0;
    }
    if (!is_last)
        return;
    (void)strv_free(c->env);
    (void)strv_free(c->secrets);
    (void)strv_free(c->labels);
    (void)strv_free(c->b.allow_missing);
    json_decref(c->body);
    (void)pthread_cond_destroy(&c->over);
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
}

/* Needs a name to be found by: one that follows from a directory or repository is not known yet. */
static int choose_name(const struct job *j, struct creation *c, bool is_awaited, struct err *e)
{
    const struct bh_create_options *o = &c->b.o;
    int r;

    if (o->name || (is_awaited && (o->key || o->project || o->repo_url || o->from)))
        return 0;
    r = repeat_name(j, "box-", c->name, e);
    c->b.o.name = c->name;
    return r;
}

static int creation_read(struct job *j, struct creation *c, bool is_awaited, struct err *e)
{
    struct create_body *b = &c->b;
    int r = jx_decode(c->body, create_fields, b, e);

    if (r == 0)
        r = read_pairs(b->env, "env", &c->env, e);
    if (r == 0)
        r = read_pairs(b->secrets, "secrets", &c->secrets, e);
    if (r == 0)
        r = read_pairs(b->labels, "labels", &c->labels, e);
    if (r == 0)
        r = check_rights(j, b, e);
    if (r == 0)
        r = add_owner(j, &c->labels, e);
    if (r == 0)
        r = choose_name(j, c, is_awaited, e);
    if (r == 0)
        r = check_taken(j, &b->o, e);
    b->o.size = sizeof(b->o);
    b->o.agent_port = (uint16_t)b->agent_port;
    b->o.env = (const char *const *)c->env;
    b->o.secrets = (const char *const *)c->secrets;
    b->o.labels = (const char *const *)c->labels;
    b->o.allow_missing = (const char *const *)b->allow_missing;
    b->o.host_env = (const char *const *)environ;
    return r;
}

static int creation_new(struct job *j, bool is_awaited, struct creation **ret, struct err *e)
{
    struct creation *c = calloc(1, sizeof(*c));
    pthread_condattr_t attr;
    int r;

    if (!c)
        return err_oom(e);
    c->daemon = j->daemon;
    c->refs = 1;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&c->over, &attr);
    (void)pthread_condattr_destroy(&attr);
    c->body = json_deep_copy(j->body);
    r = c->body ? creation_read(j, c, is_awaited, e) : err_oom(e);
    if (r < 0) {
        creation_unref(c);
        return r;
    }
    *ret = c;
    return 0;
}

/* json: NULL if nobody wants it. */
static int creation_make(struct creation *c, struct bh_ctx *ctx, json_t **json, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct bh_error error = {0};
    int64_t begun_ms = clock_real_ms();
    int r = job_fail(e, bh_create(ctx, &c->b.o, &box, &error), &error);

    if (r < 0)
        return r;
    c->is_new = bh_box_summary(box)->created_ms >= begun_ms;
    if (json)
        *json = box_json(box);
    return 0;
}

static int answer_awaited(struct job *j, struct err *e)
{
    struct creation *c = NULL;
    json_t *json = NULL;
    int r = creation_new(j, true, &c, e);

    if (r < 0)
        return r;
    r = creation_make(c, j->ctx, &json, e);
    j->status = c->is_new ? HTTP_CREATED : HTTP_OK;
    creation_unref(c);
    return r < 0 ? r : job_reply_take(j, json, e);
}

/* ---- wait=false ---- */

static void run_creation(void *arg)
{
    struct creation *c = arg;
    struct bh_ctx *ctx = NULL;
    struct err e = {0};
    int r = contexts_take(c->daemon->contexts, "daemon", &ctx, &e);

    if (r == 0)
        r = creation_make(c, ctx, NULL, &e);
    contexts_give(c->daemon->contexts, ctx);
    WITH_LOCK (&c->lock) {
        c->r = r;
        c->error = e;
        c->is_over = true;
        (void)pthread_cond_signal(&c->over);
    }
    creation_unref(c);
}

/* Waits a moment; true: the creation is over. */
static bool creation_wait(struct creation *c, int *ret_r, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&c->lock);
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += SEEN_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    if (!c->is_over)
        (void)pthread_cond_timedwait(&c->over, &c->lock, &until);
    if (c->is_over && c->r < 0)
        *e = c->error;
    *ret_r = c->r;
    return c->is_over;
}

/* Replies with the box once the store has it, or with the error of a creation that failed before. */
static int reply_begun(struct job *j, struct creation *c, struct err *e)
{
    bool is_over = false;

    for (;;) {
        struct bh_box *box _cleanup_box_ = NULL;
        struct bh_error error = {0};
        int r = 0;

        is_over = is_over || creation_wait(c, &r, e);
        if (is_over && r < 0)
            return r;
        r = bh_get(j->ctx, c->b.o.name, &box, &error);
        /* Another owner's that has taken the name: the creation is about to fail. */
        if (r == 0 && access_sees_owner(j->q, quota_owner(&box->spec)))
            return job_reply_take(j, box_json(box), e);
        if (is_over)
            return r < 0 ? job_fail(e, r, &error)
                         : err_field(e, ERR_NOT_FOUND, "name", "the box '%.64s' was removed",
                                     c->b.o.name);
    }
}

static int answer_begun(struct job *j, struct err *e)
{
    struct creation *c = NULL;
    int r = creation_new(j, false, &c, e);

    if (r < 0)
        return r;
    c->refs = 2;
    r = pool_run(j->daemon->pool, run_creation, c, e);
    if (r < 0)
        c->refs = 1;
    else
        r = reply_begun(j, c, e);
    j->status = ACCEPTED;
    creation_unref(c);
    return r;
}

int answer_create(struct job *j, struct err *e)
{
    bool waits = true;
    int r = request_query_bool(j->q, "wait", &waits, e);

    return r < 0 ? r : repeat_answer(j, waits ? answer_awaited : answer_begun, e);
}

/* ---- a fork ---- */

struct fork_body {
    struct bh_fork_options o;
};

static const struct jx_field fork_fields[] = {
    JX_AS("name", struct fork_body, o.name, jx_str, JX_NULLABLE),
    JX_AS("timeout_ms", struct fork_body, o.timeout_ms, jx_i64, 0),
    {0},
};

/*
 * The box that a daemon which was killed has made for the same request. It may be half made: it is started.
 * ERR_NOT_FOUND: there is none, or nothing could be made of it.
 */
static int take_forked(struct job *j, const char *name, struct bh_box **ret, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct bh_error error = {0};
    int r = job_find_seen_box(j->q, j->ctx, name, &box, e);

    if (r == 0 && bh_box_summary(box)->created_ms < j->begun_ms)
        r = err_field(e, ERR_EXISTS, "name", "name: there is a box '%.64s' already", name);
    if (r == 0)
        r = job_fail(e, bh_start(box, FORKED_MS, &error), &error);
    if (r == 0)
        *ret = TAKE(box);
    return r;
}

static int answer_fork_once(struct job *j, struct err *e)
{
    struct fork_body body = {
        .o = {.size = sizeof(body.o), .host_env = (const char *const *)environ}};
    struct bh_box *box _cleanup_box_ = NULL;
    struct bh_box *made _cleanup_box_ = NULL;
    struct bh_error error = {0};
    char name[REPEAT_NAME_BYTES];
    int r = job_decode(j, fork_fields, &body, e);

    if (r == 0 && !body.o.name && j->repeat_key) {
        r = repeat_name(j, "box-", name, e);
        body.o.name = name;
    }
    if (r == 0)
        r = job_box(j, &box, e);
    if (r == 0 && j->begun_ms)
        r = take_forked(j, body.o.name, &made, e);
    if (r == -ERR_NOT_FOUND && box)
        r = 0;
    if (r == 0 && !made)
        r = job_fail(e, bh_fork(box, &body.o, &made, &error), &error);
    j->status = HTTP_CREATED;
    return r < 0 ? r : job_reply_take(j, box_json(made), e);
}

int answer_fork(struct job *j, struct err *e)
{
    return repeat_answer(j, answer_fork_once, e);
}

/* ---- a guest agent that somebody else runs ---- */

struct attach_body {
    struct bh_connect_options o;
    json_t *env;
};

static const struct jx_field attach_fields[] = {
    JX_AS("name", struct attach_body, o.name, jx_str, JX_REQUIRED),
    JX_AS("url", struct attach_body, o.url, jx_str, JX_REQUIRED),
    JX_AS("token", struct attach_body, o.token, jx_str, JX_NULLABLE),
    JX_AS("workdir", struct attach_body, o.workdir, jx_str, JX_NULLABLE),
    JX_AS("timeout_ms", struct attach_body, o.timeout_ms, jx_i64, 0),
    JX(struct attach_body, env, jx_object, 0),
    {0},
};

/* The daemon connects to any address that it reaches: a matter of an administrator. */
int answer_attach(struct job *j, struct err *e)
{
    struct attach_body b = {.o = {.size = sizeof(b.o), .host_env = (const char *const *)environ}};
    struct bh_box *box _cleanup_box_ = NULL;
    _cleanup_strv_ char **env = NULL;
    struct bh_error error = {0};
    int r = job_decode(j, attach_fields, &b, e);

    if (r == 0)
        r = read_pairs(b.env, "env", &env, e);
    if (r == 0 && (b.o.timeout_ms < 0 || b.o.timeout_ms > ATTACH_MOST_MS))
        r = err_field(e, ERR_INVALID, "timeout_ms", "timeout_ms: at most %d", ATTACH_MOST_MS);
    b.o.env = (const char *const *)env;
    if (r == 0)
        r = job_fail(e, bh_attach(j->ctx, &b.o, &box, &error), &error);
    j->status = HTTP_CREATED;
    return r < 0 ? r : job_reply_take(j, box_json(box), e);
}
