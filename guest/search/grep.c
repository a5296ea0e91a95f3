#include "search/grep.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/str.h"
#include "search/scan.h"
#include "search/window.h"

#include "common/banned.h"

#define NONE ((size_t)-1)

struct grepper {
    struct matcher *matcher;
    struct grep_options o;
    struct window win;
    struct match_span *spans; /* GREP_MAX_SPANS */
    struct grep_line *before; /* o.before */
    struct grep_line *after;  /* o.after */
    struct buf replaced;      /* the line, or with only_matching each match, with replacements */
    struct match_span *replaced_spans; /* only_matching: GREP_MAX_SPANS, within `replaced` */

    /* Of the file being searched. Positions are in the window's data. */
    const struct grep_sink *sink;
    size_t told;    /* the end of the last line that was told, with its line feed */
    size_t counted; /* data[0..counted) has number - 1 line feeds since the file's start */
    uint64_t number;
    uint64_t n_results;
    uint64_t n_hits;
    struct match_span next_match; /* invert: the next line that matches; start NONE: no more */
    bool has_next_match;
    size_t block_from;            /* multiline: where to look for the next match */
    struct match_span next_block; /* multiline: found while looking for the end of the last one */
    bool has_next_block;
    bool is_enough;      /* no more hits are wanted */
    bool failed_outside; /* the sink's failure, not the file's */
};

struct grepper *grepper_free(struct grepper *g)
{
    if (g) {
        matcher_free(g->matcher);
        window_done(&g->win);
        buf_done(&g->replaced);
        free(g->replaced_spans);
        free(g->spans);
        free(g->before);
        free(g->after);
        free(g);
    }
    return NULL;
}

int grepper_new(const struct match *m, const struct grep_options *o, struct grepper **ret,
                struct err *e)
{
    struct grepper *g = calloc(1, sizeof(*g));
    int r;

    if (!g)
        return err_oom(e);
    g->o = *o;
    if (o->mode != GREP_LINES || o->only_matching)
        g->o.before = g->o.after = 0;
    if (!g->o.max_text)
        g->o.max_text = GREP_TEXT_BYTES;
    buf_init(&g->replaced, GREP_TEXT_MAX_BYTES);
    window_init(&g->win, o->multiline ? GREP_WHOLE_MAX_BYTES : GREP_LINE_MAX_BYTES);
    g->spans = calloc(GREP_MAX_SPANS, sizeof(*g->spans));
    g->replaced_spans = calloc(GREP_MAX_SPANS, sizeof(*g->replaced_spans));
    g->before = calloc(g->o.before + 1, sizeof(*g->before));
    g->after = calloc(g->o.after + 1, sizeof(*g->after));
    r = g->spans && g->replaced_spans && g->before && g->after ? matcher_new(m, &g->matcher, e)
                                                               : err_oom(e);
    if (r < 0) {
        grepper_free(g);
        return r;
    }
    *ret = g;
    return 0;
}

/* --- lines --- */

static const char *text(const struct grepper *g)
{
    return g->win.data.data;
}

/* The end of the line at `at`, without its line feed. */
static size_t line_end(const struct grepper *g, size_t at)
{
    const char *nl = scan_byte(text(g) + at, g->win.end - at, '\n');

    return nl ? (size_t)(nl - text(g)) : g->win.end;
}

static size_t line_start(const struct grepper *g, size_t at)
{
    const char *nl = at ? memrchr(text(g), '\n', at) : NULL;

    return nl ? (size_t)(nl - text(g)) + 1 : 0;
}

/* The start of the n-th line before the line start `at`, but not before `floor`. */
static size_t lines_back(const struct grepper *g, size_t at, uint32_t n, size_t floor)
{
    while (n-- && at > floor)
        at = line_start(g, at - 1);
    return at > floor ? at : floor;
}

static void count_to(struct grepper *g, size_t at)
{
    if (at > g->counted) {
        g->number += scan_count(text(g) + g->counted, at - g->counted, '\n');
        g->counted = at;
    }
}

static struct grep_line cut_line(const struct grepper *g, const char *data, size_t len,
                                 uint64_t number)
{
    struct grep_line line = {.text = data, .len = len, .number = number};

    if (line.len > g->o.max_text) {
        line.len = str_utf8_whole(line.text, g->o.max_text);
        line.truncated = true;
    }
    return line;
}

/* Whether what ends the line is "\r\n": without a line feed a "\r" is of the line. */
static bool ends_crlf(const struct grepper *g, struct match_span line)
{
    return g->o.crlf && line.end < g->win.end && line.end > line.start &&
           text(g)[line.end - 1] == '\r';
}

