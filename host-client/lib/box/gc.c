/* gc: finishes or removes the leftovers of interrupted commands and dead boxes. Also
 * bh_providers(). */
#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/box/box.h"
#include "lib/box/box_provider.h"
#include "lib/box/bringup.h"
#include "lib/box/control.h"
#include "lib/box/gc.h"
#include "lib/box/gc_foreign.h"
#include "lib/box/history.h"
#include "lib/box/remote.h"
#include "lib/util/beneath.h"
#include "lib/box/lifecycle.h"
#include "lib/box/restore.h"
#include "lib/box/snapshot.h"
#include "lib/recipe/agent_layer.h"

#define GC_MENTION_STOPPED_MS (7LL * 24 * 3600 * 1000) /* kept, but mentioned */
#define GC_MONITOR_MS 30000
/* For all locks together. A child between fork and exec of a command that was killed a moment
 * ago may still hold its lock. A command at work on a box holds it longer, and gc skips that
 * box. */
#define GC_LOCKS_MS 2000

/* Another gc leaves a claimed box alone for so long: the time to remove a batch of them. */
#define GC_CLAIM_MS (5 * 60 * 1000)
#define GC_BATCH 50
#define MEASURE_MAX_ENTRIES 100000

struct gc {
    struct bh_ctx *ctx;
    void (*fn)(void *arg, const char *line);
    void *arg;
    int64_t locks_deadline_ms;
    int64_t stopped_for_ms; /* boxes that were stopped for so long are removed; -1: none */
    bool dry_run;
    int failed; /* the first error: something could not be tidied, or is not in the store */
    struct err why;
    json_t *told;                   /* the ids of boxes that are gone, once reported */
    const struct provider *sweeper; /* whose sweep() is at work */
    struct err *e;
};

__attribute__((format(printf, 2, 3))) static void say(struct gc *gc, const char *fmt, ...)
{
    char line[512];
    va_list ap;

    if (!gc->fn)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    gc->fn(gc->arg, line);
}

/* Says what could not be done. The rest goes on; the first failure is the result. */
static void note_failure(struct gc *gc, const char *name, int r, const struct err *e)
{
    say(gc, "%s: %s", name, e->message);
    if (gc->failed)
        return;
    gc->failed = r;
    gc->why = *e;
}

static void relay_line(void *arg, const char *line)
{
    say(arg, "%s", line);
}

/* ---- boxes of the store ---- */

static int settle_box(struct gc *gc, struct bh_box *box, bool *ret_gone, struct err *e)
{
    enum bh_state before = box->row.state;
    int r;

    if (restore_is_pending(box))
        say(gc, "%s: a restore was interrupted%s", box->row.name,
            gc->dry_run ? ", would be settled" : "");

    if (gc->dry_run && lifecycle_is_transitional(before))
        say(gc, "%s: was interrupted while %s, would be %s", box->row.name, bh_state_name(before),
            before == BH_STATE_DESTROYING || !box->row.made ? "removed" : "stopped");
    if (gc->dry_run)
        return 0;
    r = bringup_settle_locked(box, ret_gone, e);
    if (r == 0 && lifecycle_is_transitional(before))
        say(gc, "%s: was interrupted while %s, %s", box->row.name, bh_state_name(before),
            *ret_gone ? "removed" : "stopped");
    return r;
}

/* Starts the monitor of a running box that has none; marks a box that ended unseen. */
static int check_monitor(struct gc *gc, struct bh_box *box, struct err *e)
{
    struct provider_run run;
    int r;

    if (!box_row_is_live(&box->row) || control_ping(box->ctx, box->row.id, NULL) == 0)
        return 0;
    r = box_provider_find(box, &run, e);
    if (r < 0)
        return r;
    if (gc->dry_run)
        say(gc,
            r == 1 ? "%s: its monitor would be restarted"
                   : "%s: had ended, would be marked as stopped",
            box->row.name);
    if (gc->dry_run)
        return 0;
    if (r == 1) {
        say(gc, "%s: its monitor is restarted", box->row.name);
        return control_ensure_monitor(box->ctx, box->row.id, clock_mono_ms() + GC_MONITOR_MS, e);
    }
    r = bringup_stop_locked(box, "it ended while it had no monitor", e);
    if (r == 0)
        say(gc, "%s: had ended, marked as stopped", box->row.name);
    return r;
}

