#pragma once
/*
 * agent: the application context of the handlers. main makes and frees it; the pointers do not change while
 * threads run. The header of each module says which of its functions are thread-safe.
 */
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct registry;
struct pool;
struct fs_root;
struct lease;
struct holds;
struct activity;
struct ready;
struct auth;
struct dialect_slot;
struct resumes;
struct server;

struct agent {
    struct auth *auth;             /* system/auth.h: the token */
    struct dialect_slot *dialects; /* api/dialect.h: the public protocols and their states */
    struct loop *loop;             /* event/loop.h */
    struct registry *registry;     /* proc/registry.h: every command */
    struct pool *pool;             /* event/pool.h: threads for what blocks */
    struct fs_root *root;          /* fs/root.h: "/" or --root */
    struct lease *lease;           /* system/init.h: when pid 1 ends the box; NULL without --init */
    struct holds *holds;           /* system/hold.h: reasons to keep the box */
    struct activity *activity;     /* system/activity.h: processor time of the commands */
    struct ready *ready;           /* system/ready.h: whether the tools of the box work */
    const char *default_user;      /* --user, or NULL: as the agent itself */
    const char *workdir;      /* where relative paths and commands start; NULL: the user's home */
    char **required;          /* --require: tools without which the box is not ready */
    const char *http_library; /* its version, for Info */
    bool is_read_only;
    bool allows_pages;       /* --cors: web pages may call a dialect that is made for them */
    struct resumes *resumes; /* api/files/resume.h: uploads that can go on after a cut */
    int64_t started_mono_ms;
    _Atomic uint64_t generation; /* raised by System.Resync: which life of a snapshot this is */
    struct server *server;       /* http/server.h */
};
