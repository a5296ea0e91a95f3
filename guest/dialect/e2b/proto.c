#include "dialect/e2b/proto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/rpc.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "dialect/e2b/e2b.pb-c.h"
#include "dialect/e2b/process_json.h"

#define NAME_BYTES 64
#define NS_PER_S 1000000000LL

typedef const ProtobufCMessageDescriptor message_type;
typedef const ProtobufCFieldDescriptor field_type;

static int find_type(const struct rpc_method *m, enum proto_side side, message_type **ret,
                     struct err *e)
{
    const ProtobufCServiceDescriptor *s = str_eq(m->service, "process.Process")
                                              ? &e2b__process__descriptor
                                              : &e2b__filesystem__descriptor;
    const ProtobufCMethodDescriptor *d =
        protobuf_c_service_descriptor_get_method_by_name(s, m->name);

    if (!d)
        return err_set(e, ERR_UNIMPLEMENTED, "%s/%s has no messages in protobuf", m->service,
                       m->name);
    *ret = side == PROTO_REQUEST ? d->input : d->output;
    return 0;
}

/* "exit_code" -> "exitCode" */
static void json_name(const char *name, char out[NAME_BYTES])
{
    size_t n = 0;

    for (; *name && n < NAME_BYTES - 1; name++) {
        if (*name == '_' && name[1])
            out[n++] = (char)(*++name - 'a' + 'A');
        else
            out[n++] = *name;
    }
    out[n] = '\0';
}

/* Two fields that are repeated: a map, which is an object in JSON. */
static bool is_map(field_type *f)
{
    return f->label == PROTOBUF_C_LABEL_REPEATED && f->type == PROTOBUF_C_TYPE_MESSAGE &&
           str_has_suffix(((message_type *)f->descriptor)->short_name, "Entry");
}

static bool is_timestamp(message_type *t)
{
    return str_eq(t->short_name, "Timestamp");
}

/* ---- memory: bounded, since a few bytes of a request can be many of these ---- */

struct memory {
    size_t left;
};

static void *take_memory(void *data, size_t size)
{
    struct memory *m = data;

    if (size > m->left)
        return NULL;
    m->left -= size;
    return malloc(size ? size : 1);
}

static void give_memory(void *data, void *p)
{
    (void)data;
    free(p);
}

/* ---- into JSON ---- */

static json_t *new_object(const ProtobufCMessage *m);

static const void *field_at(const ProtobufCMessage *m, unsigned offset)
{
    return (const char *)m + offset;
}

static json_t *new_bytes(const ProtobufCBinaryData *b)
{
    char *text = malloc(B64_LEN(b->len) + 1);
    json_t *v;

    if (!text)
        return NULL;
    b64_encode(b->data, b->len, text);
    v = json_stringn_nocheck(text, B64_LEN(b->len));
    free(text);
    return v;
}

static json_t *new_enum(field_type *f, int number)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(f->descriptor, number);

    return v ? json_string(v->name) : json_integer(number);
}

static json_t *new_int64(int64_t n)
{
    return json_sprintf("%lld", (long long)n);
}

static json_t *new_value(field_type *f, const void *p)
{
    switch ((int)f->type) {
    case PROTOBUF_C_TYPE_STRING:
        return json_string(*(char *const *)p);
    case PROTOBUF_C_TYPE_BYTES:
        return new_bytes(p);
    case PROTOBUF_C_TYPE_MESSAGE:
        return new_object(*(ProtobufCMessage *const *)p);
    case PROTOBUF_C_TYPE_ENUM:
        return new_enum(f, *(const int *)p);
    case PROTOBUF_C_TYPE_BOOL:
        return json_boolean(*(const protobuf_c_boolean *)p);
    case PROTOBUF_C_TYPE_UINT32:
        return json_integer(*(const uint32_t *)p);
    case PROTOBUF_C_TYPE_INT64:
        return new_int64(*(const int64_t *)p);
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
        return json_integer(*(const int32_t *)p);
    }
    return NULL;
}

