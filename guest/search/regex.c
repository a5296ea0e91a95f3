#include "search/regex.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"

#define MAX_DEPTH 24  /* of groups */
#define MIN_SCORE 220 /* one rare byte, or two that are not among the most common */

/* ---- tokens ----------------------------------------------------------------------------------
 *
 * Syntax that is not known for certain is TOKEN_OTHER: the optimisation is then dropped, so that a
 * search may be slow but never wrong.
 */

enum token_kind {
    TOKEN_END,
    TOKEN_CHAR,    /* one literal character */
    TOKEN_NEWLINE, /* a literal line feed */
    TOKEN_SET,     /* '.', \w, a class ...: one character, never a line feed */
    TOKEN_SET_NL,  /* one character, perhaps a line feed */
    TOKEN_NOT,     /* [^...] to which a line feed can be added to exclude it */
    TOKEN_ASSERT,  /* ^ $ \b \B */
    TOKEN_BACKREF, /* \1 to \9 */
    TOKEN_OPEN,    /* ( (?: (?> (?| (?<name> */
    TOKEN_LOOK,    /* (?= (?! (?<= (?<! */
    TOKEN_CLOSE,
    TOKEN_ALT,
    TOKEN_QUANT,
    TOKEN_CASELESS, /* (?i), (?-i) and the like */
    TOKEN_OTHER,
};

struct token {
    enum token_kind kind;
    size_t at, len; /* in the pattern */
    char bytes[4];  /* of a TOKEN_CHAR, in UTF-8 */
    size_t n_bytes;
    bool can_be_zero; /* of a TOKEN_QUANT */
};

struct token_reader {
    const char *pattern;
    size_t len, at;
};

static bool is_digit_at(const struct token_reader *r, size_t at)
{
    return at < r->len && isdigit((unsigned char)r->pattern[at]);
}

static bool reader_is_at(const struct token_reader *r, size_t at, char c)
{
    return at < r->len && r->pattern[at] == c;
}

static void set_char(struct token *t, uint32_t c)
{
    t->kind = c == '\n' ? TOKEN_NEWLINE : TOKEN_CHAR;
    if (c < 0x80) {
        t->bytes[0] = (char)c;
        t->n_bytes = 1;
    } else if (c < 0x800) {
        t->bytes[0] = (char)(0xc0 | c >> 6);
        t->bytes[1] = (char)(0x80 | (c & 0x3f));
        t->n_bytes = 2;
    } else {
        t->kind = TOKEN_OTHER;
    }
}

/* \xhh; the form with braces and single digits are not understood. */
static size_t read_hex(const struct token_reader *r, size_t at, struct token *t)
{
    static const char digits[] = "0123456789abcdef";
    uint32_t v = 0;

    for (size_t i = at; i < at + 2; i++) {
        const char *d =
            i < r->len ? memchr(digits, tolower((unsigned char)r->pattern[i]), 16) : NULL;

        if (!d)
            return 0;
        v = v * 16 + (uint32_t)(d - digits);
    }
    set_char(t, v);
    return at + 2;
}

/* \p{..}, \pL; the end, or 0. */
static size_t read_property(const struct token_reader *r, size_t at)
{
    const char *end;

    if (!reader_is_at(r, at, '{'))
        return at < r->len ? at + 1 : 0;
    end = memchr(r->pattern + at, '}', r->len - at);
    return end ? (size_t)(end - r->pattern) + 1 : 0;
}

/* After the backslash. Returns where the escape ends; 0: not known. */
static size_t read_escape(const struct token_reader *r, size_t at, struct token *t)
{
    static const char names[] = "ntrf", controls[] = "\n\t\r\f";
    unsigned char c = at < r->len ? (unsigned char)r->pattern[at] : 0;
    const char *name;

    if (at >= r->len || (c == 'N' && reader_is_at(r, at + 1, '{')))
        return 0;
    name = c ? strchr(names, c) : NULL;
    if (name || (c < 0x80 && !isalnum(c)))
        set_char(t, name ? (unsigned char)controls[name - names] : c);
    else if (c == 'x')
        return read_hex(r, at + 1, t);
    else if (strchr("dwShVN", c))
        t->kind = TOKEN_SET;
    else if (strchr("sDWHvpP", c))
        t->kind = TOKEN_SET_NL;
    else if (strchr("bB", c))
        t->kind = TOKEN_ASSERT;
    else if (c >= '1' && c <= '9' && !is_digit_at(r, at + 1))
        t->kind = TOKEN_BACKREF;
    else
        return 0;
    return c == 'p' || c == 'P' ? read_property(r, at + 1) : at + 1;
}

