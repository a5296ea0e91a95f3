#pragma once
/*
 * guests: figures of the guest agents, summed by the owner of their boxes: processor time, memory, commands, bytes,
 * errors. They are read when Prometheus asks, at most every GUESTS_EVERY_MS and for GUESTS_READ_MS. Only boxes that run
 * are asked, and that is no use of them; a paused box counts as it was before. Thread-safe.
 */
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"

#define GUESTS_EVERY_MS 2000
#define GUESTS_READ_MS 3000  /* for all of them; those that are left come first the next time */
#define GUESTS_ANSWER_MS 500 /* for one */
#define GUESTS_MAX 10000     /* boxes */
#define GUESTS_OWNERS_MAX 1024

struct bh_ctx;
struct daemon;
struct guests;

int guests_new(struct daemon *d, struct guests **ret, struct err *e);
struct guests *guests_free(struct guests *g); /* accepts NULL; returns NULL */
/* Adds the figures to the text, and reads them before if they are old. Blocks. */
int guests_add_text(struct guests *g, struct bh_ctx *ctx, struct buf *out, struct err *e);
