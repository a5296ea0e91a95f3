#pragma once
/* uri: request targets, raw as they came on the wire. Split first, decode then. Pure functions. */
#include <stddef.h>

#include "common/err.h"

#define URI_MAX_BYTES (16 * 1024)

/* How long "http://" or "https://" is at the start of a target in absolute form; 0: it is in none. */
size_t uri_scheme_len(const char *target);

/* Decodes %XX in s[0..len); a NUL, bare or encoded, is refused. *ret is the caller's. */
int uri_decode(const char *s, size_t len, char **ret, struct err *e);

/* The decoded value of a parameter in a raw query ("a=1&b=x%20y"; '+' is a space), or NULL when
 * it is absent. A parameter that comes twice is refused. */
int uri_query_get(const char *query, const char *name, char **ret, struct err *e);

/* All of its values, in order, for one that may come several times: NULL-terminated, owned
 * (strv_free()); NULL when there is none. */
int uri_query_all(const char *query, const char *name, size_t max, char ***ret, struct err *e);

/* The first parameter whose name is not in the NULL-terminated list, decoded, or NULL. */
int uri_query_unknown(const char *query, const char *const *known, char **ret, struct err *e);