static struct grep_line make_line(const struct grepper *g, struct match_span s, uint64_t number)
{
    if (ends_crlf(g, s))
        s.end--;
    return cut_line(g, text(g) + s.start, s.end - s.start, number);
}

/* The lines of data[from..to) as a list of at most `max`. *ret_end: behind the last. */
static size_t list_lines(const struct grepper *g, size_t from, size_t to, uint32_t max,
                         uint64_t number, struct grep_line *list, size_t *ret_end)
{
    size_t n = 0;

    while (n < max && from < to) {
        struct match_span s = {from, line_end(g, from)};

        list[n] = make_line(g, s, number + n);
        n++;
        from = s.end + 1;
    }
    *ret_end = from;
    return n;
}

/* --- hits: the lines (multiline: blocks of lines) to report --- */

/* The lines that a match covers, the last with its line feed. */
static struct match_span lines_of(const struct grepper *g, struct match_span m)
{
    struct match_span lines = {.start = line_start(g, m.start)};

    if (m.end > lines.start && text(g)[m.end - 1] == '\n')
        lines.end = m.end;
    else
        lines.end = line_end(g, m.end) + 1;
    if (lines.end > g->win.end)
        lines.end = g->win.end;
    return lines;
}

/* The lines of the next match in multiline mode. */
static int next_lines(struct grepper *g, struct match_span *ret, struct err *e)
{
    struct match_span m;
    int r;

    if (g->block_from >= g->win.end)
        return 0;
    r = matcher_find(g->matcher, text(g), g->win.end, g->block_from, &m, e);
    if (r <= 0)
        return r;
    g->block_from = m.end > g->block_from ? m.end : g->block_from;
    if (m.start == m.end)
        g->block_from = m.end + 1;
    *ret = lines_of(g, m);
    return ret->start < ret->end; /* not the empty match behind the last line feed */
}

/* Matches whose lines touch make one block. Its span has no final line feed. */
static int next_block(struct grepper *g, struct match_span *ret, struct err *e)
{
    struct match_span block, more;
    int r = 1;

    if (g->has_next_block)
        block = g->next_block;
    else
        r = next_lines(g, &block, e);
    g->has_next_block = false;
    if (r <= 0)
        return r;
    while ((r = next_lines(g, &more, e)) > 0) {
        if (more.start > block.end) {
            g->next_block = more;
            g->has_next_block = true;
            break;
        }
        if (more.end > block.end)
            block.end = more.end;
    }
    if (r < 0)
        return r;
    if (text(g)[block.end - 1] == '\n')
        block.end--;
    *ret = block;
    return 1;
}

static int next_match(struct grepper *g, size_t from, struct match_span *ret, struct err *e)
{
    return g->o.multiline ? next_block(g, ret, e) : matcher_find_line(g->matcher, from, ret, e);
}

/* The first line at or after `from` that is in no match. */
static int next_inverted(struct grepper *g, size_t from, struct match_span *ret, struct err *e)
{
    while (from < g->win.end) {
        if (!g->has_next_match || (g->next_match.start != NONE && g->next_match.start < from)) {
            int r = next_match(g, from, &g->next_match, e);

            if (r < 0)
                return r;
            if (r == 0)
                g->next_match.start = NONE;
            g->has_next_match = true;
        }
        if (g->next_match.start != from) {
            *ret = (struct match_span){from, line_end(g, from)};
            return 1;
        }
        from = g->next_match.end + 1;
    }
    return 0;
}

static int next_hit(struct grepper *g, size_t from, struct match_span *ret, struct err *e)
{
    return g->o.invert ? next_inverted(g, from, ret, e) : next_match(g, from, ret, e);
}

/* --- results --- */

static int tell(struct grepper *g, const struct grep_result *res, struct err *e)
{
    int r = g->sink->result(g->sink->arg, res, e);

    if (r < 0)
        g->failed_outside = true;
    return r;
}

/* What the matches of a hit are looked for in. */
struct span_reader {
    const char *text;
    size_t len;   /* of the text */
    size_t shift; /* where in it the hit begins */
    size_t end;   /* and ends */
    size_t from, last;
};

static struct span_reader read_spans(const struct grepper *g, struct match_span hit)
{
    struct span_reader r = {.text = text(g), .len = g->win.end, .last = NONE};

    if (g->o.multiline) {
        r.shift = hit.start;
        r.end = hit.end;
    } else { /* the line is a text of its own */
        r.text += hit.start;
        r.len = hit.end - hit.start;
        if (ends_crlf(g, hit))
            r.len--;
        r.end = r.len;
    }
    r.from = r.shift;
    return r;
}

