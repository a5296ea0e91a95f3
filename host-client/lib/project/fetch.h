#pragma once
/*
 * fetch: an archive that the agent sends, put into a directory of this machine while it comes: the
 * transport pushes, libarchive pulls, so one of them has a thread of its own.
 */
#include <stddef.h>

#include "common/err.h"
#include "lib/agent/client.h"
#include "lib/project/extract.h"

struct fetch {
    const char *path;  /* in the box */
    const char *names; /* only these below path, each with a NUL; NULL: all */
    size_t names_bytes;
    struct extract_options to; /* its directory must be there; is_zstd: that is asked for */
};

int fetch_run(struct client *c, const struct fetch *f, struct err *e);
