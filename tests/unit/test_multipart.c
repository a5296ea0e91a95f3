#include "test.h"

#include "common/buf.h"
#include "http/gzip.h"
#include "http/multipart.h"

struct told {
    struct buf text;
    int fail_at; /* the call that refuses; 0: none */
    int n;
};

static int step(struct told *t, struct err *e)
{
    return ++t->n == t->fail_at ? err_set(e, ERR_INTERNAL, "no") : 0;
}

static int on_begin(void *arg, const struct multipart_part *part, struct err *e)
{
    struct told *t = arg;

    T_OK(buf_addf(&t->text, NULL, "<%s|%s>", part->name ? part->name : "-",
                  part->filename ? part->filename : "-") == 0);
    return step(t, e);
}

static int on_data(void *arg, const void *data, size_t len, struct err *e)
{
    struct told *t = arg;

    T_OK(buf_add(&t->text, data, len, NULL) == 0);
    return step(t, e);
}

static int on_end(void *arg, struct err *e)
{
    struct told *t = arg;

    T_OK(buf_adds(&t->text, ";", NULL) == 0);
    return step(t, e);
}

static const struct multipart_ops ops = {.begin = on_begin, .data = on_data, .end = on_end};

/* The parser's calls for a body that comes in pieces, as text; with an error, its message. */
static char *run(const char *body, size_t len, size_t piece, int fail_at)
{
    struct told t = {.fail_at = fail_at};
    struct multipart *m = NULL;
    struct err e = {0};
    int r = 0;

    buf_init(&t.text, 1 << 20);
    T_INT(multipart_new("multipart/form-data; boundary=\"B b\"", &ops, &t, &m, &e), 0);
    for (size_t at = 0; at < len && r == 0; at += piece)
        r = multipart_feed(m, body + at, piece < len - at ? piece : len - at, &e);
    if (r == 0)
        r = multipart_finish(m, &e);
    if (r < 0)
        T_OK(buf_addf(&t.text, NULL, "!%s", e.message) == 0);
    multipart_free(m);
    T_OK(buf_adds(&t.text, "", NULL) == 0);
    return buf_take(&t.text);
}

#define D "--B b\r\n"
#define DISP "Content-Disposition: form-data; name=\"file\""
#define CUT "!multipart: the body ends before its last delimiter"

static const struct {
    const char *body;
    const char *want;
} rows[] = {
    {D DISP "; filename=\"a b.txt\"\r\n\r\nhello\r\n--B b--\r\n", "<file|a b.txt>hello;"},
    {"pre\r\namble\r\n" D DISP "\r\n\r\n\r\n--B b--epilogue\r\n--B b\r\n", "<file|->;"},
    {D DISP "\r\n\r\n--B b--", "<file|->;"},
    {D "\r\nx\r\n--B b--", "<-|->x;"},
    {"--B b \t\r\n" DISP "\r\n\r\na\r\n--B b\t\r\n" DISP "\r\n\r\nb\r\n--B b--",
     "<file|->a;<file|->b;"},
    /* text that only looks like a delimiter */
    {D DISP "\r\n\r\na\r\n--B bx\r\n--B b-\r\n--B b \tx\r\n--B\n--B b--", CUT},
    {D DISP "\r\n\r\na\n--B b\r\r\n--B b\r\r\n--B b--", "<file|->a\n--B b\r\r\n--B b\r;"},
    {D DISP "\r\n\r\n\r\r\n\r\n--B b--", "<file|->\r\r\n;"},
    /* names */
    {D DISP "; filename=plain\r\n\r\n\r\n--B b--", "<file|plain>;"},
    {D DISP "; filename=\"a\\\"b\"\r\n\r\n\r\n--B b--", "<file|a\"b>;"},
    {D DISP "; filename=\"C:\\dir\\x\"\r\n\r\n\r\n--B b--", "<file|C:\\dir\\x>;"},
    {D DISP "; filename=\"a%22b\"\r\n\r\n\r\n--B b--", "<file|a%22b>;"},
    {D DISP "; filename=\"x\"; filename*=UTF-8''%e2%82%ac%20/y\r\n\r\n\r\n--B b--",
     "<file|\xe2\x82\xac /y>;"},
    {D DISP "; filename=\"x\"; filename*=latin9''y\r\n\r\n\r\n--B b--", "<file|x>;"},
    {D DISP "; filename*=utf-8''%zz\r\n\r\n\r\n--B b--",
     "!a part's file name: a '%' that is not followed by two hex digits"},
    {D DISP "; filename*0*=UTF-8''a%2f%E2; filename=p; filename*2=\".t%78t\"; "
            "filename*1*=%82%acb\r\n\r\n\r\n--B b--",
     "<file|a/\xe2\x82\xac"
     "b.t%78t>;"},
    {D DISP "; filename*0=\"long \"; filename*1=name; filename*3=no\r\n\r\n\r\n--B b--",
     "<file|long name>;"},
    {D DISP "; filename*1=second; filename=plain\r\n\r\n\r\n--B b--", "<file|plain>;"},
    {D DISP "; filename*0=a; filename*1*=%00\r\n\r\n\r\n--B b--",
     "!a part's file name: a NUL in the request's address"},
    {D DISP "; filename*=utf-8''%00\r\n\r\n\r\n--B b--",
     "!a part's file name: a NUL in the request's address"},
    {D "X: y\r\ncontent-disposition:form-data;\r\n name=file;filename=\"\"\r\n\r\n\r\n--B b--",
     "<file|>;"},
    {D "Content-Disposition: attachment; name=file\r\n\r\nx\r\n--B b--", "<-|->x;"},
    {D "Content-Disposition: form-data; name=\"broken\r\n\r\nx\r\n--B b--", "<-|->x;"},
    /* cut short */
    {"", CUT},
    {"--B b", CUT},
    {D DISP "\r\n\r\nhal", "<file|->hal" CUT},
    {D DISP "\r\n\r\nhal\r\n--B b", "<file|->hal" CUT},
    {D DISP "\r\n\r\nhal\r\n--B b\r\n", "<file|->hal;" CUT},
};

