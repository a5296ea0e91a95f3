#include "lib/box/snapshot.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/box_provider.h"
#include "lib/box/bringup_internal.h"
#include "lib/box/history.h"
#include "lib/image/image.h"
#include "lib/provider/layer_store.h"

#define RECORD_MAX_BYTES ((size_t)1 << 20)
#define AGENT_RECORD "agent.json" /* of bootstrap.h */
#define NAME_TRIES 1000
#define THAW_MS 10000

/* ---- facts ---- */

/* Digest of the image; "" for one that is made from this machine. */
static int image_digest(const struct spec *spec, char **ret, struct err *e)
{
    struct image_facts facts = {0};
    int r = *spec->image_dir ? image_facts(spec->image_dir, &facts, e) : 0;

    if (r < 0)
        return r;
    *ret = strdup(facts.hash ? facts.hash : "");
    image_facts_done(&facts);
    return *ret ? 0 : err_oom(e);
}

/* A file of the box's directory as JSON; null: there is none. */
static json_t *read_agent_record(const struct bh_box *box)
{
    _cleanup_free_ char *path = box_path(box, AGENT_RECORD);
    _cleanup_free_ char *text = NULL;
    json_t *doc = NULL;
    size_t len = 0;

    if (!path || io_read_file(AT_FDCWD, path, RECORD_MAX_BYTES, &text, &len, NULL) < 0 ||
        jx_parse(text, len, &doc, NULL) < 0)
        return json_null();
    return doc;
}

static json_t *variable_names(const struct spec *spec)
{
    json_t *names = json_array();

    for (char **v = spec->env; names && v && *v; v++)
        (void)json_array_append_new(names, json_stringn(*v, strcspn(*v, "=")));
    return names;
}

/* Values of variables may be secrets: the snapshot has none. */
static int fill_facts(const struct bh_box *box, const struct provider_capture *c,
                      enum snapshot_purpose purpose, json_t **ret, struct err *e)
{
    _cleanup_free_ char *hash = NULL;
    json_t *spec = NULL, *facts;
    int r = image_digest(&box->spec, &hash, e);

    if (r < 0)
        return r;
    spec = spec_to_json(&box->spec);
    if (spec)
        (void)json_object_set_new(spec, "env", json_array());
    facts = json_pack("{s:o, s:o, s:s, s:O, s:o, s:O, s:I, s:I, s:I, s:I, s:b}", "spec", spec,
                      "variables", variable_names(&box->spec), "image_hash", hash, "agent",
                      box->row.agent, "record", read_agent_record(box), "disk", c->disk, "bytes",
                      (json_int_t)c->bytes, "copied", (json_int_t)c->copied, "entries",
                      (json_int_t)c->n_entries, "devices", (json_int_t)c->n_devices, "at_timeout",
                      purpose == SNAPSHOT_TIMEOUT);
    if (!facts)
        return err_oom(e);
    *ret = facts;
    return 0;
}

const char *snapshot_spec_member(const struct snapshot_row *row, const char *name)
{
    const char *s = json_string_value(json_object_get(json_object_get(row->facts, "spec"), name));

    return s ? s : "";
}

json_t *snapshot_session(const struct snapshot_row *row)
{
    return json_object_get(row->facts, "record");
}

int snapshot_save_session(struct bh_box *box, const json_t *session, struct err *e)
{
    _cleanup_free_ char *path = box_path(box, AGENT_RECORD);
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r;

    if (!json_is_object(session))
        return 0;
    r = path ? jx_dump(session, &text, &len, e) : err_oom(e);
    return r < 0 ? r : io_write_file(AT_FDCWD, path, text, len, 0600, true, e);
}

/* ---- making one ---- */

static int require_provider(const struct bh_box *box, struct err *e)
{
    if (box->provider->has_snapshots)
        return 0;
    return err_field(e, ERR_UNIMPLEMENTED, "snapshot", "the provider '%s' cannot make snapshots%s",
                     box->provider->name,
                     box->provider->shares_machine ? ": its boxes have this machine's files" : "");
}

