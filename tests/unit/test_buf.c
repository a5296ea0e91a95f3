#include "common/buf.h"

#include <inttypes.h>

#include "test.h"

TEST(buf_grows_and_ends_in_a_nul)
{
    _cleanup_buf_ struct buf b;

    buf_init(&b, 1000);
    T_INT(buf_adds(&b, "abc", NULL), 0);
    T_INT(buf_addf(&b, NULL, "%d-%s", 7, "x"), 0);
    T_STR(b.data, "abc7-x");
    buf_consume(&b, 3);
    T_STR(b.data, "7-x");
    T_INT(b.len, 3);
}

TEST(buf_refuses_what_passes_its_maximum_and_stays_as_it_was)
{
    _cleanup_buf_ struct buf b;
    struct err e = {0};

    buf_init(&b, 5);
    T_INT(buf_adds(&b, "12345", &e), 0);
    T_INT(buf_adds(&b, "6", &e), -ERR_EXHAUSTED);
    T_INT(buf_addf(&b, &e, "%s", "6"), -ERR_EXHAUSTED);
    T_STR(b.data, "12345");
}

TEST(buf_take_of_an_empty_one_is_an_empty_string)
{
    struct buf b;
    char *s;

    buf_init(&b, 10);
    s = buf_take(&b);
    T_STR(s, "");
    free(s);
    buf_done(&b);
    buf_done(NULL);
}

TEST(buf_takes_bytes_with_nuls)
{
    _cleanup_buf_ struct buf b;

    buf_init(&b, 100);
    T_INT(buf_add(&b, "a\0b", 3, NULL), 0);
    T_INT(buf_add(&b, NULL, 0, NULL), 0);
    T_INT(b.len, 3);
    T_MEM(b.data, "a\0b", 4);
}

TEST(buf_writes_numbers_as_printf_does)
{
    static const int64_t numbers[] = {0, 7, -7, 10, 1234567890123, INT64_MAX, INT64_MIN};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        _cleanup_buf_ struct buf b;
        char want[32];

        buf_init(&b, 100);
        (void)snprintf(want, sizeof(want), "%" PRId64, numbers[i]);
        T_INT(buf_add_i64(&b, numbers[i], NULL), 0);
        T_STR(b.data, want);
    }
}
