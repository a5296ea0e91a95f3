#pragma once
/*
 * order: a walk in the order that was asked for. By path it streams; by what stat(2) knows, or
 * backwards, the entries are collected first, within ORDER_MAX_BYTES.
 */
#include <stdint.h>

#include "search/tree.h"

#define ORDER_MAX_BYTES (256u * 1024 * 1024) /* of entries and their paths; a million or two */

enum order_by {
    ORDER_NONE, /* as found, by two threads */
    ORDER_PATH,
    ORDER_MODIFIED,
    ORDER_ACCESSED,
    ORDER_CHANGED,
    ORDER_SIZE,
};

/* A place in an order: just behind, or at, an entry. */
struct order_place {
    char *below; /* relative to the root; NULL: the beginning */
    int64_t key; /* as tree_entry's */
};

struct order {
    enum order_by by;
    bool reverse;
    struct order_place after; /* only what comes behind it; not with ORDER_NONE */
    bool with_after;          /* and the entry itself */
};

/*
 * Walks as tree_walk() does; o's sort, after and with_after are set here. `wants` may be NULL: what
 * it refuses is not collected; it is asked by two workers at once, `visit` then by one.
 */
int order_walk(int rootfd, const struct tree_options *o, const struct order *order,
               const struct tree_access *access, const struct tree_visitor *v, struct notes *notes,
               struct err *e);
