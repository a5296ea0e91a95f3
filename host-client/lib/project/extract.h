#pragma once
/*
 * extract: a tar archive that comes from a box, put into a directory of this machine. The box is
 * not trusted: no absolute names, no "..", nothing is written through a link, no devices, sockets
 * or set-id bits; names are created relative to directory descriptors.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

#define EXTRACT_MAX_ENTRIES 10000000ULL
#define EXTRACT_TEMP_PREFIX ".bellhop-tmp-get-" /* until it is whole, a file has such a name */

struct extract_options {
    const char *dir;    /* where to */
    const char *prefix; /* before every name, or NULL */
    bool is_zstd;       /* else a plain tar: no other compression is understood */
    /* The archive must be this one entry, by name and type (S_IFREG or S_IFLNK), and nothing else:
     * -ERR_DATA_LOSS otherwise, and then nothing has changed. NULL: any number. */
    const char *only;
    mode_t only_type;
    /* Asked of each entry before anything is made: a negative error ends it all. Or NULL. */
    int (*accept)(void *arg, const char *name, mode_t type, uint64_t size, struct err *e);
    void *arg;
};

/* Reads from fd to its end. Each file is put in place whole; a hard link leads only to a file of the
 * same archive. */
int extract_stream(int fd, const struct extract_options *o, struct err *e);
