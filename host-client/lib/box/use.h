#pragma once
/*
 * use: decides whether a box is in use. Compares its guest agent's report (System/Activity) with
 * the previous one. A box is in use
 *   - if a command runs in it, or is starting. A shell that has started nothing, a server (it
 *     listens on a port) and the coding agent wait for others: they count by the processor time of
 *     their trees, a shell also by its output;
 *   - if its processes together used 1/20 of a processor or more;
 *   - if its agent was called since then, has a call open, or is held.
 * Plain data, no threads. Times are the caller's clock in milliseconds.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct use {
    int64_t at_ms;     /* at the last look */
    int64_t cpu_ms;    /* of all processes, at the last look */
    int n_restarts;    /* of the coding agent, at the last look */
    bool is_new_agent; /* during a look: restarted since the last one */
    int64_t used_ms;   /* the last known use */
    json_t *before;    /* the commands at the last look, by id: {"cpu_ms","output_bytes"} */
};

void use_init(struct use *u, int64_t now_ms);
void use_done(struct use *u); /* accepts zeroed */
/* agent_id: the coding agent's command; "" if it has none. n_restarts: the monitor's restarts
 * of it so far. */
/* Sets u->used_ms: of a call that has ended, its time. */
bool use_look(struct use *u, const json_t *activity, const char *agent_id, int n_restarts,
              int64_t now_ms);
