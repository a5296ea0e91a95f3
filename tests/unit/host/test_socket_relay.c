#include "test.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "lib/util/socket.h"
#include "lib/util/socket_relay.h"

#define MUCH ((size_t)1 << 20)
#define SOON_MS 200
#define LONG_MS 60000

/* A relay between left[1] and right[1]; the test holds left[0] and right[0]. */
struct joined {
    int left[2], right[2];
    int done; /* an eventfd: the relay has ended */
};

static void note_done(void *arg)
{
    const struct joined *j = arg;

    (void)eventfd_write(j->done, 1);
}

static void join(struct joined *j, struct socket_relay with)
{
    T_INT(socket_pair(j->left, NULL), 0);
    T_INT(socket_pair(j->right, NULL), 0);
    j->done = eventfd(0, EFD_CLOEXEC);
    with.left = j->left[1];
    with.right = j->right[1];
    with.arg = j;
    with.done = note_done;
    T_INT(socket_relay_start(&with, NULL), 0);
}

static bool is_done(const struct joined *j, int ms)
{
    struct pollfd p = {.fd = j->done, .events = POLLIN};

    return poll(&p, 1, ms) == 1;
}

static void leave(struct joined *j)
{
    T_OK(is_done(j, LONG_MS));
    (void)close(j->left[0]);
    (void)close(j->right[0]);
    (void)close(j->done);
}

static void say_text(int fd, const char *text)
{
    T_INT(send(fd, text, strlen(text), MSG_NOSIGNAL), (int)strlen(text));
}

static void expect_text(int fd, const char *text)
{
    char got[64] = "";

    T_INT(recv(fd, got, strlen(text), MSG_WAITALL), (int)strlen(text));
    T_STR(got, text);
}

static void expect_end(int fd)
{
    char c;

    T_INT(recv(fd, &c, 1, 0), 0);
}

TEST(half_closes_pass_in_both_directions_and_the_second_ends_the_relay)
{
    struct joined j;

    join(&j, (struct socket_relay){.stop_fd = -1});
    say_text(j.left[0], "question");
    (void)shutdown(j.left[0], SHUT_WR);
    expect_text(j.right[0], "question");
    expect_end(j.right[0]);
    T_OK(!is_done(&j, 0));
    say_text(j.right[0], "answer");
    expect_text(j.left[0], "answer");
    (void)shutdown(j.right[0], SHUT_WR);
    expect_end(j.left[0]);
    leave(&j);
}

static void *send_much(void *arg)
{
    _cleanup_free_ char *data = calloc(1, MUCH);

    (void)io_write_all(*(const int *)arg, data, MUCH, NULL);
    (void)shutdown(*(const int *)arg, SHUT_WR);
    return NULL;
}

static size_t count_to_end(int fd)
{
    char data[8192];
    size_t sum = 0;
    ssize_t n;

    while ((n = recv(fd, data, sizeof(data), 0)) > 0)
        sum += (size_t)n;
    return sum;
}

TEST(everything_arrives_in_both_directions_at_once)
{
    struct joined j;
    pthread_t left, right;

    join(&j, (struct socket_relay){.stop_fd = -1});
    T_INT(pthread_create(&left, NULL, send_much, &j.left[0]), 0);
    T_INT(pthread_create(&right, NULL, send_much, &j.right[0]), 0);
    T_INT(count_to_end(j.left[0]), MUCH);
    T_INT(count_to_end(j.right[0]), MUCH);
    (void)pthread_join(left, NULL);
    (void)pthread_join(right, NULL);
    leave(&j);
}

/* Passes on "LENGTH byte, bytes"; 'x' as a length ends the relay. */
static int strip_lengths(void *arg, struct buf *in, struct buf *out, bool is_eof)
{
    (void)arg;
    (void)is_eof;
    while (in->len) {
        size_t n = (unsigned char)in->data[0];

        if (n == 'x')
            return -1;
        if (in->len < 1 + n)
            return 0;
        if (buf_add(out, in->data + 1, n, NULL) < 0)
            return -1;
        buf_consume(in, 1 + n);
    }
    return 0;
}

