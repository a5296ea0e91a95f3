#define PCRE2_CODE_UNIT_WIDTH 8
#include "search/match.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "search/linewise.h"
#include "search/literal.h"
#include "search/scan.h"

#include "common/banned.h"

#define COMPILED_MAX_BYTES (4 * MATCH_PATTERN_MAX_BYTES)
#define JIT_STACK_FIRST_BYTES (32 * 1024)
#define UTF_OPTIONS (PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF)

/* One program twice: for any text, and for text that is ASCII only (may be NULL). */
struct program {
    pcre2_code *utf;
    pcre2_code *ascii;
};

struct match {
    struct program exact; /* the pattern as it is */
    struct program lines; /* rewritten so that it can't match a line feed; may be empty */
    bool has_scan;
    struct scan scan;
};

struct matcher {
    const struct match *m;
    pcre2_match_data *data;
    pcre2_jit_stack *stack;
    pcre2_match_context *context;
    const char *text;
    size_t len;
    bool is_ascii;
};

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

bool match_uses_jit(void)
{
    int error;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR) "a", 1, 0, &error, &at, NULL);
    bool ok = code && pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;

    pcre2_code_free(code);
    return ok;
}

/* --- the pattern's text --- */

static int quote(const char *s, size_t len, struct buf *out, struct err *e)
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

/* "line" and "word" go around the pattern as rg -P has them. */
static int wrap(const struct match_options *o, const char *body, size_t len, struct buf *out,
                struct err *e)
{
    int r = 0;

    if (o->word)
        r = buf_adds(out, "(?<!\\w)(?:", e);
    if (r == 0 && o->line)
        r = buf_adds(out, "^(?:", e);
    if (r == 0)
        r = buf_add(out, body, len, e);
    if (r == 0 && o->line)
        r = buf_adds(out, ")$", e);
    if (r == 0 && o->word)
        r = buf_adds(out, ")(?!\\w)", e);
    return r;
}

