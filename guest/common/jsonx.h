#pragma once
/*
 * jsonx: decodes JSON from outside into C structs by tables, and encodes byte strings. A decoder refuses unknown,
 * missing and mistyped fields and names them (a dialect's decoder may ignore unknown ones). Decoded strings are
 * borrowed from the json_t, which must outlive the struct, unless the type's comment says that they are owned.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"

#define JX_MAX_DEPTH 64 /* of encoded values; ours are not half as deep */

#define JX_REQUIRED (1u << 0)
#define JX_NULLABLE (1u << 1) /* null keeps the default */

/* Decodes `v` into `out`. jx_decode() adds the field to the error. */
typedef int (*jx_fn)(json_t *v, void *out, struct err *e);

struct jx_field {
    const char *name;
    jx_fn fn;
    size_t offset;
    unsigned flags;
    const char *const
        *names; /* the string must be one of these, up to a NULL: `out` is an enum, fn NULL */
    uint64_t min, max; /* with jx_u32 and jx_u64: the bounds; max 0: none */
};

#define JX(type, member, fn, flags) \
    { \
#member, fn, offsetof(type, member), flags \
    }
#define JX_AS(name, type, member, fn, flags) \
    { \
        name, fn, offsetof(type, member), flags \
    }
#define JX_ENUM(name, type, member, names, flags) \
    { \
        name, NULL, offsetof(type, member), flags, names \
    }
#define JX_RANGE(name, type, member, fn, flags, min, max) \
    { \
        name, fn, offsetof(type, member), flags, NULL, min, max \
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

/* The index of a string in names, which ends with NULL. */
int jx_one_of(json_t *v, const char *const *names, unsigned *ret, struct err *e);

/* Bytes: {"text":"..."} or {"b64":"..."}. Owned: jx_bytes_done(). A NUL follows the data. A module's
 * pointer and size_t, one after the other, may stand for the struct: JX_ARE_BYTES() checks it. */
struct jx_bytes {
    char *data; /* NULL: the field is absent */
    size_t len;
};
#define JX_ARE_BYTES(type, pointer, size) \
    (offsetof(type, size) - offsetof(type, pointer) == offsetof(struct jx_bytes, len))
int jx_bytes(json_t *v, void *out, struct err *e);
void jx_bytes_done(struct jx_bytes *b);

/* A path: a string or {"b64":"..."}; no NUL within, not empty. Owned: free(). `out` is char **. */
int jx_path(json_t *v, void *out, struct err *e);

/* A list of argv strings, each a string or {"b64"}; `out` is char ***, owned: strv_free(). */
int jx_argv(json_t *v, void *out, struct err *e);

/* Encoders. NULL: out of memory. */
json_t *jx_new_bytes(const char *data, size_t len); /* {"text"} if valid UTF-8, else {"b64"} */
json_t *jx_new_path(const char *path);              /* "..." if valid UTF-8, else {"b64"} */
json_t *jx_new_strv(char *const *v);                /* of UTF-8; NULL is an empty list */
/* Adds "text" or "b64" to an object that has other fields too. */
int jx_add_bytes(json_t *obj, const char *data, size_t len, struct err *e);

/* Parses one document of len bytes. Refuses duplicate keys; bounds the depth. */
int jx_parse(const char *text, size_t len, json_t **ret, struct err *e);

/* The same for JSON of an untrusted sender: a document that would take more than max_bytes of memory is refused
 * before it is parsed, with ERR_EXHAUSTED. */
int jx_parse_within(const char *text, size_t len, size_t max_bytes, json_t **ret, struct err *e);

/* The same for a document that must be an object; no bytes stand for an empty object. */
int jx_parse_object(const char *text, size_t len, json_t **ret, struct err *e);

/*
 * Appends compact JSON to out. v NULL: fails with out of memory, as its constructor did. After an error out may have
 * a part of the text.
 */
int jx_write(const json_t *v, struct buf *out, struct err *e);
/*
 * Writes an object member by member, without a json_t of each: for what is listed by the thousand. The first failure
 * stays in r, and the rest is left out. name: NULL in the place of a whole value, else a plain word.
 */
struct jx_writer {
    struct buf *out;
    int r;
    struct err *e;
};
void jx_put_begin(struct jx_writer *w, const char *name); /* an object */
void jx_put_end(struct jx_writer *w);
/* text, of n bytes, must be UTF-8. */
void jx_put_text(struct jx_writer *w, const char *name, const char *text, size_t n);
void jx_put_str(struct jx_writer *w, const char *name, const char *s); /* NULL: null */
void jx_put_i64(struct jx_writer *w, const char *name, int64_t v);
void jx_put_value(struct jx_writer *w, const char *name, const json_t *v);
void jx_put_raw(struct jx_writer *w, const char *name, const char *json); /* is JSON already */
/* One line without a line feed, owned by the caller. */
int jx_dump(const json_t *v, char **ret, size_t *ret_len, struct err *e);

/* {"code","message"[,"field"][,"detail"]} */
json_t *jx_new_error(const struct err *e);
/* Reads such an object; false: it is none. */
bool jx_read_error(json_t *obj, struct err *e);

static inline void jx_decref_p(json_t **v)
{
    json_decref(*v);
}
#define _cleanup_json_ __attribute__((cleanup(jx_decref_p)))
