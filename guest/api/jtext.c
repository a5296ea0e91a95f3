#include "api/jtext.h"

#include <string.h>

#include "common/str.h"

#define INT_BYTES 20
#define ESCAPE_BYTES 6 /* \u00XX */

static char *make_room(struct jtext *t, size_t n)
{
    if (t->r == 0)
        t->r = buf_reserve(t->out, n, NULL);
    return t->r == 0 ? t->out->data + t->out->len : NULL;
}

/* Nearly always there is room: millions of small pieces go through here. */
static inline char *jtext_room(struct jtext *t, size_t n)
{
    if (t->out->cap - t->out->len > n && t->r == 0)
        return t->out->data + t->out->len;
    return make_room(t, n);
}

static inline void jtext_add(struct jtext *t, const char *data, size_t n)
{
    char *at = jtext_room(t, n);

    if (at) {
        memcpy(at, data, n);
        t->out->len += n;
    }
}

static inline void add_char(struct jtext *t, char c)
{
    char *at = jtext_room(t, 1);

    if (at) {
        *at = c;
        t->out->len++;
    }
}

static inline void begin_value(struct jtext *t)
{
    if (t->needs_comma)
        add_char(t, ',');
    t->needs_comma = true;
}

void jtext_begin(struct jtext *t, struct buf *out)
{
    *t = (struct jtext){.out = out, .start = out->len};
}

void jtext_open(struct jtext *t, char bracket)
{
    begin_value(t);
    add_char(t, bracket);
    t->needs_comma = false;
}

void jtext_close(struct jtext *t, char bracket)
{
    add_char(t, bracket);
    t->needs_comma = true;
}

void jtext_key(struct jtext *t, const char *name)
{
    size_t len = strlen(name), comma = t->needs_comma;
    char *at = jtext_room(t, comma + len + 3);

    t->needs_comma = false;
    if (!at)
        return;
    if (comma)
        *at++ = ',';
    *at++ = '"';
    memcpy(at, name, len);
    memcpy(at + len, "\":", 2);
    t->out->len += comma + len + 3;
}

void jtext_int(struct jtext *t, uint64_t v)
{
    char digits[INT_BYTES];
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    begin_value(t);
    jtext_add(t, digits + at, sizeof(digits) - at);
}

void jtext_bool(struct jtext *t, bool v)
{
    begin_value(t);
    jtext_add(t, v ? "true" : "false", v ? 4 : 5);
}

static char *escape_char(char *out, unsigned char c)
{
    static const char named[] = "btn?fr", hex[] = "0123456789abcdef";

    *out++ = '\\';
    if (c == '"' || c == '\\') {
        *out++ = (char)c;
    } else if (c >= 8 && c <= 13 && c != 11) {
        *out++ = named[c - 8];
    } else {
        memcpy(out, "u00", 3);
        out[3] = hex[c >> 4];
        out[4] = hex[c & 15];
        out += 5;
    }
    return out;
}

/* Whether one of eight bytes is below 0x20, a quote, a backslash, or not ASCII (which is only
 * slower). A borrow may reach into other bytes, but comes from one that is. */
static bool has_special(uint64_t eight)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t quote = eight ^ ones * '"', backslash = eight ^ ones * '\\';

    return ((eight - ones * 0x20) | (quote - ones) | (backslash - ones) | eight) & (ones * 0x80);
}

static void add_string(struct jtext *t, const char *s, size_t len)
{
    char *start, *out;

    begin_value(t);
    start = jtext_room(t, len * ESCAPE_BYTES + 2);
    if (!start)
        return;
    out = start;
    *out++ = '"';
    for (size_t i = 0; i < len; i++) {
        unsigned char c;
        uint64_t eight;

        while (len - i >= sizeof(eight) &&
               ((void)memcpy(&eight, s + i, sizeof(eight)), !has_special(eight))) {
            memcpy(out, &eight, sizeof(eight));
            out += sizeof(eight);
            i += sizeof(eight);
        }
        if (i == len)
            break;
        c = (unsigned char)s[i];
        if (c < 0x20 || c == '"' || c == '\\')
            out = escape_char(out, c);
        else
            *out++ = (char)c;
    }
    *out++ = '"';
    t->out->len += (size_t)(out - start);
}

static void add_b64(struct jtext *t, const char *data, size_t len)
{
    size_t n = B64_LEN(len);
    char *at;

    begin_value(t);
    at = jtext_room(t, n + 3);
    if (!at)
        return;
    at[0] = '"';
    b64_encode(data, len, at + 1);
    at[n + 1] = '"';
    t->out->len += n + 2;
}

void jtext_str(struct jtext *t, const char *s)
{
    add_string(t, s, strlen(s));
}

void jtext_path(struct jtext *t, const char *path)
{
    size_t len = strlen(path);

    if (str_is_utf8(path, len)) {
        add_string(t, path, len);
        return;
    }
    jtext_open(t, '{');
    jtext_key(t, "b64");
    add_b64(t, path, len);
    jtext_close(t, '}');
}

void jtext_bytes(struct jtext *t, const char *data, size_t len)
{
    bool is_text = str_is_utf8(data, len);

    jtext_key(t, is_text ? "text" : "b64");
    if (is_text)
        add_string(t, data, len);
    else
        add_b64(t, data, len);
}

int jtext_end(struct jtext *t, struct err *e)
{
    add_char(t, '\n');
    if (t->r < 0)
        t->out->len = t->start;
    if (t->out->data)
        t->out->data[t->out->len] = '\0'; /* as every buffer has it */
    if (t->r == 0)
        return 0;
    return err_set(e, ERR_EXHAUSTED, "a message of more than %zu bytes", t->out->max);
}
