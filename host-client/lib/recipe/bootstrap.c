#include "lib/recipe/bootstrap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/project/project_archive.h"
#include "lib/recipe/bootstrap_guest.h"
#include "lib/recipe/bootstrap_run.h"

#define PREPARE_MS 20000

/* ---- what the steps share ---- */

int64_t bootstrap_step_end(const struct bootstrap *b, uint32_t timeout_ms)
{
    int64_t end = clock_mono_ms() + timeout_ms;

    return b->req->deadline_mono_ms && b->req->deadline_mono_ms < end ? b->req->deadline_mono_ms
                                                                      : end;
}

void bootstrap_keep_log(struct bootstrap *b, char **log)
{
    free(b->log);
    b->log = TAKE(*log);
}

/* Turns the end of a command into an error unless its status is 0. */
static int check_run(struct bootstrap *b, const char *name, struct guest_run *run, struct err *e)
{
    if (run->status == 0)
        return 0;
    bootstrap_keep_log(b, &run->log);
    if (str_eq(run->reason, "timeout"))
        return err_set(e, ERR_DEADLINE, "'%s' did not end in time", name);
    if (run->status > 0)
        return err_set(e, ERR_PRECONDITION, "'%s' ended with status %d", name, run->status);
    return err_set(e, ERR_PRECONDITION, "'%s' ended: %s", name, run->reason);
}

int bootstrap_command(struct bootstrap *b, json_t *argv, int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_json_ json_t *expanded = json_array();
    struct guest_run run = {0};
    int r = expanded ? recipe_expand_list(argv, &b->vars, expanded, e) : err_oom(e);

    if (r == 0)
        r = guest_run(b->req->client, expanded, b->env, NULL, deadline_mono_ms, &run, e);
    if (r < 0)
        return r;
    r = check_run(b, json_string_value(json_array_get(expanded, 0)), &run, e);
    guest_run_done(&run);
    return r;
}

static int set_pair(json_t *obj, const char *pair, struct err *e)
{
    const char *eq = strchr(pair, '=');
    _cleanup_free_ char *name = eq ? strndup(pair, (size_t)(eq - pair)) : NULL;

    if (!eq)
        return err_field(e, ERR_INVALID, "env", "'%.60s' is not NAME=VALUE", pair);
    if (!name || json_object_set_new(obj, name, json_string(eq + 1)) < 0)
        return err_field(e, ERR_INVALID, "env", "the value of '%.60s' is not UTF-8", pair);
    return 0;
}

/* ---- prepare: who the box's user is, where things go ---- */

static const char *env_value(char *const *env, const char *name)
{
    const char *value = NULL;
    size_t len = strlen(name);

    for (; env && *env; env++)
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
            value = *env + len + 1;
    return value;
}

static int find_home(struct bootstrap *b, struct err *e)
{
    const char *given = env_value(b->req->env, "HOME");
    _cleanup_json_ json_t *argv = NULL;
    struct guest_run run = {0};
    int r;

    if (given) {
        b->home = strdup(given);
        return b->home ? 0 : err_oom(e);
    }
    argv = json_pack("[s, s, s]", "sh", "-c", "printf %s \"$HOME\"");
    if (!argv)
        return err_oom(e);
    r = guest_run(b->req->client, argv, NULL, "/", bootstrap_step_end(b, PREPARE_MS), &run, e);
    if (r < 0)
        return r;
    r = check_run(b, "sh", &run, e);
    if (r == 0 && (!run.output.len || run.output.data[0] != '/'))
        r = err_set(e, ERR_PRECONDITION, "the box's user has no home directory");
    if (r == 0)
        b->home = buf_take(&run.output);
    guest_run_done(&run);
    return r;
}

static int find_recipe(struct bootstrap *b, struct err *e)
{
    struct err why = {0};
    int r = recipe_load(b->req->ctx->recipe_dir, b->req->agent, &b->rec.recipe, &why);

    (void)bootstrap_record_load(b->req->box_dir, &b->old, NULL);
    /* The user's own recipe file may have gone since the box was made: the box has kept its
     * content. */
    if (r == -ERR_NOT_FOUND && b->old.agent && str_eq(b->old.agent, b->req->agent))
        r = recipe_from_json(b->old.recipe.doc, b->old.recipe.dir, b->old.recipe.version,
                             &b->rec.recipe, &why);
    if (r < 0 && e)
        *e = why;
    return r;
}

