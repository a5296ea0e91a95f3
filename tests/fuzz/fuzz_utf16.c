/*
 * UTF-16: the result is valid UTF-8, and equals that of the C library's converter if that accepts
 * the input. Latin-1: as many characters as bytes. The pieces are whole characters, and together
 * the whole text.
 * fuzz-flags: -max_len=512
 */
#include "fuzz.h"

#include <iconv.h>

#include "common/str.h"
#include "search/encoding.h"

#define OUT_MAX 4096

static void compare(const uint8_t *data, size_t size, bool big, const struct buf *got)
{
    iconv_t to = iconv_open("UTF-8", big ? "UTF-16BE" : "UTF-16LE");
    char out[OUT_MAX], *in = (char *)(uintptr_t)data, *at = out;
    size_t left = size, room = sizeof(out);

    CHECK(to != (iconv_t)-1);
    if (iconv(to, &in, &left, &at, &room) != (size_t)-1 && !left) {
        CHECK(got->len == sizeof(out) - room);
        CHECK(got->len == 0 || memcmp(got->data, out, got->len) == 0);
    }
    (void)iconv_close(to);
}

static size_t n_characters(const struct buf *b)
{
    size_t n = 0;

    for (size_t i = 0; i < b->len; i++)
        n += ((unsigned char)b->data[i] & 0xc0) != 0x80;
    return n;
}

FUZZ(data, size)
{
    struct fuzz_in in = {data, size};
    uint8_t flags = fuzz_byte(&in);
    bool big = flags & 1;
    struct pieces p = {.first = flags >> 6, .then = 1 + (flags >> 2 & 15)};
    struct buf b = {.max = OUT_MAX};

    CHECK(buf_add(&b, in.data, in.len, NULL) == 0);
    if (flags & 2) {
        CHECK(latin1_decode(&b, &p, NULL) == 0);
        CHECK(n_characters(&b) == in.len);
    } else {
        CHECK(utf16_decode(&b, big, &p, NULL) == 0);
        compare(in.data, in.len, big, &b);
    }
    CHECK(b.len == 0 || str_is_utf8(b.data, b.len));
    CHECK(p.n ? p.ends[p.n - 1] == b.len : b.len == 0);
    for (size_t i = 0; i < p.n; i++) /* a piece ends where a character does */
        CHECK(str_is_utf8(b.data, (size_t)p.ends[i]));
    free(p.ends);
    buf_done(&b);
    return 0;
}
