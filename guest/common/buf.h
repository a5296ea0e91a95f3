#pragma once
/*
 * buf: a growing byte buffer with a maximum. Embedded (buf_init/buf_done). An append that would exceed the maximum,
 * or for which there is no memory, leaves the buffer unchanged.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct buf {
    char *data; /* NULL until something is appended; then followed by a NUL */
    size_t len;
    size_t cap;
    size_t max; /* bytes, without the NUL */
};

void buf_init(struct buf *b, size_t max);
void buf_done(struct buf *b);  /* accepts NULL and zeroed */
void buf_clear(struct buf *b); /* keeps the memory */

int buf_reserve(struct buf *b, size_t extra, struct err *e); /* room for extra more bytes */
int buf_add(struct buf *b, const void *data, size_t len, struct err *e);
int buf_adds(struct buf *b, const char *s, struct err *e);
int buf_add_i64(struct buf *b, int64_t n, struct err *e); /* in decimal digits */
int buf_addf(struct buf *b, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void buf_consume(struct buf *b, size_t len); /* drop from the front */
char *buf_take(struct buf *b);               /* NUL-terminated; the caller frees; b is empty */

static inline void buf_done_p(struct buf *b)
{
    buf_done(b);
}
#define _cleanup_buf_ __attribute__((cleanup(buf_done_p)))
