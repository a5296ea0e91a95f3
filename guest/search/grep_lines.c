#include "search/grep_impl.h"

#include <string.h>

#include "common/str.h"
#include "search/scan.h"

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
