#pragma once
/*
 * notify: the kernel's own events on a directory, one for one and in its order, for a protocol whose
 * clients count them (watch.h is for those who want to know what changed). With `recursive`, all
 * below it is watched too, and what comes: a new directory is watched before it is told; what is in
 * it already is told as created, and as written unless it is empty.
 *
 * Nothing here waits for events: the descriptor is for the caller's epoll. One thread at a time;
 * fs_notify_new() and fs_notify_run() touch the disk, with the rights of the calling thread.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"
#include "fs/root.h"

#define FS_NOTIFY_MAX_DIRS 250000 /* as FS_WATCH_MAX_DIRS */
#define FS_NOTIFY_MAX_DEPTH 256   /* directories below the watched one */
#define FS_NOTIFY_MAX_EARLY \
    1000 /* names that a look into new directories may tell before the kernel
                                     does, which are then told once; past that twice */

enum fs_notice {
    FS_NOTICE_CREATE, /* or moved here */
    FS_NOTICE_RENAME, /* moved away */
    FS_NOTICE_CHMOD,  /* mode, owner, times, attributes */
    FS_NOTICE_WRITE,
    FS_NOTICE_REMOVE,
};

struct fs_notify_options {
    bool recursive;
    /* rel: from the watched directory; "." for itself. */
    void (*told)(void *arg, enum fs_notice what, const char *rel);
    void *arg;
};

struct fs_notify;

/* The root and caller must outlive it. */
int fs_notify_new(struct fs_caller *c, const char *path, const struct fs_notify_options *o,
                  struct fs_notify **ret, struct err *e);
struct fs_notify *fs_notify_free(struct fs_notify *n); /* accepts NULL; returns NULL */
int fs_notify_fd(const struct fs_notify *n);

/* Tells what has happened. An error ends it: -ERR_EXHAUSTED when the kernel dropped events, or has
 * no more watches. */
int fs_notify_run(struct fs_notify *n, struct err *e);
