/*
 * A glob is compiled to a small program for a machine that follows all alternatives at once (Thompson's
 * construction), so that no glob can cause backtracking. Most globs of real ignore files are simpler: "**"
 * followed by a name, or by '*' and an ending. Those are compared directly.
 */
#include "search/pattern.h"

#include <assert.h>
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"

/* A star makes three instructions, every other byte fewer (a "**" + '/' 8 for its three bytes). */
#define OPS_PER_BYTE 3
#define MAX_OPS (PATTERN_MAX_BYTES * OPS_PER_BYTE + 8)
#define MAX_ALTERNATIVES 256

enum op_code {
    OP_BYTE,  /* this byte */
    OP_NAME,  /* any byte but '/' */
    OP_ANY,   /* any byte */
    OP_CLASS, /* a byte of class `to` */
    OP_SPLIT, /* continue at the next op and at `to` */
    OP_JUMP,  /* continue at `to` */
    OP_MATCH,
};

struct op {
    uint8_t code;
    uint8_t byte;
    uint16_t to;
};

struct class
{
    uint8_t bits[32];
};

enum strategy {
    RUN,           /* the program */
    STEPS,         /* the program without alternatives: step by step, on the whole path */
    STEPS_IN_NAME, /* the same behind "**" + '/', on the last component */
    WHOLE,         /* path == literal */
    LAST,          /* the last component == literal */
    LAST_END,      /* the last component ends with literal */
};

struct pattern {
    enum strategy strategy;
    char *literal; /* of WHOLE, LAST and LAST_END; else an ending that every match has */
    size_t literal_len;
    bool caseless;
    struct op *ops;
    size_t n_ops;
    struct class *classes;
    size_t n_classes;
};

/* The last token parsed; it decides the meaning of "**" (see parse_stars()). */
enum token {
    TOKEN_NONE,
    TOKEN_SLASH,
    TOKEN_OTHER,
    TOKEN_PREFIX, /* "**" + '/' at the start */
    TOKEN_MIDDLE, /* '/' + "**" + '/' */
};

struct parser {
    const char *glob;
    size_t len, at;
    struct pattern *p;
    struct err *e;

    size_t before_last; /* where the instructions of the last token begin */
    enum token last;

    bool in_braces;
    size_t alt_start;                /* first instruction of the current alternative */
    uint16_t ends[MAX_ALTERNATIVES]; /* jumps past the closing brace */
    size_t n_ends;
    size_t split; /* the split before the current alternative */
    bool any_alt; /* an alternative that is not empty was seen */
};

static size_t emit_op(struct pattern *p, enum op_code code, uint8_t byte, size_t to)
{
    assert(p->n_ops < MAX_OPS); /* PATTERN_MAX_BYTES guarantees it */
    p->ops[p->n_ops] = (struct op){(uint8_t)code, byte, (uint16_t)to};
    return p->n_ops++;
}

static void begin_token(struct parser *s, enum token t)
{
    s->before_last = s->p->n_ops;
    s->last = t;
}

static void emit_loop(struct pattern *p, enum op_code what)
{
    size_t split = emit_op(p, OP_SPLIT, 0, 0);

    (void)emit_op(p, what, 0, 0);
    (void)emit_op(p, OP_JUMP, 0, split);
    p->ops[split].to = (uint16_t)p->n_ops;
}

/* (?:/?|.*'/') */
static void emit_prefix(struct pattern *p)
{
    size_t slash = emit_op(p, OP_SPLIT, 0, 0);
    size_t any, end;

    any = emit_op(p, OP_SPLIT, 0, 0);
    (void)emit_op(p, OP_BYTE, '/', 0);
    end = emit_op(p, OP_JUMP, 0, 0);
    p->ops[any].to = (uint16_t)p->n_ops;
    emit_loop(p, OP_ANY);
    (void)emit_op(p, OP_BYTE, '/', 0);
    p->ops[slash].to = p->ops[end].to = (uint16_t)p->n_ops;
}

/* (?:/|/.*'/') */
static void emit_middle(struct pattern *p)
{
    size_t split;

    (void)emit_op(p, OP_BYTE, '/', 0);
    split = emit_op(p, OP_SPLIT, 0, 0);
    emit_loop(p, OP_ANY);
    (void)emit_op(p, OP_BYTE, '/', 0);
    p->ops[split].to = (uint16_t)p->n_ops;
}

