#pragma once
/*
 * put: one file's new content, written straight into it as E2B's watchers expect: a new file is
 * made, then given to its user, then written (one write, when it is small); one that is there is
 * given to the user and emptied first. No temporary file, no rename, no sync: after a failure the
 * bytes written so far stay.
 *
 * One call at a time per object, from any thread; each may block. The caller is the agent itself:
 * these files are written with its rights. Errors are in the words of envd; those for want of room
 * are -ERR_EXHAUSTED with e->sys ENOSPC.
 */
#include <jansson.h>
#include <stdint.h>

#include "common/err.h"
#include "dialect/e2b/dirs.h"
#include "dialect/e2b/meta.h"
#include "fs/root.h"

#define PUT_BUFFER_BYTES (128 * 1024) /* a smaller file is one write */

struct put;

/* path: absolute. announced: the length of the whole request's body, or 0: for a message. */
int put_begin(struct fs_caller *c, const char *path, const struct owner *o, uint64_t announced,
              struct put **ret, struct err *e);
int put_data(struct put *p, const void *data, size_t len, struct err *e);
/* Writes what is left, and the notes. *ret_entry: {"name","path","type"[,"metadata"]}. */
int put_finish(struct put *p, const struct meta *m, json_t **ret_entry, struct err *e);
/* The upload was cut: writes out the bytes that have come. */
void put_keep(struct put *p);
struct put *put_free(struct put *p); /* accepts NULL; returns NULL */

/* The entry that REST replies have. NULL: out of memory. fd: -1: no notes. */
json_t *put_new_entry(const char *path, int fd);
