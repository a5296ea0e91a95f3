#pragma once
/*
 * layer_file: copies one entry's content, owner and attributes from the disk of a box into a layer.
 * Owners are a box's ids there and 0.. in the layer. All names and values are hostile: everything
 * works on descriptors that the caller has opened without following a link.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/buf.h"
#include "common/err.h"

#define LAYER_HEX_BYTES 65          /* a SHA-256 and its NUL */
#define LAYER_KEEP_FREE (64u << 20) /* bytes of the file system that a copy leaves free */

/* The bounds of one copy or one check. */
struct layer_budget {
    int64_t deadline_mono_ms; /* 0: none */
    int cancel_fd;            /* -1: none */
    uint64_t max_copied;      /* 0: no limit */
    uint64_t unchecked;       /* bytes since the last look at the clock and the disk */
    uint64_t copied;          /* bytes that were written: no holes, no clones */
    uint64_t cloned;          /* they count for max_copied */
};
/* Call it for each `bytes` of work; fd: of the file system that is written, or -1. */
int layer_budget_spend(struct layer_budget *b, int fd, uint64_t bytes, struct err *e);

/*
 * The digest of a regular file, and with to >= 0 a copy of its content. Blocks of zeros are neither
 * read from nor made as disk blocks: a file of a terabyte with nothing in it costs nothing.
 * The digest is the SHA-256 of the content; of a file with a 64 KiB block of zeros, it is that of
 * the other blocks and of the places of the blocks of zeros.
 */
int layer_file_digest(int from, int to, struct layer_budget *b, char hex[LAYER_HEX_BYTES],
                      struct err *e);

/* The id in a layer of an id of the disk; an id that is not the box's becomes nobody's. */
uint32_t layer_file_id(uint32_t base, uint32_t id);

/*
 * Appends the attributes that belong to a layer to `out`, as "\tNAME=HEX" sorted by name, and with
 * to >= 0 sets them there: user.*, POSIX ACLs and file capabilities. Those of overlayfs and of
 * security modules are left out. Both descriptors may be of O_PATH: that is all that a FIFO or a
 * socket allows.
 */
int layer_file_attributes(int from, int to, uint32_t base, struct buf *out, struct err *e);
/* The way back: sets on a directory of a disk the attributes of one of a layer. */
int layer_file_attributes_to_disk(int from, int to, uint32_t base, struct err *e);
/* Removes those attributes again, and overlayfs's own. */
int layer_file_clear_attributes(int fd, struct err *e);
