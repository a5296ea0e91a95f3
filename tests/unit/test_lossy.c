/*
 * search/encoding: invalid UTF-8 becomes U+FFFD as in rg -P, and positions convert in both directions.
 */
#include "test.h"

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "search/encoding.h"

#define BAD "\xef\xbf\xbd"

TEST(lossy_replaces_each_part_that_can_not_be_a_character)
{
    static const struct {
        const char *from, *to;
    } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"a\xff\xfe"
         "b",
         "a" BAD BAD "b"},
        {"\x80\xbf", BAD BAD},                 /* not a first byte */
        {"\xc3(", BAD "("},                    /* cut: one U+FFFD for the part */
        {"\xe2\x82(", BAD "("},                /* two bytes of three */
        {"\xf0\x9f\x98(", BAD "("},            /* three of four */
        {"\xf0\x9f\x98", BAD},                 /* at the end */
        {"\xe2\x28\xa1", BAD "(" BAD},         /* the second byte is another character */
        {"\xc0\xaf", BAD BAD},                 /* too long a form */
        {"\xe0\x80\xaf", BAD BAD BAD},         /* the same */
        {"\xed\xa0\x80", BAD BAD BAD},         /* a surrogate */
        {"\xf4\x90\x80\x80", BAD BAD BAD BAD}, /* beyond U+10FFFF */
        {"\xf5\x80", BAD BAD},
        {"\xc3\xc3\xa9", BAD "\xc3\xa9"}, /* the next character is whole */
    };

    for (size_t i = 0; i < N_ELEMENTS(cases); i++) {
        size_t len = strlen(cases[i].from);
        struct lossy l;

        lossy_init(&l, 64);
        T_INT(lossy_convert(&l, cases[i].from, len, NULL), 0);
        T_STR(l.text.data ? l.text.data : "", cases[i].to);
        T_INT(l.text.len, strlen(cases[i].to));
        T_INT(lossy_to(&l, 0), 0);
        T_INT(lossy_to(&l, len), l.text.len);
        T_INT(lossy_back(&l, l.text.len), len);
        lossy_done(&l);
    }
}

TEST(lossy_positions_are_the_same_place_on_both_sides)
{
    static const char from[] = "ab\xff\xe2\x82z\xc3\xa9!";
    /* The position of each byte, and of the end, in "ab" BAD BAD "z" "é" "!". */
    static const size_t to[] = {0, 1, 2, 5, 5, 8, 9, 10, 11, 12};
    /* And back, for each byte; inside a replacement it is the beginning of the replaced bytes. */
    static const size_t back[] = {0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 8, 9};
    struct lossy l;

    lossy_init(&l, 64);
    T_INT(lossy_convert(&l, from, sizeof(from) - 1, NULL), 0);
    for (size_t i = 0; i < N_ELEMENTS(to); i++)
        T_INT(lossy_to(&l, i), to[i]);
    for (size_t i = 0; i < N_ELEMENTS(back); i++)
        T_INT(lossy_back(&l, i), back[i]);
    lossy_done(&l);
}

/* Positions are found by marks, one per few KiB. */
TEST(lossy_positions_are_right_far_down)
{
    enum { PARTS = 9000 };
    struct buf from = {.max = 1 << 20};
    struct lossy l;

    lossy_init(&l, 1 << 20);
    for (size_t i = 0; i < PARTS; i++)
        T_INT(buf_add(&from, "x\xff\xc3\xa9", 4, NULL), 0);
    for (unsigned again = 0; again < 2; again++) { /* the memory of the last text is reused */
        T_INT(lossy_convert(&l, from.data, from.len, NULL), 0);
        T_INT(l.text.len, 6 * PARTS);
        T_OK(str_is_utf8(l.text.data, l.text.len));
        for (size_t i = 0; i < PARTS; i++) {
            T_INT(lossy_to(&l, 4 * i + 2), 6 * i + 4);
            T_INT(lossy_back(&l, 6 * i + 4), 4 * i + 2);
        }
    }
    lossy_done(&l);
    buf_done(&from);
}

TEST(lossy_text_that_would_be_too_long_is_refused)
{
    struct lossy l;

    lossy_init(&l, 8);
    T_INT(lossy_convert(&l, "\xff\xff", 2, NULL), 0);
    T_INT(lossy_convert(&l, "\xff\xff\xff", 3, NULL), -ERR_EXHAUSTED);
    lossy_done(&l);
}

#define LONG_BYTES (2u << 20)

/*
 * One line may have a match for each byte: an algorithm that scans much of the line for each
 * exceeds the time limit.
 */
TEST(lossy_positions_one_after_another_cost_little)
{
    _cleanup_free_ char *from = malloc(LONG_BYTES);
    size_t n_wrong = 0;
    struct lossy l;

    T_OK(from);
    memset(from, 'a', LONG_BYTES);
    from[0] = '\xff';
    lossy_init(&l, 2 * LONG_BYTES);
    T_INT(lossy_convert(&l, from, LONG_BYTES, NULL), 0);
    for (size_t at = 1; at < LONG_BYTES; at++)
        n_wrong += lossy_to(&l, at) != at + 2 || lossy_back(&l, at + 2) != at;
    T_INT(n_wrong, 0);
    /* Backwards, as for the next line. */
    T_INT(lossy_to(&l, 0), 0);
    T_INT(lossy_back(&l, 2), 0);
    T_INT(lossy_to(&l, LONG_BYTES / 2), LONG_BYTES / 2 + 2);
    T_INT(lossy_back(&l, 3), 1);
    T_INT(lossy_to(&l, LONG_BYTES), LONG_BYTES + 2);
    T_INT(lossy_convert(&l, "b\xff", 2, NULL), 0);
    T_INT(lossy_to(&l, 1), 1);
    T_INT(lossy_back(&l, 4), 2);
    lossy_done(&l);
}
