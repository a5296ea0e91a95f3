/* connect: a handle of an agent that somebody else runs, without a row in the store and without
 * a monitor. */
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/path.h"
#include "lib/box/box.h"
#include "lib/box/box_environment.h"
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
