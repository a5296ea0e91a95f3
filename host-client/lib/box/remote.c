#include "lib/box/remote.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/box.h"
#include "lib/box/lifecycle.h"
#include "lib/box/remote_calls.h"
#include "lib/util/daemon_client.h"
#include "lib/util/daemon_lock.h"
#include "lib/util/socket.h"

#define STEP_MS (5 * 60 * 1000)
#define GREET_MS 1000 /* for a daemon that "auto" finds; without an answer the work is done here */
#define RESTART_MS 3000
#define RESTART_POLL_MS 20
#define PAGE_BOXES 100
#define WORKDIR_BYTES 4096

/* ---- the context ---- */

/*
 * The socket and the instance of the daemon that serves the state directory: it holds the lock there, whose file names
 * both. NULL: there is none, it is starting, or it is older than this search.
 */
static int read_own_daemon(const struct bh_ctx *ctx, json_t **ret_facts, const char **ret_socket,
                           const char **ret_instance, struct err *e)
{
    int r = daemon_lock_read(ctx->state_dir, ret_facts, e);

    if (r < 0)
        return r;
    *ret_socket = json_string_value(json_object_get(*ret_facts, "socket"));
    *ret_instance = json_string_value(json_object_get(*ret_facts, "instance"));
    if (!*ret_socket || !*ret_instance || (*ret_socket)[0] != '/')
        *ret_socket = *ret_instance = NULL;
    return 0;
}

/*
 * Finds the daemon of the state directory and greets it. Whatever is wrong with it (it ends just now, hangs, or another
 * user's or another daemon listens there), the context does without it: the store is the same.
 */
static int open_own_daemon(struct bh_ctx *ctx, struct daemon_client_options *o, struct err *e)
{
    _cleanup_json_ json_t *facts = NULL;
    _cleanup_free_ char *url = NULL;
    const char *socket = NULL, *instance = NULL;
    struct daemon_client *d = NULL;
    struct err why = {0};
    int r = read_own_daemon(ctx, &facts, &socket, &instance, &why);

    if (r < 0 || !socket) /* an unreadable lock is the store's business, whose error says more */
        return 0;
    if (asprintf(&url, "unix:%s", socket) < 0) {
        url = NULL;
        return err_oom(e);
    }
    o->url = url;
    o->token = NULL;
    o->ca_file = NULL;
    r = daemon_client_new(o, &d, e);
    if (r < 0)
        return r;
    r = daemon_client_greet(d, instance, GREET_MS, &why);
    ctx->daemon_is_own = r == 0;
    if (r == 0)
        ctx->daemon = d;
    else
        (void)daemon_client_free(d);
    if (r == -ERR_CANCELED)
        return err_set(e, ERR_CANCELED, "canceled");
    if (r == -ERR_DEADLINE)
        ctx_progress(ctx, "warning", 0, 0, false,
                     "the daemon (pid %lld) does not answer: this is done without it",
                     (long long)json_integer_value(json_object_get(facts, "pid")));
    return 0;
}

int remote_open(struct bh_ctx *ctx, struct err *e)
{
    const char *given = ctx->daemon_url ? ctx->daemon_url : "auto";
    struct daemon_client_options o = {.url = given,
                                      .token = ctx->daemon_token,
                                      .ca_file = ctx->daemon_ca,
                                      .actor = ctx->actor,
                                      .cancel_fd = ctx->cancel_fd,
                                      .debug = &ctx->debug};

    if (str_eq(given, "none"))
        return 0;
    return str_eq(given, "auto") ? open_own_daemon(ctx, &o, e)
                                 : daemon_client_new(&o, &ctx->daemon, e);
}

int remote_leave(struct bh_ctx *ctx, const char *what, struct err *e)
{
    if (ctx->daemon && !ctx->daemon_is_own)
        return err_field(e, ERR_UNIMPLEMENTED, "daemon",
                         "%s cannot be done through a daemon: give '--daemon none' on "
                         "its machine",
                         what);
    return ctx_open_store(ctx, e);
}

/* Had the daemon no answer at all? Then the store can be asked in its place, if no handle needs the daemon. */
static bool daemon_is_lost(const struct bh_ctx *ctx, int r)
{
    return r == -ERR_UNAVAILABLE && !ctx->has_remote_box && !daemon_client_status(ctx->daemon);
}

