#pragma once
/*
 * agent_layer: the npm packages of a coding agent, unpacked once on this machine into a directory
 * that all boxes share and none can write to:
 *   <cache_dir>/agents/<key>/tree/            the packages, as ${install} has them
 *                            manifest.json    size and sha256 of each file
 *                            users/<box id>   a link to the directory of a box that has it
 *                      <key>.lock, <key>.tmp/ unfinished, or on its way out
 * The key has the recipe's name and version, the processor, and a hash of the digest of the content.
 * A layer is made of archives that the npm cache has already; nothing here uses the network. Only the
 * recipe's own version can have one, and no recipe with commands of its own. Any process may
 * call these functions at the same time: the lock file is held over each change.
 */
#include <stdbool.h>

#include "common/err.h"
#include "lib/util/context.h"

struct agent_layer_request {
    struct bh_ctx *ctx;
    const char *agent; /* as in bootstrap_request */
    const char *box_id;
    const char *box_dir;
};

struct agent_layer {
    char *tree;  /* NULL: there is none for this agent */
    char *label; /* "opencode-1.18.33" */
    int lock;    /* gc leaves the layer alone until it is closed; -1: none */
};

/* Finds the layer, or makes it if its archive is in the cache, and enters the box as its user. A
 * file that is missing or has another size than it should: the layer is made again. */
int agent_layer_take(const struct agent_layer_request *req, struct agent_layer *ret, struct err *e);
void agent_layer_done(struct agent_layer *l);

/* Removes layers that no box has, and unfinished ones. `layer_file`: the name of the file in a
 * box's directory that names its layer. */
struct agent_layer_gc {
    struct bh_ctx *ctx;
    const char *layer_file;
    bool dry_run;
    void (*report)(void *arg, const char *line);
    void *arg;
};
void agent_layer_gc(const struct agent_layer_gc *gc);
