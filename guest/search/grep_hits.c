#include "search/grep_impl.h"

#include <string.h>

#include "common/str.h"
#include "search/scan.h"

#define NONE ((size_t)-1)

/* --- lines of the window --- */

size_t grep_line_end(const struct grepper *g, size_t at)
{
    const char *nl = scan_byte(grep_text(g) + at, g->win.end - at, '\n');

    return nl ? (size_t)(nl - grep_text(g)) : g->win.end;
}

size_t grep_line_start(const struct grepper *g, size_t at)
{
    const char *nl = at ? memrchr(grep_text(g), '\n', at) : NULL;

    return nl ? (size_t)(nl - grep_text(g)) + 1 : 0;
}

size_t grep_lines_back(const struct grepper *g, size_t at, uint32_t n, size_t floor)
{
    while (n-- && at > floor)
        at = grep_line_start(g, at - 1);
    return at > floor ? at : floor;
}

void grep_count_to(struct grepper *g, size_t at)
{
    if (at > g->counted) {
        g->number += scan_count(grep_text(g) + g->counted, at - g->counted, '\n');
        g->counted = at;
    }
}

struct grep_line grep_cut_line(const struct grepper *g, const char *data, size_t len,
                               uint64_t number)
{
    struct grep_line line = {.text = data, .len = len, .number = number};

    if (line.len > g->o.max_text) {
        line.len = str_utf8_whole(line.text, g->o.max_text);
        line.truncated = true;
    }
    return line;
}

bool grep_ends_crlf(const struct grepper *g, struct match_span line)
{
    return g->o.crlf && line.end < g->win.end && line.end > line.start &&
           grep_text(g)[line.end - 1] == '\r';
}

struct grep_line grep_make_line(const struct grepper *g, struct match_span s, uint64_t number)
{
    if (grep_ends_crlf(g, s))
        s.end--;
    return grep_cut_line(g, grep_text(g) + s.start, s.end - s.start, number);
}

size_t grep_list_lines(const struct grepper *g, size_t from, size_t to, uint32_t max,
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

static int next_matched_hit(struct grepper *g, size_t from, struct match_span *ret, struct err *e)
{
    return g->o.multiline ? next_block(g, ret, e) : matcher_find_line(g->matcher, from, ret, e);
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

int grep_next_hit(struct grepper *g, size_t from, struct match_span *ret, struct err *e)
{
    return g->o.invert ? next_inverted_hit(g, from, ret, e) : next_matched_hit(g, from, ret, e);
}
