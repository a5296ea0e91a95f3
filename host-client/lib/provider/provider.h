#pragma once
/*
 * provider: where boxes come from. One file a provider, one row in providers[] (providers.c).
 *
 * A box's directory (box->dir) is the provider's to use: it keeps there what it needs to find its
 * processes, mounts, cgroups and namespaces again from any process, also after a crash at any
 * point ("run.json"). Every function is idempotent. The guest agent listens on the unix socket
 * <dir>/run/agent.sock, a directory that the box sees as /run/bellhop and can't write once start()
 * has returned; its token has been written to <dir>/token (0600, the host's copy) by the caller.
 *
 * prepare() and destroy() are called by the command; start() by the box's monitor, whose children
 * the box's processes become (it is a subreaper); stop() and inspect() by either.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"
#include "lib/util/context.h"
#include "lib/provider/spec.h"

struct provider_box {
    struct bh_ctx *ctx;
    const char *id;   /* 16 hex digits */
    const char *name; /* the host name in the box */
    const char *dir;  /* absolute */
    struct spec *spec;
};

struct provider_run {
    pid_t pid;          /* pid 1 of the box as the host sees it (process: the agent) */
    uint64_t pid_start; /* its start time (/proc/PID/stat field 22): pids are used again */
    pid_t
        listener; /* who listens on run/agent.sock; pid 1, but for a runtime with a kernel of its own */
    uint64_t listener_start;
};

struct provider_facts {
    bool usable;
    char runtime[32]; /* which one passed */
    char why[256];    /* when not usable */
};

struct provider {
    const char *name;
    const char *summary;
    /* Starts something and sees it run. `runtime` "" takes the first that works. */
    int (*probe)(struct bh_ctx *ctx, const char *runtime, struct provider_facts *ret,
                 struct err *e);
    /* What this provider or machine cannot honour is an error before anything is made. May fill
     * in defaults that depend on the machine (spec->runtime). */
    int (*check)(struct bh_ctx *ctx, struct spec *spec, struct err *e);
    int (*prepare)(struct provider_box *b, struct err *e); /* the disk */
    int (*start)(struct provider_box *b, struct provider_run *ret, struct err *e);
    /* Ends every process and undoes mounts, cgroups and namespaces; the disk stays. */
    int (*stop)(struct provider_box *b, int grace_ms, struct err *e);
    int (*destroy)(struct provider_box *b, struct err *e); /* stop, then the disk too */
    /* Is the run recorded in <dir> alive? 1 (and *ret), 0, or an error. */
    int (*find)(struct provider_box *b, struct provider_run *ret, struct err *e);
    /* What is enforced, read back from the kernel (/proc/PID/status, cgroup files, ...):
     * {"isolation":{"user_namespace":true,"seccomp":true,...},"limits":{...},"network":{...},
     * "missing":["user_namespace"]} */
    int (*inspect)(struct provider_box *b, json_t **ret, struct err *e);
    /* The directory in <dir> that has what the box writes to its disk, for the monitor to count; NULL: this
     * provider cannot limit it. */
    const char *disk_dir;
    /* gc: removes what carries this state directory's mark and whose id `is_known` denies. */
    int (*sweep)(struct bh_ctx *ctx, bool (*is_known)(void *arg, const char *id), void *arg,
                 void (*report)(void *arg, const char *line), void *report_arg, struct err *e);
};

extern const struct provider provider_oci;
extern const struct provider provider_process;

const struct provider *provider_find(const char *name); /* NULL: no such provider */
const struct provider *provider_at(size_t i);           /* NULL past the last */
