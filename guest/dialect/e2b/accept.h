#pragma once
/* accept: which coding of a reply's body a client asks for. Pure functions. */
#include <stdbool.h>

enum coding {
    CODING_IDENTITY,
    CODING_GZIP,
    CODING_NONE, /* nothing that there is, is acceptable */
};

/*
 * header: the value of Accept-Encoding, or NULL. gzip is for those who ask for it and nothing else,
 * or like it better than identity: clients list it with others as a matter of course, and bytes
 * that go to them as they are cost no processor time at either end.
 * is_whole: false: only identity will do, for a part has to be one of the file's own bytes.
 */
enum coding accept_coding(const char *header, bool is_whole);
