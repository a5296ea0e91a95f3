#pragma once
/*
 * websocket: the server's side of RFC 6455: the key of the handshake, and frames. No I/O, no threads. The reader is strict:
 * unmasked frames, reserved bits, unknown opcodes, fragmented or long control frames, wrong close codes and text that is
 * no UTF-8 end the connection with the code that the RFC has for them.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define WS_TEXT_BYTES (16 * 1024) /* of one text message: else code 1009 */
#define WS_CONTROL_BYTES 125
#define WS_HEADER_BYTES 10
#define WS_ACCEPT_BYTES 29

enum ws_opcode {
    WS_CONTINUATION = 0,
    WS_TEXT = 1,
    WS_BINARY = 2,
    WS_CLOSE = 8,
    WS_PING = 9,
    WS_PONG = 10,
};

enum ws_code {
    WS_NORMAL = 1000,
    WS_AWAY = 1001,
    WS_PROTOCOL_ERROR = 1002,
    WS_NO_UTF8 = 1007,
    WS_POLICY = 1008,
    WS_TOO_BIG = 1009,
    WS_INTERNAL = 1011,
};

/* Gets each piece of a binary message as it comes, and each other message whole. A result other than 0 ends ws_read(). */
typedef int (*ws_fn)(void *arg, enum ws_opcode opcode, const char *data, size_t len);

struct ws_reader {
    uint8_t head[14];
    unsigned n_head;
    uint64_t left; /* of the frame's payload */
    unsigned mask_at;
    bool is_in_payload;
    enum ws_opcode opcode;  /* of the frame */
    bool is_last;           /* of its message */
    enum ws_opcode message; /* WS_CONTINUATION: none is open */
    size_t n_control, n_text;
    char control[WS_CONTROL_BYTES];
    char text[WS_TEXT_BYTES];
};

/*
 * Takes bytes of the client; unmasks in place. 0; or a ws_code to close with; or fn's result, which must be negative.
 */
int ws_read(struct ws_reader *r, char *data, size_t len, ws_fn fn, void *arg);
/* Writes the header of a whole, unmasked frame; returns its length. */
size_t ws_write_header(enum ws_opcode opcode, size_t len, char out[WS_HEADER_BYTES]);
/* The value of Sec-WebSocket-Accept. ERR_INVALID: the client's key is none. */
int ws_accept(const char *key, char out[WS_ACCEPT_BYTES], struct err *e);
