#include "dialect/e2b/watchers.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/io.h"

#define ID_LETTERS 20

struct slot {
    char id[WATCHERS_ID_BYTES]; /* "": free */
    struct watcher *watcher;
};

struct watchers {
    pthread_mutex_t lock; /* guards the slots */
    struct slot slots[WATCHERS_MAX];
};

int watchers_new(struct watchers **ret, struct err *e)
{
    struct watchers *all = calloc(1, sizeof(*all));

    if (!all)
        return err_oom(e);
    (void)pthread_mutex_init(&all->lock, NULL);
    *ret = all;
    return 0;
}

struct watchers *watchers_free(struct watchers *all)
{
    if (!all)
        return NULL;
    for (size_t i = 0; i < WATCHERS_MAX; i++)
        watcher_drop(all->slots[i].watcher);
    (void)pthread_mutex_destroy(&all->lock);
    free(all);
    return NULL;
}

static int make_id(char id[WATCHERS_ID_BYTES], struct err *e)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    unsigned char random[ID_LETTERS];
    int r = io_random(random, sizeof(random), e);

    if (r < 0)
        return r;
    id[0] = 'w';
    for (size_t i = 0; i < ID_LETTERS; i++)
        id[i + 1] = letters[random[i] % (sizeof(letters) - 1)];
    id[ID_LETTERS + 1] = '\0';
    return 0;
}

/* Called with the lock. "" finds a free one. */
static struct slot *find(struct watchers *all, const char *id)
{
    for (size_t i = 0; i < WATCHERS_MAX; i++)
        if (strcmp(all->slots[i].id, id) == 0)
            return &all->slots[i];
    return NULL;
}

static int unknown(const char *id, struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "watcher with id %.64s not found", id);
}

int watchers_add_take(struct watchers *all, struct watcher *w, char id[WATCHERS_ID_BYTES],
                      struct err *e)
{
    struct slot *slot = NULL;
    int r = make_id(id, e);

    if (r == 0) {
        (void)pthread_mutex_lock(&all->lock);
        slot = find(all, "");
        if (slot) {
            (void)memcpy(slot->id, id, WATCHERS_ID_BYTES);
            slot->watcher = w;
        }
        (void)pthread_mutex_unlock(&all->lock);
    }
    if (slot)
        return 0;
    watcher_drop(w);
    return r < 0 ? r : err_set(e, ERR_EXHAUSTED, "there are %d watchers already", WATCHERS_MAX);
}

int watchers_take(struct watchers *all, const char *id, json_t **ret, struct err *e)
{
    struct watcher *w = NULL;
    struct slot *slot;
    int r;

    (void)pthread_mutex_lock(&all->lock);
    slot = *id ? find(all, id) : NULL;
    if (slot)
        w = watcher_ref(slot->watcher);
    (void)pthread_mutex_unlock(&all->lock);
    if (!w)
        return unknown(id, e);
    r = watcher_take_all(w, ret, e);
    watcher_unref(w);
    return r;
}

int watchers_remove(struct watchers *all, const char *id, struct err *e)
{
    struct watcher *w = NULL;
    struct slot *slot;

    (void)pthread_mutex_lock(&all->lock);
    slot = *id ? find(all, id) : NULL;
    if (slot) {
        w = slot->watcher;
        *slot = (struct slot){0};
    }
    (void)pthread_mutex_unlock(&all->lock);
    if (!w)
        return unknown(id, e);
    watcher_drop(w);
    return 0;
}