/* The next match of the hit, but for an empty one that touches the one before it. */
static int next_span(struct grepper *g, struct span_reader *s, struct match_span *ret,
                     struct err *e)
{
    while (s->from <= s->end) {
        bool touches;
        int r = matcher_find(g->matcher, s->text, s->len, s->from, ret, e);

        if (r <= 0)
            return r;
        if (ret->start > s->end)
            return 0;
        touches = ret->start == ret->end && ret->end == s->last;
        s->from = ret->end + (ret->start == ret->end);
        s->last = ret->end;
        if (!touches)
            return 1;
    }
    return 0;
}

/* Text that does not fit is left out: the result says that it is cut. */
static int add_replaced(struct grepper *g, const char *data, size_t len, bool *cut)
{
    if (!*cut && buf_add(&g->replaced, data, len, NULL) < 0)
        *cut = true;
    return 0;
}

static int expand(struct grepper *g, const struct span_reader *s, const struct match_span *m,
                  size_t n, size_t *done, bool *cut)
{
    size_t start;

    if (!g->o.only_matching) {
        (void)add_replaced(g, s->text + *done, m->start > *done ? m->start - *done : 0, cut);
        *done = m->end > *done ? m->end : *done;
    }
    start = g->replaced.len;
    if (!*cut && matcher_expand(g->matcher, s->text, g->o.replace, &g->replaced, NULL) < 0)
        *cut = true;
    g->replaced_spans[n] = (struct match_span){start, g->replaced.len};
    return 0;
}

/* The matches within a hit, and what replaces them. *ret_cut: not all of the replaced text fits. */
static int find_spans(struct grepper *g, struct match_span hit, size_t *ret_n, bool *ret_cut,
                      struct err *e)
{
    struct span_reader s = read_spans(g, hit);
    size_t n = 0, done = s.shift;
    bool cut = false;

    buf_clear(&g->replaced);
    while (n < GREP_MAX_SPANS) {
        struct match_span m;
        int r = next_span(g, &s, &m, e);

        if (r < 0)
            return r;
        if (r == 0)
            break;
        if (g->o.replace)
            (void)expand(g, &s, &m, n, &done, &cut);
        g->spans[n++] = (struct match_span){m.start - s.shift, m.end - s.shift};
    }
    if (g->o.replace && !g->o.only_matching && done < s.end)
        (void)add_replaced(g, s.text + done, s.end - done, &cut);
    *ret_cut = cut;
    *ret_n = n;
    return 0;
}

static int count_spans(struct grepper *g, struct match_span hit, struct err *e)
{
    struct span_reader s = read_spans(g, hit);
    struct match_span m;
    int r;

    while ((r = next_span(g, &s, &m, e)) > 0)
        if (!g->o.multiline || m.start < g->win.end)
            g->n_results++;
    return r;
}

/* A result for each match of the hit. */
static int tell_spans(struct grepper *g, struct match_span hit, size_t n_spans, bool cut,
                      struct err *e)
{
    size_t line_from = hit.start;
    int r = 0;

    for (size_t i = 0; r == 0 && i < n_spans; i++) {
        struct match_span whole = {0, g->spans[i].end - g->spans[i].start}, rep;
        size_t at = hit.start + g->spans[i].start;
        struct grep_line replaced;
        struct grep_result res = {
            .count = 1, .offset = g->win.base + at, .spans = &whole, .n_spans = 1};

        count_to(g, at);
        if (g->o.multiline && at > line_from)
            line_from = line_start(g, at);
        res.column = at - line_from + 1;
        res.line = cut_line(g, text(g) + at, whole.end, g->number);
        if (g->o.replace) {
            rep = g->replaced_spans[i];
            replaced = cut_line(g, g->replaced.data ? g->replaced.data + rep.start : "",
                                rep.end - rep.start, g->number);
            replaced.truncated = replaced.truncated || cut;
            res.replaced = &replaced;
        }
        r = tell(g, &res, e);
    }
    g->told = hit.end < g->win.end ? hit.end + 1 : g->win.end;
    return r;
}

