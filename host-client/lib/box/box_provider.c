#include "lib/box/box_provider.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "lib/box/history.h"
#include "lib/box/store_snapshots.h"
#include "lib/util/socket.h"

#define FAULT_BYTES 512

/* One call: what the provider sees of the box, with a context of its own. */
struct ask {
    const char *name;
    const struct provider *provider;
    struct bh_ctx *caller;
    struct bh_box *box; /* NULL: the call is about none */
    struct provider_box view;
    struct bh_ctx ctx; /* the caller's, with another cancel descriptor */
    int fd, timer;     /* fd is readable when the caller cancels, and at the deadline */
    int64_t begun_ms;
    bool is_quiet; /* a failure is no event of the box */
};

static void ask_done(struct ask *a)
{
    fd_close(TAKE_FD(a->fd));
    fd_close(TAKE_FD(a->timer));
}
#define _cleanup_ask_ __attribute__((cleanup(ask_done)))

static int open_cancel_at(struct ask *a, int64_t left_ms, struct err *e)
{
    int cancel_fd = a->caller->cancel_fd;
    struct itimerspec at = {
        .it_value = {.tv_sec = left_ms / 1000, .tv_nsec = left_ms % 1000 * 1000000}};
    struct epoll_event readable = {.events = EPOLLIN};

    a->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    a->fd = epoll_create1(EPOLL_CLOEXEC);
    if (a->timer < 0 || a->fd < 0 || timerfd_settime(a->timer, 0, &at, NULL) < 0 ||
        epoll_ctl(a->fd, EPOLL_CTL_ADD, a->timer, &readable) < 0 ||
        (cancel_fd >= 0 && epoll_ctl(a->fd, EPOLL_CTL_ADD, cancel_fd, &readable) < 0))
        return err_sys(e, errno, "wait for the provider until the deadline");
    return 0;
}

static int ask_begin(struct ask *a, struct bh_ctx *ctx, const struct provider *provider,
                     const char *name, int64_t deadline_mono_ms, struct err *e)
{
    int64_t left_ms = deadline_mono_ms - clock_mono_ms();
    int r;

    *a = (struct ask){
        .name = name, .provider = provider, .caller = ctx, .ctx = *ctx, .fd = -1, .timer = -1};
    if (left_ms <= 0)
        return err_set(e, ERR_DEADLINE, "no time is left for the provider's '%s'", name);
    r = open_cancel_at(a, left_ms, e);
    a->ctx.cancel_fd = a->fd;
    a->begun_ms = clock_mono_ms();
    return r;
}

static int ask_begin_box(struct ask *a, struct bh_box *box, const char *name,
                         int64_t deadline_mono_ms, struct err *e)
{
    int r = ask_begin(a, box->ctx, box->provider, name, deadline_mono_ms, e);

    a->box = box;
    box_view(box, &a->view);
    a->view.ctx = &a->ctx;
    a->view.deadline_mono_ms = deadline_mono_ms;
    return r;
}

/* With a store of its own: the call may come from any thread. */
void box_provider_note_fault(struct bh_box *box, const char *name, const char *message)
{
    struct store *s = NULL;
    char cause[FAULT_BYTES];

    if (store_open(box->ctx->state_dir, &s, NULL) < 0)
        return;
    (void)snprintf(cause, sizeof(cause), "%s: %.480s", name, message);
    store_set_actor(s, store_actor(box->ctx->store));
    (void)store_add_fault(s, box->row.id, cause, NULL);
    (void)store_close(s);
}

static int ask_end(struct ask *a, int r, struct err *e, struct err *why)
{
    const char *box_name = a->box ? a->box->row.name : "";

    provider_report(a->provider, a->caller, a->name, box_name, a->begun_ms, r);
    if (r >= 0)
        return r;
    if (r == -ERR_CANCELED && !socket_wait_canceled(a->caller->cancel_fd, 0))
        r = err_set(why, ERR_DEADLINE, "the provider '%s' did not answer in time: %s%s%s",
                    a->provider->name, a->name, *box_name ? " " : "", box_name);
    if (a->box && !a->is_quiet && r != -ERR_CANCELED && r != -ERR_UNIMPLEMENTED)
        box_provider_note_fault(a->box, a->name, why->message);
    if (e)
        *e = *why;
    return r;
}

