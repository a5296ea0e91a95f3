#pragma once
/*
 * fetch: unpacks an archive of the agent into a directory of this machine while it arrives. The
 * transport pushes and libarchive pulls, so one of them needs a thread of its own.
 */
#include <stddef.h>

#include "common/err.h"
#include "lib/agent/client.h"
#include "lib/project/extract.h"

struct fetch {
    const char *path;  /* in the box */
    const char *names; /* only these names below path, each with a NUL; NULL: all */
    size_t names_bytes;
    struct extract_options to; /* its directory must exist; is_zstd: ask the agent for it */
};

int fetch_run(struct client *c, const struct fetch *f, struct err *e);
