#pragma once
/*
 * list_order: guest/fs/stat.c's own parts: List by name, size or time. The first `limit` entries
 * behind a cursor are kept while the tree is walked; others are dropped at once, so that memory is
 * bounded by the limit, not by the tree.
 *
 * A cursor has the last entry's key and path, so it means the same place when entries come and go.
 */
#include <stdbool.h>
#include <stddef.h>

#include "fs/stat.h"

struct list_order {
    enum fs_list_sort sort;
    bool reverse;           /* the key; ties are always broken by ascending path */
    bool directories_first; /* a directory before the others, in either direction */
    size_t dir_len;         /* length of the prefix of an entry's path that names the directory */
    struct fs_info *last;   /* from the cursor; NULL: from the start */
};

/* `after`: a cursor of list_order_cursor(), or NULL. -ERR_INVALID with field "cursor". */
int list_order_init(struct list_order *o, const char *dir, const struct fs_list_options *lo,
                    struct err *e);
void list_order_done(struct list_order *o);

/* Negative, zero or positive as a sorts before, with or behind b. path and st must be set. */
int list_order_compare(const struct list_order *o, const struct fs_info *a,
                       const struct fs_info *b);

/* Whether the entry is behind the cursor and before the last of a full listing. */
bool list_order_wants(const struct list_order *o, const struct fs_listing *l, size_t limit,
                      const struct fs_info *i);
/* Takes the entry; forgets the last of a full listing, which is then no longer whole. */
void list_order_put(const struct list_order *o, struct fs_listing *l, size_t limit,
                    struct fs_info *i);
/* Sorts the entries, which are in no order until then. */
void list_order_finish(const struct list_order *o, struct fs_listing *l);

/* Owned by the caller; NULL: out of memory. */
char *list_order_cursor(const struct list_order *o, const struct fs_info *last);
