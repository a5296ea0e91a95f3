#include "http/sfield.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/str.h"

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"
#define KEY_CHARS LOWER DIGITS "_-.*"
#define TOKEN_CHARS LOWER UPPER DIGITS "!#$%&'*+-.^_`|~:/"
#define BASE64_CHARS LOWER UPPER DIGITS "+/="

/* Each scanner moves *p behind what it took; false: it is not there. */

static bool scan_key(const char **p, const char **ret, size_t *ret_len)
{
    *ret = *p;
    if (!**p || !strchr(LOWER "*", **p))
        return false;
    *ret_len = strspn(*p, KEY_CHARS);
    *p += *ret_len;
    return true;
}

static bool sfield_scan_number(const char **p, struct sf_value *v)
{
    bool is_negative = **p == '-';
    size_t n;

    *p += is_negative;
    n = strspn(*p, DIGITS);
    if (!n || n > 15)
        return false;
    v->type = SF_INTEGER;
    v->integer = 0;
    for (size_t i = 0; i < n; i++)
        v->integer = v->integer * 10 + ((*p)[i] - '0');
    if (is_negative)
        v->integer = -v->integer;
    *p += n;
    if (**p != '.')
        return true;
    v->type = SF_DECIMAL;
    *p += 1;
    if (n > 12)
        return false;
    n = strspn(*p, DIGITS);
    *p += n;
    return n >= 1 && n <= 3;
}

static bool scan_string(const char **p, struct sf_value *v)
{
    const char *s = *p + 1;

    v->type = SF_STRING;
    v->p = s;
    for (; *s != '"'; s++) {
        if ((unsigned char)*s < 0x20 || (unsigned char)*s > 0x7e)
            return false;
        if (*s == '\\' && *++s != '"' && *s != '\\')
            return false;
    }
    v->len = (size_t)(s - v->p);
    *p = s + 1;
    return true;
}

/* %"...", with what is not ASCII as %xx in lower case. */
static bool scan_display(const char **p, struct sf_value *v)
{
    const char *s = *p + 1;

    v->type = SF_DISPLAY;
    if (*s++ != '"')
        return false;
    v->p = s;
    for (; *s != '"'; s++) {
        if ((unsigned char)*s < 0x20 || (unsigned char)*s > 0x7e)
            return false;
        if (*s == '%') {
            if (strspn(s + 1, DIGITS "abcdef") < 2)
                return false;
            s += 2;
        }
    }
    v->len = (size_t)(s - v->p);
    *p = s + 1;
    return true;
}

static bool scan_bytes(const char **p, struct sf_value *v)
{
    v->type = SF_BYTES;
    v->p = *p + 1;
    v->len = strspn(v->p, BASE64_CHARS);
    *p = v->p + v->len;
    return *(*p)++ == ':';
}

static bool scan_bool(const char **p, struct sf_value *v)
{
    v->type = SF_BOOL;
    v->boolean = (*p)[1] == '1';
    if ((*p)[1] != '0' && (*p)[1] != '1')
        return false;
    *p += 2;
    return true;
}

static bool scan_date(const char **p, struct sf_value *v)
{
    *p += 1;
    if (!sfield_scan_number(p, v) || v->type != SF_INTEGER)
        return false;
    v->type = SF_DATE;
    return true;
}

static bool scan_bare(const char **p, struct sf_value *v)
{
    *v = (struct sf_value){0};
    switch (**p) {
    case '\0':
        return false;
    case '"':
        return scan_string(p, v);
    case '%':
        return scan_display(p, v);
    case ':':
        return scan_bytes(p, v);
    case '?':
        return scan_bool(p, v);
    case '@':
        return scan_date(p, v);
    default:
        break;
    }
    if (strchr(DIGITS "-", **p))
        return sfield_scan_number(p, v);
    if (!strchr(LOWER UPPER "*", **p))
        return false;
    v->type = SF_TOKEN;
    v->p = *p;
    v->len = strspn(*p, TOKEN_CHARS);
    *p += v->len;
    return true;
}

static bool scan_parameters(const char **p)
{
    while (**p == ';') {
        struct sf_value v;
        const char *key;
        size_t len;

        *p += 1 + strspn(*p + 1, " ");
        if (!scan_key(p, &key, &len))
            return false;
        if (**p != '=')
            continue;
        *p += 1;
        if (!scan_bare(p, &v))
            return false;
    }
    return true;
}

static bool scan_list(const char **p, struct sf_value *v)
{
    *p += 1;
    for (;;) {
        struct sf_value inner;

        *p += strspn(*p, " ");
        if (**p == ')')
            break;
        if (!scan_bare(p, &inner) || !scan_parameters(p) || (**p != ' ' && **p != ')'))
            return false;
    }
    *p += 1;
    *v = (struct sf_value){.type = SF_LIST};
    return true;
}

