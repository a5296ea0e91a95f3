#pragma once
/*
 * jsonx: JSON from outside into C structs by tables, and byte strings in JSON. A decoder refuses
 * unknown, missing and mistyped fields and names them (a dialect's may ignore unknown ones).
 * Decoded strings are borrowed from the json_t, which must outlive the struct; what needs memory
 * of its own (struct jx_bytes) says so.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"

#define JX_MAX_DEPTH 64 /* of what is written; nothing of ours is nested half as deep */

#define JX_REQUIRED (1u << 0)
#define JX_NULLABLE (1u << 1) /* null leaves the default as it is */

/* Decodes `v` into `out`; errors need not name the field, jx_decode does. */
typedef int (*jx_fn)(json_t *v, void *out, struct err *e);

struct jx_field {
    const char *name;
    jx_fn fn;
    size_t offset;
    unsigned flags;
};

#define JX(type, member, fn, flags) \
    { \
#member, fn, offsetof(type, member), flags \
    }
#define JX_AS(name, type, member, fn, flags) \
    { \
        name, fn, offsetof(type, member), flags \
    }

int jx_decode(json_t *obj, const struct jx_field *fields, void *out, struct err *e);
int jx_decode_lax(json_t *obj, const struct jx_field *fields, void *out, struct err *e);

/*
 * Field types. `out` is, in order: const char * (no NUL within), bool, uint32_t, uint64_t,
 * int64_t, json_t * (borrowed, any / object / array).
 */
int jx_str(json_t *v, void *out, struct err *e);
int jx_bool(json_t *v, void *out, struct err *e);
int jx_u32(json_t *v, void *out, struct err *e);
int jx_u64(json_t *v, void *out, struct err *e);
int jx_i64(json_t *v, void *out, struct err *e);
int jx_any(json_t *v, void *out, struct err *e);
int jx_object(json_t *v, void *out, struct err *e);
int jx_array(json_t *v, void *out, struct err *e);
int jx_strv(json_t *v, void *out, struct err *e);     /* char **, owned: strv_free() */
int jx_str_copy(json_t *v, void *out, struct err *e); /* as jx_str(), but char *, owned: free() */

/* Bytes: {"text":"..."} or {"b64":"..."}. Owned: jx_bytes_done(). A NUL follows the data. */
struct jx_bytes {
    char *data; /* NULL when the field was absent */
    size_t len;
};
int jx_bytes(json_t *v, void *out, struct err *e);
void jx_bytes_done(struct jx_bytes *b);

/* A path: a string or {"b64":"..."}; no NUL within, not empty. Owned: free(). `out` is char **. */
int jx_path(json_t *v, void *out, struct err *e);

/* A list of argv strings, each a string or {"b64"}; `out` is char ***, owned: strv_free(). */
int jx_argv(json_t *v, void *out, struct err *e);

/* The other way. NULL means out of memory. */
json_t *jx_new_bytes(const char *data, size_t len); /* {"text"} when valid UTF-8, else {"b64"} */
json_t *jx_new_path(const char *path);              /* "..." when valid UTF-8, else {"b64"} */
/* Adds "text" or "b64" to an object that has other fields too. */
int jx_add_bytes(json_t *obj, const char *data, size_t len, struct err *e);

/* Parses one document of at most len bytes; duplicates keys are refused; depth is bounded. */
int jx_parse(const char *text, size_t len, json_t **ret, struct err *e);

/* The same for JSON of somebody who may want our memory: what takes more than max_bytes of it when
 * it is parsed is refused before it is, with ERR_EXHAUSTED. */
int jx_parse_within(const char *text, size_t len, size_t max_bytes, json_t **ret, struct err *e);

/* The same for what must be an object; of no bytes it is empty. */
int jx_parse_object(const char *text, size_t len, json_t **ret, struct err *e);

/*
 * As compact JSON, after what is in out. v may be NULL: out of memory, then. After an error out
 * has some part of it.
 */
int jx_write(const json_t *v, struct buf *out, struct err *e);
/* One line without a line feed, owned by the caller. */
int jx_dump(const json_t *v, char **ret, size_t *ret_len, struct err *e);

/* {"code","message"[,"field"][,"detail"]} */
json_t *jx_new_error(const struct err *e);
/* Reads such an object; false when it is not one. */
bool jx_read_error(json_t *obj, struct err *e);

static inline void jx_decref_p(json_t **v)
{
    json_decref(*v);
}
#define _cleanup_json_ __attribute__((cleanup(jx_decref_p)))
