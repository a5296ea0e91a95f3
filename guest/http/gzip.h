#pragma once
/*
 * gzip: bodies that are compressed on their way, in bounded memory. Blocks only in the callback.
 */
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/*
 * A body may grow without more ado to GZIP_FREE_BYTES; past that only by GZIP_MAX_RATIO, so that
 * a small request can't fill a disk. (Deflate's own limit is 1032.)
 */
#define GZIP_FREE_BYTES (1024ull * 1024 * 1024)
#define GZIP_MAX_RATIO 200

struct gunzip;

/* data: what came out; its error ends the work. */
int gunzip_new(int (*data)(void *arg, const void *data, size_t len, struct err *e), void *arg,
               struct gunzip **ret, struct err *e);
/* -ERR_INVALID: it is no gzip, or is damaged. Several members in a row are one. */
int gunzip_feed(struct gunzip *g, const void *data, size_t len, struct err *e);
/* -ERR_INVALID: it is not whole. */
int gunzip_finish(struct gunzip *g, struct err *e);
struct gunzip *gunzip_free(struct gunzip *g); /* accepts NULL; returns NULL */

struct gzip;

/* read: as feed_ops.read, of what is to be compressed. */
int gzip_new(int (*read)(void *arg, void *data, size_t size, size_t *ret_len, struct err *e),
             void *arg, struct gzip **ret, struct err *e);
/* The next compressed bytes; *ret_len 0: the end. */
int gzip_read(struct gzip *g, void *data, size_t size, size_t *ret_len, struct err *e);
struct gzip *gzip_free(struct gzip *g); /* accepts NULL; returns NULL */
