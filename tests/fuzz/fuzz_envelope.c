/*
 * Framing of JSON messages. A Connect request's envelope is accepted if and only if its five bytes
 * are right; a message sent in any encoding is read back unchanged, alone and among others, and
 * nothing in it can end a line or an event.
 * fuzz-flags: -max_len=4096
 */
#include "fuzz.h"

#include "common/jsonx.h"
#include "api/encode.h"

static void check_open(const char *body, size_t len)
{
    const char *got = NULL;
    size_t got_len = 0;
    struct err e = {0};
    uint64_t said = 0;
    bool is_good = len >= 5 && body[0] == 0;
    int r;

    for (size_t i = 1; i < 5 && i < len; i++)
        said = said * 256 + (uint8_t)body[i];
    is_good = is_good && said == len - 5;
    r = encode_open_envelope(body, len, &got, &got_len, &e);
    CHECK((r == 0) == is_good);
    CHECK(r < 0 || (got == body + 5 && got_len == said));
    CHECK(r == 0 || e.code == ERR_INVALID || e.code == ERR_UNIMPLEMENTED);
}

static void check_same(const char *text, size_t len, const json_t *want)
{
    json_t *got = NULL;

    CHECK(jx_parse(text, len, &got, NULL) == 0);
    CHECK(json_equal(got, want));
    json_decref(got);
}

/* Reads one message at p; returns where the next begins. */
static const char *take_message(enum encoding enc, const char *p, const char *end,
                                const json_t *want)
{
    static const char event[] = "event: message\ndata: ";
    const char *stop;
    size_t len = 0;

    if (enc == ENCODING_CONNECT) {
        CHECK(end - p >= 5 && *p == 0);
        for (int i = 1; i < 5; i++)
            len = len << 8 | (uint8_t)p[i];
        p += 5;
        CHECK(len <= (size_t)(end - p));
        check_same(p, len, want);
        return p + len;
    }
    if (enc == ENCODING_SSE) {
        CHECK((size_t)(end - p) > sizeof(event) && memcmp(p, event, sizeof(event) - 1) == 0);
        p += sizeof(event) - 1;
    }
    stop = memchr(p, '\n', (size_t)(end - p));
    CHECK(stop);
    check_same(p, (size_t)(stop - p), want);
    if (enc == ENCODING_SSE) {
        CHECK(end - stop >= 2 && stop[1] == '\n');
        stop++;
    }
    return stop + 1;
}

static void check_encode(enum encoding enc, const json_t *msg)
{
    struct buf out;
    const char *p;

    buf_init(&out, 1 << 20);
    CHECK(encode_message(enc, msg, &out, NULL) == 0);
    CHECK(encode_message(enc, msg, &out, NULL) == 0);
    p = take_message(enc, out.data, out.data + out.len, msg);
    p = take_message(enc, p, out.data + out.len, msg);
    CHECK(p == out.data + out.len);
    buf_done(&out);
}

FUZZ(data, size)
{
    json_t *msg = NULL;

    check_open((const char *)data, size);
    if (jx_parse((const char *)data, size, &msg, NULL) < 0)
        return 0;
    if (json_is_object(msg))
        for (int enc = ENCODING_NDJSON; enc <= ENCODING_CONNECT; enc++)
            check_encode((enum encoding)enc, msg);
    json_decref(msg);
    return 0;
}
