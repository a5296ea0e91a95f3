#pragma once
/*
 * docker: parts of the provider that its files share. A box is one container, found by its recorded id and proved by its
 * labels at each call; the engine keeps its disk.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/buf.h"
#include "lib/provider/docker/engine.h"
#include "lib/provider/provider.h"

#define DOCKER_AGENT "/usr/local/bin/bellhopd"
#define DOCKER_RUN_DIR "/run/bellhop"
#define DOCKER_AGENT_PORT 4711
#define DOCKER_NAME_BYTES 64
#define DOCKER_ID_BYTES 72
#define DOCKER_NAME_OF "bellhop-%.32s" /* of the box's id */
#define DOCKER_NEW_NAME_OF \
    DOCKER_NAME_OF "-new"                       /* with a restored disk, until it takes the place */
#define DOCKER_SNAPSHOT_REPO "bellhop-snapshot" /* an image's name; its tag is the snapshot's id */

#define DOCKER_LABEL_BOX "dev.bellhop.box"     /* the box's id */
#define DOCKER_LABEL_STORE "dev.bellhop.store" /* store_mark() */
#define DOCKER_LABEL_NAME "dev.bellhop.name"   /* for people */
#define DOCKER_LABEL_OWNER "dev.bellhop.owner" /* the box's label "owner"; absent without one */
#define DOCKER_LABEL_SNAPSHOT "dev.bellhop.snapshot" /* of an image: the snapshot's id */
#define DOCKER_LABEL_TAG "dev.bellhop.restored"      /* provider_source.tag of a restored disk */

/* The way to the guest agent. */
enum docker_reach {
    DOCKER_REACH_ADDRESS,   /* the container's own address */
    DOCKER_REACH_PUBLISHED, /* a port of this machine's loopback */
    DOCKER_REACH_EXEC,      /* `bellhopd dial` in the container, over the engine's API */
};

/* The facts that an engine tells of itself (GET /info, Podman's GET /libpod/info). */
struct docker_facts {
    bool is_podman, is_rootless, is_desktop;
    bool has_seccomp, has_userns;
    bool limits_memory, limits_cpu, limits_pids;
    bool has_freezer;
    unsigned cgroup_version; /* 0: it does not say */
    uint64_t memory_bytes;
    unsigned n_cpus;
    char default_runtime[64];
    char name[128], version[64];
    /* Tells it from another one at the same address: Docker's ID and data root, Podman's host and storage. */
    char identity[512];
    /* Owned by the struct: names of runtimes that a container can have, and the engine's words on its security. */
    json_t *runtimes, *security;
};
int docker_read_facts(struct engine *d, struct docker_facts *ret, struct err *e);
/* Keeps the identity in spec->engine_id, and in spec->engine_facts what docker_create_container() needs; and gives the
 * latter, or asks again: only is_podman, is_rootless, is_desktop and default_runtime. */
void docker_keep_facts(const struct docker_facts *f, struct spec *spec);
int docker_kept_facts(const struct spec *spec, struct engine *d, struct docker_facts *ret,
                      struct err *e);
void docker_facts_done(struct docker_facts *f);
bool docker_has_runtime(const struct docker_facts *f, const char *name);

/* A box's container as the engine has it. */
struct docker_container {
    char id[DOCKER_ID_BYTES];
    char status[24]; /* "running", "paused", ... */
    char started
        [40]; /* when its run began, in the engine's words; "": it does not say, or it never ran */
    bool is_running; /* or paused, or not yet stopped */
    bool is_paused, is_oom;
    int exit_code;
    pid_t pid; /* on the engine's machine */
    char address[64];
    uint16_t published; /* port of this machine's loopback; 0: none */
    json_t *doc;        /* the engine's document; owned */
};
void docker_container_done(struct docker_container *c);
/* By somebody else: it ends first, and is there for a moment longer. */
bool docker_is_being_removed(const struct docker_container *c);
bool docker_is_id(const char *id); /* of a container or a command; also NULL */
/* ERR_DATA_LOSS: "the engine's answer has no valid <of>". */
int docker_answer_is_strange(struct err *e, const char *of);

/* The engine of the box, until the call's deadline: at spec->engine, or, if none answers there, the engine in force if it
 * is the same one. */
int docker_open(const struct provider_box *b, struct engine **ret, struct err *e);
/* 1, 0: it has none, or an error. A box without a recorded container: one with its name and other labels is ERR_EXISTS. */
int docker_find_container(const struct provider_box *b, struct engine *d,
                          struct docker_container *ret, struct err *e);
/* docker_open() and docker_find_container(), for conclusions from an absence. ERR_UNAVAILABLE: it is absent from an engine
 * that is not the one on which the box was made. */
int docker_open_container(const struct provider_box *b, struct engine **ret_engine,
                          struct docker_container *ret, struct err *e);
