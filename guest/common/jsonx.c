#include "common/jsonx.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/str.h"

static const struct jx_field *find_field(const struct jx_field *fields, const char *name)
{
    for (; fields->name; fields++)
        if (strcmp(fields->name, name) == 0)
            return fields;
    return NULL;
}

/* Prefixes the field of an inner decoder with the outer name: "limits.memory_bytes", "argv[3]". */
static int fail_inside(const struct jx_field *f, const struct err *inner, struct err *e)
{
    bool is_index = inner->field[0] == '[';
    char field[ERR_FIELD_BYTES * 2];

    (void)snprintf(field, sizeof(field), "%s%s%s", f->name, is_index ? "" : ".", inner->field);
    if (is_index)
        return err_field(e, (enum err_code)inner->code, field, "field '%s' %s", field,
                         inner->message);
    return err_field(e, (enum err_code)inner->code, field, "%s", inner->message);
}

int jx_one_of(json_t *v, const char *const *names, unsigned *ret, struct err *e)
{
    const char *s = json_string_value(v);
    char list[192] = "";
    size_t n = 0;

    for (unsigned i = 0; names[i]; i++) {
        if (str_eq(s, names[i])) {
            *ret = i;
            return 0;
        }
        n += (size_t)snprintf(list + n, n < sizeof(list) ? sizeof(list) - n : 0, "%s\"%s\"",
                              i ? ", " : "", names[i]);
    }
    return err_set(e, ERR_INVALID, "must be one of %s", list);
}

static int check_range(const struct jx_field *f, const void *at, struct err *e)
{
    uint64_t n = f->fn == jx_u32 ? *(const uint32_t *)at : *(const uint64_t *)at;

    if (n > f->max && !f->min)
        return err_set(e, ERR_INVALID, "must be at most %" PRIu64, f->max);
    if (n < f->min || n > f->max)
        return err_set(e, ERR_INVALID, "must be from %" PRIu64 " to %" PRIu64, f->min, f->max);
    return 0;
}

static int decode_one(json_t *v, const struct jx_field *f, void *out, struct err *e)
{
    void *at = (char *)out + f->offset;
    struct err inner = {0};
    int r;

    if (json_is_null(v) && f->flags & JX_NULLABLE)
        return 0;
    r = f->names ? jx_one_of(v, f->names, at, &inner) : f->fn(v, at, &inner);
    if (r == 0 && f->max)
        r = check_range(f, at, &inner);
    if (r == 0)
        return 0;
    if (inner.field[0])
        return fail_inside(f, &inner, e);
    return err_field(e, (enum err_code) - r, f->name, "field '%s' %s", f->name, inner.message);
}

static int decode_object(json_t *obj, const struct jx_field *fields, void *out, bool strict,
                         struct err *e)
{
    const char *key;
    json_t *v;
    int r;

    if (!json_is_object(obj))
        return err_set(e, ERR_INVALID, "must be an object");
    json_object_foreach (obj, key, v) {
        const struct jx_field *f = find_field(fields, key);

        if (!f && strict)
            return err_field(e, ERR_INVALID, key, "unknown field '%.60s'", key);
        if (!f)
            continue;
        r = decode_one(v, f, out, e);
        if (r < 0)
            return r;
    }
    for (const struct jx_field *f = fields; f->name; f++)
        if (f->flags & JX_REQUIRED && !json_object_get(obj, f->name))
            return err_field(e, ERR_INVALID, f->name, "field '%s' is required", f->name);
    return 0;
}

int jx_decode(json_t *obj, const struct jx_field *fields, void *out, struct err *e)
{
    return decode_object(obj, fields, out, true, e);
}

int jx_decode_lax(json_t *obj, const struct jx_field *fields, void *out, struct err *e)
{
    return decode_object(obj, fields, out, false, e);
}

int jx_str(json_t *v, void *out, struct err *e)
{
    if (!json_is_string(v))
        return err_set(e, ERR_INVALID, "must be a string");
    if (strlen(json_string_value(v)) != json_string_length(v))
        return err_set(e, ERR_INVALID, "must not contain a NUL");
    *(const char **)out = json_string_value(v);
    return 0;
}

