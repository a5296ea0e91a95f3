#include "daemon/contexts.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "lib/box/store.h"
#include "lib/util/context.h"

struct contexts {
    const struct bh_options *options;
    pthread_mutex_t lock;
    /* guarded by lock: */
    struct bh_ctx *kept[CONTEXTS_KEPT];
    size_t n_kept;
};

int contexts_new(const struct bh_options *options, struct contexts **ret, struct err *e)
{
    struct contexts *c = calloc(1, sizeof(*c));

    if (!c)
        return err_oom(e);
    c->options = options;
    (void)pthread_mutex_init(&c->lock, NULL);
    *ret = c;
    return 0;
}

struct contexts *contexts_free(struct contexts *c)
{
    if (!c)
        return NULL;
    while (c->n_kept)
        (void)bh_close(c->kept[--c->n_kept]);
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
    return NULL;
}

/* The error's detail, of the box that is gone, has more facts than one: its id is the one for programs. */
static void add_gone(struct err *e, const struct bh_error *error)
{
    struct bh_gone gone = {.size = sizeof(gone)};

    if (bh_error_gone(error, &gone))
        (void)err_detail(e, 0, "gone", gone.id);
}

int contexts_error(struct err *e, int r, const struct bh_error *error)
{
    if (r >= 0)
        return r;
    /* A callback that gave up has set no error. */
    r = error->code ? err_field(e, (enum err_code)error->code, error->field, "%s", error->message)
                    : err_oom(e);
    e->sys = error->sys;
    add_gone(e, error);
    return r;
}

static int set_actor(struct bh_ctx *ctx, const char *actor, struct err *e)
{
    char *copy = strdup(actor);

    if (!copy)
        return err_oom(e);
    free(ctx->actor);
    ctx->actor = copy;
    store_set_actor(ctx->store, actor);
    return 0;
}

int contexts_take(struct contexts *c, const char *actor, struct bh_ctx **ret, struct err *e)
{
    struct bh_ctx *ctx = NULL;
    struct bh_error error = {0};
    int r = 0;

    WITH_LOCK (&c->lock) {
        if (c->n_kept)
            ctx = c->kept[--c->n_kept];
    }
    if (!ctx)
        r = contexts_error(e, bh_open(c->options, &ctx, &error), &error);
    if (r == 0)
        r = set_actor(ctx, actor, e);
    if (r < 0) {
        (void)bh_close(ctx);
        return r;
    }
    *ret = ctx;
    return 0;
}

void contexts_give(struct contexts *c, struct bh_ctx *ctx)
{
    bool is_kept = false;

    if (!ctx)
        return;
    ctx->no_resume = false;
    ctx->trusts_store = false;
    WITH_LOCK (&c->lock) {
        is_kept = c->n_kept < CONTEXTS_KEPT;
        if (is_kept)
            c->kept[c->n_kept++] = ctx;
    }
    if (!is_kept)
        (void)bh_close(ctx);
}
