/*
 * fuzz_e2b_proto: bytes as the protobuf of a request or a reply. A message that is read can be
 * written, and reads as the same again; a refused message leaves nothing behind.
 */
#include "fuzz.h"

#include <jansson.h>

#include "common/buf.h"
#include "api/dialect.h"
#include "dialect/e2b/e2b.h"
#include "dialect/e2b/proto.h"

FUZZ(data, size)
{
    struct fuzz_in in = {data, size};
    size_t which = fuzz_byte(&in);
    enum proto_side side = fuzz_byte(&in) & 1 ? PROTO_REPLY : PROTO_REQUEST;
    const struct rpc_method *m = &e2b_dialect.methods[which % 17];
    json_t *first = NULL, *second = NULL;
    struct buf out;

    CHECK(e2b_dialect.n_methods == 17);
    if (proto_read(m, side, in.data, in.len, &first, NULL) < 0) {
        CHECK(!first);
        return 0;
    }
    CHECK(json_is_object(first));
    buf_init(&out, 4 * in.len + 1024);
    /* A time is an object when it is read and text when it is written, so writing it is refused. */
    if (proto_write(m, side, first, &out, NULL) == 0) {
        CHECK(proto_read(m, side, out.data, out.len, &second, NULL) == 0);
        CHECK(json_equal(first, second));
    }
    buf_done(&out);
    json_decref(first);
    json_decref(second);
    return 0;
}
