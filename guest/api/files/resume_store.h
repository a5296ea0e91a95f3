#pragma once
/*
 * resume_store: notes of unfinished uploads, so that the next agent can go on with them: one file
 * each, named by the upload's id, in a directory of the agent's own. Their bytes are beside their
 * targets (fs/write.h). Agents may share the directory: an agent that is asked for an upload takes
 * its note, unless another agent has the upload open. Thread-safe; all but new and free may block,
 * and are called without an identity taken.
 */
#include "common/err.h"
#include "fs/write.h"

#define RESUME_ID_BYTES 33
#define RESUME_STORE_MAX 512 /* notes in the directory; the next upload is not kept */

struct resume_store;

struct resume_note {
    char id[RESUME_ID_BYTES];
    char *asked; /* the path as the client has it; owned, as all strings here */
    char *user;  /* or NULL */
    char *if_match, *if_none_match;
    struct fs_write_kept kept;
    struct fs_write_options options; /* its strings are the ones here */
    uint8_t sha256[32];              /* where options.sha256 points to, if it has one */
    bool has_length;
    uint64_t length;
    bool has_floor; /* bytes behind it count only if their piece is whole */
    uint64_t floor;
    int64_t age_ms; /* the upload is kept so long without a request; 0: as the agent has it */
};

/* dir: made when there is something to note; NULL: nothing is noted. default_user: as the
 * agent's. */
int resume_store_new(const char *dir, struct fs_root *root, const char *default_user,
                     struct resume_store **ret, struct err *e);
struct resume_store *resume_store_free(struct resume_store *s); /* accepts NULL; returns NULL */

/* Notes a write and keeps it. The note is the caller's: resume_note_free(). */
int resume_store_keep(struct resume_store *s, const char *id, const char *asked, const char *user,
                      struct fs_write *w, struct resume_note **ret, struct err *e);
/* The note has changed, or its upload was used. */
int resume_store_put(struct resume_store *s, const struct resume_note *n, struct err *e);
void resume_store_touch(struct resume_store *s, const char *id);
/* The upload is over. */
void resume_store_remove(struct resume_store *s, const char *id);

/*
 * Takes over the upload of another agent. -ERR_NOT_FOUND: there is none, its bytes are gone, or it
 * is too old: for age_ms, or the note's own age if that is less, no request has used it and no byte
 * of it was written.
 */
int resume_store_take(struct resume_store *s, const char *id, int64_t age_ms,
                      struct resume_note **ret, struct fs_caller **ret_caller,
                      struct fs_write **ret_write, struct err *e);
/* Removes notes that are too old, with their bytes, and notes whose bytes are gone. Returns the
 * milliseconds until the next one can be too old, INT64_MAX: there is none. */
int64_t resume_store_sweep(struct resume_store *s, int64_t age_ms);

struct resume_note *resume_note_free(struct resume_note *n); /* accepts NULL; returns NULL */
