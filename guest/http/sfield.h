#pragma once
/*
 * sfield: the values of structured HTTP fields (RFC 9651): one item, or a dictionary. Pure
 * functions; what they give points into the text. Parameters are read and left out.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define SF_INTEGER_MAX 999999999999999LL /* fifteen digits */

enum sf_type {
    SF_INTEGER,
    SF_DECIMAL,
    SF_STRING, /* p: between the quotes, with its escapes; SF_DISPLAY too */
    SF_TOKEN,
    SF_BYTES, /* p: the base64 between the colons, not checked */
    SF_BOOL,
    SF_DATE,
    SF_DISPLAY,
    SF_LIST, /* an inner list: nothing of it is told */
};

struct sf_value {
    enum sf_type type;
    int64_t integer; /* SF_INTEGER, SF_DATE */
    bool boolean;
    const char *p;
    size_t len;
};

/* The whole of the text must be one item. */
int sf_item(const char *text, struct sf_value *ret, struct err *e);

/* Called for each member in order (a key may come again: the last counts); not 0 ends it. */
typedef int (*sf_member_fn)(const char *key, size_t key_len, const struct sf_value *v, void *arg,
                            struct err *e);
int sf_dictionary(const char *text, sf_member_fn fn, void *arg, struct err *e);

/*
 * The digest fields of RFC 9530 (Content-Digest, Repr-Digest, and their Want- forms). sha-256 is supported; other
 * algorithms are ignored.
 */
#define DIGEST_BYTES 32
#define DIGEST_TEXT_BYTES 64 /* "sha-256=:...:" and a NUL */

/* name: of the header, for errors. *ret_found is false if the header has no known algorithm. */
int digest_read(const char *name, const char *value, uint8_t out[DIGEST_BYTES], bool *ret_found,
                struct err *e);
/* The same of the older Digest header: "SHA-256=..., unixsum=...". */
int digest_read_old(const char *value, uint8_t out[DIGEST_BYTES], bool *ret_found, struct err *e);
/* Whether a Want- header asks for sha-256; a malformed header asks for nothing. */
bool digest_is_wanted(const char *value);
void digest_write(const uint8_t digest[DIGEST_BYTES], char out[DIGEST_TEXT_BYTES]);
