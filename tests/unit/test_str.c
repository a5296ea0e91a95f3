#include "common/cleanup.h"
#include "common/str.h"

#include "test.h"

TEST(str_numbers_are_whole_and_within_bounds)
{
    struct err e = {0};
    uint64_t u = 7;
    int64_t i = 7;

    T_INT(str_parse_u64("42", 0, 100, &u, &e), 0);
    T_INT(u, 42);
    T_INT(str_parse_u64("18446744073709551615", 0, UINT64_MAX, &u, &e), 0);
    T_OK(u == UINT64_MAX);
    for (const char *const *bad = (const char *const[]){"", "-1", "+1", " 1", "1 ", "0x1", "1e3",
                                                        "18446744073709551616", "999", NULL};
         *bad; bad++) {
        u = 7;
        T_INT(str_parse_u64(*bad, 0, 100, &u, &e), -ERR_INVALID);
        T_INT(u, 7);
    }
    T_INT(str_parse_i64("-42", -100, 100, &i, &e), 0);
    T_INT(i, -42);
    T_INT(str_parse_i64("--4", -100, 100, &i, &e), -ERR_INVALID);
    T_INT(str_parse_i64("-9223372036854775808", INT64_MIN, INT64_MAX, &i, &e), 0);
    T_OK(i == INT64_MIN);
    T_INT(str_parse_i64("9223372036854775808", INT64_MIN, INT64_MAX, &i, &e), -ERR_INVALID);
    T_INT(str_parse_i64("-9223372036854775809", INT64_MIN, INT64_MAX, &i, &e), -ERR_INVALID);
    T_INT(str_parse_i64("-0", INT64_MIN, INT64_MAX, &i, &e), 0);
    T_OK(i == 0);
}

TEST(str_durations_need_a_unit)
{
    static const struct {
        const char *text;
        long long ms;
    } good[] = {{"500ms", 500},     {"90s", 90000},    {"10m", 600000}, {"2h", 7200000},
                {"1h30m", 5400000}, {"7d", 604800000}, {"0", 0},        {"1m1ms", 60001}};
    static const char *const bad[] = {"",    "10",   "m",   "1x",
                                      "-1s", "1.5h", "1s ", "9999999999999999d"};
    int64_t ms;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        T_INT(str_parse_duration(good[i].text, &ms, NULL), 0);
        T_INT(ms, good[i].ms);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        T_INT(str_parse_duration(bad[i], &ms, NULL), -ERR_INVALID);
}

TEST(str_sizes_are_powers_of_1024)
{
    uint64_t n;

    T_INT(str_parse_size("512M", &n, NULL), 0);
    T_INT(n, 512ll << 20);
    T_INT(str_parse_size("2g", &n, NULL), 0);
    T_INT(n, 2ll << 30);
    T_INT(str_parse_size("64KiB", &n, NULL), 0);
    T_INT(n, 65536);
    T_INT(str_parse_size("1048576", &n, NULL), 0);
    T_INT(n, 1048576);
    T_INT(str_parse_size("1.5G", &n, NULL), -ERR_INVALID);
    T_INT(str_parse_size("", &n, NULL), -ERR_INVALID);
    T_INT(str_parse_size("99999999999T", &n, NULL), -ERR_INVALID);
}

TEST(str_sizes_and_durations_read_well)
{
    char out[32];

    T_STR(str_format_size(0, out, sizeof(out)), "0 B");
    T_STR(str_format_size(999, out, sizeof(out)), "999 B");
    T_STR(str_format_size(1500000, out, sizeof(out)), "1.5 MB");
    T_STR(str_format_size(170000000, out, sizeof(out)), "170 MB");
    T_STR(str_format_duration(1500, out, sizeof(out)), "1s");
    T_STR(str_format_duration(90 * 60000, out, sizeof(out)), "1h 30m");
    T_STR(str_format_duration(60000, out, sizeof(out)), "1m");
}

TEST(str_utf8_is_checked_strictly)
{
    T_OK(str_is_utf8("", 0));
    T_OK(str_is_utf8("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", 14));
    T_OK(str_is_utf8("a\0b", 3));
    T_OK(!str_is_utf8("\xc0\xaf", 2));         /* overlong */
    T_OK(!str_is_utf8("\xed\xa0\x80", 3));     /* a surrogate */
    T_OK(!str_is_utf8("\xf4\x90\x80\x80", 4)); /* past the last one */
    T_OK(!str_is_utf8("\xc3", 1));
    T_OK(!str_is_utf8("aaaaaaaaaaaaaaaa\xff", 17));
}

TEST(str_utf8_whole_never_cuts_a_sequence)
{
    const char *text = "a\xe2\x82\xac\xf0\x9f\x98\x80z";

    T_INT(str_utf8_whole(text, 1), 1);
    T_INT(str_utf8_whole(text, 2), 1);
    T_INT(str_utf8_whole(text, 3), 1);
    T_INT(str_utf8_whole(text, 4), 4);
    T_INT(str_utf8_whole(text, 5), 4);
    T_INT(str_utf8_whole(text, 7), 4);
    T_INT(str_utf8_whole(text, 8), 8);
    T_INT(str_utf8_whole(text, 9), 9);
    T_INT(str_utf8_whole("\xff\xff", 2), 2); /* not a cut sequence: no bytes are missing */
    T_INT(str_utf8_whole("", 0), 0);
}

