#pragma once
/*
 * watch: events of a directory and all below it, or of one file, in order. The engine reads the
 * kernel's inotify events and knows the path of each directory that it watches. A watch tells them
 * in one of two ways:
 *
 * raw: each event of the kernel, for a protocol whose clients count events. A new directory is
 *     watched before it is told; its entries are told as created, and as modified unless they are
 *     empty.
 * changes (the default): a filter over the events that pairs renames, follows directories that
 *     move and hides the agent's own files. A client that applies every change, beginning with
 *     the tree as it was when fs_watch_new() returned, has the tree that is there. If that can't
 *     be promised, FS_WATCH_OVERFLOW tells it to look again. An entry may be told as created
 *     twice.
 *
 * inotify does not report writes through a memory map.
 *
 * Nothing here waits for events: the descriptor is for the caller's epoll. One thread at a time;
 * fs_watch_new() and fs_watch_run() touch the disk. Changes take the caller's identity, raw events
 * keep the thread's.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"
#include "fs/root.h"

#define FS_WATCH_MAX_DIRS 250000 /* about 200 bytes of ours each, and 1 KiB of the kernel's */
#define FS_WATCH_MAX_DEPTH 256   /* directories below the watched one; a descriptor each */
#define FS_WATCH_PAIR_MS 50      /* the other half of a rename is waited for that long */
/* Raw: names that a look into a new directory may tell before the kernel does. Each is told once;
 * past this bound twice. */
#define FS_WATCH_MAX_EARLY 1000

enum fs_watch_type {
    FS_WATCH_CREATED,
    FS_WATCH_REMOVED,
    FS_WATCH_RENAMED,    /* an entry that was at `path` before is gone */
    FS_WATCH_MODIFIED,   /* bytes or size */
    FS_WATCH_WRITTEN,    /* a writer has closed the file, or it arrived whole */
    FS_WATCH_ATTRIBUTES, /* mode, owner, times, links */
    FS_WATCH_UNWATCHED,  /* nothing below this directory will be told; error says why */
    FS_WATCH_OVERFLOW,   /* events were lost: look again; changes from now on are told */
};

struct fs_watch_event {
    enum fs_watch_type type;
    /* Changes: as asked for plus what follows, "" with FS_WATCH_OVERFLOW. Raw: from the watched
     * directory, "." for itself. */
    const char *path;
    const char *from; /* FS_WATCH_RENAMED */
    bool is_dir;      /* raw: not set */
    bool is_moved;    /* created: came from elsewhere; removed: went elsewhere */
    const struct err *error;
};

struct fs_watch_sink {
    void (*event)(void *arg, const struct fs_watch_event *ev);
    /* Changes only: */
    bool (*is_gone)(void *arg);                                   /* stop: nobody listens */
    bool (*is_excluded)(void *arg, const char *rel, bool is_dir); /* or NULL; rel: from the root */
    void *arg;
};

struct fs_watch_options {
    bool recursive;
    bool raw;
    size_t max_dirs; /* 0: FS_WATCH_MAX_DIRS */
    struct fs_watch_sink sink;
};

struct fs_watch;

/*
 * On success the kernel watches the whole tree already. c is referenced; its root must outlive the
 * watch. Directories below the first that can't be read are told as FS_WATCH_UNWATCHED before it
 * returns. -ERR_EXHAUSTED names the kernel's limit.
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

/* Tells the events until now. An error ends the watch; raw: -ERR_EXHAUSTED if the kernel dropped
 * events. */
int fs_watch_run(struct fs_watch *w, enum fs_watch_state *ret, struct err *e);
const char *fs_watch_end(const struct fs_watch *w); /* "removed", "moved", "unmounted"; or NULL */
