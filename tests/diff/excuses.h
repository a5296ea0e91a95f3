#pragma once
/*
 * excuses: where answers about lines may differ, as in README.md: rows that say of one file which of its
 * lines may. What is told of the others must be the same, and all of it where lines can't be
 * taken out (counts, context): then a file without such a line is not excused.
 */
#include "../diff/peer.h"
#include "search/encoding.h"

enum { D1, D2, D3, D4, D5, D6, D7, D8, D9, D10, N_DIFFERENCES };
_Static_assert(N_DIFFERENCES <= 10, "no more differences than that");

struct excuses {
    bool used[N_DIFFERENCES];
};

/* A file of which different things are told. */
struct file {
    struct buf text;        /* as it is searched */
    size_t n;               /* lines */
    size_t *at;             /* n + 1: where each begins, and the end */
    bool *odd;              /* n */
    const char *own, *peer; /* both answers about it, without its path */
    size_t own_len, peer_len;
};

/* --- one file --- */

static void file_read(const char *path, const struct question *q, struct file *f)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is_big, is_wide;
    struct stat st;

    f->text = (struct buf){.max = OUT_MAX};
    T_OK(fd >= 0 && fstat(fd, &st) == 0);
    T_OK(buf_reserve(&f->text, (size_t)st.st_size + 1, NULL) == 0);
    T_OK(read(fd, f->text.data, (size_t)st.st_size) == st.st_size);
    (void)close(fd);
    f->text.len = (size_t)st.st_size;
    is_big = f->text.len >= 2 && memcmp(f->text.data, "\xfe\xff", 2) == 0;
    is_wide = is_big || (f->text.len >= 2 && memcmp(f->text.data, "\xff\xfe", 2) == 0);
    if (is_wide) {
        buf_consume(&f->text, 2);
        T_OK(utf16_decode(&f->text, is_big, NULL, NULL) == 0);
    } else if (q->o.grep.encoding == WINDOW_LATIN1) {
        T_OK(latin1_decode(&f->text, NULL, NULL) == 0);
    }
    f->at = calloc(f->text.len + 2, sizeof(*f->at));
    f->odd = calloc(f->text.len + 2, sizeof(*f->odd));
    T_OK(f->at && f->odd);
    for (size_t at = 0; at < f->text.len; at = f->at[f->n]) {
        const char *nl = memchr(f->text.data + at, '\n', f->text.len - at);

        f->at[++f->n] = nl ? (size_t)(nl - f->text.data) + 1 : f->text.len;
    }
}

static void file_done(struct file *f)
{
    buf_done(&f->text);
    free(f->at);
    free(f->odd);
}

static const char *line_of(const struct file *f, size_t i, size_t *ret_len)
{
    *ret_len = f->at[i + 1] - f->at[i];
    return f->text.data + f->at[i];
}

/* --- what a pattern can do --- */

/* Whether it matches in a text; with a match that has a byte in it, or any with -1, or, with -2, nothing. */
#define ANY_MATCH (-1)
#define OF_NOTHING (-2)
static bool matches(const struct match_options *o, const char *text, size_t len, int byte)
{
    const struct match_lines l = {.end = len, .stop = len + 1};
    struct match *m = NULL;
    struct matcher *w = NULL;
    struct match_span s;
    bool found = false;

    T_OK(match_new(o, &m, NULL) == 0 && matcher_new(m, &w, NULL) == 0);
    matcher_set_text(w, text, len);
    T_INT(matcher_walk(w, &l, NULL), 0);
    while (!found && matcher_next(w, &s, NULL) > 0)
        found = byte == ANY_MATCH    ? true
                : byte == OF_NOTHING ? s.start == s.end
                                     : memchr(text + s.start, byte, s.end - s.start) != NULL;
    matcher_free(w);
    match_free(m);
    return found;
}

static bool can_match(const struct question *q, int byte)
{
    static const char *const texts[] = {"",   "\xc3\xa9",   "x",          "foobar a",
                                        "\r", "\n\n\n\n\n", "foo\nbar\n", "a\nb\r\nx\n"};
    struct match_options o = q->o.match;

    o.multiline = true; /* else no text has a line feed */
    for (size_t i = 0; i < N_ELEMENTS(texts); i++)
        if (matches(&o, texts[i], strlen(texts[i]), byte))
            return true;
    return false;
}

/* D6: with rg's own syntax it is as without -U unless a line feed can be matched. */
static bool counts_lines(const struct question *q)
{
    return !q->pcre && q->o.grep.multiline && !can_match(q, '\n');
}

