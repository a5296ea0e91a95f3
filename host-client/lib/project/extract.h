#pragma once
/*
 * extract: unpacks a tar archive from a box into a directory of this machine. The box is not
 * trusted: no absolute names, no "..", no write through a link, no devices, sockets or set-id
 * bits. Names are created relative to directory descriptors.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

#define EXTRACT_MAX_ENTRIES 10000000ULL
#define EXTRACT_TEMP_PREFIX ".bellhop-tmp-get-" /* name of an unfinished file */

struct extract_options {
    const char *dir;    /* the target */
    const char *prefix; /* before every name, or NULL */
    bool is_zstd;       /* neither: a plain tar; no other compression is understood */
    bool is_gzip;
    /* The archive must hold this one entry, by name and type (S_IFREG or S_IFLNK), and nothing
     * else: otherwise -ERR_DATA_LOSS, and nothing has changed. NULL: any number. */
    const char *only;
    mode_t only_type;
    /* Called for each entry before it is made; a negative error ends the extraction. Or NULL. */
    int (*accept)(void *arg, const char *name, mode_t type, uint64_t size, struct err *e);
    void *arg;
};

/* Reads from fd to its end. Each file is put in place whole. A hard link leads only to a file
 * of the same archive. */
int extract_stream(int fd, const struct extract_options *o, struct err *e);