/* "api-1", "api-2", ...: adds the row under the first name that is free. */
static int add_named(struct store *s, struct snapshot_row *row, struct err *e)
{
    int r = -ERR_EXISTS;

    for (int i = 1; r == -ERR_EXISTS && i <= NAME_TRIES; i++) {
        free(TAKE(row->name));
        if (asprintf(&row->name, "%.50s-%d", row->box_name, i) < 0) {
            row->name = NULL;
            return err_oom(e);
        }
        r = store_add_snapshot(s, row, e);
    }
    return r;
}

static int add_snapshot_row(struct bh_box *box, const char *name, enum snapshot_purpose purpose,
                            struct snapshot_row *row, struct err *e)
{
    int r = 0;

    row->is_temporary = purpose == SNAPSHOT_FORK;
    (void)snprintf(row->box_id, sizeof(row->box_id), "%s", box->row.id);
    row->box_name = strdup(box->row.name);
    row->project = box->row.project ? strdup(box->row.project) : NULL;
    row->remote = strdup(box->row.remote ? box->row.remote : "");
    if (!row->box_name || !row->remote || (box->row.project && !row->project))
        return err_oom(e);
    if (!name)
        return add_named(box->ctx->store, row, e);
    if (!spec_is_name(name))
        return err_field(e, ERR_INVALID, "name", "name: '%.80s' is not a snapshot's name", name);
    row->name = strdup(name);
    if (!row->name)
        r = err_oom(e);
    return r < 0 ? r : store_add_snapshot(box->ctx->store, row, e);
}

/* The layer is in its place and the row is ready, both or none: gc removes layers without users. */
static int commit_snapshot(struct bh_box *box, const struct provider_capture *c,
                           struct snapshot_row *row, struct err *e)
{
    _cleanup_close_ int lock = -1;
    int r = layer_lock(box->ctx, c->deadline_mono_ms, &lock, e);

    /* gc removes only layers that are known as this store's. One that lies there without being known
     * may be the disk of a box of another store, that was lost. */
    if (r == 0 && *c->layer && !layer_is_there(box->ctx, c->layer))
        r = store_add_layer(box->ctx->store, c->layer, e);
    if (r == 0 && *c->layer)
        r = layer_commit(box->ctx, row->id, c->layer, e);
    return r < 0 ? r : store_finish_snapshot(box->ctx->store, row, e);
}

static int fill_snapshot(struct bh_box *box, enum snapshot_purpose purpose,
                         int64_t deadline_mono_ms, struct snapshot_row *row, struct err *e)
{
    struct provider_capture c = {.id = row->id,
                                 .deadline_mono_ms = deadline_mono_ms,
                                 .is_paused = box_row_is_paused(&box->row)};
    int r;

    ctx_progress(box->ctx, "snapshot", 0, 0, false, "copying the disk of '%s'", box->row.name);
    r = box_provider_capture(box, &c, e);
    row->layers = c.layers;
    if (r == 0)
        r = fill_facts(box, &c, purpose, &row->facts, e);
    if (r == 0)
        r = commit_snapshot(box, &c, row, e);
    json_decref(c.disk);
    if (r == 0 && c.n_devices)
        ctx_progress(box->ctx, "warning", 0, 0, false,
                     "device files are not in the snapshot: there were %llu",
                     (unsigned long long)c.n_devices);
    return r;
}

/* The row is the last to go: without it, gc does not know what it finds. */
static int drop_unfinished(struct bh_ctx *ctx, const struct snapshot_row *row, struct err *e)
{
    int r = layer_drop_made(ctx, row->id, e);

    return r < 0 ? r : store_remove_snapshot(ctx->store, row->id, e);
}

/* The provider may have finished a capture whose answer was lost. */
static void drop_unfinished_of_box(struct bh_box *box, const struct snapshot_row *row)
{
    if (box_provider_drop_capture(box, row->id, NULL) == 0)
        (void)drop_unfinished(box->ctx, row, NULL);
}