/* The pointer is what strings and messages are in a list. */
static json_t *new_list(const ProtobufCMessage *m, field_type *f)
{
    size_t n = *(const size_t *)field_at(m, f->quantifier_offset);
    void *const *items = *(void *const *const *)field_at(m, f->offset);
    json_t *list = json_array();

    for (size_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, new_value(f, &items[i])) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *new_map(const ProtobufCMessage *m, field_type *f)
{
    size_t n = *(const size_t *)field_at(m, f->quantifier_offset);
    const E2b__EnvsEntry *const *items =
        *(const E2b__EnvsEntry *const *const *)field_at(m, f->offset);
    json_t *map = json_object();

    for (size_t i = 0; map && i < n; i++) {
        const char *key = items[i]->key ? items[i]->key : "";

        if (json_object_set_new(map, key, json_string(items[i]->value ? items[i]->value : "")) <
            0) {
            json_decref(map);
            return NULL;
        }
    }
    return map;
}

static bool is_present(const ProtobufCMessage *m, field_type *f)
{
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return *(const size_t *)field_at(m, f->quantifier_offset) > 0;
    if (f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_MESSAGE)
        return *(void *const *)field_at(m, f->offset) != NULL;
    return *(const protobuf_c_boolean *)field_at(m, f->quantifier_offset);
}

static json_t *new_field(const ProtobufCMessage *m, field_type *f)
{
    if (is_map(f))
        return new_map(m, f);
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return new_list(m, f);
    return new_value(f, field_at(m, f->offset));
}

/* NULL: no memory, or a text that is none. */
static json_t *new_object(const ProtobufCMessage *m)
{
    json_t *obj = json_object();

    for (unsigned i = 0; obj && i < m->descriptor->n_fields; i++) {
        field_type *f = &m->descriptor->fields[i];
        char name[NAME_BYTES];

        if (!is_present(m, f))
            continue;
        json_name(f->name, name);
        if (json_object_set_new(obj, name, new_field(m, f)) < 0) {
            json_decref(obj);
            return NULL;
        }
    }
    return obj;
}

/* ---- text that ends early -------------------------------------------------------------------- */

#define WIRE_VARINT 0
#define WIRE_BYTES 2
#define DEPTH_MAX 16 /* of messages in messages; E2B's are four deep */

/* False: there is no number here. */
static bool take_varint(const uint8_t **at, const uint8_t *end, uint64_t *ret)
{
    *ret = 0;
    for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
        uint8_t byte = *(*at)++;

        *ret |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static int check_texts(message_type *type, const uint8_t *at, const uint8_t *end, int depth,
                       struct err *e);

static int check_bytes(field_type *f, const uint8_t *at, size_t len, int depth, struct err *e)
{
    char name[NAME_BYTES];

    if (f && f->type == PROTOBUF_C_TYPE_MESSAGE && depth < DEPTH_MAX)
        return check_texts(f->descriptor, at, at + len, depth + 1, e);
    if (!f || f->type != PROTOBUF_C_TYPE_STRING || !memchr(at, 0, len))
        return 0;
    json_name(f->name, name);
    return err_field(e, ERR_INVALID, name, "'%s' has a NUL in it", name);
}

/*
 * The library ends a text at its first NUL, so that another path, say, would be meant than was sent.
 * What is no message at all is found by the library.
 */
static int check_texts(message_type *type, const uint8_t *at, const uint8_t *end, int depth,
                       struct err *e)
{
    uint64_t tag, n;
    int r = 0;

    while (r == 0 && take_varint(&at, end, &tag)) {
        unsigned wire = tag & 7;

        if (wire == WIRE_VARINT || wire == WIRE_BYTES) {
            if (!take_varint(&at, end, &n))
                return 0;
            if (wire == WIRE_VARINT)
                continue;
        } else {
            n = wire == 1 ? 8 : 4;
        }
        if (n > (size_t)(end - at))
            return 0;
        if (wire == WIRE_BYTES)
            r = check_bytes(protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3)), at,
                            n, depth, e);
        at += n;
    }
    return r;
}