int jx_str_copy(json_t *v, void *out, struct err *e)
{
    const char *s;
    char *copy;
    int r = jx_str(v, &s, e);

    if (r < 0)
        return r;
    copy = strdup(s);
    if (!copy)
        return err_oom(e);
    free(*(char **)out);
    *(char **)out = copy;
    return 0;
}

int jx_bool(json_t *v, void *out, struct err *e)
{
    if (!json_is_boolean(v))
        return err_set(e, ERR_INVALID, "must be true or false");
    *(bool *)out = json_is_true(v);
    return 0;
}

int jx_i64(json_t *v, void *out, struct err *e)
{
    if (!json_is_integer(v))
        return err_set(e, ERR_INVALID, "must be a whole number");
    *(int64_t *)out = json_integer_value(v);
    return 0;
}

int jx_u64(json_t *v, void *out, struct err *e)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return err_set(e, ERR_INVALID, "must be a whole number that is not negative");
    *(uint64_t *)out = (uint64_t)json_integer_value(v);
    return 0;
}

int jx_u32(json_t *v, void *out, struct err *e)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX)
        return err_set(e, ERR_INVALID, "must be a whole number from 0 to 4294967295");
    *(uint32_t *)out = (uint32_t)json_integer_value(v);
    return 0;
}

int jx_any(json_t *v, void *out, struct err *e)
{
    (void)e;
    *(json_t **)out = v;
    return 0;
}

int jx_object(json_t *v, void *out, struct err *e)
{
    if (!json_is_object(v))
        return err_set(e, ERR_INVALID, "must be an object");
    *(json_t **)out = v;
    return 0;
}

int jx_array(json_t *v, void *out, struct err *e)
{
    if (!json_is_array(v))
        return err_set(e, ERR_INVALID, "must be an array");
    *(json_t **)out = v;
    return 0;
}

/* Decodes an array by `one`, which decodes into a char *. owned: `one` allocates. */
static int decode_strv(json_t *v, jx_fn one, bool owned, char ***ret, struct err *e)
{
    _cleanup_strv_ char **list = NULL;
    json_t *item;
    size_t i;

    if (!json_is_array(v))
        return err_set(e, ERR_INVALID, "must be an array of strings");
    list = calloc(json_array_size(v) + 1, sizeof(char *));
    if (!list)
        return err_oom(e);
    json_array_foreach (v, i, item) {
        char *s = NULL;
        int r = one(item, &s, e);

        if (r < 0) {
            if (e)
                (void)snprintf(e->field, sizeof(e->field), "[%zu]", i);
            return r;
        }
        list[i] = owned ? s : strdup(s);
        if (!list[i])
            return err_oom(e);
    }
    strv_free(*ret);
    *ret = TAKE(list);
    return 0;
}

int jx_strv(json_t *v, void *out, struct err *e)
{
    return decode_strv(v, jx_str, false, out, e);
}

static int decode_b64(json_t *v, char **ret, size_t *ret_len, struct err *e)
{
    _cleanup_free_ char *data = NULL;
    size_t len = json_string_length(v);
    int r;

    data = malloc(len / 4 * 3 + 1);
    if (!data)
        return err_oom(e);
    r = b64_decode(json_string_value(v), len, data, ret_len, e);
    if (r < 0)
        return err_wrap(e, r, "has in 'b64'");
    data[*ret_len] = '\0';
    *ret = TAKE(data);
    return 0;
}

int jx_bytes(json_t *v, void *out, struct err *e)
{
    struct jx_bytes *b = out;
    json_t *text = json_object_get(v, "text");
    json_t *b64 = json_object_get(v, "b64");
    char *data;
    int r;

    if (json_object_size(v) != 1 || (!json_is_string(text) && !json_is_string(b64)))
        return err_set(e, ERR_INVALID, "must be {\"text\":\"...\"} or {\"b64\":\"...\"}");
    if (b64) {
        size_t len = 0;

        r = decode_b64(b64, &data, &len, e);
        if (r < 0)
            return r;
        jx_bytes_done(b);
        *b = (struct jx_bytes){data, len};
        return 0;
    }
    data = malloc(json_string_length(text) + 1);
    if (!data)
        return err_oom(e);
    memcpy(data, json_string_value(text), json_string_length(text) + 1);
    jx_bytes_done(b);
    *b = (struct jx_bytes){data, json_string_length(text)};
    return 0;
}

