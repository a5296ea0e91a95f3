#pragma once
/* watch_scan: guest/fs/watch.c's own parts: its state, and looking at the disk. Not for others. */
#include <stdint.h>
#include <sys/types.h>

#include "fs/inotify_feed.h"
#include "fs/watch.h"
#include "fs/watch_dirs.h"

struct watch_todo {
    char *rel;
    bool is_told; /* as created */
};

struct fs_watch {
    struct fs_caller *caller;
    struct fs_watch_options o;
    struct fs_feed *feed; /* NULL only while it is made anew */
    struct watch_dirs *dirs;

    char *root_path; /* of the watched directory; no descriptor: it would hide the removal */
    char *shown;     /* as the caller called it */
    char *only;      /* one file: its name in the directory; else NULL */
    dev_t dev;       /* the directory's identity */
    ino_t ino;
    int parent_wd; /* the directory that holds the watched one, or -1 */
    char *root_name;

    bool is_starting; /* a limit is an error */
    bool is_quiet;    /* what is there is not told */
    bool must_resync;
    bool is_ahead; /* a scan found a directory elsewhere than the events not yet read say */
    const char *end;

    char *raw; /* events not yet handled */
    size_t raw_len;
    uint32_t pending_cookie; /* half a rename at the front */
    int64_t pending_ms;      /* since when; 0: none */

    char *last_from, *last_to; /* the last rename; NULL: none */
    bool is_last_dir;

    struct watch_todo *todo; /* places to look at */
    size_t n_todo, cap_todo;
};

void watch_tell(struct fs_watch *w, enum fs_watch_type type, const char *rel, const char *from_rel,
                bool is_dir, bool is_moved);
void watch_tell_unwatched(struct fs_watch *w, const char *rel, const struct err *why);

/* Names of ours, what is excluded, and everything but the one file. */
bool watch_is_hidden(const struct fs_watch *w, const char *rel, const char *name, bool is_dir);

/* -ERR_NOT_FOUND when the path leads elsewhere by now. */
int watch_open_root(struct fs_watch *w, int *ret_fd, struct err *e);

/* dir's path and a name below it. Clears `out` first. */
int watch_rel(const struct watch_dir *dir, const char *name, struct buf *out, struct err *e);

/* Watches the directory at this place and all below; tells what it finds. */
int watch_scan(struct fs_watch *w, struct watch_dir *parent, const char *name, const char *rel,
               bool is_told, struct err *e);

/* Later: look whether something is at this place, tell, scan. */
void watch_todo_add(struct fs_watch *w, const char *rel, bool is_told);
int watch_todo_run(struct fs_watch *w, struct err *e);
/* Whether something is there; 0 also when it can't be known. */
bool watch_exists(struct fs_watch *w, const char *rel, bool *ret_is_dir);

void watch_drop(struct fs_watch *w, struct watch_dir *dir);
