#include "api/codec.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/wire/wire.h"
#include "dialect/e2b/proto.h"
#include "api/encode.h"

bool codec_type_is(const char *value, const char *type)
{
    size_t n = strlen(type);

    return strncasecmp(value, type, n) == 0 &&
           (value[n] == '\0' || value[n] == ';' || value[n] == ' ');
}

/* The types of unary methods and of streams, as JSON and as protobuf. */
static const char *const types[2][2] = {
    {WIRE_TYPE_JSON, "application/proto"},
    {WIRE_TYPE_CONNECT, "application/connect+proto"},
};

int codec_choose(struct request *q, bool is_stream, struct err *e)
{
    const char *type = request_header(q, "Content-Type");
    char good[64];

    for (int is_proto = 0; type && is_proto < 2; is_proto++)
        if (codec_type_is(type, types[is_stream][is_proto])) {
            q->connect = is_stream ? CONNECT_STREAM : CONNECT_UNARY;
            q->is_proto = is_proto;
            return 0;
        }
    q->connect = CONNECT_UNARY; /* who sends another type does not read envelopes */
    q->error_status = MHD_HTTP_UNSUPPORTED_MEDIA_TYPE;
    (void)snprintf(good, sizeof(good), "%s, %s", types[is_stream][0], types[is_stream][1]);
    (void)request_reply_header(q, "Accept-Post", good, NULL);
    return err_set(e, ERR_UNKNOWN, "the body's type must be one of %s", good);
}

int codec_parse(const struct request *q, const char *data, size_t len, json_t **ret, struct err *e)
{
    if (q->is_proto)
        return proto_read(q->method, PROTO_REQUEST, data, len, ret, e);
    return jx_parse_object(data, len, ret, e);
}

int codec_write(const struct request *q, const json_t *msg, struct buf *out, struct err *e)
{
    if (q->is_proto)
        return proto_write(q->method, PROTO_REPLY, msg, out, e);
    return jx_write(msg, out, e);
}

int codec_write_envelope(const struct request *q, const json_t *msg, struct buf *out, struct err *e)
{
    size_t at = out->len;
    int r;

    r = encode_begin_envelope(0, out, e);
    if (r == 0)
        r = codec_write(q, msg, out, e);
    if (r < 0)
        out->len = at; /* a half message would poison the stream */
    else
        encode_finish_envelope(at, out);
    return r;
}

const char *codec_type(const struct request *q)
{
    return types[q->connect == CONNECT_STREAM][q->is_proto];
}
