#include "lib/provider/kubernetes/kube_stream.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"
#include "lib/util/daemon_client.h"
#include "lib/util/socket_relay.h"
#include "lib/util/socket.h"

#define SEND_BYTES (32 * 1024)
/* A message must fit into the relay's buffer whole. The kubelet sends 32 KiB at a time. */
#define MESSAGE_MAX_BYTES (RELAY_BYTES - 64)
#define HEAD_MAX_BYTES 16
#define CONTROL_MAX_BYTES 125

/* RFC 6455 */
enum frame_opcode {
    FRAME_MORE = 0,
    FRAME_BINARY = 2,
    FRAME_CLOSE = 8,
    FRAME_PING = 9,
    FRAME_PONG = 10,
};
#define FRAME_FIN 0x80
#define FRAME_MASK 0x80

#define CHANNEL_DATA 0 /* of port-forward both ways, of exec the standard input */
#define CHANNEL_STDOUT 1
#define CHANNEL_STATUS 3
#define CHANNEL_CLOSE 0xff
#define CHANNEL_ERROR 1

/* Of one relay, whose thread alone uses it. */
struct kube_stream {
    bool is_exec;
    bool has_port; /* port-forward: the first message of the data channel is the port's number */
    bool has_pong; /* a ping waits for its answer */
    unsigned char channel; /* of the last message, for its continuation */
    unsigned char pong[CONTROL_MAX_BYTES];
    size_t pong_len;
};

/* ---- to the pod ---- */

/* A client's frames are masked, each with other bytes. `channel` -1: none. */
static int frame_add(struct buf *out, enum frame_opcode opcode, int channel, const void *data,
                     size_t len)
{
    unsigned char head[HEAD_MAX_BYTES], mask[4];
    size_t n_payload = len + (channel >= 0), n = 0;
    char *to;

    if (io_random(mask, sizeof(mask), NULL) < 0 ||
        buf_reserve(out, sizeof(head) + n_payload, NULL) < 0)
        return -1;
    head[n++] = (unsigned char)(FRAME_FIN | opcode);
    if (n_payload < 126) {
        head[n++] = (unsigned char)(FRAME_MASK | n_payload);
    } else {
        head[n++] = FRAME_MASK | 126; /* SEND_BYTES fits into 16 bits */
        head[n++] = (unsigned char)(n_payload >> 8);
        head[n++] = (unsigned char)(n_payload & 0xff);
    }
    memcpy(head + n, mask, sizeof(mask));
    n += sizeof(mask);
    if (channel >= 0)
        head[n++] = (unsigned char)channel ^ mask[0];
    if (buf_add(out, head, n, NULL) < 0 || (len && buf_add(out, data, len, NULL) < 0))
        return -1;
    to = out->data + out->len - len;
    for (size_t i = 0; i < len; i++)
        to[i] ^= (char)mask[(i + (channel >= 0)) % 4];
    return 0;
}

static int stream_add_end(const struct kube_stream *s, struct buf *out)
{
    static const unsigned char of_stdin = CHANNEL_DATA;
    static const unsigned char normal[] = {0x03, 0xe8}; /* 1000 */

    return s->is_exec ? frame_add(out, FRAME_BINARY, CHANNEL_CLOSE, &of_stdin, 1)
                      : frame_add(out, FRAME_CLOSE, -1, normal, sizeof(normal));
}

static bool has_room(const struct buf *out, size_t len)
{
    return out->max - out->len >= len + 2 * HEAD_MAX_BYTES;
}

static int stream_to_pod(void *arg, struct buf *in, struct buf *out, bool is_eof)
{
    struct kube_stream *s = arg;

    if (s->has_pong && has_room(out, s->pong_len)) {
        if (frame_add(out, FRAME_PONG, -1, s->pong, s->pong_len) < 0)
            return -1;
        s->has_pong = false;
    }
    while (in->len) {
        size_t n = in->len < SEND_BYTES ? in->len : SEND_BYTES;

        if (!has_room(out, n))
            return 0;
        if (frame_add(out, FRAME_BINARY, CHANNEL_DATA, in->data, n) < 0)
            return -1;
        buf_consume(in, n);
    }
    return is_eof ? stream_add_end(s, out) : 0;
}

/* ---- from the pod ---- */

/* A message of a channel. 1: the stream ends. */
static int stream_take_data(struct kube_stream *s, const char *data, size_t len, struct buf *out)
{
    if (s->is_exec) {
        if (s->channel == CHANNEL_STATUS)
            return 1;
        return s->channel == CHANNEL_STDOUT && buf_add(out, data, len, NULL) < 0 ? -1 : 0;
    }
    if (s->channel == CHANNEL_DATA && !s->has_port) {
        s->has_port = true;
        return len == 2 ? 0 : -1;
    }
    if (s->channel == CHANNEL_DATA)
        return buf_add(out, data, len, NULL) < 0 ? -1 : 0;
    return s->channel == CHANNEL_ERROR && len > 2 ? 1 : 0;
}