static bool is_down(const struct box_row *row)
{
    return !box_row_is_live(row) && !lifecycle_is_transitional(row->state) &&
           row->state != BH_STATE_PAUSED;
}

static int64_t down_for_ms(struct gc *gc, const struct box_row *row)
{
    return store_now_ms(gc->ctx->store) - row->state_since_ms;
}

static bool is_due(struct gc *gc, const struct box_row *row)
{
    return gc->stopped_for_ms >= 0 && is_down(row) && down_for_ms(gc, row) >= gc->stopped_for_ms;
}

/* A stopped box holds somebody's work: only --stopped-for removes it. */
static void mention_stopped(struct gc *gc, const struct box_row *row)
{
    char text[32];

    if (!is_down(row) || (down_for_ms(gc, row) < GC_MENTION_STOPPED_MS && !is_due(gc, row)))
        return;
    (void)str_format_duration(down_for_ms(gc, row), text, sizeof(text));
    if (!is_due(gc, row))
        say(gc, "%s: stopped for %s, kept (--stopped-for removes such boxes)", row->name, text);
    else if (gc->dry_run)
        say(gc, "%s: stopped for %s, would be removed", row->name, text);
}

static int tidy_box(struct gc *gc, struct bh_box *box, struct err *e)
{
    bool is_gone = false;
    int r = settle_box(gc, box, &is_gone, e);

    if (r == 0 && !is_gone && !box->url)
        r = check_monitor(gc, box, e);
    if (r == 0 && !is_gone)
        r = box_reload(box, e);
    if (r == 0 && !is_gone)
        mention_stopped(gc, &box->row);
    return r;
}

static int drop_box(struct gc *gc, struct bh_box *box, struct err *e)
{
    char text[32], cause[64];
    int r;

    if (!is_due(gc, &box->row)) /* a command has started it meanwhile */
        return 0;
    (void)str_format_duration(down_for_ms(gc, &box->row), text, sizeof(text));
    (void)snprintf(cause, sizeof(cause), "it was stopped for %s", text);
    r = bringup_destroy_locked(box, cause, e);
    if (r == 0)
        say(gc, "%s: stopped for %s, removed", box->row.name, text);
    return r;
}

/* Calls fn with the box's name lock. Reports an error; returns only the cancel. */
static int with_box(struct gc *gc, struct box_row *row,
                    int (*fn)(struct gc *gc, struct bh_box *box, struct err *e))
{
    _cleanup_close_ int lock = -1;
    struct bh_box *box = NULL;
    struct err e = {0};
    char name[64];
    int r;

    (void)snprintf(name, sizeof(name), "%s", row->name);
    r = box_new_take(gc->ctx, row, &box, &e);
    if (r == 0)
        r = store_lock_name(gc->ctx->store, name, gc->locks_deadline_ms, gc->ctx->cancel_fd, &lock,
                            &e);
    if (r == 0)
        r = box_reload(box, &e);
    if (r == 0)
        r = fn(gc, box, &e);
    else if (lock < 0 ? r == -ERR_DEADLINE : r == -ERR_NOT_FOUND)
        r = 0; /* another command is at work on it, or has removed it */
    (void)bh_box_free(box);
    if (r == -ERR_CANCELED) {
        if (gc->e)
            *gc->e = e;
        return r;
    }
    if (r < 0)
        note_failure(gc, name, r, &e);
    return 0;
}

static int clean_row(void *arg, struct box_row *row)
{
    /* One that was set aside (recreate.h) has its name again once the other one is settled. */
    return spec_is_name(row->name) ? with_box(arg, row, tidy_box) : 0;
}

int gc_take_over(struct bh_ctx *ctx, void (*fn)(void *arg, const char *line), void *arg,
                 struct err *e)
{
    struct gc gc = {.ctx = ctx,
                    .fn = fn,
                    .arg = arg,
                    .stopped_for_ms = -1,
                    .locks_deadline_ms = clock_mono_ms() + GC_LOCKS_MS,
                    .e = e};
    int r = store_list(ctx->store, clean_row, &gc, e);

    if (r == 0 && gc.failed) {
        *e = gc.why;
        r = gc.failed;
    }
    return r;
}

/* Several at once share the work: each claims a batch at a time. A box whose removal failed stays
 * claimed, so that the loop ends, and is tried again next time. */