/* until: lines from there on are not this hit's context after it. */
static int tell_lines(struct grepper *g, struct match_span hit, size_t until, struct err *e)
{
    size_t first = lines_back(g, hit.start, g->o.before, g->told);
    size_t next = hit.end < g->win.end ? hit.end + 1 : g->win.end, ignored;
    struct grep_result res = {.count = 1,
                              .offset = g->win.base + hit.start,
                              .spans = g->spans,
                              .before = g->before,
                              .after = g->after};
    struct grep_line replaced;
    uint64_t n_lines;
    bool cut = false;
    int r = 0;

    if (!g->o.invert)
        r = find_spans(g, hit, &res.n_spans, &cut, e);
    if (r < 0)
        return r;
    if (g->o.only_matching && res.n_spans) /* none: with crlf the line feed is what matches */
        return tell_spans(g, hit, res.n_spans, cut, e);
    count_to(g, first);
    res.n_before = list_lines(g, first, hit.start, g->o.before, g->number, g->before, &ignored);
    count_to(g, hit.start);
    res.line = make_line(g, hit, g->number);
    res.column = res.n_spans ? g->spans[0].start + 1 : 0;
    if (g->o.replace && res.n_spans) {
        replaced =
            cut_line(g, g->replaced.data ? g->replaced.data : "", g->replaced.len, g->number);
        replaced.truncated = replaced.truncated || cut;
        res.replaced = &replaced;
    }
    n_lines = g->o.multiline ? 1 + scan_count(text(g) + hit.start, hit.end - hit.start, '\n') : 1;
    res.n_after = list_lines(g, next, until, g->o.after, g->number + n_lines, g->after, &g->told);
    if (g->told > g->win.end)
        g->told = g->win.end;
    return tell(g, &res, e);
}

/* Whether the hit is where the file counts as binary: then that it matches is all that is told. */
static bool is_in_binary(const struct grepper *g, struct match_span hit)
{
    if (g->win.nul != WINDOW_NUL_BECOMES || g->o.mode != GREP_LINES || !g->win.has_nul)
        return false;
    return g->o.multiline || g->win.base + hit.start >= g->win.nul_from;
}

static bool counts(const struct grepper *g)
{
    return g->o.mode == GREP_COUNT || g->o.mode == GREP_COUNT_MATCHES;
}

static int tell_hit(struct grepper *g, struct match_span hit, size_t until, struct err *e)
{
    bool by_match = g->o.mode == GREP_COUNT_MATCHES || (g->o.mode == GREP_COUNT && g->o.multiline);
    bool is_one = g->o.mode == GREP_FILES || g->o.mode == GREP_FILES_WITHOUT;
    int r = 0;

    if (by_match && !g->o.invert)
        r = count_spans(g, hit, e);
    else
        g->n_results++;
    if (r < 0)
        return r;
    g->n_hits++;
    g->is_enough =
        is_one || (g->o.mode == GREP_COUNT_MATCHES ? g->n_hits : g->n_results) >= g->o.max_per_file;
    if (counts(g) || g->o.mode == GREP_FILES_WITHOUT)
        return 0; /* told at the end, if at all */
    if (is_one || is_in_binary(g, hit)) {
        struct grep_result res = {
            .count = 1, .is_binary = g->o.mode == GREP_LINES, .offset = g->win.base + hit.start};

        g->is_enough = true;
        return tell(g, &res, e);
    }
    return tell_lines(g, hit, until, e);
}

/* --- one file --- */

static int check_gone(struct grepper *g, struct err *e)
{
    if (!g->sink->is_gone || !g->sink->is_gone(g->sink->arg))
        return 0;
    g->failed_outside = true;
    return err_set(e, ERR_CANCELED, "the search was canceled");
}

/*
 * Tells the hits that begin in data[from..limit). *ret_from: where to go on in the next window.
 * The hit after the one being told is looked for first, as it ends that one's context.
 */
static int search_window(struct grepper *g, size_t from, size_t limit, size_t *ret_from,
                         struct err *e)
{
    struct match_span hit, next = {0, 0};
    int more = next_hit(g, from, &hit, e);

    while (more > 0 && hit.start < limit) {
        bool last = g->n_hits + 1 >= g->o.max_per_file;
        size_t until = g->win.end;
        int r;

        more = last ? 0 : next_hit(g, hit.end + 1, &next, e);
        if (more < 0)
            return more;
        if (more > 0)
            until = next.start;
        r = tell_hit(g, hit, until, e);
        if (r == 0 && !g->is_enough)
            r = check_gone(g, e);
        if (r < 0 || g->is_enough)
            return r;
        hit = next;
    }
    *ret_from = more > 0 ? hit.start : g->win.end;
    return more < 0 ? more : 0;
}

