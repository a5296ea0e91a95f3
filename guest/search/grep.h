#pragma once
/*
 * grep: finds the lines of one file in which a pattern matches, as rg prints them. A grepper belongs to
 * one worker, searches one file after the other, and holds the buffers. Memory is bounded by the longest
 * line (GREP_LINE_MAX_BYTES) and the context asked for. Files are read, not mapped: a mapped file that
 * shrinks would raise SIGBUS.
 *
 * UTF-8 text is searched in place. UTF-16 with a byte order mark is converted first, and a UTF-8 byte order
 * mark is skipped; offsets are then those of the converted text, as in rg.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "search/match.h"
#include "search/window.h"

#define GREP_TEXT_BYTES (16 * 1024)               /* of a line in a result; the rest is truncated */
#define GREP_TEXT_MAX_BYTES (1024 * 1024)         /* when the caller wants more */
#define GREP_LINE_MAX_BYTES (64u * 1024 * 1024)   /* a file with a longer line is not searched */
#define GREP_WHOLE_MAX_BYTES (128u * 1024 * 1024) /* with multiline, and of UTF-16 */
#define GREP_MAX_SPANS 256                        /* matches reported per line */
#define GREP_MAX_CONTEXT 1000                     /* lines */

enum grep_mode {
    GREP_LINES,
    GREP_FILES, /* one result for each file with a match */
    GREP_COUNT, /* one result for each file with its number of lines (multiline: matches) */
    GREP_COUNT_MATCHES,
    GREP_FILES_WITHOUT, /* one result for each file with no match */
};

enum grep_binary {
    GREP_BINARY_SKIP,   /* a NUL byte ends the search, as rg does with files it finds */
    GREP_BINARY_REPORT, /* only whether it matches, as rg does with files it is given */
    GREP_BINARY_TEXT,   /* search it as text */
};

struct grep_options {
    enum grep_mode mode;
    enum grep_binary binary;
    enum window_encoding encoding;
    bool invert;
    bool multiline;
    bool crlf;              /* as the pattern's */
    bool only_matching;     /* GREP_LINES: a result for each match, without context */
    const char *replace;    /* GREP_LINES: the replacement for each match; NULL: none */
    uint32_t max_text;      /* bytes of a line that are reported; 0: GREP_TEXT_BYTES */
    uint32_t before, after; /* lines of context */
    uint64_t max_per_file;  /* results, UINT64_MAX: no limit */
};

struct grep_line {
    const char *text; /* without its line feed, cut at GREP_TEXT_MAX_BYTES */
    size_t len;
    bool truncated;
    uint64_t number; /* from 1 */
};

/* One result; valid during the call. */
struct grep_result {
    bool is_binary;                 /* the file is binary and matches: no lines */
    uint64_t count;                 /* of lines or matches in the counting modes; else 1 */
    struct grep_line line;          /* GREP_LINES; several lines with multiline */
    uint64_t column;                /* of the first match in its line, bytes from 1; 0: none */
    uint64_t offset;                /* of the first byte of `line` */
    const struct match_span *spans; /* within the line; none with invert */
    size_t n_spans;
    const struct grep_line *replaced; /* the line with its matches replaced, or NULL */
    const struct grep_line *before;   /* without lines that the previous result had */
    size_t n_before;
    const struct grep_line *after; /* up to the next result */
    size_t n_after;
};

struct grep_sink {
    int (*result)(void *arg, const struct grep_result *r, struct err *e);
    bool (*is_gone)(void *arg); /* may be NULL */
    void *arg;
};

struct grep_stats {
    uint64_t bytes;   /* read */
    bool was_binary;  /* a NUL byte ended the search */
    uint64_t results; /* lines found (or counted matches); with GREP_FILES 0 or 1 */
};

struct grepper;

int grepper_new(const struct match *m, const struct grep_options *o, struct grepper **ret,
                struct err *e);
struct grepper *grepper_free(struct grepper *g); /* accepts NULL; returns NULL */

/*
 * fd: at the file's start. Errors: the sink's, unchanged; -ERR_CANCELED if is_gone() said so; else the
 * file's own (unreadable, a line too long, one of PCRE2's limits), for which *ret_own_fault is true.
 */
int grepper_run(struct grepper *g, int fd, enum grep_binary binary, const struct grep_sink *sink,
                struct grep_stats *ret_stats, bool *ret_own_fault, struct err *e);
