#include "search/window.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "search/scan.h"
#include "search/encoding.h"

#define MARK_BYTES 3
#define KEEP_BYTES (2u * WINDOW_BYTES) /* memory kept from one file to the next */

void window_init(struct window *w, size_t line_max)
{
    *w = (struct window){.fd = -1};
    buf_init(&w->data, line_max);
}

void window_done(struct window *w)
{
    buf_done(&w->data);
    free(w->pieces.ends);
}

void window_start(struct window *w, int fd, enum window_nul nul, enum window_encoding encoding)
{
    struct buf data = w->data;

    if (data.cap > KEEP_BYTES)
        buf_done(&data);
    else
        buf_clear(&data);
    free(w->pieces.ends);
    *w = (struct window){.fd = fd, .nul = nul, .encoding = encoding, .data = data};
}

/* Reads until there are `want` more bytes or the file ends. */
static int read_more(struct window *w, size_t want, struct err *e)
{
    int r = buf_reserve(&w->data, want, e);

    if (r < 0)
        return r;
    while (want) {
        ssize_t n = read(w->fd, w->data.data + w->data.len, want);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "read");
        if (n == 0) {
            w->eof = true;
            break;
        }
        w->data.len += (size_t)n;
        w->n_read += (uint64_t)n;
        want -= (size_t)n;
    }
    w->data.data[w->data.len] = '\0';
    return 0;
}

static int read_rest(struct window *w, struct err *e)
{
    size_t max = w->data.max;
    int r = 0;

    while (r == 0 && !w->eof)
        r = read_more(w, w->data.len < max / 2 ? WINDOW_BYTES : max, e);
    return r;
}

/* Reads a file in another encoding whole and converts it; rg converts 8 KiB at a time. */
static int convert_file(struct window *w, size_t mark, bool big, struct err *e)
{
    int r = read_rest(w, e);

    if (r < 0)
        return r;
    buf_consume(&w->data, mark);
    w->pieces = (struct pieces){.first = MARK_BYTES - mark, .then = WINDOW_PIECE_BYTES};
    return !mark && w->encoding == WINDOW_LATIN1 ? latin1_decode(&w->data, &w->pieces, e)
                                                 : utf16_decode(&w->data, big, &w->pieces, e);
}

/* Handles a byte order mark at the start of the file. */
static int take_mark(struct window *w, struct err *e)
{
    const char *p = w->data.data;
    bool is_little = w->data.len >= 2 && memcmp(p, "\xff\xfe", 2) == 0;
    bool is_big = w->data.len >= 2 && memcmp(p, "\xfe\xff", 2) == 0;
    bool is_wide = is_little || is_big;
    bool is_utf8 = w->data.len >= MARK_BYTES && memcmp(p, "\xef\xbb\xbf", MARK_BYTES) == 0;

    w->first_piece = MARK_BYTES;
    w->piece_bytes = WINDOW_PIECE_BYTES;
    if (w->encoding == WINDOW_NONE)
        return 0;
    if (is_utf8) { /* the mark is removed; nothing is converted */
        w->first_piece = 0;
        w->piece_bytes = WINDOW_HEAD_BYTES;
        buf_consume(&w->data, MARK_BYTES);
    }
    if (is_utf8 || (!is_wide && w->encoding == WINDOW_AUTO))
        return 0;
    return convert_file(w, is_wide ? 2 : 0, is_wide ? is_big : w->encoding == WINDOW_UTF16BE, e);
}

static char *nul_in(char *p, size_t len)
{
    const char *nul = scan_byte(p, len, '\0');

    return nul ? p + (nul - p) : NULL;
}

/* Replaces NUL bytes by line feeds, and records the first. */
static void convert_nuls(struct window *w)
{
    char *p = w->data.data + w->checked, *end = w->data.data + w->data.len;

    while (p < end && (p = nul_in(p, (size_t)(end - p)))) {
        if (!w->has_nul)
            w->nul_from = w->base + (uint64_t)(p - w->data.data); /* narrowed by follow_pieces() */
        w->has_nul = true;
        *p++ = '\n';
    }
}

