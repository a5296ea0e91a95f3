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
    int fd; /* a plain blocking descriptor; pread() works when is_sized */
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
void fs_file_done(struct fs_file *f); /* once, after a success */

/* -ERR_PRECONDITION with field "path", unless it is a regular file's mode. */
int fs_refuse_special(const char *path, mode_t mode, struct err *e);
