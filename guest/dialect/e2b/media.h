#pragma once
/* media: what a file's name says of it, for the headers of a download. Pure functions. */

/* "text/html; charset=utf-8" for "a.html"; application/octet-stream for what is not known. */
const char *media_type(const char *path);
/* inline; filename=NAME, in quotes unless it is a token, or, when it is not ASCII,
 * filename*=utf-8''...; owned. NULL: no memory. */
char *media_disposition(const char *name);
