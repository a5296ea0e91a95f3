/*
 * attached: agents that somebody else runs, anywhere. Such a box has a row and a directory with the agent's address and
 * token, nothing else: it is made by bh_attach(), and its end is that it is forgotten.
 */
#include "lib/provider/provider.h"

static int attached_check(struct bh_ctx *ctx, struct spec *spec, struct err *e)
{
    (void)ctx;
    (void)spec;
    return err_field(
        e, ERR_UNIMPLEMENTED, "provider",
        "provider: 'attached' makes no boxes: 'bellhop attach --url' takes one that is "
        "there");
}

static int attached_stop(struct provider_box *b, int grace_ms, struct err *e)
{
    (void)b;
    (void)grace_ms;
    return err_field(e, ERR_PRECONDITION, "name", "the box '%s' is attached: it is not ours to end",
                     b->name);
}

/* Nothing of it is here. */
static int attached_destroy(struct provider_box *b, struct err *e)
{
    (void)b;
    (void)e;
    return 0;
}

/* Whether it answers is seen with each call. */
static int attached_find(struct provider_box *b, struct provider_run *ret, struct err *e)
{
    (void)b;
    (void)e;
    *ret = (struct provider_run){0};
    return 1;
}

static int attached_inspect(struct provider_box *b, json_t **ret, struct err *e)
{
    (void)b;
    *ret = json_pack("{s:{}, s:{}, s:{s:s}, s:[s, s, s]}", "isolation", "limits", "network", "mode",
                     "unknown", "missing", "isolation", "limits", "network");
    return *ret ? 0 : err_oom(e);
}

const struct provider provider_attached = {
    .name = "attached",
    .summary = "agents that somebody else runs",
    .is_elsewhere = true,
    .isolates = true,
    .networks = PROVIDER_NETWORK_USER | PROVIDER_NETWORK_NONE | PROVIDER_NETWORK_HOST,
    .check = attached_check,
    .stop = attached_stop,
    .destroy = attached_destroy,
    .find = attached_find,
    .inspect = attached_inspect,
};
