#include "search/regex.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "search/token.h"

#define MAX_DEPTH 24  /* of groups */
#define MIN_SCORE 220 /* one rare byte, or two that are not among the most common */

/* One alternative of a group while it is read. */
struct frame {
    struct literal_set all;  /* one from each alternative so far */
    struct literal_set best; /* of the current alternative */
    struct literal run;      /* the literal characters just read */
    bool has_gap;            /* an alternative has no literal: the group guarantees none */
    bool is_look;
};

unsigned literal_commonness(unsigned char byte)
{
    static const char order[] = " etaoinrs\tlcdu_pmhfg,.;()/*-=bvyw\"0x1>k:{}2&<'#"
                                "SETAR3INC4O5D86LP79M[]!BF|+GUVHj@Yq%W\\?zKXQJZ$~^`";
    const char *at = byte ? strchr(order, byte) : NULL;

    if (byte == '\n')
        return 255;
    if (byte >= 0x80)
        return 90;
    return at ? 250 - 2 * (unsigned)(at - order) : 20;
}

/* The rarity of the most common literal of the set; higher is better. */
static unsigned literal_set_score(const struct literal_set *s)
{
    unsigned worst = ~0u;

    for (size_t i = 0; i < s->n; i++) {
        unsigned sum = 0;

        for (size_t k = 0; k < s->list[i].len; k++)
            sum += 260 - literal_commonness((unsigned char)s->list[i].bytes[k]) + 80;
        if (sum < worst)
            worst = sum;
    }
    if (!s->n)
        return 0;
    return worst > 10 * s->n ? worst - 10 * (unsigned)s->n : 1;
}

static void frame_offer_set(struct frame *f, const struct literal_set *s)
{
    if (s->n && literal_set_score(s) > literal_set_score(&f->best))
        f->best = *s;
}

static void frame_end_run(struct frame *f)
{
    struct literal_set s = {.n = 1};

    if (!f->run.len)
        return;
    s.list[0] = f->run;
    frame_offer_set(f, &s);
    f->run.len = 0;
}

static void frame_end_alternative(struct frame *f)
{
    frame_end_run(f);
    if (!f->best.n || f->all.n + f->best.n > LITERAL_MAX) {
        f->has_gap = true;
        return;
    }
    memcpy(f->all.list + f->all.n, f->best.list, f->best.n * sizeof(f->best.list[0]));
    f->all.n += f->best.n;
    f->best.n = 0;
}

/* Caseless: "s" and "k" match characters outside ASCII too, and so may any character beyond ASCII. */
static bool token_is_usable(const struct token *t, bool caseless)
{
    char c = (char)tolower((unsigned char)t->bytes[0]);

    return !caseless || (t->n_bytes == 1 && c != 's' && c != 'k');
}

static void frame_add_char(struct frame *f, const struct token *t, bool caseless, bool zero,
                           bool repeats)
{
    bool usable = token_is_usable(t, caseless) && !zero;

    if (!usable || f->run.len + t->n_bytes > LITERAL_MAX_BYTES)
        frame_end_run(f);
    if (!usable)
        return;
    for (size_t i = 0; i < t->n_bytes; i++)
        f->run.bytes[f->run.len++] =
            caseless ? (char)tolower((unsigned char)t->bytes[i]) : t->bytes[i];
    if (repeats)
        frame_end_run(f);
}

static void close_group(struct frame *inner, struct frame *outer, bool zero)
{
    frame_end_alternative(inner);
    if (!inner->is_look && !inner->has_gap && !zero)
        frame_offer_set(outer, &inner->all);
}

static bool read_pattern(struct token_reader *r, bool caseless, struct frame *stack)
{
    size_t depth = 0;

    for (;;) {
        struct token t, next;
        struct frame *f = &stack[depth];
        bool zero, repeats;

        token_next(r, &t);
        next = token_peek(r);
        repeats = next.kind == TOKEN_QUANT;
        zero = repeats && next.can_be_zero;
        switch (t.kind) {
        case TOKEN_END:
            frame_end_alternative(f);
            return depth == 0 && !f->has_gap;
        case TOKEN_CHAR:
            frame_add_char(f, &t, caseless, zero, repeats);
            break;
        case TOKEN_OPEN:
            frame_end_run(f);
            __attribute__((fallthrough));
        case TOKEN_LOOK: /* consumes no text: the run continues after it */
            if (++depth == MAX_DEPTH)
                return false;
            memset(&stack[depth], 0, sizeof(stack[depth]));
            stack[depth].is_look = t.kind == TOKEN_LOOK;
            break;
        case TOKEN_CLOSE:
            if (!depth)
                return false;
            depth--;
            close_group(f, &stack[depth], zero);
            break;
        case TOKEN_ALT:
            frame_end_alternative(f);
            break;
        case TOKEN_ASSERT:
        case TOKEN_QUANT: /* handled with the token it follows */
            break;
        case TOKEN_NEWLINE:
        case TOKEN_SET:
        case TOKEN_SET_NL:
        case TOKEN_NOT:
        case TOKEN_BACKREF:
            frame_end_run(f);
            break;
        case TOKEN_CASELESS:
        case TOKEN_OTHER:
        default:
            return false;
        }
    }
}

bool literal_find(const char *pattern, size_t len, bool caseless, struct literal_set *ret)
{
    static const char flag[] = "(?i)"; /* at the start it applies to the whole pattern */
    const size_t flag_len = sizeof(flag) - 1;
    bool has_flag = len >= flag_len && memcmp(pattern, flag, flag_len) == 0;
    size_t skip = has_flag ? flag_len : 0;
    _cleanup_free_ struct frame *stack = calloc(MAX_DEPTH, sizeof(*stack));
    struct token_reader r = {.pattern = pattern + skip, .len = len - skip};

    caseless = caseless || has_flag;
    if (!stack || !read_pattern(&r, caseless, stack))
        return false;
    if (literal_set_score(&stack[0].all) < MIN_SCORE)
        return false;
    *ret = stack[0].all;
    ret->caseless = caseless;
    return true;
}
