#pragma once
/*
 * root: the only door from a path that came from outside to a descriptor. An fs_root is "/" or
 * the directory of --root; nothing outside it can be opened, whatever symbolic links do meanwhile,
 * because the kernel resolves the path (openat2 RESOLVE_BENEATH), or, where there is no openat2,
 * a walk that opens one component at a time. Paths are the system's real paths, also under
 * --root DIR: "DIR/x", not "/x". Absolute symbolic links within the root work.
 *
 * An fs_caller is a root, the user who acts, and the directory where relative paths start. It is
 * shared by reference count; every operation of guest/fs and guest/archive takes one. All functions
 * are thread-safe and may block; none opens a FIFO so that it waits.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "common/err.h"
#include "fs/actor.h"

#define FS_PATH_MAX 16384 /* bytes of a path; longer than PATH_MAX works, a component at a time */
#define FS_MAX_LINKS 40   /* symbolic links in one resolution, as the kernel has it */
#define FS_BELOW_DIR_MODE 0755
#define FS_TEMP_PREFIX ".bellhop-tmp-" /* our temporary names; List and the walkers hide them */

struct fs_feeds;
struct fs_root;

/* dir: "/" or a directory. Kept open until freed. */
int fs_root_new(const char *dir, struct fs_root **ret, struct err *e);
struct fs_root *fs_root_free(struct fs_root *r);   /* accepts NULL; returns NULL */
const char *fs_root_path(const struct fs_root *r); /* without links, no trailing slash but "/" */

/* Watches below the root share these inotify instances. feeds outlives the use of the root; NULL
 * (the default): no sharing. */
void fs_root_set_feeds(struct fs_root *r, struct fs_feeds *feeds);
struct fs_feeds *fs_root_feeds(const struct fs_root *r);

/* For tests: from now on behave as if the kernel had no openat2. */
void fs_root_force_walk(bool on);

struct fs_caller {
    struct fs_root *root; /* borrowed: outlives the caller */
    struct fs_actor actor;
    char *base; /* absolute: where relative paths start */
    int refs;   /* atomic */
};

/*
 * user: NULL for the agent itself (agent->default_user is for the call's owner to pass).
 * base: an absolute directory, or NULL for the user's home (the root, when that is outside it).
 */
int fs_caller_new(struct fs_root *root, const char *user, const char *base, struct fs_caller **ret,
                  struct err *e);
struct fs_caller *fs_caller_ref(struct fs_caller *c);
struct fs_caller *fs_caller_unref(struct fs_caller *c); /* accepts NULL; returns NULL */

static inline void fs_caller_unref_p(struct fs_caller **c)
{
    fs_caller_unref(*c);
}
#define _cleanup_fs_caller_ _cleanup_(fs_caller_unref_p)

/* The path as an absolute one: joined to the base, "~" and "~/" to the home; not resolved, ".."
 * stays. Owned by the caller. Errors name field "path". */
int fs_caller_path(const struct fs_caller *c, const char *path, char **ret, struct err *e);

/*
 * Opens a path (absolute, or relative to the base). The identity must have been taken (see
 * actor.h). O_CLOEXEC, O_NOCTTY and O_NONBLOCK are added. With O_NOFOLLOW | O_PATH a link in the
 * last place is opened itself. Outside the root: -ERR_DENIED with field "path".
 */
int fs_open(const struct fs_caller *c, const char *path, int flags, mode_t mode, int *ret_fd,
            struct err *e);

/*
 * The directory that holds path's last component, as an O_PATH descriptor, and that component's
 * name, for the *at() calls. Links on the way are followed, a link in the last place is not. The
 * name is never empty, ".", ".." nor holds a '/': for "/" or "a/.." it is -ERR_INVALID.
 */
int fs_open_parent(const struct fs_caller *c, const char *path, int *ret_dirfd, char **ret_name,
                   struct err *e);

/*
 * As fs_open_parent(), but a link in the last place is followed to where it points (which need
 * not exist): the directory and name that a write through the link would make or replace.
 */
int fs_open_target(const struct fs_caller *c, const char *path, int *ret_dirfd, char **ret_name,
                   struct err *e);

/* mkdir -p: `mode` for each directory that is made; the descriptor is O_PATH.
 * *ret_made (may be NULL) says how many directories were made. */
int fs_make_dirs(const struct fs_caller *c, const char *path, mode_t mode, int *ret_fd,
                 int *ret_made, struct err *e);

/* openat(dirfd, name) for one component that must not be a link; for walkers. Returns the
 * descriptor or -1 with errno. */
int fs_openat_nofollow(int dirfd, const char *name, int flags);

/*
 * Files and directories below a directory that is open, by relative paths, without following a symbolic link
 * on the way.
 */

/* dir: "" for base itself. An O_PATH descriptor. -ERR_INVALID when a link or file is in the way. */
int fs_open_below(int base, const char *dir, bool make, int *ret_fd, struct err *e);

/* "a/b/c" -> "a/b" (owned by the caller), *ret_name "c"; "c" -> "". NULL: out of memory. */
char *fs_below_parent(const char *path, const char **ret_name);

/*
 * The path may have any length. O_CLOEXEC, O_NOCTTY and O_NONBLOCK are added to flags. Returns the
 * descriptor or -errno; -ELOOP for a symbolic link.
 */
int fs_openat_below(int base, const char *path, int flags);
