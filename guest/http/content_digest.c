#include "http/content_digest.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/str.h"
#include "http/sfield.h"

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
