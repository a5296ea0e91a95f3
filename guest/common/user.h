#pragma once
/*
 * user: accounts of the box, for the credentials of commands and file operations. They are read from /etc/passwd and
 * /etc/group on every call (the files change while the agent runs), or from a cache that is valid as long as the
 * files are unchanged. libc's name service is not used: it may load plugins, which a static program can't.
 * Thread-safe.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "common/err.h"

#define USER_FILE_MAX_BYTES (4 * 1024 * 1024)
#define USER_MAX_GROUPS 1024

struct user {
    uid_t uid;
    gid_t gid;
    char *name;
    char *home;
    gid_t *groups; /* supplementary groups, including gid */
    size_t n_groups;
};

/*
 * `who` is a name, a user id, or "UID:GID". A name must be in /etc/passwd (else ERR_NOT_FOUND with
 * the field "user"); a number need not be: then the home is "/" and the name is the number.
 */
int user_find(const char *who, struct user *ret, struct err *e);
/* The same without the supplementary groups: n_groups is 0. */
int user_find_uid(uid_t uid, struct user *ret, struct err *e);
/* The id of a group in /etc/group by its name. ERR_NOT_FOUND. */
int user_find_group(const char *name, gid_t *ret, struct err *e);
void user_done(struct user *u); /* accepts NULL and zeroed */

/* The last result; valid only while its files are unchanged. */
struct user_cache {
    pthread_mutex_t lock;
    /* guarded by lock: */
    bool is_set;
    char *who; /* NULL: the key is uid */
    uid_t uid;
    struct user user;
    struct stat files[2];
};

void user_cache_init(struct user_cache *c);
void user_cache_done(struct user_cache *c);
/* As user_find(), or user_find_uid() if who is NULL. *ret is a copy, owned by the caller. */
int user_cache_find(struct user_cache *c, const char *who, uid_t uid, struct user *ret,
                    struct err *e);

#define _cleanup_user_ __attribute__((cleanup(user_done)))
