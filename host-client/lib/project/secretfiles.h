#pragma once
/*
 * secretfiles: does a file look like it holds a secret? By its name; for npm's and pip's settings
 * also by what is in it. A guess that errs on the side of leaving out: it is asked only of
 * files that git does not track, and what is left out is listed.
 */
#include <stdbool.h>

/* name: the last part of its path; path: where it is beneath the directory `root`. */
bool secretfiles_match(const char *name, int root, const char *path);