int proto_read(const struct rpc_method *m, enum proto_side side, const void *data, size_t len,
               json_t **ret, struct err *e)
{
    struct memory memory = {PROTO_MAX_BYTES};
    ProtobufCAllocator allocator = {take_memory, give_memory, &memory};
    ProtobufCMessage *msg;
    message_type *type;
    json_t *v;
    int r;

    r = find_type(m, side, &type, e);
    if (r == 0)
        r = check_texts(type, data, (const uint8_t *)data + len, 0, e);
    if (r < 0)
        return r;
    msg = protobuf_c_message_unpack(type, &allocator, len, data);
    if (!msg)
        return err_set(e, ERR_INVALID, "the message is no protobuf of this method, or too large");
    v = new_object(msg);
    protobuf_c_message_free_unpacked(msg, &allocator);
    if (!v)
        return err_set(e, ERR_INVALID, "the message has text that is not UTF-8");
    *ret = v;
    return 0;
}

/* ---- from JSON ---- */

/* 1.0 and 1e0 are whole numbers too. */
static bool is_whole(const json_t *v, int64_t *ret)
{
    double n = json_real_value(v);

    if (json_is_integer(v))
        *ret = json_integer_value(v);
    else if (json_is_real(v) && n >= INT32_MIN && n <= UINT32_MAX)
        *ret = (int64_t)n;
    else
        return false;
    return json_is_integer(v) || (double)*ret == n;
}

/* A number in a string, with nothing around it. */
static json_t *new_number(const json_t *text)
{
    const char *s = json_string_value(text);

    return strspn(s, "-0123456789.eE") == json_string_length(text)
               ? json_loads(s, JSON_DECODE_ANY, NULL)
               : NULL;
}

bool proto_get_whole(const json_t *v, int64_t *ret)
{
    _cleanup_json_ json_t *number = NULL;

    if (!json_is_string(v))
        return is_whole(v, ret);
    number = new_number(v);
    return number && is_whole(number, ret);
}

int proto_jx_u32(json_t *v, void *out, struct err *e)
{
    int64_t n;

    if (!proto_get_whole(v, &n) || n < 0 || n > UINT32_MAX)
        return err_set(e, ERR_INVALID, "must be a whole number from 0 to 4294967295");
    *(uint32_t *)out = (uint32_t)n;
    return 0;
}

static int new_message(message_type *type, const json_t *v, ProtobufCMessage **ret, struct err *e);

static int wrong_type(field_type *f, struct err *e)
{
    return err_set(e, ERR_INTERNAL, "'%s' has a value that protobuf has no place for", f->name);
}

static int set_string(const json_t *v, char **ret, struct err *e)
{
    *ret = strdup(json_string_value(v));
    return *ret ? 0 : err_oom(e);
}

static int set_bytes(const json_t *v, ProtobufCBinaryData *ret, struct err *e)
{
    struct jx_bytes b = {0};
    int r = jx_b64((json_t *)v, &b, e);

    if (r == 0)
        *ret = (ProtobufCBinaryData){.len = b.len, .data = (uint8_t *)b.data};
    return r;
}

static int set_enum(field_type *f, const json_t *v, int *ret, struct err *e)
{
    const ProtobufCEnumValue *value;

    if (json_is_integer(v)) {
        *ret = (int)json_integer_value(v);
        return 0;
    }
    value = protobuf_c_enum_descriptor_get_value_by_name(f->descriptor, json_string_value(v));
    if (!value)
        return wrong_type(f, e);
    *ret = value->value;
    return 0;
}

/* 64 bits are text in JSON. */
static int set_int64(field_type *f, const json_t *v, int64_t *ret, struct err *e)
{
    if (json_is_string(v))
        return str_parse_i64(json_string_value(v), INT64_MIN, INT64_MAX, ret, e);
    if (!json_is_integer(v))
        return wrong_type(f, e);
    *ret = json_integer_value(v);
    return 0;
}