static void class_add(struct class *c, unsigned from, unsigned to)
{
    for (unsigned b = from; b <= to; b++)
        c->bits[b / 8] |= (uint8_t)(1u << (b % 8));
}

static bool class_has(const struct class *c, unsigned b)
{
    return c->bits[b / 8] & (1u << (b % 8));
}

/* Adds the other case of each ASCII letter of the class. */
static void class_fold(struct class *c)
{
    for (unsigned b = 'a'; b <= 'z'; b++) {
        unsigned capital = b - 'a' + 'A';

        if (class_has(c, b) || class_has(c, capital)) {
            class_add(c, b, b);
            class_add(c, capital, capital);
        }
    }
}

static void emit_char(struct parser *s, char c)
{
    struct pattern *p = s->p;
    struct class *either;

    if (!p->caseless || !isalpha((unsigned char)c)) {
        (void)emit_op(p, OP_BYTE, (uint8_t)c, 0);
        return;
    }
    either = &p->classes[p->n_classes];
    class_add(either, (unsigned char)c, (unsigned char)c);
    class_fold(either);
    (void)emit_op(p, OP_CLASS, 0, p->n_classes++);
}

static bool parser_is_at(const struct parser *s, size_t at, char c)
{
    return at < s->len && s->glob[at] == c;
}

static bool has_tokens(const struct parser *s)
{
    return s->last != TOKEN_NONE;
}

static void one_star(struct parser *s)
{
    begin_token(s, TOKEN_OTHER);
    emit_loop(s->p, OP_NAME);
}

/* "**" stands for components only if it is a whole component; else it means one star. */
static void two_stars(struct parser *s)
{
    bool ends = s->at == s->len;
    bool closes = s->in_braces && (parser_is_at(s, s->at, ',') || parser_is_at(s, s->at, '}'));
    bool slash = parser_is_at(s, s->at, '/');

    if (!has_tokens(s)) {
        if (!ends && !slash) {
            one_star(s);
            return;
        }
        begin_token(s, TOKEN_PREFIX);
        emit_prefix(s->p);
        s->at += slash;
        return;
    }
    /* s->at is after both stars: the byte before them decides. */
    if (s->glob[s->at - 3] != '/' || (!ends && !closes && !slash)) {
        one_star(s);
        return;
    }
    s->at += slash;
    if (s->last == TOKEN_PREFIX)
        return;                   /* "**" + '/' twice equals once */
    s->p->n_ops = s->before_last; /* the '/' before belongs to the new token */
    if (slash) {
        begin_token(s, TOKEN_MIDDLE);
        emit_middle(s->p);
        return;
    }
    begin_token(s, TOKEN_OTHER);
    (void)emit_op(s->p, OP_BYTE, '/', 0);
    emit_loop(s->p, OP_ANY);
}

static void parse_stars(struct parser *s)
{
    if (!parser_is_at(s, s->at, '*')) {
        one_star(s);
        return;
    }
    s->at++;
    two_stars(s);
}

static int bad_glob(struct parser *s, const char *why)
{
    return err_set(s->e, ERR_INVALID, "%s in the glob '%.200s'", why, s->glob);
}

/* The members up to the ']'. */
static int parse_members(struct parser *s, struct class *c)
{
    bool first = true, in_range = false;
    unsigned from = 0;

    for (;; first = false) {
        unsigned b;

        if (s->at == s->len)
            return bad_glob(s, "a '[' without ']'");
        b = (unsigned char)s->glob[s->at++];
        if (b == ']' && !first)
            break;
        if (b == '-' && !first && !in_range) {
            in_range = true;
            continue;
        }
        if (in_range && b < from)
            return bad_glob(s, "a range that ends before it starts");
        class_add(c, in_range ? from : b, b);
        from = b;
        in_range = false;
    }
    if (in_range)
        class_add(c, '-', '-');
    return 0;
}

