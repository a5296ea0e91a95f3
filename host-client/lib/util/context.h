#pragma once
/* context: struct bh_ctx from the inside, and the conversion of struct err to struct bh_error. */
#include <jansson.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"
#include "lib/util/debug.h"

struct store;
struct daemon_client;

struct bh_ctx {
    char *state_dir;
    char *cache_dir;
    char *agent_path;
    char *monitor_path;
    char *recipe_dir;
    char *image_dir;
    char *template_dir;          /* build.sh, templates/ */
    char *image_cache_dir;       /* layers */
    char *npm_registry;          /* or NULL */
    int cancel_fd;               /* -1: none */
    int64_t answer_timeout_ms;   /* 0: the client's default */
    int64_t provider_timeout_ms; /* 0: PROVIDER_MS */
    bool no_resume;              /* a stopped box is an error instead of a reason to start it */
    /* The rows of boxes count as they are: whether a box that should run does is not asked (bringup_notice). */
    bool trusts_store;
    void (*progress)(void *arg, const struct bh_progress *p);
    void *progress_arg;
    struct store *store; /* with a daemon opened when it is needed (remote_leave), or never */
    struct daemon_client *daemon;  /* whose boxes they are; NULL: those of the store */
    bool daemon_is_own;            /* "auto" found it: the store is at hand too */
    bool has_remote_box;           /* a handle that needs the daemon was given out */
    int64_t restart_until_mono_ms; /* it is gone: calls wait for it until then; 0: it is there */
    char *daemon_url, *daemon_token, *daemon_ca; /* as given, for further contexts; or NULL */
    char *docker_host;                           /* or NULL */
    char *kubeconfig, *kube_context, *kube_namespace, *kube_registry; /* or NULL */
    char *actor;            /* of the events that its calls cause */
    int64_t records_for_ms; /* 0: the store's default */
    uint32_t box_max_files; /* 0: as this process */
    struct debug debug;
    struct bh_limits limits_copy;
    const char *const *host_env;    /* the caller's, or NULL */
    const struct bh_limits *limits; /* limits_copy, or NULL; its strings are the caller's */
};

/* The context without its store, which bh_open() adds. Makes the state and cache directories. */
int ctx_new(const struct bh_options *opts, struct bh_ctx **ret, struct err *e);
struct bh_ctx *ctx_free(struct bh_ctx *ctx); /* the store is closed already; returns NULL */

/* The path of bellhop-daemon, as installed or built. Owned: free(). */
int ctx_find_daemon(char **ret, struct err *e);

/* Copies a public option struct, which starts with its size, from an older, equal or newer caller.
 * Fields that the caller's struct lacks are zero. */
int options_copy(void *dst, size_t dst_size, const void *src, struct err *e);

/* Makes an error (any message) that of a box that was destroyed: ERR_NOT_FOUND, with these facts for
 * ctx_fail(); bh_error_gone() reads them. */
struct ctx_gone {
    const char *id, *name, *provider, *cause;
    int64_t destroyed_ms;
    const char *snapshot; /* the last one of the box that is there; or NULL */
};
int ctx_gone_error(struct err *e, const struct ctx_gone *gone);

/* Fills the public error from the internal one; returns r. Both may be NULL. */
int ctx_fail(struct bh_error *out, int r, const struct err *e);

/* Reports progress if the caller asked for it. */
void ctx_progress(struct bh_ctx *ctx, const char *phase, uint64_t done, uint64_t total,
                  bool finished, const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* <state_dir>/boxes/<id>[/name]; NULL when out of memory. */
char *ctx_box_path(const struct bh_ctx *ctx, const char *id, const char *name);
#define CTX_BOX_ID_CHARS 16
/* Does it begin with a box's id, and with nothing else of its alphabet: 16 hex digits? */
bool ctx_has_box_id(const char *text);
bool ctx_is_box_id(const char *text); /* and nothing follows */
