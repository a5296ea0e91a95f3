#pragma once
/*
 * oci_runtime: the programs that make boxes of bundles: runc, crun, runsc. Which differ in their
 * options, and in what works on a given machine: so a runtime counts only when it has just run
 * something (the probe).
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

/* The runtime called `name`, or, for "", the first that passes the probe. The error names the
 * field "runtime" and says what each one did. */
int oci_runtime_choose(struct bh_ctx *ctx, const char *name, struct oci_runtime *ret,
                       struct err *e);

/* What one container of a runtime is called and where its things are. */
struct oci_container {
    const struct oci_runtime *runtime;
    const char *id;
    const char *state_dir; /* the runtime's --root */
    const char *log_path;  /* of the runtime, for its errors */
    const char *network;   /* the spec's: runsc wants to know */
    int cancel_fd;
};

/* Creates the container: everything is there but the program, which waits. Its output goes to
 * console_fd. The stage is mounted first, in a namespace of its own. */
int oci_runtime_create(const struct oci_container *c, const char *bundle, int console_fd,
                       struct oci_stage *stage, pid_t *ret_pid, struct err *e);
int oci_runtime_start(const struct oci_container *c, struct err *e);
/* Kills it and removes the runtime's state of it. Fine when there is none. */
int oci_runtime_delete(const struct oci_container *c, struct err *e);
