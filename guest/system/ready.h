#pragma once
/*
 * ready: checks that the tools a box promises can be run. Each tool is started (`NAME --version`) as
 * a command of its own with a deadline, all at the same time; a tool that exists but does not start
 * is not ready. A report in which every required tool worked is kept for READY_KEEP_MS. No thread
 * waits for a tool. Thread-safe; one struct ready_check is used by one thread at a time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "proc/cgroup.h"

#define READY_KEEP_MS 3000
#define READY_MAX_TOOLS 32

struct registry;
struct ready;       /* one per agent: options and the last report */
struct ready_check; /* one call */

/* Borrowed, for as long as the agent lives. */
struct ready_options {
    struct registry *registry; /* runs the tools */
    char *const *required;     /* tools without which the box is not ready; NULL: none */
    const char *default_user;  /* NULL: the agent's own */
};

struct ready_tool {
    const char *name;
    const char *program; /* another name under which the tool was found; NULL: `name` */
    bool is_required;
    bool is_ok;
    char text[ERR_MESSAGE_BYTES]; /* is_ok: the first line it printed. Else: why it is not ready */
};

struct ready_report {
    bool is_ready; /* every required tool is OK */
    int64_t age_ms;
    size_t n_tools;
    struct ready_tool tools[READY_MAX_TOOLS];
};

int ready_new(const struct ready_options *o, struct ready **ret, struct err *e);
struct ready *ready_free(struct ready *r); /* accepts NULL; returns NULL */

/* The limits on commands that this box can enforce: cgroup_probe_limits(), once per agent. */
void ready_get_limits(struct ready *r, bool ret[N_CGROUP_LIMITS]);

/*
 * Starts the tools; with is_fresh also if a report is kept. on_change is called, on any thread, when
 * a tool has changed: it may only wake somebody, who then calls ready_check_poll().
 */
int ready_check_new(struct ready *r, bool is_fresh, void (*on_change)(void *arg), void *arg,
                    struct ready_check **ret, struct err *e);
/* NULL: a tool still runs. The report lives as long as the check. */
const struct ready_report *ready_check_poll(struct ready_check *c);
/* Ends the tools that still run. on_change is not called after it. Accepts NULL; returns NULL. */
struct ready_check *ready_check_free(struct ready_check *c);
