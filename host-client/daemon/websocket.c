#include "daemon/websocket.h"

#include <nettle/sha1.h>
#include <string.h>

#include "common/str.h"

#define GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#define KEY_CHARS 24 /* base64 of 16 bytes */

#define FIN 0x80
#define RESERVED 0x70
#define MASKED 0x80

/* ---- the handshake ---- */

int ws_accept(const char *key, char out[WS_ACCEPT_BYTES], struct err *e)
{
    uint8_t digest[SHA1_DIGEST_SIZE];
    char nonce[KEY_CHARS];
    struct sha1_ctx sha;
    size_t len = 0;

    if (!key || strlen(key) != KEY_CHARS || b64_decode(key, KEY_CHARS, nonce, &len, NULL) < 0 ||
        len != 16)
        return err_field(e, ERR_INVALID, "Sec-WebSocket-Key", "the key is not 16 bytes in base64");
    sha1_init(&sha);
    sha1_update(&sha, KEY_CHARS, (const uint8_t *)key);
    sha1_update(&sha, sizeof(GUID) - 1, (const uint8_t *)GUID);
    sha1_digest(&sha, sizeof(digest), digest);
    b64_encode(digest, sizeof(digest), out);
    out[WS_ACCEPT_BYTES - 1] = '\0';
    return 0;
}

/* ---- frames to the client ---- */

size_t ws_write_header(enum ws_opcode opcode, size_t len, char out[WS_HEADER_BYTES])
{
    unsigned n_len = len < 126 ? 0 : len <= UINT16_MAX ? 2 : 8;

    out[0] = (char)(FIN | opcode);
    out[1] = (char)(n_len == 0 ? len : n_len == 2 ? 126 : 127);
    for (unsigned i = 0; i < n_len; i++)
        out[2 + i] = (char)((uint64_t)len >> (8 * (n_len - 1 - i)));
    return 2 + n_len;
}

/* ---- frames of the client ---- */

static bool is_control(enum ws_opcode opcode)
{
    return opcode >= WS_CLOSE;
}

/* How long the header is, by its first two bytes. */
static unsigned header_len(const uint8_t head[2])
{
    unsigned n = head[1] & 0x7f;

    return 2 + 4 + (n == 127 ? 8 : n == 126 ? 2 : 0);
}

static uint64_t payload_len(const uint8_t *head)
{
    unsigned n = head[1] & 0x7f;
    unsigned bytes = n == 127 ? 8 : n == 126 ? 2 : 0;
    uint64_t len = bytes ? 0 : n;

    for (unsigned i = 0; i < bytes; i++)
        len = len << 8 | head[2 + i];
    return len;
}

/* A length must be written in as few bytes as it takes. */
static bool is_len_wrong(const uint8_t *head, uint64_t len)
{
    unsigned n = head[1] & 0x7f;

    return (n == 126 && len < 126) || (n == 127 && (len <= UINT16_MAX || len > INT64_MAX));
}

static int check_opcode(const struct ws_reader *r, enum ws_opcode opcode, bool is_last)
{
    switch (opcode) {
    case WS_CONTINUATION:
        return r->message == WS_CONTINUATION ? WS_PROTOCOL_ERROR : 0;
    case WS_TEXT:
    case WS_BINARY:
        return r->message != WS_CONTINUATION ? WS_PROTOCOL_ERROR : 0;
    case WS_CLOSE:
    case WS_PING:
    case WS_PONG:
        return is_last ? 0 : WS_PROTOCOL_ERROR;
    }
    return WS_PROTOCOL_ERROR;
}

static int begin_frame(struct ws_reader *r)
{
    enum ws_opcode opcode = r->head[0] & 0x0f;
    int code = check_opcode(r, opcode, r->head[0] & FIN);

    r->left = payload_len(r->head);
    if (code || is_len_wrong(r->head, r->left) ||
        (is_control(opcode) && r->left > WS_CONTROL_BYTES))
        return WS_PROTOCOL_ERROR;
    r->opcode = opcode;
    r->is_last = r->head[0] & FIN;
    r->is_in_payload = true;
    r->mask_at = 0;
    if (is_control(opcode))
        r->n_control = 0;
    else if (opcode != WS_CONTINUATION)
        r->message = opcode;
    if (opcode == WS_TEXT)
        r->n_text = 0;
    return r->message == WS_TEXT && !is_control(opcode) && r->left > WS_TEXT_BYTES - r->n_text
               ? WS_TOO_BIG
               : 0;
}

/* RFC 6455, section 7.4: the codes that may be sent. */
static int check_close(const char *data, size_t len)
{
    unsigned code = len >= 2 ? (unsigned)((uint8_t)data[0] << 8 | (uint8_t)data[1]) : WS_NORMAL;
    bool is_known = (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
                    (code >= 3000 && code <= 4999);

    if (len == 1 || !is_known)
        return WS_PROTOCOL_ERROR;
    return len > 2 && !str_is_utf8(data + 2, len - 2) ? WS_NO_UTF8 : 0;
}

static int take_payload(struct ws_reader *r, const char *data, size_t len, ws_fn fn, void *arg)
{
    if (is_control(r->opcode)) {
        memcpy(r->control + r->n_control, data, len);
        r->n_control += len;
    } else if (r->message == WS_TEXT) {
        memcpy(r->text + r->n_text, data, len);
        r->n_text += len;
    } else if (len) {
        return fn(arg, WS_BINARY, data, len);
    }
    return 0;
}

static int end_frame(struct ws_reader *r, ws_fn fn, void *arg)
{
    bool is_text = r->message == WS_TEXT;
    int code;

    r->is_in_payload = false;
    r->n_head = 0;
    if (is_control(r->opcode)) {
        code = r->opcode == WS_CLOSE ? check_close(r->control, r->n_control) : 0;
        return code ? code : fn(arg, r->opcode, r->control, r->n_control);
    }
    if (!r->is_last)
        return 0;
    r->message = WS_CONTINUATION;
    if (!is_text)
        return 0;
    return str_is_utf8(r->text, r->n_text) ? fn(arg, WS_TEXT, r->text, r->n_text) : WS_NO_UTF8;
}

static void unmask_payload(struct ws_reader *r, char *data, size_t len)
{
    const uint8_t *mask = r->head + r->n_head - 4;

    for (size_t i = 0; i < len; i++)
        data[i] = (char)(data[i] ^ mask[r->mask_at++ & 3]);
}

int ws_read(struct ws_reader *r, char *data, size_t len, ws_fn fn, void *arg)
{
    while (len) {
        size_t n = len;
        int result = 0;

        if (!r->is_in_payload) {
            r->head[r->n_head++] = (uint8_t)*data++;
            len--;
            if (r->n_head == 2 && (r->head[0] & RESERVED || !(r->head[1] & MASKED)))
                return WS_PROTOCOL_ERROR;
            if (r->n_head < 2 || r->n_head < header_len(r->head))
                continue;
            result = begin_frame(r);
            if (result)
                return result;
            n = 0;
        }
        if (n > r->left)
            n = (size_t)r->left;
        unmask_payload(r, data, n);
        result = take_payload(r, data, n, fn, arg);
        data += n;
        len -= n;
        r->left -= n;
        if (result == 0 && !r->left)
            result = end_frame(r, fn, arg);
        if (result)
            return result;
    }
    return 0;
}
