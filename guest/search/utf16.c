#include "search/utf16.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/banned.h"

#define REPLACEMENT 0xfffdu

struct reader {
    const unsigned char *p, *end;
    bool big;
};

static uint32_t unit(struct reader *r)
{
    uint32_t u = r->big ? (uint32_t)(r->p[0] << 8 | r->p[1]) : (uint32_t)(r->p[1] << 8 | r->p[0]);

    r->p += 2;
    return u;
}

static uint32_t character(struct reader *r)
{
    uint32_t high = unit(r), low;

    if (high < 0xd800 || high > 0xdfff)
        return high;
    if (high > 0xdbff || r->end - r->p < 2)
        return REPLACEMENT;
    low = unit(r);
    if (low < 0xdc00 || low > 0xdfff) {
        r->p -= 2;
        return REPLACEMENT;
    }
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

static size_t encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

int utf16_decode(struct buf *b, struct err *e)
{
    const unsigned char *data = (const unsigned char *)b->data;
    struct reader r = {.p = data + 2, .end = data + b->len, .big = data[0] == 0xfe};
    struct buf out = {.max = b->max};
    int res = buf_reserve(&out, b->len, e);
    char text[4];

    while (res == 0 && r.p < r.end) {
        bool half = r.end - r.p < 2; /* of a unit, at the end */
        size_t n = encode(half ? REPLACEMENT : character(&r), text);

        res = buf_add(&out, text, n, e);
        if (half)
            break;
    }
    if (res < 0) {
        buf_done(&out);
        return res;
    }
    buf_done(b);
    *b = out;
    return 0;
}
