/* The server's parts that need no socket: addresses, encodings, rings, HTTP's grammar. */
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "event/dial.h"
#include "api/encode.h"
#include "http/gate.h"
#include "common/http1.h"
#include "event/ring.h"
#include "http/route.h"

#include "test.h"

TEST(uri_is_decoded_after_it_is_split)
{
    char *s = NULL;

    T_INT(uri_decode("/a%2Fb%20c+d", 12, &s, NULL), 0);
    T_STR(s, "/a/b c+d");
    free(s);
    T_INT(uri_decode("%ff", 3, &s, NULL), 0);
    T_STR(s, "\xff");
    free(s);
    T_INT(uri_decode("a%00", 4, &s, NULL), -ERR_INVALID);
    T_INT(uri_decode("a%0", 3, &s, NULL), -ERR_INVALID);
    T_INT(uri_decode("a%", 2, &s, NULL), -ERR_INVALID);
    T_INT(uri_decode("%g0", 3, &s, NULL), -ERR_INVALID);
}

TEST(uri_query_finds_one_and_refuses_two)
{
    char *s = NULL;
    char **all = NULL;
    struct err e = {0};

    T_INT(uri_query_get("a=1&b=x%26y+z&c", "b", &s, NULL), 0);
    T_STR(s, "x&y z");
    free(s);
    T_INT(uri_query_get("a=1&c", "c", &s, NULL), 0);
    T_STR(s, "");
    free(s);
    T_INT(uri_query_get("a=1", "b", &s, NULL), 0);
    T_OK(!s);
    T_INT(uri_query_get(NULL, "b", &s, NULL), 0);
    T_INT(uri_query_get("a=1&a=2", "a", &s, &e), -ERR_INVALID);
    T_STR(e.field, "a");
    T_INT(uri_query_all("x=1&y=2&x=3", "x", 2, &all, NULL), 0);
    T_STR(all[1], "3");
    strv_free(all);
    T_INT(uri_query_all("x=1&x=3", "x", 1, &all, NULL), -ERR_INVALID);
    T_INT(uri_query_unknown("a=1&%7a=2", (const char *const[]){"a", NULL}, &s, NULL), 0);
    T_STR(s, "z");
    free(s);
}

TEST(uri_absolute_form_is_of_http_alone)
{
    T_INT(uri_scheme_len("http://a/b"), 7);
    T_INT(uri_scheme_len("HTTPS://a"), 8);
    T_INT(uri_scheme_len("/http://a"), 0);
    T_INT(uri_scheme_len("http:/a"), 0);
    T_INT(uri_scheme_len("ftp://a"), 0);
    T_INT(uri_scheme_len("*"), 0);
}

TEST(origin_hosts_are_addresses_localhost_and_names_that_were_given)
{
    static char exact[] = "box.example", below[] = ".e2b.test";
    char *const names[] = {exact, below, NULL};
    static const char *const good[] = {
        "127.0.0.1",    "127.0.0.1:80",   "[::1]",        "[fe80::1]:80",    "localhost",
        "LOCALHOST.:1", "localhost:",     "Box.Example",  "box.example.:80", "e2b.test",
        "a.e2b.test",   "a.b.E2B.test:1", "127.0.0.1.:80"};
    static const char *const bad[] = {"",
                                      "evil.example",
                                      "box.example..",
                                      "a.box.example",
                                      "xe2b.test",
                                      ".e2b.test.evil",
                                      "127.0.0",
                                      "127.0.0.1:x",
                                      "127.0.0.1:80:",
                                      "[::1",
                                      "[::1]x",
                                      "[]",
                                      "[127.0.0.1]",
                                      "::1",
                                      "[localhost]",
                                      ".",
                                      ":",
                                      "localhost/",
                                      "1",
                                      "0x7f.0.0.1",
                                      " localhost",
                                      "localhost ",
                                      "a@localhost"};

    for (size_t i = 0; i < N_ELEMENTS(good); i++)
        T_OK(origin_host_is_allowed(good[i], names));
    for (size_t i = 0; i < N_ELEMENTS(bad); i++)
        T_OK(!origin_host_is_allowed(bad[i], names));
    T_OK(!origin_host_is_allowed("box.example", NULL));
}

TEST(origin_is_own_only_with_the_same_host_and_port)
{
    T_OK(origin_is_own("http://127.0.0.1:80", "127.0.0.1:80"));
    T_OK(origin_is_own("https://Box.example", "box.example"));
    T_OK(!origin_is_own("http://127.0.0.1:81", "127.0.0.1:80"));
    T_OK(!origin_is_own("http://127.0.0.1", "127.0.0.1:80"));
    T_OK(!origin_is_own("null", "null"));
    T_OK(!origin_is_own("://a", "a"));
    T_OK(!origin_is_own("http://a://b", "b"));
    T_OK(!origin_is_own("", ""));
}