static int drop_stopped_boxes(struct gc *gc, struct err *e)
{
    struct store *s = gc->ctx->store;
    char ids[GC_BATCH][BOX_ID_BYTES];
    char random[33], holder[STORE_HOLDER_BYTES];
    size_t n = GC_BATCH;
    int r = gc->stopped_for_ms < 0 || gc->dry_run ? 1 : io_random_hex(16, random, e);

    if (r != 0)
        return r < 0 ? r : 0;
    store_make_holder(holder, random);
    while (r == 0 && n == GC_BATCH) {
        const struct store_claim claim = {.holder = holder,
                                          .before_ms = store_now_ms(s) - gc->stopped_for_ms,
                                          .claim_ms = GC_CLAIM_MS,
                                          .max = GC_BATCH};

        n = 0;
        r = store_claim_stopped(s, &claim, ids, &n, e);
        for (size_t i = 0; r == 0 && i < n; i++) {
            struct box_row row = {0};

            if (store_get(s, ids[i], &row, NULL) == 0 && spec_is_name(row.name))
                r = with_box(gc, &row, drop_box);
        }
    }
    store_release_claims(s, holder);
    return r;
}

/* ---- what has no row ---- */

enum whose {
    WHOSE_BOX,      /* of a box of the store; or the store does not answer */
    WHOSE_DISK,     /* of a disk that is back */
    WHOSE_ENGINE,   /* of a box whose disk was gone from an engine, where it may be back */
    WHOSE_LEFTOVER, /* of a box whose record says that it was destroyed */
    WHOSE_STRANGER, /* the store may have been lost: all work of its boxes is here */
};

/* A disk that was not there when its box was destroyed is somebody's work. A provider that answers for its disks keeps
 * them elsewhere, and the directory is a leftover. */
static enum whose whose_of_record(const struct record_row *record, const struct provider **ret)
{
    const char *name = json_string_value(json_object_get(record->spec, "provider"));
    const struct provider *p = name ? provider_find(name) : NULL;

    *ret = p;
    if (!str_eq(record->cause, BRINGUP_DISK_GONE))
        return WHOSE_LEFTOVER;
    return p && p->has_disk ? WHOSE_ENGINE : WHOSE_DISK;
}

/* The row comes before everything else of a box, and one transaction makes it a record: what has
 * neither was never made by this store, or its record is forgotten. */
static enum whose find_owner(struct gc *gc, const char *id, const struct provider **ret)
{
    struct record_row record = {0};
    struct box_row row = {0};
    enum whose whose = WHOSE_BOX;
    int r = store_get(gc->ctx->store, id, &row, NULL);

    box_row_done(&row);
    if (r != -ERR_NOT_FOUND)
        return WHOSE_BOX;
    r = store_find_record(gc->ctx->store, "id", id, &record, NULL);
    if (r == 0)
        whose = whose_of_record(&record, ret);
    else if (r == -ERR_NOT_FOUND)
        whose = WHOSE_STRANGER;
    record_row_done(&record);
    return whose;
}

/* Several objects, and a directory, may be of one box. */
static bool is_told_first(struct gc *gc, const char *id)
{
    bool is_first = !json_object_get(gc->told, id);

    (void)json_object_set_new(gc->told, id, json_true());
    return is_first;
}

static void tell_leftover(struct gc *gc, const char *id, enum whose whose)
{
    if (is_told_first(gc, id) || whose == WHOSE_ENGINE) /* its disk was told of */
        say(gc, "what is left of a box that is gone would be removed: %.32s", id);
}

/* For the sweeps of providers. */
static bool is_kept(void *arg, const char *id, bool has_disk)
{
    struct gc *gc = arg;
    const struct provider *p = NULL;
    enum whose whose = find_owner(gc, id, &p);

    if (whose == WHOSE_ENGINE && p == gc->sweeper && !has_disk)
        whose = WHOSE_LEFTOVER;
    if (whose == WHOSE_ENGINE && p != gc->sweeper) /* it saw no disk, but the directory */
        return true;
    if (whose == WHOSE_ENGINE && is_told_first(gc, id))
        say(gc,
            "the disk of a box that is gone is back, and is kept: 'bellhop-%.32s' in its engine",
            id);
    if (whose != WHOSE_LEFTOVER)
        return true;
    if (gc->dry_run)
        tell_leftover(gc, id, whose);
    return gc->dry_run;
}

