#pragma once
/*
 * extract: a tar archive that comes from a box, put into a directory of this machine. The box is
 * not trusted: no absolute names, no "..", nothing is written through a link, no devices, sockets
 * or set-id bits; names are created relative to directory descriptors.
 */
#include <stdint.h>

#include "common/err.h"

#define EXTRACT_MAX_ENTRIES 10000000ULL

/* Reads from fd to its end. `prefix` (or NULL) is put before every name. */
int extract_stream(int fd, const char *dir, const char *prefix, struct err *e);
