#define PCRE2_CODE_UNIT_WIDTH 8
#include "search/match.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "search/linewise.h"
#include "search/literal.h"
#include "search/scan.h"

#include "common/banned.h"

#define COMPILED_MAX_BYTES (4 * MATCH_PATTERN_MAX_BYTES)
#define JIT_STACK_FIRST_BYTES (32 * 1024)
/*
 * PCRE2's limits are for one place to begin at, and each may take 10 ms: so many places are tried
 * before the time is looked at, fewer when it takes long.
 */
#define STEP_MAX 4096
#define STEP_MIN 16
#define STEP_NS 4000000 /* a step that took longer was too big */
#define ASK_NS 8000000  /* is_gone is asked so often */
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
    bool crlf;
    bool groups;
    bool in_steps; /* a search may be broken off and begun again further on */
    struct scan scan;
};

struct matcher {
    const struct match *m;
    pcre2_match_data *data;
    pcre2_jit_stack *stack;
    pcre2_match_context *context;
    const char *text;
    size_t len;
    size_t high_from, high; /* text[high_from..high) is ASCII, text[high] is not, or is the end */
    bool knows_high;
    const char *judged;
    size_t judged_len;
    bool judged_ascii;      /* whether judged[0..judged_len) is ASCII */
    const pcre2_code *code; /* of the last match */
    size_t step;            /* how many places to begin at are tried at once */
    bool (*is_gone)(void *arg);
    void *arg;
    const char *where;
    int64_t asked_ns; /* when is_gone was last asked */
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

bool match_is_caseless(enum match_case letters, const char *pattern, size_t len)
{
    return letters == MATCH_INSENSITIVE || (letters == MATCH_SMART && !has_capital(pattern, len));
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
    uint32_t options =
        PCRE2_MULTILINE | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;

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
static int compile(const struct buf *text, uint32_t options, bool crlf, size_t before,
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
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* refused: it is interpreted */
    *ret = code;
    return 0;
}

/* Without its ASCII twin a program is only slower. */
static int compile_program(const struct buf *text, uint32_t options, bool crlf, size_t before,
                           bool plain, struct program *ret, struct err *e)
{
    int r = compile(text, options | UTF_OPTIONS, crlf, before, &ret->utf, e);

    if (r == 0 && plain)
        (void)compile(text, options, crlf, before, &ret->ascii, NULL);
    return r;
}

static int compile_all(struct match *m, const struct match_options *o, bool caseless,
                       const struct buf *body, struct err *e)
{
    const char *text = body->data ? body->data : "";
    bool plain = is_plain(text, body->len);
    uint32_t options = compile_options(o, caseless);
    _cleanup_buf_ struct buf whole = {.max = COMPILED_MAX_BYTES};
    _cleanup_buf_ struct buf lines = {.max = COMPILED_MAX_BYTES};
    struct literal_set set;
    int r;

    m->crlf = o->crlf;
    m->groups = o->groups;
    /* "\G" is where a search begins, and a verb like (*COMMIT) ends one. */
    m->in_steps = !memmem(text, body->len, "\\G", 2) && !memmem(text, body->len, "(*", 2);
    r = wrap(o, text, body->len, &whole, e);
    if (r == 0)
        r = compile_program(&whole, options, o->crlf, o->word * 10u + o->line * 4u, plain,
                            &m->exact, e);
    if (r < 0 || o->multiline)
        return r;
    if (literal_find(text, body->len, caseless, &set)) {
        m->has_scan = true;
        scan_init(&m->scan, &set);
        return 0;
    }
    if (!o->crlf && linewise_rewrite(whole.data ? whole.data : "", whole.len, &lines) &&
        compile_program(&lines, options, false, 0, plain, &m->lines, NULL) < 0)
        m->lines = (struct program){NULL, NULL};
    return 0;
}

/* --- several patterns --- */

static int add_pattern(const struct match_options *o, const char *s, size_t len, struct buf *out,
                       struct err *e)
{
    return o->fixed ? quote(s, len, out, e) : buf_add(out, s, len, e);
}

/* A pattern that is not well formed alone is none in a list either. */
static int check_pattern(const char *s, size_t len, size_t i, struct err *e)
{
    _cleanup_buf_ struct buf text = {.max = COMPILED_MAX_BYTES};
    pcre2_code *code = NULL;
    char field[32];
    int r = buf_add(&text, s, len, e);

    if (r == 0)
        r = compile(&text, UTF_OPTIONS | PCRE2_NEVER_BACKSLASH_C, false, 0, &code, e);
    pcre2_code_free(code);
    if (r == 0)
        return 0;
    (void)snprintf(field, sizeof(field), "patterns[%zu]", i);
    if (e)
        (void)snprintf(e->field, sizeof(e->field), "%s", field);
    return r;
}

static int join_one(const struct match_options *o, const char *s, size_t len, struct buf *body,
                    struct err *e)
{
    int r = buf_adds(body, body->len ? ")|(?:" : "(?:", e);

    return r < 0 ? r : add_pattern(o, s, len, body, e);
}

/* (?:a)|(?:b)|..., with the first pattern, if there is one, before the others. */
static int join_patterns(const struct match_options *o, struct buf *body, bool *ret_caseless,
                         struct err *e)
{
    bool smart = o->letters == MATCH_SMART;
    bool capital = smart && o->pattern && has_capital(o->pattern, o->len);
    int r = 0;

    if (o->pattern)
        r = o->more && o->more[0] ? join_one(o, o->pattern, o->len, body, e)
                                  : add_pattern(o, o->pattern, o->len, body, e);
    for (size_t i = 0; r == 0 && o->more && o->more[i]; i++) {
        size_t len = strlen(o->more[i]);

        capital = capital || (smart && has_capital(o->more[i], len));
        if (!o->fixed)
            r = check_pattern(o->more[i], len, i, e);
        if (r == 0)
            r = join_one(o, o->more[i], len, body, e);
    }
    if (r == 0 && o->more && o->more[0])
        r = buf_adds(body, ")", e);
    *ret_caseless = o->letters == MATCH_INSENSITIVE || (smart && !capital);
    return r;
}

int match_new(const struct match_options *o, struct match **ret, struct err *e)
{
    _cleanup_buf_ struct buf body = {.max = COMPILED_MAX_BYTES};
    struct match *m;
    bool caseless;
    int r;

    if (o->len > MATCH_PATTERN_MAX_BYTES)
        return err_field(e, ERR_INVALID, "pattern", "longer than %d bytes",
                         MATCH_PATTERN_MAX_BYTES);
    r = join_patterns(o, &body, &caseless, e);
    if (r == -ERR_EXHAUSTED)
        return err_field(e, ERR_INVALID, "patterns", "longer than %d bytes together",
                         COMPILED_MAX_BYTES);
    if (r < 0)
        return r;
    m = calloc(1, sizeof(*m));
    if (!m)
        return err_oom(e);
    r = compile_all(m, o, caseless, &body, e);
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
    w->data = m->groups ? pcre2_match_data_create_from_pattern(m->exact.utf, NULL)
                        : pcre2_match_data_create(1, NULL);
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
    w->step = STEP_MAX;
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

void matcher_set_gone(struct matcher *w, bool (*is_gone)(void *arg), void *arg)
{
    w->is_gone = is_gone;
    w->arg = arg;
}

void matcher_set_text(struct matcher *w, const char *text, size_t len)
{
    w->text = text;
    w->len = len;
    w->knows_high = false;
    w->judged = NULL;
}

/* Remembered for one text: the matches of a line are looked for one by one. */
static bool is_ascii(struct matcher *w, const char *text, size_t len)
{
    if (w->judged != text || w->judged_len != len) {
        w->judged = text;
        w->judged_len = len;
        w->judged_ascii = scan_is_ascii(text, len);
    }
    return w->judged_ascii;
}

static int64_t coarse_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int check_gone(struct matcher *w, struct err *e)
{
    int64_t now = w->is_gone ? coarse_ns() : 0;

    if (now - w->asked_ns < ASK_NS)
        return 0;
    w->asked_ns = now;
    return w->is_gone(w->arg) ? err_set(e, ERR_CANCELED, "the search was canceled") : 0;
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

/* One call of PCRE2 that tries the places from `from` to `to` to begin at; all when `to` is len. */
static int run_step(struct matcher *w, const char *text, size_t len, size_t from, size_t to)
{
    w->where = text + from;
    (void)pcre2_set_offset_limit(w->context, to < len ? to : PCRE2_UNSET);
    return pcre2_match(w->code, (PCRE2_SPTR)text, len, from, 0, w->data, w->context);
}

static void fit_step(struct matcher *w, int64_t took_ns)
{
    if (took_ns > STEP_NS)
        w->step = w->step / 8 > STEP_MIN ? w->step / 8 : STEP_MIN;
    else if (w->step < STEP_MAX)
        w->step *= 2;
}

/* Runs a program on text[0..len), from `from` on. */
static int run(struct matcher *w, const struct program *p, bool ascii, const char *text, size_t len,
               size_t from, struct match_span *ret, struct err *e)
{
    const PCRE2_SIZE *at;
    int rc;

    w->code = ascii && p->ascii ? p->ascii : p->utf;
    for (;;) {
        bool whole = !w->m->in_steps || len - from <= w->step;
        size_t to = whole ? len : from + w->step;
        int64_t start = whole ? 0 : coarse_ns();
        int r;

        rc = run_step(w, text, len, from, to);
        r = check_gone(w, e);
        if (r < 0)
            return r;
        if (rc != PCRE2_ERROR_NOMATCH || to == len)
            break;
        fit_step(w, coarse_ns() - start);
        from = to + 1;
        while (w->code == p->utf && from < len && ((unsigned char)text[from] & 0xc0) == 0x80)
            from++;
    }
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
    bool ascii = is_ascii(w, text, len);

    /* PCRE2 wants to begin at a character. */
    while (!ascii && from < len && ((unsigned char)text[from] & 0xc0) == 0x80)
        from++;
    return run(w, &w->m->exact, ascii, text, len, from, ret, e);
}

static struct match_span line_around(const struct matcher *w, size_t at)
{
    const char *before = at ? memrchr(w->text, '\n', at) : NULL;
    const char *after = scan_byte(w->text + at, w->len - at, '\n');
    struct match_span line;

    line.start = before ? (size_t)(before - w->text) + 1 : 0;
    line.end = after ? (size_t)(after - w->text) : w->len;
    return line;
}

static int is_match(struct matcher *w, const struct match_span *line, struct err *e)
{
    struct match_span ignored;
    const char *text = w->text + line->start;
    size_t len = line->end - line->start;

    /* As rg -P: only "\r\n" ends a line, so that a lone line feed is of the text that is looked at, and
     * a "\r" at the end of the file too. */
    if (w->m->crlf && line->end < w->len)
        len += len && text[len - 1] == '\r' ? -1 : 1;
    return run(w, &w->m->exact, scan_is_ascii(text, len), text, len, 0, &ignored, e);
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
        const char *eol = scan_byte(w->text + from, w->len - from, '\n');
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

/* The end of the lines from `from` on that are all ASCII, or none of which is (a single line). */
static size_t slice_end(struct matcher *w, size_t from, bool *ret_ascii)
{
    struct match_span line;

    if (!w->knows_high || from < w->high_from || from > w->high) {
        w->high_from = from;
        w->high = from + scan_ascii_len(w->text + from, w->len - from);
        w->knows_high = true;
    }
    *ret_ascii = true;
    if (w->high == w->len)
        return w->len;
    line = line_around(w, w->high);
    if (line.start > from)
        return line.start;
    *ret_ascii = false;
    return line.end < w->len ? line.end + 1 : w->len;
}

/* Slice by slice, so that a few letters beyond ASCII do not slow down a whole file. */
static int find_by_slices(struct matcher *w, size_t from, struct match_span *ret, struct err *e)
{
    while (from < w->len) {
        struct match_span m;
        bool ascii;
        size_t end = slice_end(w, from, &ascii);
        int r = run(w, &w->m->lines, ascii, w->text + from, end - from, 0, &m, e);

        if (r < 0)
            return r;
        /* An empty match behind the last line feed is in no line. */
        if (r > 0 && !(m.start == end - from && w->text[end - 1] == '\n')) {
            *ret = line_around(w, from + m.start);
            return 1;
        }
        from = end;
    }
    return 0;
}

int matcher_find_line(struct matcher *w, size_t from, struct match_span *ret, struct err *e)
{
    if (from >= w->len)
        return 0;
    if (w->m->has_scan)
        return find_by_literal(w, from, ret, e);
    if (!w->m->lines.utf)
        return find_each(w, from, ret, e);
    return find_by_slices(w, from, ret, e);
}

const char *matcher_where(const struct matcher *w)
{
    return w->where;
}

/* --- replacements --- */

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The group that "$..." names: its name in s[*ret_from..*ret_to), and where that ends; NULL when it
 * names none. */
static const char *read_reference(const char *s, const char **ret_name, size_t *ret_len)
{
    bool braces = *s == '{';
    size_t n = 0;

    s += braces;
    while (is_name_char(s[n]))
        n++;
    if (!n || (braces && s[n] != '}'))
        return NULL;
    *ret_name = s;
    *ret_len = n;
    return s + n + braces;
}

static int add_group(struct matcher *w, const char *text, const char *name, size_t len,
                     struct buf *out, struct err *e)
{
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(w->data);
    uint32_t n_groups = pcre2_get_ovector_count(w->data);
    char copy[64];
    int number = 0;

    if (len >= sizeof(copy))
        return 0; /* PCRE2's names have 32 characters at most */
    memcpy(copy, name, len);
    copy[len] = '\0';
    if (strspn(copy, "0123456789") < len)
        number = pcre2_substring_number_from_name(w->code, (PCRE2_SPTR)copy);
    else if (len > 5)
        return 0;
    else
        for (size_t i = 0; i < len; i++)
            number = number * 10 + (copy[i] - '0');
    if (number < 0 || (uint32_t)number >= n_groups || at[2 * number] == PCRE2_UNSET)
        return 0;
    if (at[2 * number] > at[2 * number + 1]) /* \K */
        return 0;
    return buf_add(out, text + at[2 * number], at[2 * number + 1] - at[2 * number], e);
}

int matcher_expand(struct matcher *w, const char *text, const char *replacement, struct buf *out,
                   struct err *e)
{
    int r = 0;

    while (r == 0 && *replacement) {
        const char *name, *end;
        size_t n = strcspn(replacement, "$"), len;

        r = buf_add(out, replacement, n, e);
        replacement += n;
        if (r < 0 || !*replacement)
            return r;
        end = read_reference(replacement + 1, &name, &len);
        if (end) {
            r = add_group(w, text, name, len, out, e);
            replacement = end;
        } else {
            r = buf_add(out, "$", 1, e);
            replacement += replacement[1] == '$' ? 2 : 1;
        }
    }
    return r;
}
