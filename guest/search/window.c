#include "search/window.h"

#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "search/scan.h"
#include "search/utf16.h"

#include "common/banned.h"

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
}

void window_start(struct window *w, int fd, enum window_nul nul, enum window_encoding encoding)
{
    struct buf data = w->data;

    if (data.cap > KEEP_BYTES)
        buf_done(&data);
    else
        buf_clear(&data);
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

/* Byte order marks, at the file's start. What is not UTF-8 is read whole and converted. */
static int take_mark(struct window *w, struct err *e)
{
    const char *p = w->data.data;
    bool is_little = w->data.len >= 2 && memcmp(p, "\xff\xfe", 2) == 0;
    bool is_big = w->data.len >= 2 && memcmp(p, "\xfe\xff", 2) == 0;
    bool is_utf8 = w->data.len >= MARK_BYTES && memcmp(p, "\xef\xbb\xbf", MARK_BYTES) == 0;
    int r;

    if (w->encoding == WINDOW_NONE)
        return 0;
    if (is_utf8)
        buf_consume(&w->data, MARK_BYTES);
    w->has_mark = is_utf8 || is_little || is_big;
    if (is_utf8 || (!w->has_mark && w->encoding == WINDOW_AUTO))
        return 0;
    r = read_rest(w, e);
    if (r < 0)
        return r;
    if (w->has_mark)
        buf_consume(&w->data, 2);
    else if (w->encoding == WINDOW_LATIN1)
        return latin1_decode(&w->data, e);
    return utf16_decode(&w->data, w->has_mark ? is_big : w->encoding == WINDOW_UTF16BE, e);
}

static char *nul_in(char *p, size_t len)
{
    const char *nul = scan_byte(p, len, '\0');

    return nul ? p + (nul - p) : NULL;
}

/* Makes line feeds of NUL bytes, and notes the first. */
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

/* The end of the lines in the piece that begins at `from`; it grows until it has a line's end. */
static size_t piece_end(const struct window *w, size_t from)
{
    const char *p = w->data.data + from;
    const char *nl = memrchr(p, '\n', WINDOW_PIECE_BYTES);

    if (!nl)
        nl = memchr(p + WINDOW_PIECE_BYTES, '\n', w->data.len - from - WINDOW_PIECE_BYTES);
    return nl ? (size_t)(nl - w->data.data) + 1 : from;
}

/*
 * Moves w->piece over the pieces that are whole and free of NUL bytes. ripgrep's first read is of
 * three bytes, to look for a byte order mark, and it is a piece when there is a line feed in it.
 */
static void follow_pieces(struct window *w, uint64_t nul_at)
{
    if (w->piece == 0 && !w->has_mark) {
        size_t n = w->data.len < MARK_BYTES ? w->data.len : MARK_BYTES;
        const char *nl = nul_at >= n ? memrchr(w->data.data, '\n', n) : NULL;

        w->piece = nl ? (uint64_t)(nl - w->data.data) + 1 : 0;
    }
    for (;;) {
        size_t from = (size_t)(w->piece - w->base), to;

        if (w->data.len - from < WINDOW_PIECE_BYTES || w->piece + WINDOW_PIECE_BYTES > nul_at)
            return;
        to = piece_end(w, from);
        if (to == from)
            return;
        w->piece = w->base + to;
    }
}

static size_t whole_lines(const struct window *w)
{
    const char *nl = w->eof ? NULL : memrchr(w->data.data, '\n', w->data.len);

    if (w->eof)
        return w->data.len;
    return nl ? (size_t)(nl - w->data.data) + 1 : 0;
}

/* Decides what may be searched, after new bytes came. */
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
