#include "search/encoding.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT 0xfffdu

struct reader {
    const unsigned char *p, *end;
    bool big;
};

static uint32_t read_unit(struct reader *r)
{
    uint32_t u = r->big ? (uint32_t)(r->p[0] << 8 | r->p[1]) : (uint32_t)(r->p[1] << 8 | r->p[0]);

    r->p += 2;
    return u;
}

static uint32_t read_character(struct reader *r)
{
    uint32_t high = read_unit(r), low;

    if (high < 0xd800 || high > 0xdfff)
        return high;
    if (high > 0xdbff || r->end - r->p < 2)
        return REPLACEMENT;
    low = read_unit(r);
    if (low < 0xdc00 || low > 0xdfff) {
        r->p -= 2;
        return REPLACEMENT;
    }
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

static size_t add_utf8(uint32_t c, char out[4])
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

/* --- pieces --- */

/* Allocates the ends of all pieces of `len` bytes. */
static int pieces_start(struct pieces *p, size_t len, struct err *e)
{
    if (!p)
        return 0;
    p->n = 0;
    p->ends = calloc(2 + len / p->then, sizeof(*p->ends));
    return p->ends ? 0 : err_oom(e);
}

/* The end, in the original, of the piece that begins at `done`. */
static size_t piece_end(const struct pieces *p, size_t done, size_t len)
{
    size_t end;

    if (!p)
        return len;
    end = done < p->first ? p->first : done + p->then - (done - p->first) % p->then;
    return end < len ? end : len;
}

/* A piece with an empty result is dropped. */
static void pieces_add(struct pieces *p, size_t end)
{
    if (p && end > (p->n ? p->ends[p->n - 1] : 0))
        p->ends[p->n++] = end;
}

/* On success moves out's memory to b. */
static int take_result(struct buf *b, struct buf *out, int r)
{
    if (r < 0) {
        buf_done(out);
        return r;
    }
    buf_done(b);
    *b = *out;
    return 0;
}

/* --- UTF-16 --- */

/* Whether the rest is incomplete: half a unit, or half of a surrogate pair. */
static bool is_half(const struct reader *r)
{
    uint32_t high;

    if (r->end - r->p < 2)
        return true;
    high = (uint32_t)(r->big ? r->p[0] : r->p[1]);
    return r->end - r->p < 4 && high >= 0xd8 && high <= 0xdb;
}

/* Decodes the characters up to r->end; an incomplete one is left for the next piece, if there is one. */
static int decode_piece(struct reader *r, bool is_last, struct buf *out, struct err *e)
{
    char text[4];
    int res = 0;

    while (res == 0 && r->p < r->end && (is_last || !is_half(r))) {
        bool half = r->end - r->p < 2; /* of a unit, at the end */
        size_t n = add_utf8(half ? REPLACEMENT : read_character(r), text);

        res = buf_add(out, text, n, e);
        if (half)
            break;
    }
    return res;
}

int utf16_decode(struct buf *b, bool big_endian, struct pieces *p, struct err *e)
{
    const unsigned char *data = (const unsigned char *)b->data;
    struct reader r = {.p = data, .end = data, .big = big_endian};
    struct buf out = {.max = b->max};
    size_t done = 0;
    int res = pieces_start(p, b->len, e);

    if (res == 0)
        res = buf_reserve(&out, b->len, e);
    while (res == 0 && done < b->len) {
        done = piece_end(p, done, b->len);
        r.end = data + done;
        res = decode_piece(&r, done == b->len, &out, e);
        pieces_add(p, out.len);
    }
    return take_result(b, &out, res);
}

/* --- Latin-1 --- */

int latin1_decode(struct buf *b, struct pieces *p, struct err *e)
{
    static const uint16_t controls[32] = {
        0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021, 0x2c6,  0x2030, 0x160,
        0x2039, 0x152,  0x8d,   0x17d,  0x8f,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
        0x2013, 0x2014, 0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0x9d,   0x17e,  0x178};
    struct buf out = {.max = b->max};
    size_t end = 0;
    int res = pieces_start(p, b->len, e);
    char text[4];

    if (res == 0)
        res = buf_reserve(&out, b->len, e);
    for (size_t i = 0; res == 0 && i < b->len; i++) {
        unsigned char c = (unsigned char)b->data[i];

        if (i == end)
            end = piece_end(p, i, b->len);
        res = buf_add(&out, text, add_utf8(c - 0x80u < 32 ? controls[c - 0x80] : c, text), e);
        if (i + 1 == end)
            pieces_add(p, out.len);
    }
    return take_result(b, &out, res);
}
