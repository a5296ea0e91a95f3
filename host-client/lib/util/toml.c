#include "lib/util/toml.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/str.h"

#define LIST_MAX 1000

struct parser {
    const char *name;
    const char *p;
    const char *end;
    unsigned line;
    char table[TOML_MAX_KEY_BYTES]; /* with its dot at the end, or "" */
    struct toml out;
};

const char *toml_type_name(enum toml_type type)
{
    static const char *const names[] = {"a string", "an integer", "true or false",
                                        "a list of strings"};

    return names[type];
}

__attribute__((format(printf, 3, 4))) static int wrong(const struct parser *s, struct err *e,
                                                       const char *fmt, ...)
{
    char text[300];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err_field(e, ERR_INVALID, "", "%.150s:%u: %s", s->name, s->line, text);
}

/* ---- characters ---- */

static int peek_char(const struct parser *s)
{
    return s->p < s->end ? (unsigned char)*s->p : -1;
}

static bool take_word(struct parser *s, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
        return false;
    s->p += n;
    return true;
}

static void skip_blanks(struct parser *s)
{
    while (peek_char(s) == ' ' || peek_char(s) == '\t')
        s->p++;
}

/* Takes an optional comment and the end of the line; true if the line ends here. */
static bool take_line_end(struct parser *s)
{
    skip_blanks(s);
    if (peek_char(s) == '#')
        while (s->p < s->end && *s->p != '\n')
            s->p++;
    (void)take_word(s, "\r");
    if (s->p == s->end)
        return true;
    if (*s->p != '\n')
        return false;
    s->p++;
    s->line++;
    return true;
}

/* Line ends do not count within a list. */
static void skip_lines(struct parser *s)
{
    for (skip_blanks(s); s->p < s->end && strchr("#\r\n", *s->p); skip_blanks(s))
        if (!take_line_end(s))
            return;
}

static bool is_bare(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

/* ---- strings ---- */

static int add_rune(struct parser *s, int digits, struct buf *out, struct err *e)
{
    char utf8[4];
    uint32_t rune = 0;
    size_t n;

    for (int i = 0; i < digits; i++, s->p++) {
        int c = peek_char(s);
        int value = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;

        if (value < 0)
            return wrong(s, e, "an escape needs %d hexadecimal digits", digits);
        rune = rune << 4 | (uint32_t)value;
    }
    if (!rune || rune > 0x10ffff || (rune >= 0xd800 && rune < 0xe000))
        return wrong(s, e, "an escape of an invalid character");
    n = rune < 0x80 ? 1 : rune < 0x800 ? 2 : rune < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; rune >>= 6)
        utf8[i] = (char)(0x80 | (rune & 0x3f));
    utf8[0] = (char)(n == 1 ? rune : (0xf00u >> n & 0xffu) | rune);
    return buf_add(out, utf8, n, e);
}

/* After a backslash. */
static int add_escape(struct parser *s, bool is_long, struct buf *out, struct err *e)
{
    static const char letters[] = "btnfr\"\\", values[] = "\b\t\n\f\r\"\\";
    int c = peek_char(s);
    const char *at = c > 0 ? strchr(letters, c) : NULL;

    if (at) {
        s->p++;
        return buf_add(out, &values[at - letters], 1, e);
    }
    if (take_word(s, "u"))
        return add_rune(s, 4, out, e);
    if (take_word(s, "U"))
        return add_rune(s, 8, out, e);
    /* A backslash at the end of a line removes all white space up to the next word. */
    if (is_long && strchr(" \t\r\n", c > 0 ? c : 'x')) {
        while (s->p < s->end && strchr(" \t\r\n", *s->p))
            if (*s->p++ == '\n')
                s->line++;
        return 0;
    }
    return wrong(s, e, "an unknown escape in a string");
}

