/*
 * Replies of an HTTP server in the box: a head is accepted whole or not at all, its parts may be
 * written into another head, and a chunked body decodes to the same bytes however it was split on
 * its way.
 * fuzz-flags: -max_len=2048
 */
#include "fuzz.h"

#include <ctype.h>

#include "common/http1.h"

/* Nothing in a name or a value can end a line or begin another header. */
static void check_header(const struct http1_header *h)
{
    CHECK(*h->name);
    for (const char *c = h->name; *c; c++)
        CHECK((unsigned char)*c > ' ' && (unsigned char)*c < 127 && *c != ':');
    for (const char *c = h->value; *c; c++)
        CHECK(((unsigned char)*c >= ' ' || *c == '\t') && *c != 127);
    CHECK(!*h->value || (!isblank((unsigned char)h->value[0]) &&
                         !isblank((unsigned char)h->value[strlen(h->value) - 1])));
}

static void check_same(const struct http1_head *a, const struct http1_head *b)
{
    CHECK(a->status == b->status && a->n_headers == b->n_headers);
    CHECK(a->is_chunked == b->is_chunked && a->has_length == b->has_length);
    CHECK(a->length == b->length);
    for (size_t i = 0; i < a->n_headers; i++)
        CHECK(strcmp(a->headers[i].name, b->headers[i].name) == 0 &&
              strcmp(a->headers[i].value, b->headers[i].value) == 0);
}

/* A head that was accepted is the same after writing and reading it again. */
static void check_again(const struct http1_head *h)
{
    struct http1_head again = {0};
    size_t cap = 64, len, n = 0;
    char *text;

    for (size_t i = 0; i < h->n_headers; i++)
        cap += strlen(h->headers[i].name) + strlen(h->headers[i].value) + 8;
    text = malloc(cap);
    CHECK(text);
    len = (size_t)snprintf(text, cap, "HTTP/1.1 %d x\r\n", h->status);
    for (size_t i = 0; i < h->n_headers; i++)
        len += (size_t)snprintf(text + len, cap - len, "%s: %s\r\n", h->headers[i].name,
                                h->headers[i].value);
    len += (size_t)snprintf(text + len, cap - len, "\r\n");
    CHECK(http1_parse_head(text, len, &again, &n, NULL) == 0 && n == len);
    check_same(h, &again);
    http1_head_done(&again);
    free(text);
}

static void check_head(const char *data, size_t len, size_t cut)
{
    struct http1_head head = {0}, part = {0};
    struct err e = {0};
    size_t n = 0, n_part = 0;
    int r = http1_parse_head(data, len, &head, &n, &e);

    CHECK((r < 0) == (e.code != 0));
    if (r < 0) {
        CHECK(!head.text);
        return;
    }
    CHECK(n <= len);
    CHECK((n > 0) == (memmem(data, len, "\r\n\r\n", 4) != NULL));
    if (!n)
        return;
    CHECK(memcmp(data + n - 4, "\r\n\r\n", 4) == 0);
    CHECK(head.status >= 100 && head.status <= 999 && head.n_headers <= HTTP1_MAX_HEADERS);
    for (size_t i = 0; i < head.n_headers; i++)
        check_header(&head.headers[i]);
    check_again(&head);
    /* An incomplete head is not accepted, and bytes after the head make no difference. */
    cut %= n;
    CHECK(http1_parse_head(data, cut, &part, &n_part, NULL) == 0 && n_part == 0);
    CHECK(http1_parse_head(data, n, &part, &n_part, NULL) == 0 && n_part == n);
    check_same(&head, &part);
    http1_head_done(&part);
    http1_head_done(&head);
}

/* Decodes in pieces of `step` bytes. */
static int decode(const char *data, size_t len, size_t step, char *out, size_t *ret_len,
                  bool *ret_over)
{
    struct http1_chunks c = {0};
    size_t total = 0;
    int r = 0;

    for (size_t at = 0; at < len && r == 0; at += step) {
        size_t n = step < len - at ? step : len - at, got = 0;
        char *piece = malloc(n);

        CHECK(piece);
        memcpy(piece, data + at, n);
        r = http1_decode_chunks(&c, piece, n, &got, NULL);
        CHECK(r < 0 || got <= n);
        if (r == 0)
            memcpy(out + total, piece, got);
        total += r == 0 ? got : 0;
        free(piece);
    }
    *ret_len = total;
    *ret_over = c.is_over;
    return r;
}

static void check_chunks(const char *data, size_t len, size_t step)
{
    char *whole = malloc(len + 1), *cut = malloc(len + 1);
    size_t n_whole = 0, n_cut = 0;
    bool over_whole = false, over_cut = false;
    int r_whole, r_cut;

    CHECK(whole && cut);
    r_whole = decode(data, len, len ? len : 1, whole, &n_whole, &over_whole);
    r_cut = decode(data, len, step, cut, &n_cut, &over_cut);
    CHECK(r_whole == r_cut);
    if (r_whole == 0) {
        CHECK(over_whole == over_cut && n_whole == n_cut);
        CHECK(memcmp(whole, cut, n_whole) == 0);
    }
    free(whole);
    free(cut);
}

/* Encoded chunks decode to the original bytes. */
static void check_round_trip(const char *data, size_t len, size_t chunk, size_t step)
{
    size_t cap = len * 8 + 64, n = 0, got = 0;
    char *text = malloc(cap), *out = malloc(cap);
    bool over = false;

    CHECK(text && out);
    for (size_t at = 0; at < len; at += chunk) {
        size_t piece = chunk < len - at ? chunk : len - at;

        n += (size_t)snprintf(text + n, cap - n, "%zx;x=\"y\"\r\n", piece);
        if (cap - n < piece + 32)
            break;
        memcpy(text + n, data + at, piece);
        n += piece;
        n += (size_t)snprintf(text + n, cap - n, "\r\n");
    }
    n += (size_t)snprintf(text + n, cap - n, "0\r\nA: b\r\n\r\n");
    CHECK(decode(text, n, step, out, &got, &over) == 0);
    CHECK(over && got == len && memcmp(out, data, len) == 0);
    free(text);
    free(out);
}

FUZZ(data, size)
{
    struct fuzz_in in = {.data = data, .len = size};
    size_t step = (size_t)fuzz_byte(&in) + 1;
    size_t chunk = (size_t)fuzz_byte(&in) + 16; /* whose framing is smaller than its room */
    const char *text = (const char *)in.data;

    check_head(text, in.len, step * chunk);
    check_chunks(text, in.len, step);
    check_round_trip(text, in.len, chunk, step);
    return 0;
}
