#pragma once
/*
 * watcher: a watch that runs. The loop waits for the kernel's events, a job of the pool reads them
 * and looks at the disk, and they wait for the consumer in a bounded queue. A consumer is woken, or
 * asks: fs_watcher_catch_up() reads what has happened until now on the consumer's thread.
 *
 * Unless raw, FS_WATCH_MODIFIED is not repeated while it is the last event of its path in the
 * queue. A full queue drops events. Without strict, the consumer is told FS_WATCH_OVERFLOW once it
 * has taken the queue, and an error of the watch comes behind the queue, too. With strict, either
 * ends the watcher at once: the queue is discarded, and every later question gets the same error.
 *
 * All functions are thread-safe.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/list.h"
#include "fs/watch.h"

#define FS_WATCHER_MAX_UNWATCHED 100 /* directories named at the start; the others are counted */

struct loop;
struct pool;
struct fs_watcher;

struct fs_watcher_options {
    struct loop *loop;
    struct pool *pool;
    bool recursive;
    bool raw;
    bool strict;
    unsigned batch_ms;    /* between two readings: events that came meanwhile are read at once */
    size_t queue_bytes;   /* the queue's maximum, by these weights: */
    size_t event_bytes;   /* of an event, besides its paths */
    size_t extra_bytes;   /* of its extra */
    int64_t keepalive_ms; /* of silence, then FS_WATCHER_KEEPALIVE; 0: never */

    /* Called by the worker. */
    bool (*is_excluded)(void *arg, const char *rel, bool is_dir); /* or NULL; as fs_watch_sink's */
    void *(*look)(void *arg, const struct fs_watch_event *ev);    /* or NULL: an event's extra */
    void (*extra_free)(void *extra);
    void *arg; /* owned by the watcher once it is made */
    void (*arg_free)(void *arg);

    /* Something can be taken. Called by any thread, but not after fs_watcher_drop(). Must not
     * block. */
    void (*wake)(void *wake_arg); /* or NULL */
    void *wake_arg;
};

/* On failure o->arg stays the caller's. */
int fs_watcher_new(const struct fs_watcher_options *o, struct fs_watcher **ret, struct err *e);

/* One of these, once. On failure the watcher is only to be dropped. The first blocks until the tree
 * is watched; the second leaves that to the pool, and fs_watcher_next() tells FS_WATCHER_STARTED or
 * the error. user, workdir: as fs_caller_new() has them. */
int fs_watcher_start(struct fs_watcher *w, struct fs_caller *c, const char *path, struct err *e);
int fs_watcher_start_later(struct fs_watcher *w, struct fs_root *root, const char *user,
                           const char *workdir, const char *path, struct err *e);

/* The consumer's reference ends; never blocks. Accepts NULL. */
void fs_watcher_drop(struct fs_watcher *w);

/* For fs_watcher_catch_up() while another thread may drop it. */
struct fs_watcher *fs_watcher_ref(struct fs_watcher *w);
void fs_watcher_unref(struct fs_watcher *w);

/* Blocks. Everything that has happened until now is in the queue then. */
void fs_watcher_catch_up(struct fs_watcher *w);

/* A queued event, with its own copies. */
struct fs_watcher_event {
    struct list_link link;
    struct fs_watch_event ev;
    bool is_slow; /* FS_WATCH_OVERFLOW: the queue was full, the kernel's was not */
    void *extra;  /* the consumer may take it */
    size_t weight;
};
void fs_watcher_event_free(struct fs_watcher *w, struct fs_watcher_event *x);

enum fs_watcher_state {
    FS_WATCHER_NOTHING = 0,
    FS_WATCHER_STARTED, /* once; only after fs_watcher_start_later() */
    FS_WATCHER_EVENT,   /* *ret: the caller's */
    FS_WATCHER_KEEPALIVE,
    FS_WATCHER_ENDED, /* every time from now on; fs_watcher_end() says why */
};
/* Or a negative error: its end. Never blocks. */
int fs_watcher_next(struct fs_watcher *w, struct fs_watcher_event **ret, struct err *e);

/* After FS_WATCHER_STARTED: directories that are watched, and FS_WATCH_UNWATCHED events of the
 * start. */
struct fs_watcher_start {
    size_t n_dirs;
    uint64_t n_unwatched;
    struct list unwatched; /* of struct fs_watcher_event */
};
const struct fs_watcher_start *fs_watcher_started(const struct fs_watcher *w);
const char *fs_watcher_end(const struct fs_watcher *w); /* as fs_watch_end() */
