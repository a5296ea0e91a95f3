#pragma once
/*
 * resume: uploads that can go on after their connection was cut (the IETF's resumable uploads,
 * draft-ietf-httpbis-resumable-upload, interop version 8): the table of those that are not
 * complete, and for a while the outcome of those that are. Their bytes are a temporary file of
 * fs/write.h; the target is untouched until the end. The table is in memory; the unfinished ones
 * are noted in a resume_store as well, and the agent after this one goes on with those it is asked
 * for.
 *
 * One request at a time holds an upload: a new one cuts the connection of the one before, whose
 * client has given it up. All functions are thread-safe; the ones marked so may block.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "fs/write.h"
#include "api/files/resume_store.h"

#define RESUME_INTEROP_VERSION 8
#define RESUME_MAX_OPEN 64    /* uploads that are not complete; the next is refused */
#define RESUME_MAX_CLOSED 256 /* outcomes that are kept; the oldest goes */
#define RESUME_AGE_S 3600     /* without a request; a client may ask for less */
#define RESUME_WAIT_MS 10000  /* for the earlier request to let go */
#define RESUME_STORE_SWEEP_MS 600000

struct pool;
struct request;
struct resumes; /* the table */

enum resume_state {
    RESUME_OPEN,
    RESUME_DONE, /* `result` is what came of it */
    /* `error`: all bytes were there, but they could not be put in place; or invalid */
    RESUME_FAILED,
};

struct resume {
    char id[RESUME_ID_BYTES];
    /* The holder's: */
    enum resume_state state;
    char *path; /* as asked */
    struct fs_caller *caller;
    struct fs_write *write; /* NULL when it is not open */
    bool has_length;
    uint64_t length;
    uint64_t offset; /* of the bytes that are kept */
    int64_t age_ms;  /* kept so long without a request; at most the table's */
    bool is_known;   /* the client was told the id: else the upload ends with its request */
    struct fs_write_result result;
    struct err error;
    /* resume.c's: */
    int refs;
    struct request *holder;
    int64_t used_ms;
    bool is_dropped;
    struct resume_note *note; /* NULL: it does not outlive the agent */
    struct resume *next;
};

/* Takes the store, when it succeeds. */
int resumes_new(struct pool *pool, int64_t age_ms, struct resume_store *store, struct resumes **ret,
                struct err *e);
/* The notes stay for the next agent. Accepts NULL; returns NULL. Blocks. */
struct resumes *resumes_free(struct resumes *t);
/* Evicts uploads that are too old, and removes what former agents left of theirs, by a worker. */
void resumes_sweep(struct resumes *t, int64_t now_ms);

/* A new one, held by q, with a reference. Takes caller and write only when it succeeds.
 * -ERR_EXHAUSTED: too many. */
int resume_new(struct resumes *t, struct request *q, const char *path, struct fs_caller *caller,
               struct fs_write *write, struct resume **ret, struct err *e);
/* The holder's: from now on it outlives this agent, where that is possible. Blocks. user: as the
 * request has it, or NULL. */
void resume_keep(struct resumes *t, struct resume *u, const char *user);
/* The holder's: its length or age is known now, or a piece begins (is_whole) that counts when it is whole,
 * or it does not any more. Blocks. */
void resume_note_piece(struct resumes *t, struct resume *u, bool is_whole);
/* By id, held by q, with a reference. Blocks until the holder before has let go, which is cut off.
 * -ERR_NOT_FOUND: there is none (any more). */
int resume_hold(struct resumes *t, struct request *q, const char *id, struct resume **ret,
                struct err *e);
/* Releases the hold and the reference. A complete upload, or one whose id no client knows, removes
 * its temporary file: blocks. Accepts NULL. */
void resume_release(struct resumes *t, struct resume *u);
/* The holder's: the upload is forgotten on release. */
void resume_drop(struct resume *u);
