#include "search/scan.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "common/banned.h"

#define BLOCK 16

static void choose_rare(const struct literal *l, bool caseless, struct scan_literal *r)
{
    size_t best[2] = {0, l->len > 1};

    for (size_t i = 0; i < l->len; i++) {
        unsigned c = literal_commonness((unsigned char)l->bytes[i]);

        if (c < literal_commonness((unsigned char)l->bytes[best[0]])) {
            best[1] = best[0];
            best[0] = i;
        } else if (i != best[0] && c < literal_commonness((unsigned char)l->bytes[best[1]])) {
            best[1] = i;
        }
    }
    if (best[0] == best[1] && l->len > 1)
        best[1] = best[0] ? 0 : 1;
    for (size_t i = 0; i < 2; i++) {
        unsigned char b = (unsigned char)l->bytes[best[i]];

        r->at[i] = (unsigned char)best[i];
        r->byte[i] = b;
        r->fold[i] = caseless && isalpha(b) ? 0x20 : 0;
    }
}

void scan_init(struct scan *s, const struct literal_set *set)
{
    s->set = *set;
    s->longest = 0;
    for (size_t i = 0; i < set->n; i++) {
        choose_rare(&set->list[i], set->caseless, &s->rare[i]);
        if (set->list[i].len > s->longest)
            s->longest = set->list[i].len;
    }
}

static bool is_literal(const struct literal *l, bool caseless, const char *data)
{
    if (!caseless)
        return memcmp(l->bytes, data, l->len) == 0;
    for (size_t i = 0; i < l->len; i++)
        if (l->bytes[i] != (char)tolower((unsigned char)data[i]))
            return false;
    return true;
}

static bool is_any(const struct scan *s, const char *data, size_t len)
{
    for (size_t i = 0; i < s->set.n; i++)
        if (s->set.list[i].len <= len && is_literal(&s->set.list[i], s->set.caseless, data))
            return true;
    return false;
}

#ifdef __SSE2__
static inline __m128i rare_at(const char *data, const struct scan_literal *r, int which)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(data + r->at[which]));

    if (r->fold[which])
        v = _mm_or_si128(v, _mm_set1_epi8(0x20));
    return _mm_cmpeq_epi8(v, _mm_set1_epi8((char)r->byte[which]));
}

/* A bit for each of the next 16 positions at which a literal may begin. */
static inline unsigned block_mask(const struct scan *s, const char *data)
{
    __m128i hits = _mm_setzero_si128();

    for (size_t i = 0; i < s->set.n; i++)
        hits = _mm_or_si128(
            hits, _mm_and_si128(rare_at(data, &s->rare[i], 0), rare_at(data, &s->rare[i], 1)));
    return (unsigned)_mm_movemask_epi8(hits);
}

/* As far as whole blocks go; *from is where it stopped. */
static bool find_by_block(const struct scan *s, const char *data, size_t len, size_t *from)
{
    size_t at = *from;

    for (; at + BLOCK + s->longest <= len; at += BLOCK) {
        for (unsigned mask = block_mask(s, data + at); mask; mask &= mask - 1) {
            size_t hit = at + (size_t)__builtin_ctz(mask);

            if (is_any(s, data + hit, len - hit)) {
                *from = hit;
                return true;
            }
        }
    }
    *from = at;
    return false;
}
#else
static bool find_by_block(const struct scan *s, const char *data, size_t len, size_t *from)
{
    (void)s;
    (void)data;
    (void)len;
    (void)from;
    return false;
}
#endif

bool scan_find(const struct scan *s, const char *data, size_t len, size_t from, size_t *ret)
{
    bool found = find_by_block(s, data, len, &from);

    for (; !found && from < len; from++) {
        found = is_any(s, data + from, len - from);
        if (found)
            break;
    }
    if (found)
        *ret = from;
    return found;
}

size_t scan_count(const char *data, size_t len, char byte)
{
    size_t n = 0, i = 0;

#ifdef __SSE2__
    const __m128i want = _mm_set1_epi8(byte);

    for (; i + BLOCK <= len; i += BLOCK) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(data + i));

        n += (size_t)__builtin_popcount((unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, want)));
    }
#endif
    for (; i < len; i++)
        n += data[i] == byte;
    return n;
}

bool scan_is_ascii(const char *data, size_t len)
{
    size_t i = 0;

#ifdef __SSE2__
    for (; i + 4 * BLOCK <= len; i += 4 * BLOCK) {
        const __m128i *p = (const __m128i *)(const void *)(data + i);
        __m128i a = _mm_or_si128(_mm_loadu_si128(p), _mm_loadu_si128(p + 1));
        __m128i b = _mm_or_si128(_mm_loadu_si128(p + 2), _mm_loadu_si128(p + 3));

        if (_mm_movemask_epi8(_mm_or_si128(a, b)))
            return false;
    }
#endif
    for (; i < len; i++)
        if ((unsigned char)data[i] >= 0x80)
            return false;
    return true;
}
