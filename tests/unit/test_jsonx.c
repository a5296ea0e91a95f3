#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"

#include "test.h"

struct inner {
    uint32_t bytes;
};

struct params {
    const char *name;
    bool on;
    uint32_t n;
    int64_t i;
    char **argv;
    struct inner inner;
};

static const struct jx_field inner_fields[] = {JX(struct inner, bytes, jx_u32, 0), {0}};

static int decode_inner(json_t *v, void *out, struct err *e)
{
    return jx_decode(v, inner_fields, out, e);
}

static const struct jx_field fields[] = {
    JX(struct params, name, jx_str, JX_REQUIRED),
    JX(struct params, on, jx_bool, JX_NULLABLE),
    JX(struct params, n, jx_u32, 0),
    JX(struct params, i, jx_i64, 0),
    JX(struct params, argv, jx_argv, 0),
    JX(struct params, inner, decode_inner, 0),
    {0},
};

static int decode(const char *text, struct params *p, struct err *e)
{
    static json_t *kept; /* strings are borrowed from it */
    int r;

    json_decref(kept);
    kept = NULL;
    r = jx_parse(text, strlen(text), &kept, e);
    return r < 0 ? r : jx_decode(kept, fields, p, e);
}

/* jansson's answer is the reference. */
static void expect_as_library(json_t *v)
{
    _cleanup_free_ char *got = NULL, *want = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    struct err e = {0};
    size_t len;

    T_INT(jx_dump(v, &got, &len, &e), 0);
    T_STR(got, want);
    T_INT(len, strlen(want));
    json_decref(v);
}

TEST(written_json_is_what_the_library_writes)
{
    char text[64];

    /* Each byte at each of the eight places that are checked together, and at the end. */
    for (unsigned c = 0; c < 128; c++)
        for (size_t at = 0; at < 19; at++) {
            memset(text, 'x', sizeof(text));
            text[at] = (char)c;
            expect_as_library(json_stringn(text, 19));
            expect_as_library(json_stringn(text, at + 1));
        }
    expect_as_library(json_string("\u00e9\xe2\x82\xac\xf0\x9f\x98\x80 \x7f"));
    expect_as_library(json_pack("{s:[], s:{}, s:[n,b,b,i,f,I], s:{s:s}}", "a", "b", "c", 1, 0, -5,
                                1.25, (json_int_t)INT64_MIN, "\"k\n", "x", ""));
    expect_as_library(json_string(""));
}

TEST(written_json_has_a_bound_on_its_depth_and_size)
{
    json_t *v = json_array();
    struct buf out = {.max = 5};
    struct err e = {0};

    for (int i = 0; i < JX_MAX_DEPTH; i++) {
        json_t *outer = json_array();

        (void)json_array_append_new(outer, v);
        v = outer;
    }
    T_INT(jx_write(v, &out, &e), -ERR_EXHAUSTED);
    buf_done(&out);
    out.max = 1000;
    T_INT(jx_write(v, &out, &e), -ERR_INTERNAL);
    buf_done(&out);
    T_INT(jx_write(NULL, &out, &e), -ERR_EXHAUSTED);
    json_decref(v);
}

TEST(jsonx_decodes_into_the_struct)
{
    struct params p = {.on = true};

    T_INT(decode("{\"name\":\"x\",\"on\":null,\"n\":4294967295,\"i\":-5,"
                 "\"argv\":[\"a\",{\"b64\":\"/w==\"}],\"inner\":{\"bytes\":9}}",
                 &p, NULL),
          0);
    T_STR(p.name, "x");
    T_OK(p.on);
    T_OK(p.n == UINT32_MAX);
    T_INT(p.i, -5);
    T_STR(p.argv[1], "\xff");
    T_INT(p.inner.bytes, 9);
    strv_free(p.argv);
}

