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

/* ---- from inside the box ---- */

/*
 * holdsock: a unix socket on which every process of the box may take and release holds, without the token and
 * without access to anything else. One line in, one line out:
 *
 *     take MS ID REASON...    for MS milliseconds; the same id renews. ID "-": one is generated
 *     bind MS ID REASON...    while the connection is open, for at most MS milliseconds (0: no bound)
 *     release ID
 *  -> ok ID   or   error SENTENCE
 *
 * The peer's identity comes from the kernel (SO_PEERCRED). The number of connections and the time to send the line
 * are bounded. For the loop's thread only, except holdsock_new(), which is called before it runs.
 */
#define HOLDSOCK_PATH "/run/bellhop-hold.sock"
#define HOLDSOCK_PATH_STRICT "/run/bellhop/hold.sock" /* where the agent can't write to /run */
#define HOLDSOCK_MAX_CONNECTIONS 256
#define HOLDSOCK_LINE_BYTES 512
#define HOLDSOCK_LINE_MS 5000 /* deadline of the line */

struct holdsock;
struct loop;

int holdsock_new(struct loop *l, struct holds *h, const char *path, struct holdsock **ret,
                 struct err *e);
/* Removes the socket's file. Only after the loop has ended; accepts NULL; returns NULL. */
struct holdsock *holdsock_free(struct holdsock *s);

/*
 * holdcmd.c: the command `bellhopd hold`, for users inside the box: takes a hold from the box's agent, for a time
 * or while a command runs. Needs no token. The arguments after `hold`. Returns the exit status: the command's; 125
 * if the hold was refused; 126 or 127 if the command can't be run or does not exist.
 */
int holdcmd_main(int argc, char **argv);
