#pragma once
/*
 * open: a file opened for reading its bytes. Directories, FIFOs, sockets and devices are refused
 * (-ERR_PRECONDITION, field "path"), and opening never waits. Takes the caller's identity itself.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/err.h"
#include "fs/etag.h"
#include "fs/root.h"

struct fs_file {
    int fd; /* pread() works when is_sized */
    struct stat st;
    /*
     * st.st_size is the number of bytes. False for files that are made up as they are read (/proc,
     * /sys, some of FUSE's): read to the end to know; no ranges, no tag.
     */
    bool is_sized;
    char etag[FS_ETAG_BYTES]; /* "" when !is_sized or not asked for */
};

int fs_file_open(struct fs_caller *c, const char *path, bool with_etag, struct fs_file *ret,
                 struct err *e);
/* The same, for a thread that has taken the identity already. */
int fs_file_open_acting(struct fs_caller *c, const char *path, bool with_etag, struct fs_file *ret,
                        struct err *e);
void fs_file_done(struct fs_file *f); /* once, after a success */

/* The next bytes of a file that is not sized; *ret_len 0: the end. A file that would make its
 * reader wait for an event (/proc/kmsg, trace_pipe) ends there. */
int fs_file_read(const struct fs_file *f, void *data, size_t size, size_t *ret_len, struct err *e);

/* Whether the content is made up as it is read, so that st_size says nothing. */
bool fs_is_made_up(int fd, off_t size);
#define FS_MADE_UP_MAX (256ull * 1024 * 1024) /* past that it is taken to have no end */

/* -ERR_PRECONDITION with field "path", unless it is a regular file's mode. */
int fs_refuse_special(const char *path, mode_t mode, struct err *e);