static bool lists_matches(const struct question *q)
{
    const struct grep_options *g = &q->o.grep;

    return g->only_matching || g->replace || g->mode == GREP_COUNT_MATCHES;
}

/* --- rg's own syntax from PCRE2's: each marks the lines that may differ --- */

static void mark_bad_text(const struct question *q, struct file *f)
{
    (void)q;
    for (size_t i = 0; i < f->n; i++) {
        size_t len;
        const char *line = line_of(f, i, &len);

        f->odd[i] = f->odd[i] || !str_is_utf8(line, len);
    }
}

/* Lines that end in the piece with the NUL byte or later. */
#define NUL_PIECE_BYTES 65536 /* at most, of rg; of rg -P 8 KiB */

static void mark_from_nul(const struct question *q, struct file *f)
{
    const char *nul = f->text.len ? memchr(f->text.data, '\0', f->text.len) : NULL;
    size_t at = nul ? (size_t)(nul - f->text.data) : 0;

    if (!nul || q->o.grep.binary == GREP_BINARY_TEXT)
        return;
    for (size_t i = 0; i < f->n; i++)
        f->odd[i] = f->odd[i] || f->at[i + 1] + NUL_PIECE_BYTES > at;
}

static void mark_smart(const struct question *q, struct file *f)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    const char *p = q->o.match.pattern;

    if (q->o.match.letters != MATCH_SMART || q->o.match.fixed)
        return;
    for (; *p; p++) /* outside of escapes: a character that is a letter, or could be */
        if (*p == '\\')
            p += p[1] ? 1 + (p[1] == 'p') : 0;
        else if ((unsigned char)*p >= 0x80 || strchr(letters, *p | 0x20))
            return;
    for (size_t i = 0; i < f->n; i++)
        f->odd[i] = true;
}

static void mark_empty(const struct question *q, struct file *f)
{
    bool has_start = q->o.match.line || strchr(q->o.match.pattern, '^') || q->more[0];

    for (size_t i = 0; i < f->n && has_start && lists_matches(q); i++) {
        size_t len;
        const char *line = line_of(f, i, &len);

        f->odd[i] = f->odd[i] || line[0] == '\n' || (line[0] == '\r' && line[1] == '\n');
    }
}

static void mark_words(const struct question *q, struct file *f)
{
    struct match_options o = q->o.match;

    o.word = false;
    for (size_t i = 0; i < f->n && q->o.match.word; i++) {
        size_t len;
        const char *line = line_of(f, i, &len);

        f->odd[i] = f->odd[i] || matches(&o, line, len - (len && line[len - 1] == '\n'), ANY_MATCH);
    }
}

/* With -U a "." of rg's own syntax is one that "\r" is for, though lines end in "\r\n". */
static void mark_ends(const struct question *q, struct file *f)
{
    bool nl = q->o.grep.crlf && can_match(q, '\n');
    bool cr = q->o.grep.crlf && (q->by_line_for_rg || can_match(q, '\r'));

    for (size_t i = 0; i < f->n; i++) {
        size_t len;
        const char *line = line_of(f, i, &len);

        f->odd[i] = f->odd[i] || nl || (cr && memchr(line, '\r', len));
    }
}

/* --- and where rg 13 itself is wrong, with either syntax --- */

static void mark_look_ahead(const struct question *q, struct file *f)
{
    const struct grep_options *g = &q->o.grep;

    for (size_t i = 0; i < f->n; i++)
        f->odd[i] =
            f->odd[i] || (g->multiline && (g->replace || (g->invert && g->mode != GREP_LINES)));
}

/* Whether text begins with so many lines of context. */
static bool is_context(const char *p, const char *end, size_t *ret_n)
{
    size_t n = 0;

    for (; p < end; n++) {
        if (p[strspn(p, "0123456789")] != '-')
            return false;
        p = (const char *)memchr(p, '\n', (size_t)(end - p)) + 1;
    }
    *ret_n = n;
    return true;
}

/* Whether the line of context that theirs ends with is one that was told before. */
static bool is_again_told(const struct file *f)
{
    const char *extra = f->peer + f->own_len, *last = extra;
    uint64_t number = strtoull(extra, NULL, 10);

    if (!f->own_len || !number || number > f->n)
        return false;
    do {
        last--;
    } while (last > f->peer && last[-1] != '\n');
    return number <= strtoull(last, NULL, 10);
}

