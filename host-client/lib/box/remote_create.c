/* remote_create: makes a box at a daemon, and uploads its project there; attaches a box there. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/box.h"
#include "lib/box/remote.h"
#include "lib/box/remote_calls.h"
#include "lib/project/project.h"
#include "lib/util/daemon_client.h"

#define CREATE_MS (30 * 60 * 1000) /* an image may have to be built first */
#define HOST_BYTES 65

/* ---- the request ---- */

static const char *local_option(const struct bh_create_options *o)
{
    return o->agent_config                     ? "agent_config"
           : o->git_token_file                 ? "git_token_file"
           : o->agent && strchr(o->agent, '/') ? "agent"
           : o->image && strchr(o->image, '/') ? "image"
                                               : NULL;
}

static int set_pairs(json_t *body, const char *key, const char *const *pairs, struct err *e)
{
    json_t *obj = pairs && *pairs ? json_object() : NULL;

    for (; obj && *pairs; pairs++) {
        const char *eq = strchr(*pairs, '=');
        _cleanup_free_ char *name = eq ? strndup(*pairs, (size_t)(eq - *pairs)) : NULL;

        if (!name || json_object_set_new(obj, name, json_string(eq + 1)) < 0) {
            json_decref(obj);
            return err_field(e, ERR_INVALID, key, "%s: '%.64s' is not NAME=VALUE in UTF-8", key,
                             name ? name : *pairs);
        }
    }
    return obj ? json_object_set_new(body, key, obj) : 0;
}

static void set_number(json_t *body, const char *key, uint64_t n)
{
    if (n)
        (void)json_object_set_new(body, key, json_integer((json_int_t)n));
}

/* The coding agent starts in its project, which comes after the box is made. */
static bool defers_agent(const struct bh_create_options *o)
{
    return o->project && !o->no_upload && o->agent && !str_eq(o->agent, "none");
}

static int new_body(const struct bh_create_options *o, const char *name, const char *key,
                    json_t **ret, struct err *e)
{
    bool is_deferred = defers_agent(o);
    _cleanup_json_ json_t *v =
        json_pack("{s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, "
                  "s:s*, s:s*}",
                  "name", name, "provider", o->provider, "image", o->image, "runtime", o->runtime,
                  "agent", o->agent, "dest", o->dest, "repo_url", o->repo_url, "network",
                  o->network, "privilege", o->privilege, "on_timeout", o->on_timeout, "on_idle",
                  o->on_idle, "on_gone", o->on_gone, "from", o->from, "pool", o->pool, "key", key);
    int r = v ? 0 : err_field(e, ERR_INVALID, "", "an option is not valid UTF-8");

    if (r < 0)
        return r;
    set_number(v, "timeout_ms", (uint64_t)o->timeout_ms);
    set_number(v, "idle_ms", (uint64_t)o->idle_ms);
    set_number(v, "start_timeout_ms", (uint64_t)o->start_timeout_ms);
    set_number(v, "cpu_millis", o->cpu_millis);
    set_number(v, "memory_bytes", o->memory_bytes);
    set_number(v, "disk_bytes", o->disk_bytes);
    set_number(v, "pids", o->pids);
    set_number(v, "agent_port", o->agent_port);
    if (o->read_only)
        (void)json_object_set_new(v, "read_only", json_true());
    if (is_deferred)
        (void)json_object_set_new(v, "defer_agent", json_true());
    if (o->repo_url && o->git)
        (void)json_object_set_new(v, "git", json_string(o->git));
    if (o->allow_missing && *o->allow_missing)
        (void)json_object_set_new(v, "allow_missing",
                                  jx_new_strv((char *const *)(uintptr_t)o->allow_missing));
    r = set_pairs(v, "env", o->env, e);
    if (r == 0)
        r = set_pairs(v, "secrets", o->secrets, e);
    if (r == 0)
        r = set_pairs(v, "labels", o->labels, e);
    if (r == 0)
        *ret = TAKE(v);
    return r;
}

/* ---- the project's box ---- */

/* A daemon knows no directories of this machine: the box of one is found by a key. */
static int new_project_key(const struct project *p, char **ret, struct err *e)
{
    char host[HOST_BYTES] = "";

    (void)gethostname(host, sizeof(host) - 1);
    if (asprintf(ret, "%s:%s", host, p->path) < 0)
        return err_oom(e);
    if (strlen(*ret) > STORE_KEY_BYTES) {
        free(TAKE(*ret));
        return err_field(e, ERR_INVALID, "project", "project: the path is too long");
    }
    return 0;
}

static bool box_says_key(const struct bh_box *box, const char *key)
{
    json_t *v;
    size_t i;

    json_array_foreach (json_object_get(box->remote, "keys"), i, v)
        if (str_eq(json_string_value(v), key))
            return true;
    return false;
}

/* -ERR_NOT_FOUND: the name is free. *ret_is_ours: the box of that name is for the project. */
static int look_for_project(struct bh_ctx *ctx, const char *name, const char *key,
                            bool *ret_is_ours, struct err *e)
{
    struct bh_box *box = NULL;
    int r = remote_get(ctx, name, &box, e);

    if (r == 0)
        *ret_is_ours = box_says_key(box, key);
    (void)bh_box_free(box);
    return r;
}

