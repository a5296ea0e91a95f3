#pragma once
/*
 * waitport: until something listens on a port and accepts, and, with a path, answers HTTP there.
 * It tries by connecting, at first after 20 ms, later every 200: a port that refuses costs nothing
 * and nobody notices. Everything on the loop's thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define WAITPORT_FIRST_MS 20
#define WAITPORT_LATER_MS 200
#define WAITPORT_ANSWER_MS 5000 /* of one try with a path */
#define WAITPORT_PATH_MAX_BYTES 2048

struct loop;
struct waitport;

struct waitport_options {
    uint16_t port;
    const char *host;    /* an IP address; NULL: the loopbacks. Copied */
    const char *path;    /* ask for it; a status below 400 is the answer. NULL: no. Copied */
    int64_t deadline_ms; /* monotonic */
};

/* Called once, never by waitport_new(); the handle is dead then. status: of the answer, or 0. */
typedef void (*waitport_fn)(void *arg, int status, const struct err *error);

int waitport_new(struct loop *l, const struct waitport_options *o, waitport_fn fn, void *arg,
                 struct waitport **ret, struct err *e);
struct waitport *waitport_free(struct waitport *w); /* before fn was called; accepts NULL */

/* "/x?y" as it may stand in a request line; the error names the field "path". */
int waitport_check_path(const char *path, struct err *e);
