/* connect: an agent that somebody else runs, without a monitor: as a handle alone (bh_connect), or as a
 * box of the store (bh_attach). */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/path.h"
#include "lib/box/box.h"
#include "lib/box/box_environment.h"
#include "lib/box/bringup_internal.h"
#include "lib/box/remote.h"
#include "lib/util/context.h"

#define CONNECT_MS 30000

/* Its functions are never called: a box without a row is refused before (box_reload). */
static const struct provider provider_connected = {.name = "url", .isolates = true};

static int check_url(const struct bh_connect_options *o, struct err *e)
{
    if (!o->url || (strncmp(o->url, "http://", 7) != 0 && strncmp(o->url, "https://", 8) != 0))
        return err_field(e, ERR_INVALID, "url", "url: '%.200s' does not begin with http://",
                         o->url ? o->url : "");
    return 0;
}

/* A directory for the variables and certificates of the box's commands. It lives as long as the
 * handle. */
static int make_connect_dir(const struct bh_ctx *ctx, char **ret, struct err *e)
{
    _cleanup_free_ char *dir = path_join(ctx->state_dir, "connected-XXXXXX");

    if (!dir)
        return err_oom(e);
    if (!mkdtemp(dir))
        return err_sys(e, errno, "make '%s'", dir);
    *ret = TAKE(dir);
    return 0;
}

static int replace_text(char **at, const char *value, struct err *e)
{
    char *copy = strdup(value);

    if (!copy)
        return err_oom(e);
    free(*at);
    *at = copy;
    return 0;
}

static int connect_fill(struct bh_box *box, const struct bh_connect_options *o,
                        const struct bh_create_options *as, struct err *e)
{
    int r = spec_from_options(as, &box->spec, e);

    if (r == 0)
        r = replace_text(&box->spec.provider, provider_connected.name, e);
    if (r == 0)
        r = replace_text(&box->row.name, o->name, e);
    if (r == 0)
        r = replace_text(&box->row.cause, "", e);
    if (r == 0)
        r = replace_text(&box->url, o->url, e);
    if (r == 0 && o->token)
        r = replace_text(&box->token, o->token, e);
    box->is_handle_only = true;
    if (r == 0)
        r = make_connect_dir(box->ctx, &box->dir, e);
    (void)snprintf(box->row.id, sizeof(box->row.id), "connected");
    box->row.state = BH_STATE_RUNNING;
    box->row.ports = json_object();
    return r == 0 && !box->row.ports ? err_oom(e) : r;
}

static int connect_greet(struct bh_box *box, const struct bh_connect_options *o,
                         const struct bh_create_options *as, struct err *e)
{
    int64_t deadline = clock_mono_ms() + (o->timeout_ms > 0 ? o->timeout_ms : CONNECT_MS);
    struct client *c = NULL;
    int r = box_client(box, &c, e);

    if (r == 0)
        r = client_wait_ready(c, deadline, e);
    if (r == 0)
        r = box_environment_save(box, as, e);
    return r < 0 ? r : box_environment_apply(box, c, deadline, e);
}

int bh_connect(struct bh_ctx *ctx, const struct bh_connect_options *opts, struct bh_box **ret_box,
               struct bh_error *err)
{
    struct bh_connect_options o;
    struct bh_create_options as = {.size = sizeof(as)};
    struct bh_box *box = NULL;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0)
        r = check_url(&o, &e);
    if (r == 0 && !(box = calloc(1, sizeof(*box))))
        r = err_oom(&e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    box->agent.ops = &box_agent_ops;
    box->ctx = ctx;
    box->provider = &provider_connected;
    as.name = o.name;
    as.dest = o.workdir;
    as.env = o.env;
    as.host_env = o.host_env;
    r = connect_fill(box, &o, &as, &e);
    if (r == 0)
        r = connect_greet(box, &o, &as, &e);
    if (r < 0) {
        (void)bh_box_free(box);
        return ctx_fail(err, r, &e);
    }
    *ret_box = box;
    return 0;
}

/* ---- as a box of the store ---- */

