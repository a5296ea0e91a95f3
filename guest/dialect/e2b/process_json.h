#pragma once
/*
 * process_json: conversions that the methods of process.Process share: requests into specs, events
 * into JSON.
 */
#include <jansson.h>
#include <stdbool.h>

#include "common/err.h"
#include "proc/registry.h"
#include "proc/spec.h"
#include "api/rpc.h"

#define PROCESS_CHUNK_BYTES (32 * 1024) /* of output in one message */
#define PROCESS_KEEP_MS 30000           /* how long Connect finds an ended command */

/* `spec` is first: decoders of several fields get the request as a struct proc_spec. */
struct process_request {
    struct proc_spec spec;
    json_t *process; /* borrowed from the call; NULL: absent */
};

/*
 * ret->spec must have been set by proc_spec_init() and is the caller's to free, also after an
 * error. Reads /etc/passwd and the working directory: blocks.
 */
int process_decode_start(const struct rpc_call *call, struct process_request *ret, struct err *e);

#define TERMINAL_COLS 80
#define TERMINAL_ROWS 24

struct terminal {
    bool is_there;
    uint32_t cols, rows;
};
int jx_terminal(json_t *v, void *out, struct err *e);

struct selector {
    bool has_pid, has_tag;
    uint32_t pid;
    const char *tag;
};
int jx_selector(json_t *v, void *out, struct err *e);
/* Returns a reference. An ended command is found only with `ended_too`, and for PROCESS_KEEP_MS. */
int process_find(const struct agent *a, const struct selector *s, bool ended_too, struct proc **ret,
                 struct err *e);
/* The same for params {"process":SELECTOR}; other fields are ignored. */
int process_find_in(const struct agent *a, json_t *params, bool ended_too, struct proc **ret,
                    struct err *e);
/* The error for a command that does not exist. */
int process_not_found(const struct selector *s, struct err *e);

int jx_b64(json_t *v, void *out, struct err *e); /* struct jx_bytes, owned: jx_bytes_done() */

/* {"event":{name:value}}; takes value. NULL: out of memory. */
json_t *process_new_event(const char *name, json_t *value);
json_t *process_new_data(const struct proc *p, enum proc_stream s, const char *data, size_t len);
json_t *process_new_end(const struct proc_info *info);
/* The command in the reply of List. */
json_t *process_new_info(struct proc *p);
/* The error for a command that never ran, in envd's words. */
int process_start_error(const struct proc *p, const struct err *why, struct err *e);
