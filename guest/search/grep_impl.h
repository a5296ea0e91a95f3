#pragma once
/* grep_impl: one file on its way through a grepper, for grep.c and the grep_*.c only. */
#include "search/grep.h"

struct grepper {
    struct matcher *matcher;
    struct grep_options o;
    struct window win;
    struct match_span *spans; /* GREP_MAX_SPANS */
    struct grep_line *before; /* o.before */
    struct grep_line *after;  /* o.after */
    struct buf replaced;      /* the line with its matches replaced, or with only_matching one */
    bool is_cut;              /* it is not all of that */

    /* Of the file being searched. Positions are in the window's data. */
    const struct grep_sink *sink;
    size_t seen;    /* `told` as it was before the hit that is being told */
    size_t told;    /* the end of the last line that was told, with its line feed */
    size_t counted; /* data[0..counted) has number - 1 line feeds since the file's start */
    uint64_t number;
    uint64_t n_results;
    uint64_t n_hits;
    struct match_span next_match; /* invert: the next line that matches; start NONE: no more */
    bool has_next_match;
    struct match_span next_block; /* multiline: found while looking for the end of the last one */
    bool has_next_block;
    uint32_t n_left; /* lines to tell behind the last hit; they end once max_per_file is reached */
    bool is_enough;  /* no more hits are wanted */
    bool is_over;    /* multiline: the rest is not searched for a NUL byte */
    bool failed_outside; /* the sink's failure, not the file's */
};

static inline const char *grep_text(const struct grepper *g)
{
    return g->win.data.data;
}

/* --- grep_lines.c: positions in the window's data --- */

/* The end of the line at `at`, without its line feed. */
size_t grep_line_end(const struct grepper *g, size_t at);
size_t grep_line_start(const struct grepper *g, size_t at);
/* The start of the n-th line before the line start `at`, but not before `floor`. */
size_t grep_lines_back(const struct grepper *g, size_t at, uint32_t n, size_t floor);
/* Makes g->number that of the line that begins at `at`. */
void grep_count_to(struct grepper *g, size_t at);
/* As much of a text as is told. */
struct grep_line grep_cut_line(const struct grepper *g, const char *data, size_t len,
                               uint64_t number);
/* Whether what ends the line is "\r\n": without a line feed a "\r" is of the line. */
bool grep_ends_crlf(const struct grepper *g, struct match_span line);
struct grep_line grep_make_line(const struct grepper *g, struct match_span s, uint64_t number);
/* The lines of data[from..to) as a list of at most `max`. *ret_end: behind the last. */
size_t grep_list_lines(const struct grepper *g, size_t from, size_t to, uint32_t max,
                       uint64_t number, struct grep_line *list, size_t *ret_end);

/* --- grep_hits.c: the lines (multiline: blocks of lines) to report --- */

/* The first at or after `from`. 1: there is one, 0: none, or an error. */
int grep_next_hit(struct grepper *g, size_t from, struct match_span *ret, struct err *e);

/* --- grep_tell.c: what is said of a hit --- */

int grep_tell(struct grepper *g, const struct grep_result *res, struct err *e);
/* until: lines from there on are not this hit's context after it. Sets g->is_enough and is_over. */
int grep_tell_hit(struct grepper *g, struct match_span hit, size_t until, struct err *e);
/* Whether hits are counted, not told. */
bool grep_counts(const struct grepper *g);