static int prepare_vars(struct bootstrap *b, struct err *e)
{
    const struct recipe *rec = &b->rec.recipe;
    _cleanup_free_ char *label = NULL;
    int r = find_home(b, e);

    if (r == 0)
        r = bootstrap_password(b->req->box_dir, rec->health.username != NULL, &b->password, e);
    if (r < 0)
        return r;
    if (asprintf(&label, "%s-%s", rec->name, rec->version) < 0)
        return err_oom(e);
    b->has_layer = b->req->layer && str_eq(b->req->layer_of, label);
    if (b->has_layer)
        b->install = strdup(b->req->layer);
    else if (asprintf(&b->install, "%s/.bellhop/agents/%s", b->home, label) < 0)
        b->install = NULL;
    if (!b->install)
        return err_oom(e);
    b->rec.port = b->req->port ? b->req->port : (uint16_t)rec->port;
    (void)snprintf(b->port_text, sizeof(b->port_text), "%u", (unsigned)b->rec.port);
    b->vars = (struct recipe_vars){.port = b->port_text,
                                   .password = b->password,
                                   .workdir = b->req->workdir,
                                   .version = rec->version,
                                   .home = b->home,
                                   .install = b->install};
    return 0;
}

static int prepare_env(struct bootstrap *b, struct err *e)
{
    int r;

    b->env = json_object();
    r = b->env ? recipe_expand_env(b->rec.recipe.env, &b->vars, b->env, e) : err_oom(e);
    for (char *const *p = b->req->env; r == 0 && p && *p; p++)
        r = set_pair(b->env, *p, e);
    return r;
}

static int step_prepare(struct bootstrap *b, struct err *e)
{
    int r = prepare_vars(b, e);

    if (r == 0)
        r = prepare_env(b, e);
    if (r < 0)
        return r;
    b->rec.agent = strdup(b->req->agent);
    if (!b->rec.agent)
        return err_oom(e);
    if (b->old.session && str_eq(b->old.recipe.name, b->rec.recipe.name)) {
        b->rec.session = strdup(b->old.session);
        if (!b->rec.session)
            return err_oom(e);
    }
    b->vars.session = b->rec.session;
    return 0;
}

/* ---- check and install ---- */

/* 1: the right version is installed; 0: it is not. */
static int is_installed(struct bootstrap *b, struct err *e)
{
    const struct recipe *rec = &b->rec.recipe;
    _cleanup_json_ json_t *argv = json_array();
    _cleanup_free_ char *want = NULL;
    struct guest_run run = {0};
    struct err why = {0};
    int r;

    if (!rec->check_argv)
        return 0;
    r = argv ? recipe_expand_list(rec->check_argv, &b->vars, argv, e) : err_oom(e);
    if (r == 0 && rec->check_output)
        r = recipe_expand(rec->check_output, &b->vars, &want, e);
    if (r < 0)
        return r;
    r = guest_run(b->req->client, argv, b->env, "/", bootstrap_step_end(b, rec->timeouts.check),
                  &run, &why);
    if (r == -ERR_NOT_FOUND || r == -ERR_DENIED)
        return 0; /* there is no such program */
    if (r < 0) {
        if (e)
            *e = why;
        return r;
    }
    while (run.output.len && strchr("\r\n\t ", run.output.data[run.output.len - 1]))
        run.output.data[--run.output.len] = '\0';
    r = run.status == 0 && (!want || str_eq(run.output.data, want));
    if (!r)
        bootstrap_keep_log(b, &run.log);
    guest_run_done(&run);
    return r;
}

/* 1: the box can start the agent; 0: something has to be installed. A layer is whole: its check,
 * which takes as long as a start of the agent, is left out. */
static int is_ready(struct bootstrap *b, struct err *e)
{
    if (!b->has_layer)
        return is_installed(b, e);
    return b->rec.recipe.n_node
               ? bootstrap_has_node(b, bootstrap_step_end(b, b->rec.recipe.timeouts.check), e)
               : 1;
}

