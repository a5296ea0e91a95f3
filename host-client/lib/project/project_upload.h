#pragma once
/*
 * project_upload: sends the files of a project into a box as one tar.zst stream with bounded
 * memory. In a git repository these are the tracked files, the untracked ones that are not
 * ignored, and .git; elsewhere all files. .bellhopignore (gitignore syntax) applies to both.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/agent/client.h"
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