/* The gateway leads to boxes of this machine; an agent elsewhere is reached from here. */
static bool is_attached(const struct bh_box *box)
{
    const struct provider *p = box ? provider_find(box->spec.provider) : NULL;

    return p && p->is_elsewhere;
}

bool remote_leaves_it(struct bh_ctx *ctx, int r, struct bh_box **box)
{
    bool is_lost = daemon_is_lost(ctx, r);

    if (!ctx->daemon_is_own || (!is_lost && (r < 0 || !box || !is_attached(*box))) ||
        ctx_open_store(ctx, NULL) < 0)
        return false;
    if (is_lost) {
        ctx->daemon = daemon_client_free(ctx->daemon);
        ctx->daemon_is_own = false;
    } else {
        *box = bh_box_free(*box);
    }
    return true;
}

/* ---- calls ---- */

/* The daemon names a gone box by its id alone. */
static int read_gone(struct err *e, int r)
{
    char facts[ERR_DETAIL_BYTES];

    if (r == -ERR_NOT_FOUND && e && str_eq(e->detail_name, "gone") && ctx_is_box_id(e->detail)) {
        (void)snprintf(facts, sizeof(facts), "{\"id\":\"%.*s\"}", CTX_BOX_ID_CHARS, e->detail);
        (void)err_detail(e, r, "gone", facts);
    }
    return r;
}

/*
 * A daemon that is being restarted: nothing was sent, so that the call can be made again, for RESTART_MS from the first
 * call that found it gone. 0: again.
 */
static int wait_for_restart(struct bh_ctx *ctx, int r, struct err *e)
{
    if (r != -ERR_UNAVAILABLE || !ctx->has_remote_box || !daemon_client_is_unconnected(ctx->daemon))
        return r;
    if (!ctx->restart_until_mono_ms)
        ctx->restart_until_mono_ms = clock_mono_ms() + RESTART_MS;
    if (clock_until_ms(ctx->restart_until_mono_ms) == 0)
        return r;
    return socket_wait_canceled(ctx->cancel_fd, RESTART_POLL_MS)
               ? err_set(e, ERR_CANCELED, "canceled")
               : 0;
}

int remote_call(struct bh_ctx *ctx, const char *method, const char *path, const json_t *body,
                int64_t timeout_ms, json_t **ret, struct err *e)
{
    for (;;) {
        int r = daemon_client_call(ctx->daemon, method, path, body,
                                   timeout_ms > 0 ? timeout_ms : STEP_MS, ret, e);

        if (r == 0) {
            ctx->restart_until_mono_ms = 0;
            return 0;
        }
        r = wait_for_restart(ctx, r, e);
        if (r < 0)
            return read_gone(e, r);
    }
}

int remote_get_page(struct bh_ctx *ctx, json_t **ret, struct err *e, const char *fmt, ...)
{
    _cleanup_free_ char *path = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&path, fmt, ap);
    va_end(ap);
    if (n < 0) {
        path = NULL;
        return err_oom(e);
    }
    return remote_call(ctx, "GET", path, NULL, 0, ret, e);
}

int remote_page_list(const json_t *page, const char *key, json_t **ret, struct err *e)
{
    *ret = json_object_get(page, key);
    return json_is_array(*ret) ? 0
                               : err_field(e, ERR_DATA_LOSS, "daemon",
                                           "the daemon's answer has no list of %s", key);
}

int remote_bad_answer(struct err *e, const struct err *why)
{
    return err_field(e, ERR_DATA_LOSS, "daemon", "the daemon's answer is not as it should be: %s",
                     why->message);
}

static char *box_route(const struct bh_box *box, const char *step)
{
    char *path = NULL;

    return asprintf(&path, "/v1/boxes/%s%s%s", box->row.id, step ? "/" : "", step ? step : "") < 0
               ? NULL
               : path;
}

static int call_box(struct bh_box *box, const char *method, const char *step, const json_t *body,
                    int64_t timeout_ms, json_t **ret, struct err *e)
{
    _cleanup_free_ char *path = box_route(box, step);

    return path ? remote_call(box->ctx, method, path, body, timeout_ms, ret, e) : err_oom(e);
}

