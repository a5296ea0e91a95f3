/*
 * Values of HTTP fields. Structured ones (digests, uploads): an item is valid if and only if a
 * dictionary accepts it as a member, with the same value; a digest is written as it was read. Lists
 * of tags: exactly the tags in the list are found; a strong match is a weak match, too.
 * fuzz-flags: -max_len=400
 */
#include "fuzz.h"

#include "fs/etag.h"
#include "http/sfield.h"

struct seen {
    int n;
    struct sf_value last;
};

static int on_member(const char *key, size_t len, const struct sf_value *v, void *arg,
                     struct err *e)
{
    struct seen *s = arg;

    (void)e;
    CHECK(len > 0 && memchr("abcdefghijklmnopqrstuvwxyz*", key[0], 27));
    s->n++;
    s->last = *v;
    return 0;
}

static bool same_value(const struct sf_value *a, const struct sf_value *b)
{
    return a->type == b->type && a->integer == b->integer && a->boolean == b->boolean &&
           a->len == b->len && (!a->len || memcmp(a->p, b->p, a->len) == 0);
}

static void check_item(const char *text)
{
    size_t n = strlen(text);
    char *member = malloc(n + 16);
    struct sf_value v;
    struct seen seen = {0};
    bool is_item, is_member;

    CHECK(member);
    (void)snprintf(member, n + 16, "a=1,k=%s", text);
    is_item = *text != ' ' && sf_item(text, &v, NULL) == 0;
    is_member = sf_dictionary(member, on_member, &seen, NULL) == 0;
    if (is_item) {
        CHECK(is_member && seen.n == 2 && same_value(&v, &seen.last));
        CHECK(v.type != SF_INTEGER ||
              (v.integer >= -SF_INTEGER_MAX && v.integer <= SF_INTEGER_MAX));
        CHECK(!v.len || (v.p >= text && v.p + v.len <= text + n));
    }
    /* The converse, except for lists, trailing tabs, and a comma with more behind it. */
    if (is_member && seen.n == 2 && seen.last.type != SF_LIST && !strpbrk(text, ",\t"))
        CHECK(is_item);
    free(member);
}

static void check_digest(const char *text)
{
    uint8_t digest[DIGEST_BYTES], again[DIGEST_BYTES];
    char out[DIGEST_TEXT_BYTES];
    bool found = false;

    (void)digest_is_wanted(text);
    if (digest_read_old(text, digest, &found, NULL) == 0 && found)
        digest_write(digest, out);
    found = false;
    if (digest_read("Repr-Digest", text, digest, &found, NULL) < 0 || !found)
        return;
    digest_write(digest, out);
    found = false;
    CHECK(digest_read("Repr-Digest", out, again, &found, NULL) == 0 && found);
    CHECK(memcmp(digest, again, sizeof(digest)) == 0);
}

static void check_any_list(const char *text, const char *tag)
{
    CHECK(!fs_etag_in_list(text, tag, false) || fs_etag_in_list(text, tag, true));
    CHECK(!fs_etag_is_any(text) || !fs_etag_in_list(text, "a", true));
}

/* A generated list, whose members are known. */
static void check_list(struct fuzz_in *in)
{
    static const char *const gaps[] = {"", " ", "\t", ",", " , "};
    char list[2000] = "";
    bool strong = false, weak = false;
    size_t n = 0;

    while (in->len && n < sizeof(list) - 100) {
        char tag[4] = {(char)('a' + fuzz_byte(in) % 3), 0, 0, 0};
        uint8_t how = fuzz_byte(in);
        bool is_weak = how & 1;

        if (how & 2)
            tag[1] = how & 4 ? ',' : (char)('a' + how % 5);
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s%s\"%s\"%s", n ? "," : "",
                              gaps[how % 5], is_weak ? "W/" : "", tag, gaps[how / 5 % 3]);
        weak |= strcmp(tag, "a") == 0;
        strong |= strcmp(tag, "a") == 0 && !is_weak;
    }
    CHECK(fs_etag_in_list(list, "a", false) == strong);
    CHECK(fs_etag_in_list(list, "a", true) == weak);
}

FUZZ(data, size)
{
    struct fuzz_in in = {data, size};
    struct fuzz_in rest;
    char *text = fuzz_str(&in, 300, NULL);
    struct seen seen = {0};

    rest = in;
    check_item(text);
    (void)sf_dictionary(text, on_member, &seen, NULL);
    check_digest(text);
    check_any_list(text, "a");
    check_list(&rest);
    free(text);
    return 0;
}
