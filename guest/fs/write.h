#pragma once
/*
 * write: replaces a file's content atomically. The bytes go to a hidden temporary file in the same
 * directory, which gets mode, owner and xattrs of the file it replaces and is then renamed over it.
 * A symbolic link's target is replaced, not the link. Where a rename is impossible or would lose
 * something (a bind-mounted file, several hard links, a directory that the user can't write), the
 * temporary's bytes are copied over the old file's instead and the result says in_place. Owner and
 * rights are the caller's. With the option fresh the file gets the owner, mode and attributes of a
 * new one, and another link of the old file keeps the old bytes.
 *
 * One call at a time per object, from any thread; each may block. Order: begin, data..., commit,
 * free. free without commit leaves nothing behind.
 *
 * Errors that a route tells apart:
 *   -ERR_ABORTED, field "if_match" or "if_none_match": 412; fs_write_current() has the tag there is
 *   -ERR_EXHAUSTED, e->sys ENOSPC or EDQUOT: 507;  e->sys EFBIG: over max_bytes, 413
 *   -ERR_DATA_LOSS, field "digest": the bytes are not the ones announced
 *   -ERR_RANGE, field "offset": a part would begin behind the end; the detail "size" says where
 *   -ERR_PRECONDITION, field "path": a directory, FIFO, socket or device is in the way
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "fs/etag.h"
#include "fs/root.h"
#include "fs/temp.h"

#define FS_NEW_FILE_MODE 0644
#define FS_NEW_DIR_MODE 0755

/*
 * Data that replaces a part of what is there when it is committed, all or nothing too: the new
 * file is the old one's bytes with the data in it. A file that is not there counts as empty.
 */
struct fs_part {
    bool is_part;
    bool at_end;     /* append; `offset` does not count */
    uint64_t offset; /* not behind the old file's end */
    bool has_size;
    uint64_t size; /* has_size: of the new file, at least the data's end; the rest of it is cut */
};

struct fs_write_options {
    bool set_mode;                 /* `mode` also for a file that is there; else it keeps its own */
    mode_t mode;                   /* of a new file; 0: FS_NEW_FILE_MODE */
    bool fresh;                    /* takes nothing from the file that it replaces, see above */
    bool no_parents;               /* don't make missing directories */
    bool sync;                     /* fsync the file and its directory before commit returns */
    bool in_place;                 /* write into the old file even where a rename is possible */
    uint64_t max_bytes;            /* 0: no limit */
    uint64_t expected;             /* announced length: space is reserved at begin; 0: unknown */
    const uint8_t *sha256;         /* 32 bytes the data must hash to, or NULL; copied */
    struct fs_part part;           /* the data is not the whole file */
    struct fs_condition condition; /* checked at commit, under the path's lock; copied */
};

struct fs_write_result {
    uint64_t bytes;  /* of the data */
    uint64_t offset; /* where a part went */
    uint64_t size;   /* of the file */
    bool created;    /* there was no file before */
    bool in_place;   /* written into the old file: not atomic */
    char etag[FS_ETAG_BYTES];
};

struct fs_write;

/* Checks path and rights, but not the condition: fs_check_condition() does that early. */
int fs_write_begin(struct fs_caller *c, const char *path, const struct fs_write_options *o,
                   struct fs_write **ret, struct err *e);
int fs_write_data(struct fs_write *w, const void *data, size_t len, struct err *e);
uint64_t fs_write_offset(const struct fs_write *w); /* how much data there is so far */
/* Drops the data behind `offset`. */
int fs_write_cut(struct fs_write *w, uint64_t offset, struct err *e);
/* As the option sha256, for one that is known later. */
void fs_write_expect(struct fs_write *w, const uint8_t sha256[32]);
int fs_write_commit(struct fs_write *w, struct fs_write_result *ret, struct err *e);
/* After a commit that failed its condition: the tag of the file that is there, "" if there is
 * none. */
const char *fs_write_current(const struct fs_write *w);
struct fs_write *fs_write_free(struct fs_write *w); /* accepts NULL; returns NULL */

/*
 * A write that another process can go on with when this one has ended, however it did: its
 * temporary gets a hidden name beside the target and is locked as long as somebody has it open.
 */
struct fs_write_kept {
    char *path;                    /* the target, absolute, without links; owned: free() */
    char name[FS_TEMP_NAME_BYTES]; /* of the temporary, beside it */
    uint64_t inode;                /* the temporary must still have this one */
    uint32_t n_made;               /* parent directories that were made for it */
};

/* Tells how the kept write will be found, so that it can be noted first. -ERR_UNIMPLEMENTED: not
 * possible here. */
int fs_write_plan(const struct fs_write *w, struct fs_write_kept *ret, struct err *e);
int fs_write_keep(struct fs_write *w, const struct fs_write_kept *k, struct err *e);
/*
 * Instead of fs_write_begin(): goes on with the kept bytes. -ERR_NOT_FOUND: they are gone, or the
 * file is another one; -ERR_UNAVAILABLE: another process has it.
 */
int fs_write_again(struct fs_caller *c, const struct fs_write_kept *k,
                   const struct fs_write_options *o, struct fs_write **ret, struct err *e);
/* Instead of fs_write_free(): leaves the kept bytes to the next process. Accepts NULL. */
struct fs_write *fs_write_leave(struct fs_write *w);
/* Its options; the strings are the object's. */
const struct fs_write_options *fs_write_options_of(const struct fs_write *w);
