/*
 * Patterns: the lines that a matcher finds with its short cuts are the lines in which PCRE2 alone
 * finds the pattern, each line being a text of its own with U+FFFD for invalid UTF-8. The matches
 * are in order and inside the line.
 * fuzz-flags: -max_len=400
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "fuzz.h"

#include <pcre2.h>

#include "common/str.h"
#include "search/encoding.h"
#include "search/match.h"

#define PATTERN_MAX 40
#define STEPS 20000

static pcre2_code *compile(const char *pattern, size_t len, bool caseless)
{
    uint32_t options =
        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C;
    pcre2_compile_context *c = pcre2_compile_context_create(NULL);
    pcre2_code *code;
    PCRE2_SIZE at;
    int error;

    CHECK(c);
    (void)pcre2_set_newline(c, PCRE2_NEWLINE_LF);
    code = pcre2_compile((PCRE2_SPTR)pattern, len, options | (caseless ? PCRE2_CASELESS : 0),
                         &error, &at, c);
    pcre2_compile_context_free(c);
    if (code)
        (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    return code;
}

/* Does PCRE2 find the pattern in the line? *ret_gave_up: it exceeded its limits. */
static bool finds(const pcre2_code *code, const char *line, size_t len, bool *ret_gave_up)
{
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    struct lossy l;
    int rc;

    CHECK(data && context);
    lossy_init(&l, 4096);
    if (!str_is_utf8(line, len)) {
        CHECK(lossy_convert(&l, line, len, NULL) == 0);
        line = l.text.data;
        len = l.text.len;
    }
    (void)pcre2_set_match_limit(context, STEPS);
    rc = pcre2_match(code, (PCRE2_SPTR)line, len, 0, 0, data, context);
    *ret_gave_up = *ret_gave_up || (rc < 0 && rc != PCRE2_ERROR_NOMATCH);
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    lossy_done(&l);
    return rc >= 0;
}

static void walk(struct matcher *w, struct match_span line)
{
    const struct match_lines l = {.start = line.start, .end = line.end, .stop = line.end + 1};
    struct match_span m, last = {line.start, line.start};

    CHECK(matcher_walk(w, &l, NULL) == 0);
    while (matcher_next(w, &m, NULL) > 0) {
        CHECK(m.start <= m.end && m.end <= line.end && m.end >= last.end);
        last = m;
    }
}

/* Compares the matcher's lines with PCRE2's, from the first to the last. */
static void compare(struct matcher *w, const pcre2_code *code, const char *text, size_t len)
{
    size_t from = 0, line = 0;
    struct match_span found;
    bool gave_up = false;

    matcher_set_text(w, text, len);
    while (line < len) {
        const char *nl = memchr(text + line, '\n', len - line);
        size_t end = nl ? (size_t)(nl - text) : len;
        bool want = finds(code, text + line, end - line, &gave_up);
        int r;

        if (gave_up)
            return;
        r = matcher_find_line(w, from, &found, NULL);
        if (r < 0)
            return;
        CHECK(!want || (r == 1 && found.start == line && found.end == end));
        CHECK(want || r == 0 || found.start > line);
        if (want)
            walk(w, found);
        line = end + 1;
        from = want ? line : from;
    }
}

FUZZ(data, size)
{
    struct fuzz_in in = {data, size};
    bool caseless = fuzz_byte(&in) & 1;
    size_t pattern_len, len;
    char *pattern = fuzz_str(&in, PATTERN_MAX, &pattern_len), *text;
    const struct match_options o = {.pattern = pattern,
                                    .len = pattern_len,
                                    .letters = caseless ? MATCH_INSENSITIVE : MATCH_SENSITIVE};
    pcre2_code *code = compile(pattern, pattern_len, caseless);
    struct match *m = NULL;
    struct matcher *w = NULL;
    int r = match_new(&o, &m, NULL);

    text = fuzz_str(&in, 300, &len);
    CHECK((r == 0) == (code != NULL));
    if (r == 0) {
        CHECK(matcher_new(m, &w, NULL) == 0);
        compare(w, code, text, len);
    }
    matcher_free(w);
    match_free(m);
    pcre2_code_free(code);
    free(pattern);
    free(text);
    return 0;
}
