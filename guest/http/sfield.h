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
