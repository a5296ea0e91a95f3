#include "lib/recipe/bootstrap_run.h"

#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/recipe/bootstrap_guest.h"
#include "lib/util/socket.h"

#define FIRST_PAUSE_MS 25
#define FIRST_PATIENCE_MS 200
#define TELL_FIRST_MS 5000               /* then the wait for a coding agent is told, */
#define TELL_EACH_MS 10000               /* and again after each of these */
#define LOG_MS 3000                      /* for reading the log of a failed step */
#define RPC_TAIL_BYTES (8 * 1024 * 1024) /* kept of an agent's messages for a late reader */
#define LOG_KEPT_BYTES (256 * 1024)

/* Makes the start request; `more` (or NULL) is appended to the recipe's argv. */
static int new_start(struct bootstrap *b, json_t *more, json_t **ret, struct err *e)
{
    const struct recipe *rec = &b->rec.recipe;
    bool is_rpc = rec->mode == RECIPE_RPC;
    _cleanup_json_ json_t *argv = json_array(), *env = json_copy(b->env);
    _cleanup_free_ char *cwd = NULL;
    json_t *req;
    int r = argv && env ? recipe_expand_list(rec->start_argv, &b->vars, argv, e) : err_oom(e);

    if (r == 0)
        r = recipe_expand_list(more, &b->vars, argv, e);
    if (r == 0)
        r = recipe_expand_env(rec->start_env, &b->vars, env, e);
    if (r == 0)
        r = recipe_expand(rec->cwd, &b->vars, &cwd, e);
    if (r < 0)
        return r;
    req = json_pack("{s:s, s:O, s:O, s:s, s:b, s:{s:i, s:i}}", "id", BOOTSTRAP_EXEC_ID, "argv",
                    argv, "env", env, "cwd", cwd, "stdin_open", is_rpc, "output", "head_bytes",
                    LOG_KEPT_BYTES, "tail_bytes", is_rpc ? RPC_TAIL_BYTES : LOG_KEPT_BYTES);
    if (!req)
        return err_oom(e);
    *ret = req;
    return 0;
}

static int start_with(struct bootstrap *b, json_t *more, struct err *e)
{
    const struct recipe *rec = &b->rec.recipe;
    int64_t deadline = bootstrap_step_end(b, rec->timeouts.start);
    _cleanup_json_ json_t *req = NULL;
    int r = guest_end(b->req->client, deadline, e);

    if (r == 0)
        r = new_start(b, more, &req, e);
    return r < 0 ? r : guest_start(b->req->client, req, deadline, e);
}

int bootstrap_save_start(struct bootstrap *b, struct err *e)
{
    _cleanup_json_ json_t *req = NULL;
    uint32_t max = b->rec.recipe.restart_max;
    int r = max ? new_start(b, b->rec.recipe.restart_args, &req, e) : 0;

    if (req && json_object_set_new(req, SUPERVISE_MAX_KEY, json_integer(max)) < 0)
        return err_oom(e);
    return r < 0 ? r : bootstrap_start_save(b->req->box_dir, req, e);
}

/* ---- health ---- */

static int check_alive(struct bootstrap *b, int64_t deadline, struct err *e)
{
    enum guest_state state = GUEST_ABSENT;
    char ended[96] = "it is not there";
    int r = guest_state(b->req->client, deadline, &state, ended, sizeof(ended), e);

    if (r < 0 || state == GUEST_RUNNING)
        return r;
    return err_set(e, ERR_PRECONDITION, "%s did not become healthy: %s", b->rec.recipe.name, ended);
}

int bootstrap_probe_once(struct bootstrap *b, int64_t end, struct err *e)
{
    const struct recipe_health *h = &b->rec.recipe.health;
    int64_t attempt_end = bootstrap_step_end(b, h->attempt_ms);
    struct bootstrap_probe p = {
        .client = b->req->client, .health = h, .port = b->rec.port, .password = b->password};

    return bootstrap_probe(&p, attempt_end < end ? attempt_end : end, &b->rec.session, e);
}

/* The guest agent notices the open port, or the agent's end, earlier than polling from here would.
 * Only a cancel matters: wait_healthy() finds out about everything else. */
static int wait_port(struct bootstrap *b, int64_t end, struct err *e)
{
    _cleanup_json_ json_t *params =
        json_pack("{s:s, s:i, s:I}", "id", BOOTSTRAP_EXEC_ID, "port", (int)b->rec.port,
                  "timeout_ms", (json_int_t)clock_until_ms(end));

    if (!params)
        return err_oom(e);
    return client_call(b->req->client, RPC_system_wait_port, params, end, NULL, NULL) ==
                   -ERR_CANCELED
               ? err_set(e, ERR_CANCELED, "canceled")
               : 0;
}

