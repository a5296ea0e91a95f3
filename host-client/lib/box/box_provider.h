#pragma once
/*
 * box_provider: every call of a box's provider. Each has a deadline: a provider waits for the
 * context's cancel descriptor, which is readable at the deadline, too. Each is a line of the debug
 * log, and one that fails is an event of the box, "fault"; a cancel by the caller and a refusal
 * (ERR_UNIMPLEMENTED) are no faults.
 *
 * A call's deadline is provider_timeout_ms of the context (0: PROVIDER_MS) from now on, or the
 * caller's if that is earlier. Making and starting a box may take as long as the caller waits, unless
 * provider_timeout_ms is set. All functions are thread-safe; results are those of the provider (lib/provider/provider.h).
 */
#include "lib/box/box.h"

#define BOX_PROVIDER_LOOK_MS 3000

int box_provider_prepare(struct bh_box *box, const char *user, int64_t deadline_mono_ms,
                         struct err *e);
int box_provider_start(struct bh_box *box, int64_t deadline_mono_ms, struct provider_run *ret,
                       struct err *e);
int box_provider_stop(struct bh_box *box, int grace_ms, struct err *e);
int box_provider_destroy(struct bh_box *box, struct err *e);
int box_provider_find(struct bh_box *box, struct provider_run *ret, struct err *e);
int box_provider_check_freeze(struct bh_box *box, struct err *e);
int box_provider_freeze(struct bh_box *box, struct err *e);
int box_provider_thaw(struct bh_box *box, int64_t deadline_mono_ms, struct err *e);
int box_provider_check_capture(struct bh_box *box, struct err *e);
int box_provider_capture(struct bh_box *box, struct provider_capture *c, struct err *e);
/* The box does not run. */
int box_provider_restore(struct bh_box *box, const struct provider_source *source,
                         int64_t deadline_mono_ms, struct err *e);
/* Afterwards, also if that failed or died: 1: the box has the disk of source->tag; 0: the old one. */
int box_provider_has_restored(struct bh_box *box, const char *tag, struct err *e);
/* Of a box whose directory is there. 1, 0 or an error. */
int box_provider_has_disk(struct bh_box *box, struct err *e);
int box_provider_drop_capture(struct bh_box *box, const char *id, struct err *e);
/* With PROVIDER_EXIT_ASKED. */
int box_provider_exit_status(struct bh_box *box, const struct provider_run *run, int *ret_status,
                             bool *ret_is_oom, struct err *e);
/* Why the run has ended, in the words of the provider; "": it has none, or tells none within BOX_PROVIDER_LOOK_MS. */
void box_provider_end_reason(struct bh_box *box, char *out, size_t size);
int box_provider_inspect(struct bh_box *box, json_t **ret, struct err *e);
int box_provider_dial(struct bh_box *box, int64_t deadline_mono_ms, int *ret_fd, struct err *e);
/* find(), watch() and has_disk() for the monitor: a failure is no event of the box, since the monitor asks again or does
 * without. They take BOX_PROVIDER_LOOK_MS at most. */
int box_provider_look_disk(struct bh_box *box, struct err *e);
int box_provider_watch(struct bh_box *box, int *ret_fd, struct err *e);
int box_provider_look(struct bh_box *box, struct provider_run *ret, struct err *e);
void box_provider_note_fault(struct bh_box *box, const char *name, const char *message);

/* ---- without a box ---- */

int box_provider_check(const struct provider *p, struct bh_ctx *ctx, struct spec *spec,
                       int64_t deadline_mono_ms, struct err *e);
int box_provider_probe(const struct provider *p, struct bh_ctx *ctx, struct provider_facts *ret,
                       struct err *e);
struct box_provider_sweep {
    bool (*is_kept)(void *arg, const char *id, bool has_disk);
    void (*report)(void *arg, const char *line);
    void *arg;
};
int box_provider_sweep(const struct provider *p, struct bh_ctx *ctx,
                       const struct box_provider_sweep *s, struct err *e);