TEST(parts_are_the_same_however_the_body_is_cut)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (size_t piece = 1; piece < 40; piece += 3) {
            char *got = run(rows[i].body, strlen(rows[i].body), piece, 0);
            const char *want = rows[i].want;

            if (strcmp(rows[i].want, CUT) == 0)
                T_OK(strstr(got, CUT));
            else
                T_STR(got, want);
            free(got);
        }
}

TEST(parts_limits_are_errors)
{
    static char big[MULTIPART_HEADERS_MAX + 200];
    struct multipart *m = NULL;
    struct err e = {0};
    char *got;
    struct told t = {0};

    memset(big, 'x', sizeof(big));
    memcpy(big, D, strlen(D));
    got = run(big, sizeof(big), sizeof(big), 0);
    T_STR(got, "!a part's headers of more than 16384 bytes");
    free(got);

    big[MULTIPART_BOUNDARY_MAX + 60] = '\0';
    memcpy(big, "multipart/x; boundary=", 22);
    T_INT(multipart_new(big, &ops, &t, &m, &e), -ERR_INVALID);
    T_STR(e.message, "a multipart boundary of more than 200 bytes");
    T_INT(multipart_new("multipart/form-data", &ops, &t, &m, &e), -ERR_INVALID);
    T_STR(e.message, "no multipart boundary param in Content-Type");
    T_INT(multipart_new("multipart/form-data; boundary=\"\"", &ops, &t, &m, &e), -ERR_INVALID);

    buf_init(&t.text, 1 << 20);
    T_INT(multipart_new("multipart/x; boundary=b", &ops, &t, &m, &e), 0);
    T_INT(multipart_feed(m, "--b", 3, &e), 0);
    for (int i = 0; i < MULTIPART_PARTS_MAX; i++)
        T_INT(multipart_feed(m, "\r\n\r\n\r\n--b", 9, &e), 0);
    T_INT(multipart_feed(m, "\r\n\r\n\r\n--b", 9, &e), -ERR_INVALID);
    T_STR(e.message, "more than 65536 parts");
    multipart_free(m);
    buf_done(&t.text);
}

TEST(parts_end_with_the_first_error_of_whoever_takes_them)
{
    static const char body[] = D DISP "\r\n\r\nhello\r\n--B b--";

    for (int at = 1; at <= 3; at++) {
        char *got = run(body, sizeof(body) - 1, 7, at);

        T_OK(strstr(got, "!no"));
        free(got);
    }
}

/* ---- gzip ------------------------------------------------------------------------------------ */

struct source {
    const char *data;
    size_t len;
};

