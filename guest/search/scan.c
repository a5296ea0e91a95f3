#include "search/scan.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#define SCAN_X86 1
#endif

#define BLOCK 16

static void choose_rare(const struct literal *l, bool caseless, struct scan_literal *r)
{
    size_t best[2] = {0, l->len > 1};

    for (size_t i = 0; i < l->len; i++) {
        unsigned c = regex_commonness((unsigned char)l->bytes[i]);

        if (c < regex_commonness((unsigned char)l->bytes[best[0]])) {
            best[1] = best[0];
            best[0] = i;
        } else if (i != best[0] && c < regex_commonness((unsigned char)l->bytes[best[1]])) {
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

/* Without SIMD: position by position. */
static bool find_slowly(const struct scan *s, const char *data, size_t len, size_t from,
                        size_t *ret)
{
    for (; from < len; from++) {
        if (is_any(s, data + from, len - from)) {
            *ret = from;
            return true;
        }
    }
    return false;
}

#ifdef SCAN_X86
/* bits: candidate positions from `at` on. Finds the first at which a literal really is. */
static bool check_bits(const struct scan *s, const char *data, size_t len, size_t at, unsigned bits,
                       size_t *ret)
{
    for (; bits; bits &= bits - 1) {
        size_t hit = at + (size_t)__builtin_ctz(bits);

        if (is_any(s, data + hit, len - hit)) {
            *ret = hit;
            return true;
        }
    }
    return false;
}

static inline __m128i rare_at(const char *data, const struct scan_literal *r, int which)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(data + r->at[which]));

    if (r->fold[which])
        v = _mm_or_si128(v, _mm_set1_epi8(0x20));
    return _mm_cmpeq_epi8(v, _mm_set1_epi8((char)r->byte[which]));
}

/* One bit for each of the next 16 positions: a literal may begin there. */
static inline unsigned block_mask(const struct scan *s, const char *data)
{
    __m128i hits = _mm_setzero_si128();

    for (size_t i = 0; i < s->set.n; i++)
        hits = _mm_or_si128(
            hits, _mm_and_si128(rare_at(data, &s->rare[i], 0), rare_at(data, &s->rare[i], 1)));
    return (unsigned)_mm_movemask_epi8(hits);
}

static bool find_sse2(const struct scan *s, const char *data, size_t len, size_t from, size_t *ret)
{
    for (; from + BLOCK + s->longest <= len; from += BLOCK) {
        unsigned bits = block_mask(s, data + from);

        if (bits && check_bits(s, data, len, from, bits, ret))
            return true;
    }
    return find_slowly(s, data, len, from, ret);
}

#define AVX2 __attribute__((target("avx2,popcnt")))
#define WIDE 32

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
}

AVX2 static inline __m256i load(const char *data)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)data);
}

AVX2 static inline __m256i wide_rare(const char *data, const struct scan_literal *r, int which)
{
    __m256i v = _mm256_or_si256(load(data + r->at[which]), _mm256_set1_epi8((char)r->fold[which]));

    return _mm256_cmpeq_epi8(v, _mm256_set1_epi8((char)r->byte[which]));
}

AVX2 static inline unsigned wide_mask(const struct scan *s, const char *data)
{
    __m256i hits = _mm256_setzero_si256();

    for (size_t i = 0; i < s->set.n; i++)
        hits = _mm256_or_si256(hits, _mm256_and_si256(wide_rare(data, &s->rare[i], 0),
                                                      wide_rare(data, &s->rare[i], 1)));
    return (unsigned)_mm256_movemask_epi8(hits);
}

/* The last block overlaps the previous one, so that few bytes are left for the slow path. */
AVX2 static bool find_avx2(const struct scan *s, const char *data, size_t len, size_t from,
                           size_t *ret)
{
    size_t end = len >= WIDE + s->longest ? len - WIDE - s->longest + 1 : 0;

    if (from >= end)
        return find_sse2(s, data, len, from, ret);
    for (; from < end; from += WIDE) {
        unsigned bits = wide_mask(s, data + from);

        if (bits && check_bits(s, data, len, from, bits, ret))
            return true;
    }
    from = end - 1;
    if (check_bits(s, data, len, from, wide_mask(s, data + from), ret))
        return true;
    return find_slowly(s, data, len, from + WIDE, ret);
}

