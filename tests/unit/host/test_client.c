#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "fake_server.h"
#include "lib/agent/client.h"

#define STREAM "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n"

static struct client *connect_to(const struct reply *replies, size_t n, int log)
{
    struct client_options o = {.socket = "s", .token = "T0KEN", .cancel_fd = -1};
    struct client *c = NULL;
    struct err e = {0};

    T_OK(fake_server("s", replies, n, log) > 0);
    T_INT(client_new(&o, &c, &e), 0);
    return c;
}

static int64_t soon(void)
{
    return clock_mono_ms() + 60000;
}

/* "HTTP head" and n times `piece` between [ and ]; free() it. */
static char *new_list_reply(const char *piece, size_t n)
{
    size_t len = strlen(piece) * n + 1;
    char *text = malloc(len + 128), *at;

    at = text + sprintf(text, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n[", len + 1);
    for (size_t i = 0; i < n; i++)
        at = stpcpy(at, piece);
    at[-1] = ' '; /* the last comma */
    (void)strcpy(at, "]");
    return text;
}

TEST(a_reply_that_would_take_much_memory_is_refused_before_it_is_parsed)
{
    _cleanup_free_ char *objects = new_list_reply("{},", 1000000);
    _cleanup_free_ char *numbers = new_list_reply("1,", 1500000);
    const struct reply r[] = {{.bytes = objects}, {.bytes = numbers}};
    struct client *c = connect_to(r, 2, -1);
    struct err e = {0};

    for (int i = 0; i < 2; i++) {
        T_INT(client_call(c, RPC_exec_list, NULL, soon(), NULL, &e), -ERR_EXHAUSTED);
        T_OK(strstr(e.message, "Exec/List"));
    }
    (void)client_free(c);
}

TEST(a_reply_without_content_may_be_small_only)
{
    _cleanup_free_ char *blanks = new_list_reply("                          1,", 20000);
    const struct reply r[] = {{.bytes = blanks}, {.bytes = blanks}};
    struct client *c = connect_to(r, 2, -1);
    struct err e = {0};

    T_INT(client_call(c, RPC_exec_list, NULL, soon(), NULL, &e), 0);
    T_INT(client_call(c, RPC_exec_signal, NULL, soon(), NULL, &e), -ERR_EXHAUSTED);
    (void)client_free(c);
}

TEST(a_message_that_would_take_much_memory_ends_its_stream)
{
    _cleanup_free_ char *line = new_list_reply("[],", 200000);
    struct reply r[] = {{.bytes = NULL}};
    char *text = malloc(strlen(line) + 256);
    struct err e = {0};
    struct client *c;

    (void)sprintf(text, STREAM "%s\n{\"end\":{}}\n", strchr(line, '['));
    r[0].bytes = text;
    c = connect_to(r, 1, -1);
    T_INT(client_stream(c, RPC_search_grep, NULL, soon(), NULL, NULL, &e), -ERR_EXHAUSTED);
    free(text);
    (void)client_free(c);
}

TEST(no_call_waits_for_ever_for_an_agent_that_is_silent)
{
    const struct reply n = {.bytes = NULL};
    const struct reply r[] = {n, n, n, n};
    struct client_options o = {.socket = "s", .cancel_fd = -1, .answer_timeout_ms = 20};
    struct client_bytes b = {.write = NULL};
    struct client *c = NULL;
    struct err e = {0};

    T_OK(fake_server("s", r, 4, -1) > 0);
    T_INT(client_new(&o, &c, &e), 0);
    T_INT(client_call(c, RPC_system_activity, NULL, 0, NULL, &e), -ERR_DEADLINE);
    T_INT(client_call(c, RPC_fs_remove, NULL, 0, NULL, &e), -ERR_DEADLINE);
    T_INT(client_stream(c, RPC_search_grep, NULL, 0, NULL, NULL, &e), -ERR_DEADLINE);
    T_INT(client_bytes(c, "GET", "/f", &b, 0, &e), -ERR_DEADLINE);
    (void)client_free(c);
}

TEST(an_error_of_the_agent_comes_back_as_it_was)
{
    const struct reply r[] = {
        {.bytes = "HTTP/1.1 404 Not Found\r\nContent-Length: 59\r\n\r\n"
                  "{\"code\":\"not_found\",\"message\":\"no such dir\",\"field\":\"cwd\"} "}};
    struct client *c = connect_to(r, 1, -1);
    struct err e = {0};

    T_INT(client_call(c, RPC_exec_run, NULL, soon(), NULL, &e), -ERR_NOT_FOUND);
    T_INT(e.code, ERR_NOT_FOUND);
    T_STR(e.field, "cwd");
    T_STR(e.message, "no such dir");
    (void)client_free(c);
}

TEST(an_error_that_is_no_json_has_its_status)
{
    const struct reply r[] = {
        {.bytes = "HTTP/1.1 401 No\r\nContent-Length: 4\r\n\r\noops"},
        {.bytes = "HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\noops"},
    };
    struct client *c = connect_to(r, 2, -1);
    struct err e = {0};

    T_INT(client_call(c, RPC_exec_run, NULL, soon(), NULL, &e), -ERR_UNAUTHENTICATED);
    T_INT(client_call(c, RPC_exec_run, NULL, soon(), NULL, &e), -ERR_INTERNAL);
    T_OK(strstr(e.message, "500"));
    (void)client_free(c);
}

TEST(the_token_is_sent_and_the_method_is_in_the_path)
{
    const struct reply r[] = {{.bytes = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}"}};
    json_t *reply = NULL;
    struct err e = {0};
    struct client *c;
    char log[4096] = "";
    int p[2];

    T_INT(pipe(p), 0);
    c = connect_to(r, 1, p[1]);
    T_INT(client_call(c, RPC_exec_list, NULL, soon(), &reply, &e), 0);
    T_INT(json_integer_value(json_object_get(reply, "a")), 1);
    json_decref(reply);
    T_OK(read(p[0], log, sizeof(log) - 1) > 0);
    T_OK(strstr(log, "POST /bellhop.v1.Exec/List HTTP/1.1\r\n") == log);
    T_OK(strstr(log, "X-Access-Token: T0KEN\r\n"));
    T_OK(!strstr(log, "Authorization"));
    (void)client_free(c);
}

static int join(void *arg, json_t *msg)
{
    const char *text = json_string_value(json_object_get(msg, "data"));

    (void)strncat(arg, text ? text : "|", 16);
    return 0;
}

TEST(a_stream_gives_each_message_and_no_keepalive)
{
    const struct reply r[] = {
        {.bytes =
             STREAM "{\"data\":\"a\"}\n\n{\"keepalive\":{}}\n{\"data\":\"b\"}\n{\"end\":{}}\n"}};
    struct client *c = connect_to(r, 1, -1);
    struct err e = {0};
    char got[64] = "";

    T_INT(client_stream(c, RPC_search_grep, NULL, soon(), join, got, &e), 0);
    T_STR(got, "ab|");
    (void)client_free(c);
}

TEST(a_stream_without_its_end_is_lost_data)
{
    const struct reply r[] = {{.bytes = STREAM "{\"data\":\"a\"}\n{\"da"}};
    struct client *c = connect_to(r, 1, -1);
    struct err e = {0};
    char got[64] = "";

    T_INT(client_stream(c, RPC_search_grep, NULL, soon(), join, got, &e), -ERR_DATA_LOSS);
    T_STR(got, "a");
    (void)client_free(c);
}

TEST(an_error_within_a_stream_is_its_result)
{
    const struct reply r[] = {
        {.bytes = STREAM "{\"data\":\"a\"}\n"
                         "{\"error\":{\"code\":\"resource_exhausted\",\"message\":\"full\"}}\n"}};
    struct client *c = connect_to(r, 1, -1);
    struct err e = {0};
    char got[64] = "";

    T_INT(client_stream(c, RPC_search_grep, NULL, soon(), join, got, &e), -ERR_EXHAUSTED);
    T_STR(e.message, "full");
    (void)client_free(c);
}

static int no_more(void *arg, json_t *msg)
{
    (void)arg;
    (void)msg;
    return 1;
}

TEST(a_receiver_can_end_a_stream)
{
    const struct reply r[] = {{.bytes = STREAM "{\"data\":\"a\"}\n", .keeps_open = true}};
    struct client *c = connect_to(r, 1, -1);
    struct err e = {0};

    T_INT(client_stream(c, RPC_exec_start, NULL, soon(), no_more, NULL, &e), -ERR_CANCELED);
    (void)client_free(c);
}

TEST(a_path_is_encoded_in_the_url)
{
    const struct reply r[] = {{.bytes = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}};
    struct err e = {0};
    struct client *c;
    char log[4096] = "";
    int p[2];

    T_INT(pipe(p), 0);
    c = connect_to(r, 1, p[1]);
    T_INT(client_put_file(c, "/a b/%?#\xff", "x", 1, 0600, "user", soon(), &e), 0);
    T_OK(read(p[0], log, sizeof(log) - 1) > 0);
    T_OK(strstr(log,
                "PUT /v1/files?path=%2Fa%20b%2F%25%3F%23%FF&mode=0600&user=user HTTP/1.1\r\n") ==
         log);
    (void)client_free(c);
}

/* ---- uploads ---- */

#define BEGUN \
    "HTTP/1.1 201 Created\r\nLocation: /v1/uploads/u1\r\nUpload-Complete: ?0\r\n" \
    "Upload-Offset: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
#define OFFSET(complete, n) \
    "HTTP/1.1 204 No Content\r\nUpload-Complete: " complete "\r\nUpload-Offset: " n \
    "\r\nConnection: close\r\n\r\n"
#define CUT "" /* an answer without a byte */

static bool has_begun;

/* Uploads ten bytes to an agent with these answers. */
static int upload_ten(const struct reply *replies, size_t n, int log, int64_t retry_ms,
                      struct err *e)
{
    struct client_upload u = {
        .path = "/f", .query = "mode=0644", .name = "ten", .deadline_mono_ms = soon()};
    struct client *c = connect_to(replies, n, log);
    int r;

    u.retry_ms = retry_ms;
    u.fd = open("ten", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    T_INT(write(u.fd, "0123456789", 10), 10);
    r = client_upload(c, &u, &has_begun, e);
    (void)close(u.fd);
    T_INT(unlink("s"), 0);
    (void)client_free(c);
    return r;
}
#define UPLOAD(replies, e) upload_ten(replies, N_ELEMENTS(replies), -1, 0, e)

TEST(an_upload_is_complete_only_with_all_of_its_bytes)
{
    const struct reply whole[] = {{.bytes = BEGUN}, {.bytes = OFFSET("?1", "10")}};
    const struct reply less[] = {
        {.bytes = BEGUN}, {.bytes = OFFSET("?1", "9")}, {.bytes = OFFSET("?1", "9")}};
    const struct reply none[] = {{.bytes = BEGUN},
                                 {.bytes = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
                                 {.bytes = OFFSET("?1", "9")},
                                 {.bytes = CUT}};
    const struct reply asked[] = {
        {.bytes = BEGUN}, {.bytes = CUT}, {.bytes = OFFSET("?1", "0")}, {.bytes = CUT}};
    const struct reply after_all[] = {
        {.bytes = BEGUN}, {.bytes = CUT}, {.bytes = OFFSET("?1", "10")}};
    struct err e = {0};

    T_INT(UPLOAD(whole, &e), 0);
    T_INT(UPLOAD(less, &e), -ERR_DATA_LOSS);
    T_OK(strstr(e.message, "10 bytes with 9"));
    T_INT(UPLOAD(none, &e), -ERR_DATA_LOSS);
    T_INT(UPLOAD(asked, &e), -ERR_DATA_LOSS);
    T_INT(UPLOAD(after_all, &e), 0);
}

TEST(an_upload_has_an_id)
{
    static const char *const heads[] = {"", "Location: /v1/uploads/\r\n",
                                        "Location: /v1/uploads/../x\r\n",
                                        "Location: /v1/files/x\r\n"};
    char text[512], id[200];
    struct reply r[] = {{.bytes = text}};
    struct err e = {0};

    for (size_t i = 0; i < N_ELEMENTS(heads); i++) {
        (void)snprintf(text, sizeof(text), "HTTP/1.1 201 Created\r\n%sContent-Length: 0\r\n\r\n",
                       heads[i]);
        T_INT(UPLOAD(r, &e), -ERR_UNIMPLEMENTED);
        T_OK(!has_begun);
    }
    /* One that would be cut off. */
    memset(id, 'x', sizeof(id) - 1);
    id[sizeof(id) - 1] = '\0';
    (void)snprintf(text, sizeof(text),
                   "HTTP/1.1 201 Created\r\nLocation: /v1/uploads/%s\r\nContent-Length: 0\r\n\r\n",
                   id);
    T_INT(UPLOAD(r, &e), -ERR_UNIMPLEMENTED);
}

/* The agent has one byte more after each cut. */
TEST(an_upload_that_goes_on_byte_by_byte_ends)
{
    const struct reply r[] = {{.bytes = BEGUN},
                              {.bytes = CUT},
                              {.bytes = OFFSET("?0", "1")},
                              {.bytes = CUT},
                              {.bytes = OFFSET("?0", "2")},
                              {.bytes = CUT},
                              {.bytes = OFFSET("?0", "3")},
                              {.bytes = CUT},
                              {.bytes = OFFSET("?0", "4")},
                              {.bytes = CUT},
                              {.bytes = OFFSET("?0", "5")},
                              {.bytes = CUT},
                              {.bytes = OFFSET("?0", "6")},
                              {.bytes = CUT},
                              {.bytes = OFFSET("?0", "7")},
                              {.bytes = CUT},
                              {.bytes = OFFSET("?0", "8")},
                              {.bytes = CUT},
                              {.bytes = OFFSET("?1", "10")}};
    struct err e = {0};

    T_INT(UPLOAD(r, &e), -ERR_UNAVAILABLE);
    T_OK(has_begun);
    T_OK(strstr(e.message, "the upload of 'ten' does not get on"));
    /* In time too: nothing is tried again. */
    T_INT(upload_ten(r, N_ELEMENTS(r), -1, 1, &e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "does not get on"));
}

TEST(an_upload_tells_how_long_it_is_to_be_kept_and_is_canceled_when_it_fails)
{
    const struct reply r[] = {{.bytes = BEGUN},
                              {.bytes = "HTTP/1.1 403 No\r\nContent-Length: 41\r\n\r\n"
                                        "{\"code\":\"permission_denied\",\"message\":\"\"}"},
                              {.bytes = CUT},
                              {.bytes = OFFSET("?0", "0")}};
    struct err e = {0};
    char log[8192];
    size_t n = 0;
    ssize_t got;
    int p[2];

    T_INT(pipe(p), 0);
    T_OK(upload_ten(r, N_ELEMENTS(r), p[1], 0, &e) < 0);
    T_INT(fcntl(p[0], F_SETFL, O_NONBLOCK), 0);
    while ((got = read(p[0], log + n, sizeof(log) - 1 - n)) > 0)
        n += (size_t)got;
    log[n] = '\0';
    T_OK(strstr(log, "Bellhop-Upload-Max-Age: 120\r\n"));
    T_OK(strstr(log, "DELETE /v1/uploads/u1 HTTP/1.1\r\n"));
    /* Once more after a cut. */
    T_OK(strstr(strstr(log, "DELETE ") + 1, "DELETE "));
}

TEST(waiting_for_an_agent_that_is_not_there_ends_at_the_deadline)
{
    struct client_options o = {.socket = "s", .cancel_fd = -1};
    struct client *c = NULL;
    struct err e = {0};

    T_INT(client_new(&o, &c, &e), 0);
    T_INT(client_wait_ready(c, clock_mono_ms() + 100, &e), -ERR_UNAVAILABLE);
    (void)client_free(c);
}

TEST(a_tunnel_hands_over_the_bytes_after_its_head)
{
    const struct reply r[] = {
        {.bytes = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: tcp\r\n\r\nhello"},
        {.bytes = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"},
    };
    struct client_options o = {.socket = "s", .token = "T", .cancel_fd = -1};
    struct err e = {0};
    char got[16] = "";
    int fd = -1;

    T_OK(fake_server("s", r, 2, -1) > 0);
    T_INT(client_tunnel(&o, 80, soon(), &fd, &e), 0);
    T_INT(read(fd, got, sizeof(got) - 1), 5);
    T_STR(got, "hello");
    fd_close(fd);
    T_INT(client_tunnel(&o, 80, soon(), &fd, &e), -ERR_UNAVAILABLE);
}