static int read_source(void *arg, void *data, size_t size, size_t *ret_len, struct err *e)
{
    struct source *s = arg;
    size_t n = s->len < size ? s->len : size;

    (void)e;
    memcpy(data, s->data, n);
    s->data += n;
    s->len -= n;
    *ret_len = n;
    return 0;
}

static int collect(void *arg, const void *data, size_t len, struct err *e)
{
    return buf_add(arg, data, len, e);
}

static void pack(const char *data, size_t len, struct buf *out)
{
    struct source s = {data, len};
    struct gzip *g = NULL;
    char piece[1000];
    size_t n = 0;

    T_INT(gzip_new(read_source, &s, &g, NULL), 0);
    do {
        T_INT(gzip_read(g, piece, sizeof(piece), &n, NULL), 0);
        T_OK(buf_add(out, piece, n, NULL) == 0);
    } while (n);
    gzip_free(g);
}

static int unpack(const char *data, size_t len, size_t piece, struct buf *out, struct err *e)
{
    struct gunzip *g = NULL;
    int r = gunzip_new(collect, out, &g, e);

    for (size_t at = 0; at < len && r == 0; at += piece)
        r = gunzip_feed(g, data + at, piece < len - at ? piece : len - at, e);
    if (r == 0)
        r = gunzip_finish(g, e);
    gunzip_free(g);
    return r;
}

TEST(gzip_gives_back_what_it_took)
{
    static char data[300000];
    struct buf packed, out;

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char)(i * i >> 7);
    for (size_t len = 0; len <= sizeof(data); len = len * 3 + 1) {
        buf_init(&packed, 1 << 20);
        buf_init(&out, 1 << 20);
        pack(data, len, &packed);
        T_INT(unpack(packed.data, packed.len, 777, &out, NULL), 0);
        T_INT((long long)out.len, (long long)len);
        T_OK(!len || memcmp(out.data, data, len) == 0);
        pack("more", 4, &packed); /* another member */
        T_INT(unpack(packed.data, packed.len, 13, &out, NULL), 0);
        T_INT((long long)out.len, (long long)(2 * len + 4));
        buf_done(&packed);
        buf_done(&out);
    }
}

TEST(gzip_that_is_damaged_or_cut_is_an_error)
{
    struct buf packed, out;
    struct err e = {0};

    buf_init(&packed, 1 << 20);
    buf_init(&out, 1 << 20);
    pack("hello hello hello", 17, &packed);
    for (size_t len = 0; len < packed.len; len++) {
        T_INT(unpack(packed.data, len, 5, &out, &e), -ERR_INVALID);
        T_STR(e.message, "gzip: unexpected EOF");
    }
    T_INT(unpack("this is no gzip", 15, 15, &out, &e), -ERR_INVALID);
    packed.data[packed.len - 5] ^= 1; /* the checksum */
    T_INT(unpack(packed.data, packed.len, 5, &out, &e), -ERR_INVALID);
    packed.data[packed.len - 5] ^= 1;
    T_OK(buf_adds(&packed, "rest", NULL) == 0);
    T_INT(unpack(packed.data, packed.len, 5, &out, &e), -ERR_INVALID);
    buf_done(&packed);
    buf_done(&out);
}

static int count(void *arg, const void *data, size_t len, struct err *e)
{
    (void)data;
    (void)e;
    *(uint64_t *)arg += len;
    return 0;
}

TEST(gzip_that_grows_without_end_is_refused)
{
    static char zeros[1 << 20];
    struct gunzip *g = NULL;
    struct buf packed;
    struct err e = {0};
    uint64_t out = 0;
    int r = 0;

    buf_init(&packed, 1 << 20);
    pack(zeros, sizeof(zeros), &packed);
    T_OK(packed.len < sizeof(zeros) / GZIP_MAX_RATIO);
    T_INT(gunzip_new(count, &out, &g, NULL), 0);
    for (int i = 0; i < 2000 && r == 0; i++)
        r = gunzip_feed(g, packed.data, packed.len, &e);
    T_INT(r, -ERR_INVALID);
    T_STR(e.message, "gzip: the body grows more than 200 times past 1073741824 bytes");
    T_OK(out > GZIP_FREE_BYTES && out <= GZIP_FREE_BYTES + sizeof(zeros));
    gunzip_free(g);
    buf_done(&packed);
}
