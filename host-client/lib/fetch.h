#pragma once
/*
 * fetch: an archive that the agent sends, put into a directory of this machine while it comes: the
 * transport pushes, libarchive pulls, so one of them has a thread of its own.
 */
#include <stddef.h>

#include "common/err.h"
#include "lib/client.h"

struct fetch {
    const char *path;  /* in the box */
    const char *query; /* "format=tar" */
    const char *names; /* only these below path, each with a NUL; NULL: all */
    size_t names_bytes;
    const char *dir;    /* here; it must be there */
    const char *prefix; /* before every name, or NULL */
};

int fetch_run(struct client *c, const struct fetch *f, struct err *e);
