#pragma once
/*
 * watch_own: the parts of a watch, for watch.c (the engine: directories, and the kernel's raw
 * events in order), watch_raw.c (tells each event), watch_changes.c and watch_scan.c (the filter
 * that tells changes). Not for others.
 */
#include <stdint.h>
#include <sys/types.h>

#include "common/buf.h"
#include "common/err.h"
#include "fs/inotify_feed.h"
#include "fs/watch.h"

/* ---- watch.c: the table of directories ---- */

struct watch_dir {
    int wd;                   /* -1: known, but not watched */
    struct watch_dir *parent; /* NULL: the root */
    char *name;               /* "" for the root */
    dev_t dev;                /* the owner's: the directory that the wd is for */
    ino_t ino;
    /* the table's: */
    struct watch_dir *first_child, *next, *prev; /* among the parent's children */
    struct watch_dir *next_of_wd, *next_of_place;
};

/* The directories that a watch has in view, found by the kernel's watch descriptor (wd) and by place (parent and
 * name). A directory that moves keeps everything below it. One thread at a time. */
struct watch_dirs;

int watch_dirs_new(size_t max, struct watch_dirs **ret, struct err *e);
struct watch_dirs *watch_dirs_free(struct watch_dirs *d); /* accepts NULL; returns NULL */
size_t watch_dirs_count(const struct watch_dirs *d);

struct watch_dir *watch_dirs_by_wd(struct watch_dirs *d, int wd);
struct watch_dir *watch_dirs_find(struct watch_dirs *d, const struct watch_dir *parent,
                                  const char *name);
/* rel: "" or "a/b", from the root. */
struct watch_dir *watch_dirs_lookup(struct watch_dirs *d, const char *rel);

/* Below it, or itself. */
bool watch_dirs_is_within(const struct watch_dir *dir, const struct watch_dir *above);

/* The place must be free; wd is -1. -ERR_EXHAUSTED past the maximum. */
int watch_dirs_add(struct watch_dirs *d, struct watch_dir *parent, const char *name,
                   struct watch_dir **ret, struct err *e);
void watch_dirs_set_wd(struct watch_dirs *d, struct watch_dir *dir, int wd);
/* The place must be free. -ERR_INVALID when it is below dir. */
int watch_dirs_move(struct watch_dirs *d, struct watch_dir *dir, struct watch_dir *parent,
                    const char *name, struct err *e);
/* With all below; `gone` (may be NULL) is called for each that has a wd. */
void watch_dirs_drop(struct watch_dirs *d, struct watch_dir *dir, void (*gone)(void *arg, int wd),
                     void *arg);

/* Calls fn for each directory without a wd among dir and all below. fn must not change the
 * table. */
void watch_dirs_unwatched(const struct watch_dirs *d, const struct watch_dir *dir,
                          void (*fn)(void *arg, const struct watch_dir *dir), void *arg);

/* Appends the path from the root, without a slash at either end. */
int watch_dirs_path(const struct watch_dir *dir, struct buf *out, struct err *e);

/* ---- the watch ---- */

/* A raw event. */
struct watch_event {
    struct inotify_event *ev; /* within the buffer; its mask is cleared when it was used up */
    struct watch_dir *dir; /* the directory that it is about; NULL: none that is watched any more */
    bool is_dir;           /* the entry is one */
};

struct watch_todo {
    char *rel;
    bool is_told; /* as created */
};

struct fs_watch {
    struct fs_caller *caller;
    struct fs_watch_options o;
    struct fs_feed *feed; /* NULL only while it is made anew */
    struct watch_dirs *dirs;
    char *shown;    /* the path as the caller gave it */
    char *raw;      /* events not yet handled */
    size_t raw_len; /* of raw_size bytes */
    size_t raw_size;
    const char *end;

    /* watch_raw.c's: */
    struct watch_dir *moved; /* the last event took it away, by a rename with this cookie */
    uint32_t moved_cookie;
    char **early; /* told as created, and the kernel has not said so yet */
    size_t n_early, cap_early;

    /* watch_changes.c's and watch_scan.c's: */
    char *root_path; /* of the watched directory; no descriptor: it would hide the removal */
    char *only;      /* one file: its name in the directory; else NULL */
    dev_t dev;       /* the directory's identity */
    ino_t ino;
    int parent_wd; /* the directory that holds the watched one, or -1 */
    char *root_name;

    bool is_starting; /* a limit is an error */
    bool is_quiet;    /* the first scan: entries are not told */
    bool must_resync;
    bool is_ahead; /* a scan found a directory elsewhere than the events not yet read say */

    uint32_t pending_cookie; /* half a rename at the front of raw */
    int64_t pending_ms;      /* since when; 0: none */

    char *last_from, *last_to; /* the last rename; NULL: none */
    bool is_last_dir;

    struct watch_todo *todo; /* places to look at */
    size_t n_todo, cap_todo;
};

/* ---- watch.c: the engine ---- */

/* Begins to listen; nothing is watched yet. feed_flags: IN_EXCL_UNLINK or 0. */
int watch_open(struct fs_watch *w, uint32_t feed_flags, size_t raw_size, struct err *e);

/* Reads more events behind those in raw. 1: there were some; 0: none, or no room. */
int watch_read(struct fs_watch *w, struct err *e);
bool watch_is_full(const struct fs_watch *w); /* the next event may have no room */
/* The event at this offset of raw; at least one is there. */
struct watch_event watch_event_at(const struct fs_watch *w, size_t at);
static inline size_t watch_event_size(const struct watch_event *x)
{
    return sizeof(*x->ev) + x->ev->len;
}

/* dir's path and a name below it (or ""), from the watched directory. Clears `out` first. */
int watch_rel(const struct watch_dir *dir, const char *name, struct buf *out, struct err *e);
/* Forgets the directory and all below; the kernel's watches go too. */
void watch_drop(struct fs_watch *w, struct watch_dir *dir);

/* ---- watch_raw.c: each event is told ---- */

int watch_raw_start(struct fs_watch *w, struct err *e);
int watch_raw_run(struct fs_watch *w, struct err *e);
void watch_raw_done(struct fs_watch *w);

/* ---- watch_changes.c: changes are told ---- */

/* Both take the caller's identity. */
int watch_changes_start(struct fs_watch *w, struct err *e);
int watch_changes_run(struct fs_watch *w, enum fs_watch_state *ret, struct err *e);
void watch_changes_done(struct fs_watch *w);

/* ---- watch_scan.c: looking at the disk ---- */

void watch_tell(struct fs_watch *w, enum fs_watch_type type, const char *rel, const char *from_rel,
                bool is_dir, bool is_moved);
void watch_tell_unwatched(struct fs_watch *w, const char *rel, const struct err *why);

/* True for the agent's temporary names, excluded entries, and every other file if one file is
 * watched. */
bool watch_is_hidden(const struct fs_watch *w, const char *rel, const char *name, bool is_dir);

/* -ERR_NOT_FOUND when the path leads elsewhere by now. */
int watch_open_root(struct fs_watch *w, int *ret_fd, struct err *e);

/* Watches the directory at this place and all below; tells what it finds. */
int watch_scan(struct fs_watch *w, struct watch_dir *parent, const char *name, const char *rel,
               bool is_told, struct err *e);

/* Puts a place on the list: watch_todo_run() looks whether an entry is there, tells it and scans
 * it. */
void watch_todo_add(struct fs_watch *w, const char *rel, bool is_told);
int watch_todo_run(struct fs_watch *w, struct err *e);
/* True if an entry is there; false also if that can't be found out. */
bool watch_exists(struct fs_watch *w, const char *rel, bool *ret_is_dir);
