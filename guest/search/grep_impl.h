#pragma once
/* grep_impl: the state of a grepper while it searches one file. For grep.c and grep_*.c only. */
#include "search/grep.h"

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

static inline const char *grep_text(const struct grepper *g)
{
    return g->win.data.data;
}

/* --- grep_hits.c: positions in the window's data --- */

/* The end of the line that contains `at`, before its line feed. */
size_t grep_line_end(const struct grepper *g, size_t at);
size_t grep_line_start(const struct grepper *g, size_t at);
/* The start of the n-th line before the line start `at`, but not before `floor`. */
size_t grep_lines_back(const struct grepper *g, size_t at, uint32_t n, size_t floor);
/* Sets g->number to the number of the line that begins at `at`. */
void grep_count_to(struct grepper *g, size_t at);
/* A text cut to the length that is reported. */
struct grep_line grep_cut_line(const struct grepper *g, const char *data, size_t len,
                               uint64_t number);
/* Whether the line ends with "\r\n". Without a line feed, a "\r" belongs to the line. */
bool grep_ends_crlf(const struct grepper *g, struct match_span line);
struct grep_line grep_make_line(const struct grepper *g, struct match_span s, uint64_t number);
/* Lists at most `max` lines of data[from..to). *ret_end: after the last. */
size_t grep_list_lines(const struct grepper *g, size_t from, size_t to, uint32_t max,
                       uint64_t number, struct grep_line *list, size_t *ret_end);

/* --- grep_hits.c: hits, the lines (multiline: blocks of lines) to report --- */

/* The first hit at or after `from`. 1: found. 0: none. Negative: an error. */
int grep_next_hit(struct grepper *g, size_t from, struct match_span *ret, struct err *e);

/* --- grep_report.c: results --- */

int grep_report(struct grepper *g, const struct grep_result *res, struct err *e);
/* Reports a hit. Lines from `until` on are not its context. Sets g->is_enough and g->is_over. */
int grep_report_hit(struct grepper *g, struct match_span hit, size_t until, struct err *e);
/* Whether hits are only counted. */
bool grep_counts(const struct grepper *g);
