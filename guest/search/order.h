#pragma once
/*
 * order: a walk in a given order. By path it streams; by a key of stat(2), or in reverse, the entries are
 * collected and sorted first, within ORDER_MAX_BYTES.
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

/* A place in an order: an entry, or just after it. */
struct order_place {
    char *below; /* relative to the root; NULL: the beginning */
    int64_t key; /* as tree_entry's */
};

struct order {
    enum order_by by;
    bool reverse;
    struct order_place after; /* only entries after this place; not with ORDER_NONE */
    bool with_after;          /* and the entry at the place */
};

/*
 * Walks like tree_walk(), and sets o's sort, after and with_after itself. `wants` filters the entries that are
 * collected (NULL: all); two workers call it at once, but only one calls `visit`.
 */
int order_walk(int rootfd, const struct tree_options *o, const struct order *order,
               const struct tree_access *access, const struct tree_visitor *v, struct notes *notes,
               struct err *e);

/*
 * A cursor: a place, and how many results of its entry come before, as text. It continues only the request
 * that it came from: fingerprint is order_fingerprint() of the request without the place and the limit.
 */
uint64_t order_fingerprint(const char *text, size_t len);
/* *ret is owned: free(). */
int order_cursor_new(uint64_t fingerprint, const struct order_place *last, uint64_t skip,
                     char **ret, struct err *e);
/* ret->below is owned: free(). -ERR_INVALID: no cursor of this request. */
int order_cursor_read(const char *cursor, uint64_t fingerprint, struct order_place *ret,
                      uint64_t *ret_skip, struct err *e);