static int set_value(field_type *f, const json_t *v, void *p, struct err *e)
{
    int kind = (int)f->type;

    if (kind == PROTOBUF_C_TYPE_MESSAGE)
        return new_message(f->descriptor, v, p, e);
    if (kind == PROTOBUF_C_TYPE_INT64)
        return set_int64(f, v, p, e);
    if (kind == PROTOBUF_C_TYPE_ENUM && (json_is_string(v) || json_is_integer(v)))
        return set_enum(f, v, p, e);
    if (kind == PROTOBUF_C_TYPE_STRING && json_is_string(v))
        return set_string(v, p, e);
    if (kind == PROTOBUF_C_TYPE_BYTES && json_is_string(v))
        return set_bytes(v, p, e);
    if (kind == PROTOBUF_C_TYPE_BOOL && json_is_boolean(v))
        *(protobuf_c_boolean *)p = json_is_true(v);
    else if (kind == PROTOBUF_C_TYPE_UINT32 && json_is_integer(v))
        *(uint32_t *)p = (uint32_t)json_integer_value(v);
    else if ((kind == PROTOBUF_C_TYPE_INT32 || kind == PROTOBUF_C_TYPE_SINT32) &&
             json_is_integer(v))
        *(int32_t *)p = (int32_t)json_integer_value(v);
    else
        return wrong_type(f, e);
    return 0;
}

/* Room for n; *ret_n counts those that are set, so that what is half done can be freed. */
static int new_items(ProtobufCMessage *m, field_type *f, size_t n, void ***ret, size_t **ret_n,
                     struct err *e)
{
    *ret = calloc(n + 1, sizeof(void *));
    if (!*ret)
        return err_oom(e);
    *(void ***)(void *)((char *)m + f->offset) = *ret;
    *ret_n = (size_t *)(void *)((char *)m + f->quantifier_offset);
    return 0;
}

static int set_list(ProtobufCMessage *m, field_type *f, const json_t *v, struct err *e)
{
    size_t *n;
    void **items;
    int r;

    if (!json_is_array(v))
        return wrong_type(f, e);
    r = new_items(m, f, json_array_size(v), &items, &n, e);
    for (size_t i = 0; r == 0 && i < json_array_size(v); i++) {
        r = set_value(f, json_array_get(v, i), &items[*n], e);
        if (r == 0)
            ++*n;
    }
    return r;
}

static int new_map_entry(message_type *type, const char *key, const json_t *value,
                         ProtobufCMessage **ret, struct err *e)
{
    _cleanup_json_ json_t *v = json_pack("{s:s, s:O}", "key", key, "value", (json_t *)value);

    return v ? new_message(type, v, ret, e) : err_oom(e);
}

static int set_map(ProtobufCMessage *m, field_type *f, const json_t *v, struct err *e)
{
    const char *key;
    json_t *value;
    void **items;
    size_t *n;
    int r;

    if (!json_is_object(v))
        return wrong_type(f, e);
    r = new_items(m, f, json_object_size(v), &items, &n, e);
    if (r < 0)
        return r;
    json_object_foreach ((json_t *)v, key, value) {
        r = new_map_entry(f->descriptor, key, value, (ProtobufCMessage **)(void *)&items[*n], e);
        if (r < 0)
            return r;
        ++*n;
    }
    return 0;
}

static int set_field(ProtobufCMessage *m, field_type *f, const json_t *v, struct err *e)
{
    int r;

    if (is_map(f))
        return set_map(m, f, v, e);
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return set_list(m, f, v, e);
    r = set_value(f, v, (char *)m + f->offset, e);
    if (r == 0 && f->type != PROTOBUF_C_TYPE_STRING && f->type != PROTOBUF_C_TYPE_MESSAGE)
        *(protobuf_c_boolean *)((char *)m + f->quantifier_offset) = 1;
    return r;
}

