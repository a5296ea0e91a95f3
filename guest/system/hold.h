#pragma once
/*
 * hold: "do not take the box for idle", said by a client of the API or from inside the box, until a
 * time, or for as long as a connection is open. A hold is a fact for whoever decides about idle
 * boxes; it stops nothing by itself, a lease's end neither. One that has run out is gone at the
 * next look; nothing runs in between. Thread-safe.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

#define HOLD_MAX 256         /* at a time */
#define HOLD_MAX_PER_USER 32 /* of these, from inside the box */
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
    bool is_new;           /* asked: there must be none of this id */
    bool is_local;         /* from inside the box: by this process of this user */
    uid_t uid;
    pid_t pid;
};

struct holds;

int holds_new(struct holds **ret, struct err *e);
struct holds *holds_free(struct holds *h); /* accepts NULL; returns NULL */

/*
 * Takes or renews ask->id ("": one is made and put there); since_mono_ms is set here. A hold from
 * inside can be renewed by its own user only. ERR_EXHAUSTED past the bounds, ERR_EXISTS for is_new.
 */
int holds_take(struct holds *h, struct hold *ask, struct err *e);

/* uid: who from inside the box asks; (uid_t)-1: the API. ERR_NOT_FOUND, ERR_DENIED. */
int holds_release(struct holds *h, const char *id, uid_t uid, struct err *e);

/* Copies those in force, oldest first; the caller frees. */
int holds_list(struct holds *h, struct hold **ret, size_t *ret_n, struct err *e);
unsigned holds_count(struct holds *h);
int64_t holds_ended_mono_ms(struct holds *h); /* when the last one ended; 0: none has */
