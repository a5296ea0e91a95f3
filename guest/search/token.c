#include "search/token.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

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
    unsigned char c;

    if (at >= r->len)
        return 0;
    c = (unsigned char)r->pattern[at];
    if (c < 0x80 && !isalnum(c)) {
        set_char(t, c);
        return at + 1;
    }
    switch (c) {
    case 'd':
    case 'w':
    case 'S':
    case 'h':
    case 'V':
        t->kind = TOKEN_SET;
        return at + 1;
    case 'N':
        t->kind = TOKEN_SET;
        return reader_is_at(r, at + 1, '{') ? 0 : at + 1;
    case 's':
    case 'D':
    case 'W':
    case 'H':
    case 'v':
        t->kind = TOKEN_SET_NL;
        return at + 1;
    case 'p':
    case 'P':
        t->kind = TOKEN_SET_NL;
        return read_property(r, at + 1);
    case 'b':
    case 'B':
        t->kind = TOKEN_ASSERT;
        return at + 1;
    case 'n':
        set_char(t, '\n');
        return at + 1;
    case 't':
        set_char(t, '\t');
        return at + 1;
    case 'r':
        set_char(t, '\r');
        return at + 1;
    case 'f':
        set_char(t, '\f');
        return at + 1;
    case 'x':
        return read_hex(r, at + 1, t);
    default:
        break;
    }
    if (c >= '1' && c <= '9' && !is_digit_at(r, at + 1)) {
        t->kind = TOKEN_BACKREF;
        return at + 1;
    }
    return 0;
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

void token_next(struct token_reader *r, struct token *ret)
{
    size_t end = 0;

    *ret = (struct token){.kind = TOKEN_OTHER, .at = r->at};
    if (r->at >= r->len)
        ret->kind = TOKEN_END;
    else
        end = read_one(r, ret);
    if (!end) {
        if (ret->kind != TOKEN_END)
            ret->kind = TOKEN_OTHER;
        end = r->len;
    }
    ret->len = end - r->at;
    r->at = end;
}

struct token token_peek(const struct token_reader *r)
{
    struct token_reader copy = *r;
    struct token t;

    token_next(&copy, &t);
    return t;
}
