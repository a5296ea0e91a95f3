#pragma once
/*
 * oci_mounts: the box's root, mounted in a mount namespace that only the runtime (and then the
 * box) has. The host's own namespace never sees a mount of ours, so none can be left behind.
 *
 * Everything appears below a small tmpfs on a directory of the host that everyone can search
 * (a box's own root could not search a private state directory):
 *   lower  disk  rootfs (the overlay of both)  and one entry for each bind
 */
#include <stdbool.h>

#include <sys/types.h>

#include "common/err.h"
#include "lib/provider/oci/record.h"

#define OCI_MAX_BINDS 24
#define OCI_STAGE_PATH_BYTES 256

struct oci_bind {
    const char *source; /* on the host */
    const char *name;   /* below the stage */
    bool is_dir;
    bool readonly;
    bool idmap; /* with the ids of the box */
};

struct oci_stage {
    const char *root;  /* oci_stage_root() */
    const char *lower; /* the image's root file system; NULL: no overlay, rootfs is `disk` itself */
    const char *disk;  /* has upper/ and work/ */
    int userns_fd;     /* -1: none */
    struct oci_bind binds[OCI_MAX_BINDS];
    size_t n_binds;
};

/* The directory of the host that the stage covers in its own namespace; not one that holds the
 * box's directory or the runtime's program. */
const char *oci_stage_root(const char *box_dir, const char *runtime_path);

int oci_stage_bind(struct oci_stage *s, const struct oci_bind *bind, struct err *e);

/* oci_cmd.setup: enters a new mount namespace and mounts it all. arg is a struct oci_stage. */
int oci_stage_enter(void *arg, struct err *e);

/* Makes the mount at target read-only in the mount namespace of the process, wherever that namespace
 * has it, since runsc's gofer has the box's root in a directory of its own. Nothing that can't be
 * trusted runs there yet. A process that got the number meanwhile is an error, and left alone. */
int oci_mounts_seal(const struct oci_proc *p, const char *target, struct err *e);

/* Detaches whatever is mounted below dir in this process's namespace (nothing, unless somebody
 * else mounted there). */
int oci_mounts_undo(const char *dir, struct err *e);
