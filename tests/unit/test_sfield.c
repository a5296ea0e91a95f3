#include "test.h"

#include "http/sfield.h"

static struct err e;

TEST(sfield_items_are_read_and_nothing_else_is)
{
    static const struct {
        const char *text;
        int type; /* -1: none */
        long long integer;
    } rows[] = {
        {"1", SF_INTEGER, 1},
        {" 42 ", SF_INTEGER, 42},
        {"-999999999999999", SF_INTEGER, -999999999999999LL},
        {"1000000000000000", -1, 0},
        {"1.5", SF_DECIMAL, 1},
        {"1.", -1, 0},
        {"1.2345", -1, 0},
        {"?1", SF_BOOL, 0},
        {"?2", -1, 0},
        {"?", -1, 0},
        {"\"a \\\" b\"", SF_STRING, 0},
        {"\"a", -1, 0},
        {"\"a\\", -1, 0},
        {"\"a\\x\"", -1, 0},
        {"\"\x01\"", -1, 0},
        {"tok*en/x:y", SF_TOKEN, 0},
        {"*", SF_TOKEN, 0},
        {":YWJj:", SF_BYTES, 0},
        {":YWJj", -1, 0},
        {"@1659578233", SF_DATE, 1659578233},
        {"@1.5", -1, 0},
        {"%\"caf%c3%a9\"", SF_DISPLAY, 0},
        {"%\"caf%C3\"", -1, 0},
        {"%\"caf%c", -1, 0},
        {"5;a=1;b; c=\"x\"", SF_INTEGER, 5},
        {"5;", -1, 0},
        {"5;A", -1, 0},
        {"5 6", -1, 0},
        {"5,6", -1, 0},
        {"", -1, 0},
        {"-", -1, 0},
        {"=", -1, 0},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sf_value v = {0};
        int r = sf_item(rows[i].text, &v, &e);

        if (r != (rows[i].type < 0 ? -ERR_INVALID : 0) ||
            (r == 0 && ((int)v.type != rows[i].type || v.integer != rows[i].integer)))
            t_fail(__FILE__, __LINE__, "'%s' gives %d, type %d, %lld", rows[i].text, r, (int)v.type,
                   (long long)v.integer);
    }
}

static int count(const char *key, size_t len, const struct sf_value *v, void *arg, struct err *err)
{
    (void)key;
    (void)len;
    (void)v;
    (void)err;
    ++*(int *)arg;
    return 0;
}

TEST(sfield_dictionaries_are_read_and_nothing_else_is)
{
    static const struct {
        const char *text;
        int n; /* -1: none */
    } rows[] = {
        {"", 0},
        {"a", 1},
        {"a, b;x=1 ,\tc=?0", 3},
        {"a=(1 2 \"x\";y), b=()", 2},
        {"a=1,", -1},
        {",a", -1},
        {"a=", -1},
        {"A=1", -1},
        {"a=(1", -1},
        {"a=(1\t2)", -1},
        {"a=1 b=2", -1},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int n = 0;
        int r = sf_dictionary(rows[i].text, count, &n, &e);

        if (r != (rows[i].n < 0 ? -ERR_INVALID : 0) || (r == 0 && n != rows[i].n))
            t_fail(__FILE__, __LINE__, "'%s' gives %d, %d", rows[i].text, r, n);
    }
}

#define ABC "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="

TEST(digest_fields_give_the_one_that_we_know)
{
    static const struct {
        const char *text;
        int r;
        bool found;
    } rows[] = {
        {"sha-256=:" ABC ":", 0, true},
        {"sha-512=:AAAA:, sha-256=:" ABC ":", 0, true},
        {"sha-256=:" ABC ":;x=1, md5=:AAAA:", 0, true},
        {"sha-512=:AAAA:", 0, false},
        {"", 0, false},
        {"sha-256=" ABC, -ERR_INVALID, false},
        {"sha-256=:" ABC, -ERR_INVALID, false},
        {"sha-256=:AAAA:", -ERR_INVALID, false},
        {"sha-256=:" ABC ":, md5=1", -ERR_INVALID, false},
        {"sha-256", -ERR_INVALID, false},
        {"sha-256=::", -ERR_INVALID, false},
    };
    char text[DIGEST_TEXT_BYTES];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t digest[DIGEST_BYTES] = {0};
        bool found = false;
        int r = digest_read("Repr-Digest", rows[i].text, digest, &found, &e);

        if (r != rows[i].r || found != rows[i].found)
            t_fail(__FILE__, __LINE__, "'%s' gives %d, %d", rows[i].text, r, found);
        if (r < 0)
            T_STR(e.field, "Repr-Digest");
        if (found) {
            digest_write(digest, text);
            T_STR(text, "sha-256=:" ABC ":");
        }
    }
}

TEST(digest_fields_of_the_older_kind_are_read_too)
{
    uint8_t digest[DIGEST_BYTES];
    bool found = false;

    T_INT(digest_read_old("SHA-256=" ABC, digest, &found, &e), 0);
    T_OK(found && digest[0] == 0xba);
    T_INT(digest_read_old("unixsum=30637, sha-256=" ABC, digest, &found, &e), 0);
    T_OK(found);
    T_INT(digest_read_old("unixsum=30637", digest, &found, &e), 0);
    T_OK(!found);
    T_INT(digest_read_old("sha-256=AAAA", digest, &found, &e), -ERR_INVALID);
}

TEST(digest_wishes_count_when_they_are_for_what_we_know)
{
    T_OK(digest_is_wanted("sha-256=1"));
    T_OK(digest_is_wanted("sha-512=3, sha-256=10"));
    T_OK(!digest_is_wanted("sha-256=0"));
    T_OK(!digest_is_wanted("sha-256=1, sha-256=0"));
    T_OK(!digest_is_wanted("sha-512=3"));
    T_OK(!digest_is_wanted("sha-256"));
    T_OK(!digest_is_wanted("sha-256=11"));
    T_OK(!digest_is_wanted("sha-256=1 x"));
    T_OK(!digest_is_wanted(""));
}