void jx_bytes_done(struct jx_bytes *b)
{
    free(b->data);
    *b = (struct jx_bytes){0};
}

/* A string or {"b64"}, without NUL bytes. */
static int decode_cstr(json_t *v, void *out, struct err *e)
{
    json_t *b64 = json_object_get(v, "b64");
    _cleanup_free_ char *s = NULL;
    size_t len = 0;
    int r;

    if (json_is_string(v)) {
        len = json_string_length(v);
        s = malloc(len + 1);
        if (!s)
            return err_oom(e);
        memcpy(s, json_string_value(v), len + 1);
    } else if (json_object_size(v) == 1 && json_is_string(b64)) {
        r = decode_b64(b64, &s, &len, e);
        if (r < 0)
            return r;
    } else {
        return err_set(e, ERR_INVALID, "must be a string or {\"b64\":\"...\"}");
    }
    if (strlen(s) != len)
        return err_set(e, ERR_INVALID, "must not contain a NUL");
    free(*(char **)out);
    *(char **)out = TAKE(s);
    return 0;
}

int jx_path(json_t *v, void *out, struct err *e)
{
    char *s = NULL;
    int r = decode_cstr(v, &s, e);

    if (r < 0)
        return r;
    if (!*s) {
        free(s);
        return err_set(e, ERR_INVALID, "must not be empty");
    }
    free(*(char **)out);
    *(char **)out = s;
    return 0;
}

int jx_argv(json_t *v, void *out, struct err *e)
{
    return decode_strv(v, decode_cstr, true, out, e);
}

int jx_add_bytes(json_t *obj, const char *data, size_t len, struct err *e)
{
    _cleanup_free_ char *encoded = NULL;

    if (str_is_utf8(data, len)) {
        if (json_object_set_new(obj, "text", json_stringn_nocheck(len ? data : "", len)) < 0)
            return err_oom(e);
        return 0;
    }
    encoded = malloc(B64_LEN(len));
    if (!encoded)
        return err_oom(e);
    b64_encode(data, len, encoded);
    if (json_object_set_new(obj, "b64", json_stringn_nocheck(encoded, B64_LEN(len))) < 0)
        return err_oom(e);
    return 0;
}

json_t *jx_new_bytes(const char *data, size_t len)
{
    json_t *obj = json_object();

    if (obj && jx_add_bytes(obj, data, len, NULL) < 0) {
        json_decref(obj);
        return NULL;
    }
    return obj;
}

json_t *jx_new_path(const char *path)
{
    size_t len = strlen(path);

    return str_is_utf8(path, len) ? json_stringn_nocheck(path, len) : jx_new_bytes(path, len);
}