/* The opening quotes are already read. */
static int string_body(struct parser *s, const char *quote, struct buf *out, struct err *e)
{
    bool is_long = quote[1] != '\0', is_basic = quote[0] == '"';
    unsigned first = s->line;
    int r = 0;

    if (is_long && (take_word(s, "\n") || take_word(s, "\r\n")))
        s->line++;
    while (r == 0) {
        int c = peek_char(s);

        if (c < 0 || (!is_long && (c == '\n' || c == '\r'))) {
            s->line = first;
            return wrong(s, e, "a string without its end");
        }
        if (take_word(s, quote)) {
            /* Up to two quotes may precede the three that end the string. */
            for (int i = 0; r == 0 && is_long && i < 2 && peek_char(s) == quote[0]; i++, s->p++)
                r = buf_add(out, quote, 1, e);
            return r;
        }
        s->p++;
        if (c == '\\' && is_basic) {
            r = add_escape(s, is_long, out, e);
            continue;
        }
        if ((c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == 0x7f)
            return wrong(s, e, "a control character in a string");
        s->line += c == '\n';
        r = buf_add(out, s->p - 1, 1, e);
    }
    return r;
}

static int take_string(struct parser *s, bool may_be_long, char **ret, struct err *e)
{
    static const char *const quotes[] = {"\"\"\"", "'''", "\"", "'"};
    struct buf text;
    int r = -1;

    buf_init(&text, TOML_MAX_BYTES);
    for (size_t i = may_be_long ? 0 : 2; i < N_ELEMENTS(quotes) && r == -1; i++)
        if (take_word(s, quotes[i])) {
            r = string_body(s, quotes[i], &text, e);
            break;
        }
    if (r == 0)
        *ret = strndup(text.data ? text.data : "", text.len);
    buf_done(&text);
    return r == 0 && !*ret ? err_oom(e) : r;
}

/* ---- keys ---- */

static int take_key_part(struct parser *s, char **ret, struct err *e)
{
    const char *start = s->p;

    if (peek_char(s) == '"' || peek_char(s) == '\'')
        return take_string(s, false, ret, e);
    while (is_bare(peek_char(s)))
        s->p++;
    if (s->p == start)
        return wrong(s, e, "a key is expected here");
    *ret = strndup(start, (size_t)(s->p - start));
    return *ret ? 0 : err_oom(e);
}

/* Appends a dotted key to `key`. */
static int take_key(struct parser *s, char key[TOML_MAX_KEY_BYTES], struct err *e)
{
    do {
        _cleanup_free_ char *part = NULL;
        size_t used = strlen(key);
        int r;

        skip_blanks(s);
        r = take_key_part(s, &part, e);
        if (r < 0)
            return r;
        if (!*part || strchr(part, '.'))
            return wrong(s, e, "a key that is empty or has a dot in quotes");
        if (used + strlen(part) + 2 > TOML_MAX_KEY_BYTES)
            return wrong(s, e, "a key longer than %d bytes", TOML_MAX_KEY_BYTES - 2);
        (void)snprintf(key + used, TOML_MAX_KEY_BYTES - used, "%s%s",
                       used && key[used - 1] != '.' ? "." : "", part);
        skip_blanks(s);
    } while (take_word(s, "."));
    return 0;
}

static int take_table(struct parser *s, struct err *e)
{
    char key[TOML_MAX_KEY_BYTES] = "";
    struct toml_table *table;
    int r;

    if (take_word(s, "["))
        return wrong(s, e, "arrays of tables are not for templates");
    r = take_key(s, key, e);
    if (r < 0)
        return r;
    if (!take_word(s, "]"))
        return wrong(s, e, "the table's name ends with ']'");
    for (size_t i = 0; i < s->out.n_tables; i++)
        if (strcmp(s->out.tables[i].key, key) == 0)
            return wrong(s, e, "the table '%s' is there twice", key);
    if (s->out.n_tables == TOML_MAX_VALUES)
        return wrong(s, e, "more than %d tables", TOML_MAX_VALUES);
    table = &s->out.tables[s->out.n_tables++];
    memcpy(table->key, key, sizeof(key));
    table->line = s->line;
    (void)snprintf(s->table, sizeof(s->table), "%.*s.", TOML_MAX_KEY_BYTES - 2, key);
    return 0;
}

/* ---- values ---- */

static int take_number(struct parser *s, struct toml_value *v, struct err *e)
{
    char digits[24];
    size_t n = 0;
    const char *start = s->p;

    if (peek_char(s) == '-' || peek_char(s) == '+')
        digits[n++] = *s->p++;
    while (n < sizeof(digits) - 1 &&
           ((peek_char(s) >= '0' && peek_char(s) <= '9') || peek_char(s) == '_')) {
        if (*s->p == '_' && (s->p == start || s->p[-1] == '_' || s->p[-1] < '0'))
            return wrong(s, e, "a '_' that is not between digits");
        if (*s->p != '_')
            digits[n++] = *s->p;
        s->p++;
    }
    digits[n] = '\0';
    if (n && s->p[-1] == '_')
        return wrong(s, e, "a '_' that is not between digits");
    if (s->p < s->end && !strchr(" \t\r\n#,]", *s->p))
        return wrong(s, e, "neither a string, an integer, true, false nor a list of strings");
    if (digits[digits[0] == '-' || digits[0] == '+'] == '0' && n > 1u + (digits[0] < '0'))
        return wrong(s, e, "a number with a zero before it");
    if (str_parse_i64(digits + (digits[0] == '+'), INT64_MIN, INT64_MAX, &v->number, NULL) < 0)
        return wrong(s, e, "'%s' is not a number that fits", digits);
    v->type = TOML_INTEGER;
    return 0;
}

static int add_item(struct parser *s, struct toml_value *v, size_t n, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    unsigned *lines;
    int r;

    if (n == LIST_MAX)
        return wrong(s, e, "a list of more than %d", LIST_MAX);
    if (peek_char(s) != '"' && peek_char(s) != '\'')
        return wrong(s, e, "a list has strings, and ends with ']'");
    lines = reallocarray(v->list_lines, n + 1, sizeof(*lines));
    if (!lines)
        return err_oom(e);
    v->list_lines = lines;
    lines[n] = s->line;
    r = take_string(s, true, &text, e);
    return r < 0 ? r : strv_push(&v->list, text, e);
}

static int take_list(struct parser *s, struct toml_value *v, struct err *e)
{
    size_t n = 0;

    v->type = TOML_LIST;
    v->list = calloc(1, sizeof(char *));
    if (!v->list)
        return err_oom(e);
    for (skip_lines(s); !take_word(s, "]"); skip_lines(s)) {
        int r = add_item(s, v, n++, e);

        if (r < 0)
            return r;
        skip_lines(s);
        if (!take_word(s, ",") && peek_char(s) != ']')
            return wrong(s, e, "a list's strings have commas between them, and a ']' at the end");
    }
    return 0;
}

static int take_value(struct parser *s, struct toml_value *v, struct err *e)
{
    int c = peek_char(s);

    if (c == '"' || c == '\'') {
        v->type = TOML_STRING;
        return take_string(s, true, &v->text, e);
    }
    if (take_word(s, "["))
        return take_list(s, v, e);
    v->type = TOML_BOOLEAN;
    if (take_word(s, "true")) {
        v->number = 1;
        return 0;
    }
    if (take_word(s, "false"))
        return 0;
    if (c == '-' || c == '+' || (c >= '0' && c <= '9'))
        return take_number(s, v, e);
    return wrong(s, e, "neither a string, an integer, true, false nor a list of strings");
}

static void value_done(struct toml_value *v)
{
    free(v->text);
    (void)strv_free(v->list);
    free(v->list_lines);
}

static int take_pair(struct parser *s, struct err *e)
{
    struct toml_value v = {.line = s->line};
    int r;

    memcpy(v.key, s->table, sizeof(v.key));
    r = take_key(s, v.key, e);
    if (r < 0)
        return r;
    if (!take_word(s, "="))
        return wrong(s, e, "a key is followed by '='");
    for (size_t i = 0; i < s->out.n; i++)
        if (strcmp(s->out.values[i].key, v.key) == 0)
            return err_at(e, wrong(s, e, "'%s' is there twice", v.key), v.key);
    if (s->out.n == TOML_MAX_VALUES)
        return wrong(s, e, "more than %d values", TOML_MAX_VALUES);
    skip_blanks(s);
    r = take_value(s, &v, e);
    if (r < 0) {
        value_done(&v);
        return err_at(e, r, v.key);
    }
    s->out.values[s->out.n++] = v;
    return 0;
}

static int parse_document(struct parser *s, struct err *e)
{
    int r = 0;

    while (r == 0 && s->p < s->end) {
        if (take_line_end(s))
            continue;
        r = take_word(s, "[") ? take_table(s, e) : take_pair(s, e);
        if (r == 0 && !take_line_end(s))
            r = wrong(s, e, "unexpected text behind the value");
    }
    return r;
}

int toml_parse(const char *name, const char *text, size_t len, struct toml *ret, struct err *e)
{
    struct parser s = {.name = name, .p = text, .end = text + len, .line = 1};
    int r;

    if (len > TOML_MAX_BYTES)
        return wrong(&s, e, "longer than %d bytes", TOML_MAX_BYTES);
    if (!str_is_utf8(text, len) || memchr(text, '\0', len))
        return wrong(&s, e, "not valid UTF-8");
    s.out.values = calloc(TOML_MAX_VALUES, sizeof(*s.out.values));
    s.out.tables = calloc(TOML_MAX_VALUES, sizeof(*s.out.tables));
    r = s.out.values && s.out.tables ? parse_document(&s, e) : err_oom(e);
    if (r < 0)
        toml_done(&s.out);
    else
        *ret = s.out;
    return r;
}

void toml_done(struct toml *t)
{
    for (size_t i = 0; i < t->n; i++)
        value_done(&t->values[i]);
    free(t->values);
    free(t->tables);
    *t = (struct toml){0};
}