TEST(encode_ndjson_sse_and_connect)
{
    static const char connect[] = "\0\0\0\0\7{\"a\":1}\2\0\0\0\2{}";
    _cleanup_buf_ struct buf b;
    json_t *msg = json_pack("{s:i}", "a", 1);
    struct err error = {.code = ERR_NOT_FOUND, .message = "gone"};

    buf_init(&b, 1000);
    T_INT(encode_message(ENCODING_NDJSON, msg, &b, NULL), 0);
    T_INT(encode_end(ENCODING_NDJSON, NULL, &b, NULL), 0);
    T_STR(b.data, "{\"a\":1}\n");
    T_INT(encode_end(ENCODING_NDJSON, &error, &b, NULL), 0);
    T_STR(b.data, "{\"a\":1}\n{\"error\":{\"code\":\"not_found\",\"message\":\"gone\"}}\n");
    buf_clear(&b);
    T_INT(encode_message(ENCODING_SSE, msg, &b, NULL), 0);
    T_INT(encode_end(ENCODING_SSE, NULL, &b, NULL), 0);
    T_STR(b.data, "event: message\ndata: {\"a\":1}\n\nevent: end\ndata: {}\n\n");
    buf_clear(&b);
    T_INT(encode_message(ENCODING_CONNECT, msg, &b, NULL), 0);
    T_INT(encode_end(ENCODING_CONNECT, NULL, &b, NULL), 0);
    T_INT(b.len, sizeof(connect) - 1);
    T_MEM(b.data, connect, b.len);
    json_decref(msg);
}

TEST(encode_message_that_does_not_fit_leaves_nothing)
{
    _cleanup_buf_ struct buf b;
    json_t *msg = json_pack("{s:s}", "a", "0123456789");

    buf_init(&b, 8);
    T_INT(encode_message(ENCODING_CONNECT, msg, &b, NULL), -ERR_EXHAUSTED);
    T_INT(b.len, 0);
    json_decref(msg);
}

TEST(encode_envelope_is_opened_only_when_whole)
{
    const char *data;
    size_t len;

    T_INT(encode_open_envelope("\0\0\0\0\2{}", 7, &data, &len, NULL), 0);
    T_INT(len, 2);
    T_MEM(data, "{}", 2);
    T_INT(encode_open_envelope("\0\0\0\0\3{}", 7, &data, &len, NULL), -ERR_INVALID);
    T_INT(encode_open_envelope("\0\0\0\0", 4, &data, &len, NULL), -ERR_INVALID);
    T_INT(encode_open_envelope("\1\0\0\0\2{}", 7, &data, &len, NULL), -ERR_UNIMPLEMENTED);
    T_INT(encode_open_envelope("\4\0\0\0\2{}", 7, &data, &len, NULL), -ERR_INVALID);
}

TEST(ring_wraps_and_grows_without_losing_a_byte)
{
    struct ring r;
    char in[100], out[100];
    unsigned char next_in = 0, next_out = 0;

    T_INT(ring_init(&r, 64, NULL), 0);
    for (int round = 0; round < 1000; round++) {
        size_t want = (size_t)(round * 7 % 50) + 1, n;

        for (size_t i = 0; i < want; i++)
            in[i] = (char)(next_in + i);
        n = ring_put(&r, in, want);
        next_in = (unsigned char)(next_in + n);
        if (round == 500)
            T_INT(ring_grow(&r, 128, NULL), 0);
        n = ring_get(&r, out, (size_t)(round * 11 % 50) + 1);
        for (size_t i = 0; i < n; i++)
            T_INT((unsigned char)out[i], next_out++);
    }
    ring_done(&r);
}

static int parse_head(const char *text, struct http1_head *h)
{
    size_t n = 0;

    return http1_parse_head(text, strlen(text), h, &n, NULL);
}

