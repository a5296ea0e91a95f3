#include "test.h"

#include "dialect/e2b/meta.h"
#include "dialect/e2b/sign.h"
#include "dialect/e2b/timetext.h"
#include "server/e2b/accept.h"
#include "server/e2b/media.h"
#include "server/range.h"

TEST(signatures_are_those_of_the_sdk)
{
    char out[SIGN_TEXT_BYTES];

    sign_file("hello.txt", "read", "user", "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0", NULL, out);
    T_STR(out, "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E");
    sign_file("hello.txt", "read", "user", "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0", "1", out);
    T_OK(strcmp(out, "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E") != 0);
    T_INT((long long)strlen(out), SIGN_TEXT_BYTES - 2);
}

TEST(times_that_do_not_fit_are_refused)
{
    int64_t ns = 7;

    T_INT(timetext_parse("2026-11-22T02:35:00.5+01:00", &ns, NULL), 0);
    T_OK(ns == 1795311300500000000);
    ns = 7;
    T_INT(timetext_parse("9999-12-31T23:59:59Z", &ns, NULL), -ERR_INVALID);
    T_INT(timetext_parse("0001-01-01T00:00:00Z", &ns, NULL), -ERR_INVALID);
    T_INT(ns, 7);
}

TEST(a_download_is_compressed_for_who_asks_for_nothing_else)
{
    static const struct {
        const char *header;
        enum coding whole, part;
    } rows[] = {
        {NULL, CODING_IDENTITY, CODING_IDENTITY},
        {"", CODING_IDENTITY, CODING_IDENTITY},
        {"gzip", CODING_GZIP, CODING_IDENTITY},
        {"GZIP;q=0.1", CODING_GZIP, CODING_IDENTITY},
        {"gzip;q=0", CODING_IDENTITY, CODING_IDENTITY},
        {"gzip, deflate", CODING_IDENTITY, CODING_IDENTITY},
        {"gzip, deflate, br, zstd", CODING_IDENTITY, CODING_IDENTITY},
        {"gzip, deflate;q=0", CODING_GZIP, CODING_IDENTITY},
        {"identity", CODING_IDENTITY, CODING_IDENTITY},
        {"gzip, identity;q=0.5", CODING_GZIP, CODING_IDENTITY},
        {"gzip;q=0.5, identity", CODING_IDENTITY, CODING_IDENTITY},
        {"gzip;q=0.5, identity;q=0.501", CODING_IDENTITY, CODING_IDENTITY},
        {"gzip, identity;q=0", CODING_GZIP, CODING_NONE},
        {"gzip, deflate, identity; q=0.0", CODING_GZIP, CODING_NONE},
        {"deflate, *;q=0", CODING_NONE, CODING_NONE},
        {"gzip, *;q=0", CODING_GZIP, CODING_NONE},
        {"*;q=0, identity", CODING_IDENTITY, CODING_IDENTITY},
        {"*", CODING_IDENTITY, CODING_IDENTITY},
        {"*, identity;q=0", CODING_GZIP, CODING_NONE},
        {"br", CODING_IDENTITY, CODING_IDENTITY},
        {"identity;q=0", CODING_NONE, CODING_NONE},
        {"identity;q=0, br", CODING_NONE, CODING_NONE},
        {" , ;q=1,", CODING_IDENTITY, CODING_IDENTITY},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        T_INT(accept_coding(rows[i].header, true), rows[i].whole);
        T_INT(accept_coding(rows[i].header, false), rows[i].part);
    }
}

TEST(notes_on_files_have_limits)
{
    static char key[300], value[5000];
    struct meta m = {0};
    struct err e = {0};

    T_INT(meta_add(&m, "Author", "me", &e), 0);
    T_INT(meta_add(&m, "author", "you", &e), 0); /* the first counts */
    T_INT((long long)m.n, 1);
    T_STR(m.v[0].key, "author");
    T_STR(m.v[0].value, "me");
    T_INT(meta_add(&m, "", "x", &e), -ERR_INVALID);
    T_INT(meta_add(&m, "a", "\xc3\xa4", &e), -ERR_INVALID);
    T_STR(e.message, "invalid metadata: metadata value for key \"a\" contains non-printable-ASCII "
                     "byte 0xc3 at offset 0");
    memset(key, 'k', META_KEY_MAX_BYTES + 1);
    T_INT(meta_add(&m, key, "x", &e), -ERR_INVALID);
    key[META_KEY_MAX_BYTES] = '\0';
    T_INT(meta_add(&m, key, "x", &e), 0);
    T_INT(meta_check(&m, &e), 0);
    /* 9 + 6 + 2, 9 + 246 + 1, 9 + 1: together 4096 */
    memset(value, 'v', META_TOTAL_MAX_BYTES - 17 - 256 - 10);
    T_INT(meta_add(&m, "v", value, &e), 0);
    T_INT(meta_check(&m, &e), 0);
    T_INT(meta_add(&m, "w", "", &e), 0);
    T_INT(meta_check(&m, &e), -ERR_INVALID);
    T_STR(e.message, "invalid metadata: total metadata size 4106 exceeds 4096 bytes");
    meta_done(&m);
}

TEST(downloads_are_named_as_headers_can)
{
    static const struct {
        const char *name, *want;
    } rows[] = {
        {"a.txt", "inline; filename=\"a.txt\""},
        {"a \"b\"\\", "inline; filename=\"a \\\"b\\\"\\\\\""},
        {"\xc3\xa4 b", "inline; filename*=utf-8''%C3%A4%20b"},
        {"a\nb", "inline; filename*=utf-8''a%0Ab"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *got = media_disposition(rows[i].name);

        T_STR(got, rows[i].want);
        free(got);
    }
    T_STR(media_type("/a/b.HTML"), "text/html; charset=utf-8");
    T_STR(media_type("/a.html/b"), "application/octet-stream");
}

TEST(dates_of_headers_are_read_in_three_forms)
{
    time_t t = 0;

    T_OK(range_parse_date("Sun, 06 Nov 1994 08:49:37 GMT", &t) && t == 784111777);
    t = 0;
    T_OK(range_parse_date("Sunday, 06-Nov-94 08:49:37 GMT", &t) && t == 784111777);
    t = 0;
    T_OK(range_parse_date("Sun Nov  6 08:49:37 1994", &t) && t == 784111777);
    T_OK(!range_parse_date("yesterday", &t));
    T_OK(!range_parse_date("Sun, 06 Nov 1994 08:49:37 GMT+1", &t));
}
