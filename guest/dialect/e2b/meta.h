#pragma once
/*
 * meta: a client's notes on a file: pairs of text, kept as the extended attributes
 * "user.e2b.KEY". Functions with a descriptor block.
 */
#include <jansson.h>
#include <stddef.h>

#include "common/err.h"

#define META_PREFIX "user.e2b."
#define META_KEY_MAX_BYTES 246    /* with the prefix: the kernel's limit of a name */
#define META_TOTAL_MAX_BYTES 4096 /* of names with their prefix, and values: one block of ext4 */
#define META_PAIRS_MAX 512

struct meta_pair {
    char *key;
    char *value;
};

struct meta {
    struct meta_pair *v;
    size_t n;
};

/* The key becomes lower-case; one that is there already keeps its value. Copies. ERR_INVALID in the
 * words that clients know. */
int meta_add(struct meta *m, const char *key, const char *value, struct err *e);
/* In the form in which they are stored: names with their prefix, and values. */
size_t meta_bytes(const struct meta *m);
/* Checks the limits on all of them together. */
int meta_check(const struct meta *m, struct err *e);
void meta_done(struct meta *m); /* accepts zeroed */

/* Sets these and removes all others. A disk without attributes keeps none, which is no error. */
int meta_write(int fd, const struct meta *m, struct err *e);

/* An object, or NULL: none, or they can't be read. Values that are not UTF-8 are left out. fd:
 * O_PATH too. */
json_t *meta_read(int fd);