TEST(a_filter_is_fed_byte_by_byte_and_may_end_the_relay)
{
    static const char frames[] = "\3abc\1d\2ef";
    struct joined j;

    join(&j, (struct socket_relay){.to_left = strip_lengths, .stop_fd = -1});
    for (size_t i = 0; i < sizeof(frames) - 1; i++) {
        T_INT(send(j.right[0], frames + i, 1, MSG_NOSIGNAL), 1);
        if (i == 2) { /* an incomplete frame stays */
            struct pollfd p = {.fd = j.left[0], .events = POLLIN};

            T_INT(poll(&p, 1, 0), 0);
        }
    }
    expect_text(j.left[0], "abcdef");
    say_text(j.left[0], "unfiltered");
    expect_text(j.right[0], "unfiltered");
    say_text(j.right[0], "x");
    expect_end(j.left[0]);
    leave(&j);
}

TEST(a_frame_that_is_cut_by_the_end_is_dropped)
{
    struct joined j;

    join(&j, (struct socket_relay){.to_left = strip_lengths, .stop_fd = -1});
    say_text(j.right[0], "\1a\5bc");
    (void)shutdown(j.right[0], SHUT_WR);
    expect_text(j.left[0], "a");
    expect_end(j.left[0]);
    (void)shutdown(j.left[0], SHUT_WR);
    leave(&j);
}

TEST(the_stop_descriptor_ends_a_relay_whose_sides_are_silent)
{
    int stop = eventfd(0, EFD_CLOEXEC);
    struct joined j;

    join(&j, (struct socket_relay){.stop_fd = stop});
    T_OK(!is_done(&j, 0));
    (void)eventfd_write(stop, 1);
    expect_end(j.left[0]);
    expect_end(j.right[0]);
    leave(&j);
    (void)close(stop);
}

/* Until the relay takes no more; returns the bytes. */
static size_t fill_up(int fd)
{
    char data[8192] = {0};
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    size_t sum = 0;

    while (poll(&p, 1, SOON_MS) == 1) {
        ssize_t n = send(fd, data, sizeof(data), MSG_DONTWAIT | MSG_NOSIGNAL);

        sum += n > 0 ? (size_t)n : 0;
    }
    return sum;
}

TEST(a_peer_that_never_reads_is_bounded_and_ends_with_the_stop_descriptor)
{
    int stop = eventfd(0, EFD_CLOEXEC);
    struct timespec cpu[2];
    struct joined j;

    join(&j, (struct socket_relay){.stop_fd = stop});
    T_OK(fill_up(j.left[0]) < 4 * MUCH);
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu[0]);
    T_OK(!is_done(&j, SOON_MS));
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu[1]);
    /* It does not spin. */
    T_OK((cpu[1].tv_sec - cpu[0].tv_sec) * 1000 + (cpu[1].tv_nsec - cpu[0].tv_nsec) / 1000000 <
         SOON_MS / 2);
    (void)eventfd_write(stop, 1);
    leave(&j);
    (void)close(stop);
}

TEST(a_peer_that_never_reads_does_not_keep_the_relay_of_a_client_that_is_gone)
{
    struct timespec cpu[2];
    struct joined j;
    int64_t begun_ms;

    join(&j, (struct socket_relay){.stop_fd = -1, .linger_ms = 2 * SOON_MS});
    (void)fill_up(j.left[0]);
    T_OK(!is_done(&j, 3 * SOON_MS)); /* the client is there */
    (void)close(j.left[0]);
    begun_ms = clock_mono_ms();
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu[0]);
    T_OK(is_done(&j, LONG_MS));
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu[1]);
    T_OK(clock_mono_ms() - begun_ms >= SOON_MS);
    T_OK((cpu[1].tv_sec - cpu[0].tv_sec) * 1000 + (cpu[1].tv_nsec - cpu[0].tv_nsec) / 1000000 <
         SOON_MS);
    (void)close(j.right[0]);
    (void)close(j.done);
}

TEST(the_rest_of_a_peer_that_has_closed_still_arrives)
{
    struct joined j;
    size_t sent;

    join(&j, (struct socket_relay){.stop_fd = -1, .linger_ms = LONG_MS});
    sent = fill_up(j.right[0]);
    (void)close(j.right[0]);
    T_INT(count_to_end(j.left[0]), sent);
    (void)close(j.left[0]);
    T_OK(is_done(&j, LONG_MS));
    (void)close(j.done);
}