/* Does it answer, and take the token? */
static int check_agent(struct bh_ctx *ctx, const struct bh_connect_options *o, struct err *e)
{
    const struct client_options co = {.url = o->url,
                                      .token = o->token,
                                      .cancel_fd = ctx->cancel_fd,
                                      .answer_timeout_ms = ctx->answer_timeout_ms,
                                      .debug = &ctx->debug};
    int64_t deadline = clock_mono_ms() + (o->timeout_ms > 0 ? o->timeout_ms : CONNECT_MS);
    struct client *c = NULL;
    int r = client_new(&co, &c, e);

    if (r == 0)
        r = client_wait_ready(c, deadline, e);
    if (r == 0)
        r = client_call(c, RPC_system_info, NULL, deadline, NULL, e);
    (void)client_free(c);
    return r < 0 ? err_wrap(e, r, "the guest agent at '%.200s'", o->url) : 0;
}

static int save_attached(struct bh_box *box, const struct bh_connect_options *o,
                         const struct bh_create_options *as, struct err *e)
{
    _cleanup_free_ char *path = box_path(box, BOX_ATTACHED_FILE);
    _cleanup_free_ char *token_path = box_path(box, "token");
    _cleanup_json_ json_t *doc = json_pack("{s:s}", "url", o->url);
    _cleanup_free_ char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    const char *token = o->token ? o->token : "";
    int r = path && token_path && text ? bringup_make_dir(box, e) : err_oom(e);

    if (r == 0)
        r = io_write_file(AT_FDCWD, token_path, token, strlen(token), 0600, true, e);
    if (r == 0)
        r = io_write_file(AT_FDCWD, path, text, strlen(text), 0600, true, e);
    return r < 0 ? r : box_environment_save(box, as, e);
}

/* Under the name lock. A step that fails, or the next command if this one dies, removes the box again. */
static int add_attached(struct bh_ctx *ctx, const struct bh_connect_options *o,
                        const struct bh_create_options *as, struct bh_box **ret, struct err *e)
{
    static const enum bh_state states[] = {BH_STATE_PROVISIONING, BH_STATE_BOOTSTRAPPING,
                                           BH_STATE_RUNNING};
    _cleanup_json_ json_t *json = NULL;
    struct box_row row = {0};
    struct bh_box *box = NULL;
    struct spec spec = {0};
    int r = spec_from_options(as, &spec, e);

    json = r == 0 ? spec_to_json(&spec) : NULL;
    spec_done(&spec);
    if (r == 0)
        r = json ? store_add(ctx->store, o->name, json, NULL, &row, e) : err_oom(e);
    if (r == 0)
        r = box_new_take(ctx, &row, &box, e);
    if (r < 0)
        return r;
    r = save_attached(box, o, as, e);
    for (size_t i = 0; r == 0 && i < N_ELEMENTS(states); i++)
        r = bringup_set_state(box, states[i], i ? "" : "attached by its URL", e);
    if (r < 0)
        (void)bringup_destroy_locked(box, e ? e->message : "attach failed", NULL);
    (void)bh_box_free(box);
    if (r == 0)
        r = store_find(ctx->store, o->name, &row, e);
    return r < 0 ? r : box_new_take(ctx, &row, ret, e); /* now with its URL */
}

int bh_attach(struct bh_ctx *ctx, const struct bh_connect_options *opts, struct bh_box **ret_box,
              struct bh_error *err)
{
    struct bh_connect_options o;
    struct bh_create_options as = {.size = sizeof(as), .agent = "none"};
    _cleanup_close_ int lock = -1;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0)
        r = check_url(&o, &e);
    if (r == 0 && (!o.name || !spec_is_name(o.name)))
        r = err_field(&e, ERR_INVALID, "name", "name: '%.80s' is not a box's name",
                      o.name ? o.name : "");
    if (r == 0 && ctx->daemon && !ctx->daemon_is_own)
        return ctx_fail(err, remote_attach(ctx, &o, ret_box, &e), &e);
    if (r == 0) /* here, as without the daemon: it is this network that has to reach the agent */
        r = ctx_open_store(ctx, &e);
    as.provider = provider_attached.name;
    as.name = o.name;
    as.dest = o.workdir;
    as.env = o.env;
    as.host_env = o.host_env;
    if (r == 0)
        r = check_agent(ctx, &o, &e);
    if (r == 0)
        r = store_lock_name(ctx->store, o.name, clock_mono_ms() + BOX_WAIT_MS, ctx->cancel_fd,
                            &lock, &e);
    if (r == 0)
        r = add_attached(ctx, &o, &as, ret_box, &e);
    return ctx_fail(err, r, &e);
}
