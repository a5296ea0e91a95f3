#include "lib/agent/tunnel.h"

#include <string.h>

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
