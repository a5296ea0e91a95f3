#pragma once
/*
 * extract: an archive that arrives as a stream (a format of format.h, told
 * apart by content) into a directory, all or nothing. libarchive reads it from a pump into a hidden
 * staging directory on the target's mount; every file is written through a directory descriptor. Only
 * when the whole archive was read and found good is it put in place. A bad archive leaves the
 * target byte for byte as it was.
 *
 * One call at a time per object, from any thread; each may block. Order: begin, read, commit, free.
 * free without commit leaves nothing behind, unless the rollback of a commit failed: then the error names the
 * staging directory, which keeps the originals for a recovery (below).
 *
 * Errors that a route tells apart:
 *   -ERR_INVALID: not an archive, truncated, corrupt, or a name that leaves the target (the
 *     message has the entry);  -ERR_EXHAUSTED, e->sys EFBIG: over a limit, 413;
 *   -ERR_EXHAUSTED, e->sys ENOSPC or EDQUOT: 507;  -ERR_EXHAUSTED, e->sys 0: too many at once, 429
 *   -ERR_PRECONDITION, field "path": the target is not a directory
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "fs/root.h"

#define ARCHIVE_MAX_EXTRACTIONS 16
/* Bytes of the archive that wait for the extraction. Half of it is enough to unpack ahead (read.c): at half, more
 * is asked for. */
#define ARCHIVE_PUMP_BYTES (3 * 1024 * 1024)
#define ARCHIVE_MAX_ENTRIES 1000000
#define ARCHIVE_MAX_BYTES (64ULL << 30) /* unpacked */
#define ARCHIVE_MAX_RATIO 2000          /* unpacked to packed, once past ARCHIVE_RATIO_FROM */
#define ARCHIVE_RATIO_FROM (64ULL << 20)
#define ARCHIVE_MAX_DEPTH 256 /* components of a name */

enum archive_mode {
    ARCHIVE_MERGE,   /* as tar: entries that are not in the archive stay */
    ARCHIVE_REPLACE, /* the directory becomes what the archive has */
};

struct archive_extract_options {
    enum archive_mode mode;
    bool keep_owner;      /* the archive's owners (an agent that is root and a caller that is) */
    bool owner_names;     /* with keep_owner: by name where the box has it, else by number */
    bool removals;        /* an entry ARCHIVE_REMOVALS_NAME may list paths to remove; merge only */
    bool no_parents;      /* the target must be there; else it is made */
    bool sync;            /* syncfs before the commit returns */
    bool any_ratio;       /* the sender made the archive itself: a file of zeros is no bomb */
    uint64_t max_entries; /* 0: the limits above */
    uint64_t max_bytes;
};

struct archive_extract_result {
    uint64_t entries;
    uint64_t bytes;        /* of file content, unpacked */
    uint64_t packed_bytes; /* as received */
    uint64_t removed;      /* by ARCHIVE_REMOVALS_NAME */
    uint64_t lost_xattrs;  /* extended attributes and ACLs that were not kept */
    const char *format;    /* a name of format.h */
};

/* A file of this name in an archive: NUL-terminated paths below the target that are removed before
 * the rest is put in place, in the same all or nothing. "dir/": a directory that is empty then. */
#define ARCHIVE_REMOVALS_NAME FS_TEMP_PREFIX "removals"
#define ARCHIVE_MAX_REMOVALS_BYTES (256u << 20)

struct archive_extract;
struct pool;
struct pump;

int archive_extract_begin(struct fs_caller *c, const char *path,
                          const struct archive_extract_options *o, struct archive_extract **ret,
                          struct err *e);
/* Reads the whole archive. pool: threads for unpacking ahead of a fast client, or NULL. */
int archive_extract_read(struct archive_extract *x, struct pump *in, struct pool *pool,
                         struct err *e);
int archive_extract_commit(struct archive_extract *x, struct archive_extract_result *ret,
                           struct err *e);
struct archive_extract *archive_extract_free(struct archive_extract *x); /* accepts NULL */

/*
 * Rolls back archives whose agent was killed while it put them in place. dir: where their staging directories are
 * noted, made (0700) when there is something to note; without it only the next archive to the same place does it.
 * Once, before threads start.
 */
int archive_use_registry(const char *dir, struct err *e);
/* Recovers everything that is noted, each entry as the user it was made for. Returns how many were rolled back. */
unsigned archive_recover_all(void);
