#include "search/grep_impl.h"

#include <stdlib.h>
#include <string.h>

#include "search/scan.h"

int grep_report(struct grepper *g, const struct grep_result *res, struct err *e)
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

bool grep_counts(const struct grepper *g)
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

int grep_report_hit(struct grepper *g, struct match_span hit, size_t until, struct err *e)
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
