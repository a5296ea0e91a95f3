#include "lib/box/recreate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/box_provider.h"
#include "lib/box/control.h"
#include "lib/box/snapshot.h"
#include "lib/provider/limits.h"
#include "lib/util/beneath.h"

bool recreate_is_wanted(const struct bh_box *box)
{
    return str_eq(box->spec.on_gone, "recreate");
}

void recreate_base_name(const char *name, char out[64])
{
    (void)snprintf(out, 64, "%.*s", (int)strcspn(name, "."), name);
}

/* ---- how it was made ---- */

static const char *content_text(const struct spec *s, const char *name)
{
    return json_string_value(json_object_get(s->content, name));
}

static bool content_is(const struct spec *s, const char *name)
{
    return json_is_true(json_object_get(s->content, name));
}

/* Borrowed from the box and its context. */
static int options_of_box(struct bh_box *box, struct bh_create_options *ret, struct err *e)
{
    const struct spec *s = &box->spec;
    const char *path = box->row.project ? box->row.project : "";
    bool is_from = s->from && *s->from;

    if (content_is(s, "has_secrets"))
        return err_field(e, ERR_PRECONDITION, "secret",
                         "secret: its secrets are gone with it: 'bellhop up' with them makes the "
                         "box anew");
    *ret = (struct bh_create_options){
        .size = sizeof(*ret),
        .name = box->row.name,
        .project = *path ? path : NULL,
        .repo_url = *path || is_from || !*box->row.remote ? NULL : box->row.remote,
        .no_upload = !content_is(s, "upload") || is_from,
        .git = content_text(s, "git"),
        .with_secrets = content_is(s, "with_secrets"),
        .agent_config = content_text(s, "agent_config"),
        .git_token_file = content_text(s, "git_token_file"),
        .host_env = box->ctx->host_env,
        .env = (const char *const *)s->env};
    return 0;
}

/* ---- the new one ---- */

/* The handle takes over the other one's content, and frees it. */
static void become_box(struct bh_box *box, struct bh_box *other)
{
    struct bh_box old = *box;

    *box = *other;
    *other = old;
    (void)bh_box_free(other);
}

static int fail_with_both(struct bh_box *box, const char *why, int r, struct err *e)
{
    _cleanup_free_ char *second = e ? strdup(e->message) : NULL;

    if (e)
        (void)snprintf(e->message, sizeof(e->message),
                       "the box '%s' is gone (%s), and it could not be made anew: %s",
                       box->row.name, why, second ? second : "");
    return r;
}

/* One that was made from a snapshot is made from it again. */
static int take_snapshot_again(struct bh_box *fresh, struct snapshot_row *from, struct err *e)
{
    const char *name = fresh->spec.from ? fresh->spec.from : "";
    int r = *name ? snapshot_find_usable(fresh->ctx, name, from, e) : 0;

    if (r < 0 || !*name)
        return r;
    fresh->from = from;
    return store_add_layers(fresh->ctx->store, fresh->row.id, from, e);
}

/* On failure nothing of it is left. */
static int bring_up_anew(struct bh_box *fresh, const struct bh_create_options *opts,
                         int64_t deadline_mono_ms, struct bringup_report *report, struct err *e)
{
    struct snapshot_row from = {0};
    int r = take_snapshot_again(fresh, &from, e);

    if (r < 0)
        (void)bringup_destroy_locked(fresh, e ? e->message : "", NULL);
    else
        r = bringup_run_locked(fresh, opts, deadline_mono_ms, report, e);
    fresh->from = NULL;
    snapshot_row_done(&from);
    return r;
}

static int make_anew(struct bh_box *box, const struct bh_create_options *opts, const char *why,
                     int64_t deadline_mono_ms, struct bringup_report *report, struct bh_box **ret,
                     struct err *e)
{
    struct store *s = box->ctx->store;
    _cleanup_json_ json_t *spec = spec_to_json(&box->spec);
    struct box_row row = {0};
    struct bh_box *fresh = NULL;
    char id[BOX_ID_BYTES];
    int r = spec ? store_set_aside(s, box->row.id, spec, &row, e) : err_oom(e);

    if (r < 0)
        return r;
    (void)snprintf(id, sizeof(id), "%s", row.id);
    r = box_new_take(box->ctx, &row, &fresh, e);
    if (r == 0) {
        fresh->replaces = box->row.id;
        fresh->replaces_why = why;
        r = bring_up_anew(fresh, opts, deadline_mono_ms, report, e);
    }
    if (r == 0) {
        fresh->replaces = fresh->replaces_why = NULL;
        *ret = fresh;
        return 0;
    }
    (void)bh_box_free(fresh);
    (void)store_forget_record(s, id, NULL); /* the old box is as it was */
    return r;
}

/* The new box has taken its place in the store. Its directory has a token and the box's variables. */
static void remove_old(struct bh_box *box)
{
    struct err e = {0};
    int r;

    control_kill_monitor(box->ctx, box->row.id);
    r = box_provider_destroy(box, &e);
    if (r == 0)
        r = dirtree_remove(box->dir, &e);
    if (r < 0)
        ctx_progress(box->ctx, "warning", 0, 0, false,
                     "parts of the old box '%s' are left (%.300s): 'bellhop gc' removes them",
                     box->row.id, e.message);
}

int recreate_box_locked(struct bh_box *box, const struct bh_create_options *opts, const char *why,
                        int64_t deadline_mono_ms, struct bringup_report *report, struct err *e)
{
    struct bh_create_options as_made;
    struct bh_box *fresh = NULL;
    int r = limits_check(box->ctx->limits, &box->spec, e);

    if (r == 0 && !opts)
        r = options_of_box(box, &as_made, e);
    if (r == 0) {
        ctx_progress(box->ctx, "warning", 0, 0, false, "the box '%s' is gone (%s): it is made anew",
                     box->row.name, why);
        r = make_anew(box, opts ? opts : &as_made, why, deadline_mono_ms, report, &fresh, e);
    }
    if (r < 0)
        return fail_with_both(box, why, r, e);
    remove_old(box);
    become_box(box, fresh);
    return r;
}

/* ---- finding it ---- */

int recreate_follow(struct bh_box *box, struct err *e)
{
    struct box_row row = {0};
    struct bh_box *other = NULL;
    char name[64];
    int r;

    recreate_base_name(box->row.name, name);
    r = store_find(box->ctx->store, name, &row, e);
    if (r == 0)
        r = box_new_take(box->ctx, &row, &other, e);
    if (r == 0)
        become_box(box, other);
    return r;
}