/* One member of a class. Sets *nl if it may be a line feed, or the start of a range that includes one. */
static size_t read_member(const struct token_reader *r, size_t at, bool *nl)
{
    unsigned char c = (unsigned char)r->pattern[at];

    if (c == '[' && (reader_is_at(r, at + 1, ':') || reader_is_at(r, at + 1, '.') ||
                     reader_is_at(r, at + 1, '='))) {
        const char *end = memmem(r->pattern + at + 2, r->len - at - 2, ":]", 2);

        *nl = true;
        return end && reader_is_at(r, at + 1, ':') ? (size_t)(end - r->pattern) + 2 : 0;
    }
    if (c == '\\') {
        unsigned char d = at + 1 < r->len ? (unsigned char)r->pattern[at + 1] : 0;

        if (d == 'p' || d == 'P') {
            *nl = true;
            return read_property(r, at + 2);
        }
        if (d == 'Q' || d == 'E' || d == 'N' || d == 'c' || d == 0)
            return 0;
        if (isalnum(d) && d != 'd' && d != 'w' && d != 'S')
            *nl = true;
        if (d == 'x' && reader_is_at(r, at + 2, '{'))
            return read_property(r, at + 2);
        return at + 2;
    }
    if (c < 0x20)
        *nl = true;
    return at + 1;
}

/* After the '['. */
static size_t read_class(const struct token_reader *r, size_t at, struct token *t)
{
    bool negated = reader_is_at(r, at, '^');
    bool nl = false, odd;

    at += negated;
    odd = reader_is_at(r, at, ']'); /* a first ']' is a member */
    at += odd;
    odd =
        odd || reader_is_at(r, at, '-'); /* and so is '-', unless a member is inserted before it */
    while (at < r->len && r->pattern[at] != ']') {
        at = read_member(r, at, &nl);
        if (!at)
            return 0;
    }
    if (at >= r->len)
        return 0;
    t->kind = negated ? odd ? TOKEN_SET_NL : TOKEN_NOT : nl ? TOKEN_SET_NL : TOKEN_SET;
    return at + 1;
}

/* After "(?<" or "(?P<" or "(?'": a name and its end. */
static size_t read_name(const struct token_reader *r, size_t at, char close)
{
    size_t start = at;

    while (at < r->len && (isalnum((unsigned char)r->pattern[at]) || r->pattern[at] == '_'))
        at++;
    return at > start && reader_is_at(r, at, close) ? at + 1 : 0;
}

static size_t read_flags(const struct token_reader *r, size_t at, struct token *t)
{
    t->kind = TOKEN_CASELESS;
    while (reader_is_at(r, at, 'i') || reader_is_at(r, at, '-'))
        at++;
    if (reader_is_at(r, at, ':')) /* "(?i:" also opens a group: two tokens in one */
        return 0;
    return reader_is_at(r, at, ')') ? at + 1 : 0;
}

/* After the '('. */
static size_t read_group(const struct token_reader *r, size_t at, struct token *t)
{
    t->kind = TOKEN_OPEN;
    if (reader_is_at(r, at, '*'))
        return 0;
    if (!reader_is_at(r, at, '?'))
        return at;
    if (at + 1 >= r->len)
        return 0;
    switch (r->pattern[at + 1]) {
    case ':':
    case '>':
    case '|':
        return at + 2;
    case '=':
    case '!':
        t->kind = TOKEN_LOOK;
        return at + 2;
    case '<':
        if (reader_is_at(r, at + 2, '=') || reader_is_at(r, at + 2, '!')) {
            t->kind = TOKEN_LOOK;
            return at + 3;
        }
        return read_name(r, at + 2, '>');
    case 'P':
        return reader_is_at(r, at + 2, '<') ? read_name(r, at + 3, '>') : 0;
    case '\'':
        return read_name(r, at + 2, '\'');
    case 'i':
    case '-':
        return read_flags(r, at + 1, t);
    default:
        return 0;
    }
}

/* After the '{': {n} {n,} {n,m}, else it is a literal '{'. */
static size_t read_braces(const struct token_reader *r, size_t at, struct token *t)
{
    size_t end = at;

    t->can_be_zero = true;
    while (is_digit_at(r, end)) {
        t->can_be_zero = t->can_be_zero && r->pattern[end] == '0';
        end++;
    }
    if (end > at && reader_is_at(r, end, ',')) {
        end++;
        while (is_digit_at(r, end))
            end++;
    }
    if (end == at || !reader_is_at(r, end, '}')) {
        set_char(t, '{');
        return at;
    }
    t->kind = TOKEN_QUANT;
    return end + 1;
}

static size_t after_quantifier(const struct token_reader *r, size_t at)
{
    return reader_is_at(r, at, '?') || reader_is_at(r, at, '+') ? at + 1 : at;
}

