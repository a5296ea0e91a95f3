#pragma once
/* exec_json: what the Exec service's methods share: requests into specs, commands into JSON. */
#include <jansson.h>
#include <stdbool.h>

#include "common/err.h"
#include "proc/registry.h"
#include "proc/spec.h"
#include "agent.h"

#define EXEC_CHUNK_BYTES (64 * 1024) /* raw bytes in one data message, and the most Read gives */

/* `spec` is first: decoders of several fields get the request as a struct proc_spec. */
struct exec_request {
    struct proc_spec spec;
    bool is_lossless; /* of the stream that Start returns */
};

/*
 * Decodes the request of Run and Start. ret->spec must have been set by proc_spec_init() and is the
 * caller's to free, also after an error.
 */
int exec_decode_request(json_t *params, const struct agent *agent, struct exec_request *ret,
                        struct err *e);

/* Run's reply; without the bytes of the output for what is not Run's. */
int exec_new_result(struct proc *p, bool has_output, json_t **ret, struct err *e);

/* What Get and List show. */
int exec_new_state(struct proc *p, json_t **ret, struct err *e);

const char *exec_stream_name(enum proc_stream s);
int exec_jx_env(json_t *v, void *out, struct err *e);    /* {"A":"b"}; `out` is char ***, owned */
int exec_jx_stream(json_t *v, void *out, struct err *e); /* "stdout" or "stderr" */
