#pragma once
/*
 * oci_mounts: the ids of a box, and its root, mounted with them in a mount namespace that only the
 * runtime, and later the box, has. The host's own namespace never sees a mount of ours, so none can be left behind.
 *
 * All mounts lie below a small tmpfs on a directory of the host that everyone can search (the
 * box's root cannot search a private state directory):
 *   lower  snap-0...  disk  rootfs (the overlay of these)  and one entry for each bind
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"
#include "lib/provider/oci/oci.h"
#include "lib/provider/oci/record.h"
#include "lib/provider/provider.h"

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
    char *const *layers; /* directories between lower and disk, the lowest first; or NULL */
    const char *disk;    /* contains upper/ and work/ */
    int userns_fd;       /* -1: none */
    struct oci_bind binds[OCI_MAX_BINDS];
    size_t n_binds;
};

/* The host's directory that the stage covers in its own namespace. It holds neither the box's
 * directory nor the runtime's program. */
const char *oci_stage_root(const char *box_dir, const char *runtime_path);

int oci_stage_bind(struct oci_stage *s, const struct oci_bind *bind, struct err *e);

/* oci_cmd.setup: enters a new mount namespace and mounts the stage there. arg is a struct
 * oci_stage. */
int oci_stage_enter(void *arg, struct err *e);

/* Makes the mount at `target` read-only in the mount namespace of the process. Searches for the
 * mount there: runsc's gofer has the box's root in a directory of its own. No untrusted program
 * runs there yet. If another process has reused the pid, that is an error and the process is
 * left alone. */
int oci_mounts_seal(const struct oci_proc *p, const char *target, struct err *e);

/* Detaches all mounts below dir in this process's namespace (none, unless somebody else mounted
 * there). */
int oci_mounts_undo(const char *dir, struct err *e);

/* ---- the ids ---- */

/*
 * Every box has a range of uids and gids of its own, claimed by the file <state_dir>/userns/<slot>
 * with the box's id. The ranges lie above those of systemd-nspawn and of useradd's subordinate
 * ids, and below 2^31.
 */

#define OCI_FIRST_UID 0x70000000u
#define OCI_SLOTS 4000u

/* Claims a range for the box; a second call returns the same one. */
int oci_range_claim(const struct provider_box *b, uint32_t *ret_base, struct err *e);
void oci_range_release(const struct provider_box *b, uint32_t base);

/* Opens a user namespace that maps 0..65535 to base.., for mount_setattr. The error says why
 * the kernel refused. */
int oci_userns_open(uint32_t base, int *ret_fd, struct err *e);

/* Can a clone of the mount under `dir` have the range? Asks the kernel and leaves nothing
 * behind. */
int oci_idmap_try(const char *dir, uint32_t base, struct err *e);
