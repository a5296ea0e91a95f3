#include "fs/links.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct link {
    dev_t dev;
    ino_t ino;
    char *name; /* NULL: a free slot */
};

/* Open addressing, at most half full. */
struct links {
    struct link *slots;
    size_t n;
    size_t cap; /* a power of two */
};

int links_new(struct links **ret, struct err *e)
{
    struct links *l = calloc(1, sizeof(*l));

    if (!l)
        return err_oom(e);
    *ret = l;
    return 0;
}

struct links *links_free(struct links *l)
{
    if (!l)
        return NULL;
    for (size_t i = 0; i < l->cap; i++)
        free(l->slots[i].name);
    free(l->slots);
    free(l);
    return NULL;
}

static struct link *links_find(struct link *slots, size_t cap, dev_t dev, ino_t ino)
{
    uint64_t h = ((uint64_t)ino ^ (uint64_t)dev << 32) * 0x9e3779b97f4a7c15ULL;
    size_t at = (size_t)(h >> 20) & (cap - 1);

    while (slots[at].name && (slots[at].dev != dev || slots[at].ino != ino))
        at = (at + 1) & (cap - 1);
    return &slots[at];
}

static int links_grow(struct links *l, struct err *e)
{
    size_t cap = l->cap ? l->cap * 2 : 256;
    struct link *slots = calloc(cap, sizeof(*slots));

    if (!slots)
        return err_oom(e);
    for (size_t i = 0; i < l->cap; i++)
        if (l->slots[i].name)
            *links_find(slots, cap, l->slots[i].dev, l->slots[i].ino) = l->slots[i];
    free(l->slots);
    l->slots = slots;
    l->cap = cap;
    return 0;
}

int links_see(struct links *l, dev_t dev, ino_t ino, const char *name, const char **ret_first,
              struct err *e)
{
    struct link *slot;
    int r;

    if (l->n >= LINKS_MAX)
        return err_set(e, ERR_EXHAUSTED, "more than %u files have several names", LINKS_MAX);
    r = l->n * 2 >= l->cap ? links_grow(l, e) : 0;
    if (r < 0)
        return r;
    slot = links_find(l->slots, l->cap, dev, ino);
    *ret_first = slot->name;
    if (slot->name)
        return 0;
    slot->name = strdup(name);
    if (!slot->name)
        return err_oom(e);
    slot->dev = dev;
    slot->ino = ino;
    l->n++;
    return 0;
}
