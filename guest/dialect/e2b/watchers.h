#pragma once
/*
 * watchers: those that live from CreateWatcher to RemoveWatcher, by their ids. Thread-safe.
 */
#include <jansson.h>

#include "common/err.h"
#include "dialect/e2b/watcher.h"

#define WATCHERS_MAX 256
#define WATCHERS_ID_BYTES 24 /* "w", twenty lower-case letters and digits, a NUL */

struct watchers;

int watchers_new(struct watchers **ret, struct err *e);
struct watchers *watchers_free(struct watchers *all); /* drops each; accepts NULL; returns NULL */

/* Takes w in any case. -ERR_EXHAUSTED: there are WATCHERS_MAX already. */
int watchers_add_take(struct watchers *all, struct watcher *w, char id[WATCHERS_ID_BYTES],
                      struct err *e);
/* As watcher_take_all(), by id. -ERR_NOT_FOUND; or the watcher's own end. */
int watchers_take(struct watchers *all, const char *id, json_t **ret, struct err *e);
int watchers_remove(struct watchers *all, const char *id, struct err *e);
