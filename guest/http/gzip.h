#pragma once
/*
 * gzip: compresses and decompresses bodies as streams, in bounded memory. Only the callbacks may block.
 */
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/*
 * A body may inflate to GZIP_FREE_BYTES; beyond, to GZIP_MAX_RATIO times its size, so that a small
 * request cannot fill a disk. (The limit of deflate itself is 1032.)
 */
#define GZIP_FREE_BYTES (1024ull * 1024 * 1024)
#define GZIP_MAX_RATIO 200

struct gunzip;

/* data: the inflated bytes; an error of it ends the work. */
int gunzip_new(int (*data)(void *arg, const void *data, size_t len, struct err *e), void *arg,
               struct gunzip **ret, struct err *e);
/* -ERR_INVALID: this is not gzip, or it is damaged. Concatenated members count as one body. */
int gunzip_feed(struct gunzip *g, const void *data, size_t len, struct err *e);
/* -ERR_INVALID: the last member is incomplete. */
int gunzip_finish(struct gunzip *g, struct err *e);
struct gunzip *gunzip_free(struct gunzip *g); /* accepts NULL; returns NULL */

struct gzip;

/* read: the source, as feed_ops.read. */
int gzip_new(int (*read)(void *arg, void *data, size_t size, size_t *ret_len, struct err *e),
             void *arg, struct gzip **ret, struct err *e);
/* The next compressed bytes; *ret_len 0: the end. */
int gzip_read(struct gzip *g, void *data, size_t size, size_t *ret_len, struct err *e);
struct gzip *gzip_free(struct gzip *g); /* accepts NULL; returns NULL */