TEST(str_clamp_keeps_whole_characters_of_one_line)
{
    static const struct {
        const char *text;
        size_t max;
        const char *begin, *end;
    } rows[] = {
        {"", 1, "", ""},
        {"abc", 3, "abc", "abc"},
        {"abcd", 3, "ab\xe2\x80\xa6",
         "\xe2\x80\xa6"
         "cd"},
        {"abcd", 1, "\xe2\x80\xa6", "\xe2\x80\xa6"},
        {" a\r\n\t\x1b[0m\x7f b \n", 9, "a [0m b", "a [0m b"},
        {"\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9z", 4, "\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9z",
         "\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9z"},
        {"\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9z", 3, "\xe2\x82\xac\xf0\x9f\x98\x80\xe2\x80\xa6",
         "\xe2\x80\xa6\xc3\xa9z"},
        {"\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9z", 2, "\xe2\x82\xac\xe2\x80\xa6", "\xe2\x80\xa6z"},
        {"a\xff\xe2\x82", 4, "a???", "a???"}, /* no UTF-8 */
        {"a\xc2\x9b"
         "b\xe2\x80\xae"
         "c",
         5, "a b c", "a b c"}, /* CSI, right to left */
    };

    for (size_t i = 0; i < N_ELEMENTS(rows); i++) {
        _cleanup_free_ char *begin = str_clamp(rows[i].text, rows[i].max);
        _cleanup_free_ char *end = str_clamp_end(rows[i].text, rows[i].max);

        T_STR(begin, rows[i].begin);
        T_STR(end, rows[i].end);
    }
}

TEST(str_secrets_are_equal_only_when_they_are)
{
    T_OK(str_secret_eq("abc", 3, "abc", 3));
    T_OK(!str_secret_eq("abc", 3, "abd", 3));
    T_OK(!str_secret_eq("abcabc", 6, "abc", 3));
    T_OK(!str_secret_eq("ab", 2, "abc", 3));
    T_OK(!str_secret_eq("", 0, "abc", 3));
}

TEST(strv_lists_grow_and_copy)
{
    _cleanup_strv_ char **v = NULL;
    _cleanup_strv_ char **copy = NULL;

    T_INT(strv_len(v), 0);
    T_INT(strv_push(&v, "a", NULL), 0);
    T_INT(strv_push(&v, "b", NULL), 0);
    copy = strv_dup(v);
    T_INT(strv_len(copy), 2);
    T_STR(copy[1], "b");
    T_OK(str_has_prefix("abc", "ab") && !str_has_prefix("a", "ab"));
    T_OK(str_has_suffix("abc", "bc") && !str_has_suffix("c", "bc"));
    T_OK(str_eq(NULL, NULL) && !str_eq("a", NULL));
}

static void check_escape(const char *in, size_t len, const char *keep, const char *want)
{
    size_t n = 0;
    char *got = str_escape(in, len, keep, &n);

    T_STR(got, want);
    T_INT(n, strlen(want));
    free(got);
}

TEST(str_escape_shows_controls_and_what_is_no_utf8)
{
    check_escape("plain \xc3\xa9 \\n", 11, "", "plain \xc3\xa9 \\n");
    check_escape("a\nb\tc\rd\0e\033[2J\x7f", 14, "", "a\\nb\\tc\\rd\\x00e\\x1b[2J\\x7f");
    check_escape("a\nb\tc\033", 6, "\n\t", "a\nb\tc\\x1b");
    /* C1 as UTF-8, C1 as a byte, a sequence that is cut; no-break space is no control. */
    check_escape("\xc2\x9b\xc2\x80\xc2\x9f\xc2\xa0", 8, "", "\\u009b\\u0080\\u009f\xc2\xa0");
    check_escape("\x9b\xff\xe2\x82", 4, "", "\\x9b\\xff\\xe2\\x82");
    check_escape("\xc2\x9b\xc2\x9b\xc2\x9b", 6, "", "\\u009b\\u009b\\u009b"); /* no room to spare */
    check_escape("", 0, "", "");
}

TEST(str_escape_shows_controls_that_change_the_direction_of_text)
{
    check_escape("exe\xe2\x80\xaegpj", 9, "", "exe\\u202egpj");
    check_escape("\xe2\x80\x8e\xe2\x80\x8f\xe2\x80\xaa\xe2\x81\xa6\xe2\x81\xa9\xd8\x9c", 17, "",
                 "\\u200e\\u200f\\u202a\\u2066\\u2069\\u061c");
    /* their neighbours stay: a zero-width joiner, a per mille sign, Arabic letters */
    check_escape("\xe2\x80\x8d\xe2\x80\xb0\xe2\x81\xa5\xe2\x81\xaa\xd8\x9b\xd8\xa7", 16, "",
                 "\xe2\x80\x8d\xe2\x80\xb0\xe2\x81\xa5\xe2\x81\xaa\xd8\x9b\xd8\xa7");
    check_escape("\xe2\x80", 2, "", "\\xe2\\x80");             /* cut */
    check_escape("\xd8\x9c\xd8\x9c", 4, "", "\\u061c\\u061c"); /* no room to spare */
}

TEST(str_hex_is_two_lower_case_digits_for_each_byte)
{
    char out[7];

    str_hex("\x00\x9f\xa0", 3, out);
    T_STR(out, "009fa0");
    str_hex("", 0, out);
    T_STR(out, "");
}