TEST(jsonx_names_and_ranges_are_columns_of_the_table)
{
    static const char *const names[] = {"red", "green", NULL};
    struct colour {
        unsigned name;
        uint32_t side;
        uint64_t bytes;
    } c = {0};
    static const struct jx_field colour_fields[] = {
        JX_ENUM("name", struct colour, name, names, JX_NULLABLE),
        JX_RANGE("side", struct colour, side, jx_u32, 0, 1, 10),
        JX_RANGE("bytes", struct colour, bytes, jx_u64, JX_NULLABLE, 0, 5000000000),
        {0},
    };
    static const struct {
        const char *text;
        const char *message; /* NULL: it is decoded */
    } cases[] = {
        {"{\"name\":\"green\",\"side\":10,\"bytes\":5000000000}", NULL},
        {"{\"name\":null,\"side\":1,\"bytes\":null}", NULL},
        {"{\"name\":\"blue\"}", "field 'name' must be one of \"red\", \"green\""},
        {"{\"name\":1}", "field 'name' must be one of \"red\", \"green\""},
        {"{\"side\":0}", "field 'side' must be from 1 to 10"},
        {"{\"side\":11}", "field 'side' must be from 1 to 10"},
        {"{\"bytes\":5000000001}", "field 'bytes' must be at most 5000000000"},
        {"{\"bytes\":-1}", "field 'bytes' must be a whole number that is not negative"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        _cleanup_json_ json_t *v = NULL;
        struct err e = {0};

        T_INT(jx_parse(cases[i].text, strlen(cases[i].text), &v, &e), 0);
        T_INT(jx_decode(v, colour_fields, &c, &e), cases[i].message ? -ERR_INVALID : 0);
        T_STR(e.message, cases[i].message ? cases[i].message : "");
    }
    T_INT(c.name, 1); /* null kept it */
}

TEST(jsonx_names_the_field_at_fault)
{
    static const char *const cases[][2] = {
        {"{\"nam\":\"x\"}", "nam"},
        {"{}", "name"},
        {"{\"name\":1}", "name"},
        {"{\"name\":\"a\\u0000b\"}", "name"},
        {"{\"name\":\"x\",\"on\":1}", "on"},
        {"{\"name\":\"x\",\"n\":-1}", "n"},
        {"{\"name\":\"x\",\"n\":4294967296}", "n"},
        {"{\"name\":\"x\",\"n\":1.5}", "n"},
        {"{\"name\":\"x\",\"n\":null}", "n"},
        {"{\"name\":\"x\",\"argv\":[\"a\",7]}", "argv[1]"},
        {"{\"name\":\"x\",\"inner\":{\"byts\":1}}", "inner.byts"},
        {"{\"name\":\"x\",\"inner\":{\"bytes\":\"1\"}}", "inner.bytes"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct params p = {0};
        struct err e = {0};

        T_INT(decode(cases[i][0], &p, &e), -ERR_INVALID);
        T_STR(e.field, cases[i][1]);
    }
}

TEST(jsonx_refuses_duplicates_garbage_and_depth)
{
    static char deep[10001];
    json_t *v = NULL;

    T_INT(jx_parse("{\"a\":1,\"a\":2}", 13, &v, NULL), -ERR_INVALID);
    T_INT(jx_parse("{} x", 4, &v, NULL), -ERR_INVALID);
    T_INT(jx_parse("", 0, &v, NULL), -ERR_INVALID);
    memset(deep, '[', sizeof(deep) - 1);
    T_INT(jx_parse(deep, sizeof(deep) - 1, &v, NULL), -ERR_INVALID);
    T_OK(!v);
}

TEST(jsonx_says_which_field_is_there_twice_and_that_a_number_is_too_large)
{
    static const char twice[] = "{\"b\":{\"a\":1,\"c\":0,\"a\":2}}";
    static const char large[] = "{\"a\":9223372036854775808}";
    json_t *v = NULL;
    struct err e = {0};

    T_INT(jx_parse(twice, sizeof(twice) - 1, &v, &e), -ERR_INVALID);
    T_STR(e.field, "a");
    T_STR(e.message, "field 'a' is there twice");
    e = (struct err){0};
    T_INT(jx_parse(large, sizeof(large) - 1, &v, &e), -ERR_INVALID);
    T_STR(e.message, "the number that ends at byte 24 is too large");
    T_OK(!v);
}

TEST(jsonx_bytes_are_text_or_base64)
{
    struct jx_bytes b = {0};
    json_t *v = jx_new_bytes("a\xff", 2);

    T_STR(json_string_value(json_object_get(v, "b64")), "Yf8=");
    T_INT(jx_bytes(v, &b, NULL), 0);
    T_INT(b.len, 2);
    T_MEM(b.data, "a\xff", 3);
    json_decref(v);
    v = jx_new_bytes("caf\xc3\xa9", 5);
    T_STR(json_string_value(json_object_get(v, "text")), "caf\xc3\xa9");
    T_INT(jx_bytes(v, &b, NULL), 0);
    T_INT(b.len, 5);
    jx_bytes_done(&b);
    json_decref(v);
    v = json_pack("{s:s, s:s}", "text", "a", "b64", "YQ==");
    T_INT(jx_bytes(v, &b, NULL), -ERR_INVALID);
    json_decref(v);
}

TEST(jsonx_errors_go_there_and_back)
{
    struct err e = {0}, back = {0};
    json_t *v;

    (void)err_field(&e, ERR_DENIED, "path", "no '%s'", "x");
    v = jx_new_error(&e);
    T_OK(jx_read_error(v, &back));
    T_INT(back.code, ERR_DENIED);
    T_STR(back.field, "path");
    T_STR(back.message, "no 'x'");
    json_decref(v);
    (void)err_set(&e, ERR_DENIED, "bytes \xff");
    v = jx_new_error(&e);
    T_OK(v && jx_read_error(v, &back));
    T_INT(back.code, ERR_DENIED);
    json_decref(v);
}

TEST(jsonx_errors_carry_one_fact_for_programs)
{
    struct err e = {0}, back = {0};
    json_t *v;

    T_INT(err_detail(&e, err_set(&e, ERR_ABORTED, "changed"), "etag", "1-2"), -ERR_ABORTED);
    v = jx_new_error(&e);
    T_STR(json_string_value(json_object_get(json_object_get(v, "detail"), "etag")), "1-2");
    T_OK(jx_read_error(v, &back));
    T_STR(back.detail_name, "etag");
    T_STR(back.detail, "1-2");
    json_decref(v);
    (void)err_detail_u64(&e, 0, "size", 1ull << 40);
    v = jx_new_error(&e);
    T_INT(json_integer_value(json_object_get(json_object_get(v, "detail"), "size")), 1ll << 40);
    T_OK(jx_read_error(v, &back) && back.detail_is_number);
    json_decref(v);
    (void)err_set(&e, ERR_ABORTED, "a new error has none of the old one's");
    v = jx_new_error(&e);
    T_OK(!json_object_get(v, "detail"));
    json_decref(v);
}

TEST(jsonx_memory_is_bounded_before_anything_is_parsed)
{
    json_t *v = NULL;
    struct err e = {0};

    T_INT(jx_parse_within("[{},{}]", 7, 4096, &v, &e), 0);
    json_decref(v);
    v = NULL;
    T_INT(jx_parse_within("[{},{}]", 7, 256, &v, &e), -ERR_EXHAUSTED);
    T_OK(!v);
    /* Brackets and commas in a string count as plain bytes. */
    T_INT(jx_parse_within("[\"{{{{{{{{[[[[,,,,::::\\\"{{\"]", 28, 512, &v, &e), 0);
    json_decref(v);
}

TEST(jsonx_object_that_is_written_member_by_member)
{
    _cleanup_buf_ struct buf out = {.max = 1024};
    _cleanup_json_ json_t *list = json_pack("[i,s]", 1, "two");
    struct err e = {0};
    struct jx_writer w = {.out = &out, .e = &e};

    jx_put_begin(&w, NULL);
    jx_put_str(&w, "text", "a \"b\"\n\x7f\xc3\xa9");
    jx_put_str(&w, "none", NULL);
    jx_put_begin(&w, "inner \\");
    jx_put_i64(&w, "n", INT64_MIN);
    jx_put_begin(&w, "empty");
    jx_put_end(&w);
    jx_put_end(&w);
    jx_put_value(&w, "list", list);
    jx_put_text(&w, "part", "whole{", 3);
    jx_put_str(&w, "brace", "{"); /* the next member has its comma */
    jx_put_raw(&w, "raw", "{\"x\":[]}");
    jx_put_end(&w);
    T_INT(w.r, 0);
    T_INT(buf_add(&out, "", 1, &e), 0);
    T_STR(
        out.data,
        "{\"text\":\"a \\\"b\\\"\\n\x7f\xc3\xa9\",\"none\":null,\"inner "
        "\\\\\":{\"n\":-9223372036854775808,"
        "\"empty\":{}},\"list\":[1,\"two\"],\"part\":\"who\",\"brace\":\"{\",\"raw\":{\"x\":[]}}");
}

TEST(jsonx_object_with_a_text_that_is_no_utf8_or_is_too_long_fails_and_stays_so)
{
    _cleanup_buf_ struct buf out = {.max = 16};
    struct err e = {0};
    struct jx_writer w = {.out = &out, .e = &e};

    jx_put_begin(&w, NULL);
    jx_put_str(&w, "bad", "\xff");
    jx_put_str(&w, "a", "b");
    T_INT(w.r, -ERR_INTERNAL);
    T_OK(strstr(e.message, "bad"));
    w.r = 0;
    jx_put_str(&w, "long", "0123456789abcdef");
    jx_put_end(&w);
    T_INT(w.r, -ERR_EXHAUSTED);
}