TEST(http1_head_is_read_whole_or_not_at_all)
{
    static const char text[] = "HTTP/1.1 200 OK\r\nContent-Length:  5 \r\nX:y\r\n\r\nhello";
    struct http1_head h = {0};
    size_t n = 99;

    for (size_t len = 0; len < sizeof(text) - 1 - 5; len++) {
        T_INT(http1_parse_head(text, len, &h, &n, NULL), 0);
        T_INT(n, 0);
    }
    T_INT(http1_parse_head(text, sizeof(text) - 1, &h, &n, NULL), 0);
    T_INT(n, sizeof(text) - 1 - 5);
    T_INT(h.status, 200);
    T_OK(h.has_length && h.length == 5 && !h.is_chunked);
    T_STR(h.headers[1].name, "X");
    T_STR(h.headers[1].value, "y");
    http1_head_done(&h);
    T_INT(parse_head("HTTP/2 200 OK\r\n\r\n", &h), -ERR_UNAVAILABLE);
    T_INT(parse_head("HTTP/1.1 abc\r\n\r\n", &h), -ERR_UNAVAILABLE);
    T_INT(parse_head("SSH-2.0-OpenSSH\r\n\r\n", &h), -ERR_UNAVAILABLE);
    T_INT(parse_head("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", &h), -ERR_UNAVAILABLE);
    T_INT(parse_head("HTTP/1.1 200 OK\r\n folded: x\r\n\r\n", &h), -ERR_UNAVAILABLE);
    T_INT(parse_head("HTTP/1.1 200 OK\r\nSpace : x\r\n\r\n", &h), -ERR_UNAVAILABLE);
    T_INT(parse_head("HTTP/1.1 200 OK\r\nA: b\n\nbody\r\n\r\n", &h), -ERR_UNAVAILABLE);
    T_INT(parse_head("HTTP/1.1 200 OK\r\nA: b\rC: d\r\n\r\n", &h), -ERR_UNAVAILABLE);
    T_INT(parse_head("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", &h),
          -ERR_UNAVAILABLE);
    T_INT(parse_head("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", &h),
          -ERR_UNAVAILABLE);
}

TEST(http1_chunks_are_decoded_however_they_are_cut)
{
    static const char text[] = "5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nTrailer: z\r\n\r\n";

    for (size_t cut = 1; cut < sizeof(text); cut++) {
        struct http1_chunks c = {0};
        char out[64] = "";
        size_t n_out = 0;

        for (size_t at = 0; at < sizeof(text) - 1; at += cut) {
            size_t len = sizeof(text) - 1 - at < cut ? sizeof(text) - 1 - at : cut;
            char piece[64];
            size_t n;

            memcpy(piece, text + at, len);
            T_INT(http1_decode_chunks(&c, piece, len, &n, NULL), 0);
            memcpy(out + n_out, piece, n);
            n_out += n;
        }
        T_STR(out, "hello world");
        T_OK(c.is_over);
    }
}

TEST(http1_bad_chunks_are_refused)
{
    static const char *const bad[] = {"x\r\n", "\r\n", "fffffffffffffffff\r\n", "1\r\naXX",
                                      "1\r\na\r\r"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct http1_chunks c = {0};
        char piece[64];
        size_t n;

        memcpy(piece, bad[i], strlen(bad[i]));
        T_INT(http1_decode_chunks(&c, piece, strlen(bad[i]), &n, NULL), -ERR_UNAVAILABLE);
    }
}

TEST(http1_trailers_without_end_are_refused)
{
    struct http1_chunks c = {0};
    char head[] = "0\r\n";
    size_t n, all = 0;
    int r = http1_decode_chunks(&c, head, strlen(head), &n, NULL);

    while (r == 0 && all <= 2 * HTTP1_HEAD_MAX) {
        char line[] = "X: y\r\n";

        all += strlen(line);
        r = http1_decode_chunks(&c, line, strlen(line), &n, NULL);
    }
    T_INT(r, -ERR_UNAVAILABLE);
    T_OK(all > HTTP1_HEAD_MAX);
}

TEST(http1_hop_by_hop_headers_end_here)
{
    T_OK(http1_is_hop_by_hop("transfer-encoding", NULL));
    T_OK(http1_is_hop_by_hop("X-Own", "close, x-own"));
    T_OK(!http1_is_hop_by_hop("X-Own", "close, x-ownother"));
    T_OK(!http1_is_hop_by_hop("Content-Type", "close"));
}

TEST(dial_port_stands_at_the_start_of_the_path)
{
    const char *end;
    uint16_t port;

    T_INT(dial_parse_port("8080/a", &port, &end, NULL), 0);
    T_INT(port, 8080);
    T_STR(end, "/a");
    T_INT(dial_parse_port("65535?x", &port, &end, NULL), 0);
    for (const char *const *bad =
             (const char *const[]){"", "0", "65536", "80x", "-1", "/", "00000080", NULL};
         *bad; bad++)
        T_INT(dial_parse_port(*bad, &port, &end, NULL), -ERR_INVALID);
}
