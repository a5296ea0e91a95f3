#include "test.h"

#include "http/range.h"

/* "0+5,7+2": the ranges; NULL: WHOLE; "": NONE. */
static const char *text_of(const char *header, uint64_t size)
{
    static char out[1024];
    struct range_set set = {0};
    size_t n = 0;

    switch (range_parse(header, size, &set)) {
    case RANGE_WHOLE:
        return NULL;
    case RANGE_NONE:
        return "";
    case RANGE_PART:
        break;
    }
    for (size_t i = 0; i < set.n; i++)
        n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%llu+%llu", i ? "," : "",
                              (unsigned long long)set.v[i].first, (unsigned long long)set.v[i].len);
    return out;
}

TEST(range_headers_are_read_as_http_has_them)
{
    static const struct {
        const char *header;
        unsigned long long size;
        const char *want;
    } rows[] = {
        {NULL, 10, NULL},
        {"bytes=0-0", 10, "0+1"},
        {"bytes=3-", 10, "3+7"},
        {"bytes=-3", 10, "7+3"},
        {"bytes=-30", 10, "0+10"},
        {"bytes=2-99", 10, "2+8"},
        {"bytes=2-99999999999999999999", 10, "2+8"},
        {"bytes=10-", 10, ""},
        {"bytes=-0", 10, ""},
        {"bytes=0-", 0, ""},
        {"bytes=-1", 0, ""},
        {"bytes=99999999999999999999-", 10, ""},
        {"bytes=18446744073709551615-", 10, ""},
        {"bytes=5-2", 10, NULL},
        {"bytes=", 10, NULL},
        {"bytes=-", 10, NULL},
        {"bytes=,", 10, NULL},
        {"bytes=x-2", 10, NULL},
        {"bytes=1-2x", 10, NULL},
        {"bytes=1 -2", 10, NULL},
        {"pages=1-2", 10, NULL},
        {"bytes 1-2", 10, NULL},
        {"BYTES=1-1", 10, "1+1"},
        {"bytes= 1-1 , ", 10, "1+1"},
        /* several */
        {"bytes=0-0,500-500", 1000, "0+1,500+1"},
        {"bytes=500-500,0-0", 1000, "500+1,0+1"},
        {"bytes=0-0,,\t-1", 1000, "0+1,999+1"},
        {"bytes=0-0,2000-3000", 1000, "0+1"},
        {"bytes=3000-,2000-3000", 1000, ""},
        {"bytes=0-0,7-3", 1000, NULL},
        /* ranges that touch, or nearly, are joined at the place of the first */
        {"bytes=0-9,5-19", 1000, "0+20"},
        {"bytes=0-9,10-19", 1000, "0+20"},
        {"bytes=0-0,127-127", 1000, "0+128"},
        {"bytes=0-0,128-128", 1000, "0+129"},
        {"bytes=0-0,129-129", 1000, "0+1,129+1"},
        {"bytes=900-,0-9,400-500,5-450", 1000, "900+100,0+501"},
        {"bytes=0-,0-,0-,0-", 1000, "0+1000"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *got = text_of(rows[i].header, rows[i].size);

        if (!got != !rows[i].want || (got && strcmp(got, rows[i].want) != 0))
            t_fail(__FILE__, __LINE__, "'%s' of %llu gives %s, not %s", rows[i].header,
                   rows[i].size, got ? got : "all", rows[i].want ? rows[i].want : "all");
    }
}

/* n ranges of one byte, `step` apart. */
static const char *many(int n, int step)
{
    static char out[4096];
    size_t len = (size_t)snprintf(out, sizeof(out), "bytes=");

    for (int i = 0; i < n; i++)
        len += (size_t)snprintf(out + len, sizeof(out) - len, "%s%d-%d", i ? "," : "", i * step,
                                i * step);
    return out;
}

TEST(range_headers_with_too_many_ranges_are_left_alone)
{
    T_OK(text_of(many(RANGE_MAX_PARTS, 1000), 1000000));
    T_OK(!text_of(many(RANGE_MAX_PARTS + 1, 1000), 1000000));
    T_STR(text_of(many(RANGE_MAX_ASKED, 1), 1000000), "0+64");
    T_OK(!text_of(many(RANGE_MAX_ASKED + 1, 1), 1000000));
}

TEST(range_places_are_read_as_http_has_them)
{
    static const struct {
        const char *header;
        bool is_place, has_size;
        unsigned long long first, len, size;
    } rows[] = {
        {"bytes 0-0/*", true, false, 0, 1, 0},
        {"bytes 5-9/10", true, true, 5, 5, 10},
        {"Bytes 5-9/20 ", true, true, 5, 5, 20},
        {"bytes 5-9/9", .is_place = false},
        {"bytes 9-5/*", .is_place = false},
        {"bytes */10", .is_place = false},
        {"bytes 5-/10", .is_place = false},
        {"bytes 5-9", .is_place = false},
        {"bytes 5-9/", .is_place = false},
        {"bytes 5-9/*x", .is_place = false},
        {"bytes=5-9/*", .is_place = false},
        {"bytes 5-9223372036854775807/*", .is_place = false},
        {"bytes 0-99999999999999999999/*", .is_place = false},
        {"", .is_place = false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct range_place p = {0};
        struct err e = {0};
        int r = range_parse_place(rows[i].header, &p, &e);

        if (r != (rows[i].is_place ? 0 : -ERR_INVALID) || p.range.first != rows[i].first ||
            p.range.len != rows[i].len || p.has_size != rows[i].has_size || p.size != rows[i].size)
            t_fail(__FILE__, __LINE__, "'%s'", rows[i].header);
        if (r < 0)
            T_STR(e.field, "Content-Range");
    }
}

TEST(range_dates_are_http_dates)
{
    char out[RANGE_DATE_BYTES];

    range_format_date(784111777, out);
    T_STR(out, "Sun, 06 Nov 1994 08:49:37 GMT");
}
