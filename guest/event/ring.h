#pragma once
/* ring: a ring buffer of bytes. It has no lock: the owner's guards it. */
#include <stddef.h>

#include "common/err.h"

struct ring {
    char *data;
    size_t cap;
    size_t head; /* where the first byte is */
    size_t len;
};

int ring_init(struct ring *r, size_t cap, struct err *e);
void ring_done(struct ring *r);
/* Makes it larger. No piece from ring_peek() or ring_room() may be in use. */
int ring_grow(struct ring *r, size_t cap, struct err *e);

/* Copies what fits; returns how much. */
size_t ring_put(struct ring *r, const char *data, size_t len);
/* Copies at most len out; returns how much. */
size_t ring_get(struct ring *r, char *data, size_t len);

/*
 * The longest contiguous piece, of data (ring_peek) or of room (ring_room). One side may work on
 * its piece without the lock, since the other side only changes the rest; with the lock it then
 * reports how much it used.
 */
size_t ring_peek(const struct ring *r, const char **ret);
void ring_drop(struct ring *r, size_t len);
size_t ring_room(const struct ring *r, char **ret);
void ring_add(struct ring *r, size_t len);
