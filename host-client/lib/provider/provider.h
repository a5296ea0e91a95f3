#pragma once
/*
 * provider: where boxes come from. A provider is a folder and a row in PROVIDERS; README.md has
 * the steps. The rest of the host knows a provider by its capabilities and functions, never by its
 * name.
 *
 * A box's directory (box->dir) is the provider's to use. The provider records there how any
 * process finds the box's processes, mounts, cgroups and namespaces again, also after a crash at
 * any point. Every function is idempotent. The guest agent listens on the unix socket
 * <dir>/run/agent.sock. The box sees that directory as /run/bellhop and cannot write to it once
 * start() has returned. The caller has written the agent's token to <dir>/token (0600). A provider
 * whose boxes do not see that directory has dial(): the monitor listens on the socket then.
 *
 * Commands call check(), prepare() and destroy(); the box's monitor calls start(), pause() and
 * resume(); both call stop(), find() and inspect().
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"
#include "lib/provider/spec.h"
#include "lib/util/context.h"

/* With the box's id, in the environment of every command that we start in a box. */
#define PROVIDER_MARK_ENV "BELLHOP_BOX_ID"
#define PROVIDER_MS (5 * 60 * 1000) /* a call's deadline, unless the caller has another */

/* A snapshot's disk. */
struct provider_source {
    char *const *layers; /* of layer_store.h, the lowest first; ends with NULL */
    json_t *disk;        /* provider_capture.disk */
    const char *tag;     /* restore() alone: has_restored() knows the new disk by it */
};

struct provider_box {
    struct bh_ctx *ctx;
    const char *id;   /* 16 hex digits */
    const char *name; /* the host name in the box */
    const char *dir;  /* absolute */
    const char *user; /* prepare() alone: commands run as this user; the image names it */
    /* The caller's; ctx->cancel_fd is readable then. 0: PROVIDER_MS from now. */
    int64_t deadline_mono_ms;
    const struct provider_source *source; /* prepare() alone: the disk's content; NULL: the image */
    struct spec *spec;
};

struct provider_run {
    pid_t pid;          /* pid 1 of the box as the host sees it; 0: not on this machine */
    uint64_t pid_start; /* field 22 of /proc/PID/stat: the kernel reuses pids */
    bool is_paused;     /* find() alone, of a provider with watch() */
    /* Listens on run/agent.sock: pid 1, except where the runtime has a kernel of its own. */
    pid_t listener;
    uint64_t listener_start;
};

struct provider_capture {
    const char *id; /* of the snapshot; 16 hex digits */
    int64_t deadline_mono_ms;
    bool is_paused; /* the box is frozen, and stays so */
    /* Results. */
    char **layers;             /* as in struct provider_source; owned */
    json_t *disk;              /* the provider's facts about the disk; owned */
    char layer[65];            /* the one that was made, for layer_commit(); "": none was needed */
    uint64_t n_entries, bytes; /* of that layer */
    uint64_t copied;           /* bytes that were written for it */
    uint64_t n_devices;        /* left out */
};

/* Is the snapshot of that box, by their ids, one that the store had, and has no more? */
struct provider_lost {
    bool (*is_lost)(void *arg, const char *box, const char *snapshot);
    void (*report)(void *arg, const char *line);
    void *arg;
};

struct provider_facts {
    bool usable;
    char runtime[32]; /* the runtime that passed */
    char found
        [256];     /* the engine that was found, for people: its kind, version and address; or "" */
    char why[256]; /* when not usable */
};

/* ---- capabilities ---- */

/* Bits. */
enum provider_network {
    PROVIDER_NETWORK_USER = 1 << 0,
    PROVIDER_NETWORK_NONE = 1 << 1,
    PROVIDER_NETWORK_HOST = 1 << 2,
};

/* Bits. */
enum provider_limit {
    PROVIDER_LIMIT_CPUS = 1 << 0,
    PROVIDER_LIMIT_MEMORY = 1 << 1,
    PROVIDER_LIMIT_DISK = 1 << 2,
    PROVIDER_LIMIT_PIDS = 1 << 3,
};

/* Bits. Each provider has the level "disk" besides: stop() and start(). */
enum provider_pause {
    PROVIDER_PAUSE_FREEZE = 1 << 0, /* processes stand still, memory stays */
    PROVIDER_PAUSE_MEMORY = 1 << 1, /* memory is written to the disk */
};

/* How the monitor learns the exit status of the box's first process. */
enum provider_exit {
    PROVIDER_EXIT_UNKNOWN,
    PROVIDER_EXIT_CHILD, /* waitpid(): needs has_own_children */
    PROVIDER_EXIT_ASKED, /* exit_status() */
};

enum provider_image {
    PROVIDER_IMAGE_NONE,   /* a box has no image */
    PROVIDER_IMAGE_ROOTFS, /* spec->image_dir holds SPEC_IMAGE_SQUASHFS or the directory rootfs */
    PROVIDER_IMAGE_OCI,    /* an OCI image */
    PROVIDER_IMAGE_DISK,   /* a disk for a virtual machine */
};

