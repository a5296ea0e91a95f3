#pragma once
/*
 * files: what every request about a file begins with: the user, who it is done for, and the path. It
 * is done with the rights of the agent (see account.h). Blocks.
 */
#include "common/err.h"
#include "dialect/e2b/dirs.h"
#include "fs/root.h"

struct agent;

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
