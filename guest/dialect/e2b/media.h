#pragma once
/* media: the headers of a download: type and name, by the file's name, and the coding, by the client's wish. Pure functions. */
#include <stdbool.h>

/* "text/html; charset=utf-8" for "a.html"; application/octet-stream for what is not known. */
const char *media_type(const char *path);
/* inline; filename=NAME, in quotes unless it is a token, or, when it is not ASCII,
 * filename*=utf-8''...; owned. NULL: no memory. */
char *media_disposition(const char *name);

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