/* By its name or id. One with other labels is ERR_EXISTS. */
int docker_find_named(const struct provider_box *b, struct engine *d, const char *name,
                      struct docker_container *ret, struct err *e);
/* Removes it with its volumes, and waits until it is gone. */
int docker_remove_container(struct engine *d, const char *id, struct err *e);

/* Of the agent in the container. An agent that is not root has no directory of its own in a Podman of version 4. */
const char *docker_agent_socket(const struct spec *s);
/* Makes the container of `image`; tag: of a restored disk, or NULL. One that is there already is adopted. */
int docker_create_container(const struct provider_box *b, struct engine *d, const char *name,
                            const char *image, const char *tag, char ret_id[DOCKER_ID_BYTES],
                            struct err *e);
void docker_container_name(const struct provider_box *b, char out[DOCKER_NAME_BYTES]);

/* Loads the box's image from its OCI form unless the engine has it. *ret: its id; free() it. */
int docker_settle_image(const struct provider_box *b, struct engine *d, char **ret, struct err *e);

/* The container that the record in the box's directory names. False: it names none. */
bool docker_recorded_id(const struct provider_box *b, char ret[DOCKER_ID_BYTES]);
/* Before its first start: the record names it. */
int docker_record_container(const struct provider_box *b, const char *id, struct err *e);
/* After a start: decides the way to the agent, and records it in the box's directory. */
int docker_record_reach(const struct provider_box *b, struct engine *d,
                        const struct docker_container *c, struct err *e);
/* Did start() begin the run that the container is in? 1, 0, also if it is in none or there is no valid record of a
 * start, or an error: the record cannot be read, or (ERR_DATA_LOSS) the engine does not say when the run began. A new
 * run has no token. */
int docker_is_own_run(const struct provider_box *b, const struct docker_container *c,
                      struct err *e);
/* Waits until the agent answers, and so has its token. ERR_UNAVAILABLE: the container has ended, or it is silent. */
int docker_await_agent(struct provider_box *b, struct engine *d, struct err *e);
/* The container's first process. pid 0: it is not of this machine, or it has ended. */
struct docker_process {
    pid_t pid;
    uint64_t start; /* procfs_start_time() */
};
struct docker_process docker_own_process(const struct docker_container *c);
bool docker_has_own_cgroup(const struct docker_container *c); /* false, too, if it is elsewhere */
/* Refuses, about `field`, what needs that the engine pauses the container. */
int docker_check_freezer(struct engine *d, const struct docker_container *c, const char *field,
                         struct err *e);
int docker_dial(struct provider_box *b, int *ret_fd, struct err *e);

/* A relay_filter for the output of a command without a terminal: a byte for the stream, three of zero, the length in
 * four. A longer frame, or one of no stream, ends the relay. */
#define DOCKER_FRAME_BYTES (64 * 1024)
int docker_strip_frames(void *arg, struct buf *in, struct buf *out, bool is_eof);

int docker_inspect(struct provider_box *b, json_t **ret, struct err *e);

/* The digits of an image's id, which Podman tells without "sha256:". NULL: it is none. */
const char *docker_image_hex(const char *image);
int docker_check_capture(struct provider_box *b, struct err *e);
int docker_capture(struct provider_box *b, struct provider_capture *c, struct err *e);
/* Of a snapshot. ERR_NOT_FOUND: the engine has it no more. */
int docker_check_image(struct engine *d, const char *image, struct err *e);
int docker_drop_restored(const struct provider_box *b, struct engine *d, struct err *e);
int docker_restore(struct provider_box *b, const struct provider_source *source, struct err *e);
int docker_has_restored(struct provider_box *b, const char *tag, struct err *e);
int docker_drop_capture(struct provider_box *b, const char *id, struct err *e);
int docker_forget(struct bh_ctx *ctx, const json_t *disk, struct err *e);
int docker_verify(struct bh_ctx *ctx, const json_t *disk, int64_t deadline_mono_ms, struct err *e);

struct docker_sweep_limits {
    int64_t total_ms, object_ms; /* of all containers and of one */
};
/* Goes on after a container that cannot be removed: the result is the first error. */
int docker_sweep_within(struct bh_ctx *ctx, const struct docker_sweep_limits *limits,
                        bool (*is_kept)(void *arg, const char *id, bool has_disk), void *arg,
                        void (*report)(void *arg, const char *line), void *report_arg,
                        struct err *e);
int docker_sweep(struct bh_ctx *ctx, bool (*is_kept)(void *arg, const char *id, bool has_disk),
                 void *arg, void (*report)(void *arg, const char *line), void *report_arg,
                 struct err *e);
/* Removes images that docker_forget() could not, because a container had them: those of this engine, or of all that
 * answer. Both take seconds at most. */
void docker_retry_forget(struct bh_ctx *ctx, const char *url);
void docker_forget_rest(struct bh_ctx *ctx, const struct provider_lost *lost);
