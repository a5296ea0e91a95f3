/*
 * Multipart bodies: however a body is split on its way, the same parts come out, and a reference
 * that has the whole body finds the same; encoded parts decode byte for byte.
 * fuzz-flags: -max_len=2048
 */
#include "fuzz.h"

#include "common/buf.h"
#include "http/multipart.h"

#define TYPE "multipart/form-data; boundary=b-"
#define MARK "\r\n--b-"

/* The calls of the parser as text: "P name|filename\n", the data, "\nE\n". */
struct told {
    struct buf text;
    bool is_open;
    size_t n_parts;
};

static void say(struct told *t, const char *s)
{
    CHECK(buf_adds(&t->text, s ? s : "(none)", NULL) == 0);
}

static int on_begin(void *arg, const struct multipart_part *part, struct err *e)
{
    struct told *t = arg;

    (void)e;
    CHECK(!t->is_open);
    t->is_open = true;
    t->n_parts++;
    say(t, "P ");
    say(t, part->name);
    say(t, "|");
    say(t, part->filename);
    say(t, "\n");
    return 0;
}

static int on_data(void *arg, const void *data, size_t len, struct err *e)
{
    struct told *t = arg;

    (void)e;
    CHECK(t->is_open && len);
    CHECK(buf_add(&t->text, data, len, NULL) == 0);
    return 0;
}

static int on_end(void *arg, struct err *e)
{
    struct told *t = arg;

    (void)e;
    CHECK(t->is_open);
    t->is_open = false;
    say(t, "\nE\n");
    return 0;
}

static const struct multipart_ops ops = {.begin = on_begin, .data = on_data, .end = on_end};

static int run(const char *data, size_t len, size_t step, struct told *t)
{
    struct multipart *m = NULL;
    struct err e = {0};
    int r = 0;

    *t = (struct told){0};
    buf_init(&t->text, 1 << 20);
    CHECK(multipart_new(TYPE, &ops, t, &m, NULL) == 0);
    for (size_t at = 0; at < len && r == 0; at += step) {
        size_t n = step < len - at ? step : len - at;
        char *piece = malloc(n); /* so that a read past its end is detected */

        CHECK(piece);
        memcpy(piece, data + at, n);
        r = multipart_feed(m, piece, n, &e);
        free(piece);
    }
    if (r == 0)
        r = multipart_finish(m, &e);
    CHECK((r < 0) == (e.code != 0));
    CHECK(r < 0 || !t->is_open);
    multipart_free(m);
    return r;
}

/* ---- the reference: all of it at once -------------------------------------------------------- */

/* The next delimiter at or after `at`, in a text that begins with an assumed line end. */
static const char *find_mark(const char *at, const char *end, const char **ret_behind,
                             bool *ret_last)
{
    size_t n = strlen(MARK);

    for (; end - at >= (ptrdiff_t)n; at++) {
        const char *p = at + n;
        int blanks = 0;

        if (memcmp(at, MARK, n) != 0)
            continue;
        if (end - p >= 2 && p[0] == '-' && p[1] == '-') {
            *ret_behind = p + 2;
            *ret_last = true;
            return at;
        }
        while (p < end && (*p == ' ' || *p == '\t')) {
            p++;
            blanks++;
        }
        if (blanks > MULTIPART_PADDING_MAX || end - p < 2 || p[0] != '\r' || p[1] != '\n')
            continue;
        *ret_behind = p + 2;
        *ret_last = false;
        return at;
    }
    return NULL;
}

/* Returns the number of whole parts, and their data in `out`; -1: the body is malformed. */
static int reference(const char *data, size_t len, struct buf *out)
{
    char *text = malloc(len + 2);
    const char *end = text + len + 2, *at = text, *behind = NULL;
    bool is_last = false;
    int n = 0;

    CHECK(text);
    memcpy(text, "\r\n", 2);
    memcpy(text + 2, data, len);
    if (!find_mark(at, end, &behind, &is_last))
        n = -1;
    while (n >= 0 && !is_last) {
        const char *headers = behind, *body = NULL, *stop;

        if (end - headers >= 2 && memcmp(headers, "\r\n", 2) == 0)
            body = headers;
        else if ((body = memmem(headers, (size_t)(end - headers), "\r\n\r\n", 4)))
            body += 2;
        if (!body || body - headers + 2 > MULTIPART_HEADERS_MAX ||
            memchr(headers, '\0', (size_t)(body - headers))) {
            n = -1;
            break;
        }
        /* The line end of the last header may belong to the delimiter. */
        stop = find_mark(body, end, &behind, &is_last);
        if (!stop) {
            n = -1;
            break;
        }
        if (stop > body)
            CHECK(buf_add(out, body + 2, (size_t)(stop - body - 2), NULL) == 0);
        n++;
    }
    free(text);
    return n;
}

