#pragma once
/*
 * match: a PCRE2 pattern made ready for searching many buffers fast, and the search for the lines
 * in which it matches. A struct match does not change once made; each worker has a struct matcher
 * of its own (match data, JIT stack).
 *
 * A pattern is searched as if each line were a text of its own, without its line feed, as rg does;
 * only `multiline` lets it see the whole. Where the outcome is the same, whole buffers are
 * searched at once, by a literal that each match must contain where there is one, and with a
 * second program that knows nothing of UTF-8 where the buffer is ASCII.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"

#define MATCH_PATTERN_MAX_BYTES (64 * 1024)
#define MATCH_LIMIT 2000000 /* PCRE2's steps for one attempt; about 10 ms */
#define MATCH_HEAP_KIB (16 * 1024)
#define MATCH_JIT_STACK_BYTES (1024 * 1024)
#define MATCH_LOSSY_MAX_BYTES \
    (256u * 1024 * 1024) /* of a text, once what is not UTF-8 is replaced */

enum match_case {
    MATCH_SENSITIVE,
    MATCH_INSENSITIVE,
    MATCH_SMART, /* insensitive unless the pattern has a capital letter */
};

struct match_options {
    const char *pattern; /* UTF-8; NULL when there are only the others */
    size_t len;
    char *const *more; /* other patterns, of which any may match; may be NULL */
    enum match_case letters;
    bool fixed; /* literal texts, not expressions */
    bool word;
    bool line;
    bool multiline;
    bool dotall; /* '.' matches a line feed; with multiline only */
    bool crlf;   /* "\r\n" ends a line for '^', '$' and '.' as well as "\n" */
    bool groups; /* matcher_expand() will be asked for what groups matched */
    /* Bytes that are not UTF-8 match nothing, as in fd; else each stands for U+FFFD, as in rg -P. */
    bool bytes_apart;
};

struct match;
struct matcher;

struct match_span {
    size_t start, end;
};

/* Whether letters count in either case for this pattern. */
bool match_is_caseless(enum match_case letters, const char *pattern, size_t len);

/* A bad pattern is -ERR_INVALID with field "pattern", or "patterns[i]" when there are more than one,
 * and the offset in the message. */
int match_new(const struct match_options *o, struct match **ret, struct err *e);
struct match *match_free(struct match *m); /* accepts NULL; returns NULL */

int matcher_new(const struct match *m, struct matcher **ret, struct err *e);
struct matcher *matcher_free(struct matcher *w); /* accepts NULL; returns NULL */

/* Asked every few milliseconds while a matcher works; when it says so, that ends -ERR_CANCELED. */
void matcher_set_gone(struct matcher *w, bool (*is_gone)(void *arg), void *arg);

/* What is searched next; kept, not copied. */
void matcher_set_text(struct matcher *w, const char *text, size_t len);

/*
 * The next match in the text set, from its start or where matcher_seek() said, then each behind the
 * one before: as with rg -U, what is before that place is not seen. After an empty match it goes on at
 * the next character. Positions here and below are in the text set. 1: found, 0: none, -ERR_EXHAUSTED: one
 * of PCRE2's limits was reached.
 */
int matcher_seek(struct matcher *w, size_t from, struct err *e);
int matcher_find(struct matcher *w, struct match_span *ret, struct err *e);

/* The first line with a match at or after `from`, which must be a line's start, in the text set,
 * which must be whole lines; the span is the line without its line feed. As matcher_find(). */
int matcher_find_line(struct matcher *w, size_t from, struct match_span *ret, struct err *e);

/* Where the text begins that was last looked at, for saying where it went wrong. */
const char *matcher_where(const struct matcher *w);

/* Whether what is before a line may matter to where in it the pattern matches. */
bool matcher_looks_back(const struct matcher *w);

/* A line, or with multiline several, whose matches are listed. */
struct match_lines {
    size_t floor; /* what is before this is not seen by a pattern that looks back */
    size_t start;
    size_t end;  /* without what ends the line */
    size_t stop; /* no match begins there or later */
};

/* The matches in some lines, which are seen with what is around them: begins with the first. */
int matcher_walk(struct matcher *w, const struct match_lines *l, struct err *e);
int matcher_next(struct matcher *w, struct match_span *ret, struct err *e); /* as matcher_find() */

/*
 * Appends a replacement for the match that matcher_next() has just found: $1, $name and ${name} stand
 * for groups, $$ for a '$'. Needs match_options.groups.
 */
int matcher_expand(struct matcher *w, const char *replacement, struct buf *out, struct err *e);