int proto_parse_time(const char *s, int64_t *ret_ns, struct err *e)
{
    struct tm tm = {0};
    char sign = 'Z';
    int n = 0, hours = 0, minutes = 0;
    int64_t ns = 0, unit = NS_PER_S / 10, zone_s, whole;

    if (sscanf(s, "%4d-%2d-%2d%*1[Tt]%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &n) != 6 ||
        !n)
        return err_set(e, ERR_INVALID, "must be a time as RFC 3339 has it");
    s += n;
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9'; s++, unit /= 10)
            ns += unit * (*s - '0');
    n = 0;
    if ((*s == '+' || *s == '-') && sscanf(s, "%c%2d:%2d%n", &sign, &hours, &minutes, &n) == 3)
        s += n;
    else if (*s == 'Z' || *s == 'z')
        s++;
    else
        return err_set(e, ERR_INVALID, "must be a time with its zone");
    if (*s)
        return err_set(e, ERR_INVALID, "must be a time, and nothing behind it");
    tm.tm_year -= 1900;
    tm.tm_mon--;
    zone_s = (sign == '-' ? -1 : 1) * ((int64_t)hours * 3600 + (int64_t)minutes * 60);
    if (__builtin_mul_overflow((int64_t)timegm(&tm) - zone_s, NS_PER_S, &whole) ||
        __builtin_add_overflow(whole, ns, &whole))
        return err_set(e, ERR_INVALID, "must be a time between 1678 and 2262");
    *ret_ns = whole;
    return 0;
}

static int set_timestamp(ProtobufCMessage *m, const json_t *v, struct err *e)
{
    E2b__Timestamp *t = (E2b__Timestamp *)(void *)m;
    int64_t ns, rest;
    int r = proto_parse_time(json_string_value(v), &ns, e);

    if (r < 0)
        return r;
    rest = ((ns % NS_PER_S) + NS_PER_S) % NS_PER_S;
    t->seconds = (ns - rest) / NS_PER_S;
    t->nanos = (int32_t)rest;
    t->has_seconds = t->has_nanos = 1;
    return 0;
}

static int set_fields(ProtobufCMessage *m, const json_t *v, struct err *e)
{
    int r = 0;

    if (is_timestamp(m->descriptor) && json_is_string(v))
        return set_timestamp(m, v, e);
    if (!json_is_object(v))
        return err_set(e, ERR_INTERNAL, "a message must be an object");
    for (unsigned i = 0; r == 0 && i < m->descriptor->n_fields; i++) {
        field_type *f = &m->descriptor->fields[i];
        char name[NAME_BYTES];
        const json_t *value;

        json_name(f->name, name);
        value = json_object_get(v, name);
        if (value && !json_is_null(value))
            r = set_field(m, f, value, e);
    }
    return r;
}

static int new_message(message_type *type, const json_t *v, ProtobufCMessage **ret, struct err *e)
{
    ProtobufCMessage *m = calloc(1, type->sizeof_message);
    int r;

    if (!m)
        return err_oom(e);
    type->message_init(m);
    r = set_fields(m, v, e);
    if (r < 0)
        protobuf_c_message_free_unpacked(m, NULL);
    else
        *ret = m;
    return r;
}

int proto_write(const struct rpc_method *m, enum proto_side side, const json_t *msg,
                struct buf *out, struct err *e)
{
    ProtobufCMessage *packed;
    message_type *type;
    size_t len;
    int r;

    r = find_type(m, side, &type, e);
    if (r == 0)
        r = new_message(type, msg, &packed, e);
    if (r < 0)
        return r;
    len = protobuf_c_message_get_packed_size(packed);
    r = buf_reserve(out, len, e);
    if (r == 0) {
        (void)protobuf_c_message_pack(packed, (uint8_t *)out->data + out->len);
        out->len += len;
        out->data[out->len] = '\0';
    }
    protobuf_c_message_free_unpacked(packed, NULL);
    return r;
}