/* The data of the calls alone. */
static void strip(const struct told *t, struct buf *out)
{
    const char *p = t->text.data, *end = p ? p + t->text.len : p;

    while (p && p < end) {
        const char *line = memchr(p, '\n', (size_t)(end - p));

        CHECK(line);
        p = line + 1;
        line = memmem(p, (size_t)(end - p), "\nE\n", 3);
        CHECK(line);
        CHECK(buf_add(out, p, (size_t)(line - p), NULL) == 0);
        p = line + 3;
    }
}

/*
 * Without a file name that can't be decoded, the only other reason for an error, and without our
 * markers.
 */
static bool is_plain(const char *data, size_t len)
{
    return !memchr(data, '\'', len) && !memmem(data, len, "\nE\n", 3);
}

static void check_body(const char *data, size_t len, size_t step)
{
    struct told whole, cut;
    struct buf want, got;
    int r = run(data, len, len ? len : 1, &whole);
    int n;

    CHECK(run(data, len, step, &cut) == r);
    CHECK(whole.n_parts == cut.n_parts || r < 0);
    if (r == 0)
        CHECK(whole.text.len == cut.text.len &&
              memcmp(whole.text.data ? whole.text.data : "", cut.text.data ? cut.text.data : "",
                     whole.text.len) == 0);
    buf_init(&want, 1 << 20);
    buf_init(&got, 1 << 20);
    n = reference(data, len, &want);
    if (is_plain(data, len)) {
        CHECK((n < 0) == (r < 0));
        CHECK(n < 0 || (size_t)n == whole.n_parts);
        if (r == 0) {
            strip(&whole, &got);
            CHECK(got.len == want.len &&
                  memcmp(got.data ? got.data : "", want.data ? want.data : "", got.len) == 0);
        }
    }
    buf_done(&want);
    buf_done(&got);
    buf_done(&whole.text);
    buf_done(&cut.text);
}

/* Encoded parts come out again. */
static void check_round_trip(const char *data, size_t len, size_t step)
{
    struct told t;
    struct buf body;
    size_t half = len / 2;

    if (memmem(data, len, "--b-", 4))
        return;
    buf_init(&body, 1 << 20);
    CHECK(buf_adds(&body, "--b-\r\nContent-Disposition: form-data; name=\"file\"; ", NULL) == 0);
    CHECK(buf_adds(&body, "filename=\"a b.txt\"\r\n\r\n", NULL) == 0);
    CHECK(buf_add(&body, data, half, NULL) == 0);
    CHECK(buf_adds(&body, "\r\n--b-\r\nx: y\r\n\r\n", NULL) == 0);
    CHECK(buf_add(&body, data + half, len - half, NULL) == 0);
    CHECK(buf_adds(&body, "\r\n--b---", NULL) == 0);
    CHECK(run(body.data, body.len, step, &t) == 0 && t.n_parts == 2);
    CHECK(memmem(t.text.data, t.text.len, "P file|a b.txt\n", 15) == t.text.data);
    CHECK(memcmp(t.text.data + 15, data, half) == 0);
    CHECK(memcmp(t.text.data + t.text.len - 3 - (len - half), data + half, len - half) == 0);
    buf_done(&t.text);
    buf_done(&body);
}

FUZZ(data, size)
{
    struct fuzz_in in = {.data = data, .len = size};
    size_t step = (size_t)fuzz_byte(&in) + 1;

    check_body((const char *)in.data, in.len, step);
    check_round_trip((const char *)in.data, in.len, step);
    return 0;
}