static int step_install(struct bootstrap *b, struct err *e)
{
    const struct recipe *rec = &b->rec.recipe;
    int r = bootstrap_install(b, bootstrap_step_end(b, rec->timeouts.install), e);

    if (r < 0 || !rec->check_argv)
        return r;
    r = is_installed(b, e);
    if (r == 0)
        return err_set(e, ERR_PRECONDITION, "%s %s was installed, but its check still fails",
                       rec->name, rec->version);
    return r < 0 ? r : 0;
}

/* ---- files ---- */

static int put_text(struct bootstrap *b, const struct recipe_file *f, int64_t deadline,
                    struct err *e)
{
    _cleanup_free_ char *path = NULL, *content = NULL;
    int r = recipe_expand(f->path, &b->vars, &path, e);

    if (r == 0)
        r = recipe_expand(f->content, &b->vars, &content, e);
    return r < 0 ? r
                 : client_put_file(b->req->client, path, content, strlen(content), f->mode, NULL,
                                   deadline, e);
}

/* Copies a file or directory of --agent-config; *ret_found: it exists. */
static int put_config(struct bootstrap *b, const struct recipe_file *f, int64_t deadline,
                      bool *ret_found, struct err *e)
{
    _cleanup_free_ char *source = path_join(b->req->config_dir, f->from);
    _cleanup_free_ char *into = NULL;
    struct upload_request up = {.ctx = b->req->ctx,
                                .client = b->req->client,
                                .source = source,
                                .git = "as-is",
                                .deadline_mono_ms = deadline};
    int r;

    if (!source)
        return err_oom(e);
    if (access(source, F_OK) < 0)
        return 0;
    r = recipe_expand(f->into, &b->vars, &into, e);
    if (r < 0)
        return r;
    up.dest = into;
    *ret_found = true;
    return upload_run(&up, NULL, e);
}

static int step_files(struct bootstrap *b, struct err *e)
{
    const struct recipe *rec = &b->rec.recipe;
    int64_t deadline = bootstrap_step_end(b, rec->timeouts.files);
    bool has_config = b->req->config_dir != NULL, found = false;
    int r = 0;

    for (size_t i = 0; r == 0 && i < rec->n_files; i++) {
        if (!rec->files[i].from)
            r = put_text(b, &rec->files[i], deadline, e);
        else if (has_config)
            r = put_config(b, &rec->files[i], deadline, &found, e);
    }
    if (r == 0 && has_config && !found)
        return err_field(e, ERR_INVALID, "agent_config", "'%.200s' has nothing that %s knows",
                         b->req->config_dir, rec->name);
    return r;
}

/* ---- the steps ---- */

static bool is_same_running(struct bootstrap *b, int64_t deadline)
{
    enum guest_state state = GUEST_ABSENT;

    return b->old.agent && str_eq(b->old.recipe.name, b->rec.recipe.name) &&
           str_eq(b->old.recipe.version, b->rec.recipe.version) && b->old.port == b->rec.port &&
           guest_state(b->req->client, deadline, &state, NULL, 0, NULL) == 0 &&
           state == GUEST_RUNNING;
}

/* Is the same agent in the same version running and healthy? */
static bool is_well(struct bootstrap *b)
{
    int64_t end = bootstrap_step_end(b, b->rec.recipe.health.attempt_ms);
    int r = is_same_running(b, end) ? bootstrap_probe_once(b, end, NULL) : -ERR_NOT_FOUND;

    return r == 0 || r == -ERR_ABORTED; /* a writer is at work: do not disturb the agent */
}

static int run_steps(struct bootstrap *b, const char **step, struct err *e)
{
    const char *name;
    int r;

    *step = "recipe";
    r = find_recipe(b, e);
    if (r < 0)
        return r;
    name = b->rec.recipe.name;
    *step = "prepare";
    r = step_prepare(b, e);
    if (r < 0)
        return r;
    if (is_well(b))
        return 0;
    *step = "check";
    ctx_progress(b->req->ctx, "check", 0, 0, false, "looking for %s %s", name,
                 b->rec.recipe.version);
    r = is_ready(b, e);
    if (r < 0)
        return r;
    if (r == 0) {
        *step = "install";
        free(b->log); /* log of the failed check, which is no log of the next step */
        b->log = NULL;
        ctx_progress(b->req->ctx, "install", 0, 0, false, "installing %s %s", name,
                     b->rec.recipe.version);
        r = step_install(b, e);
        if (r < 0)
            return r;
    }
    *step = "files";
    r = step_files(b, e);
    if (r == 0)
        r = bootstrap_begin(b, step, e);
    return r;
}

