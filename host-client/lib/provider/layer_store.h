#pragma once
/*
 * layer_store: the layers that snapshots are made of, shared by all snapshots and boxes that have
 * them. Read-only, and named by the digest of their manifest (layer_tree.h):
 *   <state_dir>/snapshots/            0700: a box's programs with setuid lie below
 *     lock                            held while a layer is committed or removed
 *     layers/<digest>/tree, manifest
 *     making/<id>/                    not finished; `id` is the snapshot's
 *     gone-<random>/                  on its way out
 * Equal files of one box's snapshots share their blocks (hard links between the layers). The caller
 * knows who uses a layer, and holds the lock from the commit until that is stored.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/provider/layer_tree.h"
#include "lib/util/context.h"

#define LAYER_MAX_CHAIN 32 /* of one box */

struct layer_facts {
    char digest[LAYER_HEX_BYTES];
    uint64_t n_entries; /* 0: nothing but the root, and no layer is needed */
    uint64_t bytes;     /* of the files */
    uint64_t copied;    /* bytes that were written for it */
    uint64_t n_devices; /* left out */
};

struct layer_make {
    const struct bh_ctx *ctx;
    const char *id;
    int from;             /* the disk's upper directory */
    uint32_t base;        /* the host's id of root there */
    uint64_t max_entries; /* 0: LAYER_MAX_ENTRIES */
    /* Bytes that may be written; 0: no limit. What moves ahead of the copy is copied more than
     * once. */
    uint64_t max_copied;
    int64_t deadline_mono_ms;
    /* A file of the caller's: the files of the last layer of the same directory. Written anew. */
    const char *known_path;
    /* Around the moment whose content counts; NULL: nothing writes to the directory. Everything is
     * copied before as well, so that the moment is short. */
    int (*freeze)(void *arg, struct err *e);
    int (*thaw)(void *arg, struct err *e);
    void *arg;
};

/* Makes making/<id>. On failure nothing is left. */
int layer_make(const struct layer_make *m, struct layer_facts *ret, struct err *e);
/* Moves it to its place, with the lock held; a layer that is there already is kept. */
int layer_commit(const struct bh_ctx *ctx, const char *id, const char *digest, struct err *e);
int layer_drop_made(const struct bh_ctx *ctx, const char *id, struct err *e);
/* Is a directory in its place, also a damaged one? */
bool layer_is_there(const struct bh_ctx *ctx, const char *digest);

int layer_lock(const struct bh_ctx *ctx, int64_t deadline_mono_ms, int *ret_fd, struct err *e);

/* ERR_DATA_LOSS unless the manifest has its digest and the tree is there. */
int layer_check(const struct bh_ctx *ctx, const char *digest, struct err *e);
/* The same, and reads every file. The error names the first path that differs. */
int layer_verify(const struct bh_ctx *ctx, const char *digest, int64_t deadline_mono_ms,
                 struct err *e);
char *layer_tree_path(const struct bh_ctx *ctx, const char *digest); /* NULL: no memory */

/* Removes layers that nobody uses. Takes the lock. */
struct layer_gc {
    struct bh_ctx *ctx;
    bool dry_run;
    bool (*is_used)(void *arg, const char *digest); /* in doubt: true */
    /* Did this store make it? The others may be those of a store that was lost: they are reported
     * and kept, as is what is being made for nobody. */
    bool (*is_made)(void *arg, const char *digest);
    void (*removed)(void *arg, const char *digest);
    bool (*is_making)(void *arg, const char *id);
    void (*report)(void *arg, const char *line);
    void *arg;
};
int layer_gc(const struct layer_gc *gc, struct err *e);