/* With the lock of the box nobody else makes a snapshot of it: the rest of one that was killed goes. */
static int drop_killed(void *arg, struct snapshot_row *row)
{
    struct bh_box *box = arg;

    if (!row->is_ready && !row->is_temporary && str_eq(row->box_id, box->row.id))
        drop_unfinished_of_box(box, row);
    return 0;
}

int snapshot_make_locked(struct bh_box *box, const char *name, enum snapshot_purpose purpose,
                         int64_t deadline_mono_ms, struct snapshot_row *ret, struct err *e)
{
    struct snapshot_row row = {0};
    bool is_gone = false;
    struct err why = {0};
    int r = require_provider(box, e);

    if (r == 0 && box->row.state != BH_STATE_PAUSED)
        r = bringup_settle_locked(box, &is_gone, e);
    if (r == 0 && is_gone)
        return box_reload(box, e); /* it says what became of the box */
    if (r == 0 && bringup_is_disk_gone(box, NULL) == 1)
        r = err_field(e, ERR_PRECONDITION, "state", "the disk of the box '%s' is gone",
                      box->row.name);
    if (r == 0)
        r = box_provider_check_capture(box, e);
    if (r < 0)
        return r;
    (void)store_list_snapshots(box->ctx->store, drop_killed, box, NULL);
    r = add_snapshot_row(box, name, purpose, &row, &why);
    if (r == 0) {
        r = fill_snapshot(box, purpose, deadline_mono_ms, &row, &why);
        if (r < 0) {
            drop_unfinished_of_box(box, &row);
            (void)store_add_event(box->ctx->store, box->row.id, NULL, "snapshot failed",
                                  why.message, NULL);
        }
    }
    if (r < 0) {
        snapshot_row_done(&row);
        if (e)
            *e = why;
        return r;
    }
    *ret = row;
    return 0;
}

/* ---- using one ---- */

static int check_image(const struct snapshot_row *row, struct err *e)
{
    json_t *stored = json_object_get(row->facts, "spec");
    const char *want = json_string_value(json_object_get(row->facts, "image_hash"));
    _cleanup_free_ char *have = NULL;
    struct spec spec = {0};
    int r = spec_from_json(stored, &spec, e);

    if (r < 0)
        return err_wrap(e, r, "the snapshot '%s'", row->name);
    if (*spec.image_dir && access(spec.image_dir, F_OK) < 0)
        r = err_field(e, ERR_PRECONDITION, "image",
                      "the image '%.100s' of the snapshot '%s' is gone (it was in '%.200s')",
                      spec.image, row->name, spec.image_dir);
    if (r == 0)
        r = image_digest(&spec, &have, e);
    if (r == 0 && !str_eq(have, want ? want : ""))
        r = err_field(e, ERR_PRECONDITION, "image",
                      "the image '%.100s' of the snapshot '%s' was replaced", spec.image,
                      row->name);
    spec_done(&spec);
    return r;
}

static int check_chain(struct bh_ctx *ctx, const struct snapshot_row *row, struct err *e)
{
    int r = 0;

    for (char **l = row->layers; r == 0 && l && *l; l++)
        r = layer_check(ctx, *l, e);
    return r < 0 ? err_wrap(e, r, "the snapshot '%s'", row->name) : 0;
}

int snapshot_find_usable(struct bh_ctx *ctx, const char *name, struct snapshot_row *ret,
                         struct err *e)
{
    struct snapshot_row row = {0};
    int r = store_find_snapshot(ctx->store, name, &row, e);

    if (r == 0)
        r = check_image(&row, e);
    if (r == 0)
        r = check_chain(ctx, &row, e);
    if (r < 0) {
        snapshot_row_done(&row);
        return r;
    }
    *ret = row;
    return 0;
}

/* ---- a box of one ---- */