/* Whether a capital letter stands for itself in it; what follows a backslash does not. */
static bool has_capital(const char *s, size_t len)
{
    static const char pattern[] = "\\A(?:\\\\.|[^\\\\\\p{Lu}])*+\\p{Lu}";
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

/* Whether the pattern means the same on ASCII text when it is compiled without UTF. */
static bool is_plain(const char *s, size_t len)
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
    uint32_t options = PCRE2_MULTILINE | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C;

    if (caseless)
        options |= PCRE2_CASELESS;
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

/* before: the bytes that wrap() put before the pattern, to give an offset the caller knows. */
static int compile(const struct buf *text, uint32_t options, size_t before, pcre2_code **ret,
                   struct err *e)
{
    pcre2_compile_context *c = pcre2_compile_context_create(NULL);
    pcre2_code *code;
    PCRE2_SIZE at = 0;
    int error = 0;

    if (!c)
        return err_oom(e);
    (void)pcre2_set_newline(c, PCRE2_NEWLINE_LF);
    code = pcre2_compile((PCRE2_SPTR)(text->data ? text->data : ""), text->len, options, &error,
                         &at, c);
    pcre2_compile_context_free(c);
    if (!code)
        return bad_pattern(e, error, at > before ? at - before : 0);
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* refused: it is interpreted */
    *ret = code;
    return 0;
}

/* Without its ASCII twin a program is only slower. */
static int compile_program(const struct buf *text, uint32_t options, size_t before, bool plain,
                           struct program *ret, struct err *e)
{
    int r = compile(text, options | UTF_OPTIONS, before, &ret->utf, e);

    if (r == 0 && plain)
        (void)compile(text, options, before, &ret->ascii, NULL);
    return r;
}

static int compile_all(struct match *m, const struct match_options *o, const struct buf *body,
                       struct err *e)
{
    bool caseless = o->letters == MATCH_INSENSITIVE ||
                    (o->letters == MATCH_SMART && !has_capital(o->pattern, o->len));
    bool plain = is_plain(body->data ? body->data : "", body->len);
    uint32_t options = compile_options(o, caseless);
    _cleanup_buf_ struct buf whole = {.max = COMPILED_MAX_BYTES};
    _cleanup_buf_ struct buf lines = {.max = COMPILED_MAX_BYTES};
    const char *text = body->data ? body->data : "";
    struct literal_set set;
    int r;

    r = wrap(o, text, body->len, &whole, e);
    if (r == 0)
        r = compile_program(&whole, options, o->word * 10u + o->line * 4u, plain, &m->exact, e);
    if (r < 0 || o->multiline)
        return r;
    if (literal_find(text, body->len, caseless, &set)) {
        m->has_scan = true;
        scan_init(&m->scan, &set);
        return 0;
    }
    if (linewise_rewrite(whole.data ? whole.data : "", whole.len, &lines) &&
        compile_program(&lines, options, 0, plain, &m->lines, NULL) < 0)
        m->lines = (struct program){NULL, NULL};
    return 0;
}

int match_new(const struct match_options *o, struct match **ret, struct err *e)
{
    _cleanup_buf_ struct buf body = {.max = COMPILED_MAX_BYTES};
    struct match *m;
    int r;

    if (o->len > MATCH_PATTERN_MAX_BYTES)
        return err_field(e, ERR_INVALID, "pattern", "longer than %d bytes",
                         MATCH_PATTERN_MAX_BYTES);
    r = o->fixed ? quote(o->pattern, o->len, &body, e) : buf_add(&body, o->pattern, o->len, e);
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

/* --- matching --- */

int matcher_new(const struct match *m, struct matcher **ret, struct err *e)
{
    struct matcher *w = calloc(1, sizeof(*w));

    if (!w)
        return err_oom(e);
    w->m = m;
    w->data = pcre2_match_data_create(1, NULL);
    w->context = pcre2_match_context_create(NULL);
    w->stack = pcre2_jit_stack_create(JIT_STACK_FIRST_BYTES, MATCH_JIT_STACK_BYTES, NULL);
    if (!w->data || !w->context) {
        matcher_free(w);
        return err_oom(e);
    }
    (void)pcre2_set_match_limit(w->context, MATCH_LIMIT);
    (void)pcre2_set_depth_limit(w->context, MATCH_LIMIT);
    (void)pcre2_set_heap_limit(w->context, MATCH_HEAP_KIB);
    pcre2_jit_stack_assign(w->context, NULL, w->stack);
    *ret = w;
    return 0;
}

struct matcher *matcher_free(struct matcher *w)
{
    if (w) {
        pcre2_match_data_free(w->data);
        pcre2_match_context_free(w->context);
        pcre2_jit_stack_free(w->stack);
        free(w);
    }
    return NULL;
}

void matcher_set_text(struct matcher *w, const char *text, size_t len)
{
    w->text = text;
    w->len = len;
    w->is_ascii = scan_is_ascii(text, len);
}

static int match_error(struct err *e, int rc)
{
    PCRE2_UCHAR text[256];

    (void)pcre2_get_error_message(rc, text, sizeof(text));
    switch (rc) {
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
    case PCRE2_ERROR_JIT_STACKLIMIT:
        return err_field(e, ERR_EXHAUSTED, "pattern",
                         "the pattern needs too much work on this text: %s", (const char *)text);
    case PCRE2_ERROR_NOMEMORY:
        return err_oom(e);
    default:
        return err_set(e, ERR_INTERNAL, "PCRE2: %s", (const char *)text);
    }
}

/* Runs a program on text[0..len), from `from` on. */
static int run(struct matcher *w, const struct program *p, const char *text, size_t len,
               size_t from, struct match_span *ret, struct err *e)
{
    const pcre2_code *code = w->is_ascii && p->ascii ? p->ascii : p->utf;
    const PCRE2_SIZE *at;
    int rc;

    rc = pcre2_match(code, (PCRE2_SPTR)text, len, from, 0, w->data, w->context);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0)
        return match_error(e, rc);
    at = pcre2_get_ovector_pointer(w->data);
    ret->start = at[0] < at[1] ? at[0] : at[1]; /* \K can turn them around */
    ret->end = at[1];
    return 1;
}

int matcher_find(struct matcher *w, const char *text, size_t len, size_t from,
                 struct match_span *ret, struct err *e)
{
    /* PCRE2 wants to begin at a character. */
    while (!w->is_ascii && from < len && ((unsigned char)text[from] & 0xc0) == 0x80)
        from++;
    return run(w, &w->m->exact, text, len, from, ret, e);
}

static struct match_span line_around(const struct matcher *w, size_t at)
{
    const char *before = at ? memrchr(w->text, '\n', at) : NULL;
    const char *after = memchr(w->text + at, '\n', w->len - at);
    struct match_span line;

    line.start = before ? (size_t)(before - w->text) + 1 : 0;
    line.end = after ? (size_t)(after - w->text) : w->len;
    return line;
}

static int is_match(struct matcher *w, const struct match_span *line, struct err *e)
{
    struct match_span ignored;

    return run(w, &w->m->exact, w->text + line->start, line->end - line->start, 0, &ignored, e);
}

/* Only lines that have one of the literals can match. */
static int find_by_literal(struct matcher *w, size_t from, struct match_span *ret, struct err *e)
{
    size_t hit;

    while (from < w->len && scan_find(&w->m->scan, w->text, w->len, from, &hit)) {
        struct match_span line = line_around(w, hit);
        int r = is_match(w, &line, e);

        if (r < 0)
            return r;
        if (r > 0) {
            *ret = line;
            return 1;
        }
        from = line.end + 1;
    }
    return 0;
}

static int find_each(struct matcher *w, size_t from, struct match_span *ret, struct err *e)
{
    while (from < w->len) {
        const char *eol = memchr(w->text + from, '\n', w->len - from);
        struct match_span line = {from, eol ? (size_t)(eol - w->text) : w->len};
        int r = is_match(w, &line, e);

        if (r < 0)
            return r;
        if (r > 0) {
            *ret = line;
            return 1;
        }
        from = line.end + 1;
    }
    return 0;
}

int matcher_find_line(struct matcher *w, size_t from, struct match_span *ret, struct err *e)
{
    struct match_span m;
    int r;

    if (from >= w->len)
        return 0;
    if (w->m->has_scan)
        return find_by_literal(w, from, ret, e);
    if (!w->m->lines.utf)
        return find_each(w, from, ret, e);
    r = run(w, &w->m->lines, w->text, w->len, from, &m, e);
    if (r <= 0)
        return r;
    /* An empty match behind the last line feed is in no line. */
    if (m.start == w->len && w->text[w->len - 1] == '\n')
        return 0;
    *ret = line_around(w, m.start);
    return 1;
}