/* How a box sees the layer of <dir>/layer.json. */
enum provider_layers {
    PROVIDER_LAYERS_NONE,
    PROVIDER_LAYERS_SHARED,  /* at its place on this machine */
    PROVIDER_LAYERS_MOUNTED, /* start() mounts it read-only at `target` */
};

/* The provider's own word for what a box is doing, and ours. */
struct provider_state {
    const char *word;
    enum bh_state state;
};

struct provider {
    const char *name;
    const char *summary;
    const struct provider_state
        *states; /* every word that the provider may say; a zero row ends it */

    bool is_elsewhere;   /* somebody else runs its boxes: they are used, and forgotten */
    bool isolates;       /* a box cannot touch the machine that it runs on */
    bool shares_machine; /* a box has the files, the environment and the network of this machine */
    bool has_own_children;       /* the monitor that calls start() is the parent of its processes */
    bool has_runtimes;           /* spec->runtime */
    const char *const *runtimes; /* their names, up to a NULL; NULL: any, the engine knows them */
    bool has_read_only;          /* spec->read_only */
    bool has_pools;              /* spec->pool */
    bool has_privileges;         /* spec->privilege */
    bool has_allow_missing;      /* spec->allow_missing: other missing pieces fail a start */
    bool has_host_image;         /* the image SPEC_IMAGE_HOST */
    bool has_snapshots;          /* capture(), restore() and provider_box.source */
    bool publishes_ports;        /* the box's ports are reachable without the monitor's forwards */
    unsigned networks;           /* enum provider_network */
    unsigned limits;             /* enum provider_limit */
    unsigned pauses;             /* enum provider_pause */
    enum provider_exit exit;
    enum provider_image image;
    enum provider_layers layers;
    /* The directory in <dir> that holds what the box writes to its disk; the monitor counts it.
     * NULL: the provider enforces a disk limit by itself, or has none. */
    const char *disk_dir;

    /* The functions. Each is needed, unless its comment says otherwise. */

    /* Starts something and sees it run. `runtime` "" takes the first that works. */
    int (*probe)(struct bh_ctx *ctx, const char *runtime, struct provider_facts *ret,
                 struct err *e);
    /* Refuses what this machine cannot honour, before anything is made; provider_check() has
     * compared the spec with the capabilities. May fill in defaults that depend on the machine
     * (spec->runtime). */
    int (*check)(struct bh_ctx *ctx, struct spec *spec, struct err *e);
    int (*prepare)(struct provider_box *b, struct err *e); /* makes the disk */
    int (*start)(struct provider_box *b, struct provider_run *ret, struct err *e);
    /* Ends every process and undoes mounts, cgroups and namespaces; the disk stays. */
    int (*stop)(struct provider_box *b, int grace_ms, struct err *e);
    int (*destroy)(struct provider_box *b, struct err *e); /* stop(), and removes the disk */
    /* Or NULL: the disk is in <dir>. Of a box that was prepared: 1, 0 (somebody else removed it) or an error. */
    int (*has_disk)(struct provider_box *b, struct err *e);
    /* Is the run recorded in <dir> alive? 1 (and *ret), 0, or an error. */
    int (*find)(struct provider_box *b, struct provider_run *ret, struct err *e);
    /*
     * Needed with any of `pauses`. check_pause() refuses (ERR_UNIMPLEMENTED, with the reason) what
     * this box cannot do here. pause() returns once nothing of the box runs any more; resume() once
     * it runs again, also if it was not paused. stop() and destroy() end a paused box too.
     */
    int (*check_pause)(struct provider_box *b, enum provider_pause level, struct err *e);
    int (*pause)(struct provider_box *b, enum provider_pause level, struct err *e);
    int (*resume)(struct provider_box *b, struct err *e);
    /*
     * Needed with has_snapshots. check_capture() refuses what this box cannot do now. capture()
     * takes the content of the disk as of one moment, in which nothing of the box runs; it runs on
     * whatever happens. restore() gives a box that does not run another content, or leaves
     * everything as it was. has_restored() follows each restore(), also one that died: 1 if the
     * box has the disk with that tag, else 0; the other disk is removed.
     */
    int (*check_capture)(struct provider_box *b, struct err *e);
    int (*capture)(struct provider_box *b, struct provider_capture *c, struct err *e);
    int (*restore)(struct provider_box *b, const struct provider_source *source, struct err *e);
    int (*has_restored)(struct provider_box *b, const char *tag, struct err *e);
    /* Or NULL: removes what a capture() under that id that failed or died has left elsewhere than in layers. */
    int (*drop_capture)(struct provider_box *b, const char *id, struct err *e);
    /* Or NULL: removes what capture() keeps elsewhere than in layers, by its `disk`, now or in forget_rest(). */
    int (*forget)(struct bh_ctx *ctx, const json_t *disk, struct err *e);
    /* Or NULL: is what capture() keeps elsewhere than in layers still there? By its `disk`. */
    int (*verify)(struct bh_ctx *ctx, const json_t *disk, int64_t deadline_mono_ms, struct err *e);
    /* Or NULL: gc, unless in a dry run. Removes what forget() and drop_capture() could not, and, of a capture whose
     * command was killed, what the store says is lost. */
    void (*forget_rest)(struct bh_ctx *ctx, const struct provider_lost *lost);
    /*
     * A connected stream socket to the guest agent, which the caller owns: of a provider whose boxes
     * do not see <dir>/run. Called by the threads of the monitor, for a box that runs. It must lead to
     * the agent of this box alone: the token is sent next.
     */
    int (*dial)(struct provider_box *b, int *ret_fd, struct err *e);
    /* Or NULL: a descriptor that becomes readable when the box may have ended, or somebody else may have paused it or
     * let it run again: find() is asked then. Without has_own_children. */
    int (*watch)(struct provider_box *b, int *ret_fd, struct err *e);
    /* The wait status of a run that has ended, as waitpid() has it; <dir>/agent.log has its output then. Needed
     * with PROVIDER_EXIT_ASKED alone. *ret_is_oom: it was killed for want of memory. */
    int (*exit_status)(struct provider_box *b, const struct provider_run *run, int *ret_status,
                       bool *ret_is_oom, struct err *e);
    /* Or NULL: why a run has ended, in the engine's own words ("OOMKilled"); "": it gave no reason. Asked after
     * find() or exit_status() has told the end. */
    void (*end_reason)(struct provider_box *b, char *out, size_t size);
    /* The isolation and limits in force, read back from the kernel (/proc/PID/status, cgroup
     * files, ...):
     * {"isolation":{"user_namespace":true,"seccomp":true,...},"limits":{...},"network":{...},
     * "missing":["user_namespace"]} */
    int (*inspect)(struct provider_box *b, json_t **ret, struct err *e);
    /* gc: removes everything that carries this state directory's mark and whose id `is_kept`
     * denies; has_disk: it holds what the box keeps. The mark alone proves nothing: a store in another mount namespace, or the one that was
     * lost before this one, has the same. */
    int (*sweep)(struct bh_ctx *ctx, bool (*is_kept)(void *arg, const char *id, bool has_disk),
                 void *arg, void (*report)(void *arg, const char *line), void *report_arg,
                 struct err *e);
};