void snapshot_fill_options(const struct spec *s, struct bh_create_options *o)
{
    const struct {
        const char **option;
        const char *value;
    } texts[] = {{&o->provider, s->provider},   {&o->image, s->image},
                 {&o->runtime, s->runtime},     {&o->agent, s->agent},
                 {&o->dest, s->dest},           {&o->network, s->network},
                 {&o->privilege, s->privilege}, {&o->on_timeout, s->on_timeout},
                 {&o->on_idle, s->on_idle},     {&o->on_gone, s->on_gone}};

    for (size_t i = 0; i < N_ELEMENTS(texts); i++)
        if (!*texts[i].option && *texts[i].value)
            *texts[i].option = texts[i].value;
    o->timeout_ms = o->timeout_ms ? o->timeout_ms : s->timeout_ms;
    o->idle_ms = o->idle_ms ? o->idle_ms : s->idle_ms;
    o->cpu_millis = o->cpu_millis ? o->cpu_millis : s->cpu_millis;
    o->memory_bytes = o->memory_bytes ? o->memory_bytes : s->memory_bytes;
    o->disk_bytes = o->disk_bytes ? o->disk_bytes : s->disk_bytes;
    o->pids = o->pids ? o->pids : s->pids;
    if (!o->agent_port && !str_eq(o->agent, "none"))
        o->agent_port = s->agent_port;
    if (!o->env)
        o->env = (const char *const *)s->env;
    if (!o->labels)
        o->labels = (const char *const *)s->labels;
    if (!o->allow_missing)
        o->allow_missing = (const char *const *)s->allow_missing;
}

static int check_decided(const struct snapshot_row *row, const struct bh_create_options *o,
                         const struct spec *s, struct err *e)
{
    const struct {
        const char *field, *asked, *value;
    } decided[] = {{"provider", o->provider, s->provider},
                   {"image", o->image, s->image},
                   {"dest", o->dest, s->dest}};

    if (o->project || o->repo_url)
        return err_field(e, ERR_INVALID, "from", "from and a project exclude each other");
    for (size_t i = 0; i < N_ELEMENTS(decided); i++)
        if (decided[i].asked && !str_eq(decided[i].asked, decided[i].value))
            return err_field(e, ERR_PRECONDITION, decided[i].field,
                             "%s: the snapshot '%s' has '%.200s', not '%.200s'", decided[i].field,
                             row->name, decided[i].value, decided[i].asked);
    return 0;
}

/* A box that exists may have other values of them. */
static int list_defaults(const struct bh_create_options *o, char ***ret, struct err *e)
{
    const struct {
        const char *field;
        bool is_given;
    } options[] = {{"provider", o->provider},   {"image", o->image},
                   {"runtime", o->runtime},     {"agent", o->agent},
                   {"dest", o->dest},           {"network", o->network},
                   {"privilege", o->privilege}, {"on-timeout", o->on_timeout},
                   {"timeout", o->timeout_ms},  {"cpus", o->cpu_millis},
                   {"memory", o->memory_bytes}, {"disk", o->disk_bytes},
                   {"pids", o->pids},           {"port", o->agent_port},
                   {"env", o->env && *o->env},  {"idle", o->idle_ms},
                   {"on-idle", o->on_idle},     {"on-gone", o->on_gone}};
    int r = 0;

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(options); i++)
        if (!options[i].is_given)
            r = strv_push(ret, options[i].field, e);
    return r;
}

int snapshot_read_options(const struct snapshot_row *row, struct bh_create_options *o,
                          struct snapshot_options *ret, struct err *e)
{
    struct snapshot_options s = {0};
    int r = spec_from_json(json_object_get(row->facts, "spec"), &s.spec, e);

    if (r == 0)
        r = check_decided(row, o, &s.spec, e);
    if (r == 0)
        r = list_defaults(o, &s.defaults, e);
    if (r < 0) {
        snapshot_options_done(&s);
        return r;
    }
    snapshot_fill_options(&s.spec, o);
    o->defaults = (const char *const *)s.defaults;
    if (!o->name && !o->key)
        o->name = row->box_name;
    *ret = s;
    return 0;
}

void snapshot_options_done(struct snapshot_options *s)
{
    spec_done(&s->spec);
    s->defaults = strv_free(s->defaults);
}

