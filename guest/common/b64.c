#include "common/b64.h"

#include <stdint.h>
#include <string.h>

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
