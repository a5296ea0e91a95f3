#pragma once
/*
 * snapshot: the calls bh_snapshot, bh_restore, bh_fork and their kin; and what the creation of a box
 * from a snapshot needs. A snapshot is a row of the store (store_snapshots.h) and a chain of layers
 * (lib/provider/layer_store.h). A command that makes one holds its box's name lock from the row to
 * the end: a row that is not ready and whose lock is free is the rest of a command that died. So is
 * a temporary one whose own name's lock is free: its fork holds that to its end.
 */
#include "bellhop/bellhop.h"
#include "common/err.h"
#include "lib/box/box.h"
#include "lib/box/store_snapshots.h"

enum snapshot_purpose {
    SNAPSHOT_ASKED,
    SNAPSHOT_FORK, /* temporary */
    SNAPSHOT_TIMEOUT,
};

/* With the name lock. name NULL: one is chosen; row->name has it. */
int snapshot_make_locked(struct bh_box *box, const char *name, enum snapshot_purpose purpose,
                         int64_t deadline_mono_ms, struct snapshot_row *ret, struct err *e);
/* ERR_PRECONDITION: a box has it as its disk. */
int snapshot_remove(struct bh_ctx *ctx, const struct snapshot_row *row, struct err *e);
/* Removes what a provider that keeps the disk itself has of it. */
void snapshot_forget_capture(struct bh_ctx *ctx, const struct snapshot_row *row);

/*
 * `up --on-timeout snapshot`, with the name lock: takes the snapshot of a box whose time to live is
 * over, in the place of the one that its last end has left. A failure is a fault of the box's
 * history. False: it can be taken only once the box's processes have ended; the caller ends them and
 * asks again.
 */
bool snapshot_at_timeout(struct bh_box *box, int64_t deadline_mono_ms);
/* A ready snapshot whose layers and image are there and whole. */
int snapshot_find_usable(struct bh_ctx *ctx, const char *name, struct snapshot_row *ret,
                         struct err *e);
/* A text of the options of the snapshot's box: "image". "": there is none. */
const char *snapshot_spec_member(const struct snapshot_row *row, const char *name);
/* The session that the snapshot's coding agent had; null or NULL: none. Borrowed. */
json_t *snapshot_session(const struct snapshot_row *row);
/* The coding agent of the box goes on with that session. */
int snapshot_save_session(struct bh_box *box, const json_t *session, struct err *e);

/* Sets the options that are not given to those of a box; they borrow from its spec. */
void snapshot_fill_options(const struct spec *s, struct bh_create_options *o);
/* The same of the snapshot's box. Refuses those that the snapshot decides. */
struct snapshot_options {
    struct spec spec;
    char **defaults; /* names of the options that were not given */
};
int snapshot_read_options(const struct snapshot_row *row, struct bh_create_options *o,
                          struct snapshot_options *ret, struct err *e);
void snapshot_options_done(struct snapshot_options *s); /* accepts zeroed */

/* Removes what died makers and forks have left, and layers that nobody has. */
struct snapshot_gc {
    struct bh_ctx *ctx;
    bool dry_run;
    void (*report)(void *arg, const char *line);
    void *arg;
};
int snapshot_gc_run(const struct snapshot_gc *gc, struct err *e);