/* ---- gc ---- */

static void report_snapshot(const struct snapshot_gc *gc, const char *name, const char *what)
{
    char line[160];

    (void)snprintf(line, sizeof(line), "the snapshot '%.64s' %s %s", name, what,
                   gc->dry_run ? "would be removed" : "was removed");
    if (gc->report)
        gc->report(gc->arg, line);
}

/* Is the command that makes it, or forks with it, still at work? If not, *ret_lock keeps others from
 * the box of one that is not ready. */
static bool is_at_work(struct bh_ctx *ctx, const struct snapshot_row *row, int *ret_lock)
{
    return store_lock_name(ctx->store, row->is_ready ? row->name : row->box_name, clock_mono_ms(),
                           -1, ret_lock, NULL) < 0;
}

/* The maker, and its child that thaws the box, may have died while the box was frozen. What the provider made is
 * removed. */
static void settle_captured_box(struct bh_ctx *ctx, const struct snapshot_row *snapshot)
{
    struct box_row row = {0};
    struct bh_box *box = NULL;

    if (store_get(ctx->store, snapshot->box_id, &row, NULL) < 0 ||
        box_new_take(ctx, &row, &box, NULL) < 0)
        return;
    if (box->row.state == BH_STATE_RUNNING)
        (void)box_provider_thaw(box, clock_mono_ms() + THAW_MS, NULL);
    (void)box_provider_drop_capture(box, snapshot->id, NULL);
    (void)bh_box_free(box);
}

/* Removes the rest of a command that died. One that works has its row before anything else. */
static int sweep_row(void *arg, struct snapshot_row *row)
{
    const struct snapshot_gc *gc = arg;
    _cleanup_close_ int lock = -1;
    int r = 0;

    if ((row->is_ready && !row->is_temporary) || is_at_work(gc->ctx, row, &lock))
        return 0;
    if (!gc->dry_run && !row->is_ready)
        settle_captured_box(gc->ctx, row);
    if (!gc->dry_run)
        r = drop_unfinished(gc->ctx, row, NULL);
    if (r == 0 && row->is_ready) {
        if (!gc->dry_run)
            snapshot_forget_capture(gc->ctx, row);
        store_forget_lock(gc->ctx->store, row->name);
    }
    if (r == 0)
        report_snapshot(gc, row->name, row->is_ready ? "of a fork" : "was not finished, and");
    return r;
}

static bool is_layer_used(void *arg, const char *digest)
{
    const struct snapshot_gc *gc = arg;
    _cleanup_free_ char *user = NULL;
    int r = store_layer_user(gc->ctx->store, digest, false, &user, NULL);

    return r < 0 || user;
}

static bool is_layer_ours(void *arg, const char *digest)
{
    const struct snapshot_gc *gc = arg;

    return store_has_layer(gc->ctx->store, digest, NULL) == 1;
}

static void forget_layer(void *arg, const char *digest)
{
    const struct snapshot_gc *gc = arg;

    (void)store_forget_layer(gc->ctx->store, digest, NULL);
}

static bool has_row(void *arg, const char *id)
{
    const struct snapshot_gc *gc = arg;

    return store_has_snapshot(gc->ctx->store, id, NULL) != 0;
}

static void relay_report(void *arg, const char *line)
{
    const struct snapshot_gc *gc = arg;

    if (gc->report)
        gc->report(gc->arg, line);
}

int snapshot_gc_run(const struct snapshot_gc *gc, struct err *e)
{
    struct snapshot_gc own = *gc;
    const struct layer_gc layers = {.ctx = gc->ctx,
                                    .dry_run = gc->dry_run,
                                    .is_used = is_layer_used,
                                    .is_made = is_layer_ours,
                                    .removed = forget_layer,
                                    .is_making = has_row,
                                    .report = relay_report,
                                    .arg = &own};
    int r = store_list_snapshots(gc->ctx->store, sweep_row, &own, e);

    return r < 0 ? r : layer_gc(&layers, e);
}
