#pragma once
/* links: remembers the first name of each file that has several. One thread. */
#include <sys/types.h>

#include "common/err.h"

#define LINKS_MAX 4000000u

struct links;

int links_new(struct links **ret, struct err *e);
struct links *links_free(struct links *l); /* accepts NULL; returns NULL */
/* *ret_first: the name that the file was first seen under (borrowed), or NULL: it is this one. */
int links_see(struct links *l, dev_t dev, ino_t ino, const char *name, const char **ret_first,
              struct err *e);
