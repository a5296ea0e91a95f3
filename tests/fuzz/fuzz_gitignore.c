/*
 * Ignore files: the verdict on a path is that of the last line that has a verdict when it is alone
 * in a file. The same holds for a list of globs, where a '!' means the opposite.
 * fuzz-flags: -max_len=1024
 */
#include "fuzz.h"

#include "search/ignore.h"

static enum ignore_verdict alone(const char *line, size_t len, const char *path, size_t path_len,
                                 bool is_dir)
{
    struct rules *r = NULL;
    enum ignore_verdict v;

    CHECK(rules_parse(line, len, &r, NULL) == 0);
    v = rules_match(r, path, path_len, is_dir);
    rules_free(r);
    return v;
}

static enum ignore_verdict reference(const char *text, size_t len, const char *path,
                                     size_t path_len, bool is_dir)
{
    enum ignore_verdict v = IGNORE_NONE;
    const char *end = text + len;
    bool first = true;

    for (; text < end; first = false) {
        const char *nl = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((nl ? nl : end) - text);
        bool has_mark = n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0;
        enum ignore_verdict one = IGNORE_NONE;

        if (first || !has_mark) /* a mark counts at the start of a file only */
            one = alone(text, n, path, path_len, is_dir);
        else
            return IGNORE_HIDE + 100; /* not to be compared */
        if (one != IGNORE_NONE)
            v = one;
        text += n + 1;
    }
    return v;
}

FUZZ(data, size)
{
    struct fuzz_in in = {data, size};
    bool is_dir = fuzz_byte(&in) & 1;
    size_t path_len, len;
    char *path = fuzz_str(&in, 60, &path_len), *text = fuzz_str(&in, 1000, &len);
    struct rules *r = NULL;
    enum ignore_verdict got, want;

    CHECK(rules_parse(text, len, &r, NULL) == 0);
    if (path_len && path[0] != '/') {
        got = rules_match(r, path, path_len, is_dir);
        want = reference(text, len, path, path_len, is_dir);
        CHECK(want > IGNORE_KEEP || got == want);
    }
    rules_free(r);
    free(path);
    free(text);
    return 0;
}
