#pragma once
/*
 * lock: one writer a file at a time, among this agent's calls. A lock is named by the directory's
 * identity and the entry's name, hashed onto a fixed number of mutexes. Held for the moment of
 * checking and renaming, never while a client is waited for.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

#define FS_LOCK_SLOTS 256

struct fs_lock {
    unsigned slot;
    bool is_held;
    bool is_file; /* of fs_lock_take_file() */
};

int fs_lock_take(int dirfd, const char *name, struct fs_lock *ret, struct err *e);
void fs_lock_release(struct fs_lock *l); /* a zeroed or released lock: does nothing */

/* The file itself, whatever names it has (hard links, bind mounts), while its bytes are compared
 * and written in place. Taken after the name's lock, never before; one at a time. */
int fs_lock_take_file(int fd, struct fs_lock *ret, struct err *e);

/* Two at once (a move), in an order that can't deadlock. */
int fs_lock_take_two(int dirfd_a, const char *name_a, int dirfd_b, const char *name_b,
                     struct fs_lock ret[2], struct err *e);
void fs_lock_release_two(struct fs_lock l[2]);

#define _cleanup_fs_lock_ __attribute__((cleanup(fs_lock_release)))
