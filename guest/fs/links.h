#pragma once
/* links: under which name a file with several names was seen first. One thread. */
#include <sys/types.h>

#include "common/err.h"

#define LINKS_MAX 4000000u

struct links;

int links_new(struct links **ret, struct err *e);
struct links *links_free(struct links *l); /* accepts NULL; returns NULL */
/* *ret_first: the name it was seen under (borrowed), or NULL: it is remembered under this one. */
int links_see(struct links *l, dev_t dev, ino_t ino, const char *name, const char **ret_first,
              struct err *e);
