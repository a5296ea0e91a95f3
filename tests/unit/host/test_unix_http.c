#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "fake_server.h"
#include "lib/util/unix_http.h"

#define BODY_MAX 4096
#define OK(length) "HTTP/1.1 200 OK\r\nContent-Length: " #length "\r\n"
#define LONG_MS 60000

static struct unix_http *new_http(int cancel_fd)
{
    const struct unix_http_options o = {.path = "s", .cancel_fd = cancel_fd};
    struct unix_http *h = NULL;
    struct err e = {0};

    T_INT(unix_http_new(&o, &h, &e), 0);
    return h;
}

/* The result of one request; the body as text in out. */
static int ask_for(struct unix_http *h, const char *method, int64_t ms, int *ret_status,
                   char out[BODY_MAX + 1], struct err *e)
{
    const struct unix_http_request q = {
        .method = method, .target = "/x", .deadline_mono_ms = clock_mono_ms() + ms};
    struct unix_http_answer a = {0};
    int r;

    buf_init(&a.body, BODY_MAX);
    r = unix_http_do(h, &q, &a, e);
    *ret_status = a.status;
    (void)snprintf(out, BODY_MAX + 1, "%s", a.body.data ? a.body.data : "");
    buf_done(&a.body);
    return r;
}

static int ask(struct unix_http *h, int *ret_status, char out[BODY_MAX + 1], struct err *e)
{
    return ask_for(h, "GET", LONG_MS, ret_status, out, e);
}

static void serve(const struct reply *replies, size_t n)
{
    T_OK(fake_server("s", replies, n, -1) > 0);
}

TEST(an_answer_has_a_body_of_a_known_length_or_in_chunks_or_up_to_the_end)
{
    const struct reply r[] = {
        {.bytes = "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello"},
        {.bytes = "HTTP/1.1 200 OK\r\nTransfer-Encoding: "
                  "chunked\r\n\r\n3\r\nhel\r\n2;x\r\nlo\r\n0\r\nT: "
                  "1\r\n\r\n"},
        {.bytes = "HTTP/1.0 200 OK\r\n\r\nhello"},
        {.bytes = "HTTP/1.1 103 Early\r\nX: y\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"}};
    static const int statuses[] = {404, 200, 200, 204};
    struct unix_http *h = new_http(-1);
    char body[BODY_MAX + 1];
    struct err e = {0};
    int status = 0;

    serve(r, N_ELEMENTS(r));
    for (size_t i = 0; i < N_ELEMENTS(r); i++) {
        T_INT(ask(h, &status, body, &e), 0);
        T_INT(status, statuses[i]);
        T_STR(body, i < 3 ? "hello" : "");
    }
    (void)unix_http_free(h);
}

TEST(an_answer_that_is_no_http_or_breaks_off_or_is_too_large_is_a_typed_error)
{
    static const struct {
        const char *bytes;
        int error;
    } cases[] = {
        {"", -ERR_UNAVAILABLE},
        {"SSH-2.0-x\r\n\r\n", -ERR_UNAVAILABLE},
        {"HTTP/1.1 200 OK\r\nContent-Le", -ERR_DATA_LOSS},
        {OK(9) "\r\nhalf", -ERR_DATA_LOSS},
        {OK(5000) "\r\n", -ERR_EXHAUSTED},
        {OK(1) "Content-Length: 2\r\n\r\nx", -ERR_UNAVAILABLE},
        {OK(3) "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", -ERR_UNAVAILABLE},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", -ERR_DATA_LOSS},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", -ERR_UNAVAILABLE},
    };
    struct reply r[N_ELEMENTS(cases)] = {{0}};
    struct unix_http *h = new_http(-1);
    char body[BODY_MAX + 1];
    struct err e = {0};
    int status = 0;

    for (size_t i = 0; i < N_ELEMENTS(cases); i++)
        r[i].bytes = cases[i].bytes;
    serve(r, N_ELEMENTS(cases));
    for (size_t i = 0; i < N_ELEMENTS(cases); i++)
        if (ask(h, &status, body, &e) != cases[i].error)
            t_fail(__FILE__, __LINE__, "case %zu: %d: %s", i, (int)e.code, e.message);
    (void)unix_http_free(h);
}

