/* The frames of a WebSocket to a pod, from a server that is a socket of the test. */
#include "test.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/provider/kubernetes/kube_stream.h"
#include "lib/util/socket.h"

struct ends {
    int server, client;
};

static struct ends start_stream(bool is_exec)
{
    struct ends ends = {-1, -1};
    int pair[2];

    T_INT(socket_pair(pair, NULL), 0);
    ends.server = pair[1];
    T_INT(kube_stream_start_take(pair[0], is_exec, &ends.client, NULL), 0);
    return ends;
}

static void end_stream(struct ends ends)
{
    (void)close(ends.server);
    (void)close(ends.client);
}

static void send_bytes(int fd, const void *data, size_t len)
{
    T_INT(send(fd, data, len, MSG_NOSIGNAL), (ssize_t)len);
}

static void expect_bytes(int fd, const void *data, size_t len)
{
    char got[256];

    T_OK(len <= sizeof(got));
    T_INT(recv(fd, got, len, MSG_WAITALL), (ssize_t)len);
    T_OK(memcmp(got, data, len) == 0);
}

/* One frame of a client: masked, of less than 126 bytes. */
static size_t read_frame(int fd, unsigned *ret_opcode, unsigned char out[128])
{
    unsigned char head[6];
    size_t n;

    T_INT(recv(fd, head, sizeof(head), MSG_WAITALL), (ssize_t)sizeof(head));
    T_OK(head[0] & 0x80);
    T_OK(head[1] & 0x80);
    *ret_opcode = head[0] & 0x0fu;
    n = head[1] & 0x7fu;
    T_OK(n < 126);
    if (n)
        T_INT(recv(fd, out, n, MSG_WAITALL), (ssize_t)n);
    for (size_t i = 0; i < n; i++)
        out[i] ^= head[2 + i % 4];
    return n;
}

TEST(a_half_close_of_exec_is_a_message_and_the_answer_still_comes)
{
    struct ends ends = start_stream(true);
    unsigned char data[128];
    unsigned opcode = 0;

    send_bytes(ends.client, "ask", 3);
    T_INT((int)read_frame(ends.server, &opcode, data), 4);
    T_INT(opcode, 2);
    T_OK(memcmp(data, "\0ask", 4) == 0);
    T_INT(shutdown(ends.client, SHUT_WR), 0);
    T_INT((int)read_frame(ends.server, &opcode, data), 2);
    T_OK(memcmp(data, "\xff\0", 2) == 0);
    /* Standard error is another channel; a message may come in pieces. */
    send_bytes(ends.server,
               "\x82\x04\x02"
               "bad"
               "\x02\x03\x01"
               "an"
               "\x80\x04"
               "swer",
               17);
    send_bytes(ends.server, "\x82\x03\x03{}", 5);
    expect_bytes(ends.client, "answer", 6);
    T_INT(recv(ends.client, data, 1, 0), 0);
    end_stream(ends);
}

TEST(a_ping_is_answered_while_nothing_else_is_sent)
{
    struct ends ends = start_stream(true);
    unsigned char data[128];
    unsigned opcode = 0;

    send_bytes(ends.server, "\x89\x02hi", 4);
    T_INT((int)read_frame(ends.server, &opcode, data), 2);
    T_INT(opcode, 10);
    T_OK(memcmp(data, "hi", 2) == 0);
    end_stream(ends);
}

TEST(the_port_that_port_forward_tells_is_no_data_and_its_error_is_the_end)
{
    struct ends ends = start_stream(false);
    char byte;

    send_bytes(ends.server, "\x82\x03\0\x67\x12\x82\x03\x01\x67\x12\x82\x03\0ok", 15);
    expect_bytes(ends.client, "ok", 2);
    send_bytes(ends.server, "\x82\x08\x01refused", 10);
    T_INT(recv(ends.client, &byte, 1, 0), 0);
    end_stream(ends);
}

TEST(a_frame_that_no_server_sends_ends_the_stream)
{
    static const struct {
        const char *data;
        size_t len;
    } frames[] = {
        {"\x82\x83"
         "maskdat",
         9},                                              /* masked */
        {"\x82\x7f\0\0\0\0\x7f\xff\xff\xff", 10},         /* longer than the buffer */
        {"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", 10}, /* than anything */
        {"\x83\x01x", 3},                                 /* an opcode that there is not */
        {"\x88\x02\x03\xe8", 4},                          /* its close */
    };

    for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
        struct ends ends = start_stream(true);
        char byte;

        send_bytes(ends.server, frames[i].data, frames[i].len);
        T_INT(recv(ends.client, &byte, 1, 0), 0);
        end_stream(ends);
    }
}
