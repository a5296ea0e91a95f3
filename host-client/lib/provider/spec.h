#pragma once
/*
 * spec: the request for a box. The store keeps it as JSON for the box's whole life, to start the
 * box again and to compare a second `up` with the first. It holds no secrets: those are files 0600
 * in the box's directory.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"

#define SPEC_TTL_MS (10 * 60 * 1000)
#define SPEC_IDLE_MS (10 * 60 * 1000)
#define SPEC_PIDS 4096
#define SPEC_DEST "/workspace"
#define SPEC_IMAGE_HOST "host"                /* an image made from this machine's programs */
#define SPEC_IMAGE_SQUASHFS "rootfs.squashfs" /* in image_dir */

/* Pieces that a box may lack: what its first process has, and then what the machine enforces on it. */
enum spec_piece {
    SPEC_USER_NAMESPACE,
    SPEC_PID_NAMESPACE,
    SPEC_MOUNT_NAMESPACE,
    SPEC_IPC_NAMESPACE,
    SPEC_UTS_NAMESPACE,
    SPEC_NETWORK_NAMESPACE,
    SPEC_SECCOMP,
    SPEC_NO_NEW_PRIVILEGES,
    SPEC_CAPABILITIES,
    SPEC_N_OF_PROCESS,
    SPEC_PIDS_LIMIT = SPEC_N_OF_PROCESS,
    SPEC_MEMORY_LIMIT,
    SPEC_CPU_LIMIT,
    SPEC_NETWORK_FILTER,
    SPEC_N_PIECES,
};
/* Their names, as in `missing` of `status` and in --allow-missing. */
extern const char *const spec_pieces[SPEC_N_PIECES];

/* The options that the caller gave. The others are defaults: a provider may change them to its
 * own, and a second `up` does not compare them. */
enum spec_asked {
    SPEC_ASKED_PROVIDER = 1 << 0,
    SPEC_ASKED_IMAGE = 1 << 1,
    SPEC_ASKED_RUNTIME = 1 << 2,
    SPEC_ASKED_AGENT = 1 << 3,
    SPEC_ASKED_DEST = 1 << 4,
    SPEC_ASKED_NETWORK = 1 << 5,
    SPEC_ASKED_PRIVILEGE = 1 << 6,
    SPEC_ASKED_PIDS = 1 << 7,
    SPEC_ASKED_ON_TIMEOUT = 1 << 8,
    SPEC_ASKED_TIMEOUT = 1 << 9,
    SPEC_ASKED_ON_IDLE = 1 << 10,
    SPEC_ASKED_IDLE = 1 << 11,
    SPEC_ASKED_ON_GONE = 1 << 12,
    SPEC_ASKED_POOL = 1 << 13,
};

struct spec {
    unsigned asked;  /* enum spec_asked */
    char *provider;  /* never NULL, like the other strings */
    char *image;     /* the name or path as asked */
    char *image_dir; /* resolved: a directory with a rootfs in it; "" for host and process */
    char *runtime;   /* "": the probe has not chosen yet */
    /* The address of the engine that runs the box, in the provider's own words, for every later call; "": it has none. */
    char *engine;
    /* The identity of that engine when the box was made, in the provider's own words; "" or NULL: not known. */
    char *engine_id;
    char *pool;  /* of boxes that the engine keeps ready; its template decides the rest; "": none */
    char *agent; /* "opencode@1.2.3", a path, "none" */
    char *dest;
    char *network;
    char *privilege;
    char *on_timeout;
    char *on_idle;
    char *on_gone;
    int64_t timeout_ms;
    int64_t idle_ms; /* never 0; "keep" ignores it */
    uint32_t cpu_millis;
    uint64_t memory_bytes;
    uint64_t disk_bytes; /* 0: no limit, as of the two above */
    uint32_t pids;
    uint16_t agent_port;
    bool read_only; /* the root file system; /tmp, /run, the home and dest are memory */
    char **env;
    char **labels;
    char **allow_missing; /* names of pieces of isolation, of any provider: each is known */
    char *from;           /* the snapshot that it is made from; "" or NULL: none */
    char **sources;       /* "memory=/etc/x.toml:3", or NULL: not known */
    /* With on_gone "recreate", what went into the box: {"upload","git","with_secrets",
     * "agent_config","git_token_file","has_secrets"}. Else NULL. */
    json_t *content;
    char **defaults; /* of a request: options that spec_compare() leaves out; not stored */
    /* The engine's facts, which check() asked for, for the prepare() of the same command; not stored; or NULL. */
    json_t *engine_facts;
};

/* Fills in defaults and checks every value; the error names the field. */
int spec_from_options(const struct bh_create_options *opts, struct spec *ret, struct err *e);
int spec_from_json(json_t *obj, struct spec *ret, struct err *e);
json_t *spec_to_json(const struct spec *s);
void spec_done(struct spec *s);

/* Can a second `up` with the options of `want` use the box made from `have`? Options that
 * nobody gave are not compared; the error names the first field that differs. */
int spec_compare(const struct spec *have, const struct spec *want, struct err *e);

bool spec_is_name(const char *name); /* [a-z0-9] then [a-z0-9-]{0,62} */
