#pragma once
/*
 * stage: writes an archive's entries into the staging directory, each through descriptors opened
 * one component at a time without following links. Checks names, kinds and limits. The identity
 * must have been taken; it owns every file that is made. One thread.
 */
#include <archive.h>
#include <archive_entry.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "fs/place.h"
#include "common/err.h"

struct pump;

struct stage_limits {
    uint64_t max_entries;
    uint64_t max_bytes;
    const struct pump *packed; /* for the ratio: the archive as received; NULL: any ratio */
};

struct archive_extract_options;

struct stage_owner {
    char *name;
    unsigned id;
};

struct stage {
    int fd; /* the staging directory; borrowed */
    struct stage_limits limits;
    bool keep_owner;
    bool owner_names;
    bool takes_removals;
    mode_t lost_bits;                         /* mode bits that a new file does not get */
    int removals_fd;                          /* the content of ARCHIVE_REMOVALS_NAME; -1: none */
    struct stage_owner last_user, last_group; /* looked up last */
    uint64_t entries;
    uint64_t bytes;
    uint64_t lost_xattrs;    /* extended attributes that the disk refused */
    struct fs_records *dirs; /* modes, times and owners for directories, set at the very end */

    char *parent; /* the directory that parent_fd is, relative to fd; NULL: none */
    int parent_fd;
};

int stage_init(struct stage *s, int fd, const struct stage_limits *limits,
               const struct archive_extract_options *o, struct err *e);
void stage_done(struct stage *s);

/* Writes what archive_read_next_header() has just given. */
int stage_entry(struct stage *s, struct archive *a, struct archive_entry *entry, struct err *e);

/* A name from an archive without "./" and double slashes. -ERR_INVALID when it is absolute, has
 * "..", is too deep or too long, or is one of our temporary names. "" is the target itself. */
int stage_clean_name(const char *name, char **ret, struct err *e);

/* The list of what is to be removed, read one by one. */
struct stage_removals {
    FILE *file; /* NULL: none */
    char *line;
    size_t cap;
};
int stage_removals_open(const struct stage *s, struct stage_removals *ret, struct err *e);
/* 1: *ret_path is the next, cleaned, a final '/' kept; the caller's. 0: none left. */
int stage_removals_next(struct stage_removals *l, char **ret_path, struct err *e);
void stage_removals_done(struct stage_removals *l);
