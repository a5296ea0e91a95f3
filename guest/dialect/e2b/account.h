#pragma once
/*
 * account: the user of a request, and the meaning of its paths. The user determines the credentials of a process,
 * the home from which relative paths start, and the owner of new files; operations on files have the agent's
 * rights. Reads /etc/passwd: call it on a pool thread. Thread-safe.
 */
#include "common/err.h"
#include "common/user.h"

struct agent;

/*
 * asked: the name in the request; NULL: the default user. *ret is owned by the caller (user_done()). An unknown user
 * is -ERR_UNAUTHENTICATED, with envd's message for REST routes, and its message for methods.
 */
int account_look_up(const struct agent *a, const char *asked, struct user *ret, struct err *e);
int account_authenticate(const struct agent *a, const char *asked, struct user *ret, struct err *e);

/*
 * "" is the default working directory, else the home; "~" and "~/x" are below the home; an absolute path is returned
 * unchanged; any other path is below the home, and cleaned. -ERR_INVALID: "~other", or a NUL.
 */
int account_path(const struct agent *a, const struct user *u, const char *path, char **ret,
                 struct err *e);

/* The user of "Authorization: Basic ..."; the caller frees it. NULL: there is none. */
char *account_of_basic(const char *authorization);
