#pragma once
/* write_own: for write.c and write_commit.c alone. */
#include <nettle/sha2.h>
#include <sys/stat.h>

#include "fs/write.h"

struct fs_write {
    struct fs_caller *caller;
    char *path; /* as asked, for messages */
    char *if_match;
    char *if_none_match;
    struct fs_write_options o; /* its strings are the two above */
    uint8_t want_sha256[SHA256_DIGEST_SIZE];
    struct sha256_ctx sha;
    bool has_sha; /* of all bytes so far */
    uint64_t bytes;

    int dirfd;
    char *name;
    struct fs_temp temp;    /* the new file */
    struct fs_temp data;    /* of a part that is being committed: its bytes; temp is the whole */
    bool spooled_elsewhere; /* temp is in /tmp, since the directory takes no file: in place only */
    int n_made;             /* parent directories that begin made */
    bool is_kept; /* temp has a name by which another process can find it: fs_write_keep() */
    bool is_committed;
    char current[FS_ETAG_BYTES];
};

/*
 * Opens the file at the name (O_PATH); *ret_fd -1: there is none. A user who may not write the file
 * may not replace it either, though a rename would succeed.
 */
int fs_write_open_old(const struct fs_write *w, int *ret_fd, struct stat *ret_st, struct err *e);
