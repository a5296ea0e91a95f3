#pragma once
/*
 * watchers: directories that E2B's clients watch, as FilesystemEvent messages: one for each event
 * of the kernel. WatchDir's stream is woken; CreateWatcher's live in a table from then to
 * RemoveWatcher, and are polled by id. A client that leaves more than WATCHERS_QUEUE_BYTES, or a
 * kernel that drops events, ends the watcher: every later question gets the same error.
 * Thread-safe.
 */
#include <jansson.h>
#include <stdbool.h>

#include "common/err.h"
#include "fs/watcher.h"

#define WATCHERS_MAX 256
#define WATCHERS_ID_BYTES 24 /* "w", twenty lower-case letters and digits, a NUL */
#define WATCHERS_QUEUE_BYTES (8u * 1024 * 1024)

struct agent;

struct watchers_options {
    const char *path; /* absolute, a directory */
    bool recursive;
    bool include_entry;
    int64_t keepalive_ms;         /* of silence; 0: no signs of life */
    void (*wake)(void *wake_arg); /* or NULL */
    void *wake_arg;
};

/* Blocks. Success: it is watching. c: the agent itself. */
int watchers_watch(const struct agent *a, struct fs_caller *c, const struct watchers_options *o,
                   struct fs_watcher **ret, struct err *e);
/* As fs_watcher_next(), with the event as a FilesystemEvent (the caller's) and errors in envd's
 * words. */
int watchers_next(struct fs_watcher *w, json_t **ret_event, struct err *e);

struct watchers; /* the table */

int watchers_new(struct watchers **ret, struct err *e);
struct watchers *watchers_free(struct watchers *all); /* drops each; accepts NULL; returns NULL */

/* Takes w in any case. -ERR_EXHAUSTED: there are WATCHERS_MAX already. */
int watchers_add_take(struct watchers *all, struct fs_watcher *w, char id[WATCHERS_ID_BYTES],
                      struct err *e);
/* All events until now as an array, which is empty if there were none. Blocks. -ERR_NOT_FOUND; or
 * the watcher's own end. */
int watchers_take(struct watchers *all, const char *id, json_t **ret, struct err *e);
int watchers_remove(struct watchers *all, const char *id, struct err *e);
