#pragma once
/* match_impl: the state that match.c makes and matcher.c runs. For these two only. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "search/encoding.h"
#include "search/match.h"
#include "search/scan.h"

/* One pattern compiled twice: for any text, and for ASCII text (may be NULL). */
struct program {
    pcre2_code *utf;
    pcre2_code *ascii;
};

struct match {
    struct program exact; /* the pattern as it is */
    struct program lines; /* rewritten so that it can't match a line feed; may be empty */
    bool has_scan;
    bool crlf;
    bool groups;
    bool multiline;
    bool looks_back; /* text before a line may change where in it the pattern matches */
    bool bytes_apart;
    bool in_steps; /* a search may be split into steps */
    struct scan scan;
};

/* A part of the current text, as PCRE2 gets it. */
struct subject {
    size_t from, to; /* of the text */
    const char *data;
    size_t len;
    bool is_ascii;
    bool is_lossy; /* data is matcher.lossy's */
};

struct matcher {
    const struct match *m;
    pcre2_match_data *data;
    pcre2_jit_stack *stack;
    pcre2_match_context *context;
    const char *text;
    size_t len;
    size_t high_from, high; /* text[high_from..high) is ASCII, text[high] is not, or is the end */
    bool knows_high;
    struct subject subject; /* the last one; data is NULL when there is none */
    struct lossy lossy;
    size_t find_at; /* of matcher_find(): in the subject's data, which is all of the text */
    size_t walk_at, walk_stop, walk_last; /* of matcher_walk(): positions in the subject's data */
    const pcre2_code *code;               /* of the last match */
    const char *matched;                  /* the base of its offsets */
    size_t step;                          /* start positions tried per call of PCRE2 */
    bool (*is_gone)(void *arg);
    void *arg;
    const char *where;
    int64_t asked_ns; /* when is_gone was last asked */
};