/* ---- a box of what the daemon says ---- */

struct box_facts {
    const char *name, *id, *provider, *image, *state, *cause, *workdir;
    int64_t created_ms, state_since_ms, deadline_ms, updated_ms, paused_ms, resumed_ms, used_ms;
    json_t *agent, *guest;
};

#define FACT(member, fn) JX(struct box_facts, member, fn, JX_REQUIRED)
static const struct jx_field box_fields[] = {
    FACT(name, jx_str),
    FACT(id, jx_str),
    FACT(provider, jx_str),
    FACT(image, jx_str),
    FACT(state, jx_str),
    FACT(cause, jx_str),
    FACT(workdir, jx_str),
    FACT(created_ms, jx_i64),
    FACT(state_since_ms, jx_i64),
    FACT(deadline_ms, jx_i64),
    FACT(updated_ms, jx_i64),
    FACT(paused_ms, jx_i64),
    FACT(resumed_ms, jx_i64),
    FACT(used_ms, jx_i64),
    FACT(agent, jx_object),
    FACT(guest, jx_object),
    {0},
};

static int check_facts(const struct box_facts *f, struct err *e)
{
    if (!spec_is_name(f->name) || !ctx_is_box_id(f->id))
        return err_set(e, ERR_DATA_LOSS, "a box has the name '%.64s' and the id '%.32s'", f->name,
                       f->id);
    if (f->workdir[0] != '/' || strlen(f->workdir) > WORKDIR_BYTES)
        return err_set(e, ERR_DATA_LOSS, "the workdir of '%s' is no absolute path", f->name);
    if (lifecycle_parse(f->state) == BH_STATE_UNKNOWN)
        return err_set(e, ERR_DATA_LOSS, "there is no state '%.32s'", f->state);
    return 0;
}

static int fill_texts(struct bh_box *box, const struct box_facts *f, struct err *e)
{
    const char *agent = json_string_value(json_object_get(f->agent, "name"));

    box->row.name = strdup(f->name);
    box->row.cause = strdup(f->cause);
    box->spec.provider = strdup(f->provider);
    box->spec.image = strdup(f->image);
    box->spec.agent = strdup(agent ? agent : "none");
    return box->row.name && box->row.cause && box->spec.provider && box->spec.image &&
                   box->spec.agent
               ? 0
               : err_oom(e);
}

static int fill_box_take(struct bh_box *box, json_t *v, struct err *e)
{
    struct box_facts f = {0};
    struct err why = {0};
    int r;

    box->remote = v;
    r = jx_decode_lax(v, box_fields, &f, &why);
    if (r == 0)
        r = check_facts(&f, &why);
    if (r < 0)
        return remote_bad_answer(e, &why);
    (void)snprintf(box->row.id, sizeof(box->row.id), "%s", f.id);
    box->row.state = lifecycle_parse(f.state);
    box->row.times = (struct box_times){.created_ms = f.created_ms,
                                        .updated_ms = f.updated_ms,
                                        .paused_ms = f.paused_ms,
                                        .resumed_ms = f.resumed_ms,
                                        .used_ms = f.used_ms};
    box->row.state_since_ms = f.state_since_ms;
    box->row.deadline_ms = f.deadline_ms;
    if (asprintf(&box->url, "%s/v1/boxes/%s", daemon_client_base(box->ctx->daemon), f.id) < 0) {
        box->url = NULL;
        return err_oom(e);
    }
    return fill_texts(box, &f, e);
}

int remote_new_box_take(struct bh_ctx *ctx, json_t *v, struct bh_box **ret, struct err *e)
{
    struct bh_box *box = calloc(1, sizeof(*box));
    int r;

    if (!box) {
        json_decref(v);
        return err_oom(e);
    }
    box->agent.ops = &box_agent_ops;
    box->ctx = ctx;
    r = fill_box_take(box, v, e);
    if (r < 0) {
        (void)bh_box_free(box);
        return r;
    }
    ctx->has_remote_box = true;
    *ret = box;
    return 0;
}

