/* search/match and its parts: literals, the scanner, the rewriting of patterns. */
#include "test.h"

#include <stdint.h>

#include "search/regex.h"
#include "search/match.h"
#include "search/scan.h"

static struct match *compiled(const char *pattern, struct match_options o)
{
    struct match *m = NULL;
    struct err e = {0};

    o.pattern = pattern;
    o.len = strlen(pattern);
    if (match_new(&o, &m, &e) < 0)
        t_fail(__FILE__, __LINE__, "'%s': %s", pattern, e.message);
    return m;
}

/* The numbers of the lines that match: "1 3". */
static const char *lines(const char *pattern, struct match_options o, const char *text)
{
    static char out[256];
    struct match *m = compiled(pattern, o);
    struct matcher *w = NULL;
    struct match_span line;
    size_t from = 0, n = 0, at = 0, number = 1;

    T_INT(matcher_new(m, &w, NULL), 0);
    matcher_set_text(w, text, strlen(text));
    out[0] = '\0';
    while (matcher_find_line(w, from, &line, NULL) > 0) {
        for (; at < line.start; at++)
            number += text[at] == '\n';
        n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%zu", n ? " " : "", number);
        from = line.end + 1;
    }
    matcher_free(w);
    match_free(m);
    return out;
}

static const struct match_options plain;

TEST(match_a_line_is_a_text_of_its_own)
{
    T_STR(lines("foo", plain, "a\nfoo\nbfoo\n"), "2 3");
    T_STR(lines("^$", plain, "a\n\nb\n"), "2");
    T_STR(lines("a\\s+b", plain, "a b\na\nb\n"), "1");
    T_STR(lines("[^x]+$", plain, "a\nx\n"), "1");
    T_STR(lines("\\Ab", plain, "a\nb\n"), "2");
    T_STR(lines("a\\z", plain, "a\nb\n"), "1");
    T_STR(lines("a\\nb", plain, "a\nb\n"), "");
    T_STR(lines("(?s)a.b", plain, "a\nb\na.b\n"), "3");
    T_STR(lines("x*", plain, "a\nb"), "1 2");
    T_STR(lines("(?<!\\n)b", plain, "a\nb\n"), "2");
}

TEST(match_case_can_be_smart)
{
    const struct match_options smart = {.letters = MATCH_SMART};
    const struct match_options any = {.letters = MATCH_INSENSITIVE};

    T_STR(lines("foo", plain, "FOO\nfoo\n"), "2");
    T_STR(lines("foo", any, "FOO\nfoo\n"), "1 2");
    T_STR(lines("foo", smart, "FOO\nfoo\n"), "1 2");
    T_STR(lines("Foo", smart, "FOO\nFoo\n"), "2");
    T_STR(lines("foo\\S", smart, "FOOx\n"), "1");
    T_STR(lines("\xc3\xa9t\xc3\xa9", any, "\xc3\x89T\xc3\x89\n"), "1");
    T_STR(lines("sk", any, "\xc5\xbf\xe2\x84\xaa\n"), "1"); /* long s and the Kelvin sign */
}

TEST(match_word_line_and_fixed_wrap_the_pattern)
{
    T_STR(lines("a|ab", (struct match_options){.word = true}, "ab\nxab\na-b\n"), "1 3");
    T_STR(lines("a|ab", (struct match_options){.line = true}, "ab\nabc\n"), "1");
    T_STR(lines("a.b*", (struct match_options){.fixed = true}, "axb\na.b*\n"), "2");
    T_STR(lines("#x]", (struct match_options){.fixed = true}, "#x]\n"), "1");
}

TEST(match_text_that_is_not_utf8_is_searched_too)
{
    T_STR(lines("b.d", plain,
                "a\xff"
                "b\n\xff"
                "bcd\n"),
          "2");
    T_STR(lines("^\\w+$", plain, "caf\xc3\xa9\na\xff\n"), "1");
}