/* A single literal: its bytes stay in registers. */
AVX2 static bool find_one_avx2(const struct scan *s, const char *data, size_t len, size_t from,
                               size_t *ret)
{
    const struct scan_literal r = s->rare[0];
    const __m256i byte0 = _mm256_set1_epi8((char)r.byte[0]);
    const __m256i byte1 = _mm256_set1_epi8((char)r.byte[1]);
    const __m256i fold0 = _mm256_set1_epi8((char)r.fold[0]);
    const __m256i fold1 = _mm256_set1_epi8((char)r.fold[1]);

    for (; from + WIDE + s->longest <= len; from += WIDE) {
        const char *p = data + from;
        __m256i a = _mm256_cmpeq_epi8(_mm256_or_si256(load(p + r.at[0]), fold0), byte0);
        __m256i b = _mm256_cmpeq_epi8(_mm256_or_si256(load(p + r.at[1]), fold1), byte1);
        unsigned bits = (unsigned)_mm256_movemask_epi8(_mm256_and_si256(a, b));

        if (bits && check_bits(s, data, len, from, bits, ret))
            return true;
    }
    return find_avx2(s, data, len, from, ret);
}

AVX2 static size_t count_avx2(const char *data, size_t len, char byte, size_t *n)
{
    const __m256i want = _mm256_set1_epi8(byte);
    size_t i = 0;

    for (; i + WIDE <= len; i += WIDE)
        *n += (size_t)_mm_popcnt_u32(
            (unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(load(data + i), want)));
    return i;
}

AVX2 static size_t ascii_avx2(const char *data, size_t len)
{
    size_t i = 0;

    for (; i + 2 * WIDE <= len; i += 2 * WIDE)
        if (_mm256_movemask_epi8(_mm256_or_si256(load(data + i), load(data + i + WIDE))))
            break;
    return i;
}

AVX2 static size_t skip_avx2(const char *data, size_t len, char byte)
{
    const __m256i want = _mm256_set1_epi8(byte);
    size_t i = 0;

    for (; i + WIDE <= len; i += WIDE) {
        unsigned bits = (unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(load(data + i), want));

        if (bits)
            return i + (size_t)__builtin_ctz(bits);
    }
    return i;
}
#endif

bool scan_find(const struct scan *s, const char *data, size_t len, size_t from, size_t *ret)
{
#ifdef SCAN_X86
    if (has_avx2())
        return s->set.n == 1 ? find_one_avx2(s, data, len, from, ret)
                             : find_avx2(s, data, len, from, ret);
    return find_sse2(s, data, len, from, ret);
#else
    return find_slowly(s, data, len, from, ret);
#endif
}

const char *scan_byte(const char *data, size_t len, char byte)
{
    size_t i = 0;

#ifdef SCAN_X86
    if (len >= BLOCK && has_avx2())
        i = skip_avx2(data, len, byte);
#endif
    return i < len ? memchr(data + i, byte, len - i) : NULL;
}

size_t scan_count(const char *data, size_t len, char byte)
{
    size_t n = 0, i = 0;

#ifdef SCAN_X86
    if (has_avx2())
        i = count_avx2(data, len, byte, &n);
#endif
    for (; i < len; i++)
        n += data[i] == byte;
    return n;
}

size_t scan_ascii_len(const char *data, size_t len)
{
    size_t i = 0;

#ifdef SCAN_X86
    if (len >= BLOCK && has_avx2())
        i = ascii_avx2(data, len);
#endif
    for (uint64_t word; i + sizeof(word) <= len; i += sizeof(word)) {
        memcpy(&word, data + i, sizeof(word));
        if (word & 0x8080808080808080u)
            break;
    }
    while (i < len && (unsigned char)data[i] < 0x80)
        i++;
    return i;
}

bool scan_is_ascii(const char *data, size_t len)
{
    return scan_ascii_len(data, len) == len;
}
