#pragma once
/*
 * put: the files of one upload, one after the other, and their entries in the reply. A file's new content is written
 * straight into it as E2B's watchers expect: a new file is made, then given to its user, then written (one write, when
 * it is small); one that is there is given to the user and emptied first. No temporary file, no rename, no sync: after
 * a failure the bytes written so far stay.
 *
 * One call at a time per object, from any thread; each but puts_free() may block. The files are written with the
 * agent's rights. Errors are in the words of envd; those for want of room are -ERR_EXHAUSTED with e->sys ENOSPC.
 */
#include <jansson.h>
#include <stdint.h>

#include "common/err.h"
#include "dialect/e2b/meta.h"

#define PUT_BUFFER_BYTES (128 * 1024)        /* a smaller file is one write */
#define PUTS_REPLY_BYTES (16u * 1024 * 1024) /* of paths and metadata, in one upload's reply */

struct agent;
struct puts;

/* user: of the request, or NULL. announced: the length of the whole request's body, or 0: for a message. */
int puts_new(const struct agent *a, const char *user, uint64_t announced, struct puts **ret,
             struct err *e);
/* The next file. -ERR_INVALID: this upload has written there already. */
int puts_begin(struct puts *p, const char *path, struct err *e);
int puts_data(struct puts *p, const void *data, size_t len, struct err *e);
/* Writes what is left, and the notes. */
int puts_end(struct puts *p, const struct meta *m, struct err *e);
/* An array with an entry for each file that was ended; borrowed. */
const json_t *puts_entries(const struct puts *p);
/* A file that was not ended keeps the bytes that have come. Accepts NULL. */
void puts_close(struct puts *p);
struct puts *puts_free(struct puts *p); /* memory only; accepts NULL; returns NULL */

/* The entry that REST replies have: {"name","path","type"[,"metadata"]}. NULL: out of memory. fd: -1: no notes. */
json_t *put_new_entry(const char *path, int fd);