int sf_item(const char *text, struct sf_value *ret, struct err *e)
{
    const char *p = text + strspn(text, " ");
    struct sf_value v;

    if (!scan_bare(&p, &v) || !scan_parameters(&p) || p[strspn(p, " ")])
        return err_set(e, ERR_INVALID, "not an item of a structured field");
    *ret = v;
    return 0;
}

static bool scan_member(const char **p, struct sf_value *v)
{
    if (**p != '=') {
        *v = (struct sf_value){.type = SF_BOOL, .boolean = true};
        return scan_parameters(p);
    }
    *p += 1;
    return (**p == '(' ? scan_list(p, v) : scan_bare(p, v)) && scan_parameters(p);
}

int sf_dictionary(const char *text, sf_member_fn fn, void *arg, struct err *e)
{
    const char *p = text + strspn(text, " ");

    while (*p) {
        struct sf_value v;
        const char *key;
        size_t len;
        int r;

        if (!scan_key(&p, &key, &len) || !scan_member(&p, &v))
            goto bad;
        r = fn(key, len, &v, arg, e);
        if (r)
            return r;
        p += strspn(p, " \t");
        if (!*p)
            return 0;
        if (*p++ != ',')
            goto bad;
        p += strspn(p, " \t");
        if (!*p) /* nothing behind the comma */
            goto bad;
    }
    return 0;
bad:
    return err_set(e, ERR_INVALID, "not a dictionary of a structured field");
}

/* ---- digest fields ---------------------------------------------------------------------------- */

#define NAME "sha-256"
#define NAME_BYTES (sizeof(NAME) - 1)
#define B64_BYTES ((size_t)B64_LEN(DIGEST_BYTES))

struct found {
    const char *name;
    uint8_t *out;
    bool is_there;
};

static int digest_decode(const char *name, const char *p, size_t len, uint8_t out[DIGEST_BYTES],
                         struct err *e)
{
    uint8_t data[B64_LEN(DIGEST_BYTES)];
    size_t n = 0;

    if (len != B64_BYTES || b64_decode(p, len, data, &n, NULL) < 0 || n != DIGEST_BYTES)
        return err_field(e, ERR_INVALID, name, "a sha-256 digest has %d bytes in base64",
                         DIGEST_BYTES);
    (void)memcpy(out, data, DIGEST_BYTES);
    return 0;
}

static int on_digest(const char *key, size_t len, const struct sf_value *v, void *arg,
                     struct err *e)
{
    struct found *f = arg;

    if (v->type != SF_BYTES)
        return err_field(e, ERR_INVALID, f->name, "'%.*s' is no digest", (int)len, key);
    if (len != NAME_BYTES || memcmp(key, NAME, len) != 0)
        return 0;
    f->is_there = true;
    return digest_decode(f->name, v->p, v->len, f->out, e);
}

int digest_read(const char *name, const char *value, uint8_t out[DIGEST_BYTES], bool *ret_found,
                struct err *e)
{
    struct found f = {.name = name, .out = out};
    int r = sf_dictionary(value, on_digest, &f, e);

    if (r < 0)
        return err_at(e, r, name);
    *ret_found = f.is_there;
    return 0;
}

int digest_read_old(const char *value, uint8_t out[DIGEST_BYTES], bool *ret_found, struct err *e)
{
    for (const char *p = value; *p;) {
        size_t len;

        p += strspn(p, " \t,");
        len = strcspn(p, " \t,");
        if (len > NAME_BYTES && strncasecmp(p, NAME "=", NAME_BYTES + 1) == 0) {
            *ret_found = true;
            return digest_decode("Digest", p + NAME_BYTES + 1, len - NAME_BYTES - 1, out, e);
        }
        p += len;
    }
    *ret_found = false;
    return 0;
}

static int on_wish(const char *key, size_t len, const struct sf_value *v, void *arg, struct err *e)
{
    bool *is_wanted = arg;

    (void)e;
    if (len == NAME_BYTES && memcmp(key, NAME, len) == 0)
        *is_wanted = v->type == SF_INTEGER && v->integer > 0 && v->integer <= 10;
    return 0;
}

bool digest_is_wanted(const char *value)
{
    bool is_wanted = false;

    return sf_dictionary(value, on_wish, &is_wanted, NULL) == 0 && is_wanted;
}

void digest_write(const uint8_t digest[DIGEST_BYTES], char out[DIGEST_TEXT_BYTES])
{
    char text[B64_LEN(DIGEST_BYTES)];

    b64_encode(digest, DIGEST_BYTES, text);
    (void)snprintf(out, DIGEST_TEXT_BYTES, NAME "=:%.*s:", (int)sizeof(text), text);
}
