#pragma once
/*
 * pipe: a bounded ring of bytes between the thread that receives an archive and the one that
 * reads it. One writer, one reader.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"

struct pipe_ring;

int pipe_ring_new(size_t size, struct pipe_ring **ret, struct err *e);
struct pipe_ring *pipe_ring_free(struct pipe_ring *p); /* accepts NULL; returns NULL */

/* Waits for room. False: the reader has gone. */
bool pipe_ring_write(struct pipe_ring *p, const void *data, size_t len);
void pipe_ring_end(struct pipe_ring *p);   /* the writer: no more */
void pipe_ring_abort(struct pipe_ring *p); /* the writer: never mind; the reader gets an error */

/* The reader: a piece that stays until the next call; 0 at the end; -ERR_CANCELED after abort. */
ssize_t pipe_ring_read(struct pipe_ring *p, const void **ret_data, struct err *e);
/* The reader: waits until `want` bytes are there or the end; looks, takes nothing. */
ssize_t pipe_ring_peek(struct pipe_ring *p, size_t want, const void **ret_data, struct err *e);
/* The reader has gone, or, from any thread, is to go: its next read is -ERR_CANCELED. */
void pipe_ring_close(struct pipe_ring *p);
