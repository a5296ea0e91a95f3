#include "common/str.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"

bool str_eq(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool str_has_prefix(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_has_suffix(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);

    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

/* Reads digits from *s; false: none, or the number does not fit. */
static bool scan_u64(const char **s, uint64_t *ret)
{
    const char *p = *s;
    uint64_t v = 0;

    if (!isdigit((unsigned char)*p))
        return false;
    for (; isdigit((unsigned char)*p); p++) {
        uint64_t digit = (uint64_t)(*p - '0');

        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *s = p;
    *ret = v;
    return true;
}

int str_parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret, struct err *e)
{
    const char *p = s;
    uint64_t v = 0;

    if (!scan_u64(&p, &v) || *p)
        return err_set(e, ERR_INVALID, "'%.40s' is not a number", s);
    if (v < min || v > max)
        return err_set(e, ERR_INVALID, "%.40s is not between %" PRIu64 " and %" PRIu64, s, min,
                       max);
    *ret = v;
    return 0;
}

int str_parse_i64(const char *s, int64_t min, int64_t max, int64_t *ret, struct err *e)
{
    bool negative = *s == '-';
    const char *p = negative ? s + 1 : s;
    uint64_t v = 0;
    int64_t n;

    if (!scan_u64(&p, &v) || *p || v > (uint64_t)INT64_MAX + negative)
        return err_set(e, ERR_INVALID, "'%.40s' is not a number", s);
    n = negative && v ? -(int64_t)(v - 1) - 1 : (int64_t)v; /* -INT64_MIN would overflow */
    if (n < min || n > max)
        return err_set(e, ERR_INVALID, "%.40s is not between %" PRId64 " and %" PRId64, s, min,
                       max);
    *ret = n;
    return 0;
}

struct unit {
    const char *name;
    uint64_t factor;
};

/* The unit whose name is at *s, followed by a digit or the end; longest name first. */
static const struct unit *scan_unit(const char **s, const struct unit *units)
{
    for (const struct unit *u = units; u->name; u++) {
        size_t n = strlen(u->name);

        if (strncasecmp(*s, u->name, n) == 0 && !isalpha((unsigned char)(*s)[n])) {
            *s += n;
            return u;
        }
    }
    return NULL;
}

int str_parse_duration(const char *s, int64_t *ret_ms, struct err *e)
{
    static const struct unit units[] = {{"ms", 1},      {"s", 1000},     {"m", 60000},
                                        {"h", 3600000}, {"d", 86400000}, {0}};
    const uint64_t max = (uint64_t)INT64_MAX / 2;
    const char *p = s;
    uint64_t total = 0;

    if (strcmp(s, "0") == 0) {
        *ret_ms = 0;
        return 0;
    }
    do {
        const struct unit *u;
        uint64_t v;

        if (!scan_u64(&p, &v) || !(u = scan_unit(&p, units)))
            return err_set(e, ERR_INVALID, "'%.40s' is not a duration such as 90s, 10m or 1h30m",
                           s);
        if (v > max / u->factor || total > max - v * u->factor)
            return err_set(e, ERR_INVALID, "the duration '%.40s' is too long", s);
        total += v * u->factor;
    } while (*p);
    *ret_ms = (int64_t)total;
    return 0;
}

int str_parse_size(const char *s, uint64_t *ret_bytes, struct err *e)
{
    static const struct unit units[] = {{"kib", 1ull << 10},
                                        {"mib", 1ull << 20},
                                        {"gib", 1ull << 30},
                                        {"tib", 1ull << 40},
                                        {"kb", 1ull << 10},
                                        {"mb", 1ull << 20},
                                        {"gb", 1ull << 30},
                                        {"tb", 1ull << 40},
                                        {"k", 1ull << 10},
                                        {"m", 1ull << 20},
                                        {"g", 1ull << 30},
                                        {"t", 1ull << 40},
                                        {"b", 1},
                                        {"", 1},
                                        {0}};
    const struct unit *u = NULL;
    const char *p = s;
    uint64_t v;

    if (!scan_u64(&p, &v) || !(u = scan_unit(&p, units)) || *p)
        return err_set(e, ERR_INVALID, "'%.40s' is not a size such as 512M or 2G", s);
    if (v > UINT64_MAX / u->factor)
        return err_set(e, ERR_INVALID, "the size '%.40s' is too large", s);
    *ret_bytes = v * u->factor;
    return 0;
}

const char *str_format_size(uint64_t bytes, char *out, size_t out_bytes)
{
    static const char *const names[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    uint64_t whole = bytes, rest = 0;
    size_t i = 0;

    for (; whole >= 1000; i++) {
        rest = whole % 1000;
        whole /= 1000;
    }
    if (i && whole < 10)
        (void)snprintf(out, out_bytes, "%" PRIu64 ".%d %s", whole, (int)(rest / 100), names[i]);
    else
        (void)snprintf(out, out_bytes, "%" PRIu64 " %s", whole, names[i]);
    return out;
}

const char *str_format_duration(int64_t ms, char *out, size_t out_bytes)
{
    int64_t s = ms / 1000;

    if (ms < 1000)
        (void)snprintf(out, out_bytes, "%" PRId64 "ms", ms);
    else if (s < 60)
        (void)snprintf(out, out_bytes, "%" PRId64 "s", s);
    else if (s < 3600)
        (void)snprintf(out, out_bytes, s % 60 ? "%" PRId64 "m %" PRId64 "s" : "%" PRId64 "m",
                       s / 60, s % 60);
    else if (s < 86400)
        (void)snprintf(out, out_bytes, s / 60 % 60 ? "%" PRId64 "h %" PRId64 "m" : "%" PRId64 "h",
                       s / 3600, s / 60 % 60);
    else
        (void)snprintf(out, out_bytes, s / 3600 % 24 ? "%" PRId64 "d %" PRId64 "h" : "%" PRId64 "d",
                       s / 86400, s / 3600 % 24);
    return out;
}

/* The length of the valid sequence at s, or 0. *ret_cut: a valid sequence is truncated there. */
static size_t utf8_sequence(const unsigned char *s, size_t len, bool *ret_cut)
{
    unsigned char c = s[0];
    unsigned char low = 0x80, high = 0xbf;
    size_t n;

    *ret_cut = false;
    if (c < 0x80)
        return 1;
    if (c < 0xc2 || c > 0xf4)
        return 0;
    n = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (c == 0xe0)
        low = 0xa0;
    else if (c == 0xed)
        high = 0x9f;
    else if (c == 0xf0)
        low = 0x90;
    else if (c == 0xf4)
        high = 0x8f;
    for (size_t i = 1; i < n; i++) {
        if (i == len) {
            *ret_cut = true;
            return 0;
        }
        if (s[i] < low || s[i] > high)
            return 0;
        low = 0x80;
        high = 0xbf;
    }
    return n;
}

bool str_is_utf8(const char *s, size_t len)
{
    const unsigned char *p = (const unsigned char *)s;
    bool cut;

    for (size_t i = 0, n; i < len; i += n) {
        uint64_t eight;

        /* Most text is ASCII: skip eight bytes at once. */
        while (len - i >= 8 && ((void)memcpy(&eight, p + i, 8), !(eight & 0x8080808080808080ull)))
            i += 8;
        if (i == len)
            break;
        n = utf8_sequence(p + i, len - i, &cut);
        if (!n)
            return false;
    }
    return true;
}

void str_make_utf8(char *s)
{
    size_t len = strlen(s);
    bool cut;

    for (size_t i = 0, n; i < len; i += n) {
        n = utf8_sequence((const unsigned char *)s + i, len - i, &cut);
        if (!n) {
            s[i] = '?';
            n = 1;
        }
    }
}

#define ESCAPED_MAX 4 /* times longer; \u009b stands for two bytes */

static char *put_escaped(char *to, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    static const char letters[] = {['\t'] = 't', ['\n'] = 'n', ['\r'] = 'r'};

    *to++ = '\\';
    if (c < sizeof(letters) && letters[c]) {
        *to++ = letters[c];
        return to;
    }
    *to++ = 'x';
    *to++ = hex[c >> 4];
    *to++ = hex[c & 15];
    return to;
}

unsigned str_odd_control(const char *s, size_t len)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned code = 0;

    if (len >= 2 && p[0] >= 0xc2 && p[0] < 0xe0 && (p[1] & 0xc0) == 0x80)
        code = (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    else if (len >= 3 && p[0] == 0xe2 && (p[1] & 0xc0) == 0x80 && (p[2] & 0xc0) == 0x80)
        code = 0x2000u | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    return (code >= 0x80 && code < 0xa0) || code == 0x61c || code == 0x200e || code == 0x200f ||
                   (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069)
               ? code
               : 0;
}

char *str_escape(const char *s, size_t len, const char *keep, size_t *ret_len)
{
    const unsigned char *p = (const unsigned char *)s;
    char *out = len < SIZE_MAX / ESCAPED_MAX ? malloc(len * ESCAPED_MAX + 1) : NULL;
    char *to = out;
    bool cut;

    if (!out)
        return NULL;
    for (size_t i = 0, n; i < len; i += n) {
        unsigned odd = str_odd_control(s + i, len - i);

        n = utf8_sequence(p + i, len - i, &cut);
        if (odd) {
            to += snprintf(to, sizeof("\\u009b"), "\\u%04x", odd);
            continue;
        }
        if (n == 0 ||
            (n == 1 && (p[i] < ' ' || p[i] == 0x7f) && (p[i] == 0 || !strchr(keep, p[i])))) {
            n = 1;
            to = put_escaped(to, p[i]);
            continue;
        }
        memcpy(to, p + i, n);
        to += n;
    }
    *to = '\0';
    if (ret_len)
        *ret_len = (size_t)(to - out);
    return out;
}

size_t str_utf8_whole(const char *s, size_t len)
{
    const unsigned char *p = (const unsigned char *)s;
    bool cut;

    for (size_t back = 1; back <= 3 && back <= len; back++) {
        if (p[len - back] < 0x80)
            return len;
        if (p[len - back] >= 0xc0) {
            (void)utf8_sequence(p + len - back, back, &cut);
            return cut ? len - back : len;
        }
    }
    return len;
}

/* ---- one line with a limit ---- */

#define ELLIPSIS "\xe2\x80\xa6"

/* In place: see str_clamp(). A control of two or three bytes is a space, too. */
static void make_one_line(char *s)
{
    size_t len = strlen(s), n = 0;
    bool cut;

    for (size_t i = 0, width; i < len; i += width) {
        width = utf8_sequence((const unsigned char *)s + i, len - i, &cut);
        if ((width && (unsigned char)s[i] <= ' ') || s[i] == 0x7f ||
            (width > 1 && str_odd_control(s + i, len - i))) {
            if (n && s[n - 1] != ' ')
                s[n++] = ' ';
            continue;
        }
        if (!width)
            s[i] = '?';
        width += !width;
        memmove(s + n, s + i, width);
        n += width;
    }
    if (n && s[n - 1] == ' ')
        n--;
    s[n] = '\0';
}

static bool begins_character(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

/* The offset of the n-th character, which there is, or of the end. */
static size_t offset_of_character(const char *s, size_t n)
{
    size_t at = 0;

    for (; n; n--)
        do
            at++;
        while (!begins_character(s[at]));
    return at;
}

static char *clamp_line(const char *s, size_t max, bool keeps_end)
{
    size_t len = strlen(s);
    char *line = malloc(len + sizeof(ELLIPSIS));
    size_t n = 0, at;

    if (!line)
        return NULL;
    memcpy(line, s, len + 1);
    make_one_line(line);
    for (const char *p = line; *p; p++)
        n += begins_character(*p);
    if (n <= max)
        return line;
    at = offset_of_character(line, keeps_end ? n - max + 1 : max - 1);
    if (keeps_end) { /* at least two characters go, for three bytes */
        memmove(line + sizeof(ELLIPSIS) - 1, line + at, strlen(line + at) + 1);
        memcpy(line, ELLIPSIS, sizeof(ELLIPSIS) - 1);
    } else {
        memcpy(line + at, ELLIPSIS, sizeof(ELLIPSIS));
    }
    return line;
}

char *str_clamp(const char *s, size_t max)
{
    return clamp_line(s, max, false);
}

char *str_clamp_end(const char *s, size_t max)
{
    return clamp_line(s, max, true);
}

void str_hex(const void *data, size_t len, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *p = data;

    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[p[i] >> 4];
        out[2 * i + 1] = digits[p[i] & 15];
    }
    out[2 * len] = '\0';
}

bool str_secret_eq(const char *a, size_t a_len, const char *b, size_t b_len)
{
    unsigned char diff = a_len == b_len ? 0 : 1;

    for (size_t i = 0; i < a_len; i++)
        diff |= (unsigned char)(a[i] ^ (b_len ? b[i % b_len] : 1));
    return diff == 0;
}

char **strv_free(char **v)
{
    if (v)
        for (char **p = v; *p; p++)
            free(*p);
    free(v);
    return NULL;
}

size_t strv_len(char *const *v)
{
    size_t n = 0;

    while (v && v[n])
        n++;
    return n;
}

int strv_push(char ***v, const char *s, struct err *e)
{
    size_t n = strv_len(*v);
    _cleanup_free_ char *copy = strdup(s);
    char **grown = copy ? realloc(*v, (n + 2) * sizeof(char *)) : NULL;

    if (!grown)
        return err_oom(e);
    grown[n] = TAKE(copy);
    grown[n + 1] = NULL;
    *v = grown;
    return 0;
}

int strv_list_add(struct strv_list *l, const char *s, struct err *e)
{
    char *copy;

    if (l->n + 2 > l->cap) {
        size_t cap = 2 * (l->n + 2);
        char **grown = reallocarray(l->v, cap, sizeof(char *));

        if (!grown)
            return err_oom(e);
        grown[l->n] = NULL;
        l->v = grown;
        l->cap = cap;
    }
    copy = strdup(s);
    if (!copy)
        return err_oom(e);
    l->v[l->n++] = copy;
    l->v[l->n] = NULL;
    return 0;
}

char **strv_dup(char *const *v)
{
    size_t n = strv_len(v);
    char **copy = calloc(n + 1, sizeof(char *));

    for (size_t i = 0; copy && i < n; i++) {
        copy[i] = strdup(v[i]);
        if (!copy[i])
            return strv_free(copy);
    }
    return copy;
}

/* ---- base64 ----------------------------------------------------------------------------------- */

static const char b64_alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void b64_encode(const void *data, size_t len, char *out)
{
    const unsigned char *p = data;

    for (; len >= 3; p += 3, len -= 3, out += 4) {
        uint32_t v = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];

        out[0] = b64_alphabet[v >> 18];
        out[1] = b64_alphabet[v >> 12 & 63];
        out[2] = b64_alphabet[v >> 6 & 63];
        out[3] = b64_alphabet[v & 63];
    }
    if (len) {
        uint32_t v = (uint32_t)p[0] << 16 | (len == 2 ? (uint32_t)p[1] << 8 : 0);

        out[0] = b64_alphabet[v >> 18];
        out[1] = b64_alphabet[v >> 12 & 63];
        out[2] = len == 2 ? b64_alphabet[v >> 6 & 63] : '=';
        out[3] = '=';
    }
}

static int b64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int b64_decode(const char *s, size_t len, void *out, size_t *ret_len, struct err *e)
{
    unsigned char *o = out;
    size_t pad = 0;

    if (len % 4)
        return err_set(e, ERR_INVALID, "base64 whose length is not a multiple of four");
    if (len)
        pad = s[len - 1] != '=' ? 0 : s[len - 2] != '=' ? 1 : 2;
    for (size_t i = 0; i < len; i += 4) {
        size_t n = i + 4 == len ? 4 - pad : 4;
        uint32_t v = 0;

        for (size_t j = 0; j < 4; j++) {
            int d = j < n ? b64_digit(s[i + j]) : 0;

            if (d < 0)
                return err_set(e, ERR_INVALID, "a character at %zu that is not base64", i + j);
            v = v << 6 | (uint32_t)d;
        }
        for (size_t j = 0; j + 1 < n; j++)
            *o++ = (unsigned char)(v >> (16 - 8 * j));
    }
    *ret_len = (size_t)(o - (unsigned char *)out);
    return 0;
}