/* n times a piece after the start. */
static char *repeat(const char *start, const char *piece, size_t n)
{
    char *text = malloc(strlen(start) + n * strlen(piece) + 1);
    char *to = text + sprintf(text, "%s", start);

    while (n--)
        to += sprintf(to, "%s", piece);
    return text;
}

TEST(headers_and_chunks_and_interim_answers_without_end_are_refused)
{
    _cleanup_free_ char *head = repeat("HTTP/1.1 200 OK\r\n", "X: 0123456789abcdef\r\n", 10000);
    _cleanup_free_ char *interim = repeat("", "HTTP/1.1 103 Early\r\n\r\n", 100);
    _cleanup_free_ char *chunks =
        repeat("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "4\r\nabcd\r\n", 2000);
    const struct reply r[] = {{.bytes = head}, {.bytes = interim}, {.bytes = chunks}};
    static const int errors[] = {-ERR_UNAVAILABLE, -ERR_UNAVAILABLE, -ERR_EXHAUSTED};
    struct unix_http *h = new_http(-1);
    char body[BODY_MAX + 1];
    struct err e = {0};
    int status = 0;

    serve(r, N_ELEMENTS(r));
    for (size_t i = 0; i < N_ELEMENTS(r); i++)
        T_INT(ask(h, &status, body, &e), errors[i]);
    (void)unix_http_free(h);
}

TEST(a_server_that_does_not_go_on_ends_with_the_deadline_and_a_cancel_ends_at_once)
{
    const struct reply r[] = {{.bytes = NULL}, {.bytes = OK(9) "\r\nhalf", .keeps_open = true}};
    _cleanup_close_ int cancel = eventfd(0, EFD_CLOEXEC);
    struct unix_http *h = new_http(cancel);
    char body[BODY_MAX + 1];
    struct err e = {0};
    int status = 0;

    serve(r, N_ELEMENTS(r));
    T_INT(ask_for(h, "GET", 80, &status, body, &e), -ERR_DEADLINE);
    T_INT(ask_for(h, "GET", 80, &status, body, &e), -ERR_DEADLINE);
    T_INT(eventfd_write(cancel, 1), 0);
    T_INT(ask(h, &status, body, &e), -ERR_CANCELED);
    (void)unix_http_free(h);
}

/* The first connection has an answer and is kept, and the server closes it when the second request comes. */
static void serve_kept_once(const char *second)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "s"};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    static char head[1 << 16];
    int c;

    T_INT(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    T_INT(listen(fd, 4), 0);
    if (fork() != 0) {
        (void)close(fd);
        return;
    }
    c = accept(fd, NULL, NULL);
    (void)fake_read_request(c, false, head, sizeof(head));
    (void)send(c, OK(5) "\r\nfirst", strlen(OK(5) "\r\nfirst"), MSG_NOSIGNAL);
    (void)fake_read_request(c, false, head, sizeof(head));
    (void)close(c);
    c = accept(fd, NULL, NULL);
    (void)fake_read_request(c, false, head, sizeof(head));
    (void)send(c, second, strlen(second), MSG_NOSIGNAL);
    _exit(0);
}

