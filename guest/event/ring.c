#include "event/ring.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int ring_init(struct ring *r, size_t cap, struct err *e)
{
    char *data = malloc(cap);

    if (!data)
        return err_oom(e);
    *r = (struct ring){.data = data, .cap = cap};
    return 0;
}

void ring_done(struct ring *r)
{
    free(r->data);
    *r = (struct ring){0};
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t ring_peek(const struct ring *r, const char **ret)
{
    *ret = r->data + r->head;
    return min_size(r->len, r->cap - r->head);
}

void ring_drop(struct ring *r, size_t len)
{
    assert(len <= r->len);
    r->len -= len;
    r->head = (r->head + len) % r->cap;
}

size_t ring_room(const struct ring *r, char **ret)
{
    size_t tail = (r->head + r->len) % r->cap;

    *ret = r->data + tail;
    return min_size(r->cap - r->len, r->cap - tail);
}

void ring_add(struct ring *r, size_t len)
{
    assert(len <= r->cap - r->len);
    r->len += len;
}

size_t ring_put(struct ring *r, const char *data, size_t len)
{
    size_t done = 0;

    while (done < len) {
        char *room;
        size_t n = min_size(ring_room(r, &room), len - done);

        if (!n)
            break;
        memcpy(room, data + done, n);
        ring_add(r, n);
        done += n;
    }
    return done;
}

size_t ring_get(struct ring *r, char *data, size_t len)
{
    size_t done = 0;

    while (done < len) {
        const char *piece;
        size_t n = min_size(ring_peek(r, &piece), len - done);

        if (!n)
            break;
        memcpy(data + done, piece, n);
        ring_drop(r, n);
        done += n;
    }
    return done;
}

int ring_grow(struct ring *r, size_t cap, struct err *e)
{
    struct ring bigger;
    int ret = ring_init(&bigger, cap, e);

    if (ret < 0)
        return ret;
    bigger.len = ring_get(r, bigger.data, r->len);
    ring_done(r);
    *r = bigger;
    return 0;
}
