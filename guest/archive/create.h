#pragma once
/*
 * create: a tree as an archive, made while it is read: nothing is spooled and memory is bounded
 * by the number of names in the directories on the way and of hard-linked files. Names are sorted
 * bytewise, so the same tree gives the same order. The tree itself is not locked: a file that
 * vanishes between listing and opening, or can't be read, is left out, counted and named; a small
 * file is read before its header is made, so that its size is right; a large one that grows is cut
 * at the size that it had and counted; one that shrinks ends the archive with an error (what is
 * there so far has no end mark), or is filled with zeros and counted where that was asked for.
 *
 * One call at a time per object, from any thread; each may block.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "archive/filter.h"
#include "archive/format.h"
#include "common/err.h"
#include "fs/root.h"

struct archive_create_options {
    const struct archive_format *format; /* one that can be written; NULL: tar */
    struct filter_options filter;        /* copied */
    bool reproducible;                   /* owners 0, mtimes 0, no access times */
    bool pad;                            /* a file that shrinks while it is sent is no error */
    /* NUL-terminated names below path, one after the other: the archive has these alone, in that
     * order, a directory without its entries; the filter is not asked. Borrowed until
     * archive_create_free(). */
    const char *only;
    size_t only_bytes;
};

/* As of the last read; honest once read() has returned 0. */
struct archive_create_counts {
    uint64_t entries;
    uint64_t bytes;
    uint64_t left_out; /* vanished, unreadable or of a kind that tar has no entry for (sockets) */
    uint64_t changed;  /* shrank or grew while being read */
};

struct archive_create;

/* path: a directory (its content, named relative to it) or one file (named by its name). */
int archive_create_new(struct fs_caller *c, const char *path,
                       const struct archive_create_options *o, struct archive_create **ret,
                       struct err *e);
/* *ret_len 0 with result 0: the end. An error in the middle: the archive is not complete. */
int archive_create_read(struct archive_create *a, void *data, size_t size, size_t *ret_len,
                        struct err *e);
void archive_create_counts(const struct archive_create *a, struct archive_create_counts *ret);
/* The first entries that were left out, each with the reason. */
const struct notes *archive_create_left_out(const struct archive_create *a);
struct archive_create *archive_create_free(struct archive_create *a); /* accepts NULL */