/* One row a provider, which its folder defines as provider_NAME. The first is the default. */
#define PROVIDERS(ROW) \
    ROW(oci) \
    ROW(docker) \
    ROW(kubernetes) \
    ROW(process)

/* Boxes of these cannot be asked for: provider_find() alone knows them. */
#define PROVIDERS_ELSEWHERE(ROW) ROW(attached)

#define PROVIDER_DECLARE(name) extern const struct provider provider_##name;
PROVIDERS(PROVIDER_DECLARE)
PROVIDERS_ELSEWHERE(PROVIDER_DECLARE)

int64_t provider_deadline(const struct provider_box *b); /* never 0 */

/* A line of the debug log: a call of the provider that took from begun_ms (clock_mono_ms()) until
 * now. `box` may be "". */
void provider_report(const struct provider *p, const struct bh_ctx *ctx, const char *call,
                     const char *box, int64_t begun_ms, int r);

extern const char *const provider_names[];              /* ends with NULL */
const struct provider *provider_find(const char *name); /* NULL: no such provider */
/* The i-th row, NULL past the last. The first row is the default. */
const struct provider *provider_at(size_t i);

/* Total: a word that is not in the provider's table is BH_STATE_UNKNOWN. NULL is such a word. */
enum bh_state provider_state(const struct provider *p, const char *word);

/* Refuses the first option in the spec that the provider cannot honour, then asks its check().
 * Options that nobody asked for become what the provider has. Makes nothing. */
int provider_check(const struct provider *p, struct bh_ctx *ctx, struct spec *spec, struct err *e);

/* ---- the layer ---- */

/*
 * A directory of this machine that boxes share, none of which can write to it. <dir>/layer.json
 * names it, written before start() and unchanged while the box runs.
 */
#define PROVIDER_LAYER_FILE "layer.json"
#define PROVIDER_LAYER_DIR "/run/bellhop-layers" /* in a box, where it is mounted */

struct provider_layer {
    char *source; /* on this machine; NULL: the box has no layer */
    char *target; /* in the box */
    char *label;  /* of its content: "opencode-1.18.33" */
};

/* No file: *ret is zeroed. */
int provider_layer_load(const char *box_dir, struct provider_layer *ret, struct err *e);
/* Fills in the target, and writes the file; `source` NULL removes it. */
int provider_layer_save(const struct provider *p, const char *box_dir, const char *source,
                        const char *label, struct err *e);
void provider_layer_done(struct provider_layer *l);

/* The "isolation" of inspect() where the processes are not on this machine. NULL: out of memory. */
json_t *provider_unknown_isolation(void);

/* The project's directory in a box of the directory `dir`: spec->dest, or below `dir` when the
 * box shares this machine's files and nobody asked for a place. free() it; NULL: out of memory. */
char *provider_workdir(const struct provider *p, const char *dir, const struct spec *spec);
