#pragma once
/*
 * sync_list: the entries of one side of a sync, sorted by name, and the names that both sides had
 * after the last one. Names are relative, with '/', never "".
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/err.h"
#include "lib/agent/client.h"
#include "lib/project/gitfiles.h"
#include "lib/project/sync.h"

#define SYNC_MAX_ENTRIES 4000000u
/* Default limit of a box's files beyond the number of files here: the box decides how much
 * memory they take. */
#define SYNC_MAX_FILES 100000u
#define SYNC_FILE_BYTES 256u /* memory for each: names of 60 bytes on average */
#define SYNC_DIGEST_BYTES 32
#define SYNC_TEMP_PREFIX ".bellhop-tmp-" /* name of a leftover of a killed sync or agent */

enum sync_type {
    SYNC_FILE,
    SYNC_DIR,
    SYNC_LINK,
    SYNC_OTHER,
};

enum sync_action {
    SYNC_SAME,
    SYNC_SEND,
    SYNC_MAYBE, /* same size, another time: the content decides */
    SYNC_ATTRS, /* same content, another mode or time */
};

struct sync_entry {
    char *name;
    unsigned root; /* of the list of files here (gitfiles.h) */
    char *path;    /* beneath root; NULL: same as name, or the entry is in the box */
    char *target;  /* of a symbolic link */
    enum sync_type type;
    uint32_t mode; /* 0777 */
    uint64_t size;
    struct timespec mtime;
    bool has_digest;
    uint8_t digest[SYNC_DIGEST_BYTES];
    enum sync_action action;
};

struct sync_list {
    struct sync_entry *v;
    size_t n, cap;
};

void sync_list_done(struct sync_list *l);
/* The name is copied. *ret is valid until the next call. */
int sync_list_add(struct sync_list *l, const char *name, struct sync_entry **ret, struct err *e);
/* Sorts, and drops duplicates: returns the name of one (borrowed), or NULL. */
const char *sync_list_sort(struct sync_list *l);
struct sync_entry *sync_list_find(const struct sync_list *l, const char *name);

/* Sets the fields from lstat(); the caller sets the target. */
void sync_entry_set(struct sync_entry *en, const struct stat *st);

/* The caller closes *ret_files, also after an error; the entries refer to its roots. */
int sync_list_local(struct sync_list *l, const struct sync_request *req, struct gitfiles *ret_files,
                    struct err *e);
/*
 * *ret_there: the directory exists in the box. The box's names are not trusted. -ERR_DATA_LOSS: a
 * name is absolute, has "..", is the directory itself or comes twice. -ERR_DENIED: git would take
 * a name for a repository's, except ".git" itself if it was asked for. -ERR_EXHAUSTED: more names
 * than req->max_files and n_local together. "./a" is "a".
 */
int sync_list_remote(struct sync_list *l, const struct sync_request *req, size_t n_local,
                     bool *ret_there, struct err *e);

/* Asks the box about entries as they are here. fn gets each entry that is missing, differs, or
 * differs only in mode or time. with_mtime: compare times, else digests. */
enum sync_verdict { SYNC_MISSING, SYNC_DIFFERS, SYNC_STALE };
int sync_ask(const struct sync_request *req, struct sync_entry *const *v, size_t n, bool with_mtime,
             void (*fn)(struct sync_entry *en, enum sync_verdict verdict), struct err *e);

/* The names that both sides had after the last sync of this pair; directories end with '/'. */
int sync_base_load(struct sync_list *l, const struct sync_request *req, struct err *e);
int sync_base_store(const struct sync_list *l, const struct sync_request *req, struct err *e);

/* "2026-11-22T01:35:00.123456789Z" */
void sync_time_format(const struct timespec *t, char *out, size_t out_bytes);
