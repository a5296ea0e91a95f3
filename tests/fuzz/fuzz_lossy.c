/*
 * Conversion of invalid UTF-8: the result is valid, and unchanged if it was valid before; positions
 * convert in order, in both directions.
 * fuzz-flags: -max_len=9000
 */
#include "fuzz.h"

#include "common/str.h"
#include "search/encoding.h"

FUZZ(data, size)
{
    const char *text = (const char *)data;
    struct lossy l;
    size_t last_to = 0, last_back = 0;

    lossy_init(&l, 3 * size + 3);
    CHECK(lossy_convert(&l, text, size, NULL) == 0);
    CHECK(l.text.len >= size && str_is_utf8(l.text.data ? l.text.data : "", l.text.len));
    if (size && str_is_utf8(text, size))
        CHECK(l.text.len == size && memcmp(l.text.data, text, size) == 0);
    for (size_t at = 0; at <= size; at++) {
        size_t to = lossy_to(&l, at);

        CHECK(to >= last_to && to <= l.text.len && lossy_back(&l, to) <= at);
        last_to = to;
    }
    CHECK(last_to == l.text.len);
    for (size_t at = 0; at <= l.text.len; at++) {
        size_t back = lossy_back(&l, at);

        CHECK(back >= last_back && back <= size && lossy_to(&l, back) <= at);
        last_back = back;
    }
    CHECK(last_back == size);
    lossy_done(&l);
    return 0;
}
