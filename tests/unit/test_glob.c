/* search/pattern: globs, compared with a slow matcher of different design. */
#include "test.h"

#include <stdint.h>

#include "search/pattern.h"

static bool matches(const char *glob, const char *path)
{
    struct pattern *p = NULL;
    bool ok;

    T_INT(pattern_new(glob, strlen(glob), false, &p, NULL), 0);
    ok = pattern_match(p, path, strlen(path));
    pattern_free(p);
    return ok;
}

static void refuses(const char *glob, const char *why)
{
    struct pattern *p = NULL;
    struct err e = {0};

    T_INT(pattern_new(glob, strlen(glob), false, &p, &e), -ERR_INVALID);
    T_OK(strstr(e.message, why));
}

TEST(glob_star_and_question_mark_stop_at_a_slash)
{
    T_OK(matches("*.c", "a.c"));
    T_OK(!matches("*.c", "d/a.c"));
    T_OK(matches("d/?.c", "d/a.c"));
    T_OK(!matches("d?a.c", "d/a.c"));
    T_OK(matches("*", ""));
    T_OK(!matches("?", ""));
}

TEST(glob_two_stars_stand_for_whole_components)
{
    T_OK(matches("**/a", "a"));
    T_OK(matches("**/a", "x/y/a"));
    T_OK(!matches("**/a", "xa"));
    T_OK(matches("a/**/b", "a/b"));
    T_OK(matches("a/**/b", "a/x/y/b"));
    T_OK(!matches("a/**/b", "axb"));
    T_OK(matches("a/**", "a/x/y"));
    T_OK(!matches("a/**", "a"));
    T_OK(matches("**", "any/thing"));
    T_OK(matches("a**b", "axxb"));
    T_OK(!matches("a**b", "a/b"));
    T_OK(matches("a/**/**/b", "a/b"));
}

TEST(glob_classes_have_ranges_and_negation)
{
    T_OK(matches("[a-c]", "b"));
    T_OK(!matches("[a-c]", "d"));
    T_OK(matches("[!a-c]", "d"));
    T_OK(matches("[^a]", "b"));
    T_OK(matches("[]]", "]"));
    T_OK(matches("[a-]", "-"));
    T_OK(matches("[-a]", "-"));
    T_OK(matches("[\\\\]", "\\"));
}

TEST(glob_braces_are_alternatives)
{
    T_OK(matches("*.{c,h}", "a.c"));
    T_OK(matches("*.{c,h}", "a.h"));
    T_OK(!matches("*.{c,h}", "a.x"));
    T_OK(matches("{a,b*}/c", "bbb/c"));
    T_OK(!matches("{a,}", "")); /* as in ripgrep: an empty alternative does not exist */
    T_OK(matches("a{}b", "ab"));
    T_OK(matches("a,b", "a,b"));
}

TEST(glob_backslash_takes_the_next_byte)
{
    T_OK(matches("\\*", "*"));
    T_OK(!matches("\\*", "a"));
    T_OK(matches("\\{a\\}", "{a}"));
}

TEST(glob_says_what_is_wrong)
{
    refuses("a[b", "a '[' without ']'");
    refuses("{a", "a '{' without '}'");
    refuses("{a,{b,c}}", "a '{' within '{}'");
    refuses("a\\", "a '\\' at the end");
    refuses("[z-a]", "ends before it starts");
}

TEST(glob_of_the_greatest_length_compiles_and_one_more_byte_is_refused)
{
    char glob[PATTERN_MAX_BYTES + 2];
    struct pattern *p = NULL;

    for (size_t i = 0; i < sizeof(glob) - 1; i++)
        glob[i] = i % 2 ? 'a' : '*';
    T_INT(pattern_new(glob, PATTERN_MAX_BYTES, false, &p, NULL), 0);
    pattern_free(p);
    memset(glob, ',', PATTERN_MAX_BYTES);
    glob[0] = '{';
    glob[PATTERN_MAX_BYTES - 1] = '}';
    T_INT(pattern_new(glob, PATTERN_MAX_BYTES, false, &p, NULL), 0);
    pattern_free(p);
    T_INT(pattern_new(glob, PATTERN_MAX_BYTES + 1, false, &p, NULL), -ERR_INVALID);
}