static int64_t default_deadline(const struct bh_ctx *ctx)
{
    int64_t ms = ctx->provider_timeout_ms;

    return clock_mono_ms() + (ms > 0 ? ms : PROVIDER_MS);
}

/* The monitor's one thread serves nobody while it asks. */
static int64_t look_deadline(const struct bh_ctx *ctx)
{
    int64_t most_ms = default_deadline(ctx), look_ms = clock_mono_ms() + BOX_PROVIDER_LOOK_MS;

    return look_ms < most_ms ? look_ms : most_ms;
}

/* ASK(name, deadline, call): `view`, `why` and `e` are for the call. */
#define ASK(name, deadline, call) \
    _cleanup_ask_ struct ask a; \
    struct provider_box *view = &a.view; \
    struct err why = {0}; \
    int r = ask_begin_box(&a, box, name, deadline, e); \
\
    return r < 0 ? r : ask_end(&a, box->provider->call, e, &why)

/* Of calls that are repeated: a failure is no event. */
#define QUIET_ASK(name, deadline, call) \
    _cleanup_ask_ struct ask a; \
    struct provider_box *view = &a.view; \
    struct err why = {0}; \
    int r = ask_begin_box(&a, box, name, deadline, e); \
\
    a.is_quiet = true; \
    return r < 0 ? r : ask_end(&a, box->provider->call, e, &why)

/* For what makes or starts a box: as long as the caller waits, unless the context says less. */
static int64_t least_deadline(const struct bh_ctx *ctx, int64_t deadline_mono_ms)
{
    int64_t most_ms = default_deadline(ctx);

    return ctx->provider_timeout_ms > 0 && most_ms < deadline_mono_ms ? most_ms : deadline_mono_ms;
}

int box_provider_prepare(struct bh_box *box, const char *user, int64_t deadline_mono_ms,
                         struct err *e)
{
    struct provider_source source = {0};
    _cleanup_ask_ struct ask a;
    struct err why = {0};
    int r = ask_begin_box(&a, box, "prepare", least_deadline(box->ctx, deadline_mono_ms), e);

    if (r < 0)
        return r;
    a.view.user = user;
    if (box->from) {
        source.layers = box->from->layers;
        source.disk = json_object_get(box->from->facts, "disk");
        a.view.source = &source;
    }
    return ask_end(&a, box->provider->prepare(&a.view, &why), e, &why);
}

int box_provider_start(struct bh_box *box, int64_t deadline_mono_ms, struct provider_run *ret,
                       struct err *e)
{
    ASK("start", least_deadline(box->ctx, deadline_mono_ms), start(view, ret, &why));
}

int box_provider_stop(struct bh_box *box, int grace_ms, struct err *e)
{
    ASK("stop", default_deadline(box->ctx) + grace_ms, stop(view, grace_ms, &why));
}

int box_provider_destroy(struct bh_box *box, struct err *e)
{
    ASK("destroy", default_deadline(box->ctx), destroy(view, &why));
}

int box_provider_find(struct bh_box *box, struct provider_run *ret, struct err *e)
{
    ASK("find", default_deadline(box->ctx), find(view, ret, &why));
}

int box_provider_check_freeze(struct bh_box *box, struct err *e)
{
    ASK("check_pause", default_deadline(box->ctx), check_pause(view, PROVIDER_PAUSE_FREEZE, &why));
}

int box_provider_freeze(struct bh_box *box, struct err *e)
{
    ASK("pause", default_deadline(box->ctx), pause(view, PROVIDER_PAUSE_FREEZE, &why));
}

int box_provider_thaw(struct bh_box *box, int64_t deadline_mono_ms, struct err *e)
{
    int64_t most_ms = default_deadline(box->ctx);

    ASK("resume", deadline_mono_ms < most_ms ? deadline_mono_ms : most_ms, resume(view, &why));
}

int box_provider_check_capture(struct bh_box *box, struct err *e)
{
    ASK("check_capture", default_deadline(box->ctx), check_capture(view, &why));
}