/*
 * A server that listens before it is ready never answers the requests of that time: an attempt
 * waits FIRST_PATIENCE_MS for the answer, and each later one half as long again, up to the recipe's
 * time, for a server that is slow.
 */
static int wait_healthy(struct bootstrap *b, struct err *e)
{
    int64_t told_ms = TELL_FIRST_MS;
    const struct recipe *rec = &b->rec.recipe;
    int64_t began = clock_mono_ms();
    int64_t end = bootstrap_step_end(b, rec->health.total_ms);
    int cancel_fd = b->req->ctx->cancel_fd > 0 ? b->req->ctx->cancel_fd : -1;
    int64_t patience_ms = rec->health.path ? FIRST_PATIENCE_MS : rec->health.attempt_ms;
    int pause_ms = FIRST_PAUSE_MS;
    int r = rec->health.path ? wait_port(b, end, e) : 0;

    while (r == 0) {
        int64_t attempt_end = clock_mono_ms() + patience_ms;
        struct err last = {0};
        int tried = bootstrap_probe_once(b, attempt_end < end ? attempt_end : end, &last);

        if (tried == 0)
            return 0;
        if (tried == -ERR_CANCELED)
            return err_set(e, ERR_CANCELED, "canceled");
        r = check_alive(b, clock_mono_ms() + LOG_MS, e);
        if (r < 0)
            break;
        if (clock_mono_ms() + pause_ms >= end)
            return err_set(e, ERR_DEADLINE, "%s did not become healthy within %lld s: %.300s",
                           rec->name, (long long)(clock_mono_ms() - began + 500) / 1000,
                           last.message);
        if (clock_mono_ms() - began >= told_ms) {
            ctx_progress(b->req->ctx, "health", 0, 0, false, "waiting for %s since %lld s: %.200s",
                         rec->name, (long long)told_ms / 1000, last.message);
            told_ms += TELL_EACH_MS;
        }
        if (socket_wait_canceled(cancel_fd, pause_ms))
            return err_set(e, ERR_CANCELED, "canceled");
        if (tried != -ERR_DEADLINE)
            pause_ms = pause_ms * 2 > RECIPE_RETRY_MS ? RECIPE_RETRY_MS : pause_ms * 2;
        else if (patience_ms < rec->health.attempt_ms)
            patience_ms += patience_ms / 2;
    }
    return r;
}

/* Reads the log of an unhealthy agent, then ends it, so that nothing half-made runs. */
static void end_unhealthy(struct bootstrap *b)
{
    char *log = guest_log(b->req->client, BOOTSTRAP_EXEC_ID, b->password, clock_mono_ms() + LOG_MS);

    if (log && *log)
        bootstrap_keep_log(b, &log);
    free(log);
    (void)guest_end(b->req->client, clock_mono_ms() + 3 * LOG_MS, NULL);
}

/* ---- with the last session ---- */

static void forget_session(struct bootstrap *b)
{
    ctx_progress(b->req->ctx, "warning", 0, 0, true, "the session %s is gone: a new one was begun",
                 b->rec.session);
    free(b->rec.session);
    b->rec.session = NULL;
    b->vars.session = NULL;
}

static int start_and_check(struct bootstrap *b, json_t *more, const char **step, struct err *e)
{
    int r;

    free(TAKE(b->log)); /* log of an earlier step */
    *step = "start";
    ctx_progress(b->req->ctx, "start", 0, 0, false, "starting %s", b->rec.recipe.name);
    r = start_with(b, more, e);
    if (r < 0)
        return r;
    *step = "health";
    r = wait_healthy(b, e);
    if (r < 0)
        end_unhealthy(b);
    return r;
}

/* Does the ended agent's log say that it does not know its last session? */
static bool is_session_unknown(const struct bootstrap *b)
{
    _cleanup_free_ char *text = NULL;

    return b->log && b->rec.recipe.session_unknown &&
           recipe_expand(b->rec.recipe.session_unknown, &b->vars, &text, NULL) == 0 && *text &&
           strstr(b->log, text);
}

int bootstrap_begin(struct bootstrap *b, const char **step, struct err *e)
{
    json_t *more = b->rec.session ? b->rec.recipe.session_args : NULL;
    struct err why = {0};
    int r = start_and_check(b, more, step, &why);

    if (r == -ERR_PRECONDITION && more && is_session_unknown(b)) {
        forget_session(b);
        why = (struct err){0};
        r = start_and_check(b, NULL, step, &why);
    } else if (r == -ERR_PRECONDITION && more) {
        r = err_wrap(&why, r, "its session %s is kept", b->rec.session);
    }
    if (r < 0 && e)
        *e = why;
    return r;
}
