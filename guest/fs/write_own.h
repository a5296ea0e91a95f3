#pragma once
/* write_own: the parts of fs/write.h's object, for write.c and write_keep.c only. */
#include <nettle/sha2.h>

#include "fs/temp.h"
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
    bool is_kept;           /* temp has a name by which another process can find it: write_keep.c */
    bool is_committed;
    char current[FS_ETAG_BYTES];
};

/* An empty write; NULL: out of memory. */
struct fs_write *fs_write_new(struct fs_caller *c, const char *path, struct err *e);
int fs_write_take_options(struct fs_write *w, const struct fs_write_options *o, struct err *e);
