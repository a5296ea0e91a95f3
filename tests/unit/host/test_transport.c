#include "test.h"

#include <dirent.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "fake_server.h"
#include "lib/util/transport.h"

static struct http *new_http(int cancel_fd)
{
    struct http *h = NULL;
    struct err e = {0};

    T_INT(http_new(cancel_fd, &h, &e), 0);
    return h;
}

static struct http_request get(void)
{
    return (struct http_request){.method = "GET",
                                 .url = "http://box/x",
                                 .unix_socket = "s",
                                 .deadline_mono_ms = clock_mono_ms() + 60000};
}

static void serve(const struct reply *replies, size_t n)
{
    T_OK(fake_server("s", replies, n, -1) > 0);
}

#define OK(body) "HTTP/1.1 200 OK\r\nContent-Length: " #body "\r\n"

TEST(an_answer_has_its_status_headers_and_body)
{
    const struct reply r[] = {{.bytes = "HTTP/1.1 404 Not Found\r\nX-One: 1\r\nx-two:  two "
                                        "\r\nContent-Length: 5\r\n\r\nhello"}};
    struct http *h = new_http(-1);
    struct http_request q = get();
    struct http_response res = {0};
    struct err e = {0};
    char value[32];

    serve(r, 1);
    T_INT(http_do(h, &q, &res, &e), 0);
    T_INT(res.status, 404);
    T_STR(res.body.data, "hello");
    T_OK(http_header(&res, "x-one", value, sizeof(value)));
    T_STR(value, "1");
    T_OK(http_header(&res, "X-Two", value, sizeof(value)));
    T_OK(!http_header(&res, "X", value, sizeof(value)));
    http_response_done(&res);
    (void)http_free(h);
}

TEST(nobody_there_is_unavailable)
{
    struct http *h = new_http(-1);
    struct http_request q = get();
    struct http_response res = {0};
    struct err e = {0};

    T_INT(http_do(h, &q, &res, &e), -ERR_UNAVAILABLE);
    (void)http_free(h);
}

TEST(a_server_that_accepts_and_never_answers_ends_with_the_answer_timeout)
{
    const struct reply r[] = {{.bytes = NULL}};
    struct http *h = new_http(-1);
    struct http_request q = get();
    struct http_response res = {0};
    struct err e = {0};

    serve(r, 1);
    q.answer_timeout_ms = 80;
    T_INT(http_do(h, &q, &res, &e), -ERR_DEADLINE);
    T_OK(strstr(e.message, "no answer in time"));
    (void)http_free(h);
}

