#pragma once
/*
 * layer_tree: walks the writable layer of a box's disk (overlayfs's upper directory) or a layer that
 * was made of one, tells each entry as a line of a manifest, and copies it on the way.
 *
 * The manifest is canonical: equal trees have equal bytes. After a first line with the format's
 * name, each entry is one line; the entries of a directory follow each other, sorted by name, and
 * its subdirectories come after them in the same order. Fields, separated by tabs:
 *   type mode uid gid mtime size digest path target NAME=HEX...
 * type: d directory, o opaque directory (it hides what is below), f file, l link, h another name of
 * an earlier file, w whiteout (it hides a name below), p FIFO, s socket. Devices are left out.
 * A byte up to blank, DEL and '\' are written as \xHH; an empty field is "-".
 *
 * Everything in the tree is hostile, and may change while it is walked: entries are opened by
 * descriptor, no link is followed, and nothing recurses.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/provider/layer_file.h"

#define LAYER_FORMAT "bellhop-layer 1"
#define LAYER_MAX_ENTRIES 1000000
#define LAYER_MAX_PATH_BYTES 4095
#define LAYER_CLOCK_STEP_NS 100000000LL /* kernels before 6.13 stamp files with the last tick */

/*
 * Files of an earlier copy, by inode. A file that has the same inode and the same change time as it
 * had then, and had not been changed since the disk was synced before that copy, still has the same
 * content and attributes. (A file that is mapped can change without a new change time, until the
 * page has been written back.)
 */
struct layer_known;
struct layer_known *layer_known_new(void); /* NULL: out of memory */
struct layer_known *layer_known_free(struct layer_known *k);
/* As text, a line for each file. */
int layer_known_save(const struct layer_known *k, int dirfd, const char *name, struct err *e);
int layer_known_load(struct layer_known *k, int dirfd, const char *name, struct err *e);
void layer_known_set_synced(struct layer_known *k, int64_t real_ns);  /* time before the sync */
void layer_known_set_layer(struct layer_known *k, const char *layer); /* the copy, as a digest */
const char *layer_known_layer(const struct layer_known *k);

struct layer_walk {
    int from;
    int to;         /* -1: nothing is copied */
    bool is_update; /* `to` has the earlier copy, known_tree too; else it is empty */
    uint32_t base;
    uint64_t max_entries; /* 0: LAYER_MAX_ENTRIES */
    bool is_live;         /* leaves out entries that vanish or change on the way */
    struct layer_budget budget;
    const struct layer_known *known; /* of the earlier copy `known_tree`, or NULL */
    int known_tree;
    struct layer_known *learnt; /* gets the files of this copy; or NULL */
    /* Gets each line with its line feed, and the path of its entry. */
    int (*line)(void *arg, const char *line, size_t len, const char *path, struct err *e);
    void *arg;
    /* Results. */
    uint64_t n_entries;
    uint64_t bytes;     /* of the files, as they say */
    uint64_t n_devices; /* left out */
};

int layer_walk_run(struct layer_walk *w, struct err *e);

/* Appends text with a blank, a control or a '\' as \xHH. */
int layer_put_text(struct buf *out, const char *s, struct err *e);
void layer_read_text(char *s); /* undoes it, in place */
