#include "search/grep.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/str.h"
#include "search/scan.h"

#define NONE ((size_t)-1)

struct grepper {
    struct matcher *matcher;
    struct grep_options o;
    struct window win;
    struct match_span *spans; /* GREP_MAX_SPANS */
    struct grep_line *before; /* o.before */
    struct grep_line *after;  /* o.after */
    struct buf replaced;      /* the line with its matches replaced, or with only_matching one */
    bool is_cut;              /* `replaced` is incomplete */

    /* Of the file being searched. Positions are in the window's data. */
    const struct grep_sink *sink;
    size_t seen;     /* `reported` as it was before the current hit */
    size_t reported; /* the end of the last line that was reported, after its line feed */
    size_t counted;  /* data[0..counted) has number - 1 line feeds since the file's start */
    uint64_t number;
    uint64_t n_results;
    uint64_t n_hits;
    struct match_span next_match; /* invert: the next line that matches; start NONE: no more */
    bool has_next_match;
    struct match_span next_block; /* multiline: found while looking for the end of the last block */
    bool has_next_block;
    uint32_t
        n_left; /* lines of context still to report after the last hit, once max_per_file is reached */
    bool is_enough;      /* stop: no more hits are wanted */
    bool is_over;        /* stop: multiline, and the file turned out to be binary */
    bool failed_outside; /* the sink failed, not the file */
};

struct grepper *grepper_free(struct grepper *g)
{
    if (g) {
        matcher_free(g->matcher);
        window_done(&g->win);
        buf_done(&g->replaced);
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
    if (o->mode != GREP_LINES)
        g->o.before = g->o.after = 0;
    if (!g->o.max_text)
        g->o.max_text = GREP_TEXT_BYTES;
    buf_init(&g->replaced, GREP_TEXT_MAX_BYTES);
    window_init(&g->win, o->multiline ? GREP_WHOLE_MAX_BYTES : GREP_LINE_MAX_BYTES);
    g->spans = calloc(GREP_MAX_SPANS, sizeof(*g->spans));
    g->before = calloc(g->o.before + 1, sizeof(*g->before));
    g->after = calloc(g->o.after + 1, sizeof(*g->after));
    r = g->spans && g->before && g->after ? matcher_new(m, &g->matcher, e) : err_oom(e);
    if (r < 0) {
        grepper_free(g);
        return r;
    }
    *ret = g;
    return 0;
}

/* --- lines of the window; positions are in its data --- */

static const char *grep_text(const struct grepper *g)
{
    return g->win.data.data;
}

/* The end of the line that contains `at`, before its line feed. */
static size_t grep_line_end(const struct grepper *g, size_t at)
{
    const char *nl = scan_byte(grep_text(g) + at, g->win.end - at, '\n');

    return nl ? (size_t)(nl - grep_text(g)) : g->win.end;
}

static size_t grep_line_start(const struct grepper *g, size_t at)
{
    const char *nl = at ? memrchr(grep_text(g), '\n', at) : NULL;

    return nl ? (size_t)(nl - grep_text(g)) + 1 : 0;
}

/* The start of the n-th line before the line start `at`, but not before `floor`. */
static size_t grep_lines_back(const struct grepper *g, size_t at, uint32_t n, size_t floor)
{
    while (n-- && at > floor)
        at = grep_line_start(g, at - 1);
    return at > floor ? at : floor;
}

/* Sets g->number to the number of the line that begins at `at`. */
static void grep_count_to(struct grepper *g, size_t at)
{
    if (at > g->counted) {
        g->number += scan_count(grep_text(g) + g->counted, at - g->counted, '\n');
        g->counted = at;
    }
}

/* A text cut to the length that is reported. */
static struct grep_line grep_cut_line(const struct grepper *g, const char *data, size_t len,
                                      uint64_t number)
{
    struct grep_line line = {.text = data, .len = len, .number = number};

    if (line.len > g->o.max_text) {
        line.len = str_utf8_whole(line.text, g->o.max_text);
        line.truncated = true;
    }
    return line;
}

/* Whether the line ends with "\r\n". Without a line feed, a "\r" belongs to the line. */
static bool grep_ends_crlf(const struct grepper *g, struct match_span line)
{
    return g->o.crlf && line.end < g->win.end && line.end > line.start &&
           grep_text(g)[line.end - 1] == '\r';
}

static struct grep_line grep_make_line(const struct grepper *g, struct match_span s,
                                       uint64_t number)
{
    if (grep_ends_crlf(g, s))
        s.end--;
    return grep_cut_line(g, grep_text(g) + s.start, s.end - s.start, number);
}

/* Lists at most `max` lines of data[from..to). *ret_end: after the last. */
static size_t grep_list_lines(const struct grepper *g, size_t from, size_t to, uint32_t max,
                              uint64_t number, struct grep_line *list, size_t *ret_end)
{
    size_t n = 0;

    while (n < max && from < to) {
        struct match_span s = {from, grep_line_end(g, from)};

        list[n] = grep_make_line(g, s, number + n);
        n++;
        from = s.end + 1;
    }
    *ret_end = from;
    return n;
}

/* --- hits --- */

/* The lines that a match covers. The span includes the last line feed. */
static struct match_span lines_of(const struct grepper *g, struct match_span m)
{
    struct match_span lines = {.start = grep_line_start(g, m.start)};

