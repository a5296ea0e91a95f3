#pragma once
/*
 * actor: on whose behalf a file operation runs. An agent that is root acts for a named user with
 * that user's rights: the calling thread (and no other) takes the user's groups, fsgid and fsuid
 * by raw system calls, which drops the capabilities that override permissions, and takes its own
 * back on every way out. An agent that is not root acts for itself only.
 *
 *     _fs_acting_ const struct fs_actor *acting = NULL;
 *     r = fs_act(actor, &acting, e);    the rest of the scope runs as the actor
 */
#include <stdbool.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/user.h"

struct fs_actor {
    bool is_self; /* as the agent itself: nothing to take */
    struct user user;
};

/* user: as user_find() has it; NULL: the agent itself. -ERR_NOT_FOUND for an unknown name,
 * -ERR_DENIED when the agent can't act for it; both with field "user". */
int fs_actor_init(struct fs_actor *a, const char *user, struct err *e);
void fs_actor_done(struct fs_actor *a);

/* Takes the identity for this thread. Not nested. Leave with fs_actor_leave(). */
int fs_actor_enter(const struct fs_actor *a, struct err *e);
/* Aborts the program when the agent's identity can't be had back. */
void fs_actor_leave(const struct fs_actor *a);

static inline void fs_actor_leave_p(const struct fs_actor *const *a)
{
    if (*a)
        fs_actor_leave(*a);
}
#define _fs_acting_ _cleanup_(fs_actor_leave_p)

static inline int fs_act(const struct fs_actor *a, const struct fs_actor **guard, struct err *e)
{
    int r = fs_actor_enter(a, e);

    if (r == 0)
        *guard = a;
    return r;
}