/* The same box as it is now. */
static int refill_take(struct bh_box *box, json_t *v, struct err *e)
{
    struct bh_box *now = NULL;
    int r = remote_new_box_take(box->ctx, v, &now, e);

    if (r == 0 && !str_eq(now->row.id, box->row.id))
        r = err_field(e, ERR_DATA_LOSS, "daemon", "the daemon's answer is about another box");
    if (r == 0) {
        const struct bh_box old = *box;

        box->remote = now->remote;
        box->row = now->row;
        box->spec = now->spec;
        now->remote = old.remote;
        now->row = old.row;
        now->spec = old.spec;
    }
    (void)bh_box_free(now);
    return r;
}

int remote_get(struct bh_ctx *ctx, const char *name, struct bh_box **ret, struct err *e)
{
    json_t *v = NULL;
    int r = remote_get_page(ctx, &v, e, "/v1/boxes/%s", name);

    return r < 0 ? r : remote_new_box_take(ctx, v, ret, e);
}

int remote_get_by_key(struct bh_ctx *ctx, const char *key, struct bh_box **ret, struct err *e)
{
    _cleanup_free_ char *part = daemon_client_encode(key);
    json_t *v = NULL;
    int r = part ? remote_get_page(ctx, &v, e, "/v1/by-key?key=%s", part) : err_oom(e);

    return r < 0 ? r : remote_new_box_take(ctx, v, ret, e);
}

/* As bh_get() of an attached box does, in a list. One that was removed meanwhile stays as it was told. */
static int settle_listed(struct bh_ctx *ctx, struct bh_box **box, struct err *e)
{
    struct bh_box *local = NULL;
    struct box_row row = {0};
    int r = ctx->daemon_is_own && is_attached(*box) ? ctx_open_store(ctx, e) : -ERR_NOT_FOUND;

    if (r == 0)
        r = store_get(ctx->store, (*box)->row.id, &row, e);
    if (r == 0)
        r = box_new_take(ctx, &row, &local, e);
    if (r < 0)
        return r == -ERR_NOT_FOUND ? 0 : r;
    (void)bh_box_free(*box);
    *box = local;
    return 0;
}

int remote_list(struct bh_ctx *ctx, int (*fn)(void *arg, struct bh_box *box), void *arg,
                struct err *e)
{
    char cursor[80] = "";

    for (;;) {
        _cleanup_json_ json_t *page = NULL;
        const char *next;
        json_t *list = NULL, *v;
        size_t i;
        int r = remote_get_page(ctx, &page, e, "/v1/boxes?limit=%d%s%s", PAGE_BOXES,
                                *cursor ? "&cursor=" : "", cursor);

        if (r == 0)
            r = remote_page_list(page, "boxes", &list, e);
        json_array_foreach (list, i, v) {
            struct bh_box *box = NULL;

            if (r == 0)
                r = remote_new_box_take(ctx, json_incref(v), &box, e);
            if (r == 0)
                r = settle_listed(ctx, &box, e);
            if (r == 0)
                r = fn(arg, box);
            (void)bh_box_free(box);
        }
        next = json_string_value(json_object_get(page, "next_cursor"));
        if (r != 0 || !next)
            return r;
        /* The names rise: else the pages would never end. */
        if (!spec_is_name(next) || strcmp(next, cursor) <= 0)
            return err_field(e, ERR_DATA_LOSS, "daemon", "the daemon's pages do not end");
        (void)snprintf(cursor, sizeof(cursor), "%s", next);
    }
}

int remote_reload(struct bh_box *box, struct err *e)
{
    json_t *v = NULL;
    int r = call_box(box, "GET", NULL, NULL, 0, &v, e);

    return r < 0 ? r : refill_take(box, v, e);
}

/* ---- its life ---- */

int remote_step_take(struct bh_box *box, const char *step, json_t *body, int64_t timeout_ms,
                     struct err *e)
{
    _cleanup_json_ json_t *sent = body ? body : json_object();
    json_t *v = NULL;
    int r = sent ? call_box(box, "POST", step, sent, timeout_ms, &v, e) : err_oom(e);

    return r < 0 ? r : refill_take(box, v, e);
}

int remote_destroy(struct bh_box *box, int64_t timeout_ms, struct err *e)
{
    return call_box(box, "DELETE", NULL, NULL, timeout_ms, NULL, e);
}