static int stream_take_frame(struct kube_stream *s, unsigned opcode, const char *data, size_t len,
                             struct buf *out)
{
    switch (opcode) {
    case FRAME_BINARY:
        if (!len)
            return 0;
        s->channel = (unsigned char)*data;
        return stream_take_data(s, data + 1, len - 1, out);
    case FRAME_MORE:
        return stream_take_data(s, data, len, out);
    case FRAME_CLOSE:
        return 1;
    case FRAME_PING:
        if (len > sizeof(s->pong))
            return -1;
        memcpy(s->pong, data, len);
        s->pong_len = len;
        s->has_pong = true;
        return 0;
    default:
        return opcode == FRAME_PONG ? 0 : -1;
    }
}

/* The bytes of the frame's head and of its payload; 0: the head is not there yet, -1: it is no frame of a server. */
static int frame_head(const struct buf *in, size_t *ret_head, size_t *ret_len)
{
    const unsigned char *h = (const unsigned char *)in->data;
    size_t n = in->len < 2 ? 0 : h[1] == 127 ? 10 : h[1] == 126 ? 4 : 2;
    uint64_t len = 0;

    if (!n || in->len < n)
        return 0;
    if (h[1] & FRAME_MASK)
        return -1;
    if (n == 2)
        len = h[1];
    for (size_t i = 2; i < n; i++)
        len = len << 8 | h[i];
    if (len > MESSAGE_MAX_BYTES)
        return -1;
    *ret_head = n;
    *ret_len = (size_t)len;
    return 1;
}

static int stream_from_pod(void *arg, struct buf *in, struct buf *out, bool is_eof)
{
    struct kube_stream *s = arg;
    size_t head = 0, len = 0;

    (void)is_eof;
    for (;;) {
        int r = frame_head(in, &head, &len);

        if (r < 0)
            return -1;
        if (r == 0 || in->len < head + len || out->max - out->len < len)
            return 0;
        r = stream_take_frame(s, (unsigned char)in->data[0] & 0x0f, in->data + head, len, out);
        if (r != 0)
            return r;
        buf_consume(in, head + len);
    }
}

/* ---- both ---- */

int kube_stream_start_take(int websocket, bool is_exec, int *ret_fd, struct err *e)
{
    struct kube_stream *s = calloc(1, sizeof(*s));
    struct socket_relay relay = {.left = -1,
                                 .right = websocket,
                                 .to_right = stream_to_pod,
                                 .to_left = stream_from_pod,
                                 .keeps_right = true,
                                 .arg = s,
                                 .done = free,
                                 .stop_fd = -1};
    int pair[2] = {-1, -1};
    int r = s ? socket_pair(pair, e) : err_oom(e);

    if (r < 0) {
        fd_close(websocket);
        free(s);
        return r;
    }
    s->is_exec = is_exec;
    relay.left = pair[1];
    relay.has_answer = &s->has_pong;
    r = socket_relay_start(&relay, e);
    if (r < 0)
        fd_close(pair[0]);
    else
        *ret_fd = pair[0];
    return r;
}

int kube_stream_exec(struct kube *k, const char *pod, const char *agent, unsigned port, int *ret_fd,
                     struct err *e)
{
    _cleanup_free_ char *program = daemon_client_encode(agent);
    char call[320];
    int fd = -1, r;

    if (!program)
        return err_oom(e);
    (void)snprintf(call, sizeof(call),
                   "exec?container=box&stdin=1&stdout=1&command=%.200s&command=dial&command=%u",
                   program, port);
    r = kube_websocket(k, pod, call, "v5.channel.k8s.io", &fd, e);
    return r < 0 ? r : kube_stream_start_take(fd, true, ret_fd, e);
}

int kube_stream_script(struct kube *k, const char *pod, const char *script, int *ret_fd,
                       struct err *e)
{
    _cleanup_free_ char *encoded = daemon_client_encode(script);
    char call[KUBE_CALL_BYTES];
    int fd = -1, n, r;

    if (!encoded)
        return err_oom(e);
    n = snprintf(call, sizeof(call),
                 "exec?container=box&stdin=1&stdout=1&command=%%2Fbin%%2Fsh&command=-c&command=%s",
                 encoded);
    if (n < 0 || (size_t)n >= sizeof(call))
        return err_set(e, ERR_INVALID, "the script is too long");
    r = kube_websocket(k, pod, call, "v5.channel.k8s.io", &fd, e);
    return r < 0 ? r : kube_stream_start_take(fd, true, ret_fd, e);
}

int kube_stream_forward(struct kube *k, const char *pod, unsigned port, int *ret_fd, struct err *e)
{
    char call[64];
    int fd = -1, r;

    (void)snprintf(call, sizeof(call), "portforward?ports=%u", port);
    r = kube_websocket(k, pod, call, "v4.channel.k8s.io", &fd, e);
    return r < 0 ? r : kube_stream_start_take(fd, false, ret_fd, e);
}
