#pragma once
/*
 * grep_print: matches as ripgrep prints them: with headings and colours on a terminal,
 * PATH:LINE:TEXT in a pipe, lines of context with dashes and `--` between groups.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct grep_print {
    bool color;
    bool heading;
    bool line_numbers;
    bool column;
    bool byte_offset;
    bool has_context;                /* print `--` between groups */
    char path_end;                   /* after a path on a line of its own: '\n', or '\0' */
    bool with_filename, no_filename; /* neither: unless the search is of one file */
    const char *only;                /* the only path of the search; or NULL */
    /* state: */
    char *path;
    uint64_t next_line; /* the line that continues the last group */
    bool has_printed;
};

void grep_print_match(struct grep_print *g, json_t *match);
void grep_print_done(struct grep_print *g);
