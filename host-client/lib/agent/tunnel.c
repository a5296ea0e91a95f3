#include "lib/agent/tunnel.h"

#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "lib/agent/client.h"
#include "lib/util/socket.h"

int tunnel_request(uint16_t port, const char *token, struct buf *out, struct err *e)
{
    int r = buf_addf(out, e,
                     "GET /v1/tunnel/%u HTTP/1.1\r\nHost: box\r\nConnection: Upgrade\r\n"
                     "Upgrade: tcp\r\n",
                     (unsigned)port);

    if (r == 0 && token)
        r = buf_addf(out, e, "Authorization: Bearer %s\r\n", token);
    return r < 0 ? r : buf_adds(out, "\r\n", e);
}

size_t tunnel_head_bytes(const struct buf *answer)
{
    const char *end = answer->len ? memmem(answer->data, answer->len, "\r\n\r\n", 4) : NULL;

    return end ? (size_t)(end - answer->data) + 4 : 0;
}

int tunnel_check(const struct buf *answer, struct err *e)
{
    static const char ok[] = "HTTP/1.1 101 ";
    size_t line = answer->len ? strcspn(answer->data, "\r\n") : 0;

    if (answer->len > sizeof(ok) - 1 && memcmp(answer->data, ok, sizeof(ok) - 1) == 0)
        return 0;
    return err_set(e, ERR_UNAVAILABLE, "no connection to the port in the box: '%.*s'",
                   (int)(line < 100 ? line : 100), answer->len ? answer->data : "");
}

int client_tunnel(const struct client_options *opts, uint16_t port, int64_t deadline_mono_ms,
                  int *ret_fd, struct err *e)
{
    _cleanup_buf_ struct buf request = {0};
    _cleanup_buf_ struct buf answer = {0};
    _cleanup_close_ int fd = -1;
    int r;

    if (!opts->socket)
        return err_set(e, ERR_UNIMPLEMENTED, "a tunnel needs the agent's socket");
    r = socket_connect(opts->socket, SOCKET_CONNECT_MS, &fd, e);
    if (r == 0 && opts->check_peer)
        r = opts->check_peer(opts->check_arg, fd, e);
    if (r < 0)
        return r;
    if (!deadline_mono_ms)
        deadline_mono_ms = clock_mono_ms() + CLIENT_ANSWER_MS;
    buf_init(&request, TUNNEL_HEAD_BYTES);
    buf_init(&answer, TUNNEL_HEAD_BYTES);
    r = tunnel_request(port, opts->token, &request, e);
    if (r == 0)
        r = io_write_all(fd, request.data, request.len, e);
    while (r == 0) {
        /* One byte at a time: the bytes after the empty line belong to the caller. */
        char c;
        ssize_t n;

        r = socket_wait(fd, false, opts->cancel_fd, deadline_mono_ms, e);
        if (r < 0)
            return r;
        n = read(fd, &c, 1);
        if (n <= 0)
            return err_set(e, ERR_UNAVAILABLE, "the guest agent ended the tunnel");
        r = buf_add(&answer, &c, 1, e);
        if (r == 0 && tunnel_head_bytes(&answer))
            break;
    }
    if (r == 0)
        r = tunnel_check(&answer, e);
    if (r == 0)
        *ret_fd = TAKE_FD(fd);
    return r;
}