/* Theirs is ours, and behind it are only a few lines of context. */
static void mark_context(const struct question *q, struct file *f)
{
    const struct grep_options *g = &q->o.grep;
    size_t n = 0;
    bool is_last, is_again;

    if (!g->multiline || f->peer_len <= f->own_len || memcmp(f->own, f->peer, f->own_len) != 0 ||
        !is_context(f->peer + f->own_len, f->peer + f->peer_len, &n))
        return;
    is_last = n <= g->before && can_match(q, OF_NOTHING);
    is_again = n == 1 && g->after && g->max_per_file != UINT64_MAX && is_again_told(f);
    for (size_t i = 0; i < f->n && (is_last || is_again); i++)
        f->odd[i] = f->odd[i] || is_again || i + n >= f->n;
}

/* Their count of a file is larger than ours, by at most the bytes within its characters. */
static bool is_count_by_bytes(const struct file *f)
{
    uint64_t own = strtoull(f->own, NULL, 10), peer = strtoull(f->peer, NULL, 10), within = 0;

    for (size_t i = 0; i < f->text.len; i++)
        within += ((unsigned char)f->text.data[i] & 0xc0) == 0x80;
    return peer > own && peer - own <= within;
}

/* Only where a character is more than a byte. */
static void mark_characters(const struct question *q, struct file *f)
{
    const struct grep_options *g = &q->o.grep;
    bool counts = g->mode == GREP_COUNT || g->mode == GREP_COUNT_MATCHES;

    if (!(lists_matches(q) || (g->multiline && g->mode == GREP_COUNT)) || !can_match(q, OF_NOTHING))
        return;
    if (counts && g->max_per_file == UINT64_MAX && !is_count_by_bytes(f))
        return;
    for (size_t i = 0; i < f->n; i++) {
        size_t len;
        const char *line = line_of(f, i, &len);

        for (size_t k = 0; k < len; k++)
            f->odd[i] = f->odd[i] || (unsigned char)line[k] >= 0x80;
    }
}

static const struct {
    bool with_pcre;
    void (*mark)(const struct question *q, struct file *f);
} differences[N_DIFFERENCES] = {
    [D1] = {false, mark_bad_text}, [D2] = {false, mark_from_nul},
    [D3] = {false, mark_smart},    [D4] = {false, mark_empty},
    [D5] = {false, mark_words},    [D6] = {false, NULL}, /* see counts_lines() */
    [D7] = {false, mark_ends},     [D8] = {true, mark_look_ahead},
    [D9] = {true, mark_context},   [D10] = {true, mark_characters},
};

/* --- the parts of an answer --- */

/* Appends the answer about lines that are not odd: "NUMBER:text", with -0 without the path. */
static void add_even(const struct file *f, const char *p, size_t len, struct buf *out)
{
    const char *end = p + len;

    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        uint64_t number = strtoull(p, NULL, 10);

        T_OK(nl && number);
        if (number > f->n || !f->odd[number - 1])
            T_OK(buf_add(out, p, (size_t)(nl - p) + 1, NULL) == 0);
        p = nl + 1;
    }
}

/* Whether each line is told of alone. */
static bool is_by_line(const struct question *q)
{
    const struct grep_options *g = &q->o.grep;

    return g->mode == GREP_LINES && !g->before && !g->after && g->max_per_file == UINT64_MAX &&
           !g->multiline;
}

static bool even_lines_agree(const struct file *f)
{
    struct buf own = {.max = OUT_MAX}, peer = {.max = OUT_MAX};
    bool ok;

    add_even(f, f->own, f->own_len, &own);
    add_even(f, f->peer, f->peer_len, &peer);
    ok = own.len == peer.len && (!own.len || memcmp(own.data, peer.data, own.len) == 0);
    buf_done(&own);
    buf_done(&peer);
    return ok;
}

static bool file_is_excused(const struct question *q, const char *path, struct file *f,
                            struct excuses *x)
{
    bool any = false, ok;

    file_read(path, q, f);
    for (unsigned d = 0; d < N_DIFFERENCES; d++) {
        bool before = any;

        if (!differences[d].mark || (q->pcre && !differences[d].with_pcre))
            continue;
        (void)memset(f->odd, 0, f->n * sizeof(*f->odd));
        differences[d].mark(q, f);
        any = false;
        for (size_t i = 0; i < f->n; i++)
            any = any || f->odd[i];
        x->used[d] = x->used[d] || any;
        any = any || before;
    }
    for (unsigned d = 0; d < N_DIFFERENCES; d++) /* now all together */
        if (differences[d].mark && (!q->pcre || differences[d].with_pcre))
            differences[d].mark(q, f);
    ok = any && (!is_by_line(q) || even_lines_agree(f));
    file_done(f);
    return ok;
}

