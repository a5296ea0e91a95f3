#pragma once
/*
 * bootstrap_guest: what the bootstrap does in a box, over the guest agent's API: run a command to
 * its end, start the coding agent's command, look how it is and what it said.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"
#include "lib/agent/client.h"

#define BOOTSTRAP_EXEC_ID "agent"
#define BOOTSTRAP_LOG_LINES 30
#define BOOTSTRAP_LOG_LINE_CHARS 120
#define BOOTSTRAP_LOG_BYTES 4096
#define BOOTSTRAP_OUTPUT_BYTES (64 * 1024) /* of a command's output that is looked at */

struct guest_run {
    int status;        /* its exit status; -1: it ended otherwise */
    char reason[16];   /* "exited", "timeout", ... */
    struct buf output; /* standard output, or else standard error */
    char *log;         /* the end of both streams, or "" */
};

/* argv and env are borrowed. An error: it could not be run; how it ended is in *ret. */
int guest_run(struct client *c, json_t *argv, json_t *env, const char *cwd,
              int64_t deadline_mono_ms, struct guest_run *ret, struct err *e);
void guest_run_done(struct guest_run *r);

/* Starts a whole Exec/Start request and returns when it runs. */
int guest_start(struct client *c, json_t *request, int64_t deadline_mono_ms, struct err *e);

enum guest_state {
    GUEST_ABSENT,
    GUEST_RUNNING,
    GUEST_ENDED,
};
/* Of the coding agent's command; how it ended in text ("exited with status 1"). */
int guest_state(struct client *c, int64_t deadline_mono_ms, enum guest_state *ret, char *ended,
                size_t ended_bytes, struct err *e);
/* Ends it with all that it started, and forgets it, so that it can be started again. */
int guest_end(struct client *c, int64_t deadline_mono_ms, struct err *e);
/* The last lines that it wrote, `secret` (or NULL) blotted out; "" when there are none. */
char *guest_log(struct client *c, const char *secret, int64_t deadline_mono_ms);

/* The last lines of a text, within the three bounds above. NULL: out of memory. */
char *guest_log_tail(const char *text, size_t len, const char *secret);
