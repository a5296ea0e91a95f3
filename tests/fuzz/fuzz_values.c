/*
 * Small values of requests: numbers, sizes, durations, dates, times, ports, signals, base64. A
 * number is accepted if and only if the C library and the rule of its spelling accept it; a value
 * with one spelling is written as it was read; a refusal leaves the result unchanged.
 * fuzz-flags: -max_len=128
 */
#include "fuzz.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>

#include "common/signals.h"
#include "common/str.h"
#include "dialect/e2b/proto.h"
#include "http/range.h"
#include "event/dial.h"

static void check_numbers(const char *s)
{
    const char *digits = *s == '-' ? s + 1 : s;
    bool is_plain = *digits && strspn(digits, "0123456789") == strlen(digits);
    uint64_t u = 7;
    int64_t i = 7;
    int64_t want_i;
    uint64_t want_u;
    bool fits_i, fits_u;

    errno = 0;
    want_i = strtoll(s, NULL, 10);
    fits_i = is_plain && errno == 0;
    errno = 0;
    want_u = strtoull(s, NULL, 10);
    fits_u = is_plain && *s != '-' && errno == 0;
    CHECK((str_parse_i64(s, INT64_MIN, INT64_MAX, &i, NULL) == 0) == fits_i);
    CHECK(i == (fits_i ? want_i : 7));
    CHECK((str_parse_u64(s, 0, UINT64_MAX, &u, NULL) == 0) == fits_u);
    CHECK(u == (fits_u ? want_u : 7));
    CHECK(str_parse_u64(s, 10, 20, &u, NULL) < 0 || (want_u >= 10 && want_u <= 20));
}

static void check_units(const char *s)
{
    uint64_t bytes = 7;
    int64_t ms = 7;
    int r = str_parse_size(s, &bytes, NULL);

    CHECK(r == 0 || bytes == 7);
    CHECK(r < 0 || isdigit((unsigned char)*s));
    r = str_parse_duration(s, &ms, NULL);
    CHECK(r == 0 ? ms >= 0 && isdigit((unsigned char)*s) : ms == 7);
}

static void check_times(const char *s)
{
    char text[RANGE_DATE_BYTES];
    int64_t ns = 7;
    time_t t = 7, again = 0;

    if (range_parse_date(s, &t)) {
        range_format_date(t, text);
        CHECK(range_parse_date(text, &again) && again == t);
    }
    CHECK(proto_parse_time(s, &ns, NULL) == 0 || ns == 7);
}

static void check_words(const char *s)
{
    char name[SIGNAL_NAME_BYTES];
    const char *end = NULL;
    uint16_t port = 0;
    int sig = 0, again = 0;

    if (signal_parse(s, &sig, NULL) == 0) {
        CHECK(sig > 0 && sig <= SIGRTMAX);
        CHECK(signal_parse(signal_name(sig, name), &again, NULL) == 0 && again == sig);
    }
    if (dial_parse_port(s, &port, &end, NULL) == 0) {
        CHECK(port > 0 && end > s && end <= s + strlen(s) && strchr("/?", *end));
        CHECK(strtoul(s, NULL, 10) == port);
    }
}

static void check_b64(const char *s, size_t len)
{
    char *out = malloc(len + 4), *back = malloc(B64_LEN(len) + 4);
    size_t n = 0;

    CHECK(out && back);
    if (b64_decode(s, len, out, &n, NULL) == 0) {
        CHECK(n <= len / 4 * 3 && B64_LEN(n) == len);
        b64_encode(out, n, back);
        /* Except the unused bits of the last character. */
        CHECK(memcmp(back, s, n / 3 * 4 + n % 3) == 0);
    }
    b64_encode(s, len, back);
    free(out);
    out = malloc(B64_LEN(len) + 4);
    CHECK(out && b64_decode(back, B64_LEN(len), out, &n, NULL) == 0);
    CHECK(n == len && memcmp(out, s, len) == 0);
    free(out);
    free(back);
}

FUZZ(data, size)
{
    struct fuzz_in in = {data, size};
    size_t len;
    char *s = fuzz_str(&in, size, &len);

    check_numbers(s);
    check_units(s);
    check_times(s);
    check_words(s);
    check_b64(s, len);
    free(s);
    return 0;
}