int remote_fork(struct bh_box *box, const struct bh_fork_options *o, struct bh_box **ret,
                struct err *e)
{
    _cleanup_json_ json_t *body =
        json_pack("{s:s*, s:I}", "name", o->name, "timeout_ms", (json_int_t)o->timeout_ms);
    json_t *v = NULL;
    int r = body ? call_box(box, "POST", "fork", body, REMOTE_LONG_MS, &v, e) : err_oom(e);

    return r < 0 ? r : remote_new_box_take(box->ctx, v, ret, e);
}

int remote_snapshot(struct bh_box *box, const struct bh_snapshot_options *o,
                    int (*fn)(void *arg, const struct bh_snapshot_info *info), void *arg,
                    struct err *e)
{
    _cleanup_json_ json_t *body =
        json_pack("{s:s*, s:I}", "name", o->name, "timeout_ms", (json_int_t)o->timeout_ms);
    _cleanup_json_ json_t *v = NULL;
    int r = body ? call_box(box, "POST", "snapshots", body, REMOTE_LONG_MS, &v, e) : err_oom(e);

    return r < 0 || !fn ? r : remote_tell_snapshot(v, fn, arg, e);
}

/* ---- what is known about it ---- */

int remote_health(struct bh_box *box, int64_t timeout_ms, struct err *e)
{
    return call_box(box, "GET", "health", NULL, timeout_ms, NULL, e);
}

int remote_inspect(struct bh_box *box, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *v = NULL;
    json_t *enforced;
    int r = call_box(box, "GET", "status", NULL, 0, &v, e);

    if (r < 0)
        return r;
    enforced = json_object_get(v, "enforced");
    if (!json_is_object(enforced))
        return err_field(e, ERR_PRECONDITION, "state", "the box '%s' does not run", box->row.name);
    *ret = json_incref(enforced);
    return 0;
}

/* A token that may only read does not get it. */
static char *agent_password(const struct bh_box *box)
{
    _cleanup_free_ char *path = box_route(box, "agent");
    _cleanup_json_ json_t *v = NULL;
    const char *password;

    if (!path || !box_has_agent(box) || remote_call(box->ctx, "GET", path, NULL, 0, &v, NULL) < 0)
        return strdup("");
    password = json_string_value(json_object_get(v, "password"));
    return strdup(password ? password : "");
}

/* The agent's address as the daemon has it is on the loopback of its machine: from elsewhere the gateway leads
 * there. */
static char *new_agent_url(const struct bh_box *box, json_t *agent)
{
    const char *url = json_string_value(json_object_get(agent, "url"));
    json_int_t port = json_integer_value(json_object_get(agent, "port"));
    char *ret = NULL;

    if (!url || !*url || daemon_client_socket(box->ctx->daemon))
        return strdup(url ? url : "");
    return asprintf(&ret, "%s/proxy/%lld/", box->url, (long long)port) < 0 ? NULL : ret;
}

/* In the order in which a box of the store has them. */
static json_t *new_json(const struct bh_box *box, const char *password)
{
    json_t *v = json_copy(box->remote);
    json_t *agent = json_object_get(v, "agent");
    json_t *port = json_object_get(agent, "port");
    _cleanup_free_ char *url = new_agent_url(box, agent);
    json_t *whole =
        json_pack("{s:O*, s:O*, s:s*, s:O*, s:s*, s:O*}", "name", json_object_get(agent, "name"),
                  "version", json_object_get(agent, "version"), "url", url, "username",
                  json_object_get(agent, "username"), "password", password, "exec_id",
                  json_object_get(agent, "exec_id"));

    if (whole && port)
        (void)json_object_set(whole, "port", port);
    if (whole)
        (void)json_object_set_new(v, "agent", whole);
    return v;
}

int remote_write_json(const struct bh_box *box, bool with_password, struct buf *out, struct err *e)
{
    _cleanup_free_ char *password = with_password ? agent_password(box) : strdup("");
    _cleanup_json_ json_t *v = password ? new_json(box, password) : NULL;

    return jx_write(v, out, e);
}

