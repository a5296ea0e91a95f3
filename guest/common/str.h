#pragma once
/* str: numbers, durations, sizes and lists from text; UTF-8; base64. Pure functions. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

bool str_eq(const char *a, const char *b); /* NULL equals only NULL */
bool str_has_prefix(const char *s, const char *prefix);
bool str_has_suffix(const char *s, const char *suffix);

/* s must be a decimal number without sign within [min, max]. Errors quote s. */
int str_parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret, struct err *e);
int str_parse_i64(const char *s, int64_t min, int64_t max, int64_t *ret, struct err *e);

/* "90s", "10m", "2h", "7d", "500ms", "1h30m" -> milliseconds. A bare number other than 0 is refused. */
int str_parse_duration(const char *s, int64_t *ret_ms, struct err *e);

/* "512M", "2G", "64KiB", "1048576" -> bytes (powers of 1024). */
int str_parse_size(const char *s, uint64_t *ret_bytes, struct err *e);

/* "1.5 MB", "312 B" (powers of 1000), "1h 30m", "12s". Return out. */
const char *str_format_size(uint64_t bytes, char *out, size_t out_bytes);
const char *str_format_duration(int64_t ms, char *out, size_t out_bytes);

bool str_is_utf8(const char *s, size_t len); /* valid, no surrogates, no overlongs; NUL allowed */

void str_make_utf8(char *s); /* each byte that is not part of a valid sequence becomes '?' */

/*
 * Escapes control characters and bytes that are not UTF-8: C0 controls and DEL as \n, \r, \t or
 * \x1b, C1 controls and bidirectional ones as \u009b, other bytes as \xff. Bytes in `keep` stay.
 * Owned by the caller; a NUL follows. NULL: out of memory.
 */
char *str_escape(const char *s, size_t len, const char *keep, size_t *ret_len);

/* The code point of s's first character if it is a C1 control or one that changes the direction of
 * text (U+202E and its kin); 0: it is none. In UTF-8: two bytes below U+0800, three above. */
unsigned str_odd_control(const char *s, size_t len);

/* The length of the longest prefix that does not end within a UTF-8 sequence; at most 3 bytes shorter. */
size_t str_utf8_whole(const char *s, size_t len);

/*
 * One line of at most max characters (code points; at least 1) of text that may be anything: runs of white space and
 * controls become one space, bytes that are not UTF-8 '?'. A cut is marked by an ellipsis, which counts: str_clamp()
 * keeps the beginning, str_clamp_end() the end. Owned by the caller; NULL: out of memory.
 */
char *str_clamp(const char *s, size_t max);
char *str_clamp_end(const char *s, size_t max);

/* Writes 2 * len lower-case hex digits and a NUL. */
void str_hex(const void *data, size_t len, char *out);

/* Compares secrets in constant time. */
bool str_secret_eq(const char *a, size_t a_len, const char *b, size_t b_len);

/* NULL-terminated vectors of owned strings. */
char **strv_free(char **v); /* returns NULL */
size_t strv_len(char *const *v);
int strv_push(char ***v, const char *s, struct err *e);

/* A vector that is being built: appending neither counts nor moves the strings each time. */
struct strv_list {
    char **v; /* NULL: empty */
    size_t n;
    size_t cap; /* 0: v was not built by this list */
};
int strv_list_add(struct strv_list *l, const char *s, struct err *e);

char **strv_dup(char *const *v); /* NULL: out of memory */

static inline void strv_free_p(char ***v)
{
    strv_free(*v);
}
#define _cleanup_strv_ __attribute__((cleanup(strv_free_p)))

/* ---- RFC 4648 base64 with padding ---- */

#define B64_LEN(n) (((n) + 2) / 3 * 4)

/* Writes B64_LEN(len) characters, no NUL. */
void b64_encode(const void *data, size_t len, char *out);
/* Strict: whole groups of four, no white space. out has room for len / 4 * 3 bytes. */
int b64_decode(const char *s, size_t len, void *out, size_t *ret_len, struct err *e);