/* A literal character of one or more bytes. */
static size_t read_literal(const struct token_reader *r, size_t at, struct token *t)
{
    unsigned char c = (unsigned char)r->pattern[at];
    size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

    if (c == '\n') {
        t->kind = TOKEN_NEWLINE;
        return at + 1;
    }
    if (at + n > r->len || (c >= 0x80 && c < 0xc2))
        return 0;
    t->kind = TOKEN_CHAR;
    memcpy(t->bytes, r->pattern + at, n);
    t->n_bytes = n;
    return at + n;
}

static size_t read_one(const struct token_reader *r, struct token *t)
{
    size_t at = r->at + 1, end;

    switch (r->pattern[r->at]) {
    case '\\':
        return read_escape(r, at, t);
    case '[':
        return read_class(r, at, t);
    case '(':
        return read_group(r, at, t);
    case ')':
        t->kind = TOKEN_CLOSE;
        return at;
    case '|':
        t->kind = TOKEN_ALT;
        return at;
    case '.':
        t->kind = TOKEN_SET;
        return at;
    case '^':
    case '$':
        t->kind = TOKEN_ASSERT;
        return at;
    case '*':
    case '?':
    case '+':
        t->kind = TOKEN_QUANT;
        t->can_be_zero = r->pattern[r->at] != '+';
        return after_quantifier(r, at);
    case '{':
        end = read_braces(r, at, t);
        return t->kind == TOKEN_QUANT ? after_quantifier(r, end) : end;
    default:
        return read_literal(r, r->at, t);
    }
}

static void token_next(struct token_reader *r, struct token *ret)
{
    size_t end = r->len;

    *ret = (struct token){.kind = TOKEN_END, .at = r->at};
    if (r->at < r->len) {
        ret->kind = TOKEN_OTHER;
        end = read_one(r, ret);
    }
    if (!end) {
        ret->kind = TOKEN_OTHER;
        end = r->len;
    }
    ret->len = end - r->at;
    r->at = end;
}

/* ---- literals -------------------------------------------------------------------------------- */

/* One alternative of a group while it is read. */
struct frame {
    struct literal_set all;  /* one from each alternative so far */
    struct literal_set best; /* of the current alternative */
    struct literal run;      /* the literal characters just read */
    bool has_gap;            /* an alternative has no literal: the group guarantees none */
    bool is_look;
};

unsigned regex_commonness(unsigned char byte)
{
    static const char order[] = " etaoinrs\tlcdu_pmhfg,.;()/*-=bvyw\"0x1>k:{}2&<'#"
                                "SETAR3INC4O5D86LP79M[]!BF|+GUVHj@Yq%W\\?zKXQJZ$~^`";
    const char *at = byte ? strchr(order, byte) : NULL;

    if (byte == '\n')
        return 255;
    if (byte >= 0x80)
        return 90;
    return at ? 250 - 2 * (unsigned)(at - order) : 20;
}

/* The rarity of the most common literal of the set; higher is better. */
static unsigned literal_set_score(const struct literal_set *s)
{
    unsigned worst = ~0u;

    for (size_t i = 0; i < s->n; i++) {
        unsigned sum = 0;

        for (size_t k = 0; k < s->list[i].len; k++)
            sum += 260 - regex_commonness((unsigned char)s->list[i].bytes[k]) + 80;
        if (sum < worst)
            worst = sum;
    }
    if (!s->n)
        return 0;
    return worst > 10 * s->n ? worst - 10 * (unsigned)s->n : 1;
}

static void frame_offer_set(struct frame *f, const struct literal_set *s)
{
    if (s->n && literal_set_score(s) > literal_set_score(&f->best))
        f->best = *s;
}

static void frame_end_run(struct frame *f)
{
    struct literal_set s = {.n = 1};

    if (!f->run.len)
        return;
    s.list[0] = f->run;
    frame_offer_set(f, &s);
    f->run.len = 0;
}

static void frame_end_alternative(struct frame *f)
{
    frame_end_run(f);
    if (!f->best.n || f->all.n + f->best.n > LITERAL_MAX) {
        f->has_gap = true;
        return;
    }
    memcpy(f->all.list + f->all.n, f->best.list, f->best.n * sizeof(f->best.list[0]));
    f->all.n += f->best.n;
    f->best.n = 0;
}

/* Caseless: "s" and "k" match characters outside ASCII too, and so may any character beyond ASCII. */
static bool token_is_usable(const struct token *t, bool caseless)
{
    char c = (char)tolower((unsigned char)t->bytes[0]);

    return !caseless || (t->n_bytes == 1 && c != 's' && c != 'k');
}

