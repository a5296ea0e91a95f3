#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "search/regex.h"
#include "search/match_impl.h"

#define COMPILED_MAX_BYTES (4 * MATCH_PATTERN_MAX_BYTES)
#define WORD_OPEN "(?<!\\w)(?:"
#define WORD_CLOSE ")(?!\\w)"
#define LINE_OPEN "^(?:"
#define LINE_CLOSE ")$"
#define UTF_OPTIONS (PCRE2_UTF | PCRE2_UCP)

static void program_done(struct program *p)
{
    pcre2_code_free(p->utf);
    pcre2_code_free(p->ascii);
}

struct match *match_free(struct match *m)
{
    if (m) {
        program_done(&m->exact);
        program_done(&m->lines);
        free(m);
    }
    return NULL;
}

/* --- the pattern's text --- */

static int add_quoted(const char *s, size_t len, struct buf *out, struct err *e)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        int r = 0;

        if (c < 0x80 && !isalnum(c) && c != '_' && c != '\n')
            r = buf_add(out, "\\", 1, e);
        if (r == 0)
            r = buf_add(out, c == '\n' ? "\\n" : s + i, c == '\n' ? 2 : 1, e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Like rg -P: "word" applies to all patterns together. */
static int wrap_in_word(const struct match_options *o, const char *body, size_t len,
                        struct buf *out, struct err *e)
{
    int r = 0;

    if (o->word)
        r = buf_adds(out, WORD_OPEN, e);
    if (r == 0)
        r = buf_add(out, body, len, e);
    if (r == 0 && o->word)
        r = buf_adds(out, WORD_CLOSE, e);
    return r;
}

/* Whether the pattern has a literal capital letter; one after a backslash is not literal. */
static bool has_capital(const char *s, size_t len)
{
    static const char pattern[] = "\\A(?:\\\\.|[^\\\\\\p{Uppercase}])*+\\p{Uppercase}";
    int error, r;
    PCRE2_SIZE at;
    pcre2_code *code;
    pcre2_match_data *data;

    code = pcre2_compile((PCRE2_SPTR)pattern, sizeof(pattern) - 1, PCRE2_UTF | PCRE2_DOTALL, &error,
                         &at, NULL);
    data = code ? pcre2_match_data_create(1, NULL) : NULL;
    r = data ? pcre2_match(code, (PCRE2_SPTR)s, len, 0, 0, data, NULL) : 0;
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    return r >= 0;
}

bool match_is_caseless(enum match_case letters, const char *pattern, size_t len)
{
    return letters == MATCH_INSENSITIVE || (letters == MATCH_SMART && !has_capital(pattern, len));
}

/* Whether the pattern, compiled without UTF, gives the same result on ASCII text. */
static bool is_plain_ascii(const char *s, size_t len)
{
    if (!scan_is_ascii(s, len))
        return false;
    for (size_t i = 0; i + 1 < len; i++) {
        char next = s[i + 1];

        if ((s[i] == '(' && next == '*') || (s[i] == '[' && next == ':')) /* [:upper:] */
            return false;
        if (s[i] == '\\') {
            if (strchr("xoNXRpPcu0123456789", next) && next)
                return false;
            i++;
        }
    }
    return true;
}

/* --- compilation --- */

static uint32_t compile_options(const struct match_options *o, bool caseless)
{
    uint32_t options =
        PCRE2_MULTILINE | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;

    if (caseless)
        options |= PCRE2_CASELESS;
    if (o->bytes_apart)
        options |= PCRE2_MATCH_INVALID_UTF;
    if (o->multiline && o->dotall)
        options |= PCRE2_DOTALL;
    return options;
}

static int bad_pattern(struct err *e, int error, size_t at)
{
    PCRE2_UCHAR text[256];

    (void)pcre2_get_error_message(error, text, sizeof(text));
    return err_field(e, ERR_INVALID, "pattern", "%s at offset %zu", (const char *)text, at);
}

/* before: the bytes added before the caller's pattern; error offsets are relative to that pattern. */
static int compile_pattern(const struct buf *text, uint32_t options, bool crlf, size_t before,
                           pcre2_code **ret, struct err *e)
{
    pcre2_compile_context *c = pcre2_compile_context_create(NULL);
    pcre2_code *code;
    PCRE2_SIZE at = 0;
    int error = 0;

    if (!c)
        return err_oom(e);
    (void)pcre2_set_newline(c, crlf ? PCRE2_NEWLINE_ANYCRLF : PCRE2_NEWLINE_LF);
    code = pcre2_compile((PCRE2_SPTR)(text->data ? text->data : ""), text->len, options, &error,
                         &at, c);
    pcre2_compile_context_free(c);
    if (!code)
        return bad_pattern(e, error, at > before ? at - before : 0);
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* if refused, PCRE2 interprets */
    *ret = code;
    return 0;
}

/* The ASCII twin is optional: without it the program is slower. */
static int compile_program(const struct buf *text, uint32_t options, bool crlf, size_t before,
                           bool plain, struct program *ret, struct err *e)
{
    int r = compile_pattern(text, options | UTF_OPTIONS, crlf, before, &ret->utf, e);

    if (r == 0 && plain)
        (void)compile_pattern(text, options, crlf, before, &ret->ascii, NULL);
    return r;
}

/* Whether a part of the pattern may depend on the text before a line: a lookbehind, a verb, "\A", and '^',
 * which does not match at the end of a text after a line feed. */
static bool pattern_looks_back(const char *s, size_t len)
{
    return memchr(s, '^', len) || memmem(s, len, "(?<", 3) || memmem(s, len, "(*", 2) ||
           memmem(s, len, "\\A", 2);
}

/* Whether a literal has (a part of) U+FFFD: invalid bytes are read as that, and a scan of the original text
 * would miss them. */
static bool may_be_replacement(const struct literal_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        if (memchr(set->list[i].bytes, 0xef, set->list[i].len))
            return true;
    return false;
}

static void take_literals(struct match *m, const char *text, size_t len, bool caseless)
{
    struct literal_set set;

    if (!regex_find_literals(text, len, caseless, &set) || may_be_replacement(&set))
        return;
    m->has_scan = true;
    scan_init(&m->scan, &set);
}

static int compile_all(struct match *m, const struct match_options *o, const struct buf *body,
                       struct err *e)
{
    const char *text = body->data ? body->data : "";
    bool plain = is_plain_ascii(text, body->len);
    bool caseless = match_is_caseless(o->letters, text, body->len);
    uint32_t options = compile_options(o, caseless);
    size_t before = o->word * (sizeof(WORD_OPEN) - 1) + o->line * (sizeof(LINE_OPEN) - 1);
    _cleanup_buf_ struct buf whole = {.max = COMPILED_MAX_BYTES};
    _cleanup_buf_ struct buf lines = {.max = COMPILED_MAX_BYTES};
    int r;

    m->crlf = o->crlf;
    m->groups = o->groups;
    m->multiline = o->multiline;
    m->bytes_apart = o->bytes_apart;
    m->looks_back = pattern_looks_back(text, body->len);
    /* In steps, "\G" would match at each step, and a verb like (*COMMIT) would end only one. */
    m->in_steps = !memmem(text, body->len, "\\G", 2) && !memmem(text, body->len, "(*", 2);
    r = wrap_in_word(o, text, body->len, &whole, e);
    if (r == 0)
        r = compile_program(&whole, options, o->crlf, before, plain, &m->exact, e);
    if (r < 0 || o->multiline)
        return r;
    take_literals(m, text, body->len, caseless);
    if (!m->has_scan && !o->crlf &&
        regex_rewrite_linewise(whole.data ? whole.data : "", whole.len, &lines) &&
        compile_program(&lines, options, false, 0, plain, &m->lines, NULL) < 0)
        m->lines = (struct program){NULL, NULL};
    return 0;
}

/* --- several patterns --- */

/* Each pattern must be well formed by itself: "(" and ")" are no pair. */
static int check_pattern(const char *s, size_t len, size_t i, struct err *e)
{
    _cleanup_buf_ struct buf text = {.max = COMPILED_MAX_BYTES};
    pcre2_code *code = NULL;
    char field[32];
    int r = buf_add(&text, s, len, e);

    if (r == 0)
        r = compile_pattern(&text, UTF_OPTIONS | PCRE2_NEVER_BACKSLASH_C, false, 0, &code, e);
    pcre2_code_free(code);
    if (r == 0)
        return 0;
    (void)snprintf(field, sizeof(field), "patterns[%zu]", i);
    if (e)
        (void)snprintf(e->field, sizeof(e->field), "%s", field);
    return r;
}

static int add_pattern(const struct match_options *o, const char *s, size_t len, bool is_first,
                       struct buf *out, struct err *e)
{
    int r = is_first ? 0 : buf_adds(out, "|", e);

    if (r == 0 && o->line)
        r = buf_adds(out, LINE_OPEN, e);
    if (r == 0)
        r = o->fixed ? add_quoted(s, len, out, e) : buf_add(out, s, len, e);
    if (r == 0 && o->line)
        r = buf_adds(out, LINE_CLOSE, e);
    return r;
}

/* a|b|..., the first pattern, if there is one, before the others. As with rg -P, a flag such as
 * (?i) in one of them counts in those behind it too. */
static int join_patterns(const struct match_options *o, struct buf *body, struct err *e)
{
    bool is_first = true;
    int r = 0;

    if (o->pattern) {
        r = add_pattern(o, o->pattern, o->len, is_first, body, e);
        is_first = false;
    }
    for (size_t i = 0; r == 0 && o->more && o->more[i]; i++) {
        size_t len = strlen(o->more[i]);

        if (!o->fixed)
            r = check_pattern(o->more[i], len, i, e);
        if (r == 0)
            r = add_pattern(o, o->more[i], len, is_first, body, e);
        is_first = false;
    }
    return r;
}

int match_new(const struct match_options *o, struct match **ret, struct err *e)
{
    _cleanup_buf_ struct buf body = {.max = COMPILED_MAX_BYTES};
    struct match *m;
    int r;

    if (o->len > MATCH_PATTERN_MAX_BYTES)
        return err_field(e, ERR_INVALID, "pattern", "longer than %d bytes",
                         MATCH_PATTERN_MAX_BYTES);
    r = join_patterns(o, &body, e);
    if (r == -ERR_EXHAUSTED)
        return err_field(e, ERR_INVALID, "patterns", "longer than %d bytes together",
                         COMPILED_MAX_BYTES);
    if (r < 0)
        return r;
    m = calloc(1, sizeof(*m));
    if (!m)
        return err_oom(e);
    r = compile_all(m, o, &body, e);
    if (r < 0) {
        match_free(m);
        return r;
    }
    *ret = m;
    return 0;
}
