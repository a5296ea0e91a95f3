#include "lib/box/box.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/recipe/bootstrap.h"
#include "lib/box/box_provider.h"
#include "lib/box/bringup.h"
#include "lib/box/control.h"
#include "lib/box/history.h"
#include "lib/util/beneath.h"
#include "lib/box/lifecycle.h"
#include "lib/box/remote.h"
#include "lib/box/store_snapshots.h"
#include "lib/image/image.h"
#include "lib/util/procfs.h"
#include "lib/util/socket.h"

#define TOUCH_MS 2000
#define HOLD_MS 5000
#define TOKEN_FILE_BYTES 4096
#define URL_FILE_BYTES 8192

/* ---- the context ---- */

int ctx_open_store(struct bh_ctx *ctx, struct err *e)
{
    int r = ctx->store ? 0 : store_open(ctx->state_dir, &ctx->store, e);

    if (r < 0)
        return r;
    store_set_actor(ctx->store, ctx->actor);
    store_set_debug(ctx->store, &ctx->debug);
    if (ctx->records_for_ms)
        store_set_records_for(ctx->store, ctx->records_for_ms);
    return 0;
}

int bh_open(const struct bh_options *opts, struct bh_ctx **ret_ctx, struct bh_error *err)
{
    struct bh_ctx *ctx = NULL;
    struct err e = {0};
    int r = ctx_new(opts, &ctx, &e);

    if (r == 0)
        r = remote_open(ctx, &e);
    if (r == 0 && !ctx->daemon)
        r = ctx_open_store(ctx, &e);
    if (r < 0) {
        (void)ctx_free(ctx);
        return ctx_fail(err, r, &e);
    }
    *ret_ctx = ctx;
    return 0;
}

struct bh_ctx *bh_close(struct bh_ctx *ctx)
{
    if (ctx)
        (void)store_close(ctx->store);
    return ctx_free(ctx);
}

/* ---- the handle ---- */

/* A box of which somebody has removed the files has no address: "" is refused by the first call. */
static int load_attached(struct bh_box *box, struct err *e)
{
    _cleanup_free_ char *path = box_path(box, BOX_ATTACHED_FILE);
    _cleanup_free_ char *token_path = box_path(box, "token");
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *doc = NULL;
    const char *url = NULL;
    size_t len = 0;

    if (!path || !token_path)
        return err_oom(e);
    if (io_read_file(AT_FDCWD, path, URL_FILE_BYTES, &text, &len, NULL) == 0 &&
        jx_parse(text, len, &doc, NULL) == 0)
        url = json_string_value(json_object_get(doc, "url"));
    box->url = strdup(url ? url : "");
    if (io_read_file(AT_FDCWD, token_path, TOKEN_FILE_BYTES, &box->token, NULL, NULL) == 0)
        box->token[strcspn(box->token, "\r\n")] = '\0';
    return box->url ? 0 : err_oom(e);
}

static int box_fill(struct bh_box *box, struct err *e)
{
    int r = spec_from_json(box->row.spec, &box->spec, e);

    if (r < 0)
        return err_wrap(e, r, "the box '%s' in the store", box->row.name);
    box->provider = provider_find(box->spec.provider);
    if (!box->provider)
        return err_field(e, ERR_NOT_FOUND, "provider", "there is no provider '%.64s'",
                         box->spec.provider);
    box->dir = ctx_box_path(box->ctx, box->row.id, NULL);
    if (!box->dir)
        return err_oom(e);
    return box->provider->is_elsewhere && box->row.made ? load_attached(box, e) : 0;
}

int box_new_take(struct bh_ctx *ctx, struct box_row *row, struct bh_box **ret, struct err *e)
{
    struct bh_box *box = calloc(1, sizeof(*box));
    int r;

    if (!box) {
        box_row_done(row);
        return err_oom(e);
    }
    box->agent.ops = &box_agent_ops;
    box->ctx = ctx;
    box->row = *row;
    memset(row, 0, sizeof(*row));
    r = box_fill(box, e);
    if (r < 0) {
        (void)bh_box_free(box);
        return r;
    }
    *ret = box;
    return 0;
}

