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

/* gVisor has no fsuid. The effective ids do the same for a thread, by raw system calls; the real and saved ones stay. */
static bool actor_has_fsuid(void)
{
    return syscall(SYS_setfsuid, (uid_t)-1) != -1;
}

/*
 * setfsuid() reports nothing, so it is asked again; leaving uid 0 drops the file capabilities, and
 * coming back restores them.
 */
static bool actor_take_ids(uid_t uid, gid_t gid)
{
    if (!actor_has_fsuid())
        return syscall(SYS_setresgid, (gid_t)-1, gid, (gid_t)-1) == 0 &&
               syscall(SYS_setresuid, (uid_t)-1, uid, (uid_t)-1) == 0;
    (void)syscall(SYS_setfsgid, gid);
    (void)syscall(SYS_setfsuid, uid);
    return (gid_t)syscall(SYS_setfsgid, (gid_t)-1) == gid &&
           (uid_t)syscall(SYS_setfsuid, (uid_t)-1) == uid;
}

/* libc's setgroups() would change every thread of the process. */
static bool actor_take_groups(size_t n, const gid_t *groups)
{
    return syscall(SYS_setgroups, n, groups) == 0;
}

static void actor_take_own(void)
{
    /* First the uid: it brings back the capability that setgroups may need. */
    if (actor_has_fsuid())
        (void)syscall(SYS_setfsuid, own_identity.uid);
    else
        (void)syscall(SYS_setresuid, (uid_t)-1, own_identity.uid, (uid_t)-1);
    if (!actor_take_groups((size_t)own_identity.n_groups, own_identity.groups) ||
        !actor_take_ids(own_identity.uid, own_identity.gid)) {
        (void)fprintf(stderr, "bellhopd: a thread can't have its identity back\n");
        abort();
    }
}

int fs_actor_enter(const struct fs_actor *a, struct err *e)
{
    const struct user *u = &a->user;
    bool has_groups;

    if (a->is_self)
        return 0;
    /* A user namespace may deny setgroups: nothing has changed then, and nothing can be taken back. */
    has_groups = actor_take_groups(u->n_groups, u->groups);
    if (has_groups && actor_take_ids(u->uid, u->gid))
        return 0;
    if (has_groups)
        actor_take_own();
    return err_field(e, ERR_DENIED, "user", "the agent can't act as '%s' here", u->name);
}

void fs_actor_leave(const struct fs_actor *a)
{
    if (!a->is_self)
        actor_take_own();
}