TEST(match_a_bad_pattern_is_named_with_its_offset)
{
    const struct match_options o = {.pattern = "ab(c", .len = 4, .word = true};
    struct match *m = NULL;
    struct err e = {0};

    T_INT(match_new(&o, &m, &e), -ERR_INVALID);
    T_STR(e.field, "pattern");
    T_OK(strstr(e.message, "missing closing parenthesis at offset "));
}

TEST(match_a_pattern_that_explodes_is_stopped)
{
    struct match *m = compiled("^(a+)+$", plain);
    struct matcher *w = NULL;
    struct match_span line;
    struct err e = {0};
    char text[128];

    memset(text, 'a', sizeof(text));
    text[sizeof(text) - 1] = '!';
    T_INT(matcher_new(m, &w, NULL), 0);
    matcher_set_text(w, text, sizeof(text));
    T_INT(matcher_find_line(w, 0, &line, &e), -ERR_EXHAUSTED);
    T_STR(e.field, "pattern");
    matcher_free(w);
    match_free(m);
}

static const char *literals(const char *pattern, bool caseless)
{
    static char out[512];
    struct literal_set s;
    size_t n = 0;

    out[0] = '\0';
    if (!regex_find_literals(pattern, strlen(pattern), caseless, &s))
        return "none";
    for (size_t i = 0; i < s.n; i++)
        n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%.*s", n ? " " : "", (int)s.list[i].len,
                              s.list[i].bytes);
    return out;
}

TEST(literal_finds_what_every_match_contains)
{
    T_STR(literals("TODO|FIXME|XXX", false), "TODO FIXME XXX");
    T_STR(literals("\\bspin_(un)?lock_irq(save|restore)\\b", false), "lock_irq");
    T_STR(literals("foo(bar|quux)?", false), "foo");
    T_STR(literals("(foo|bar)+baz", false), "baz");
    T_STR(literals("abcd*", false), "abc");
    T_STR(literals("wxyz{0}", false), "wxy");
    T_STR(literals("foobar(?!x)baz", false), "foobarbaz");
    T_STR(literals("FOOBAR", true), "foobar");
    T_STR(literals("\\w{12}_\\w{8}", false), "none");
    T_STR(literals("foo|.*", false), "none");
    T_STR(literals("(?i)QuuX(?:a|b)", false), "quux");
    T_STR(literals("(?i)foobar|xYz", false), "foobar xyz");
    T_STR(literals("foo(?i)bar", false), "none");
    T_STR(literals("(?i)foo(?-i)bar", false), "none");
    T_STR(literals("(?i", false), "none");
    T_STR(literals("quartzsk", true), "quartz"); /* s and k have partners outside ASCII */
    T_STR(literals("a\\.b\\(quux", false), "a.b(quux");
}

TEST(linewise_keeps_line_feeds_out_of_a_match)
{
    struct buf out = {.max = 4096};

    T_OK(regex_rewrite_linewise("[^a]\\s(b|c)", 11, &out));
    T_STR(out.data, "[^\\na](?:(?!\\n)\\s)(b|c)");
    buf_clear(&out);
    T_OK(regex_rewrite_linewise("[^-a]", 5,
                                &out)); /* not a range from the line feed to the letter */
    T_STR(out.data, "(?:(?!\\n)[^-a])");
    buf_clear(&out);
    T_OK(!regex_rewrite_linewise("a\\nb", 4, &out));
    buf_clear(&out);
    T_OK(!regex_rewrite_linewise("\\Aa", 3, &out));
    buf_done(&out);
}

static uint64_t state = 362436069u;

static unsigned pick(unsigned n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 20) % n;
}

/* The first of the literals, found the slow way. */
static size_t slow_find(const struct literal_set *set, const char *text, size_t len, size_t from)
{
    for (; from < len; from++)
        for (size_t i = 0; i < set->n; i++)
            if (set->list[i].len <= len - from &&
                (set->caseless ? strncasecmp(text + from, set->list[i].bytes, set->list[i].len)
                               : memcmp(text + from, set->list[i].bytes, set->list[i].len)) == 0)
                return from;
    return len;
}