static int parse_class(struct parser *s)
{
    struct pattern *p = s->p;
    struct class *c = &p->classes[p->n_classes];
    bool negated = parser_is_at(s, s->at, '!') || parser_is_at(s, s->at, '^');
    int r;

    s->at += negated;
    r = parse_members(s, c);
    if (r < 0)
        return r;
    if (p->caseless)
        class_fold(c);
    if (negated)
        for (size_t i = 0; i < sizeof(c->bits); i++)
            c->bits[i] = (uint8_t)~c->bits[i];
    begin_token(s, TOKEN_OTHER);
    (void)emit_op(p, OP_CLASS, 0, p->n_classes++);
    return 0;
}

static void begin_alternative(struct parser *s)
{
    s->split = emit_op(s->p, OP_SPLIT, 0, 0);
    s->alt_start = s->p->n_ops;
    s->before_last = s->p->n_ops;
    s->last = TOKEN_NONE;
}

/* Like ripgrep: an empty alternative is dropped. */
static int parser_end_alternative(struct parser *s)
{
    struct pattern *p = s->p;

    if (p->n_ops == s->alt_start) {
        p->n_ops = s->split;
        return 0;
    }
    if (s->n_ends == MAX_ALTERNATIVES)
        return bad_glob(s, "too many alternatives");
    s->any_alt = true;
    s->ends[s->n_ends++] = (uint16_t)emit_op(p, OP_JUMP, 0, 0);
    p->ops[s->split].to = (uint16_t)p->n_ops;
    return 0;
}

static int open_braces(struct parser *s)
{
    if (s->in_braces)
        return bad_glob(s, "a '{' within '{}'");
    s->in_braces = true;
    s->any_alt = false;
    s->n_ends = 0;
    begin_alternative(s);
    return 0;
}

static int close_braces(struct parser *s)
{
    struct pattern *p = s->p;
    int r;

    if (!s->in_braces) {
        begin_token(s, TOKEN_OTHER); /* like rg: a lone '}' matches the empty string */
        return 0;
    }
    r = parser_end_alternative(s);
    if (r < 0)
        return r;
    s->in_braces = false;
    if (s->any_alt) {
        /* The last split leads here if no alternative matches: an empty byte class. */
        (void)emit_op(p, OP_CLASS, 0, p->n_classes++);
        for (size_t i = 0; i < s->n_ends; i++)
            p->ops[s->ends[i]].to = (uint16_t)p->n_ops;
    }
    begin_token(s, TOKEN_OTHER);
    return 0;
}

static int parse_one(struct parser *s)
{
    char c = s->glob[s->at++];
    int r;

    switch (c) {
    case '?':
        begin_token(s, TOKEN_OTHER);
        (void)emit_op(s->p, OP_NAME, 0, 0);
        return 0;
    case '*':
        parse_stars(s);
        return 0;
    case '[':
        return parse_class(s);
    case '{':
        return open_braces(s);
    case '}':
        return close_braces(s);
    case ',':
        if (s->in_braces) {
            r = parser_end_alternative(s);
            begin_alternative(s);
            return r;
        }
        break;
    case '\\':
        if (s->at == s->len)
            return bad_glob(s, "a '\\' at the end");
        c = s->glob[s->at++];
        break;
    default:
        break;
    }
    begin_token(s, c == '/' ? TOKEN_SLASH : TOKEN_OTHER);
    emit_char(s, c);
    return 0;
}

/* If ops[from..to) are bytes only, they become the literal. `slash`: '/' is allowed. */
static bool take_literal(struct pattern *p, size_t from, size_t to, bool slash)
{
    for (size_t i = from; i < to; i++) {
        if (p->ops[i].code != OP_BYTE || (!slash && p->ops[i].byte == '/'))
            return false;
    }
    for (size_t i = from; i < to; i++)
        p->literal[i - from] = (char)p->ops[i].byte;
    p->literal_len = to - from;
    return true;
}

/* The instructions of "**" + '/' and of a star, to recognise them. */
#define PREFIX_OPS 8
#define STAR_OPS 3

static bool is_star(const struct pattern *p, size_t at)
{
    return at + STAR_OPS <= p->n_ops && p->ops[at].code == OP_SPLIT &&
           p->ops[at + 1].code == OP_NAME && p->ops[at + 2].code == OP_JUMP &&
           p->ops[at + 2].to == at;
}

/* Whether ops[from..to) are stars and single bytes, and only a literal byte matches '/' (none within a
 * name). */
