/*
 * Globs: pattern_match() agrees with PCRE2 on the regular expression that this target derives from
 * the rules; and matching without case equals matching in lower case.
 * fuzz-flags: -max_len=160
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "fuzz.h"

#include <ctype.h>
#include <pcre2.h>

#include "common/buf.h"
#include "search/pattern.h"

#define GLOB_MAX 48
#define STEPS 200000

struct reader {
    const char *glob;
    size_t len, at;
    struct buf re;
};

static void put(struct reader *r, const char *s)
{
    CHECK(buf_adds(&r->re, s, NULL) == 0);
}

static void put_byte(struct reader *r, char c)
{
    CHECK(buf_addf(&r->re, NULL, "\\x%02x", (unsigned char)c) == 0);
}

static bool is_at(const struct reader *r, size_t at, const char *s)
{
    size_t n = strlen(s);

    return r->len - at >= n && memcmp(r->glob + at, s, n) == 0;
}

/* After "[": writes the members as hexadecimal numbers. The implementation has checked the form. */
static void class(struct reader *r)
{
    bool first = true, negated = is_at(r, r->at, "!") || is_at(r, r->at, "^");
    int from = -1;
    bool range = false;

    r->at += negated;
    put(r, negated ? "[^" : "[");
    for (; first || r->glob[r->at] != ']'; first = false) {
        char c = r->glob[r->at++];

        if (c == '-' && !first && !range) {
            range = true;
            continue;
        }
        if (range)
            CHECK(buf_addf(&r->re, NULL, "\\x%02x-", from) == 0);
        put_byte(r, c);
        from = (unsigned char)c;
        range = false;
    }
    if (range)
        put_byte(r, '-');
    put(r, "]");
    r->at++;
}

/* Only globs without braces, and "**" only as a prefix: unit tests cover the rest. */
static bool is_simple(const char *glob, size_t len)
{
    const char *p = glob, *end = glob + len;

    while (end - p >= 3 && memcmp(p, "**/", 3) == 0)
        p += 3;
    if (p == end)
        return false;
    for (; p < end; p++) {
        if (*p == '{' || *p == '}' || (*p == '*' && p + 1 < end && p[1] == '*'))
            return false;
        if (*p == '\\' && ++p == end)
            return false;
    }
    return true;
}

static void translate(struct reader *r)
{
    put(r, is_at(r, 0, "**/") ? "\\A(?:/?|.*/)" : "\\A");
    while (is_at(r, r->at, "**/"))
        r->at += 3;
    while (r->at < r->len) {
        char c = r->glob[r->at++];

        if (c == '*')
            put(r, "[^/]*");
        else if (c == '?')
            put(r, "[^/]");
        else if (c == '[')
            class(r);
        else if (c == '\\')
            put_byte(r, r->glob[r->at++]);
        else
            put_byte(r, c);
    }
    put(r, "\\z");
}

/* Returns 1, 0, or a negative number when PCRE2 gives up. */
static int reference(const char *glob, size_t len, bool caseless, const char *path, size_t path_len)
{
    struct reader r = {.glob = glob, .len = len, .re = {.max = 65536}};
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    pcre2_code *code;
    PCRE2_SIZE at;
    int error, rc;

    translate(&r);
    code = pcre2_compile((PCRE2_SPTR)r.re.data, r.re.len,
                         PCRE2_DOTALL | (caseless ? PCRE2_CASELESS : 0), &error, &at, NULL);
    CHECK(code && context && data);
    (void)pcre2_set_match_limit(context, STEPS);
    rc = pcre2_match(code, (PCRE2_SPTR)path, path_len, 0, 0, data, context);
    pcre2_code_free(code);
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    buf_done(&r.re);
    return rc == PCRE2_ERROR_NOMATCH ? 0 : rc < 0 ? rc : 1;
}

FUZZ(data, size)
{
    struct fuzz_in in = {data, size};
    bool caseless = fuzz_byte(&in) & 1;
    size_t glob_len, path_len;
    char *glob = fuzz_str(&in, GLOB_MAX, &glob_len), *path = fuzz_str(&in, 100, &path_len);
    struct pattern *p = NULL;
    struct err e = {0};
    int r = pattern_new(glob, glob_len, caseless, &p, &e), want;

    CHECK((r == 0) == (p != NULL));
    CHECK(r == 0 || e.code == ERR_INVALID);
    if (p && path_len && path[0] != '/' && is_simple(glob, glob_len)) {
        bool got = pattern_match(p, path, path_len);
        int last = pattern_last_byte(p);

        want = reference(glob, glob_len, caseless, path, path_len);
        CHECK(want < 0 || got == want);
        CHECK(!got || last < 0 || (unsigned char)path[path_len - 1] == last);
    }
    pattern_free(p);
    free(glob);
    free(path);
    return 0;
}
