#include "fs/actor.h"

#include <grp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

struct identity {
    uid_t uid;
    gid_t gid;
    gid_t groups[USER_MAX_GROUPS];
    int n_groups;
};

/* The agent's own, read once and never changed: fs_actor_leave() takes it back. */
static struct identity own_identity;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static void read_own(void)
{
    own_identity.uid = geteuid();
    own_identity.gid = getegid();
    own_identity.n_groups = getgroups(USER_MAX_GROUPS, own_identity.groups);
    if (own_identity.n_groups < 0)
        own_identity.n_groups = 0;
}

static int actor_init(struct fs_actor *a, const char *who, struct err *e)
{
    int r = who ? user_find(who, &a->user, e) : user_find_uid(own_identity.uid, &a->user, e);

    if (r < 0)
        return r;
    /* Another group of one's own ("0:100") is to be taken as well. */
    a->is_self = a->user.uid == own_identity.uid && !(who && strchr(who, ':'));
    if (a->is_self)
        a->user.gid = own_identity.gid;
    else if (own_identity.uid != 0)
        return err_field(e, ERR_DENIED, "user", "the agent is not root: it can't act as '%s'",
                         a->user.name);
    return 0;
}

int fs_actor_init(struct fs_actor *a, const char *user, struct err *e)
{
    int r;

    (void)pthread_once(&own_once, read_own);
    *a = (struct fs_actor){0};
    r = actor_init(a, user, e);
    if (r < 0)
        fs_actor_done(a);
    return r;
}

void fs_actor_done(struct fs_actor *a)
{
    if (!a)
        return;
    user_done(&a->user);
    *a = (struct fs_actor){0};
}

/*
 * libc's setgroups() would change every thread of the process. setfsuid() reports nothing, so it
 * is asked again; leaving uid 0 drops the file capabilities, and coming back restores them.
 */
static bool actor_take(uid_t uid, gid_t gid, size_t n_groups, const gid_t *groups)
{
    if (syscall(SYS_setgroups, n_groups, groups) < 0)
        return false;
    (void)syscall(SYS_setfsgid, gid);
    (void)syscall(SYS_setfsuid, uid);
    return (gid_t)syscall(SYS_setfsgid, (gid_t)-1) == gid &&
           (uid_t)syscall(SYS_setfsuid, (uid_t)-1) == uid;
}

static void actor_take_own(void)
{
    /* First the uid: it brings back the capability that setgroups may need. */
    (void)syscall(SYS_setfsuid, own_identity.uid);
    if (!actor_take(own_identity.uid, own_identity.gid, (size_t)own_identity.n_groups,
                    own_identity.groups)) {
        (void)fprintf(stderr, "bellhopd: a thread can't have its identity back\n");
        abort();
    }
}

int fs_actor_enter(const struct fs_actor *a, struct err *e)
{
    const struct user *u = &a->user;

    if (a->is_self)
        return 0;
    if (!actor_take(u->uid, u->gid, u->n_groups, u->groups)) {
        actor_take_own();
        return err_field(e, ERR_DENIED, "user", "the agent can't act as '%s' here", u->name);
    }
    return 0;
}

void fs_actor_leave(const struct fs_actor *a)
{
    if (!a->is_self)
        actor_take_own();
}