/* A store that knows the box had its snapshots, too: their rows come first and go last. */
static bool is_snapshot_lost(void *arg, const char *box, const char *snapshot)
{
    struct gc *gc = arg;
    const struct provider *p = NULL;

    return find_owner(gc, box, &p) != WHOSE_STRANGER &&
           store_has_snapshot(gc->ctx->store, snapshot, NULL) == 0;
}

/* The processes of one are reported by gc_report_foreign(). */
static void report_stranger(struct gc *gc, const char *path)
{
    uint64_t bytes = 0;
    bool is_whole = dirtree_measure(path, MEASURE_MAX_ENTRIES, &bytes);

    if (access(path, F_OK) == 0) /* its record may have been forgotten together with it */
        say(gc,
            "not ours, kept: '%.300s' is of a box that the store does not know, its disk has "
            "%s%" PRIu64 " bytes; remove it with rm -r, or put its store back",
            path, is_whole ? "" : "more than ", bytes);
}

static void drop_leftover_dirs(struct gc *gc)
{
    _cleanup_free_ char *boxes = path_join(gc->ctx->state_dir, "boxes");
    _cleanup_closedir_ DIR *dir = boxes ? opendir(boxes) : NULL;
    const struct dirent *d;

    while (dir && (d = readdir(dir))) {
        _cleanup_free_ char *path = NULL;
        const struct provider *p = NULL;
        struct err e = {0};
        enum whose whose;

        if (!ctx_is_box_id(d->d_name)) {
            if (d->d_name[0] != '.')
                say(gc, "not ours, kept: '%s/%s' is not the directory of a box", boxes, d->d_name);
            continue;
        }
        path = path_join(boxes, d->d_name);
        whose = path ? find_owner(gc, d->d_name, &p) : WHOSE_BOX;
        if (whose == WHOSE_DISK)
            say(gc, "the disk of a box that is gone is back, and is kept: %s", path);
        if (whose == WHOSE_STRANGER)
            report_stranger(gc, path);
        if (whose != WHOSE_LEFTOVER && whose != WHOSE_ENGINE)
            continue;
        if (gc->dry_run) {
            tell_leftover(gc, d->d_name, whose);
            continue;
        }
        control_kill_monitor(gc->ctx, d->d_name);
        if (dirtree_remove(path, &e) == 0)
            say(gc, "removed the directory of a box that is gone: %s", d->d_name);
        else
            say(gc, "the directory of a box that is gone: %s", e.message);
    }
}

/* Removes locks without a box. gc holds the lock, so nobody is about to make that box. */
static void drop_unused_locks(struct gc *gc)
{
    _cleanup_free_ char *locks = path_join(gc->ctx->state_dir, "locks");
    _cleanup_closedir_ DIR *dir = locks ? opendir(locks) : NULL;
    const struct dirent *d;

    while (dir && (d = readdir(dir))) {
        _cleanup_close_ int lock = -1;
        struct box_row row = {0};

        if (!spec_is_name(d->d_name) ||
            store_lock_name(gc->ctx->store, d->d_name, clock_mono_ms(), -1, &lock, NULL) < 0)
            continue;
        if (store_find(gc->ctx->store, d->d_name, &row, NULL) == -ERR_NOT_FOUND)
            store_forget_lock(gc->ctx->store, d->d_name);
        box_row_done(&row);
    }
}

static int drop_old_records(struct gc *gc, int64_t keep_ms, struct err *e)
{
    int64_t n = 0;
    int r = store_prune_records(gc->ctx->store, keep_ms, gc->dry_run, &n, e);

    if (r == 0 && n)
        say(gc, "%" PRId64 " old record%s %s", n, n == 1 ? "" : "s",
            gc->dry_run ? "would be forgotten" : "forgotten");
    return r;
}

