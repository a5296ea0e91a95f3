/*
 * Ranges of bytes: the verdict (refused, accepted, empty) is that of a reference written from the
 * grammar; the reply has all requested bytes, none twice, and besides them only small gaps. A place
 * in a file is inside it.
 * fuzz-flags: -max_len=600
 */
#include "fuzz.h"

#include <ctype.h>
#include <strings.h>

#include "http/range.h"

#define SIZE_MAX_BYTES 4096

__extension__ typedef __int128 number_t; /* room for -1 beside all that 64 bits hold */

/* A number, or -1; a number beyond 64 bits becomes the largest. */
static number_t number(const char **p)
{
    number_t v = 0;

    if (!isdigit((unsigned char)**p))
        return -1;
    for (; isdigit((unsigned char)**p); (*p)++)
        v = v * 10 + (**p - '0') < UINT64_MAX ? v * 10 + (**p - '0') : UINT64_MAX;
    return v;
}

/* Marks the requested bytes. Returns the number of ranges; -1: the header must be ignored. */
static int reference(const char *p, long long size, bool *asked, int *ret_in)
{
    int n = 0;

    if (strncasecmp(p, "bytes=", 6) != 0)
        return -1;
    for (p += 6;;) {
        number_t first, last;

        while (*p == ' ' || *p == '\t' || *p == ',')
            p++;
        if (!*p)
            return n ? n : -1;
        first = number(&p);
        if (*p++ != '-')
            return -1;
        last = number(&p);
        if ((first < 0 && last < 0) || (first >= 0 && last >= 0 && last < first))
            return -1;
        while (*p == ' ' || *p == '\t')
            p++;
        if (*p && *p != ',')
            return -1;
        n++;
        if (first < 0) {
            first = last < size ? size - last : 0;
            last = last ? size - 1 : -1;
        } else if (last < 0 || last >= size) {
            last = size - 1;
        }
        *ret_in += first <= last;
        for (; first <= last; first++)
            asked[first] = true;
    }
}

static void check_sent(const struct range_set *set, long long size, const bool *asked)
{
    bool sent[SIZE_MAX_BYTES] = {0};

    CHECK(set->n >= 1 && set->n <= RANGE_MAX_PARTS);
    for (size_t i = 0; i < set->n; i++) {
        const struct range *r = &set->v[i];
        int gap = 0;

        CHECK(r->len && r->first < (uint64_t)size && r->len <= (uint64_t)size - r->first);
        CHECK(asked[r->first] && asked[r->first + r->len - 1]);
        for (uint64_t at = r->first; at < r->first + r->len; at++) {
            CHECK(!sent[at]);
            sent[at] = true;
            gap = asked[at] ? 0 : gap + 1;
            CHECK(gap < RANGE_JOIN_BYTES);
        }
    }
    for (long long at = 0; at < size; at++)
        CHECK(sent[at] || !asked[at]);
}

static void check_place(const char *header)
{
    struct range_place p = {0};

    if (range_parse_place(header, &p, NULL) < 0)
        return;
    CHECK(p.range.len && p.range.first <= INT64_MAX - p.range.len);
    CHECK(!p.has_size || p.range.first + p.range.len <= p.size);
}

FUZZ(data, size)
{
    struct fuzz_in in = {data, size};
    long long file = (fuzz_byte(&in) << 4 | fuzz_byte(&in)) % SIZE_MAX_BYTES;
    char *header = fuzz_str(&in, 1000, NULL);
    bool asked[SIZE_MAX_BYTES] = {0};
    struct range_set set = {0};
    int n_in = 0;
    int n = reference(header, file, asked, &n_in);

    switch (range_parse(header, (uint64_t)file, &set)) {
    case RANGE_WHOLE:
        CHECK(n < 0 || n > RANGE_MAX_ASKED || n_in > RANGE_MAX_PARTS);
        break;
    case RANGE_NONE:
        CHECK(n > 0 && n_in == 0);
        break;
    case RANGE_PART:
        CHECK(n > 0 && n_in > 0);
        check_sent(&set, file, asked);
        break;
    }
    check_place(header);
    free(header);
    return 0;
}