TEST(an_answer_whose_head_or_body_never_ends_ends_with_the_answer_timeout)
{
    const struct reply r[] = {
        {.bytes = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX: y\r\n", .keeps_open = true},
        {.bytes = OK(9) "\r\nhalf", .keeps_open = true}};
    struct http *h = new_http(-1);
    struct http_request q = get();
    struct http_response res = {0};
    struct err e = {0};

    serve(r, 2);
    q.answer_timeout_ms = 80;
    T_INT(http_do(h, &q, &res, &e), -ERR_DEADLINE);
    T_INT(http_do(h, &q, &res, &e), -ERR_DEADLINE);
    (void)http_free(h);
}

static int count_bytes(void *arg, const char *data, size_t len)
{
    (void)data;
    *(size_t *)arg += len;
    return 0;
}

TEST(a_streamed_answer_has_a_stall_timeout_of_its_own)
{
    const struct reply r = {.bytes = OK(9) "\r\nhalf", .keeps_open = true};
    const struct reply all[] = {r, r};
    struct http *h = new_http(-1);
    struct http_request q = get();
    struct http_response res = {0};
    struct err e = {0};
    size_t n = 0;

    serve(all, 2);
    q.write = count_bytes;
    q.write_arg = &n;
    q.stall_timeout_ms = 80;
    T_INT(http_do(h, &q, &res, &e), -ERR_DEADLINE);
    T_OK(strstr(e.message, "no more of the answer"));
    T_INT(n, 4);
    /* Four bytes are not enough to count as an answer that goes on. */
    q.stall_bytes = 5;
    T_INT(http_do(h, &q, &res, &e), -ERR_DEADLINE);
    T_INT(n, 8);
    (void)http_free(h);
}

static int refuse_peer(void *arg, int fd, struct err *e)
{
    (void)fd;
    ++*(int *)arg;
    return err_set(e, ERR_UNAUTHENTICATED, "somebody else");
}

TEST(nothing_is_sent_to_a_peer_that_is_refused_and_each_new_connection_is_looked_at)
{
    const struct reply r[] = {{.bytes = OK(0) "\r\n"}, {.bytes = OK(0) "\r\n"}};
    struct http *h = new_http(-1);
    struct http_request q = get();
    struct http_response res = {0};
    struct err e = {0};
    int p[2], n = 0;
    char c;

    T_INT(pipe2(p, O_NONBLOCK), 0);
    T_OK(fake_server("s", r, 2, p[1]) > 0);
    q.check_peer = refuse_peer;
    q.check_arg = &n;
    for (int i = 1; i <= 2; i++) {
        T_INT(http_do(h, &q, &res, &e), -ERR_UNAUTHENTICATED);
        T_STR(e.message, "somebody else");
        T_INT(n, i);
    }
    T_OK(read(p[0], &c, 1) < 0); /* bytes that the server received */
    (void)http_free(h);
}

TEST(an_answer_that_breaks_off_is_lost_data)
{
    const struct reply r[] = {{.bytes = OK(9) "\r\nhalf"}};
    struct http *h = new_http(-1);
    struct http_request q = get();
    struct http_response res = {0};
    struct err e = {0};

    serve(r, 1);
    T_INT(http_do(h, &q, &res, &e), -ERR_DATA_LOSS);
    (void)http_free(h);
}

TEST(a_peer_that_answers_no_http_or_an_endless_header_is_unavailable)
{
    static char line[200000];
    const struct reply r[] = {
        {.bytes = "\x01\x02 no HTTP, and long enough to be seen as none\r\n\r\n"}, {.bytes = line}};
    struct http *h = new_http(-1);
    struct http_request q = get();
    struct http_response res = {0};
    struct err e = {0};
    int n = snprintf(line, sizeof(line), "HTTP/1.1 200 OK\r\nX: ");

    memset(line + n, 'x', sizeof(line) - 1 - (size_t)n);
    serve(r, 2);
    T_INT(http_do(h, &q, &res, &e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "no HTTP"));
    T_INT(http_do(h, &q, &res, &e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "header of its answer is too long"));
    (void)http_free(h);
}

TEST(a_readable_cancel_descriptor_ends_the_wait)
{
    const struct reply r[] = {{.bytes = NULL}};
    struct http_request q = get();
    struct http_response res = {0};
    struct err e = {0};
    struct http *h;
    int p[2];

    T_INT(pipe(p), 0);
    h = new_http(p[0]);
    serve(r, 1);
    T_INT(write(p[1], "x", 1), 1);
    T_INT(http_do(h, &q, &res, &e), -ERR_CANCELED);
    (void)http_free(h);
}

TEST(a_body_that_is_collected_is_bounded)
{
    const struct reply r[] = {{.bytes = OK(20) "\r\n01234567890123456789"}};
    struct http *h = new_http(-1);
    struct http_request q = get();
    struct http_response res = {0};
    struct err e = {0};

    serve(r, 1);
    q.max_body = 10;
    T_INT(http_do(h, &q, &res, &e), -ERR_EXHAUSTED);
    T_OK(!res.body.data);
    (void)http_free(h);
}

static int count(void *arg, const char *data, size_t len)
{
    (void)data;
    *(size_t *)arg += len;
    return 0;
}

static int refuse(void *arg, const char *data, size_t len)
{
    (void)arg;
    (void)data;
    (void)len;
    return 1;
}

TEST(a_good_body_is_streamed_and_that_of_an_error_is_collected)
{
    const struct reply r[] = {
        {.bytes = OK(5) "\r\nhello"},
        {.bytes = "HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nbad"},
    };
    struct http *h = new_http(-1);
    struct http_request q = get();
    struct http_response res = {0};
    struct err e = {0};
    size_t n = 0;

    serve(r, 2);
    q.write = count;
    q.write_arg = &n;
    T_INT(http_do(h, &q, &res, &e), 0);
    T_INT(n, 5);
    T_INT(res.body.len, 0);
    http_response_done(&res);
    T_INT(http_do(h, &q, &res, &e), 0);
    T_INT(n, 5);
    T_STR(res.body.data, "bad");
    http_response_done(&res);
    (void)http_free(h);
}

TEST(a_receiver_that_wants_no_more_ends_the_request)
{
    const struct reply r[] = {{.bytes = OK(5) "\r\nhello"}};
    struct http *h = new_http(-1);
    struct http_request q = get();
    struct http_response res = {0};
    struct err e = {0};

    serve(r, 1);
    q.write = refuse;
    T_INT(http_do(h, &q, &res, &e), -ERR_CANCELED);
    (void)http_free(h);
}

struct producer {
    int left;
    int fails_at;
};

static int64_t produce(void *arg, char *out, size_t max, struct err *e)
{
    struct producer *p = arg;

    if (p->left == p->fails_at)
        return err_set(e, ERR_DENIED, "no more of this");
    if (p->left-- == 0)
        return 0;
    memset(out, 'x', max);
    return (int64_t)max;
}

TEST(a_body_of_unknown_length_is_produced_as_it_is_sent)
{
    const struct reply r[] = {{.bytes = OK(2) "\r\nok", .reads_all = true}};
    struct producer p = {.left = 20, .fails_at = -1};
    struct http *h = new_http(-1);
    struct http_request q = get();
    struct http_response res = {0};
    struct err e = {0};

    serve(r, 1);
    q.method = "PUT";
    q.read = produce;
    q.read_arg = &p;
    q.read_len = -1;
    T_INT(http_do(h, &q, &res, &e), 0);
    T_INT(res.status, 200);
    T_STR(res.body.data, "ok");
    http_response_done(&res);
    (void)http_free(h);
}

TEST(a_producer_that_fails_says_why)
{
    const struct reply r[] = {{.bytes = OK(2) "\r\nok", .reads_all = true}};
    struct producer p = {.left = 20, .fails_at = 10};
    struct http *h = new_http(-1);
    struct http_request q = get();
    struct http_response res = {0};
    struct err e = {0};

    serve(r, 1);
    q.method = "PUT";
    q.read = produce;
    q.read_arg = &p;
    q.read_len = -1;
    T_INT(http_do(h, &q, &res, &e), -ERR_DENIED);
    T_STR(e.message, "no more of this");
    (void)http_free(h);
}

TEST(a_socket_may_have_a_path_of_any_length)
{
    const struct reply r[] = {{.bytes = OK(2) "\r\nok"}, {.bytes = OK(2) "\r\nok"}};
    char dir[PATH_MAX] = "";
    char path[PATH_MAX];
    struct http *h = new_http(-1);
    struct http_request q = get();
    struct http_response res = {0};
    struct err e = {0};
    char cwd[1024];
    int here;

    T_OK(getcwd(cwd, sizeof(cwd)));
    here = open(".", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 12; i++) {
        T_INT(mkdir("a-directory-with-a-long-name", 0700), 0);
        T_INT(chdir("a-directory-with-a-long-name"), 0);
        (void)strncat(dir, "/a-directory-with-a-long-name", sizeof(dir) - strlen(dir) - 1);
    }
    serve(r, 2);
    T_INT(fchdir(here), 0);
    (void)snprintf(path, sizeof(path), "%.900s%.3000s/s", cwd, dir);
    q.unix_socket = path;
    for (int i = 0; i < 2; i++) {
        T_INT(http_do(h, &q, &res, &e), 0);
        T_STR(res.body.data, "ok");
        http_response_done(&res);
    }
    (void)http_free(h);
}

/* ---- an upgraded connection below TLS ---- */

#define HEAD "HTTP/1.1 101 UPGRADED\r\n\r\n"
#define FLOOD_BYTES (2 * 1024 * 1024)

/* A server on the socket "s": it sends what comes through to_peer, and what it gets comes out of from_peer. */
struct tls_peer {
    pid_t pid;
    int to_peer, from_peer;
};

static struct tls_peer start_tls_peer(void)
{
    struct tls_peer p;
    int in[2], out[2];

    T_INT(system("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=box "
                 "-addext subjectAltName=DNS:box -keyout key.pem -out cert.pem 2>/dev/null"),
          0);
    T_INT(pipe(in), 0);
    T_INT(pipe(out), 0);
    p.pid = fork();
    if (p.pid == 0) {
        (void)dup2(in[0], 0);
        (void)dup2(out[1], 1);
        for (int i = 0; i < 2; i++) {
            (void)close(in[i]);
            (void)close(out[i]);
        }
        (void)execlp("openssl", "openssl", "s_server", "-unix", "s", "-quiet", "-naccept", "1",
                     "-key", "key.pem", "-cert", "cert.pem", (char *)NULL);
        _exit(127);
    }
    T_OK(p.pid > 0);
    (void)close(in[0]);
    (void)close(out[1]);
    p.to_peer = in[1];
    p.from_peer = out[0];
    for (int i = 0; i < 1000 && access("s", F_OK) < 0; i++)
        (void)poll(NULL, 0, 10);
    return p;
}

static int upgrade_to(struct tls_peer *p, struct http *h)
{
    struct http_request q = get();
    struct err e = {0};
    int fd = -1, r;

    http_set_ca(h, "cert.pem");
    q.method = "POST";
    q.url = "https://box/x";
    T_INT(write(p->to_peer, HEAD, strlen(HEAD)), (int)strlen(HEAD));
    r = http_upgrade(h, &q, &fd, &e);
    if (r < 0)
        T_STR(e.message, "");
    return fd;
}

/* Up to the empty line. */
static void skip_request(int fd)
{
    char last[4] = {0};

    while (memcmp(last, "\r\n\r\n", 4) != 0) {
        memmove(last, last + 1, 3);
        T_INT(read(fd, last + 3, 1), 1);
    }
}

static void end_tls_peer(struct tls_peer *p)
{
    (void)kill(p->pid, SIGKILL);
    (void)waitpid(p->pid, NULL, 0);
    (void)close(p->to_peer);
    (void)close(p->from_peer);
}

static int64_t used_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

struct flood {
    int fd;
    bool is_done;
};

static void *flood_main(void *arg)
{
    struct flood *f = arg;
    unsigned char data[4096];
    size_t at = 0;

    while (at < FLOOD_BYTES) {
        ssize_t n;

        for (size_t i = 0; i < sizeof(data); i++)
            data[i] = (unsigned char)((at + i) * 31 >> 3);
        n = send(f->fd, data, sizeof(data), MSG_NOSIGNAL);
        if (n < 0 && errno == ENOTSOCK)
            n = write(f->fd, data, sizeof(data));
        if (n < 0)
            break;
        at += (size_t)n;
    }
    f->is_done = at >= FLOOD_BYTES;
    return NULL;
}

static void take_flood(int fd)
{
    unsigned char data[8192];
    size_t at = 0;

    while (at < FLOOD_BYTES) {
        ssize_t n = read(fd, data, sizeof(data));

        T_OK(n > 0);
        for (ssize_t i = 0; i < n; i++)
            if (data[i] != (unsigned char)((at + (size_t)i) * 31 >> 3))
                T_INT((long)at + i, -1);
        at += (size_t)n;
    }
}

/* No reader is there at first: the tunnel waits for one. The writer's data is whole blocks of one write each. */
static void flood_and_take(int from, int to)
{
    struct flood f = {.fd = from};
    pthread_t thread;
    int64_t before;

    T_INT(pthread_create(&thread, NULL, flood_main, &f), 0);
    (void)poll(NULL, 0, 300); /* until every buffer is full */
    before = used_ms();
    (void)poll(NULL, 0, 500);
    T_OK(used_ms() - before < 100);
    T_OK(!f.is_done);
    take_flood(to);
    T_INT(pthread_join(thread, NULL), 0);
    T_OK(f.is_done);
}

/* The thread of the connection frees its parts after the peer has seen the end. */
static bool is_alone(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;

    for (struct dirent *t; d && (t = readdir(d));)
        n += t->d_name[0] != '.';
    (void)closedir(d);
    return n == 1;
}

static void wait_alone(void)
{
    while (!is_alone()) /* the test's alarm ends it */
        (void)poll(NULL, 0, 5);
}

TEST(an_upgraded_connection_below_tls_brings_every_byte_to_a_slow_reader_and_waits_idly)
{
    struct tls_peer p = start_tls_peer();
    struct http *h = new_http(-1);
    int fd = upgrade_to(&p, h);

    flood_and_take(p.to_peer, fd);
    (void)close(fd);
    wait_alone();
    (void)http_free(h);
    end_tls_peer(&p);
}

TEST(an_upgraded_connection_below_tls_takes_every_byte_of_a_writer_and_waits_idly)
{
    struct tls_peer p = start_tls_peer();
    struct http *h = new_http(-1);
    int fd = upgrade_to(&p, h);

    skip_request(p.from_peer);
    flood_and_take(fd, p.from_peer);
    (void)close(fd);
    wait_alone();
    (void)http_free(h);
    end_tls_peer(&p);
}

TEST(an_upgraded_connection_below_tls_ends_with_its_caller)
{
    struct tls_peer p = start_tls_peer();
    struct http *h = new_http(-1);
    int fd = upgrade_to(&p, h);
    char c;

    skip_request(p.from_peer);
    T_INT(send(fd, "z", 1, MSG_NOSIGNAL), 1);
    (void)close(fd);
    T_INT(read(p.from_peer, &c, 1), 1);
    T_OK(c == 'z');
    /* s_server ends with its one connection. */
    T_INT(waitpid(p.pid, NULL, 0), p.pid);
    wait_alone();
    (void)http_free(h);
    (void)close(p.to_peer);
    (void)close(p.from_peer);
}