TEST(scan_equals_the_slow_search)
{
    char text[200];

    for (unsigned round = 0; round < 3000; round++) {
        struct literal_set set = {.n = 1 + pick(LITERAL_MAX), .caseless = pick(2)};
        struct scan s;
        size_t len = pick(sizeof(text)), hit = len, from = len ? pick((unsigned)len) : 0;

        for (size_t i = 0; i < len; i++)
            text[i] = "abAB@`"[pick(6)];
        for (size_t i = 0; i < set.n; i++) {
            set.list[i].len = 1 + pick(6);
            for (size_t k = 0; k < set.list[i].len; k++)
                set.list[i].bytes[k] = "ab@`"[pick(4)];
        }
        scan_init(&s, &set);
        if (!scan_find(&s, text, len, from, &hit))
            hit = len;
        T_INT(hit, slow_find(&set, text, len, from));
    }
}

TEST(scan_counts_bytes_and_knows_ascii)
{
    char text[300];

    memset(text, 'a', sizeof(text));
    for (size_t len = 0; len < sizeof(text); len += 7)
        T_INT(scan_count(text, len, 'a'), len);
    T_OK(scan_is_ascii(text, sizeof(text)));
    for (size_t i = 0; i < sizeof(text); i += 13) {
        text[i] = (char)0x80;
        T_OK(!scan_is_ascii(text, sizeof(text)));
        text[i] = 'a';
    }
}

/* Each pattern the fast way (a whole buffer) and the slow way (each line alone). */
TEST(match_whole_buffers_find_what_single_lines_find)
{
    static const char *const patterns[] = {
        "[^a]b",   "\\s",          "\\W+$",   "^\\w", "(a|b)\\1", "(?<!a)b", "\\bab?",
        "a(?!b)",  "\\D\\B",       "[\\sx]a", "a+?b", "(?i)A",    "[^]a]",   "(?:a|^)b",
        "(?>a*)b", "[[:space:]]b", ".{2}$",   "$",    "[^-b]",    "[^--b]x"};
    char text[64];

    for (unsigned round = 0; round < 4000; round++) {
        const char *pattern = patterns[round % (sizeof(patterns) / sizeof(*patterns))];
        struct match *m = compiled(pattern, plain);
        struct matcher *w = NULL;
        size_t len = pick(sizeof(text) - 1), from = 0;

        for (size_t i = 0; i < len; i++)
            text[i] = "ab \n\nx"[pick(6)];
        text[len] = '\0';
        T_INT(matcher_new(m, &w, NULL), 0);
        for (size_t at = 0; at < len;) {
            size_t end = at + strcspn(text + at, "\n");
            struct match_span line = {0, 0}, ignored;
            bool alone, together;

            matcher_set_text(w, text, len);
            together = matcher_find_line(w, from, &line, NULL) > 0 && line.start == at;
            matcher_set_text(w, text + at, end - at);
            alone = matcher_find(w, &ignored, NULL) > 0;
            if (alone != together)
                t_fail(__FILE__, __LINE__, "'%s' in '%s' at %zu", pattern, text, at);
            at = end + 1;
            from = at;
        }
        matcher_free(w);
        match_free(m);
    }
}

TEST(match_can_go_back_in_a_text_that_is_not_all_ascii)
{
    static const char text[] = "\xe9 b\nab\nb\xdf\x9c\n";
    struct match *m = compiled("b\\W", plain);
    struct matcher *w = NULL;
    struct match_span line;

    T_INT(matcher_new(m, &w, NULL), 0);
    matcher_set_text(w, text, sizeof(text) - 1);
    T_INT(matcher_find_line(w, 7, &line, NULL), 0);
    for (int i = 0; i < 2; i++) /* U+07DC is a letter */
        T_INT(matcher_find_line(w, 0, &line, NULL), 0);
    matcher_free(w);
    match_free(m);
}