static void frame_add_char(struct frame *f, const struct token *t, bool caseless, bool zero,
                           bool repeats)
{
    bool usable = token_is_usable(t, caseless) && !zero;

    if (!usable || f->run.len + t->n_bytes > LITERAL_MAX_BYTES)
        frame_end_run(f);
    if (!usable)
        return;
    for (size_t i = 0; i < t->n_bytes; i++)
        f->run.bytes[f->run.len++] =
            caseless ? (char)tolower((unsigned char)t->bytes[i]) : t->bytes[i];
    if (repeats)
        frame_end_run(f);
}

static void close_group(struct frame *inner, struct frame *outer, bool zero)
{
    frame_end_alternative(inner);
    if (!inner->is_look && !inner->has_gap && !zero)
        frame_offer_set(outer, &inner->all);
}

static bool read_pattern(struct token_reader *r, bool caseless, struct frame *stack)
{
    size_t depth = 0;

    for (;;) {
        struct token t, next;
        struct frame *f = &stack[depth];
        struct token_reader ahead;
        bool zero, repeats;

        token_next(r, &t);
        ahead = *r;
        token_next(&ahead, &next);
        repeats = next.kind == TOKEN_QUANT;
        zero = repeats && next.can_be_zero;
        switch (t.kind) {
        case TOKEN_END:
            frame_end_alternative(f);
            return depth == 0 && !f->has_gap;
        case TOKEN_CHAR:
            frame_add_char(f, &t, caseless, zero, repeats);
            break;
        case TOKEN_OPEN:
            frame_end_run(f);
            __attribute__((fallthrough));
        case TOKEN_LOOK: /* consumes no text: the run continues after it */
            if (++depth == MAX_DEPTH)
                return false;
            memset(&stack[depth], 0, sizeof(stack[depth]));
            stack[depth].is_look = t.kind == TOKEN_LOOK;
            break;
        case TOKEN_CLOSE:
            if (!depth)
                return false;
            depth--;
            close_group(f, &stack[depth], zero);
            break;
        case TOKEN_ALT:
            frame_end_alternative(f);
            break;
        case TOKEN_ASSERT:
        case TOKEN_QUANT: /* handled with the token it follows */
            break;
        case TOKEN_NEWLINE:
        case TOKEN_SET:
        case TOKEN_SET_NL:
        case TOKEN_NOT:
        case TOKEN_BACKREF:
            frame_end_run(f);
            break;
        case TOKEN_CASELESS:
        case TOKEN_OTHER:
        default:
            return false;
        }
    }
}

bool regex_find_literals(const char *pattern, size_t len, bool caseless, struct literal_set *ret)
{
    static const char flag[] = "(?i)"; /* at the start it applies to the whole pattern */
    const size_t flag_len = sizeof(flag) - 1;
    bool has_flag = len >= flag_len && memcmp(pattern, flag, flag_len) == 0;
    size_t skip = has_flag ? flag_len : 0;
    _cleanup_free_ struct frame *stack = calloc(MAX_DEPTH, sizeof(*stack));
    struct token_reader r = {.pattern = pattern + skip, .len = len - skip};

    caseless = caseless || has_flag;
    if (!stack || !read_pattern(&r, caseless, stack))
        return false;
    if (literal_set_score(&stack[0].all) < MIN_SCORE)
        return false;
    *ret = stack[0].all;
    ret->caseless = caseless;
    return true;
}

/* ---- the pattern line by line ---------------------------------------------------------------- */

static bool add_token(const struct token *t, const char *pattern, struct buf *out)
{
    const char *text = pattern + t->at;
    bool ok;

    switch (t->kind) {
    case TOKEN_SET_NL:
        ok = buf_adds(out, "(?:(?!\\n)", NULL) == 0;
        return ok && buf_add(out, text, t->len, NULL) == 0 && buf_adds(out, ")", NULL) == 0;
    case TOKEN_NOT: /* "[^" ... */
        ok = buf_adds(out, "[^\\n", NULL) == 0;
        return ok && buf_add(out, text + 2, t->len - 2, NULL) == 0;
    case TOKEN_CHAR:
    case TOKEN_SET:
    case TOKEN_ASSERT:
    case TOKEN_BACKREF:
    case TOKEN_OPEN:
    case TOKEN_LOOK:
    case TOKEN_CLOSE:
    case TOKEN_ALT:
    case TOKEN_QUANT:
    case TOKEN_CASELESS:
        return buf_add(out, text, t->len, NULL) == 0;
    case TOKEN_END:
    case TOKEN_NEWLINE:
    case TOKEN_OTHER:
    default:
        return false;
    }
}

bool regex_rewrite_linewise(const char *pattern, size_t len, struct buf *out)
{
    struct token_reader r = {.pattern = pattern, .len = len};
    struct token t;

    for (;;) {
        token_next(&r, &t);
        if (t.kind == TOKEN_END)
            return true;
        if (!add_token(&t, pattern, out))
            return false;
    }
}
