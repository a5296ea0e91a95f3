#include "search/encoding.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "search/scan.h"

#define MARK_EVERY 4096 /* bytes of the original */
#define REPLACEMENT 0xfffdu
#define REPLACEMENT_UTF8 "\xef\xbf\xbd"
#define REPLACEMENT_BYTES 3

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

/* --- text that is not UTF-8 --- */

/* A position in the original and the same place in the result; a character begins there. */
struct lossy_mark {
    size_t from, to;
};

void lossy_init(struct lossy *l, size_t max)
{
    *l = (struct lossy){.text = {.max = max}};
}

void lossy_done(struct lossy *l)
{
    buf_done(&l->text);
    free(l->marks);
}

/* The number of bytes that must follow a lead byte, and the range of the first of them. */
static size_t tail_len_of(unsigned char lead, unsigned char *ret_low, unsigned char *ret_high)
{
    *ret_low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    *ret_high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf)
        return 1;
    if (lead >= 0xe0 && lead <= 0xef)
        return 2;
    return lead >= 0xf0 && lead <= 0xf4 ? 3 : 0;
}

/* The length of the character at s, or of the invalid part there (*ret_ok false); at least 1. */
static size_t char_or_invalid_len(const char *s, size_t len, bool *ret_ok)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned char low, high;
    size_t n_tail = tail_len_of(*p, &low, &high), n = 1;

    for (; n <= n_tail && n < len && p[n] >= low && p[n] <= high; n++) {
        low = 0x80;
        high = 0xbf;
    }
    *ret_ok = *p < 0x80 || (n_tail && n > n_tail);
    return n;
}

static int add_mark(struct lossy *l, size_t from, struct err *e)
{
    int r = array_grow(&l->marks, &l->max_marks, l->n_marks + 1, SIZE_MAX / sizeof(*l->marks), e);

    if (r < 0)
        return r;
    l->marks[l->n_marks++] = (struct lossy_mark){from, l->text.len};
    return 0;
}

int lossy_convert(struct lossy *l, const char *from, size_t len, struct err *e)
{
    size_t at = 0, next_mark = 0;

    buf_clear(&l->text);
    l->from = from;
    l->from_len = len;
    l->n_marks = 0;
    l->last_from = l->last_to = 0;
    while (at < len) {
        size_t room = len - at < MARK_EVERY ? len - at : MARK_EVERY;
        size_t n = scan_ascii_len(from + at, room);
        bool ok = true;
        int r = 0;

        if (at >= next_mark) {
            r = add_mark(l, at, e);
            next_mark = at + MARK_EVERY;
        }
        if (!n)
            n = char_or_invalid_len(from + at, len - at, &ok);
        if (r == 0)
            r = ok ? buf_add(&l->text, from + at, n, e)
                   : buf_add(&l->text, REPLACEMENT_UTF8, REPLACEMENT_BYTES, e);
        if (r < 0)
            return r;
        at += n;
    }
    return 0;
}

/* The last mark at or before a position. */
static struct lossy_mark mark_before(const struct lossy *l, size_t at, bool in_result)
{
    size_t low = 0, high = l->n_marks;

    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;

        if ((in_result ? l->marks[mid].to : l->marks[mid].from) <= at)
            low = mid;
        else
            high = mid;
    }
    return l->n_marks ? l->marks[low] : (struct lossy_mark){0, 0};
}

/* The nearer one of the last mark and the last position mapped. */
static struct lossy_mark nearest_start(const struct lossy *l, size_t at, bool in_result)
{
    struct lossy_mark mark = mark_before(l, at, in_result);
    struct lossy_mark last = {l->last_from, l->last_to};

    return last.from > mark.from && (in_result ? last.to : last.from) <= at ? last : mark;
}

/* Steps from character to character up to the position. */
static struct lossy_mark map_position(struct lossy *l, size_t at, bool in_result)
{
    struct lossy_mark p = nearest_start(l, at, in_result);

    while (p.from < l->from_len) {
        bool ok;
        size_t n = char_or_invalid_len(l->from + p.from, l->from_len - p.from, &ok);
        size_t n_to = ok ? n : REPLACEMENT_BYTES;
        size_t past = in_result ? at - p.to : at - p.from;

        if (past < (in_result ? n_to : n)) {
            l->last_from = p.from;
            l->last_to = p.to;
            if (ok) {
                p.from += past;
                p.to += past;
            }
            return p;
        }
        p.from += n;
        p.to += n_to;
    }
    return p;
}

size_t lossy_to(struct lossy *l, size_t at)
{
    return map_position(l, at, false).to;
}

size_t lossy_back(struct lossy *l, size_t at)
{
    return map_position(l, at, true).from;
}