    if (m.end > lines.start && grep_text(g)[m.end - 1] == '\n')
        lines.end = m.end;
    else
        lines.end = grep_line_end(g, m.end) + 1;
    if (lines.end > g->win.end)
        lines.end = g->win.end;
    return lines;
}

/* Multiline: the lines of the next match that is not within the known span. Skipping those matches saves a
 * search for the line's ends per match, of which a long line may have very many. */
static int next_matched_lines(struct grepper *g, struct match_span known, struct match_span *ret,
                              struct err *e)
{
    struct match_span m;
    int r;

    do
        r = g->win.end ? matcher_find(g->matcher, &m, e) : 0;
    while (r > 0 && m.start >= known.start && m.start < known.end && m.end <= known.end);
    if (r <= 0)
        return r;
    *ret = lines_of(g, m);
    return ret->start < ret->end; /* an empty match after the last line feed is in no line */
}

/* Matches whose lines touch form one block. Its span excludes the final line feed. */
static int next_block(struct grepper *g, struct match_span *ret, struct err *e)
{
    struct match_span block, more;
    int r = 1;

    if (g->has_next_block)
        block = g->next_block;
    else
        r = next_matched_lines(g, (struct match_span){0, 0}, &block, e);
    g->has_next_block = false;
    if (r <= 0)
        return r;
    while ((r = next_matched_lines(g, block, &more, e)) > 0) {
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
    if (grep_text(g)[block.end - 1] == '\n')
        block.end--;
    *ret = block;
    return 1;
}

/* The lines of the next match, which invert leaves out. Multiline: like rg, no match begins in the last line
 * of the one before. */
static int next_match_to_invert(struct grepper *g, size_t from, struct match_span *ret,
                                struct err *e)
{
    int r;

    if (!g->o.multiline)
        return matcher_find_line(g->matcher, from, ret, e);
    r = next_matched_lines(g, (struct match_span){0, 0}, ret, e);
    if (r <= 0)
        return r;
    r = matcher_seek(g->matcher, ret->end, e);
    if (r < 0)
        return r;
    if (grep_text(g)[ret->end - 1] == '\n')
        ret->end--;
    return 1;
}

/* The first line at or after `from` that is in no match. */
static int next_inverted_hit(struct grepper *g, size_t from, struct match_span *ret, struct err *e)
{
    while (from < g->win.end) {
        if (!g->has_next_match || (g->next_match.start != NONE && g->next_match.start < from)) {
            int r = next_match_to_invert(g, from, &g->next_match, e);

            if (r < 0)
                return r;
            if (r == 0)
                g->next_match.start = NONE;
            g->has_next_match = true;
        }
        if (g->next_match.start != from) {
            *ret = (struct match_span){from, grep_line_end(g, from)};
            return 1;
        }
        from = g->next_match.end + 1;
    }
    return 0;
}

/* The first hit (a line, multiline: a block of lines) at or after `from`. 1: found. 0: none. */
static int grep_next_hit(struct grepper *g, size_t from, struct match_span *ret, struct err *e)
{
    if (g->o.invert)
        return next_inverted_hit(g, from, ret, e);
    return g->o.multiline ? next_block(g, ret, e) : matcher_find_line(g->matcher, from, ret, e);
}

/* --- results --- */

static int grep_report(struct grepper *g, const struct grep_result *res, struct err *e)
{
    int r = g->sink->result(g->sink->arg, res, e);

    if (r < 0)
        g->failed_outside = true;
    return r;
}

/*
 * The start of the text that a lookbehind can see from a line. rg -P looks for the matches of a line in its
 * buffer. That buffer begins with the line that continues after the last piece read (at the end of the file:
 * the one without a line feed), or with the lines that may have to be shown as context.
 */
static size_t buffer_start(const struct grepper *g, struct match_span line)
{
    uint64_t piece = window_piece_start(&g->win, g->win.base + line.end);

    if (piece >= g->win.base + line.start || line.end == g->win.end) {
        uint32_t n = g->o.before > g->o.after ? g->o.before : g->o.after;

        return n ? grep_lines_back(g, line.start, n + 1, g->seen) : line.start;
    }
    return piece > g->win.base ? grep_line_start(g, (size_t)(piece - g->win.base)) : 0;
}

/* The range in which the matches of a hit begin. Like rg, it includes the hit's own line feed. */
static struct match_lines lines_to_walk(const struct grepper *g, struct match_span hit)
{
    struct match_lines l = {.start = hit.start, .end = hit.end};

    if (!g->o.multiline && matcher_looks_back(g->matcher))
        l.floor = buffer_start(g, hit);
    if (grep_ends_crlf(g, hit))
        l.end--;
    l.stop = hit.end < g->win.end ? hit.end + 1 : hit.end;
    if (g->o.replace && !g->o.multiline)
        l.stop++;
    return l;
}

/* Replaced text that does not fit is left out, and the result is marked as truncated. */
static void add_replaced(struct grepper *g, const char *data, size_t len)
{
    if (!g->is_cut && buf_add(&g->replaced, data, len, NULL) < 0)
        g->is_cut = true;
}

/* Adds the replacement of the match just found. */
static void add_replacement(struct grepper *g)
{
    if (!g->is_cut && matcher_expand(g->matcher, g->o.replace, &g->replaced, NULL) < 0)
        g->is_cut = true;
}

static struct grep_line replaced_line(const struct grepper *g)
{
    struct grep_line line =
        grep_cut_line(g, g->replaced.data ? g->replaced.data : "", g->replaced.len, g->number);

    line.truncated = line.truncated || g->is_cut;
    return line;
}

/* The first matches within a hit, and the line with all of them replaced. */
static int find_spans(struct grepper *g, struct match_span hit, size_t *ret_n, struct err *e)
{
    struct match_lines l = lines_to_walk(g, hit);
    size_t n = 0, done = hit.start;
    struct match_span m;
    int r = matcher_walk(g->matcher, &l, e);

    buf_clear(&g->replaced);
    g->is_cut = false;
    while (r == 0 && (n < GREP_MAX_SPANS || (g->o.replace && !g->is_cut))) {
        r = matcher_next(g->matcher, &m, e);
        if (r <= 0)
            break;
        if (g->o.replace) {
            add_replaced(g, grep_text(g) + done, m.start > done ? m.start - done : 0);
            add_replacement(g);
            done = m.end > done ? m.end : done;
        }
        if (n < GREP_MAX_SPANS)
            g->spans[n++] = (struct match_span){m.start - hit.start, m.end - hit.start};
        r = 0;
    }
    if (r < 0)
        return r;
    if (g->o.replace && done < l.end)
        add_replaced(g, grep_text(g) + done, l.end - done);
    *ret_n = n;
    return 0;
}

static int count_spans(struct grepper *g, struct match_span hit, struct err *e)
{
    struct match_lines l = lines_to_walk(g, hit);
    struct match_span m;
    int r = matcher_walk(g->matcher, &l, e);

    while (r == 0 && (r = matcher_next(g->matcher, &m, e)) > 0) {
        g->n_results++;
        r = 0;
    }
    return r;
}

/* Progress of the search for the start of a match's line within a hit. */
struct line_place {
    size_t from, seen;
};

/* Continues from the last position: matches come in order, and one line may have very many. */
static void line_place_move(const struct grepper *g, size_t at, struct line_place *p)
{
    const char *nl = at > p->seen ? memrchr(grep_text(g) + p->seen, '\n', at - p->seen) : NULL;

    if (nl)
        p->from = (size_t)(nl - grep_text(g)) + 1;
    p->seen = at;
}

/* One match of a hit, as a result of its own. */
static int report_match(struct grepper *g, size_t line_from, struct match_span m,
                        const struct grep_result *around, struct err *e)
{
    struct match_span whole = {0, m.end - m.start};
    struct grep_line replaced = replaced_line(g);
    struct grep_result res = *around;

    grep_count_to(g, m.start);
    replaced.number = g->number;
    res.count = 1;
    res.offset = g->win.base + m.start;
    res.column = m.start - line_from + 1;
    res.line = grep_cut_line(g, grep_text(g) + m.start, whole.end, g->number);
    res.spans = &whole;
    res.n_spans = 1;
    res.replaced = g->o.replace ? &replaced : NULL;
    return grep_report(g, &res, e);
}

/* Reports each match of the hit as a result; the first has the context before, the last the context after.
 * *ret_any: whether there was a match. */
static int report_matches(struct grepper *g, struct match_span hit,
                          const struct grep_result *around, bool *ret_any, struct err *e)
{
    struct match_lines l = lines_to_walk(g, hit);
    struct grep_result res = {.before = around->before, .n_before = around->n_before};
    struct line_place line = {hit.start, hit.start};
    struct match_span m, next;
    bool has_one = false;
    int r = matcher_walk(g->matcher, &l, e);

    while (r == 0) {
        int more = matcher_next(g->matcher, &next, e);

        if (more == 0) {
            res.after = around->after;
            res.n_after = around->n_after;
        }
        if (more >= 0 && has_one) {
            if (g->o.multiline)
                line_place_move(g, m.start, &line);
            r = report_match(g, line.from, m, &res, e);
            res.n_before = 0;
        }
        if (more <= 0) {
            *ret_any = has_one;
            return more < 0 ? more : r;
        }
        m = next;
        has_one = true;
        buf_clear(&g->replaced);
        g->is_cut = false;
        if (g->o.replace)
            add_replacement(g);
    }
    *ret_any = has_one;
    return r;
}

/* Adds the context lines of a hit; lines from `until` on belong to the next one. */
static void add_context(struct grepper *g, struct match_span hit, size_t until,
                        struct grep_result *res)
{
    size_t first = grep_lines_back(g, hit.start, g->o.before, g->reported);
    size_t next = hit.end < g->win.end ? hit.end + 1 : g->win.end, ignored;
    uint64_t n_lines;

    g->seen = g->reported;
    grep_count_to(g, first);
    res->before = g->before;
    res->n_before =
        grep_list_lines(g, first, hit.start, g->o.before, g->number, g->before, &ignored);
    grep_count_to(g, hit.start);
    res->line = grep_make_line(g, hit, g->number);
    n_lines =
        g->o.multiline ? 1 + scan_count(grep_text(g) + hit.start, hit.end - hit.start, '\n') : 1;
    if (g->n_hits <= g->o.max_per_file)
        g->n_left = g->o.after;
    else if (g->n_left)
        g->n_left--;
    res->after = g->after;
    res->n_after =
        grep_list_lines(g, next, until, g->n_left, g->number + n_lines, g->after, &g->reported);
    if (g->reported > g->win.end)
        g->reported = g->win.end;
    if (g->n_hits >= g->o.max_per_file)
        g->n_left -= (uint32_t)res->n_after;
}

static int report_hit_lines(struct grepper *g, struct match_span hit, size_t until, struct err *e)
{
    struct grep_result res = {.count = 1, .offset = g->win.base + hit.start, .spans = g->spans};
    struct grep_line replaced;
    bool any = false;
    int r = 0;

    add_context(g, hit, until, &res);
    if (g->o.only_matching && !g->o.invert)
        r = report_matches(g, hit, &res, &any, e);
    if (any || r < 0) /* else no match is within the line as printed: report the line */
        return r;
    if (!g->o.invert)
        r = find_spans(g, hit, &res.n_spans, e);
    if (r < 0)
        return r;
    res.column = res.n_spans ? g->spans[0].start + 1 : 0;
    if (g->o.replace && res.n_spans) {
        replaced = replaced_line(g);
        res.replaced = &replaced;
    }
    return grep_report(g, &res, e);
}

/* Whether the hit is in the binary part of a file: then only the fact that it matches is reported. */
static bool is_in_binary(const struct grepper *g, struct match_span hit)
{
    if (g->win.nul != WINDOW_NUL_BECOMES || g->o.mode != GREP_LINES || !g->win.has_nul)
        return false;
    return g->o.multiline || g->win.base + hit.start >= g->win.nul_from;
}

/* Multiline: whether a NUL byte in these lines ends the search. Marks the file as binary. */
static bool turns_binary(struct grepper *g, size_t from, size_t to)
{
    if (!g->o.multiline || g->win.nul == WINDOW_NUL_IS_TEXT || g->win.has_nul ||
        !scan_byte(grep_text(g) + from, to - from, '\0'))
        return false;
    g->win.has_nul = true;
    return g->win.nul == WINDOW_NUL_STOPS;
}

/* Modes with one result per file. */
static bool is_per_file_mode(const struct grepper *g)
{
    return g->o.mode == GREP_FILES || g->o.mode == GREP_FILES_WITHOUT;
}

/* Whether hits are only counted. */
static bool grep_counts(const struct grepper *g)
{
    return g->o.mode == GREP_COUNT || g->o.mode == GREP_COUNT_MATCHES;
}

/* Counts the hit, or in the modes that count matches the matches in it. */
static int count_hit(struct grepper *g, struct match_span hit, struct err *e)
{
    bool by_match = g->o.mode == GREP_COUNT_MATCHES || (g->o.mode != GREP_LINES && g->o.multiline);
    int r = 0;

    g->n_hits++;
    if (by_match && !g->o.invert)
        r = count_spans(g, hit, e);
    else
        g->n_results++;
    if (is_per_file_mode(g) && g->n_results > 1)
        g->n_results = 1;
    return r;
}

/* Reports a hit. Lines from `until` on are not its context. Sets g->is_enough and g->is_over. */
static int grep_report_hit(struct grepper *g, struct match_span hit, size_t until, struct err *e)
{
    bool is_full;
    int r;

    if (turns_binary(g, grep_lines_back(g, hit.start, g->o.before, g->reported), hit.end)) {
        g->is_over = true;
        return 0;
    }
    r = count_hit(g, hit, e);
    if (r < 0)
        return r;
    is_full = (g->o.mode == GREP_COUNT_MATCHES && !g->o.multiline ? g->n_hits : g->n_results) >=
              g->o.max_per_file;
    g->is_enough = is_per_file_mode(g) || (is_full && !g->o.after);
    if (grep_counts(g) || g->o.mode == GREP_FILES_WITHOUT || !g->n_results)
        return 0; /* reported after the last line, if at all */
    if (g->o.mode == GREP_FILES || is_in_binary(g, hit)) {
        struct grep_result res = {
            .count = 1, .is_binary = g->o.mode == GREP_LINES, .offset = g->win.base + hit.start};

        g->is_enough = true;
        return grep_report(g, &res, e);
    }
    r = report_hit_lines(g, hit, until, e);
    g->is_enough = g->is_enough || (is_full && !g->n_left);
    return r;
}

/* --- one file --- */

static int grepper_check_gone(struct grepper *g, struct err *e)
{
    if (!g->sink->is_gone || !g->sink->is_gone(g->sink->arg))
        return 0;
    g->failed_outside = true;
    return err_set(e, ERR_CANCELED, "the search was canceled");
}

/*
 * Reports the hits that begin in data[from..limit). *ret_from: where to continue in the next window.
 * The next hit is looked for before the current one is reported, because it ends the current context.
 */
static int search_window(struct grepper *g, size_t from, size_t limit, size_t *ret_from,
                         struct err *e)
{
    struct match_span hit, next = {0, 0};
    int more = grep_next_hit(g, from, &hit, e);

    while (more > 0 && hit.start < limit) {
        /* Like rg: a match in the context after the last hit is reported as a match. */
        bool last = g->n_hits + 1 >= g->o.max_per_file && !g->o.after;
        size_t until = g->win.end;
        int r;

        more = last ? 0 : grep_next_hit(g, hit.end + 1, &next, e);
        if (more < 0)
            return more;
        if (more > 0)
            until = next.start;
        r = grep_report_hit(g, hit, until, e);
        if (r == 0 && !g->is_enough)
            r = grepper_check_gone(g, e);
        if (r < 0 || g->is_enough || g->is_over)
            return r;
        hit = next;
    }
    *ret_from = more > 0 ? hit.start : g->win.end;
    return more < 0 ? more : 0;
}

/* Reads the next piece of the file; drops the data before `from`, except for the context. */
static int slide_window(struct grepper *g, size_t *from, struct err *e)
{
    size_t keep = grep_lines_back(g, *from, g->o.before + matcher_looks_back(g->matcher), 0);
    int r;

    grep_count_to(g, keep);
    r = window_next(&g->win, keep, e);
    if (r == -ERR_EXHAUSTED)
        return err_set(e, ERR_EXHAUSTED, "has a line of more than %u bytes", GREP_LINE_MAX_BYTES);
    if (r < 0)
        return r;
    *from -= keep;
    g->counted -= keep;
    g->reported = g->reported > keep ? g->reported - keep : 0;
    g->has_next_match = false;
    matcher_set_text(g->matcher, grep_text(g), g->win.end);
    return 0;
}

static int search_by_windows(struct grepper *g, struct err *e)
{
    size_t from = 0, limit;
    int r;

    do {
        r = grepper_check_gone(g, e);
        if (r == 0)
            r = slide_window(g, &from, e);
        if (r < 0)
            return r;
        limit = g->win.end;
        if (!g->win.is_last) /* keep enough lines for the context after a hit */
            limit = grep_lines_back(g, limit, g->o.after, 0);
        r = search_window(g, from, limit, &from, e);
    } while (r == 0 && !g->is_enough && !g->win.is_last);
    return r;
}

/* Searches the file in one piece; a NUL byte near its beginning makes it binary. */
static int search_whole(struct grepper *g, struct err *e)
{
    size_t ignored, head;
    int r = window_read_all(&g->win, GREP_WHOLE_MAX_BYTES - WINDOW_BYTES, e);

    if (r < 0)
        return r;
    head = g->win.end < WINDOW_HEAD_BYTES ? g->win.end : WINDOW_HEAD_BYTES;
    g->win.has_nul = g->win.nul != WINDOW_NUL_IS_TEXT && memchr(grep_text(g), '\0', head);
    if (g->win.has_nul && g->win.nul == WINDOW_NUL_STOPS)
        return 0;
    matcher_set_text(g->matcher, grep_text(g), g->win.end);
    return search_window(g, 0, g->win.end, &ignored, e);
}

static void begin_file(struct grepper *g, int fd, enum grep_binary binary,
                       const struct grep_sink *sink)
{
    static const enum window_nul nul[] = {[GREP_BINARY_SKIP] = WINDOW_NUL_STOPS,
                                          [GREP_BINARY_REPORT] = WINDOW_NUL_BECOMES,
                                          [GREP_BINARY_TEXT] = WINDOW_NUL_IS_TEXT};

    window_start(&g->win, fd, nul[binary], g->o.encoding);
    matcher_set_gone(g->matcher, sink->is_gone, sink->arg);
    g->sink = sink;
    g->reported = g->counted = 0;
    g->number = 1;
    g->n_results = g->n_hits = 0;
    g->has_next_match = g->has_next_block = false;
    g->is_enough = g->is_over = g->failed_outside = false;
}

/* Adds the place in the file where the pattern reached a limit. */
static void add_place(struct grepper *g, struct err *e)
{
    const char *at = matcher_where(g->matcher);
    size_t len = e ? strlen(e->message) : 0;

    if (e && at && at >= grep_text(g) && at <= grep_text(g) + g->win.end)
        (void)snprintf(e->message + len, sizeof(e->message) - len, ", near offset %" PRIu64,
                       g->win.base + (uint64_t)(at - grep_text(g)));
}

/* Reports the result that a file has as a whole, after its last line. */
static int report_file(struct grepper *g, bool was_binary, struct err *e)
{
    /* Hits without a match in the line as printed count as zero matches. */
    bool is_by_line = g->o.mode == GREP_COUNT_MATCHES && !g->o.multiline && !was_binary;
    struct grep_result res = {.count = g->n_results};

    if (grep_counts(g) && (g->n_results || (is_by_line && g->n_hits)))
        return grep_report(g, &res, e);
    if (g->o.mode != GREP_FILES_WITHOUT || g->n_results || was_binary)
        return 0;
    res.count = 1;
    return grep_report(g, &res, e);
}

int grepper_run(struct grepper *g, int fd, enum grep_binary binary, const struct grep_sink *sink,
                struct grep_stats *ret_stats, bool *ret_own_fault, struct err *e)
{
    bool was_binary;
    int r = 0;

    begin_file(g, fd, binary, sink);
    if (g->o.max_per_file)
        r = g->o.multiline ? search_whole(g, e) : search_by_windows(g, e);
    if (r == -ERR_EXHAUSTED && e && strcmp(e->field, "pattern") == 0)
        add_place(g, e);
    was_binary = g->win.nul == WINDOW_NUL_STOPS && g->win.has_nul && !g->is_enough;
    if (grep_counts(g) && was_binary)
        g->n_results = 0; /* a count of a part is no count of the file */
    if (r == 0)
        r = report_file(g, was_binary, e);
    if (g->o.mode == GREP_FILES_WITHOUT)
        g->n_results = !g->n_results && !was_binary;
    *ret_stats = (struct grep_stats){
        .bytes = g->win.n_read, .was_binary = was_binary, .results = g->n_results};
    *ret_own_fault = r < 0 && !g->failed_outside && r != -ERR_CANCELED;
    return r;
}