/* window_piece_start() of converted text. */
static uint64_t converted_start(const struct pieces *p, uint64_t at)
{
    size_t low = 0, high = p->n; /* ends[low - 1] <= at < ends[high] */

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (p->ends[mid] <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low ? p->ends[low - 1] : 0;
}

uint64_t window_piece_start(const struct window *w, uint64_t at)
{
    if (w->pieces.ends)
        return converted_start(&w->pieces, at);
    return at < w->first_piece ? 0 : at - (at - w->first_piece) % w->piece_bytes;
}

/*
 * Advances w->piece to the last line that begins in a piece that is incomplete or has the NUL byte at
 * `nul_at`: the lines before it may be searched.
 */
static void follow_pieces(struct window *w, uint64_t nul_at)
{
    uint64_t seen = w->base + w->data.len, to = nul_at < seen ? nul_at : seen;
    const char *nl;
    size_t from;

    to = window_piece_start(w, to);
    if (to <= w->piece || to <= w->sought)
        return;
    from = w->sought > w->base ? w->sought - w->base : 0;
    nl = memrchr(w->data.data + from, '\n', (size_t)(to - w->base) - from);
    w->sought = to;
    if (nl)
        w->piece = w->base + (uint64_t)(nl - w->data.data) + 1;
}

/* Finds the end of the last whole line in the new bytes only: scanning a very long line again for each of its
 * pieces would be quadratic. */
static void see_lines(struct window *w)
{
    const char *fresh = w->data.data + w->checked;
    const char *nl = memrchr(fresh, '\n', w->data.len - w->checked);

    if (nl)
        w->lines_end = w->base + (uint64_t)(nl - w->data.data) + 1;
}

static size_t whole_lines(const struct window *w)
{
    if (w->eof)
        return w->data.len;
    return w->lines_end > w->base ? (size_t)(w->lines_end - w->base) : 0;
}

/* Sets the end of the searchable text after new bytes were read. */
static void set_end(struct window *w)
{
    bool had_nul = w->has_nul;
    const char *nul;

    switch (w->nul) {
    case WINDOW_NUL_STOPS:
        nul = scan_byte(w->data.data + w->checked, w->data.len - w->checked, '\0');
        follow_pieces(w, nul ? w->base + (uint64_t)(nul - w->data.data) : UINT64_MAX);
        w->has_nul = nul;
        w->is_last = nul || w->eof;
        w->end = w->eof && !nul ? w->data.len : (size_t)(w->piece - w->base);
        break;
    case WINDOW_NUL_BECOMES:
        convert_nuls(w);
        see_lines(w);
        if (!had_nul) {
            follow_pieces(w, w->has_nul ? w->nul_from : UINT64_MAX);
            if (w->has_nul)
                w->nul_from = w->piece;
        }
        w->end = w->has_nul || w->eof ? whole_lines(w) : (size_t)(w->piece - w->base);
        w->is_last = w->eof;
        break;
    case WINDOW_NUL_IS_TEXT:
    default:
        see_lines(w);
        w->end = whole_lines(w);
        w->is_last = w->eof;
        break;
    }
    w->checked = w->data.len;
}

int window_next(struct window *w, size_t keep_from, struct err *e)
{
    bool first = w->n_read == 0;
    size_t had = w->end - (keep_from < w->end ? keep_from : w->end);
    int r;

    if (!first) {
        buf_consume(&w->data, keep_from);
        w->base += keep_from;
        w->checked -= keep_from;
    }
    do {
        r = read_more(w, first ? WINDOW_FIRST_BYTES : WINDOW_BYTES, e);
        if (r == 0 && first)
            r = take_mark(w, e);
        if (r < 0)
            return r;
        first = false;
        set_end(w);
    } while (!w->is_last && w->end <= had); /* a line longer than the window */
    return 0;
}

int window_read_all(struct window *w, size_t max, struct err *e)
{
    int r = 0;

    while (r == 0 && !w->eof && w->data.len <= max)
        r = read_more(w, w->data.len ? WINDOW_BYTES : WINDOW_FIRST_BYTES, e);
    if (r == 0 && !w->eof)
        r = err_set(e, ERR_EXHAUSTED, "larger than %zu bytes", max);
    if (r == 0)
        r = take_mark(w, e);
    w->end = w->data.len;
    w->is_last = true;
    return r;
}
