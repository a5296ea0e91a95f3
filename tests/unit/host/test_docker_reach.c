#include "test.h"

#include <stdlib.h>

#include "common/buf.h"
#include "lib/provider/docker/docker.h"
#include "lib/util/socket_relay.h"

static void buffers_init(struct buf *in, struct buf *out)
{
    buf_init(in, RELAY_BYTES);
    buf_init(out, 2 * RELAY_BYTES);
}

/* Appends a frame's head and n bytes of its content. */
static void add_frame(struct buf *b, unsigned char stream, size_t declared, size_t n)
{
    const unsigned char head[8] = {stream,
                                   0,
                                   0,
                                   0,
                                   (unsigned char)(declared >> 24),
                                   (unsigned char)(declared >> 16),
                                   (unsigned char)(declared >> 8),
                                   (unsigned char)declared};

    T_INT(buf_add(b, head, sizeof(head), NULL), 0);
    while (n--)
        T_INT(buf_add(b, "x", 1, NULL), 0);
}

TEST(frames_of_standard_output_pass_and_others_are_dropped)
{
    struct buf in, out;

    buffers_init(&in, &out);
    add_frame(&in, 1, 3, 3);
    add_frame(&in, 2, 5, 5);
    add_frame(&in, 1, 0, 0);
    add_frame(&in, 1, 4, 4);
    T_INT(docker_strip_frames(NULL, &in, &out, false), 0);
    T_STR(out.data, "xxxxxxx");
    T_INT(in.len, 0);
    buf_done(&in);
    buf_done(&out);
}

TEST(a_cut_frame_waits_for_its_rest_byte_by_byte)
{
    struct buf all, in, out;

    buffers_init(&in, &out);
    buf_init(&all, RELAY_BYTES);
    add_frame(&all, 1, 2, 2);
    for (size_t i = 0; i < all.len; i++) {
        T_INT(out.len, 0);
        T_INT(buf_add(&in, all.data + i, 1, NULL), 0);
        T_INT(docker_strip_frames(NULL, &in, &out, i == all.len - 1), 0);
    }
    T_STR(out.data, "xx");
    add_frame(&in, 1, 9, 4); /* the stream ends within it */
    T_INT(docker_strip_frames(NULL, &in, &out, true), 0);
    T_INT(out.len, 2);
    buf_done(&all);
    buf_done(&in);
    buf_done(&out);
}

TEST(an_oversized_frame_or_one_of_no_stream_ends_the_relay)
{
    const struct {
        unsigned char stream;
        size_t declared;
    } bad[] = {
        {1, DOCKER_FRAME_BYTES + 1}, {1, 0xffffffff}, {3, 1}, {255, 0}, {2, (size_t)1 << 31},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct buf in, out;

        buffers_init(&in, &out);
        add_frame(&in, bad[i].stream, bad[i].declared, 0);
        T_OK(docker_strip_frames(NULL, &in, &out, false) < 0);
        buf_done(&in);
        buf_done(&out);
    }
}

TEST(the_largest_frame_passes_and_a_full_target_keeps_the_next_one)
{
    struct buf in, out;
    int n = 0;

    buffers_init(&in, &out);
    while (out.len + DOCKER_FRAME_BYTES <= out.max) {
        add_frame(&in, 1, DOCKER_FRAME_BYTES, DOCKER_FRAME_BYTES);
        T_INT(docker_strip_frames(NULL, &in, &out, false), 0);
        n++;
    }
    T_INT(out.len, (size_t)n * DOCKER_FRAME_BYTES);
    add_frame(&in, 1, 1, 1);
    out.len = out.max;
    T_INT(docker_strip_frames(NULL, &in, &out, false), 0);
    T_INT(in.len, 9);
    buf_done(&in);
    buf_done(&out);
}