struct bh_box *bh_box_free(struct bh_box *box)
{
    if (!box)
        return NULL;
    box_clear_info(box);
    (void)client_free(box->client);
    json_decref(box->remote);
    spec_done(&box->spec);
    box_row_done(&box->row);
    if (box->is_handle_only && box->dir)
        (void)dirtree_remove(box->dir, NULL); /* the handle alone knows it */
    free(box->url);
    if (box->token)
        explicit_bzero(box->token, strlen(box->token));
    free(box->token);
    free(box->dir);
    free(box);
    return NULL;
}

int box_refuse_elsewhere(const struct bh_box *box, struct err *e)
{
    return box->url && !box->remote
               ? err_field(e, ERR_PRECONDITION, "name",
                           "'%s' was attached%s: its lifecycle is not managed here", box->row.name,
                           box->is_handle_only ? " with bh_connect" : "")
               : 0;
}

int box_reload(struct bh_box *box, struct err *e)
{
    struct box_row row = {0};
    struct spec spec = {0};
    int r = box->is_handle_only ? box_refuse_elsewhere(box, e) : 0;

    if (box->remote)
        return remote_reload(box, e);
    if (r == 0)
        r = store_get(box->ctx->store, box->row.id, &row, e);
    if (r < 0)
        return r;
    r = spec_from_json(row.spec, &spec, e);
    if (r < 0) {
        box_row_done(&row);
        return r;
    }
    box_clear_info(box);
    spec_done(&box->spec);
    box_row_done(&box->row);
    box->spec = spec;
    box->row = row;
    return 0;
}

void box_view(struct bh_box *box, struct provider_box *ret)
{
    *ret = (struct provider_box){.ctx = box->ctx,
                                 .id = box->row.id,
                                 .name = box->row.name,
                                 .dir = box->dir,
                                 .spec = &box->spec};
}

char *box_path(const struct bh_box *box, const char *name)
{
    return path_join(box->dir, name);
}

char *box_workdir(const struct bh_box *box)
{
    if (box->remote)
        return strdup(json_string_value(json_object_get(box->remote, "workdir")));
    return provider_workdir(box->provider, box->dir, &box->spec);
}

bool box_has_agent(const struct bh_box *box)
{
    return strcmp(box->spec.agent, "none") != 0;
}

bool box_agent_was_started(const struct bh_box *box)
{
    json_t *agent = box->remote ? json_object_get(box->remote, "agent") : box->row.agent;

    return json_string_length(json_object_get(agent, "exec_id")) > 0;
}

int box_check_key(const char *key, struct err *e)
{
    size_t n = key ? strnlen(key, STORE_KEY_BYTES + 1) : 0;

    return n && n <= STORE_KEY_BYTES
               ? 0
               : err_field(e, ERR_INVALID, "key", "key: a key has 1 to %d bytes", STORE_KEY_BYTES);
}

/* "PROVIDER/NAME" is the box NAME if it is of that provider. Moves *name behind the slash. */
static int check_prefix(struct bh_ctx *ctx, const char **name, struct err *e)
{
    const char *slash = *name ? strchr(*name, '/') : NULL;
    char provider[32];
    struct box_row row = {0};
    const char *has;
    int r;

    if (!slash || slash == *name || (size_t)(slash - *name) >= sizeof(provider) || ctx->daemon)
        return 0;
    (void)snprintf(provider, sizeof(provider), "%.*s", (int)(slash - *name), *name);
    if (!provider_find(provider))
        return err_field(e, ERR_INVALID, "name", "name: there is no provider '%s'", provider);
    if (!spec_is_name(slash + 1))
        return 0; /* the caller's error has the whole text */
    r = store_find(ctx->store, slash + 1, &row, e);
    has = r == 0 ? json_string_value(json_object_get(row.spec, "provider")) : NULL;
    if (has && !str_eq(has, provider))
        r = err_field(e, ERR_INVALID, "name",
                      "name: the box '%s' is of the provider '%s', not '%s'", slash + 1, has,
                      provider);
    box_row_done(&row);
    if (r == 0)
        *name = slash + 1;
    return r;
}

