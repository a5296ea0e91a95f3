#pragma once
/*
 * bootstrap_guest: the bootstrap's calls of the guest agent: run a command to its end, start the
 * coding agent's command, read its state and its output.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"
#include "lib/agent/client.h"
#include "lib/recipe/recipe.h"

#define BOOTSTRAP_EXEC_ID "agent"
#define BOOTSTRAP_LOG_LINES 30
#define BOOTSTRAP_LOG_LINE_CHARS 120
#define BOOTSTRAP_LOG_BYTES 4096
#define BOOTSTRAP_OUTPUT_BYTES (64 * 1024) /* of a command's output */

struct guest_run {
    int status;        /* exit status; -1: it ended in another way */
    char reason[16];   /* "exited", "timeout", ... */
    struct buf output; /* standard output; standard error if that is empty */
    char *log;         /* the end of both streams, or "" */
};

/* Borrows argv and env. An error means that it could not be run; *ret says how it ended. */
int guest_run(struct client *c, json_t *argv, json_t *env, const char *cwd,
              int64_t deadline_mono_ms, struct guest_run *ret, struct err *e);
void guest_run_done(struct guest_run *r);

/* Starts an Exec/Start request and returns once it runs. */
int guest_start(struct client *c, json_t *request, int64_t deadline_mono_ms, struct err *e);

enum guest_state {
    GUEST_ABSENT,
    GUEST_RUNNING,
    GUEST_ENDED,
};
/* The state of the coding agent's command; `text` says how it ended ("exited with status 1"). */
int guest_state(struct client *c, int64_t deadline_mono_ms, enum guest_state *ret, char *ended,
                size_t ended_bytes, struct err *e);
/* Ends it with all its children and forgets it, so that it can be started again. */
int guest_end(struct client *c, int64_t deadline_mono_ms, struct err *e);
/* The last lines of the output of the command with this id, with `secret` (or NULL) masked; "" if
 * there are none. */
char *guest_log(struct client *c, const char *id, const char *secret, int64_t deadline_mono_ms);

/* The last lines of a text, within the three limits above. NULL: out of memory. */
char *guest_log_tail(const char *text, size_t len, const char *secret);

/* ---- health ---- */

/*
 * Checks the coding agent's health. A server is asked over HTTP, and the JSON of
 * its response is checked: a page with status 200 is not health. An agent that speaks on its
 * standard input is sent a line and must answer it.
 */

struct bootstrap_probe {
    struct client *client;
    const struct recipe_health *health;
    uint16_t port;
    const char *password;
};

/* One attempt. *ret_session (may be NULL): the session that an rpc answer names, or untouched.
 * -ERR_ABORTED: an rpc agent cannot be asked while another client writes a line. */
int bootstrap_probe(const struct bootstrap_probe *p, int64_t deadline_mono_ms, char **ret_session,
                    struct err *e);

/* Does the answer have every member of `expect` with the same value? Public for the tests. */
int bootstrap_check_answer(json_t *expect, json_t *answer, struct err *e);