static int fill_result(const struct bootstrap *b, struct bootstrap_result *ret, struct err *e)
{
    const struct recipe *rec = &b->rec.recipe;
    struct bootstrap_result out = {
        .name = strdup(rec->name),
        .version = strdup(rec->version),
        .port = b->rec.port,
        .username = strdup(rec->health.username ? rec->health.username : ""),
        .password = strdup(b->password),
        .exec_id = strdup(BOOTSTRAP_EXEC_ID),
    };

    if (!out.name || !out.version || !out.username || !out.password || !out.exec_id) {
        bootstrap_result_done(&out);
        return err_oom(e);
    }
    *ret = out;
    return 0;
}

static void bootstrap_done(struct bootstrap *b)
{
    bootstrap_record_done(&b->rec);
    bootstrap_record_done(&b->old);
    free(b->home);
    free(b->install);
    if (b->password)
        explicit_bzero(b->password, strlen(b->password));
    free(b->password);
    json_decref(b->env);
    free(b->log);
}

/* ---- the public ones ---- */

void bootstrap_result_done(struct bootstrap_result *r)
{
    if (!r)
        return;
    free(r->name);
    free(r->version);
    free(r->username);
    if (r->password)
        explicit_bzero(r->password, strlen(r->password));
    free(r->password);
    free(r->exec_id);
    *r = (struct bootstrap_result){0};
}

int bootstrap_check(struct bh_ctx *ctx, const char *agent, struct err *e)
{
    struct recipe rec = {0};
    int r;

    if (!agent || str_eq(agent, "none"))
        return 0;
    r = recipe_load(ctx->recipe_dir, agent, &rec, e);
    recipe_done(&rec);
    return r;
}

static int no_agent(struct bootstrap_result *ret, struct err *e)
{
    struct bootstrap_result out = {.name = strdup("none"),
                                   .version = strdup(""),
                                   .username = strdup(""),
                                   .password = strdup(""),
                                   .exec_id = strdup("")};

    if (!out.name || !out.version || !out.username || !out.password || !out.exec_id) {
        bootstrap_result_done(&out);
        return err_oom(e);
    }
    *ret = out;
    return 0;
}

int bootstrap_run(const struct bootstrap_request *req, struct bootstrap_result *ret, char step[32],
                  char **ret_log, struct err *e)
{
    struct bootstrap b = {.req = req};
    const char *at = "";
    int r;

    if (!req->agent || str_eq(req->agent, "none"))
        return no_agent(ret, e);
    r = run_steps(&b, &at, e);
    if (r == 0)
        r = bootstrap_record_save(req->box_dir, &b.rec, e);
    if (r == 0)
        r = bootstrap_save_start(&b, e);
    if (r == 0)
        r = fill_result(&b, ret, e);
    if (r == 0)
        ctx_progress(req->ctx, "health", 0, 0, true, "%s %s is ready", b.rec.recipe.name,
                     b.rec.recipe.version);
    if (r < 0) {
        (void)snprintf(step, 32, "%s", at);
        if (ret_log)
            *ret_log = TAKE(b.log);
    }
    bootstrap_done(&b);
    return r;
}

int bootstrap_health(struct bh_ctx *ctx, const char *box_dir, struct client *client,
                     int64_t timeout_ms, struct err *e)
{
    struct bootstrap_record rec = {0};
    _cleanup_free_ char *password = NULL, *ignored = NULL;
    struct bootstrap_probe p;
    int r = bootstrap_record_load(box_dir, &rec, e);

    (void)ctx;
    if (r < 0)
        return r;
    r = bootstrap_password(box_dir, false, &password, e);
    if (r == 0) {
        p = (struct bootstrap_probe){
            .client = client, .health = &rec.recipe.health, .port = rec.port, .password = password};
        r = bootstrap_probe(&p, clock_mono_ms() + timeout_ms, &ignored, e);
    }
    if (r < 0)
        r = err_wrap(e, r, "%s", rec.recipe.name);
    bootstrap_record_done(&rec);
    return r;
}
