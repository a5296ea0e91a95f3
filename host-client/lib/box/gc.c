/* gc: finishes or removes the leftovers of interrupted commands and dead boxes. Also
 * bh_providers(). */
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/box/box.h"
#include "lib/box/bringup.h"
#include "lib/box/control.h"
#include "lib/util/beneath.h"
#include "lib/box/lifecycle.h"

#define GC_MENTION_STOPPED_MS (7LL * 24 * 3600 * 1000) /* kept, but mentioned */
#define GC_MONITOR_MS 30000
/* For all locks together. A child between fork and exec of a command that was killed a moment
 * ago may still hold its lock. A command at work on a box holds it longer, and gc skips that
 * box. */
#define GC_LOCKS_MS 2000

struct gc {
    struct bh_ctx *ctx;
    void (*fn)(void *arg, const char *line);
    void *arg;
    int64_t locks_deadline_ms;
    int64_t stopped_for_ms; /* boxes that were stopped for so long are removed; -1: none */
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

static void relay_line(void *arg, const char *line)
{
    say(arg, "%s", line);
}

/* ---- boxes of the store ---- */

static int settle_box(struct gc *gc, struct bh_box *box, bool *ret_gone, struct err *e)
{
    enum bh_state before = box->row.state;
    int r = bringup_settle_locked(box, ret_gone, e);

    if (r == 0 && lifecycle_is_transitional(before))
        say(gc, "%s: was interrupted while %s, %s", box->row.name, bh_state_name(before),
            *ret_gone ? "removed" : "stopped");
    return r;
}

/* Starts the monitor of a running box that has none; marks a box that ended unseen. */
static int check_monitor(struct gc *gc, struct bh_box *box, struct err *e)
{
    struct provider_box view;
    struct provider_run run;
    int r;

    if (!box_row_is_live(&box->row) || control_ping(box->ctx, box->row.id, NULL) == 0)
        return 0;
    box_view(box, &view);
    r = box->provider->find(&view, &run, e);
    if (r == 1) {
        say(gc, "%s: its monitor is restarted", box->row.name);
        return control_ensure_monitor(box->ctx, box->row.id, clock_mono_ms() + GC_MONITOR_MS, e);
    }
    if (r < 0)
        return r;
    say(gc, "%s: had ended, marked as stopped", box->row.name);
    return bringup_stop_locked(box, "it ended while it had no monitor", e);
}

/* A stopped box holds somebody's work: only --stopped-for removes it. */
static int drop_stopped(struct gc *gc, struct bh_box *box, struct err *e)
{
    bool is_down = !box_row_is_live(&box->row) && !lifecycle_is_transitional(box->row.state);
    int64_t for_ms = clock_real_ms() - box->row.state_since_ms;
    char text[32];
    int r;

    if (!is_down)
        return 0;
    (void)str_format_duration(for_ms, text, sizeof(text));
    if (gc->stopped_for_ms < 0 || for_ms < gc->stopped_for_ms) {
        if (for_ms >= GC_MENTION_STOPPED_MS)
            say(gc, "%s: stopped for %s, kept (--stopped-for removes such boxes)", box->row.name,
                text);
        return 0;
    }
    r = bringup_destroy_locked(box, e);
    if (r == 0)
        say(gc, "%s: stopped for %s, removed", box->row.name, text);
    return r;
}

static int clean_box(struct gc *gc, struct bh_box *box)
{
    _cleanup_close_ int lock = -1;
    bool is_gone = false;
    struct err e = {0};
    int r;

    r = store_lock_name(gc->ctx->store, box->row.name, gc->locks_deadline_ms, gc->ctx->cancel_fd,
                        &lock, &e);
    if (r == -ERR_DEADLINE)
        return 0; /* another command is at work on it */
    if (r == 0)
        r = box_reload(box, &e);
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r == 0)
        r = settle_box(gc, box, &is_gone, &e);
    if (r == 0 && !is_gone)
        r = check_monitor(gc, box, &e);
    if (r == 0 && !is_gone)
        r = box_reload(box, &e);
    if (r == 0 && !is_gone)
        r = drop_stopped(gc, box, &e);
    if (r == -ERR_CANCELED) {
        if (gc->e)
            *gc->e = e;
        return r;
    }
    if (r < 0)
        say(gc, "%s: %s", box->row.name, e.message);
    return 0;
}

static int clean_row(void *arg, const struct box_row *row)
{
    struct gc *gc = arg;
    struct box_row copy = {0};
    struct bh_box *box = NULL;
    struct err e = {0};
    int r = store_get(gc->ctx->store, row->id, &copy, &e);

    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r == 0)
        r = box_new_take(gc->ctx, &copy, &box, &e);
    if (r < 0) {
        say(gc, "%s: %s", row->name, e.message);
        return 0;
    }
    r = clean_box(gc, box);
    (void)bh_box_free(box);
    return r;
}

/* ---- what the store does not know ---- */

static bool is_known(void *arg, const char *id)
{
    struct gc *gc = arg;
    struct box_row row = {0};
    int r = store_get(gc->ctx->store, id, &row, NULL);

    box_row_done(&row);
    return r != -ERR_NOT_FOUND; /* in doubt, keep it */
}

static void drop_unknown_dirs(struct gc *gc)
{
    _cleanup_free_ char *boxes = path_join(gc->ctx->state_dir, "boxes");
    _cleanup_closedir_ DIR *dir = boxes ? opendir(boxes) : NULL;
    const struct dirent *d;

    while (dir && (d = readdir(dir))) {
        _cleanup_free_ char *path = NULL;
        struct err e = {0};

        if (strlen(d->d_name) != BOX_ID_BYTES - 1 || is_known(gc, d->d_name))
            continue;
        control_kill_monitor(gc->ctx, d->d_name);
        path = path_join(boxes, d->d_name);
        if (path && dirtree_remove(path, &e) == 0)
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

int bh_gc_stopped(struct bh_ctx *ctx, int64_t stopped_for_ms,
                  void (*fn)(void *arg, const char *line), void *arg, struct bh_error *err)
{
    struct err e = {0};
    struct gc gc = {.ctx = ctx,
                    .fn = fn,
                    .arg = arg,
                    .stopped_for_ms = stopped_for_ms,
                    .locks_deadline_ms = clock_mono_ms() + GC_LOCKS_MS,
                    .e = &e};
    const struct provider *p;
    int r = store_list(ctx->store, clean_row, &gc, &e);

    if (r < 0)
        return ctx_fail(err, r, &e);
    for (size_t i = 0; (p = provider_at(i)); i++) {
        r = p->sweep ? p->sweep(ctx, is_known, &gc, relay_line, &gc, &e) : 0;
        if (r < 0)
            say(&gc, "%s: %s", p->name, e.message);
    }
    drop_unknown_dirs(&gc);
    drop_unused_locks(&gc);
    return 0;
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
        int r = p->probe(ctx, "", &facts, &e);

        if (r == -ERR_CANCELED)
            return ctx_fail(err, r, &e);
        info.usable = r == 0 && facts.usable;
        info.runtime = facts.runtime;
        info.why = info.usable ? "" : r < 0 ? e.message : facts.why;
        fn(arg, &info);
    }
    return 0;
}
