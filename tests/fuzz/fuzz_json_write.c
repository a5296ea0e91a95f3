/*
 * The JSON writer produces the same bytes as jansson; without room it returns an error, never a
 * truncated message that looks whole.
 * fuzz-flags: -max_len=1024
 */
#include "fuzz.h"

#include "common/jsonx.h"

FUZZ(data, size)
{
    struct buf out = {.max = 1 << 20};
    char *want;
    json_t *v;

    if (jx_parse((const char *)data, size, &v, NULL) < 0)
        return 0;
    want = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    CHECK(want);
    if (jx_write(v, &out, NULL) == 0) {
        CHECK(out.len == strlen(want) && memcmp(out.data, want, out.len) == 0);
        out.max = out.len - 1;
        buf_clear(&out);
        CHECK(jx_write(v, &out, NULL) == -ERR_EXHAUSTED);
    } else {
        CHECK(strlen(want) > JX_MAX_DEPTH); /* too deep */
    }
    buf_done(&out);
    free(want);
    json_decref(v);
    return 0;
}
