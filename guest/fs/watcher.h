#pragma once
/*
 * watcher: one directory being watched for a client, who takes the events when it likes: WatchDir's
 * stream by being woken, CreateWatcher's polls by asking. The loop watches inotify's descriptor, and
 * a worker reads it and looks at the disk; so does who asks for all, for a client that has just
 * written a file expects to be told of it.
 *
 * Events wait in a queue of at most WATCHER_QUEUE_BYTES. A client that leaves more than that, or a
 * kernel that drops some, is the watcher's end: every later question gets the same error.
 * All functions are thread-safe.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "fs/root.h"

#define WATCHER_QUEUE_BYTES (8u * 1024 * 1024)

struct agent;
struct watcher;

struct watcher_options {
    const char *path; /* absolute, a directory; copied */
    bool recursive;
    bool include_entry;
    int64_t keepalive_ms;    /* of silence; 0: no signs of life */
    void (*wake)(void *arg); /* an event waits, or a sign of life is due; NULL: nobody is woken */
    void *arg;
};

/* Blocks. Success: it is watching. */
int watcher_new(const struct agent *a, struct fs_caller *c, const struct watcher_options *o,
                struct watcher **ret, struct err *e);
/* Nobody asks any more; wake is not called after it has returned. Never blocks. Accepts NULL. */
void watcher_drop(struct watcher *w);

/* For who takes all: it must not go meanwhile. */
struct watcher *watcher_ref(struct watcher *w);
void watcher_unref(struct watcher *w);

enum watcher_state {
    WATCHER_NOTHING = 0,
    WATCHER_EVENT,     /* *ret_event: a FilesystemEvent, the caller's */
    WATCHER_KEEPALIVE, /* say that we are there */
};
/* Or a negative error: its end. */
int watcher_next(struct watcher *w, json_t **ret_event, struct err *e);
/* All that waits, and what has happened until now, as an array (the caller's); empty: nothing.
 * Blocks. */
int watcher_take_all(struct watcher *w, json_t **ret, struct err *e);
