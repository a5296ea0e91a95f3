#pragma once
/*
 * who: the user of a request and what its paths mean. A user decides the credentials of a process,
 * the home that relative paths start from, and who owns what is made; nothing else: operations on
 * files have the agent's rights. Reads /etc/passwd: on a pool thread. Thread-safe.
 */
#include "common/err.h"
#include "common/user.h"

struct agent;

/*
 * asked: the name in the request, or NULL: the default user. *ret is the caller's (user_done()).
 * -ERR_UNAUTHENTICATED in the words that clients know, of REST routes and of methods: there is no
 * such user.
 */
int who_look_up(const struct agent *a, const char *asked, struct user *ret, struct err *e);
int who_authenticate(const struct agent *a, const char *asked, struct user *ret, struct err *e);

/*
 * "" is the default working directory, or else the home; "~" and "~/x" are of the home; what is
 * absolute stays as it is to the letter; the rest is below the home, and cleaned. -ERR_INVALID:
 * "~other", or a NUL.
 */
int who_path(const struct agent *a, const struct user *u, const char *path, char **ret,
             struct err *e);

/* The user of "Authorization: Basic ...", the caller's to free; NULL: none can be read there. */
char *who_basic(const char *authorization);
