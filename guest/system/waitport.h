#pragma once
/*
 * waitport: waits until something listens on a port and accepts, and, with a path, until it answers HTTP
 * there. It polls by connecting, first after 20 ms, later every 50 ms: a refused connection costs
 * nothing and no program notices it. No thread waits. All functions are thread-safe.
 */
#include <stdint.h>

#include "common/err.h"

#define WAITPORT_TIMEOUT_MS 30000 /* the default */
#define WAITPORT_TIMEOUT_MAX_MS (24 * 3600 * 1000)
#define WAITPORT_FIRST_MS 20
#define WAITPORT_LATER_MS 50
#define WAITPORT_ANSWER_MS 5000 /* deadline of one try with a path */
#define WAITPORT_PATH_MAX_BYTES 2048

struct loop;
struct registry;
struct waitport;

/* Strings are copied. */
struct waitport_options {
    uint32_t port;
    uint64_t timeout_ms;
    const char *host; /* an IP address; NULL: the loopbacks */
    const char *path; /* request it; a status below 400 ends the wait. NULL: do not */
    const char *id;   /* the command that should listen: its end fails the wait. NULL: none */
};

struct waitport_result {
    int status; /* of the HTTP answer; 0: none was asked for */
    int64_t waited_ms;
};

/*
 * Checks the options (errors name the field) and starts. on_done is called at most once, on any thread,
 * with the wait's lock held: it may only wake somebody, who then calls waitport_poll().
 */
int waitport_new(struct loop *l, struct registry *reg, const struct waitport_options *o,
                 void (*on_done)(void *arg), void *arg, struct waitport **ret, struct err *e);
/* 0: not yet. 1: *ret is set. Negative: the wait failed, -ERR_DEADLINE at its timeout. */
int waitport_poll(struct waitport *w, struct waitport_result *ret, struct err *e);
/* Ends the wait. on_done is not called after it. Accepts NULL; returns NULL. */
struct waitport *waitport_free(struct waitport *w);

/* A port as a request's field "port". */
int waitport_check_port(uint32_t port, struct err *e);