static int run_gc(struct gc *gc, int64_t records_for_ms, struct err *e)
{
    const struct provider *p;
    bool has_boxes;
    int r = store_list(gc->ctx->store, clean_row, gc, e);

    if (r == 0)
        r = drop_stopped_boxes(gc, e);
    if (r < 0)
        return r;
    for (size_t i = 0; (p = provider_at(i)); i++) {
        const struct box_provider_sweep sweep = {
            .is_kept = is_kept, .report = relay_line, .arg = gc};

        gc->sweeper = p;
        /* An engine that had no box of this store has nothing to remove, and need not be there. */
        has_boxes = !p->has_disk || store_knows_provider(gc->ctx->store, p->name, NULL) != 0;
        r = p->sweep && has_boxes ? box_provider_sweep(p, gc->ctx, &sweep, e) : 0;
        if (r < 0)
            note_failure(gc, p->name, r, e);
        if (!gc->dry_run && p->forget_rest)
            p->forget_rest(gc->ctx, &(struct provider_lost){is_snapshot_lost, relay_line, gc});
    }
    drop_leftover_dirs(gc);
    r = gc_report_foreign(&(struct gc_foreign){.ctx = gc->ctx, .report = relay_line, .arg = gc}, e);
    if (r < 0)
        return r;
    agent_layer_gc(&(struct agent_layer_gc){.ctx = gc->ctx,
                                            .layer_file = PROVIDER_LAYER_FILE,
                                            .dry_run = gc->dry_run,
                                            .report = relay_line,
                                            .arg = gc});
    r = snapshot_gc_run(
        &(struct snapshot_gc){
            .ctx = gc->ctx, .dry_run = gc->dry_run, .report = relay_line, .arg = gc},
        e);
    if (r < 0)
        note_failure(gc, "snapshots", r, e);
    if (!gc->dry_run)
        drop_unused_locks(gc);
    r = drop_old_records(gc, records_for_ms, e);
    if (!gc->dry_run)
        store_forget_log(gc->ctx->store);
    if (r == 0 && gc->failed) {
        *e = gc->why;
        return gc->failed;
    }
    return r;
}

int bh_gc_run(struct bh_ctx *ctx, const struct bh_gc_options *opts,
              void (*fn)(void *arg, const char *line), void *arg, struct bh_error *err)
{
    _cleanup_json_ json_t *told = json_object();
    _cleanup_free_ char *actor = NULL;
    struct bh_gc_options o;
    struct err e = {0};
    struct gc gc = {.ctx = ctx, .fn = fn, .arg = arg, .told = told, .e = &e};
    int r = remote_leave(ctx, "gc", &e);

    if (r == 0)
        r = options_copy(&o, sizeof(o), opts, &e);
    if (r == 0 && (!told || !(actor = strdup(store_actor(ctx->store)))))
        r = err_oom(&e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    gc.stopped_for_ms = o.stopped_for_ms > 1 ? o.stopped_for_ms : o.stopped_for_ms == 1 ? 0 : -1;
    gc.dry_run = o.dry_run;
    gc.locks_deadline_ms = clock_mono_ms() + GC_LOCKS_MS;
    store_set_actor(ctx->store, "janitor");
    r = run_gc(&gc,
               o.records_for_ms > 1    ? o.records_for_ms
               : o.records_for_ms == 1 ? 0
                                       : store_records_for(ctx->store),
               &e);
    store_set_actor(ctx->store, actor);
    return ctx_fail(err, r, &e);
}

int bh_gc_stopped(struct bh_ctx *ctx, int64_t stopped_for_ms,
                  void (*fn)(void *arg, const char *line), void *arg, struct bh_error *err)
{
    struct bh_gc_options o = {.size = sizeof(o),
                              .stopped_for_ms = stopped_for_ms < 0    ? 0
                                                : stopped_for_ms == 0 ? 1
                                                                      : stopped_for_ms};

    return bh_gc_run(ctx, &o, fn, arg, err);
}

int bh_gc(struct bh_ctx *ctx, void (*fn)(void *arg, const char *line), void *arg,
          struct bh_error *err)
{
    return bh_gc_stopped(ctx, -1, fn, arg, err);
}

/* ---- providers ---- */

int bh_providers(struct bh_ctx *ctx, void (*fn)(void *arg, const struct bh_provider_info *info),
                 void *arg, struct bh_error *err)
{
    const struct provider *p;

    (void)err;
    for (size_t i = 0; (p = provider_at(i)); i++) {
        struct provider_facts facts = {0};
        struct err e = {0};
        struct bh_provider_info info = {.name = p->name, .summary = p->summary};
        int r = box_provider_probe(p, ctx, &facts, &e);

        if (r == -ERR_CANCELED)
            return ctx_fail(err, r, &e);
        info.usable = r == 0 && facts.usable;
        info.runtime = facts.runtime;
        info.engine = facts.found;
        info.why = info.usable ? "" : r < 0 ? e.message : facts.why;
        fn(arg, &info);
    }
    return 0;
}