int box_provider_capture(struct bh_box *box, struct provider_capture *c, struct err *e)
{
    ASK("capture", least_deadline(box->ctx, c->deadline_mono_ms), capture(view, c, &why));
}

int box_provider_restore(struct bh_box *box, const struct provider_source *source,
                         int64_t deadline_mono_ms, struct err *e)
{
    ASK("restore", least_deadline(box->ctx, deadline_mono_ms), restore(view, source, &why));
}

int box_provider_has_restored(struct bh_box *box, const char *tag, struct err *e)
{
    ASK("has_restored", default_deadline(box->ctx), has_restored(view, tag, &why));
}

int box_provider_dial(struct bh_box *box, int64_t deadline_mono_ms, int *ret_fd, struct err *e)
{
    QUIET_ASK("dial", deadline_mono_ms, dial(view, ret_fd, &why));
}

int box_provider_watch(struct bh_box *box, int *ret_fd, struct err *e)
{
    QUIET_ASK("watch", look_deadline(box->ctx), watch(view, ret_fd, &why));
}

int box_provider_look(struct bh_box *box, struct provider_run *ret, struct err *e)
{
    QUIET_ASK("find", look_deadline(box->ctx), find(view, ret, &why));
}

int box_provider_has_disk(struct bh_box *box, struct err *e)
{
    if (!box->provider->has_disk)
        return 1;
    ASK("has_disk", default_deadline(box->ctx), has_disk(view, &why));
}

int box_provider_look_disk(struct bh_box *box, struct err *e)
{
    if (!box->provider->has_disk)
        return 1;
    QUIET_ASK("has_disk", look_deadline(box->ctx), has_disk(view, &why));
}

int box_provider_drop_capture(struct bh_box *box, const char *id, struct err *e)
{
    if (!box->provider->drop_capture)
        return 0;
    QUIET_ASK("drop_capture", default_deadline(box->ctx), drop_capture(view, id, &why));
}

int box_provider_exit_status(struct bh_box *box, const struct provider_run *run, int *ret_status,
                             bool *ret_is_oom, struct err *e)
{
    QUIET_ASK("exit_status", look_deadline(box->ctx),
              exit_status(view, run, ret_status, ret_is_oom, &why));
}

void box_provider_end_reason(struct bh_box *box, char *out, size_t size)
{
    _cleanup_ask_ struct ask a = {.fd = -1, .timer = -1};

    *out = '\0';
    if (!box->provider->end_reason ||
        ask_begin_box(&a, box, "end_reason", look_deadline(box->ctx), NULL) < 0)
        return;
    box->provider->end_reason(&a.view, out, size);
    (void)ask_end(&a, 0, NULL, NULL);
}

int box_provider_inspect(struct bh_box *box, json_t **ret, struct err *e)
{
    ASK("inspect", default_deadline(box->ctx), inspect(view, ret, &why));
}

int box_provider_check(const struct provider *p, struct bh_ctx *ctx, struct spec *spec,
                       int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_ask_ struct ask a;
    struct err why = {0};
    int r = ask_begin(&a, ctx, p, "check", least_deadline(ctx, deadline_mono_ms), e);

    return r < 0 ? r : ask_end(&a, provider_check(p, &a.ctx, spec, &why), e, &why);
}

int box_provider_probe(const struct provider *p, struct bh_ctx *ctx, struct provider_facts *ret,
                       struct err *e)
{
    _cleanup_ask_ struct ask a;
    struct err why = {0};
    int r = ask_begin(&a, ctx, p, "probe", default_deadline(ctx), e);

    return r < 0 ? r : ask_end(&a, p->probe(&a.ctx, "", ret, &why), e, &why);
}

int box_provider_sweep(const struct provider *p, struct bh_ctx *ctx,
                       const struct box_provider_sweep *s, struct err *e)
{
    _cleanup_ask_ struct ask a;
    struct err why = {0};
    int r = ask_begin(&a, ctx, p, "sweep", default_deadline(ctx), e);

    if (r < 0)
        return r;
    return ask_end(&a, p->sweep(&a.ctx, s->is_kept, s->arg, s->report, s->arg, &why), e, &why);
}
