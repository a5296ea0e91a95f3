#include "common/buf.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUF_FIRST_BYTES 256
#define I64_BYTES 20 /* "-9223372036854775808" */

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){.max = max};
}

void buf_done(struct buf *b)
{
    if (!b)
        return;
    free(b->data);
    *b = (struct buf){.max = b->max};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

int buf_reserve(struct buf *b, size_t extra, struct err *e)
{
    size_t need, cap;
    char *data;

    if (extra > b->max || b->len > b->max - extra)
        return err_set(e, ERR_EXHAUSTED, "more than %zu bytes", b->max);
    need = b->len + extra + 1;
    if (need <= b->cap)
        return 0;
    cap = b->cap ? b->cap : BUF_FIRST_BYTES;
    while (cap < need)
        cap += cap / 2 + 1;
    if (cap > b->max + 1)
        cap = b->max + 1;
    data = realloc(b->data, cap);
    if (!data)
        return err_oom(e);
    b->data = data;
    b->cap = cap;
    return 0;
}

int buf_add(struct buf *b, const void *data, size_t len, struct err *e)
{
    int r = buf_reserve(b, len, e);

    if (r < 0)
        return r;
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
    return 0;
}

int buf_adds(struct buf *b, const char *s, struct err *e)
{
    return buf_add(b, s, strlen(s), e);
}

int buf_add_i64(struct buf *b, int64_t n, struct err *e)
{
    char digits[I64_BYTES];
    size_t at = sizeof(digits);
    uint64_t left = n < 0 ? -(uint64_t)n : (uint64_t)n;

    do {
        digits[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left);
    if (n < 0)
        digits[--at] = '-';
    return buf_add(b, digits + at, sizeof(digits) - at, e);
}

int buf_addf(struct buf *b, struct err *e, const char *fmt, ...)
{
    va_list ap;
    int n, r;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return err_set(e, ERR_INTERNAL, "vsnprintf failed");
    r = buf_reserve(b, (size_t)n, e);
    if (r < 0)
        return r;
    va_start(ap, fmt);
    (void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return 0;
}

void buf_consume(struct buf *b, size_t len)
{
    assert(len <= b->len);
    if (!len)
        return;
    b->len -= len;
    memmove(b->data, b->data + len, b->len + 1);
}

char *buf_take(struct buf *b)
{
    char *data = b->data ? b->data : calloc(1, 1);

    *b = (struct buf){.max = b->max};
    return data;
}
