#pragma once
/*
 * sync: makes one side of a pair (a directory here, one in a box) like the other, by sending what
 * differs and removing what went. What differs is told by type, size, time and, where only
 * the time differs, by content. What went is what both sides had after the last sync of the pair and
 * the source has not any more: a file that the other side has made is not removed unless that is
 * asked for, nor is one that is ignored there. Into the box everything is one archive, all or
 * nothing; here every file is put in place whole, and what was cut off is finished by the next sync.
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
    bool delete_extra; /* also what the last sync did not know */
    bool checksum;     /* contents are compared whatever the times say */
    bool with_git;     /* .git too */
    bool with_secrets;
    uint64_t max_files;          /* that the box may have besides those here; 0: SYNC_MAX_FILES */
    const char *const *excludes; /* globs, or NULL */
    int (*change)(void *arg, const char *what, const char *name); /* or NULL */
    void *change_arg;
};

struct sync_result {
    uint64_t sent, sent_bytes; /* files and links */
    uint64_t removed;
    uint64_t touched; /* only their mode or time was set */
    uint64_t unchanged;
    uint64_t kept; /* on the other side only, and left there */
};

int sync_run(const struct sync_request *req, struct sync_result *ret, struct err *e);
/* fnmatch, as the agent has it: a glob with a slash is for the whole path, else for any name. */
bool sync_is_excluded(const struct sync_request *req, const char *name);