int remote_get_url(struct bh_box *box, uint16_t port, char **ret, struct err *e)
{
    _cleanup_json_ json_t *v = NULL;
    const char *url;
    char step[32];
    int r;

    /* The forwarded port is on the daemon's loopback: elsewhere the gateway's address is of use. */
    if (!daemon_client_socket(box->ctx->daemon)) {
        r = asprintf(ret, "%s/proxy/%u/", box->url, (unsigned)port);
        return r < 0 ? err_oom(e) : 0;
    }
    (void)snprintf(step, sizeof(step), "url?port=%u", (unsigned)port);
    r = call_box(box, "GET", step, NULL, 0, &v, e);
    if (r < 0)
        return r;
    url = json_string_value(json_object_get(v, "url"));
    if (!url || !str_has_prefix(url, "http://127.0.0.1:"))
        return err_field(e, ERR_DATA_LOSS, "daemon", "the daemon's answer has no address");
    *ret = strdup(url);
    return *ret ? 0 : err_oom(e);
}

/* ---- its guest agent ---- */

int remote_agent_login(struct bh_box *box, json_t **ret, struct err *e)
{
    return call_box(box, "GET", "agent", NULL, 0, ret, e);
}

void remote_note_silence(struct bh_box *box, const char *kind, const char *session,
                         int64_t silent_ms)
{
    _cleanup_json_ json_t *body = json_pack("{s:s, s:s, s:I}", "kind", kind, "session", session,
                                            "silent_ms", (json_int_t)silent_ms);

    if (body)
        (void)call_box(box, "POST", "silence", body, 0, NULL, NULL);
}

int remote_wake(struct bh_box *box, struct err *e)
{
    int r = box->ctx->no_resume ? remote_reload(box, e) : 0;

    if (r < 0 || !box->ctx->no_resume)
        return r;
    if (box->row.state == BH_STATE_RUNNING)
        return 0;
    return err_field(e, ERR_PRECONDITION, "state", "the box '%s' is %s", box->row.name,
                     bh_state_name(box->row.state));
}

/* The daemon may have it only a moment after the connection broke; the caller asks again. */
int remote_check_gone(struct bh_box *box, struct err *e)
{
    struct err why = {0};
    int r = remote_reload(box, &why);

    if (r == -ERR_NOT_FOUND || (r == 0 && box->row.state == BH_STATE_DESTROYING))
        return err_field(e, ERR_ABORTED, "name", "the box '%s' was removed while the command ran",
                         box->row.name);
    if (r == 0 && !box_row_is_live(&box->row))
        return err_field(e, ERR_ABORTED, "name",
                         "the box '%s' was stopped while the command ran%s%s", box->row.name,
                         *box->row.cause ? ": " : "", box->row.cause);
    return 0;
}

int remote_extend(struct bh_box *box, int64_t lease_ms)
{
    (void)remote_step_take(box, "keep", json_pack("{s:I}", "for_ms", (json_int_t)lease_ms), 0,
                           NULL);
    return 0;
}

void remote_client_options(struct bh_box *box, int cancel_fd, struct client_options *ret)
{
    const struct daemon_client *d = box->ctx->daemon;

    *ret = (struct client_options){.url = box->url,
                                   .socket = daemon_client_socket(d),
                                   .check_peer = daemon_client_check_peer,
                                   .token = daemon_client_token(d),
                                   .ca_file = daemon_client_ca(d),
                                   .is_gateway = true,
                                   .cancel_fd = cancel_fd,
                                   .answer_timeout_ms = box->ctx->answer_timeout_ms,
                                   .debug = &box->ctx->debug};
}

int remote_environment(struct bh_box *box, json_t **ret, struct err *e)
{
    json_t *v = NULL, *value;
    const char *name;
    int r = call_box(box, "GET", "environment", NULL, 0, &v, e);

    json_object_foreach (v, name, value)
        if (r == 0 && !json_is_string(value))
            r = err_field(e, ERR_DATA_LOSS, "daemon", "the daemon's answer: '%.64s' is no text",
                          name);
    if (r == 0 && !json_is_object(v))
        r = err_field(e, ERR_DATA_LOSS, "daemon", "the daemon's answer is no object");
    if (r < 0)
        json_decref(v);
    else
        *ret = v;
    return r;
}
