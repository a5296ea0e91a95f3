#pragma once
/*
 * chunk: a queue of pieces of bytes that wait to be written: a command's stdin, or output on its
 * way to a file. Guarded by its owner's lock.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct chunk {
    struct chunk *next;
    size_t len, sent;
    bool is_uncounted; /* stdin: the offsets of writers do not count these bytes */
    char data[];
};

struct chunk_queue {
    struct chunk *first, *last;
    size_t bytes; /* of all chunks, without those that are sent */
};

/* Appends a copy. NULL: out of memory. */
static inline struct chunk *chunk_queue_add(struct chunk_queue *q, const void *data, size_t len)
{
    struct chunk *c = malloc(sizeof(*c) + len);

    if (!c)
        return NULL;
    *c = (struct chunk){.len = len};
    memcpy(c->data, data, len);
    *(q->last ? &q->last->next : &q->first) = c;
    q->last = c;
    q->bytes += len;
    return c;
}

/* Counts n more bytes of the first chunk as sent. True: it was sent to its end, and is freed. */
static inline bool chunk_queue_sent(struct chunk_queue *q, size_t n)
{
    struct chunk *c = q->first;

    c->sent += n;
    q->bytes -= n;
    if (c->sent < c->len)
        return false;
    q->first = c->next;
    if (!q->first)
        q->last = NULL;
    free(c);
    return true;
}

static inline void chunk_free_all(struct chunk *c)
{
    while (c) {
        struct chunk *next = c->next;

        free(c);
        c = next;
    }
}

/* Empties the queue; the caller frees its chunks. */
static inline struct chunk *chunk_queue_take(struct chunk_queue *q)
{
    struct chunk *c = q->first;

    *q = (struct chunk_queue){0};
    return c;
}

static inline void chunk_queue_clear(struct chunk_queue *q)
{
    chunk_free_all(chunk_queue_take(q));
}