int bh_get(struct bh_ctx *ctx, const char *name, struct bh_box **ret_box, struct bh_error *err)
{
    struct box_row row = {0};
    struct err e = {0};
    int r = check_prefix(ctx, &name, &e);

    if (r < 0)
        return ctx_fail(err, r, &e);
    if (!name || !spec_is_name(name)) {
        r = err_field(&e, ERR_INVALID, "name", "name: '%.80s' is not a box's name",
                      name ? name : "");
        return ctx_fail(err, r, &e);
    }
    if (ctx->daemon) {
        r = remote_get(ctx, name, ret_box, &e);
        if (!remote_leaves_it(ctx, r, ret_box))
            return ctx_fail(err, r, &e);
    }
    r = store_find(ctx->store, name, &row, &e);
    if (r == 0)
        r = box_new_take(ctx, &row, ret_box, &e);
    if (r == 0)
        bringup_notice(*ret_box);
    return ctx_fail(err, r, &e);
}

int bh_get_by_id(struct bh_ctx *ctx, const char *id, struct bh_box **ret_box, struct bh_error *err)
{
    struct box_row row = {0};
    struct err e = {0};
    int r;

    if (!id || strlen(id) != BOX_ID_BYTES - 1 ||
        strspn(id, "0123456789abcdef") != BOX_ID_BYTES - 1) {
        r = err_field(&e, ERR_INVALID, "id", "id: '%.80s' is not a box's id", id ? id : "");
        return ctx_fail(err, r, &e);
    }
    if (ctx->daemon) {
        r = remote_get(ctx, id, ret_box, &e);
        if (!remote_leaves_it(ctx, r, ret_box))
            return ctx_fail(err, r, &e);
    }
    r = store_get(ctx->store, id, &row, &e);
    if (r == 0)
        r = box_new_take(ctx, &row, ret_box, &e);
    if (r == 0)
        bringup_notice(*ret_box);
    return ctx_fail(err, r, &e);
}

int bh_get_by_key(struct bh_ctx *ctx, const char *key, struct bh_box **ret_box,
                  struct bh_error *err)
{
    struct box_row row = {0};
    struct err e = {0};
    int r = box_check_key(key, &e);

    if (r == 0 && ctx->daemon) {
        r = remote_get_by_key(ctx, key, ret_box, &e);
        if (!remote_leaves_it(ctx, r, ret_box))
            return ctx_fail(err, r, &e);
        r = 0;
    }
    if (r == 0)
        r = store_find_key(ctx->store, key, &row, &e);
    if (r == -ERR_NOT_FOUND)
        r = store_not_found(ctx->store, "key", key, &e);
    if (r == 0)
        r = box_new_take(ctx, &row, ret_box, &e);
    if (r == 0)
        bringup_notice(*ret_box);
    return ctx_fail(err, r, &e);
}

struct list {
    struct bh_ctx *ctx;
    int (*fn)(void *arg, struct bh_box *box);
    void *arg;
    struct err e;
};

static int on_row(void *arg, struct box_row *row)
{
    struct list *l = arg;
    struct bh_box *box = NULL;
    int r = spec_is_name(row->name) ? box_new_take(l->ctx, row, &box, &l->e) : 0;

    if (r < 0 || !box) /* one that was set aside (recreate.h) */
        return r;
    bringup_notice(box);
    r = l->fn(l->arg, box);
    (void)bh_box_free(box);
    return r;
}

int box_list(struct bh_ctx *ctx, const struct store_filter *f,
             int (*fn)(void *arg, struct bh_box *box), void *arg, struct bh_error *err)
{
    struct list l = {.ctx = ctx, .fn = fn, .arg = arg};
    int r = store_list_some(ctx->store, f, on_row, &l, &l.e);

    return r < 0 ? ctx_fail(err, r, &l.e) : r;
}

int bh_list(struct bh_ctx *ctx, int (*fn)(void *arg, struct bh_box *box), void *arg,
            struct bh_error *err)
{
    struct err e = {0};
    int r;

    if (ctx->daemon) {
        r = remote_list(ctx, fn, arg, &e);
        if (!remote_leaves_it(ctx, r, NULL))
            return r < 0 ? ctx_fail(err, r, &e) : r;
    }
    return box_list(ctx, &(struct store_filter){0}, fn, arg, err);
}

/* ---- the boxes of an image ---- */

struct image_count {
    const char *dir;
    struct image_boxes boxes;
};

