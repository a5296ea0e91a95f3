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
    int more = grep_next_hit(g, from, &hit, e);

    while (more > 0 && hit.start < limit) {
        /* As rg has it, what matches in the context after the last is told as a match. */
        bool last = g->n_hits + 1 >= g->o.max_per_file && !g->o.after;
        size_t until = g->win.end;
        int r;

        more = last ? 0 : grep_next_hit(g, hit.end + 1, &next, e);
        if (more < 0)
            return more;
        if (more > 0)
            until = next.start;
        r = grep_tell_hit(g, hit, until, e);
        if (r == 0 && !g->is_enough)
            r = check_gone(g, e);
        if (r < 0 || g->is_enough || g->is_over)
            return r;
        hit = next;
    }
    *ret_from = more > 0 ? hit.start : g->win.end;
    return more < 0 ? more : 0;
}

/* Takes the next piece of the file; what was held before `from` minus the context is dropped. */
static int slide(struct grepper *g, size_t *from, struct err *e)
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
    g->told = g->told > keep ? g->told - keep : 0;
    g->has_next_match = false;
    matcher_set_text(g->matcher, grep_text(g), g->win.end);
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
            limit = grep_lines_back(g, limit, g->o.after, 0);
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
    head = g->win.end < WINDOW_HEAD_BYTES ? g->win.end : WINDOW_HEAD_BYTES;
    g->win.has_nul = g->win.nul != WINDOW_NUL_IS_TEXT && memchr(grep_text(g), '\0', head);
    if (g->win.has_nul && g->win.nul == WINDOW_NUL_STOPS)
        return 0;
    matcher_set_text(g->matcher, grep_text(g), g->win.end);
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
    g->is_enough = g->is_over = g->failed_outside = false;
}

/* Says where in the file the pattern became too much work. */
static void add_place(struct grepper *g, struct err *e)
{
    const char *at = matcher_where(g->matcher);
    size_t len = e ? strlen(e->message) : 0;

    if (e && at && at >= grep_text(g) && at <= grep_text(g) + g->win.end)
        (void)snprintf(e->message + len, sizeof(e->message) - len, ", near offset %" PRIu64,
                       g->win.base + (uint64_t)(at - grep_text(g)));
}

/* What is told of a file once, behind its last line. */
static int tell_end(struct grepper *g, bool was_binary, struct err *e)
{
    /* Lines found with no match in them, as they are printed, are counted as none. */
    bool is_by_line = g->o.mode == GREP_COUNT_MATCHES && !g->o.multiline && !was_binary;
    struct grep_result res = {.count = g->n_results};

    if (grep_counts(g) && (g->n_results || (is_by_line && g->n_hits)))
        return grep_tell(g, &res, e);
    if (g->o.mode != GREP_FILES_WITHOUT || g->n_results || was_binary)
        return 0;
    res.count = 1;
    return grep_tell(g, &res, e);
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
    if (grep_counts(g) && was_binary)
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
