#pragma once
/*
 * store_snapshots: the rows of snapshots, and which layers of lib/provider/layer_store.h boxes and
 * snapshots have. A row is stored before its layer is made. Each function is one transaction.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/box/store.h"

#define SNAPSHOTS_MAX 10000

struct snapshot_row {
    char id[BOX_ID_BYTES];
    char *name;
    bool is_ready;     /* false: it is being made, or its maker died */
    bool is_temporary; /* of a fork, which removes it */
    char box_id[BOX_ID_BYTES];
    char *box_name;
    int64_t created_ms;
    char *project; /* as in struct box_row */
    char *remote;
    char **layers; /* the lowest first */
    /*
     * {"spec": of the box, without values of variables; "variables": their names,
     * "image_hash", "agent": as in struct box_row, "record": of its coding agent (agent.json),
     * "disk": of the provider, "bytes","copied","entries","devices": of its own layer,
     * "at_timeout": at the end of the box's time to live}
     */
    json_t *facts;
};
void snapshot_row_done(struct snapshot_row *row);

/* Adds a row that is not ready. Fills in id and created_ms. ERR_EXISTS: the name is taken. */
int store_add_snapshot(struct store *s, struct snapshot_row *row, struct err *e);
/* Stores layers and facts; the snapshot is ready, and its box has an event "snapshot". */
int store_finish_snapshot(struct store *s, const struct snapshot_row *row, struct err *e);
/* ERR_NOT_FOUND: there is no such snapshot, or it is not ready. */
int store_find_snapshot(struct store *s, const char *name, struct snapshot_row *ret, struct err *e);
/* Ready and not; in the order of their making. fn may use the store. */
int store_list_snapshots(struct store *s, int (*fn)(void *arg, struct snapshot_row *row), void *arg,
                         struct err *e);
/* A row that is not there is no error. */
int store_remove_snapshot(struct store *s, const char *id, struct err *e);

/* From now on the box has these layers besides the others, until store_set_layers(). ERR_NOT_FOUND:
 * the snapshot is gone, and so may be its layers. */
int store_add_layers(struct store *s, const char *box_id, const struct snapshot_row *from,
                     struct err *e);
int store_set_layers(struct store *s, const char *box_id, char *const *layers, struct err *e);
/* In any order; the caller owns the list. */
int store_list_layers(struct store *s, const char *box_id, char ***ret, struct err *e);
/* A user of the layer: "the box 'x'". NULL: there is none. */
int store_layer_user(struct store *s, const char *layer, bool only_boxes, char **ret,
                     struct err *e);
/* The layers that this store has made, used or not: a layer is added before its directory, and
 * forgotten after it. */
int store_add_layer(struct store *s, const char *layer, struct err *e);
int store_has_layer(struct store *s, const char *layer, struct err *e); /* 1, 0 or an error */
int store_forget_layer(struct store *s, const char *layer, struct err *e);
/* Is there a row, ready or not? 1, 0 or an error. */
int store_has_snapshot(struct store *s, const char *id, struct err *e);
/* The last ready snapshot of the box that had the id. NULL: none. */
int store_last_snapshot(struct store *s, const char *box_id, char **ret_name, struct err *e);