static bool is_steps(const struct pattern *p, size_t from, size_t to, bool slash)
{
    for (size_t i = from; i < to;) {
        const struct op *o = &p->ops[i];

        if (is_star(p, i)) {
            i += STAR_OPS;
            continue;
        }
        if (o->code == OP_BYTE
                ? !slash && o->byte == '/'
                : o->code != OP_NAME && (o->code != OP_CLASS || class_has(&p->classes[o->to], '/')))
            return false;
        i++;
    }
    return true;
}

/* Keeps the final bytes that no jump skips: every match ends with them. */
static void take_ending(struct pattern *p, size_t body)
{
    size_t from = body;

    while (from && p->ops[from - 1].code == OP_BYTE)
        from--;
    for (size_t i = 0; i < body; i++) {
        bool jumps = p->ops[i].code == OP_SPLIT || p->ops[i].code == OP_JUMP;

        if (jumps && p->ops[i].to > from)
            from = p->ops[i].to;
    }
    (void)take_literal(p, from, body, true);
}

static void choose_strategy(struct pattern *p, bool has_prefix)
{
    size_t body = p->n_ops - 1; /* without OP_MATCH */

    p->strategy = RUN;
    if (take_literal(p, 0, body, true)) {
        p->strategy = WHOLE;
    } else if (has_prefix && body > PREFIX_OPS && take_literal(p, PREFIX_OPS, body, false)) {
        p->strategy = LAST;
    } else if (has_prefix && is_star(p, PREFIX_OPS) &&
               take_literal(p, PREFIX_OPS + STAR_OPS, body, false)) {
        p->strategy = LAST_END;
    } else {
        if (has_prefix && body > PREFIX_OPS && is_steps(p, PREFIX_OPS, body, false))
            p->strategy = STEPS_IN_NAME;
        else if (is_steps(p, 0, body, true))
            p->strategy = STEPS;
        take_ending(p, body);
    }
}

static int parse_glob(struct pattern *p, const char *glob, size_t len, struct err *e)
{
    struct parser s = {.glob = glob, .len = len, .p = p, .e = e, .last = TOKEN_NONE};
    bool has_prefix = len >= 3 && strncmp(glob, "**/", 3) == 0;
    int r;

    while (s.at < len) {
        r = parse_one(&s);
        if (r < 0)
            return r;
    }
    if (s.in_braces)
        return bad_glob(&s, "a '{' without '}'");
    if (s.last == TOKEN_PREFIX && p->n_ops == PREFIX_OPS) { /* "**" alone: everything */
        p->n_ops = 0;
        has_prefix = false;
        emit_loop(p, OP_ANY);
    }
    (void)emit_op(p, OP_MATCH, 0, 0);
    choose_strategy(p, has_prefix);
    return 0;
}

int pattern_new(const char *glob, size_t len, bool caseless, struct pattern **ret, struct err *e)
{
    struct pattern *p;
    struct op *ops;
    int r;

    if (len > PATTERN_MAX_BYTES)
        return err_set(e, ERR_INVALID, "a glob of more than %d bytes", PATTERN_MAX_BYTES);
    p = calloc(1, sizeof(*p));
    if (!p)
        return err_oom(e);
    p->caseless = caseless;
    p->ops = calloc(len * OPS_PER_BYTE + 8, sizeof(*p->ops));
    p->classes = calloc(len + 1, sizeof(*p->classes));
    p->literal = malloc(len + 1);
    if (!p->ops || !p->classes || !p->literal) {
        pattern_free(p);
        return err_oom(e);
    }
    r = parse_glob(p, glob, len, e);
    if (r < 0) {
        pattern_free(p);
        return r;
    }
    ops = realloc(p->ops, p->n_ops * sizeof(*ops)); /* big ignore files: give back the rest */
    if (ops)
        p->ops = ops;
    *ret = p;
    return 0;
}

struct pattern *pattern_free(struct pattern *p)
{
    if (p) {
        free(p->ops);
        free(p->classes);
        free(p->literal);
        free(p);
    }
    return NULL;
}

/* The instructions to follow at the next byte, each once; a split or jump is in it next to its targets. */
struct set {
    size_t n;
    uint16_t list[MAX_OPS];
    uint8_t has[MAX_OPS / 8 + 1];
};

static void set_clear(struct set *s, size_t n_ops)
{
    s->n = 0;
    memset(s->has, 0, n_ops / 8 + 1);
}

