#pragma once
/*
 * listing: the entries of one directory of a walk, read whole, with the ignore rules that apply
 * to them. Shared by reference count between the workers of a walk.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"
#include "fs/dir_names.h"
#include "search/ignore.h"

#define LISTING_KEEP_DEPTH 64 /* deeper directories are opened again for each use */

struct listing {
    char *whole; /* absolute path, ends in '/' */
    size_t whole_len;
    uint32_t depth;
    struct ignore *ignore; /* a reference; NULL: no rules */
    int fd;                /* -1 when it is not kept open */
    struct fs_names names;
    bool has_git, has_gitignore, has_ignore, has_rgignore; /* such a name is among them */
    bool is_linked;     /* a link was followed on the way from the root to here */
    struct listing *up; /* a reference, when links are followed: to see loops; else NULL */
    dev_t dev;          /* when links are followed or the file system is minded */
    ino_t ino;
    int refs; /* atomic */
};

/* whole: copied; '/' is added. up: the parent's rules; a reference is taken. */
int listing_new(const char *whole, size_t whole_len, uint32_t depth, struct ignore *up,
                struct listing **ret, struct err *e);
struct listing *listing_ref(struct listing *l);
struct listing *listing_unref(struct listing *l); /* accepts NULL; returns NULL */

/* Reads the entries of fd into the listing, once. If that fails half-way, the entries read until
 * then are in it. */
int listing_read(struct listing *l, int fd, bool sorted, struct err *e);

static inline const char *listing_name(const struct listing *l, size_t i)
{
    return l->names.v[i];
}