static int count_row_of_image(void *arg, struct box_row *row)
{
    struct image_count *c = arg;
    const char *dir = json_string_value(json_object_get(row->spec, "image_dir"));

    if (dir && strcmp(dir, c->dir) == 0) {
        c->boxes.n++;
        (void)snprintf(c->boxes.name, sizeof(c->boxes.name), "%s", row->name);
    }
    return 0;
}

/* A snapshot needs its image as a box does. */
static int count_snapshot_of_image(void *arg, struct snapshot_row *row)
{
    struct image_count *c = arg;
    json_t *spec = json_object_get(row->facts, "spec");
    const char *dir = json_string_value(json_object_get(spec, "image_dir"));

    if (dir && strcmp(dir, c->dir) == 0) {
        c->boxes.n++;
        (void)snprintf(c->boxes.name, sizeof(c->boxes.name), "snapshot %s", row->name);
    }
    return 0;
}

static int count_boxes_of_image(struct bh_ctx *ctx, const char *dir, struct image_boxes *ret,
                                struct err *e)
{
    struct image_count c = {.dir = dir};
    int r = store_list_snapshots(ctx->store, count_snapshot_of_image, &c, e);

    if (r == 0)
        r = store_list(ctx->store, count_row_of_image, &c, e);
    if (r == 0)
        *ret = c.boxes;
    return r;
}

int bh_image_list(struct bh_ctx *ctx, int (*fn)(void *arg, const struct bh_image_info *info),
                  void *arg, struct bh_error *err)
{
    struct err e = {0};
    int r = remote_leave(ctx, "listing images", &e);

    return ctx_fail(err, r < 0 ? r : image_list(ctx, count_boxes_of_image, fn, arg, &e), &e);
}

int bh_image_remove(struct bh_ctx *ctx, const char *image, struct bh_error *err)
{
    struct err e = {0};
    int r = remote_leave(ctx, "removing images", &e);

    return ctx_fail(err, r < 0 ? r : image_remove(ctx, image, count_boxes_of_image, &e), &e);
}

/* ---- its client ---- */

/*
 * A process in the agent's place would receive the token and everything that is sent.
 * The provider recorded the listener before anything else ran in the box. A pid whose process
 * started at the recorded time is that process.
 */
static int check_peer(void *arg, int fd, struct err *e)
{
    struct bh_box *box = arg;
    struct provider_run run = {0};
    pid_t pid = 0;
    int r;

    if (box->provider->dial) /* the box does not see the directory: nobody but us listens there */
        return 0;
    r = box_provider_find(box, &run, e);

    if (r == 0)
        return err_set(e, ERR_UNAVAILABLE, "the box does not run");
    if (r > 0)
        r = socket_peer(fd, &pid, e);
    if (r < 0)
        return r;
    if (pid != run.listener || !procfs_is_alive(pid, run.listener_start))
        return err_set(e, ERR_UNAUTHENTICATED,
                       "not the guest agent but process %d listens in '%s/run'", (int)pid,
                       box->dir);
    return 0;
}

/* Of the agent's socket in the box's directory. */
static int socket_client_options(struct bh_box *box, int cancel_fd, struct client_options *ret,
                                 char **ret_socket, char **ret_token, struct err *e)
{
    _cleanup_free_ char *socket = box_path(box, "run/agent.sock");
    _cleanup_free_ char *token_path = box_path(box, "token");
    _cleanup_free_ char *token = NULL;
    size_t len = 0;
    int r;

    if (!socket || !token_path)
        return err_oom(e);
    r = io_read_file(AT_FDCWD, token_path, TOKEN_FILE_BYTES, &token, &len, e);
    if (r < 0)
        return r;
    token[strcspn(token, "\r\n")] = '\0';
    *ret_socket = TAKE(socket);
    *ret_token = TAKE(token);
    *ret = (struct client_options){.socket = *ret_socket,
                                   .token = *ret_token,
                                   .cancel_fd = cancel_fd,
                                   .check_peer = check_peer,
                                   .check_arg = box,
                                   .answer_timeout_ms = box->ctx->answer_timeout_ms,
                                   .debug = &box->ctx->debug};
    return 0;
}

