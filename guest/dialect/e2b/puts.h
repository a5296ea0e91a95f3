#pragma once
/*
 * puts: the files of one upload, one after the other, and their entries in the reply. One call at a
 * time; each but puts_free() may block.
 */
#include <jansson.h>
#include <stdint.h>

#include "common/err.h"
#include "dialect/e2b/meta.h"

#define PUTS_REPLY_BYTES (16u * 1024 * 1024) /* of paths and metadata, in one upload's reply */

struct agent;
struct puts;

/* user: of the request, or NULL. announced: as put_begin() has it. */
int puts_new(const struct agent *a, const char *user, uint64_t announced, struct puts **ret,
             struct err *e);
/* The next file. -ERR_INVALID: this upload has written there already. */
int puts_begin(struct puts *p, const char *path, struct err *e);
int puts_data(struct puts *p, const void *data, size_t len, struct err *e);
int puts_end(struct puts *p, const struct meta *m, struct err *e);
/* An array with an entry for each file that was ended; borrowed. */
const json_t *puts_entries(const struct puts *p);
/* A file that was not ended keeps the bytes it has. Accepts NULL. */
void puts_close(struct puts *p);
struct puts *puts_free(struct puts *p); /* memory only; accepts NULL; returns NULL */
