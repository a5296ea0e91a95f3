#pragma once
/* chunk: a piece of bytes in a list, for what waits to be written. */
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct chunk {
    struct chunk *next;
    size_t len, sent;
    bool is_uncounted; /* stdin: no part of what callers count by offset */
    char data[];
};

/* NULL when out of memory. */
static inline struct chunk *chunk_new(const void *data, size_t len)
{
    struct chunk *c = malloc(sizeof(*c) + len);

    if (!c)
        return NULL;
    *c = (struct chunk){.len = len};
    memcpy(c->data, data, len);
    return c;
}

static inline void chunk_free_all(struct chunk *c)
{
    while (c) {
        struct chunk *next = c->next;

        free(c);
        c = next;
    }
}
