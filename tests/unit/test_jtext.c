/* api/jtext: jansson reads back what it writes, byte for byte. */
#include "test.h"

#include <jansson.h>

#include "common/jsonx.h"
#include "api/jtext.h"

static json_t *written(const char *data, size_t len)
{
    struct buf out = {.max = 1 << 20};
    struct jtext t;
    json_t *v;

    jtext_begin(&t, &out);
    jtext_open(&t, '{');
    jtext_bytes(&t, data, len);
    jtext_close(&t, '}');
    T_INT(jtext_end(&t, NULL), 0);
    T_OK(out.len > 0 && out.data[out.len - 1] == '\n');
    T_OK(!memchr(out.data, '\n', out.len - 1)); /* a message is one line */
    v = json_loadb(out.data, out.len, JSON_ALLOW_NUL, NULL);
    buf_done(&out);
    return v;
}

TEST(jtext_every_byte_comes_back_as_it_was)
{
    for (unsigned c = 0; c < 256; c++) {
        const char data[] = {'a', (char)c, 'b', (char)c};
        _cleanup_json_ json_t *v = written(data, sizeof(data));
        struct jx_bytes back = {NULL, 0};

        T_OK(v);
        T_OK(json_object_get(v, c < 0x80 ? "text" : "b64"));
        if (c) { /* the agent writes no text with a NUL */
            T_INT(jx_bytes(v, &back, NULL), 0);
            T_INT(back.len, sizeof(data));
            T_OK(memcmp(back.data, data, sizeof(data)) == 0);
        }
        jx_bytes_done(&back);
    }
}

/* Text is written several bytes at a time: tries each byte at each place among others. */
TEST(jtext_what_must_be_escaped_is_found_in_every_place)
{
    for (unsigned c = 1; c < 0x80; c++) {
        for (size_t at = 0; at < 20; at++) {
            char data[20];
            _cleanup_json_ json_t *v = NULL;
            const char *back;

            memset(data, at % 2 ? '!' : '~', sizeof(data)); /* beside '"' and at the end of ASCII */
            data[at] = (char)c;
            v = written(data, sizeof(data));
            back = json_string_value(json_object_get(v, "text"));
            T_OK(back && strlen(back) == sizeof(data) && memcmp(back, data, sizeof(data)) == 0);
        }
    }
}

TEST(jtext_puts_commas_and_numbers_where_they_belong)
{
    struct buf out = {.max = 4096};
    struct jtext t;

    jtext_begin(&t, &out);
    jtext_open(&t, '{');
    jtext_key(&t, "a");
    jtext_open(&t, '[');
    jtext_int(&t, 0);
    jtext_int(&t, UINT64_MAX);
    jtext_open(&t, '[');
    jtext_close(&t, ']');
    jtext_close(&t, ']');
    jtext_key(&t, "b");
    jtext_bool(&t, true);
    jtext_key(&t, "p");
    jtext_path(&t, "x\xff");
    jtext_close(&t, '}');
    T_INT(jtext_end(&t, NULL), 0);
    T_STR(out.data, "{\"a\":[0,18446744073709551615,[]],\"b\":true,\"p\":{\"b64\":\"eP8=\"}}\n");
    buf_done(&out);
}

TEST(jtext_takes_a_message_that_does_not_fit_away_whole)
{
    struct buf out = {.max = 64};
    struct err e = {0};
    struct jtext t;

    T_INT(buf_adds(&out, "before", NULL), 0);
    jtext_begin(&t, &out);
    jtext_open(&t, '[');
    for (int i = 0; i < 100; i++)
        jtext_int(&t, 12345);
    jtext_close(&t, ']');
    T_INT(jtext_end(&t, &e), -ERR_EXHAUSTED);
    T_INT(out.len, strlen("before"));
    buf_done(&out);
}
