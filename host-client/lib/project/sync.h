#pragma once
/*
 * sync: makes one side of a pair (a directory here, one in a box) like the other: sends changed
 * files and removes deleted ones. A file has changed if its type or size differs, or its time and
 * then its content. A file was deleted if both sides had it after the last sync of the pair and
 * the source no longer has it. A file that only the other side has is kept unless delete_extra
 * asks for its removal, and so is a file that is ignored there. Into the box everything is one
 * archive, all or nothing. Out of the box each file is put in place whole, and the next sync
 * finishes an interrupted one.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/agent/client.h"
#include "lib/util/context.h"

struct sync_request {
    struct bh_ctx *ctx;
    struct client *client;
    const char *box_id;
    const char *local;  /* absolute, no symlink */
    const char *remote; /* absolute, cleaned */
    bool to_local;
    bool dry_run;
    bool delete_extra; /* remove files that the last sync did not know, too */
    bool checksum;     /* compare contents even if the times are equal */
    bool with_git;     /* .git too */
    bool with_secrets;
    /* limit of the box's files beyond the number of files here; 0: SYNC_MAX_FILES */
    uint64_t max_files;
    const char *const *excludes;                                  /* globs, or NULL */
    int (*change)(void *arg, const char *what, const char *name); /* or NULL */
    void *change_arg;
};

struct sync_result {
    uint64_t sent, sent_bytes; /* files and links */
    uint64_t removed;
    uint64_t touched; /* only mode or time were set */
    uint64_t unchanged;
    uint64_t kept; /* files that only the other side has, left there */
};

int sync_run(const struct sync_request *req, struct sync_result *ret, struct err *e);
/* fnmatch, as in the agent: a glob with a slash matches the whole path, another matches any
 * name. */
bool sync_is_excluded(const struct sync_request *req, const char *name);
