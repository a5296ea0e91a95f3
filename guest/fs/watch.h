#pragma once
/*
 * watch: what happens to a directory and all below it, or to one file, told in order. The kernel's
 * inotify says it; this module keeps the directories apart, follows them when they move, looks into
 * new ones (what happened there before they could be watched is told as created), and pairs renames.
 *
 * What is promised: after every change has been told, a client that did as it was told, and began
 * with what was there when fs_watch_new() returned, has the tree that is there; where that can't be
 * promised it is told FS_WATCH_OVERFLOW: look again. Something that is there may be told as created
 * twice. What is written through a memory map is not seen, as ever with inotify.
 *
 * Nothing here waits for events: the descriptor is for the caller's epoll. One thread at a time;
 * fs_watch_new() and fs_watch_run() touch the disk. They take the caller's identity themselves.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"
#include "fs/root.h"

#define FS_WATCH_MAX_DIRS 250000 /* about 200 bytes of ours each, and 1 KiB of the kernel's */
#define FS_WATCH_MAX_DEPTH 256   /* directories below the watched one; a descriptor each */
#define FS_WATCH_PAIR_MS 50      /* so long the other half of a rename is waited for */

enum fs_watch_type {
    FS_WATCH_CREATED,
    FS_WATCH_REMOVED,
    FS_WATCH_RENAMED,    /* what was at `path` before is gone */
    FS_WATCH_MODIFIED,   /* bytes or size; not while the same was told and nothing else since */
    FS_WATCH_WRITTEN,    /* closed by one who could write, or arrived whole */
    FS_WATCH_ATTRIBUTES, /* mode, owner, times, links */
    FS_WATCH_UNWATCHED,  /* a directory below which nothing will be told; error says why */
    FS_WATCH_OVERFLOW,   /* something was lost: look again; what changes from now on is told */
};

struct fs_watch_event {
    enum fs_watch_type type;
    const char *path; /* as asked for plus what follows; "" with FS_WATCH_OVERFLOW */
    const char *from; /* FS_WATCH_RENAMED */
    bool is_dir;
    bool is_moved; /* created: came from elsewhere; removed: went elsewhere */
    const struct err *error;
};

struct fs_watch_sink {
    void (*event)(void *arg, const struct fs_watch_event *ev);
    bool (*is_gone)(void *arg);                                   /* stop: nobody listens */
    bool (*is_excluded)(void *arg, const char *rel, bool is_dir); /* or NULL; rel: from the root */
    void *arg;
};

struct fs_watch_options {
    bool recursive;
    size_t max_dirs; /* 0: FS_WATCH_MAX_DIRS */
    struct fs_watch_sink sink;
};

struct fs_watch;

/*
 * Success: it is really watching. c is referenced. Directories that can't be read are told as
 * FS_WATCH_UNWATCHED before it returns, but for the first. -ERR_EXHAUSTED names the kernel's limit.
 */
int fs_watch_new(struct fs_caller *c, const char *path, const struct fs_watch_options *o,
                 struct fs_watch **ret, struct err *e);
struct fs_watch *
fs_watch_free(struct fs_watch *w); /* accepts NULL; returns NULL; may take a while */

int fs_watch_fd(const struct fs_watch *w); /* may be another one after each run */
size_t fs_watch_dirs(const struct fs_watch *w);

enum fs_watch_state {
    FS_WATCH_IDLE,    /* run it when the descriptor is readable */
    FS_WATCH_PENDING, /* run it again within FS_WATCH_PAIR_MS, readable or not */
    FS_WATCH_ENDED,   /* fs_watch_end() says why */
};

/* Tells what has happened. */
int fs_watch_run(struct fs_watch *w, enum fs_watch_state *ret, struct err *e);
const char *fs_watch_end(const struct fs_watch *w); /* "removed", "moved", "unmounted"; or NULL */
