#pragma once
/*
 * match: a compiled PCRE2 pattern, and the search for the lines in which it matches. A struct match is
 * immutable; each worker has its own struct matcher (match data, JIT stack).
 *
 * Like rg, a pattern is matched as if each line were a text of its own, without its line feed; only with
 * `multiline` it sees the whole. Where the result is the same, whole buffers are searched at once: for a
 * literal that every match must contain, if there is one, and with a second program compiled without UTF if
 * the buffer is ASCII.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"

#define MATCH_PATTERN_MAX_BYTES (64 * 1024)
#define MATCH_LIMIT 2000000 /* PCRE2's steps per start position; about 10 ms */
#define MATCH_HEAP_KIB (16 * 1024)
#define MATCH_JIT_STACK_BYTES (1024 * 1024)
#define MATCH_LOSSY_MAX_BYTES (256u * 1024 * 1024) /* of a text after invalid UTF-8 was replaced */

enum match_case {
    MATCH_SENSITIVE,
    MATCH_INSENSITIVE,
    MATCH_SMART, /* insensitive unless the pattern has a capital letter */
};

struct match_options {
    const char *pattern; /* UTF-8; NULL when there are only the others */
    size_t len;
    char *const *more; /* alternative patterns; may be NULL */
    enum match_case letters;
    bool fixed; /* literal texts, not expressions */
    bool word;
    bool line;
    bool multiline;
    bool dotall; /* '.' matches a line feed; with multiline only */
    bool crlf;   /* "\r\n" ends a line for '^', '$' and '.' as well as "\n" */
    bool groups; /* matcher_expand() will be called: it needs the groups */
    /* Bytes that are not UTF-8 match nothing, as in fd; else each is read as U+FFFD, as in rg -P. */
    bool bytes_apart;
};

struct match;
struct matcher;

struct match_span {
    size_t start, end;
};

/* Whether this pattern is matched without regard to case. */
bool match_is_caseless(enum match_case letters, const char *pattern, size_t len);

/* A bad pattern is -ERR_INVALID with the field "pattern", or "patterns[i]" for one of `more`, and the offset
 * in the message. */
int match_new(const struct match_options *o, struct match **ret, struct err *e);
struct match *match_free(struct match *m); /* accepts NULL; returns NULL */

int matcher_new(const struct match *m, struct matcher **ret, struct err *e);
struct matcher *matcher_free(struct matcher *w); /* accepts NULL; returns NULL */

/* is_gone is called every few milliseconds while a matcher works; true ends the call with -ERR_CANCELED. */
void matcher_set_gone(struct matcher *w, bool (*is_gone)(void *arg), void *arg);

/* Sets the text to search; borrowed. */
void matcher_set_text(struct matcher *w, const char *text, size_t len);

/*
 * The next match, from the start of the text or the place of matcher_seek(), then each after the previous
 * one. As with rg -U, text before that place is not seen. After an empty match the search continues at the
 * next character. Positions here and below are in the current text. 1: found. 0: none. -ERR_EXHAUSTED: one of
 * PCRE2's limits was reached.
 */
int matcher_seek(struct matcher *w, size_t from, struct err *e);
int matcher_find(struct matcher *w, struct match_span *ret, struct err *e);

/* The first line with a match at or after `from`, which must be a line's start; the text must consist of
 * whole lines. The span excludes the line feed. Returns as matcher_find(). */
int matcher_find_line(struct matcher *w, size_t from, struct match_span *ret, struct err *e);

/* The start of the text of the last call of PCRE2, to say where it reached a limit. */
const char *matcher_where(const struct matcher *w);

/* Whether text before a line may change where in it the pattern matches (a lookbehind, say). */
bool matcher_looks_back(const struct matcher *w);

/* A line, or several with multiline, whose matches are listed. */
struct match_lines {
    size_t floor; /* a lookbehind sees nothing before this */
    size_t start;
    size_t end;  /* without the line end */
    size_t stop; /* no match begins there or later */
};

/* Starts listing the matches in these lines; the pattern also sees the text around them. */
int matcher_walk(struct matcher *w, const struct match_lines *l, struct err *e);
int matcher_next(struct matcher *w, struct match_span *ret, struct err *e); /* as matcher_find() */

/*
 * Appends the replacement of the match that matcher_next() found last: $1, $name and ${name} stand for
 * groups, $$ for a '$'. Needs match_options.groups.
 */
int matcher_expand(struct matcher *w, const char *replacement, struct buf *out, struct err *e);
