#pragma once
/*
 * token: splits a PCRE2 pattern into tokens, as far as the optimisations need to understand it. Syntax it
 * does not know for certain is TOKEN_OTHER: the caller then drops the optimisation, so that a search may be
 * slow but never wrong.
 */
#include <stdbool.h>
#include <stddef.h>

enum token_kind {
    TOKEN_END,
    TOKEN_CHAR,    /* one literal character */
    TOKEN_NEWLINE, /* a literal line feed */
    TOKEN_SET,     /* '.', \w, a class ...: one character, never a line feed */
    TOKEN_SET_NL,  /* one character, perhaps a line feed */
    TOKEN_NOT,     /* [^...] to which a line feed can be added to exclude it */
    TOKEN_ASSERT,  /* ^ $ \b \B */
    TOKEN_BACKREF, /* \1 to \9 */
    TOKEN_OPEN,    /* ( (?: (?> (?| (?<name> */
    TOKEN_LOOK,    /* (?= (?! (?<= (?<! */
    TOKEN_CLOSE,
    TOKEN_ALT,
    TOKEN_QUANT,
    TOKEN_CASELESS, /* (?i), (?-i) and the like */
    TOKEN_OTHER,
};

struct token {
    enum token_kind kind;
    size_t at, len; /* in the pattern */
    char bytes[4];  /* of a TOKEN_CHAR, in UTF-8 */
    size_t n_bytes;
    bool can_be_zero; /* of a TOKEN_QUANT */
};

struct token_reader {
    const char *pattern;
    size_t len, at;
};

void token_next(struct token_reader *r, struct token *ret);
struct token token_peek(const struct token_reader *r);
