#pragma once
/* exec_json: what the Exec service's methods share: requests into specs, commands into JSON. */
#include <jansson.h>
#include <stdbool.h>

#include "common/err.h"
#include "proc/registry.h"
#include "proc/spec.h"
#include "agent.h"

#define EXEC_CHUNK_BYTES (64 * 1024) /* raw bytes in one data message, and the most Read gives */

/*
 * Decodes the request of Run and Start. *ret must have been set by proc_spec_init() and is the
 * caller's to free, also after an error. ret_lossless may be NULL: then the field is refused.
 */
int exec_decode_spec(json_t *params, const struct agent *agent, struct proc_spec *ret,
                     bool *ret_lossless, struct err *e);

/* Run's reply; without the bytes of the output for what is not Run's. */
int exec_new_result(struct proc *p, bool has_output, json_t **ret, struct err *e);

/* What Get and List show. */
int exec_new_state(struct proc *p, json_t **ret, struct err *e);

const char *exec_stream_name(enum proc_stream s);
int exec_jx_env(json_t *v, void *out, struct err *e);    /* {"A":"b"}; `out` is char ***, owned */
int exec_jx_stream(json_t *v, void *out, struct err *e); /* "stdout" or "stderr" */
