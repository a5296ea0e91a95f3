#pragma once
/*
 * file_sink: where the body of a request that writes a file goes (the job of http/body.h's pump): a
 * whole file, a part of one, or the next piece of an upload that can be resumed.
 */
#include <nettle/sha2.h>

#include "fs/write.h"
#include "http/sfield.h"
#include "api/files/resume.h"
#include "http/body.h"

struct reply;

struct file_sink {
    /* Set by the request's thread before the upload begins. Strings are owned. */
    struct request *request; /* a reference */
    char *path;
    char *user;
    char *cwd;
    char *if_match;
    char *if_none_match;
    struct fs_write_options options;
    uint8_t sha256[DIGEST_BYTES]; /* options.sha256 points here */
    bool has_content_digest;      /* of this request's body alone */
    uint8_t content_digest[DIGEST_BYTES];
    bool is_resumable;
    bool is_incomplete; /* more requests will come */
    char *id;           /* an upload's to go on with; NULL: a new one */
    uint64_t offset;    /* the client's idea of how much is there */
    bool has_length;
    uint64_t length;    /* of the whole upload */
    uint64_t max_age_s; /* of a new upload without a request; 0: as the agent has it */

    /* The worker's; the request's thread's once the upload has begun, failed or ended. */
    struct fs_caller *caller;
    struct fs_write *write; /* the upload's, when there is one */
    struct resume *resume;
    struct resumes *resumes; /* borrowed */
    struct sha256_ctx content;
    uint64_t start;    /* bytes that were there before this request */
    bool is_committed; /* this request's bytes stay */
    struct fs_write_result result;
    char current[FS_ETAG_BYTES]; /* the file's tag, after a condition failed */
    char upload_id[RESUME_ID_BYTES];
    uint64_t upload_offset;
    int64_t upload_age_ms;
    bool is_complete; /* all bytes of the upload were there; the reply is its result */
    struct problem problem;
    int status; /* of an error, when it is not its code's */
};

struct file_sink *file_sink_new(struct request *q, struct err *e);
/* Before the upload has it. Accepts NULL; returns NULL. */
struct file_sink *file_sink_free(struct file_sink *s);
/* For upload_new_take(). */
const struct pump_ops *file_sink_ops(const struct file_sink *s);

/* The headers that all such requests may have: Content-Digest, Repr-Digest, If-Match,
 * If-None-Match. */
int file_sink_headers(struct file_sink *s, struct request *q, struct err *e);
/* Upload-Complete, Upload-Length. *ret_is_there: Upload-Complete is there and valid. */
int file_sink_upload_headers(struct file_sink *s, struct request *q, bool *ret_is_there,
                             struct err *e);
/* The value of a header that must be a number; false: it is missing or no number. */
bool file_sink_number(struct request *q, const char *name, uint64_t *ret);

/* Puts the facts of an error that a program needs into the reply's headers. Returns r. */
int file_sink_explain(const struct file_sink *s, struct request *q, int r, struct err *e);
/* The reply when the file is written. */
int file_sink_reply(const struct file_sink *s, struct request *q, struct err *e);
/* Adds "Upload-Limit: max-age=3600". */
void file_sink_add_limit(struct reply *response, int64_t age_ms);