json_t *jx_new_strv(char *const *v)
{
    json_t *list = json_array();

    for (; list && v && *v; v++)
        if (json_array_append_new(list, json_string(*v)) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* jansson's message: duplicate object key near '"NAME"'. */
static int fail_duplicate(const json_error_t *why, struct err *e)
{
    const char *name = strstr(why->text, " near '\"");
    char field[ERR_FIELD_BYTES];
    const char *end;

    if (name)
        name += strlen(" near '\"");
    end = name ? strstr(name, "\"'") : NULL;
    if (!end)
        return err_set(e, ERR_INVALID, "a field is there twice, at byte %d", why->position);
    (void)snprintf(field, sizeof(field), "%.*s", (int)(end - name), name);
    return err_field(e, ERR_INVALID, field, "field '%s' is there twice", field);
}

static int fail_parse(const json_error_t *why, struct err *e)
{
    enum json_error_code code = json_error_code(why);

    if (code == json_error_duplicate_key)
        return fail_duplicate(why, e);
    if (code == json_error_numeric_overflow)
        return err_set(e, ERR_INVALID, "the number that ends at byte %d is too large",
                       why->position);
    return err_set(e, ERR_INVALID, "not valid JSON at byte %d: %.200s", why->position, why->text);
}

int jx_parse(const char *text, size_t len, json_t **ret, struct err *e)
{
    json_error_t why;
    json_t *v = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);

    if (!v)
        return fail_parse(&why, e);
    *ret = v;
    return 0;
}

/* Memory of a value in jansson, with the allocator's share. Measured: an array of empty objects takes 232 bytes for each. */
#define OBJECT_BYTES 240
#define ARRAY_BYTES 128
#define PAIR_BYTES 96
#define VALUE_BYTES 96

/* At least the memory that the document takes once it is parsed. */
static size_t parsed_bytes(const char *text, size_t len)
{
    size_t bytes = VALUE_BYTES + len;
    bool in_string = false;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];

        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
            continue;
        }
        in_string = c == '"';
        bytes += c == '{'   ? OBJECT_BYTES
                 : c == '[' ? ARRAY_BYTES
                 : c == ':' ? PAIR_BYTES
                 : c == ',' ? VALUE_BYTES
                            : 0;
    }
    return bytes;
}

int jx_parse_within(const char *text, size_t len, size_t max_bytes, json_t **ret, struct err *e)
{
    if (len > max_bytes || parsed_bytes(text, len) > max_bytes)
        return err_set(e, ERR_EXHAUSTED, "JSON that takes more than %zu bytes of memory",
                       max_bytes);
    return jx_parse(text, len, ret, e);
}

int jx_parse_object(const char *text, size_t len, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *v = NULL;
    int r = 0;

    if (len)
        r = jx_parse(text, len, &v, e);
    else
        v = json_object();
    if (r < 0 || !v)
        return r < 0 ? r : err_oom(e);
    if (!json_is_object(v))
        return err_set(e, ERR_INVALID, "the request must be a JSON object");
    *ret = json_incref(v);
    return 0;
}

/* Not 0: at least one of eight bytes is below 0x20, '"' or '\\'. */
static uint64_t find_special(uint64_t eight)
{
    const uint64_t ones = 0x0101010101010101ull, highs = ones << 7;
    uint64_t quote = eight ^ (ones * '"'), slash = eight ^ (ones * '\\');

    return (((eight - ones * 0x20) & ~eight) | ((quote - ones) & ~quote) |
            ((slash - ones) & ~slash)) &
           highs;
}

#define ESCAPE_MAX_BYTES 6 /* \u001F */
#define BLOCK_BYTES 512    /* of a string; room is reserved per block */

/* The caller has reserved the room. Returns the place after the escape. */
static char *put_escape(unsigned char c, char *to)
{
    static const char digits[] = "0123456789ABCDEF";
    static const char letters[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
                                   ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\'};

    *to++ = '\\';
    if (letters[c]) {
        *to++ = letters[c];
        return to;
    }
    memcpy(to, "u00", 3);
    to[3] = digits[c >> 4];
    to[4] = digits[c & 15];
    return to + 5;
}

static bool is_special(unsigned char c)
{
    return c < 0x20 || c == '"' || c == '\\';
}

/* Copies while it checks: lines are short, and a memcpy() for each would cost more. */
static char *put_block(const char *s, size_t len, char *to)
{
    uint64_t eight;

    for (size_t i = 0; i < len;) {
        while (len - i >= 8 && ((void)memcpy(&eight, s + i, 8), !find_special(eight))) {
            memcpy(to, &eight, 8);
            to += 8;
            i += 8;
        }
        for (size_t end = len - i < 8 ? len : i + 8; i < end; i++) {
            if (is_special((unsigned char)s[i]))
                to = put_escape((unsigned char)s[i], to);
            else
                *to++ = s[i];
        }
    }
    return to;
}

/* Reserves the most that the block may need, or its exact size if that would exceed the maximum. */
static int reserve_block(const char *s, size_t len, struct buf *out, struct err *e)
{
    size_t need = len;

    if (buf_reserve(out, len * ESCAPE_MAX_BYTES, NULL) == 0)
        return 0;
    for (size_t i = 0; i < len; i++)
        need += is_special((unsigned char)s[i]) ? ESCAPE_MAX_BYTES - 1 : 0;
    return buf_reserve(out, need, e);
}

static int write_string(const char *s, size_t len, struct buf *out, struct err *e)
{
    int r = buf_reserve(out, len + 2, e); /* enough in most cases, with the quotes */

    if (r < 0)
        return r;
    out->data[out->len++] = '"';
    while (r == 0 && len) {
        size_t n = len < BLOCK_BYTES ? len : BLOCK_BYTES;

        r = reserve_block(s, n, out, e);
        if (r == 0)
            out->len = (size_t)(put_block(s, n, out->data + out->len) - out->data);
        s += n;
        len -= n;
    }
    return r < 0 ? r : buf_add(out, "\"", 1, e);
}

static int write_real(const json_t *v, struct buf *out, struct err *e)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    int r = text ? buf_adds(out, text, e) : err_oom(e);

    free(text);
    return r;
}

