#pragma once
/*
 * file_paths: what every request about a file begins with: the user, who it is done for, and the path; the
 * directories that are missing on the way to it; errors of the kernel in envd's words. Files are read and written with
 * the rights of the agent (see account.h). Blocks.
 */
#include <sys/types.h>

#include "common/err.h"
#include "common/user.h"
#include "fs/root.h"

struct agent;

/* The owner of new files and directories. */
struct owner {
    uid_t uid;
    gid_t gid;
};

struct files_call {
    const struct agent *agent;
    struct user user;
    struct owner owner;
    struct fs_caller *caller; /* the agent itself */
    char *path;
};

/* For a method: the user of its request, or NULL. */
int files_call_init(struct files_call *f, const struct agent *a, const char *user, const char *path,
                    struct err *e);
/* For a REST route. Without a path: `path` stays NULL. */
int files_rest_init(struct files_call *f, const struct agent *a, const char *user, struct err *e);
void files_call_done(struct files_call *f); /* accepts zeroed */
#define _cleanup_files_call_ __attribute__((cleanup(files_call_done)))

/* Another path of the same request; the caller's to free. */
int files_call_path(const struct files_call *f, const char *path, char **ret, struct err *e);

/*
 * mkdir -p with 0755, for this owner; existing directories stay as they are. -ERR_INTERNAL: "path is a file: ..." and
 * the kernel's error. With ".." behind a directory that is missing nothing is made: there is no such path.
 */
int dirs_make(const struct fs_caller *c, const char *path, const struct owner *o, struct err *e);
/* The same for the directory that holds path; 0 if there is no such path. */
int dirs_make_parents(const struct fs_caller *c, const char *path, const struct owner *o,
                      struct err *e);

/*
 * Errors with the messages and codes of E2B's envd, which often differ from those that err_sys() chooses for an errno.
 * Like err.h's functions, each returns -code. "WHAT: no such file or directory", with this code; the errno is kept.
 */
int fault_sys(struct err *e, enum err_code code, int sys, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The same for an error of guest/fs: an error without an errno (a path outside the root) is kept unchanged. */
int fault_of(struct err *e, enum err_code code, const struct err *inner, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
