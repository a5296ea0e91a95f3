#pragma once
/*
 * grep: the lines of one file in which a pattern matches, as rg prints them. A grepper belongs to
 * one worker and is used for one file after the other; it holds the buffers. Memory is bounded by
 * the longest line (GREP_LINE_MAX_BYTES) and the context asked for; files are read, not mapped,
 * so that one that shrinks does no harm.
 *
 * Text is searched as UTF-8 as it is; UTF-16 with a byte order mark is converted first, and a
 * UTF-8 byte order mark skipped: offsets are then those of the converted text, as in rg.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "search/match.h"
#include "search/window.h"

#define GREP_TEXT_BYTES (16 * 1024)               /* of a line in a result; the rest is cut off */
#define GREP_TEXT_MAX_BYTES (1024 * 1024)         /* when the caller wants more */
#define GREP_LINE_MAX_BYTES (64u * 1024 * 1024)   /* a file with a longer line is not searched */
#define GREP_WHOLE_MAX_BYTES (128u * 1024 * 1024) /* with multiline, and of UTF-16 */
#define GREP_MAX_SPANS 256                        /* matches told of one line */
#define GREP_MAX_CONTEXT 1000                     /* lines */

enum grep_mode {
    GREP_LINES,
    GREP_FILES, /* one result for each file with a match */
    GREP_COUNT, /* one result for each file with its number of lines (multiline: matches) */
    GREP_COUNT_MATCHES,
    GREP_FILES_WITHOUT, /* one result for each file with no match */
};

enum grep_binary {
    GREP_BINARY_SKIP,   /* what rg does with files it finds: a NUL byte ends the search */
    GREP_BINARY_REPORT, /* what it does with a file it is told to search: "it matches" */
    GREP_BINARY_TEXT,   /* search it all the same */
};

struct grep_options {
    enum grep_mode mode;
    enum grep_binary binary;
    enum window_encoding encoding;
    bool invert;
    bool multiline;
    bool crlf;           /* as the pattern's */
    bool only_matching;  /* GREP_LINES: a result for each match, without context */
    const char *replace; /* GREP_LINES: what a match would be replaced by; NULL: no replacement */
    uint32_t max_text;   /* bytes of a line that are told; 0: GREP_TEXT_BYTES */
    uint32_t before, after; /* lines of context */
    uint64_t max_per_file;  /* results, UINT64_MAX: no limit */
};

struct grep_line {
    const char *text; /* without its line feed, cut at GREP_TEXT_MAX_BYTES */
    size_t len;
    bool truncated;
    uint64_t number; /* from 1 */
};

/* What is found; lives for the time of the call. */
struct grep_result {
    bool is_binary;                 /* the file is binary and matches: no lines */
    uint64_t count;                 /* of lines or matches when they are counted; else 1 */
    struct grep_line line;          /* GREP_LINES; several lines with multiline */
    uint64_t column;                /* of the first match in its line, bytes from 1; 0: none */
    uint64_t offset;                /* of the first byte of `line` */
    const struct match_span *spans; /* within the line; none with invert */
    size_t n_spans;
    const struct grep_line *replaced; /* the line with its matches replaced, or NULL */
    const struct grep_line *before;   /* no line is told twice: not those of the result before */
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
    bool was_binary;  /* not searched to its end for that */
    uint64_t results; /* lines found (or counted matches); with GREP_FILES 0 or 1 */
};

struct grepper;

int grepper_new(const struct match *m, const struct grep_options *o, struct grepper **ret,
                struct err *e);
struct grepper *grepper_free(struct grepper *g); /* accepts NULL; returns NULL */

/*
 * fd: at the file's start. Errors: those of the sink, unchanged; -ERR_CANCELED when it has gone;
 * else what is wrong with this one file (unreadable, a line too long, one of PCRE2's limits).
 * *ret_own_fault tells them apart: true for the file's.
 */
int grepper_run(struct grepper *g, int fd, enum grep_binary binary, const struct grep_sink *sink,
                struct grep_stats *ret_stats, bool *ret_own_fault, struct err *e);
