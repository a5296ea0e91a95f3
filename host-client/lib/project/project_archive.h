#pragma once
/*
 * project_archive: files into a box and out of it, as one archive with bounded memory.
 *
 * Into a box go the files of a project. In a git repository these are the tracked files, the
 * untracked ones that are not ignored, and .git; elsewhere all files. .bellhopignore (gitignore
 * syntax) applies to both.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/agent/client.h"
#include "lib/project/extract.h"
#include "lib/project/gitfiles.h"
#include "lib/util/context.h"

struct upload_request {
    struct bh_ctx *ctx;
    struct client *client;
    const char *source;
    const char *dest;
    const char *git; /* "full", "shallow", "none", "as-is" */
    const char *as;  /* a single file's name in dest; NULL: its own */
    bool with_secrets;
    const char *user; /* owner in the box; NULL: the agent's default */
    int64_t deadline_mono_ms;
};

struct upload_result {
    uint64_t files;
    uint64_t bytes;
    char **left_out; /* strv: files kept back because they look like secrets */
};
void upload_result_done(struct upload_result *r);

int upload_check(const char *source, struct err *e); /* readable, a directory or a file */
int upload_run(const struct upload_request *req, struct upload_result *ret, struct err *e);

/* ---- the stream ---- */

/* A list of files as a tar.zst, pulled piece by piece. A small file is read whole before its
 * header is written, a large one is sent in pieces. */
#define UPLOAD_SMALL_BYTES (1024 * 1024)
/* produced and not yet taken: a piece and zstd's window */
#define UPLOAD_OUT_BYTES (8 * 1024 * 1024)

struct upload_stream;

/* Borrows files, which must be at its beginning. */
int upload_stream_new(struct bh_ctx *ctx, struct gitfiles *files, struct upload_stream **ret,
                      struct err *e);
struct upload_stream *upload_stream_free(struct upload_stream *s); /* accepts NULL */

/* For client_put_archive(): at most max bytes, 0 at the end, a negative error. ERR_ABORTED
 * names a file that became shorter while it was read. A vanished file is skipped. */
int64_t upload_stream_read(void *stream, char *out, size_t max, struct err *e);

/* ---- out of a box ---- */

/* Unpacks an archive of the agent into a directory of this machine while it arrives. The transport
 * pushes and libarchive pulls, so one of them needs a thread of its own. */
struct fetch {
    const char *path;  /* in the box */
    const char *names; /* only these names below path, each with a NUL; NULL: all */
    size_t names_bytes;
    struct extract_options to; /* its directory must exist; is_zstd: ask the agent for it */
};

int fetch_run(struct client *c, const struct fetch *f, struct err *e);
