#include "api/encode.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "common/jsonx.h"

/* A message: a value, or its text. */
struct body {
    const json_t *v;
    const char *text;
    size_t len;
};

static int add_body(const struct body *b, struct buf *out, struct err *e)
{
    return b->v ? jx_write(b->v, out, e) : buf_add(out, b->text, b->len, e);
}

int encode_begin_envelope(unsigned char flags, struct buf *out, struct err *e)
{
    const char head[ENCODE_ENVELOPE_BYTES] = {(char)flags};

    return buf_add(out, head, sizeof(head), e);
}

void encode_finish_envelope(size_t at, struct buf *out)
{
    size_t len = out->len - at - ENCODE_ENVELOPE_BYTES;

    for (int i = 0; i < 4; i++)
        out->data[at + 1 + (size_t)i] = (char)(len >> (24 - 8 * i) & 0xff);
}

static int add_envelope(unsigned char flags, const struct body *b, struct buf *out, struct err *e)
{
    size_t at = out->len;
    int r;

    r = encode_begin_envelope(flags, out, e);
    if (r == 0)
        r = add_body(b, out, e);
    if (r == 0)
        encode_finish_envelope(at, out);
    return r;
}

static int add_event(const char *event, const struct body *b, struct buf *out, struct err *e)
{
    int r = buf_addf(out, e, "event: %s\ndata: ", event);

    if (r == 0)
        r = add_body(b, out, e);
    return r < 0 ? r : buf_adds(out, "\n\n", e);
}

static int add_message(enum encoding enc, const struct body *b, struct buf *out, struct err *e)
{
    size_t before = out->len;
    int r;

    if (enc == ENCODING_CONNECT) {
        r = add_envelope(0, b, out, e);
    } else if (enc == ENCODING_SSE) {
        r = add_event("message", b, out, e);
    } else {
        r = add_body(b, out, e);
        if (r == 0)
            r = buf_adds(out, "\n", e);
    }
    if (r < 0)
        out->len = before; /* a half message would poison the stream */
    return r;
}

int encode_message(enum encoding enc, const json_t *msg, struct buf *out, struct err *e)
{
    return add_message(enc, &(struct body){.v = msg}, out, e);
}

int encode_lines(enum encoding enc, const char *text, size_t len, struct buf *out, struct err *e)
{
    const char *end = text + len;
    int r = 0;

    if (enc == ENCODING_NDJSON)
        return buf_add(out, text, len, e);
    while (r == 0 && text < end) {
        const char *nl = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((nl ? nl : end) - text);

        r = add_message(enc, &(struct body){.text = text, .len = n}, out, e);
        text += n + 1;
    }
    return r;
}

int encode_end(enum encoding enc, const struct err *error, struct buf *out, struct err *e)
{
    _cleanup_json_ json_t *v = json_object();

    if (!v || (error && json_object_set_new(v, "error", jx_new_error(error)) < 0))
        return err_oom(e);
    if (enc == ENCODING_CONNECT)
        return add_envelope(ENCODE_FLAG_END, &(struct body){.v = v}, out, e);
    if (enc == ENCODING_SSE)
        return add_event(error ? "error" : "end", &(struct body){.v = v}, out, e);
    return error ? encode_message(enc, v, out, e) : 0;
}

int encode_keepalive(enum encoding enc, struct buf *out, struct err *e)
{
    if (enc == ENCODING_SSE)
        return buf_adds(out, ": keep-alive\n\n", e);
    if (enc == ENCODING_NDJSON)
        return buf_adds(out, "{\"keepalive\":{}}\n", e);
    return 0;
}

uint32_t encode_envelope_len(const char *head)
{
    uint32_t n = 0;

    for (int i = 1; i < ENCODE_ENVELOPE_BYTES; i++)
        n = n << 8 | (unsigned char)head[i];
    return n;
}

int encode_open_envelope(const char *body, size_t len, const char **ret, size_t *ret_len,
                         struct err *e)
{
    uint32_t n;

    if (len < ENCODE_ENVELOPE_BYTES)
        return err_set(e, ERR_INVALID, "a Connect request without a whole envelope");
    if (body[0] & ENCODE_FLAG_COMPRESSED)
        return err_set(e, ERR_UNIMPLEMENTED, "compressed envelopes are not supported");
    if (body[0])
        return err_set(e, ERR_INVALID, "an envelope with unknown flags");
    n = encode_envelope_len(body);
    if (n != len - ENCODE_ENVELOPE_BYTES)
        return err_set(e, ERR_INVALID, "an envelope that says %u bytes where there are %zu", n,
                       len - ENCODE_ENVELOPE_BYTES);
    *ret = body + ENCODE_ENVELOPE_BYTES;
    *ret_len = n;
    return 0;
}

int codec_parse(const struct codec *c, const struct rpc_method *m, const char *data, size_t len,
                json_t **ret, struct err *e)
{
    return c->parse ? c->parse(m, data, len, ret, e) : jx_parse_object(data, len, ret, e);
}

int codec_write(const struct codec *c, const struct rpc_method *m, const json_t *msg,
                struct buf *out, struct err *e)
{
    return c->write ? c->write(m, msg, out, e) : jx_write(msg, out, e);
}

int codec_write_message(const struct codec *c, const struct rpc_method *m, const json_t *msg,
                        struct buf *out, struct err *e)
{
    size_t at = out->len;
    int r;

    if (!c->write)
        return encode_message(c->encoding, msg, out, e);
    r = encode_begin_envelope(0, out, e);
    if (r == 0)
        r = c->write(m, msg, out, e);
    if (r < 0)
        out->len = at; /* a half message would poison the stream */
    else
        encode_finish_envelope(at, out);
    return r;
}

bool codec_type_is(const char *value, const char *type)
{
    size_t n = strlen(type);

    return strncasecmp(value, type, n) == 0 &&
           (value[n] == '\0' || value[n] == ';' || value[n] == ' ');
}