/* The name of the project's box, as bh_create() chooses it for a box of this machine. */
static int choose_project_name(struct bh_ctx *ctx, const struct bh_create_options *o,
                               const struct project *p, const char *key,
                               char out[PROJECT_NAME_BYTES], struct err *e)
{
    for (size_t i = 0; i < PROJECT_N_NAMES; i++) {
        bool is_ours = false;
        int r;

        if (o->name)
            (void)snprintf(out, PROJECT_NAME_BYTES, "%s", o->name);
        else
            project_name(p, i, out);
        if (!spec_is_name(out))
            return err_field(e, ERR_INVALID, "name", "name: '%.80s' is not the name of a box",
                             o->name);
        r = look_for_project(ctx, out, key, &is_ours, e);
        if (r == -ERR_NOT_FOUND || is_ours)
            return 0;
        if (r < 0)
            return r;
        if (o->name)
            return err_field(
                e, ERR_PRECONDITION, "project",
                "project: the box '%s' is not for '%.200s': give this one another name", out,
                p->path);
    }
    return err_field(e, ERR_EXISTS, "name", "name: the names of the project are taken");
}

/* ---- making it ---- */

static int upload_project(struct bh_box *box, const struct bh_create_options *o, struct err *e)
{
    struct bh_upload_options u = {.size = sizeof(u),
                                  .source = o->project,
                                  .dest = ".",
                                  .git = o->git ? o->git : "full",
                                  .with_secrets = o->with_secrets};
    struct bh_upload_result done = {.size = sizeof(done)};
    struct bh_error error = {0};
    int r;

    ctx_progress(box->ctx, "upload", 0, 0, false, "uploading '%s'", o->project);
    r = bh_upload(box, &u, &done, &error);
    if (r < 0)
        return err_field(e, (enum err_code)error.code, error.field, "%s", error.message);
    ctx_progress(box->ctx, "upload", done.bytes, done.bytes, true, "uploaded");
    if (done.left_out)
        ctx_progress(box->ctx, "warning", 0, 0, false, "left out, for they look like secrets: %s",
                     done.left_out);
    free(done.left_out);
    return 0;
}

/* If a step fails, the box is removed again; a token without the right to that leaves it there. */
static int fill_box(struct bh_box *box, const struct bh_create_options *o, struct err *e)
{
    int r = upload_project(box, o, e);

    if (r == 0 && defers_agent(o)) {
        ctx_progress(box->ctx, "agent", 0, 0, false, "starting %s", o->agent);
        r = remote_step_take(box, "agent", NULL, CREATE_MS, e);
    }
    if (r < 0)
        (void)remote_destroy(box, 0, NULL);
    return r;
}

static int create_at_daemon(struct bh_ctx *ctx, const struct bh_create_options *o, const char *name,
                            const char *key, struct bh_box **ret, struct err *e)
{
    _cleanup_json_ json_t *body = NULL;
    struct bh_box *box = NULL;
    json_t *v = NULL;
    bool is_empty;
    int64_t wait_ms = o->start_timeout_ms > CREATE_MS ? o->start_timeout_ms + CREATE_MS : CREATE_MS;
    int r = new_body(o, name, key, &body, e);

    if (r == 0)
        ctx_progress(ctx, "create", 0, 0, false, "making the box at the daemon");
    if (r == 0)
        r = remote_call(ctx, "POST", "/v1/boxes", body, wait_ms, &v, e);
    is_empty = daemon_client_status(ctx->daemon) == 201;
    if (r == 0)
        r = remote_new_box_take(ctx, v, &box, e);
    /* A command that was killed before its upload has left a box whose agent never started. */
    if (r == 0 && defers_agent(o))
        is_empty |= !box_agent_was_started(box);
    if (r == 0 && is_empty && o->project && !o->no_upload)
        r = fill_box(box, o, e);
    if (r < 0)
        (void)bh_box_free(box);
    else
        *ret = box;
    return r;
}

int remote_create(struct bh_ctx *ctx, const struct bh_create_options *o, struct bh_box **ret,
                  struct err *e)
{
    const char *local = local_option(o);
    char name[PROJECT_NAME_BYTES];
    _cleanup_free_ char *key = NULL;
    struct project p = {0};
    int r = local ? err_field(e, ERR_UNIMPLEMENTED, local,
                              "%s: a daemon has no files of this machine", local)
                  : 0;

    if (r == 0 && o->key)
        r = box_check_key(o->key, e);
    if (r < 0 || !o->project || o->key || o->from)
        return r < 0 ? r : create_at_daemon(ctx, o, o->name, o->key, ret, e);
    r = project_read(ctx, o, &p, e);
    if (r == 0 && !*p.path)
        r = err_field(e, ERR_NOT_FOUND, "project", "project: there is no directory '%.200s'",
                      o->project);
    if (r == 0)
        r = new_project_key(&p, &key, e);
    if (r == 0)
        r = choose_project_name(ctx, o, &p, key, name, e);
    if (r == 0)
        r = create_at_daemon(ctx, o, name, key, ret, e);
    project_done(&p);
    return r;
}

int remote_attach(struct bh_ctx *ctx, const struct bh_connect_options *o, struct bh_box **ret,
                  struct err *e)
{
    _cleanup_json_ json_t *body =
        json_pack("{s:s, s:s, s:s*, s:s*, s:I}", "name", o->name, "url", o->url, "token", o->token,
                  "workdir", o->workdir, "timeout_ms", (json_int_t)o->timeout_ms);
    json_t *v = NULL;
    int r = body ? set_pairs(body, "env", o->env, e)
                 : err_field(e, ERR_INVALID, "", "an option is not valid UTF-8");

    if (r == 0)
        r = remote_call(ctx, "POST", "/v1/attach", body, 0, &v, e);
    return r < 0 ? r : remote_new_box_take(ctx, v, ret, e);
}
