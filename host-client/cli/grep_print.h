#pragma once
/*
 * grep_print: matches as ripgrep prints them: with headings and colours on a terminal,
 * PATH:LINE:TEXT in a pipe, lines of context with dashes and `--` between what is apart.
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
    bool has_context;                /* `--` between groups */
    char path_end;                   /* after a path that stands alone: '\n', or '\0' */
    bool with_filename, no_filename; /* else: unless only one file was asked for */
    const char *only;                /* the path that was asked for; or NULL */
    /* so far: */
    char *path;
    uint64_t next_line; /* what would follow without a gap */
    bool has_printed;
};

void grep_print_match(struct grep_print *g, json_t *match);
void grep_print_done(struct grep_print *g);