/* The next file of an answer: its path, and what is told of it. False at the end. */
static bool next_part(const char **p, const char *end, bool is_list, struct buf *path,
                      struct buf *told)
{
    buf_clear(path);
    buf_clear(told);
    while (*p < end) {
        const char *nl = memchr(*p, '\n', (size_t)(end - *p));
        const char *nul = is_list ? nl : memchr(*p, '\0', (size_t)(nl - *p));
        size_t len = (size_t)(nul ? nul - *p : 0);

        T_OK(nl && nul);
        if (path->len && (path->len != len || memcmp(path->data, *p, len) != 0))
            break;
        if (!path->len)
            T_OK(buf_add(path, *p, len, NULL) == 0);
        if (!is_list)
            T_OK(buf_add(told, nul + 1, (size_t)(nl - nul), NULL) == 0);
        *p = nl + 1;
    }
    return path->len;
}

/* The part of an answer about a file; NULL: there is none. */
static const char *part_of(const struct buf *b, const struct buf *path, bool is_list,
                           struct buf *told)
{
    struct buf other = {.max = OUT_MAX};
    const char *p = b->data, *end = p + b->len;
    bool found = false;

    while (!found && next_part(&p, end, is_list, &other, told))
        found = other.len == path->len && memcmp(other.data, path->data, path->len) == 0;
    buf_done(&other);
    return found ? (told->data ? told->data : "") : NULL;
}

/* Whether each file that only `a` or both have is told of in the same way, or is excused. */
static bool all_agree(const struct question *q, const struct buf *a, const struct buf *b,
                      bool a_is_own, struct excuses *x)
{
    bool is_list = q->o.grep.mode == GREP_FILES || q->o.grep.mode == GREP_FILES_WITHOUT, ok = true;
    struct buf path = {.max = OUT_MAX}, told = {.max = OUT_MAX}, other = {.max = OUT_MAX};
    const char *p = a->data, *end = p + a->len;

    while (ok && next_part(&p, end, is_list, &path, &told)) {
        const char *text = part_of(b, &path, is_list, &other);
        struct file f = {.own = told.data ? told.data : "",
                         .own_len = told.len,
                         .peer = text ? text : "",
                         .peer_len = text ? other.len : 0};

        if (text && f.own_len == f.peer_len && memcmp(f.own, text, f.own_len) == 0)
            continue;
        if (!a_is_own) {
            const struct file swap = f;

            f.own = swap.peer;
            f.own_len = swap.peer_len;
            f.peer = swap.own;
            f.peer_len = swap.own_len;
        }
        ok = file_is_excused(q, path.data, &f, x);
    }
    buf_done(&path);
    buf_done(&told);
    buf_done(&other);
    return ok;
}

static bool is_same(const struct buf *a, const struct buf *b)
{
    return a->len == b->len && (!a->len || memcmp(a->data, b->data, a->len) == 0);
}

/* Whether two answers that are not the same differ in what is excused only. */
static bool parts_agree(const struct question *q, const struct buf *own, const struct buf *peer,
                        struct excuses *x)
{
    return all_agree(q, own, peer, true, x) && all_agree(q, peer, own, false, x);
}

/* The question without what D8, D9 and D10 are about: which lines match. */
static void question_without_extras(const struct question *q, struct question *ret)
{
    static const struct {
        const char *name;
        size_t n;
    } extras[] = {{"-o", 1},
                  {"-r", 2},
                  {"-c", 1},
                  {"-l", 1},
                  {"-B", 2},
                  {"-A", 2},
                  {"--count-matches", 1},
                  {"--files-without-match", 1}};

    *ret = *q;
    ret->n = 0;
    for (size_t i = 0; i < q->n;) {
        size_t n = 0;

        for (size_t k = 0; k < N_ELEMENTS(extras); k++)
            if (strcmp(q->args[i], extras[k].name) == 0)
                n = extras[k].n;
        if (!n)
            ask(ret, q->args[i]);
        i += n ? n : 1;
    }
    ret->o.grep.mode = GREP_LINES;
    ret->o.grep.only_matching = false;
    ret->o.grep.replace = NULL;
    ret->o.grep.before = ret->o.grep.after = 0;
}
