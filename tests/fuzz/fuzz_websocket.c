/*
 * Frames of a WebSocket's client: the messages and the verdict are the same however the bytes were split on their way;
 * text is UTF-8, and a control frame is short. The header that is written is the shortest one.
 * fuzz-flags: -max_len=4096
 */
#include "fuzz.h"

#include "common/buf.h"
#include "common/str.h"
#include "daemon/websocket.h"

/* The messages that the reader gave, with a byte for the opcode before each message. Pieces of a binary message are joined. */
struct seen {
    struct buf all;
    bool in_binary;
};

static int see(void *arg, enum ws_opcode opcode, const char *data, size_t len)
{
    struct seen *s = arg;
    char letter = (char)opcode;

    CHECK(opcode == WS_TEXT || opcode == WS_BINARY || opcode >= WS_CLOSE);
    if (opcode == WS_TEXT)
        CHECK(len <= WS_TEXT_BYTES && str_is_utf8(data, len));
    if (opcode >= WS_CLOSE)
        CHECK(len <= WS_CONTROL_BYTES);
    if (opcode != WS_BINARY || !s->in_binary)
        CHECK(buf_add(&s->all, &letter, 1, NULL) == 0);
    s->in_binary = opcode == WS_BINARY;
    CHECK(buf_add(&s->all, data, len, NULL) == 0);
    return 0;
}

/* In pieces of `step` bytes; the reader changes what it gets. */
static int read_all(const uint8_t *data, size_t size, size_t step, struct seen *ret)
{
    struct ws_reader *r = calloc(1, sizeof(*r));
    int code = 0;

    CHECK(r);
    buf_init(&ret->all, 64u << 10);
    for (size_t at = 0; at < size && code == 0; at += step) {
        size_t n = size - at < step ? size - at : step;
        char *piece = malloc(n);

        CHECK(piece);
        memcpy(piece, data + at, n);
        code = ws_read(r, piece, n, see, ret);
        free(piece);
    }
    free(r);
    CHECK(code == 0 || (code >= WS_NORMAL && code <= WS_INTERNAL));
    return code;
}

static void check_header(size_t len)
{
    char head[WS_HEADER_BYTES];
    size_t n = ws_write_header(WS_BINARY, len, head);

    CHECK(n == (len < 126 ? 2u : len <= UINT16_MAX ? 4u : 10u));
}

FUZZ(data, size)
{
    struct seen whole = {0}, cut = {0};
    size_t step = size ? data[size - 1] % 17 + 1 : 1;
    int r = read_all(data, size, size ? size : 1, &whole);

    CHECK(read_all(data, size, step, &cut) == r);
    CHECK(whole.all.len == cut.all.len);
    CHECK(!whole.all.len || memcmp(whole.all.data, cut.all.data, whole.all.len) == 0);
    check_header(size * step * step);
    buf_done(&whole.all);
    buf_done(&cut.all);
    return 0;
}