/* A glob on which backtracking matchers take for ever. */
TEST(glob_matching_takes_no_exponential_time)
{
    char path[4001];

    memset(path, 'a', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    T_OK(!matches("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b*", path));
    T_OK(!matches("**/{a,aa,a*}*{a,aa,a*}*{a,aa,a*}*{a,aa,a*}*b", path));
}

/* --- the slow matcher: it tries everything, and reads the glob as it goes --- */

/* Does s[0..n) match glob[0..m), which has *, ?, "**" as components, [..] and no braces? */
static bool slow(const char *g, size_t m, const char *s, size_t n, bool start)
{
    if (!m)
        return !n;
    if (start && m >= 3 && strncmp(g, "**/", 3) == 0) {
        if (slow(g + 3, m - 3, s, n, m > 3 && g[3] == '*'))
            return true;
        for (size_t i = 0; i < n; i++)
            if (s[i] == '/' && slow(g + 3, m - 3, s + i + 1, n - i - 1, m > 3 && g[3] == '*'))
                return true;
        return false;
    }
    if (m == 3 && strncmp(g, "/**", 3) == 0)
        return n && s[0] == '/';
    if (m >= 4 && strncmp(g, "/**/", 4) == 0) {
        if (!n || s[0] != '/')
            return false;
        return slow(g + 1, m - 1, s + 1, n - 1, true);
    }
    if (g[0] == '*') {
        for (size_t i = 0; i <= n; i++) {
            if (slow(g + 1, m - 1, s + i, n - i, false))
                return true;
            if (i < n && s[i] == '/')
                return false;
        }
        return false;
    }
    if (!n)
        return false;
    if (g[0] == '?')
        return s[0] != '/' && slow(g + 1, m - 1, s + 1, n - 1, false);
    if (g[0] == '[') /* only [ab] is generated */
        return (s[0] == g[1] || s[0] == g[2]) && slow(g + 4, m - 4, s + 1, n - 1, false);
    return g[0] == s[0] && slow(g + 1, m - 1, s + 1, n - 1, false);
}

static uint64_t state = 88172645463325252u;

static unsigned pick(unsigned n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 20) % n;
}

/* Whole components, so that "**" means the same at every place. */
static void make_glob(char *out, size_t size)
{
    static const char *const parts[] = {"**", "a", "*", "a*", "*b", "?", "[ab]", "ab", "*a*", "b?"};
    size_t at = 0;

    for (unsigned n = 1 + pick(4); n; n--)
        at += (size_t)snprintf(out + at, size - at, "%s%s", parts[pick(10)], n > 1 ? "/" : "");
}

TEST(glob_equals_the_slow_matcher)
{
    char glob[64], path[16];

    for (unsigned i = 0; i < 20000; i++) {
        struct pattern *p = NULL;

        make_glob(glob, sizeof(glob));
        T_INT(pattern_new(glob, strlen(glob), false, &p, NULL), 0);
        for (unsigned k = 0; k < 10; k++) {
            size_t n = pick(8);
            bool all = strspn(glob, "*/") == strlen(glob) && strstr(glob, "**") == glob;

            for (size_t at = 0; at < n; at++)
                path[at] = "ab/c"[pick(4)];
            path[n] = '\0';
            if (all) /* "**" and "**" + '/' + "**" match everything; the slow one has no rule */
                continue;
            if (pattern_match(p, path, n) != slow(glob, strlen(glob), path, n, true))
                t_fail(__FILE__, __LINE__, "'%s' and '%s' disagree", glob, path);
        }
        pattern_free(p);
    }
}