static void set_put(struct set *s, size_t i)
{
    uint8_t bit = (uint8_t)(1u << (i % 8));

    if (s->has[i / 8] & bit)
        return;
    s->has[i / 8] |= bit;
    s->list[s->n++] = (uint16_t)i;
}

/* Adds i and all instructions reachable from it without consuming a byte. */
static void set_add(struct set *s, const struct op *ops, size_t i)
{
    size_t at = s->n;

    set_put(s, i);
    for (; at < s->n; at++) {
        const struct op *o = &ops[s->list[at]];

        if (o->code == OP_SPLIT)
            set_put(s, (size_t)s->list[at] + 1);
        if (o->code == OP_SPLIT || o->code == OP_JUMP)
            set_put(s, o->to);
    }
}

static bool op_takes(const struct pattern *p, const struct op *o, unsigned char b)
{
    switch (o->code) {
    case OP_BYTE:
        return o->byte == b;
    case OP_NAME:
        return b != '/';
    case OP_ANY:
        return true;
    case OP_CLASS:
        return class_has(&p->classes[o->to], b);
    default:
        return false;
    }
}

/*
 * A star first matches nothing, and one byte more each time the rest fails. Only the last star has to be
 * retried: no star crosses a '/', so glob and path are compared component by component, and within a
 * component the first place that fits leaves the most for the rest.
 */
static bool match_steps(const struct pattern *p, size_t op, const char *path, size_t len)
{
    size_t body = p->n_ops - 1, at = 0, star = 0, star_at = 0;

    while (at < len) {
        if (op < body && p->ops[op].code == OP_SPLIT) {
            op += STAR_OPS;
            star = op;
            star_at = at;
        } else if (op < body && op_takes(p, &p->ops[op], (unsigned char)path[at])) {
            op++;
            at++;
        } else if (star && path[star_at] != '/') {
            op = star;
            at = ++star_at;
        } else {
            return false;
        }
    }
    while (op < body && p->ops[op].code == OP_SPLIT)
        op += STAR_OPS;
    return op == body;
}

static bool step_in_name(const struct pattern *p, const char *path, size_t len)
{
    const char *slash = memrchr(path, '/', len);
    size_t skip = slash ? (size_t)(slash - path) + 1 : 0;

    return match_steps(p, PREFIX_OPS, path + skip, len - skip);
}

static bool run_ops(const struct pattern *p, const char *path, size_t len)
{
    struct set sets[2];
    struct set *now = &sets[0], *next = &sets[1];
    size_t start = 0;

    while (p->ops[start].code == OP_BYTE) { /* the bytes that every match begins with */
        if (start == len || p->ops[start].byte != (uint8_t)path[start])
            return false;
        start++;
    }
    set_clear(now, p->n_ops);
    set_add(now, p->ops, start);
    for (size_t i = start; i < len && now->n; i++) {
        struct set *swap = now;

        set_clear(next, p->n_ops);
        for (size_t k = 0; k < now->n; k++) {
            if (op_takes(p, &p->ops[now->list[k]], (unsigned char)path[i]))
                set_add(next, p->ops, (size_t)now->list[k] + 1);
        }
        now = next;
        next = swap;
    }
    return now->n && (now->has[(p->n_ops - 1) / 8] & (1u << ((p->n_ops - 1) % 8)));
}

static bool ends_with(const struct pattern *p, const char *path, size_t len)
{
    return len >= p->literal_len &&
           memcmp(path + len - p->literal_len, p->literal, p->literal_len) == 0;
}

bool pattern_match(const struct pattern *p, const char *path, size_t len)
{
    if (!ends_with(p, path, len))
        return false;
    switch (p->strategy) {
    case WHOLE:
        return len == p->literal_len;
    case LAST:
        return len == p->literal_len || path[len - p->literal_len - 1] == '/';
    case LAST_END:
        return true;
    case STEPS:
        return match_steps(p, 0, path, len);
    case STEPS_IN_NAME:
        return step_in_name(p, path, len);
    case RUN:
    default:
        return run_ops(p, path, len);
    }
}

int pattern_last_byte(const struct pattern *p)
{
    return p->literal_len ? (unsigned char)p->literal[p->literal_len - 1] : -1;
}
