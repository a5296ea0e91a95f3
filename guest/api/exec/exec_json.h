#pragma once
/* exec_json: conversions that the Exec methods share: requests into specs, commands into JSON. */
#include <jansson.h>
#include <stdbool.h>

#include "common/err.h"
#include "proc/registry.h"
#include "proc/spec.h"
#include "agent.h"

#define EXEC_CHUNK_BYTES \
    (64 * 1024) /* raw bytes in one data message; the maximum that Read returns */

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

/*
 * The reply of Run. has_output: with the bytes of the output, which the other methods' replies do
 * not have.
 */
int exec_new_result(struct proc *p, bool has_output, json_t **ret, struct err *e);

/* One command in the replies of Get and List; has_output as above. */
int exec_new_state(struct proc *p, bool has_output, json_t **ret, struct err *e);

const char *exec_stream_name(enum proc_stream s);
int exec_jx_env(json_t *v, void *out, struct err *e);    /* {"A":"b"}; `out` is char ***, owned */
int exec_jx_stream(json_t *v, void *out, struct err *e); /* "stdout" or "stderr" */
