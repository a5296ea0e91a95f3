#pragma once
/*
 * hold: a statement that the box is in use, by a client of the API or from inside the box, until a time or
 * for as long as a connection is open. A hold is a fact for the idle policy; it prevents nothing by itself, not
 * even the end of a lease. Expired holds are dropped at the next call. Thread-safe.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

#define HOLD_MAX 256         /* at a time */
#define HOLD_MAX_PER_USER 32 /* of these, per user inside the box */
#define HOLD_ID_BYTES 129
#define HOLD_REASON_BYTES 201
#define HOLD_MAX_MS (24LL * 3600 * 1000)
#define HOLD_DEFAULT_MS (10LL * 60 * 1000)
#define HOLD_OPEN 0 /* as time: no end of its own */

struct hold {
    char id[HOLD_ID_BYTES];
    char reason[HOLD_REASON_BYTES];
    int64_t since_mono_ms;
    int64_t until_mono_ms; /* HOLD_OPEN: until it is released */
    bool is_new;           /* request: fail if the id is in use */
    bool is_local;         /* taken inside the box, by this process of this user */
    uid_t uid;
    pid_t pid;
};

struct holds;

int holds_new(struct holds **ret, struct err *e);
struct holds *holds_free(struct holds *h); /* accepts NULL; returns NULL */

/*
 * Takes or renews ask->id ("": an id is generated and stored there); sets since_mono_ms. A hold from inside the box
 * can be renewed by its own user only. ERR_EXHAUSTED past the bounds, ERR_EXISTS for is_new.
 */
int holds_take(struct holds *h, struct hold *ask, struct err *e);

/* uid: the user inside the box who asks; (uid_t)-1: the API. ERR_NOT_FOUND, ERR_DENIED. */
int holds_release(struct holds *h, const char *id, uid_t uid, struct err *e);

/* Copies the holds in force, oldest first; the caller frees. */
int holds_list(struct holds *h, struct hold **ret, size_t *ret_n, struct err *e);
unsigned holds_count(struct holds *h);
int64_t holds_ended_mono_ms(struct holds *h); /* when the last one ended; 0: none has */
