#include "fs/actor.h"

#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/str.h"

#include "common/banned.h"

#define PASSWD_BUF_BYTES 12288

/* The agent's own identity, read once and never changed: what fs_actor_leave() goes back to. */
static struct {
    uid_t uid;
    gid_t gid;
    gid_t groups[FS_ACTOR_MAX_GROUPS];
    int n_groups;
} own;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static void read_own(void)
{
    own.uid = geteuid();
    own.gid = getegid();
    own.n_groups = getgroups(FS_ACTOR_MAX_GROUPS, own.groups);
    if (own.n_groups < 0)
        own.n_groups = 0;
}

static int fill_groups(struct fs_actor *a, struct err *e)
{
    int n = FS_ACTOR_MAX_GROUPS;

    a->groups = malloc(sizeof(*a->groups) * FS_ACTOR_MAX_GROUPS);
    if (!a->groups)
        return err_oom(e);
    if (getgrouplist(a->name, a->gid, a->groups, &n) < 0)
        return err_field(e, ERR_EXHAUSTED, "user", "user '%s' is in more than %d groups", a->name,
                         FS_ACTOR_MAX_GROUPS);
    a->n_groups = (size_t)n;
    return 0;
}

static int fill(struct fs_actor *a, const char *name, const char *home, struct err *e)
{
    a->name = strdup(name);
    a->home = strdup(home && home[0] == '/' ? home : "/");
    return a->name && a->home ? 0 : err_oom(e);
}

static int fill_from_uid(struct fs_actor *a, struct err *e)
{
    char buf[PASSWD_BUF_BYTES], number[24];
    struct passwd pw, *found = NULL;

    (void)getpwuid_r(a->uid, &pw, buf, sizeof(buf), &found);
    if (found) {
        if (!a->is_self)
            a->gid = pw.pw_gid;
        return fill(a, pw.pw_name, pw.pw_dir, e);
    }
    (void)snprintf(number, sizeof(number), "%u", (unsigned)a->uid);
    if (!a->is_self)
        a->gid = (gid_t)a->uid;
    return fill(a, number, NULL, e);
}

static int find_user(struct fs_actor *a, const char *user, struct err *e)
{
    char buf[PASSWD_BUF_BYTES];
    struct passwd pw, *found = NULL;
    uint64_t number;

    (void)getpwnam_r(user, &pw, buf, sizeof(buf), &found);
    if (found) {
        a->uid = pw.pw_uid;
        a->gid = pw.pw_gid;
        return fill(a, pw.pw_name, pw.pw_dir, e);
    }
    if (str_parse_u64(user, 0, UINT32_MAX - 1, &number, NULL) < 0)
        return err_field(e, ERR_NOT_FOUND, "user", "there is no user '%.64s'", user);
    a->uid = (uid_t)number;
    return fill_from_uid(a, e);
}

static int init(struct fs_actor *a, const char *user, struct err *e)
{
    int r;

    if (!user) {
        a->is_self = true;
        a->uid = own.uid;
        a->gid = own.gid;
        return fill_from_uid(a, e);
    }
    r = find_user(a, user, e);
    if (r < 0)
        return r;
    if (a->uid == own.uid) {
        a->is_self = true;
        a->gid = own.gid;
        return 0;
    }
    if (own.uid != 0)
        return err_field(e, ERR_DENIED, "user", "the agent is not root: it can't act as '%s'",
                         a->name);
    return fill_groups(a, e);
}

int fs_actor_init(struct fs_actor *a, const char *user, struct err *e)
{
    int r;

    (void)pthread_once(&own_once, read_own);
    *a = (struct fs_actor){0};
    r = init(a, user, e);
    if (r < 0)
        fs_actor_done(a);
    return r;
}

void fs_actor_done(struct fs_actor *a)
{
    if (!a)
        return;
    free(a->groups);
    free(a->name);
    free(a->home);
    *a = (struct fs_actor){0};
}

/*
 * libc's setgroups() would change every thread of the process. setfsuid() reports nothing, so it
 * is asked again; leaving uid 0 drops the file capabilities, and coming back restores them.
 */
static bool take(uid_t uid, gid_t gid, size_t n_groups, const gid_t *groups)
{
    if (syscall(SYS_setgroups, n_groups, groups) < 0)
        return false;
    (void)syscall(SYS_setfsgid, gid);
    (void)syscall(SYS_setfsuid, uid);
    return (gid_t)syscall(SYS_setfsgid, (gid_t)-1) == gid &&
           (uid_t)syscall(SYS_setfsuid, (uid_t)-1) == uid;
}

static void take_own(void)
{
    /* First the uid: it brings back the capability that setgroups may need. */
    (void)syscall(SYS_setfsuid, own.uid);
    if (!take(own.uid, own.gid, (size_t)own.n_groups, own.groups)) {
        (void)fprintf(stderr, "bellhopd: a thread can't have its identity back\n");
        abort();
    }
}

int fs_actor_enter(const struct fs_actor *a, struct err *e)
{
    if (a->is_self)
        return 0;
    if (!take(a->uid, a->gid, a->n_groups, a->groups)) {
        take_own();
        return err_field(e, ERR_DENIED, "user", "the agent can't act as '%s' here", a->name);
    }
    return 0;
}

void fs_actor_leave(const struct fs_actor *a)
{
    if (!a->is_self)
        take_own();
}