static int write_value(const json_t *v, unsigned depth, struct buf *out, struct err *e);

static int write_array(const json_t *v, unsigned depth, struct buf *out, struct err *e)
{
    int r = buf_add(out, "[", 1, e);

    for (size_t i = 0; r == 0 && i < json_array_size(v); i++) {
        if (i)
            r = buf_add(out, ",", 1, e);
        if (r == 0)
            r = write_value(json_array_get(v, i), depth, out, e);
    }
    return r < 0 ? r : buf_add(out, "]", 1, e);
}

static int write_object(const json_t *v, unsigned depth, struct buf *out, struct err *e)
{
    int r = buf_add(out, "{", 1, e);

    for (void *at = json_object_iter((json_t *)v), *first = at; r == 0 && at;
         at = json_object_iter_next((json_t *)v, at)) {
        if (at != first)
            r = buf_add(out, ",", 1, e);
        if (r == 0)
            r = write_string(json_object_iter_key(at), json_object_iter_key_len(at), out, e);
        if (r == 0)
            r = buf_add(out, ":", 1, e);
        if (r == 0)
            r = write_value(json_object_iter_value(at), depth, out, e);
    }
    return r < 0 ? r : buf_add(out, "}", 1, e);
}

static int write_value(const json_t *v, unsigned depth, struct buf *out, struct err *e)
{
    if (depth == 0)
        return err_set(e, ERR_INTERNAL, "JSON more than %d levels deep", JX_MAX_DEPTH);
    switch (json_typeof(v)) {
    case JSON_STRING:
        return write_string(json_string_value(v), json_string_length(v), out, e);
    case JSON_INTEGER:
        return buf_add_i64(out, json_integer_value(v), e);
    case JSON_OBJECT:
        return write_object(v, depth - 1, out, e);
    case JSON_ARRAY:
        return write_array(v, depth - 1, out, e);
    case JSON_REAL:
        return write_real(v, out, e);
    case JSON_TRUE:
        return buf_adds(out, "true", e);
    case JSON_FALSE:
        return buf_adds(out, "false", e);
    case JSON_NULL:
        break;
    }
    return buf_adds(out, "null", e);
}

/* jansson's encoder checks each character three times; most of our output is plain text. */
int jx_write(const json_t *v, struct buf *out, struct err *e)
{
    return v ? write_value(v, JX_MAX_DEPTH, out, e) : err_oom(e);
}

/* The comma and the name; true: the value is to follow. */
static bool put_name(struct jx_writer *w, const char *name)
{
    struct buf *out = w->out;

    if (w->r == 0 && name && out->len && out->data[out->len - 1] != '{')
        w->r = buf_add(out, ",", 1, w->e);
    if (w->r == 0 && name)
        w->r = write_string(name, strlen(name), out, w->e);
    if (w->r == 0 && name)
        w->r = buf_add(out, ":", 1, w->e);
    return w->r == 0;
}

