#include "search/lossy.h"

#include <stdlib.h>
#include <string.h>

#include "common/array.h"
#include "search/scan.h"

#define MARK_EVERY 4096 /* bytes of the original */
#define REPLACEMENT "\xef\xbf\xbd"
#define REPLACEMENT_BYTES 3

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
                   : buf_add(&l->text, REPLACEMENT, REPLACEMENT_BYTES, e);
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
