#pragma once
/*
 * repeat: requests that may come twice. The answer to a request with the header Idempotency-Key is kept in the state
 * directory (answers/, a file each) for REPEAT_KEPT_MS. The same request with the same key gets that answer again; another
 * request with the key, or one that comes while the first is at work, is refused. Errors are not kept. Thread-safe.
 */
#include "common/err.h"

#define REPEAT_KEPT_MS (24 * 3600 * 1000)
#define REPEAT_KEY_BYTES 255
#define REPEAT_MAX 10000 /* answers: then requests with a new key are refused */
#define REPEAT_NAME_BYTES 24

struct job;
struct repeats;

int repeats_new(const char *state_dir, struct repeats **ret, struct err *e);
struct repeats *repeats_free(struct repeats *r); /* accepts NULL; returns NULL */

/*
 * Runs fn and keeps its reply; or replies as the first time. Without a key it is fn alone. If a daemon was killed while
 * fn ran, fn runs again, with j->begun_ms: it returns the object that is there since.
 */
int repeat_answer(struct job *j, int (*fn)(struct job *j, struct err *e), struct err *e);
/*
 * A name with this prefix that follows from the request's key, so that a creation which was killed is found when it is
 * repeated. At random without a key.
 */
int repeat_name(const struct job *j, const char *prefix, char out[REPEAT_NAME_BYTES],
                struct err *e);
