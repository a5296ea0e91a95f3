#include "search/grep.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "search/grep_impl.h"

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
