#include "search/grep_impl.h"

#define NONE ((size_t)-1)

/* The lines that a match covers, the last with its line feed. */
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

/* Multiline: the lines of the next match that is not within those which are known (of a long line with
 * very many matches its ends would be looked for as often). */
static int next_lines(struct grepper *g, struct match_span known, struct match_span *ret,
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
        r = next_lines(g, (struct match_span){0, 0}, &block, e);
    g->has_next_block = false;
    if (r <= 0)
        return r;
    while ((r = next_lines(g, block, &more, e)) > 0) {
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

static int next_match(struct grepper *g, size_t from, struct match_span *ret, struct err *e)
{
    return g->o.multiline ? next_block(g, ret, e) : matcher_find_line(g->matcher, from, ret, e);
}

/* The lines of the next match, the ones to leave out. Multiline: as rg has it, none begins in the last
 * line of the one before. */
static int next_match_to_invert(struct grepper *g, size_t from, struct match_span *ret,
                                struct err *e)
{
    int r;

    if (!g->o.multiline)
        return matcher_find_line(g->matcher, from, ret, e);
    r = next_lines(g, (struct match_span){0, 0}, ret, e);
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
static int next_inverted(struct grepper *g, size_t from, struct match_span *ret, struct err *e)
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
    return g->o.invert ? next_inverted(g, from, ret, e) : next_match(g, from, ret, e);
}