TEST(a_get_that_meets_the_end_of_a_kept_connection_is_sent_once_more_and_a_post_is_not)
{
    static const char *const methods[] = {"GET", "POST"};

    for (size_t i = 0; i < N_ELEMENTS(methods); i++) {
        struct unix_http *h = new_http(-1);
        char body[BODY_MAX + 1];
        struct err e = {0};
        int status = 0;

        (void)unlink("s");
        serve_kept_once(OK(6) "\r\nsecond");
        T_INT(ask(h, &status, body, &e), 0);
        T_STR(body, "first");
        T_INT(ask_for(h, methods[i], LONG_MS, &status, body, &e), i ? -ERR_UNAVAILABLE : 0);
        T_STR(body, i ? "" : "second");
        T_OK(!unix_http_is_unconnected(h));
        (void)unix_http_free(h);
    }
}

TEST(a_connection_that_the_server_has_closed_since_is_made_again_for_every_method)
{
    const struct reply r[] = {{.bytes = OK(1) "\r\na"}, {.bytes = OK(1) "\r\nb"}};
    struct unix_http *h = new_http(-1);
    char body[BODY_MAX + 1];
    struct err e = {0};
    int status = 0;

    serve(r, N_ELEMENTS(r));
    T_INT(ask(h, &status, body, &e), 0);
    T_INT(ask_for(h, "POST", LONG_MS, &status, body, &e), 0);
    T_STR(body, "b");
    (void)unix_http_free(h);
}

static int refuse_peer(void *arg, int fd, struct err *e)
{
    (void)fd;
    ++*(int *)arg;
    return err_set(e, ERR_UNAUTHENTICATED, "somebody else");
}

TEST(nobody_there_or_a_peer_that_is_refused_is_told_and_nothing_was_sent)
{
    const struct reply r = {.bytes = OK(0) "\r\n"};
    struct unix_http_options o = {.path = "s", .cancel_fd = -1};
    struct unix_http *h = new_http(-1);
    char body[BODY_MAX + 1], sent = 0;
    struct err e = {0};
    int n = 0, status = 0, log[2];

    T_INT(ask(h, &status, body, &e), -ERR_UNAVAILABLE);
    T_OK(unix_http_is_unconnected(h));
    (void)unix_http_free(h);
    T_INT(pipe2(log, O_CLOEXEC | O_NONBLOCK), 0);
    T_OK(fake_server("s", &r, 1, log[1]) > 0);
    o.check_peer = refuse_peer;
    o.check_arg = &n;
    T_INT(unix_http_new(&o, &h, &e), 0);
    T_INT(ask(h, &status, body, &e), -ERR_UNAUTHENTICATED);
    T_INT(n, 1);
    T_OK(unix_http_is_unconnected(h));
    T_OK(read(log[0], &sent, 1) < 0);
    (void)unix_http_free(h);
}

TEST(a_request_has_its_headers_and_its_body_and_the_answer_the_header_that_is_looked_for)
{
    static const char *const headers[] = {"X-One: 1", NULL};
    const struct reply r = {.bytes = OK(0) "x-SEEN:  this one \r\n\r\n"};
    const struct unix_http_request q = {.method = "POST",
                                        .target = "/a?b=c",
                                        .headers = headers,
                                        .body = "{}",
                                        .body_len = 2,
                                        .deadline_mono_ms = clock_mono_ms() + LONG_MS};
    struct unix_http_answer a = {.see = "X-Seen"};
    struct unix_http *h = new_http(-1);
    char got[4096] = "";
    struct err e = {0};
    int log[2];

    T_INT(pipe2(log, O_CLOEXEC), 0);
    T_OK(fake_server("s", &r, 1, log[1]) > 0);
    buf_init(&a.body, BODY_MAX);
    T_INT(unix_http_do(h, &q, &a, &e), 0);
    T_STR(a.seen, "this one");
    T_OK(read(log[0], got, sizeof(got) - 1) > 0);
    T_OK(strstr(got, "POST /a?b=c HTTP/1.1\r\nHost: bellhop\r\n") == got);
    T_OK(strstr(got, "\r\nX-One: 1\r\n"));
    T_OK(strstr(got, "\r\nContent-Length: 2\r\n"));
    free(a.seen);
    buf_done(&a.body);
    (void)unix_http_free(h);
}
