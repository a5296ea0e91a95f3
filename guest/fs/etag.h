#pragma once
/*
 * etag: a tag that changes whenever a file's bytes do: "device.inode-size-mtime-ctime", and, when
 * ctime is so young that a second write could have the same one, the SHA-256 of the content.
 * Tags are strong and opaque; here and in JSON they stand without quotes, in HTTP's headers with
 * them. Also the parsing of If-Match and If-None-Match, and the hash itself.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/err.h"
#include "fs/root.h"

#define FS_SHA256_BYTES 32
#define FS_ETAG_BYTES 192
#define FS_ETAG_RACY_NS (20LL * 1000 * 1000) /* older kernels tick at up to 10 ms; twice that */

#define FS_ETAG_HASH_MAX \
    (4u \
     << 20) /* a larger young file is not hashed: the caller waits until it is old, at most 75 ms */
#define FS_ETAG_CACHE 1024 /* tags of young files that are remembered */

/* SHA-256 of an open file's bytes: `len` from `first` on; -ERR_DATA_LOSS when the file is too short for that. With len
 * UINT64_MAX: to the end. The descriptor's own position does not matter and stays. */
int fs_hash(int fd, uint64_t first, uint64_t len, uint8_t out[FS_SHA256_BYTES], struct err *e);

/*
 * The tag of an open, readable regular file; *st describes the file that the tag stands for. A file
 * that does not stop changing gets a tag that matches nothing.
 *
 * A tag that was handed out with a hash stays the same while the file does: the hash is
 * remembered (and looked at once more when the file is no longer young).
 */
int fs_etag(int fd, struct stat *st, char out[FS_ETAG_BYTES], struct err *e);

/*
 * The tag of a file that this agent has just put in place, under the path's lock. is_fine: the
 * disk was seen to give two changes two ctimes (fs_ctime_is_fine()), so no hash is needed.
 */
int fs_etag_written(int fd, bool is_fine, struct stat *st, char out[FS_ETAG_BYTES], struct err *e);

/* Whether changes that follow each other at once have different ctimes once they are looked at
 * (Linux 6.13 and later on most disks). Changes fd's ctime; remembered for each device. */
bool fs_ctime_is_fine(int fd);

struct fs_condition {
    const char *if_match;      /* the header's value (a list, or "*"), a bare tag too; or NULL */
    const char *if_none_match; /* the same */
};

/*
 * True if `tag` (a strong one; "" if the file has none) is in the list, the value of a header.
 * By RFC 9110 a weak tag (W/"...") in the list equals it only when weak comparison is asked for.
 * "*" is no tag: see fs_etag_is_any().
 */
bool fs_etag_in_list(const char *list, const char *tag, bool weak);
/* Whether the list is "*": whatever is there. */
bool fs_etag_is_any(const char *list);

/*
 * Compares the condition with the file that is there: If-Match strongly, If-None-Match weakly. A
 * mismatch is -ERR_ABORTED with field "if_match" or "if_none_match" (HTTP: 412) and the detail
 * "etag" when there is a tag; nothing else in guest/fs uses those fields. exists: something is
 * there, which has no tag when it is not a regular file.
 */
int fs_check_tag(const struct fs_condition *cond, bool exists, const char *current, struct err *e);
/* The same for the file at the path. In either case `current` gets its tag, "" if it has none. */
int fs_check_condition(struct fs_caller *c, const char *path, const struct fs_condition *cond,
                       char current[FS_ETAG_BYTES], struct err *e);
