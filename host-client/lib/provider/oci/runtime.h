#pragma once
/*
 * oci_runtime: the programs that make boxes from bundles: runc, crun, runsc. They differ in their
 * options and in what works on a given machine: a runtime counts only after it has just run a
 * program (the probe).
 */
#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"
#include "lib/util/context.h"
#include "lib/provider/oci/mounts.h"

struct oci_runtime {
    char name[16];
    char path[256];
};

/* Takes the runtime called `name`, or with "" the first that passes the probe. The error names
 * the field "runtime" and says how each one failed. */
int oci_runtime_choose(struct bh_ctx *ctx, const char *name, struct oci_runtime *ret,
                       struct err *e);

/* The same, for a box: a failure that was kept is no reason to refuse it, as a process of that probe may have been
 * killed. */
int oci_runtime_require(struct bh_ctx *ctx, const char *name, struct oci_runtime *ret,
                        struct err *e);

/* The names and paths of one container. */
struct oci_container {
    const struct oci_runtime *runtime;
    const char *id;
    const char *state_dir; /* the runtime's --root */
    const char *log_path;  /* the runtime's log, read for errors */
    const char *network;   /* the spec's network: runsc has an option for it */
    int cancel_fd;
    int64_t deadline_mono_ms; /* of its commands; 0: OCI_COMMAND_TIMEOUT_MS for each */
};

/* Creates the container, whose program waits. Its output goes to console_fd. The stage is
 * mounted first, in a namespace of its own. */
int oci_runtime_create(const struct oci_container *c, const char *bundle, int console_fd,
                       struct oci_stage *stage, pid_t *ret_pid, struct err *e);
/* "start" of a container that was created; "pause" and "resume" of one whose processes the runtime
 * itself schedules. */
int oci_runtime_command(const struct oci_container *c, const char *command, struct err *e);
/* Kills the container and removes the runtime's state. No container is no error. */
int oci_runtime_delete(const struct oci_container *c, struct err *e);