int box_client_options(struct bh_box *box, int cancel_fd, struct client_options *ret,
                       char **ret_socket, char **ret_token, struct err *e)
{
    if (!box->url)
        return socket_client_options(box, cancel_fd, ret, ret_socket, ret_token, e);
    *ret_socket = *ret_token = NULL;
    if (box->remote)
        remote_client_options(box, cancel_fd, ret);
    else
        *ret = (struct client_options){.url = box->url,
                                       .token = box->token,
                                       .cancel_fd = cancel_fd,
                                       .answer_timeout_ms = box->ctx->answer_timeout_ms,
                                       .debug = &box->ctx->debug};
    return 0;
}

int box_new_client(struct bh_box *box, int cancel_fd, struct client **ret, struct err *e)
{
    _cleanup_free_ char *socket = NULL;
    _cleanup_free_ char *token = NULL;
    struct client_options opts;
    int r = box_client_options(box, cancel_fd, &opts, &socket, &token, e);

    return r < 0 ? r : client_new(&opts, ret, e);
}

int box_client(struct bh_box *box, struct client **ret, struct err *e)
{
    int r = box->client ? 0 : box_new_client(box, box->ctx->cancel_fd, &box->client, e);

    if (r == 0)
        *ret = box->client;
    return r;
}

int box_wake_own(struct bh_box *box, struct err *e)
{
    int r = box_refuse_elsewhere(box, e);

    return r < 0 ? r : box_wake(box, e);
}

int box_hold(struct bh_box *box, int *ret_fd, struct err *e)
{
    *ret_fd = -1;
    if (box->url)
        return 0;
    return control_open_take(box->ctx, box->row.id, json_pack("{s:s}", "op", "hold"), HOLD_MS,
                             ret_fd, e);
}

int box_wake(struct bh_box *box, struct err *e)
{
    int r = box->remote ? remote_wake(box, e) : box->is_handle_only ? 0 : box_reload(box, e);

    if (r < 0 || box->url)
        return r;
    /* A pause or resume that was killed may have been done all the same: its state is left behind. */
    if (box_row_is_live(&box->row) && !lifecycle_is_transitional(box->row.state)) {
        r = control_call_take(box->ctx, box->row.id, json_pack("{s:s}", "op", "touch"), TOUCH_MS,
                              NULL, NULL);
        if (r == 0)
            return 0;
        if (r == -ERR_CANCELED)
            return err_set(e, ERR_CANCELED, "canceled");
    }
    return bringup_back(box, clock_mono_ms() + BOX_WAIT_MS, NULL, e);
}

/* ---- health ---- */

static int check_health(struct bh_box *box, int64_t timeout_ms, struct err *e)
{
    struct client *c = NULL;
    int r = box->is_handle_only ? 0 : box_reload(box, e);

    if (r < 0)
        return r;
    if (box->remote)
        return remote_health(box, timeout_ms, e);
    if (box->row.state == BH_STATE_ERROR)
        return err_field(e, ERR_PRECONDITION, "state", "%s", box->row.cause);
    if (box->row.state != BH_STATE_RUNNING)
        return err_field(e, ERR_PRECONDITION, "state", "the box '%s' is %s", box->row.name,
                         bh_state_name(box->row.state));
    r = box_client(box, &c, e);
    if (r == 0)
        r = client_health(c, timeout_ms, e);
    if (r == 0 && box_has_agent(box))
        r = bootstrap_health(box->ctx, box->dir, c, timeout_ms, e);
    return r;
}

int bh_health(struct bh_box *box, int64_t timeout_ms, struct bh_error *err)
{
    struct err e = {0};
    int r = check_health(box, timeout_ms > 0 ? timeout_ms : 2000, &e);

    return ctx_fail(err, r, &e);
}

int bh_inspect(struct bh_box *box, char **ret_json, struct bh_error *err)
{
    _cleanup_json_ json_t *facts = NULL;
    struct err e = {0};
    int r = box->remote ? 0 : box_reload(box, &e);

    if (r < 0)
        return ctx_fail(err, r, &e);
    r = box->remote ? remote_inspect(box, &facts, &e) : box_provider_inspect(box, &facts, &e);
    if (r == 0)
        r = jx_dump(facts, ret_json, NULL, &e);
    return ctx_fail(err, r, &e);
}
