/*
 * Request targets: decoding accepts exactly what a reference written from the rule accepts; a NUL
 * never passes; a parameter is found if and only if the reference finds it.
 */
#include "fuzz.h"

#include "common/str.h"
#include "http/route.h"

static int hex(uint8_t c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c | ('A' <= c && c <= 'F' ? 0x20 : 0)) : NULL;

    return at ? (int)(at - digits) : -1;
}

/* Decodes s into out and returns the length; -1: s must be refused. */
static ssize_t reference(const char *s, size_t len, bool plus, char *out)
{
    size_t n = 0;

    while (len) {
        int c = (uint8_t)*s;
        size_t used = 1;

        if (c == '%') {
            if (len < 3 || hex((uint8_t)s[1]) < 0 || hex((uint8_t)s[2]) < 0)
                return -1;
            c = hex((uint8_t)s[1]) << 4 | hex((uint8_t)s[2]);
            used = 3;
        } else if (plus && c == '+') {
            c = ' ';
        }
        if (!c)
            return -1;
        out[n++] = (char)c;
        s += used;
        len -= used;
    }
    out[n] = '\0';
    return (ssize_t)n;
}

static void check_decode(const char *s, size_t len)
{
    char *want = malloc(len + 1), *got = NULL;
    struct err e = {0};
    ssize_t n;
    int r;

    CHECK(want);
    n = reference(s, len, false, want);
    r = uri_decode(s, len, &got, &e);
    CHECK((r == 0) == (n >= 0));
    CHECK((r == 0) == (got != NULL));
    CHECK(r == 0 || e.code == ERR_INVALID);
    CHECK(r < 0 || strcmp(got, want) == 0);
    free(got);
    free(want);
}

/*
 * Returns the number of parameters of this name, and the value of the first; -1: must be refused.
 */
static int count_pairs(const char *query, const char *name, char *value)
{
    char *copy = strdup(query), *one = malloc(strlen(query) + 1), *rest = copy, *pair;
    int n = 0;

    CHECK(copy && one);
    while (n >= 0 && (pair = strsep(&rest, "&"))) {
        char *eq = strchr(pair, '=');
        size_t len = eq ? (size_t)(eq - pair) : strlen(pair);

        if (!*pair)
            continue;
        if (reference(pair, len, true, one) < 0) {
            n = -1;
        } else if (strcmp(one, name) == 0) {
            if (n++ > 0 || reference(eq ? eq + 1 : "", eq ? strlen(eq + 1) : 0, true, value) < 0)
                n = -1;
        }
    }
    free(one);
    free(copy);
    return n;
}

static void check_query(const char *query, const char *name)
{
    char *want = malloc(strlen(query) + 1), *got = NULL, *unknown = NULL;
    const char *known[] = {name, NULL};
    char **all = NULL;
    struct err e = {0};
    int n, r;

    CHECK(want);
    n = count_pairs(query, name, want);
    r = uri_query_get(query, name, &got, &e);
    CHECK((r == 0) == (n >= 0));
    CHECK(n != 0 || !got);
    CHECK(n <= 0 || (got && strcmp(got, want) == 0));
    r = uri_query_all(query, name, 4, &all, &e);
    CHECK(n < 0 || (r == 0 && strv_len(all) == (size_t)n));
    CHECK(r == 0 || !all);
    r = uri_query_unknown(query, known, &unknown, &e);
    CHECK(!unknown || (r == 0 && strcmp(unknown, name) != 0));
    free(unknown);
    strv_free(all);
    free(got);
    free(want);
}

FUZZ(data, size)
{
    struct fuzz_in in = {data, size};
    char *name, *query;

    check_decode((const char *)data, size);
    name = fuzz_str(&in, 16, NULL);
    query = fuzz_str(&in, 4096, NULL);
    check_query(query, name);
    free(query);
    free(name);
    return 0;
}
