#pragma once
/*
 * secretfiles: guesses whether a file holds a secret, by its name; for npm's and pip's settings
 * also by its content. The guess errs on the side of leaving out: it is applied only to files that
 * git does not track, and files left out are listed.
 */
#include <stdbool.h>

/* name: the last part of its path; path: where it is beneath the directory `root`. */
bool secretfiles_match(const char *name, int root, const char *path);