/* Takes the next piece of the file; what was held before `from` minus the context is dropped. */
static int slide(struct grepper *g, size_t *from, struct err *e)
{
    size_t keep = lines_back(g, *from, g->o.before, 0);
    int r;

    count_to(g, keep);
    r = window_next(&g->win, keep, e);
    if (r == -ERR_EXHAUSTED)
        return err_set(e, ERR_EXHAUSTED, "has a line of more than %u bytes", GREP_LINE_MAX_BYTES);
    if (r < 0)
        return r;
    *from -= keep;
    g->counted -= keep;
    g->told = g->told > keep ? g->told - keep : 0;
    g->has_next_match = false;
    matcher_set_text(g->matcher, text(g), g->win.end);
    return 0;
}

static int search_by_windows(struct grepper *g, struct err *e)
{
    size_t from = 0, limit;
    int r;

    do {
        r = check_gone(g, e);
        if (r == 0)
            r = slide(g, &from, e);
        if (r < 0)
            return r;
        limit = g->win.end;
        if (!g->win.is_last) /* leave so many lines that context after a hit is at hand */
            limit = lines_back(g, limit, g->o.after, 0);
        r = search_window(g, from, limit, &from, e);
    } while (r == 0 && !g->is_enough && !g->win.is_last);
    return r;
}

/* The whole file at once; a NUL byte at its beginning makes it binary. */
static int search_whole(struct grepper *g, struct err *e)
{
    size_t ignored, head;
    int r = window_read_all(&g->win, GREP_WHOLE_MAX_BYTES - WINDOW_BYTES, e);

    if (r < 0)
        return r;
    head = g->win.end < WINDOW_PIECE_BYTES ? g->win.end : WINDOW_PIECE_BYTES;
    g->win.has_nul = g->win.nul != WINDOW_NUL_IS_TEXT && memchr(text(g), '\0', head);
    if (g->win.has_nul && g->win.nul == WINDOW_NUL_STOPS)
        return 0;
    matcher_set_text(g->matcher, text(g), g->win.end);
    return search_window(g, 0, g->win.end, &ignored, e);
}

static void start_file(struct grepper *g, int fd, enum grep_binary binary,
                       const struct grep_sink *sink)
{
    static const enum window_nul nul[] = {[GREP_BINARY_SKIP] = WINDOW_NUL_STOPS,
                                          [GREP_BINARY_REPORT] = WINDOW_NUL_BECOMES,
                                          [GREP_BINARY_TEXT] = WINDOW_NUL_IS_TEXT};

    window_start(&g->win, fd, nul[binary], g->o.encoding);
    matcher_set_gone(g->matcher, sink->is_gone, sink->arg);
    g->sink = sink;
    g->told = g->counted = 0;
    g->number = 1;
    g->n_results = g->n_hits = 0;
    g->has_next_match = g->has_next_block = false;
    g->is_enough = g->failed_outside = false;
    g->block_from = 0;
}

/* Says where in the file the pattern became too much work. */
static void add_place(struct grepper *g, struct err *e)
{
    const char *at = matcher_where(g->matcher);
    size_t len = e ? strlen(e->message) : 0;

    if (e && at && at >= text(g) && at <= text(g) + g->win.end)
        (void)snprintf(e->message + len, sizeof(e->message) - len, ", near offset %" PRIu64,
                       g->win.base + (uint64_t)(at - text(g)));
}

/* What is told of a file once, behind its last line. */
static int tell_end(struct grepper *g, bool was_binary, struct err *e)
{
    struct grep_result res = {.count = g->n_results};

    if (counts(g) && g->n_results)
        return tell(g, &res, e);
    if (g->o.mode != GREP_FILES_WITHOUT || g->n_results || was_binary)
        return 0;
    res.count = 1;
    return tell(g, &res, e);
}

int grepper_run(struct grepper *g, int fd, enum grep_binary binary, const struct grep_sink *sink,
                struct grep_stats *ret_stats, bool *ret_own_fault, struct err *e)
{
    bool was_binary;
    int r = 0;

    start_file(g, fd, binary, sink);
    if (g->o.max_per_file)
        r = g->o.multiline ? search_whole(g, e) : search_by_windows(g, e);
    if (r == -ERR_EXHAUSTED && e && strcmp(e->field, "pattern") == 0)
        add_place(g, e);
    was_binary = g->win.nul == WINDOW_NUL_STOPS && g->win.has_nul && !g->is_enough;
    if (counts(g) && was_binary)
        g->n_results = 0; /* what was seen of it is no count of it */
    if (r == 0)
        r = tell_end(g, was_binary, e);
    if (g->o.mode == GREP_FILES_WITHOUT)
        g->n_results = !g->n_results && !was_binary;
    *ret_stats = (struct grep_stats){
        .bytes = g->win.n_read, .was_binary = was_binary, .results = g->n_results};
    *ret_own_fault = r < 0 && !g->failed_outside && r != -ERR_CANCELED;
    return r;
}