void jx_put_begin(struct jx_writer *w, const char *name)
{
    jx_put_raw(w, name, "{");
}

void jx_put_end(struct jx_writer *w)
{
    jx_put_raw(w, NULL, "}");
}

void jx_put_text(struct jx_writer *w, const char *name, const char *text, size_t n)
{
    if (!str_is_utf8(text, n))
        w->r = err_set(w->e, ERR_INTERNAL, "%s is not UTF-8", name ? name : "a text");
    if (put_name(w, name))
        w->r = write_string(text, n, w->out, w->e);
}

void jx_put_str(struct jx_writer *w, const char *name, const char *s)
{
    if (s)
        jx_put_text(w, name, s, strlen(s));
    else
        jx_put_raw(w, name, "null");
}

void jx_put_i64(struct jx_writer *w, const char *name, int64_t v)
{
    if (put_name(w, name))
        w->r = buf_add_i64(w->out, v, w->e);
}

void jx_put_value(struct jx_writer *w, const char *name, const json_t *v)
{
    if (put_name(w, name))
        w->r = jx_write(v, w->out, w->e);
}

void jx_put_raw(struct jx_writer *w, const char *name, const char *json)
{
    if (put_name(w, name))
        w->r = buf_adds(w->out, json, w->e);
}

int jx_dump(const json_t *v, char **ret, size_t *ret_len, struct err *e)
{
    _cleanup_buf_ struct buf out = {.max = SIZE_MAX / 4};
    int r = jx_write(v, &out, e);

    if (r < 0)
        return r;
    if (ret_len)
        *ret_len = out.len;
    *ret = buf_take(&out);
    return 0;
}

static json_t *new_detail(const struct err *e)
{
    char text[ERR_DETAIL_BYTES];
    uint64_t n;

    if (e->detail_is_number && str_parse_u64(e->detail, 0, INT64_MAX, &n, NULL) == 0)
        return json_pack("{s:I}", e->detail_name, (json_int_t)n);
    (void)snprintf(text, sizeof(text), "%s", e->detail);
    str_make_utf8(text);
    return json_pack("{s:s}", e->detail_name, text);
}

static void read_detail(const json_t *detail, struct err *e)
{
    const char *name;
    json_t *v;

    json_object_foreach ((json_t *)(uintptr_t)detail, name, v) {
        if (json_is_integer(v) && json_integer_value(v) >= 0)
            (void)err_detail_u64(e, 0, name, (uint64_t)json_integer_value(v));
        else if (json_is_string(v))
            (void)err_detail(e, 0, name, json_string_value(v));
        return; /* struct err has room for one fact */
    }
}

json_t *jx_new_error(const struct err *e)
{
    char message[ERR_MESSAGE_BYTES], field[ERR_FIELD_BYTES];
    json_t *obj;

    /* A path in the message may not be UTF-8, or be cut within a character: replace these bytes. */
    (void)snprintf(message, sizeof(message), "%s", e->message);
    (void)snprintf(field, sizeof(field), "%s", e->field);
    str_make_utf8(message);
    str_make_utf8(field);
    obj = json_pack("{s:s, s:s}", "code", err_wire_name(e->code), "message", message);
    if (obj && field[0])
        (void)json_object_set_new(obj, "field", json_string(field));
    if (obj && e->detail_name[0])
        (void)json_object_set_new(obj, "detail", new_detail(e));
    return obj;
}

bool jx_read_error(json_t *obj, struct err *e)
{
    const char *code = json_string_value(json_object_get(obj, "code"));
    const char *message = json_string_value(json_object_get(obj, "message"));
    const char *field = json_string_value(json_object_get(obj, "field"));
    int c = code ? err_code_from_wire(code) : 0;

    if (!c)
        return false;
    (void)err_field(e, (enum err_code)c, field ? field : "", "%s", message ? message : code);
    read_detail(json_object_get(obj, "detail"), e);
    return true;
}
