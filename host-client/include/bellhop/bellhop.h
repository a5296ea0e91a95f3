/*
 * libbellhop: boxes in which coding agents work.
 *
 * A context (struct bh_ctx) is one state directory; a box (struct bh_box) is one sandbox with
 * Bellhop's guest agent in it. There is no global state. The library never prints, exits, reads the
 * environment or touches signals.
 *
 * Errors: a function that can fail returns 0 or a negative enum bh_code and fills the caller's
 * struct bh_error, which may be NULL and needs no freeing. On failure no out-parameter is touched.
 *
 * Ownership: the caller owns everything that it gets through a `ret_` parameter and releases it
 * with the function that the comment names. `const` pointers within a struct belong to the struct.
 * A struct that a callback gets, and its strings, are valid until the callback returns.
 *
 * Threads: a context and its boxes are used by one thread at a time; contexts are independent.
 * Callbacks run in the thread that made the call.
 *
 * Time: durations are milliseconds; points in time are milliseconds since 1970 (UTC).
 *
 * Option structs start with their size: set `.size = sizeof(opts)` and zero the rest. A smaller
 * size than the library's means an older caller; the missing fields have their defaults.
 *
 * Waits: each wait ends at the operation's deadline, or when the context's cancel_fd becomes
 * readable (BH_CANCELED).
 */
#ifndef BELLHOP_BELLHOP_H
#define BELLHOP_BELLHOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The codes of the Connect protocol; returned negated. */
enum bh_code {
    BH_OK = 0,
    BH_CANCELED,
    BH_UNKNOWN,
    BH_INVALID_ARGUMENT,
    BH_DEADLINE_EXCEEDED,
    BH_NOT_FOUND,
    BH_ALREADY_EXISTS,
    BH_PERMISSION_DENIED,
    BH_RESOURCE_EXHAUSTED,
    BH_FAILED_PRECONDITION,
    BH_ABORTED,
    BH_OUT_OF_RANGE,
    BH_UNIMPLEMENTED,
    BH_INTERNAL,
    BH_UNAVAILABLE,
    BH_DATA_LOSS,
    BH_UNAUTHENTICATED
};

struct bh_error {
    int code;          /* enum bh_code */
    int sys;           /* errno, or 0 */
    char field[96];    /* the option or path at fault, or "" */
    char message[512]; /* one sentence, lower case, no full stop */
    char step[32];     /* the step that failed: "install", "health", ..., "ready_cmd"; or "" */
    /* With a step: the tail of that step's log. Else the details of the agent's error as a JSON
     * object ({"etag":"..."}, {"first_held":4096}), {"gone":{...}} of a box that was destroyed
     * (bh_error_gone), or "". The struct never grows: it has no size. */
    char detail[4096];
};

/* A box that was destroyed; its record is still there (bh_list_records). */
struct bh_gone {
    size_t size; /* set it to sizeof(struct bh_gone) */
    char id[40];
    char provider[32];
    char cause[160]; /* cut, if it is longer in the record */
    int64_t destroyed_ms;
    char snapshot[64]; /* the last one of the box that is there (bh_create_options.from), or "" */
};
/* Is it the BH_NOT_FOUND of a box that was destroyed? Then *ret has the facts; ret may be NULL. */
bool bh_error_gone(const struct bh_error *err, struct bh_gone *ret);

const char *bh_code_name(int code); /* "not_found" */
const char *bh_version(void);       /* "0.1.0" */

/* ---- context ---- */

struct bh_progress {
    /* "image", "create", "upload", "install", "start", "health", ...; "building": comes once a
     * second with the duration of the image's last step; "warning": show the text to a person in
     * any case */
    const char *phase;
    const char *text; /* one line for a person */
    uint64_t done;    /* bytes of total; total 0: not known */
    uint64_t total;
    bool finished; /* the phase is over */
};

/* The limits of an administrator; 0 and NULL: none. A request above is BH_PERMISSION_DENIED; a
 * default above is lowered; a box that was made earlier does not start while it is above. */
struct bh_limits {
    size_t size;
    uint64_t memory_bytes;
    uint64_t disk_bytes;
    uint32_t cpu_millis;
    uint32_t pids;
    uint32_t boxes; /* in the state directory */
    int64_t timeout_ms;
    /* The first one is the default. */
    const char *const *providers;
    const char *const *networks;
    const char *const *privileges;
    const char *source; /* for messages: the file that sets the limits; or NULL */
    int64_t idle_ms;    /* on_idle "keep" is above every limit */
};

struct bh_options {
    size_t size;
    const char *state_dir;    /* required: boxes and their store; made 0700 when missing */
    const char *cache_dir;    /* required: downloads that can be made again */
    const char *agent_path;   /* bellhopd; NULL: as installed */
    const char *monitor_path; /* bellhop-monitor; NULL: as installed */
    const char *recipe_dir;   /* bootstrap recipes; NULL: as installed */
    const char *image_dir;    /* images by name; NULL: as installed */
    int cancel_fd;            /* waits end when it becomes readable; 0 or -1: none */
    void (*progress)(void *arg, const struct bh_progress *p); /* may be NULL */
    void *progress_arg;
    bool no_resume;           /* a call on a stopped box is an error instead of starting it again */
    const char *npm_registry; /* source of coding agents; NULL: as npm's settings say */
    const char *template_dir; /* templates and scripts that build images; NULL: as installed */
    const char *image_cache_dir; /* layers of images; NULL: beside the images */
    int64_t answer_timeout_ms;   /* how long a guest agent may be silent on a call; 0: 30 seconds */
    /* The author of the events that its calls cause; up to 63 bytes. NULL: "library". */
    const char *actor;
    int64_t records_for_ms; /* how long the records of destroyed boxes are kept; 0: 30 days */
    const struct bh_limits *limits; /* NULL: none. The caller keeps it until bh_close() */
    /* Takes the lines of a debug log: calls of providers ("provider"), changes of state ("state"),
     * HTTP requests ("http") and programs of this machine that are run ("host"). A line has no
     * token, password or value of a variable. It comes in the thread that made the call, and must
     * not use the context. NULL: nobody. */
    void (*debug)(void *arg, const char *part, const char *text);
    void *debug_arg;
    /* How long a provider may take for one call. 0: five minutes, and what makes or starts a box as
     * long as the call of this library waits. */
    int64_t provider_timeout_ms;
    /* The caller's environment, for boxes that are recreated; as in bh_create_options. */
    const char *const *host_env;
    /* The soft limit of open files (RLIMIT_NOFILE) of the boxes that it starts, for a caller that has
     * raised its own. 0: the caller's. */
    uint32_t box_max_files;
    /*
     * "http://HOST:PORT", "https://HOST:PORT" or "unix:PATH": the boxes are those of the daemon
     * there, and every call goes through it; the state directory keeps nothing of them. A call that
     * a daemon has no way for is BH_UNIMPLEMENTED with the field "daemon". NULL, "auto": of the state
     * directory, through the daemon that serves it if one does and answers; what a daemon has no way
     * for is done here. "none": of the state directory, never through a daemon.
     */
    const char *daemon;
    const char *daemon_token; /* for a daemon over TCP; or NULL */
    const char *daemon_ca;    /* certificates in PEM that https trusts; NULL: the system's */
    /* The engine of the provider "docker", for boxes that are made: "unix:///PATH", "tcp://HOST:PORT", with TLS
     * "tcp://HOST:PORT?certs=DIR" (ca.pem, cert.pem, key.pem there). NULL: the socket of Docker or Podman where both
     * have it by default. "context:NAME": of a context of Docker's command that is not there, which is refused when an
     * engine is needed. A box stays with the engine that it was made on. */
    const char *docker_host;
    /*
     * The cluster of the provider "kubernetes", for boxes that are made: a kubeconfig's path, "proxy:SOCKET" (of
     * 'kubectl proxy --unix-socket=SOCKET') or "incluster:HOST:PORT" (in a pod: its service account). The last two, and
     * "kubeconfig:PATH", may end with "?reach=address", "exec" or "forward": the way to the guest agent. NULL: none. A
     * box stays with the cluster that it was made in.
     */
    const char *kubeconfig;
    const char *kube_context;   /* of the kubeconfig; NULL: the current one */
    const char *kube_namespace; /* NULL: the context's, else "default" */
    const char *kube_registry;  /* the prefix of our images' names; NULL: "docker.io/bellhop" */
};

struct bh_ctx;
int bh_open(const struct bh_options *opts, struct bh_ctx **ret_ctx, struct bh_error *err);
/* The options in force, with every path filled in; the strings belong to the context. Set
 * ret_opts->size to sizeof(struct bh_options); otherwise the options after answer_timeout_ms are
 * left out. */
void bh_get_options(const struct bh_ctx *ctx, struct bh_options *ret_opts);
struct bh_ctx *bh_close(struct bh_ctx *ctx); /* accepts NULL; returns NULL */

/* ---- boxes ---- */

struct bh_box;

enum bh_state {
    BH_STATE_UNKNOWN = 0,
    BH_STATE_REQUESTED,
    BH_STATE_PROVISIONING,
    BH_STATE_BOOTSTRAPPING,
    BH_STATE_RUNNING,
    BH_STATE_PAUSING,
    BH_STATE_PAUSED,
    BH_STATE_RESUMING,
    BH_STATE_STOPPING,
    BH_STATE_STOPPED,
    BH_STATE_DESTROYING,
    BH_STATE_DESTROYED,
    BH_STATE_ERROR
};
const char *bh_state_name(enum bh_state state);

struct bh_create_options {
    size_t size;
    /* [a-z0-9] then [a-z0-9-]{0,62}. NULL: after the project or the repository, with a short hash
     * when another project's box has that name. */
    const char *name;
    const char *provider; /* "oci" (default), "docker", "kubernetes", "process" */
    const char *image;    /* NAME, NAME:VERSION, a path, or "host"; NULL: "slim" */
    /* oci: "runc", "crun", "runsc"; docker: one that the engine knows, or "auto": gVisor where the engine has it;
     * kubernetes: a RuntimeClass. NULL: the first that works, or the engine's default. */
    const char *runtime;
    const char *agent;        /* NAME[@VERSION], a recipe's path, or NULL/"none" */
    const char *agent_config; /* a directory with the agent's own configuration, or NULL */
    const char *project;      /* a directory to upload, or NULL */
    const char *dest;         /* directory of the project in the box; NULL: "/workspace" */
    const char *git;          /* "full" (default), "shallow", "none" */
    bool with_secrets;        /* upload untracked files that look like secrets too */
    const char *repo_url;     /* clone in the box instead of an upload; excludes project */
    const char *git_token_file;
    const char *network;              /* "user" (default), "none", "host" */
    const char *privilege;            /* "sudo" (default), "strict" */
    const char *on_timeout;           /* "stop" (default), "snapshot" and stop, "rm" */
    int64_t timeout_ms;               /* time to live; 0: ten minutes */
    uint32_t cpu_millis;              /* 0: oci: all but one processor, or 4/5 of fewer than five */
    uint64_t memory_bytes;            /* 0: oci: 80 % of the machine's */
    uint32_t pids;                    /* 0: 4096 */
    uint16_t agent_port;              /* in the box; 0: the recipe's */
    const char *const *env;           /* "K=V", NULL-terminated, or NULL */
    const char *const *secrets;       /* "K=V": a file 0600 each in the box */
    const char *const *labels;        /* "K=V" */
    const char *const *allow_missing; /* pieces of isolation that may be missing, by name */
    int64_t
        start_timeout_ms; /* for the whole call; 0: five minutes, 4 x answer_timeout_ms at least */
    /* The caller's environment. The box gets the variables that it needs to reach the network:
     * HTTP_PROXY and its kin, NODE_EXTRA_CA_CERTS, SSL_CERT_FILE. NULL: none. */
    const char *const *host_env;
    /* Limit of its disk: a quota, or the box is stopped. 0: oci: 80 % of what is free. */
    uint64_t disk_bytes;
    bool no_upload; /* the box is for the project (its name, what it remembers), but stays empty */
    /* Any 1 to 512 bytes without a NUL, such as the id of a conversation; or NULL. A key is one box's
     * until that box is destroyed; a box may have 1,000 keys. Returns the key's box; without one,
     * the box opts->name gets the key, or one whose name is made of the key. */
    const char *key;
    /* "OPTION=TEXT": where the option's value came from, such as "memory=/etc/x.toml:3"; kept with
     * the box, for bh_box_info.json ("sources"). NULL: nothing is known. */
    const char *const *sources;
    /* Options whose values are defaults, such as those of a file: a box that exists may differ. */
    const char *const *defaults;
    /* After idle_ms without use: "pause" (default where the provider can freeze), "stop" (default
     * elsewhere), "rm", "keep": nothing. */
    const char *on_idle;
    int64_t idle_ms; /* 0: ten minutes */
    /* A snapshot (bh_snapshot), whose content the new box's disk has; nothing is uploaded. Options
     * that are not given are those of the snapshot's box, without values of variables. NULL: the
     * image alone. A box that exists must have been made from it. */
    const char *from;
    /* A call that needs the box finds it gone. "destroy" (default): the call fails. "recreate": the
     * box is made anew, with another id and the same name, keys and options. Secrets are not stored:
     * only bh_create() recreates a box that has some. */
    const char *on_gone;
    /* The root file system cannot be written: /tmp, /run, the home and dest are memory, bounded by the memory limit, and
     * lost when the box stops. */
    bool read_only;
    /* A new box gets its coding agent, but does not start it: files come first, then
     * bh_start_agent(). */
    bool defer_agent;
    /* kubernetes: a SandboxWarmPool of agent-sandbox in the namespace, which the box is taken from. Its template decides
     * image, runtime, network, privilege and limits. NULL: none. */
    const char *pool;
};

/*
 * Returns the box opts->name, running and with a healthy agent. Creates it, or starts it again if
 * it exists; BH_FAILED_PRECONDITION if it is for another project. Concurrent callers create one
 * box. If a step fails, everything is rolled back and the first error is reported. bh_box_free()
 * the handle.
 */
int bh_create(struct bh_ctx *ctx, const struct bh_create_options *opts, struct bh_box **ret_box,
              struct bh_error *err);
/* By its name, or "PROVIDER/NAME": a box of another provider is BH_INVALID_ARGUMENT before anything is asked. */
int bh_get(struct bh_ctx *ctx, const char *name, struct bh_box **ret_box, struct bh_error *err);
/* By its id: bh_box_info.id, 16 hex digits. bh_box_free() the handle. */
int bh_get_by_id(struct bh_ctx *ctx, const char *id, struct bh_box **ret_box, struct bh_error *err);
/* The box that has the key (bh_create_options.key). bh_box_free() the handle. */
int bh_get_by_key(struct bh_ctx *ctx, const char *key, struct bh_box **ret_box,
                  struct bh_error *err);
struct bh_box *bh_box_free(struct bh_box *box); /* the handle, not the box; returns NULL */

struct bh_connect_options {
    size_t size;
    const char *name;    /* required; as a box's. Errors use it */
    const char *url;     /* required: of the guest agent, "http://127.0.0.1:4711" */
    const char *token;   /* the agent's, or NULL */
    const char *workdir; /* NULL: "/workspace" */
    /* As in bh_create_options, for the commands that are started by this handle. */
    const char *const *env;
    const char *const *host_env;
    int64_t timeout_ms; /* for the agent to answer; 0: 30 seconds */
};
/*
 * Attaches to a guest agent that is already running. Commands, files and searches work. Its
 * lifecycle is not managed here: no call keeps it alive or ends it, bh_list() does not report it,
 * and start, stop, destroy, extend, hold, inspect and get_url fail with BH_FAILED_PRECONDITION.
 */
int bh_connect(struct bh_ctx *ctx, const struct bh_connect_options *opts, struct bh_box **ret_box,
               struct bh_error *err);

/*
 * The same as a box of the state directory, by that name, which bh_get() and bh_list() give: its provider is
 * "attached". Nobody here keeps it alive or ends it: bh_destroy() forgets it, and start, stop, pause,
 * extend, snapshots and get_url fail with BH_FAILED_PRECONDITION or BH_UNIMPLEMENTED. The agent must
 * answer, and take the token, which is kept in the box's directory.
 */
int bh_attach(struct bh_ctx *ctx, const struct bh_connect_options *opts, struct bh_box **ret_box,
              struct bh_error *err);

struct bh_box_info {
    size_t size;
    const char *name;
    const char *id;
    const char *provider;
    const char *image;
    enum bh_state state;
    const char *cause; /* reason for the state, or "" */
    int64_t created_ms;
    int64_t state_since_ms;
    int64_t deadline_ms;   /* end of its time to live; 0 if it is not running */
    const char *workdir;   /* in the box */
    const char *guest_url; /* TCP address of the guest agent, or "" */
    const char *guest_socket;
    const char *agent_name; /* "opencode", or "none" */
    const char *agent_version;
    const char *agent_url;      /* "" if it has none */
    const char *agent_password; /* "" if it has none */
    const char *json;           /* all of it, as `bellhop status --json` prints it */
    /* 0: it has not happened. A box's times never run backwards, also if the clock does. */
    int64_t updated_ms; /* last change of its state, its project or its coding agent */
    int64_t paused_ms;
    int64_t resumed_ms;
    int64_t used_ms; /* last use that renewed its lease */
};
/* A snapshot, valid until the next call on this box. */
const struct bh_box_info *bh_box_info(struct bh_box *box);
/* The same without `json`, which is "{}": for lists of many boxes. */
const struct bh_box_info *bh_box_summary(struct bh_box *box);

/* Calls fn for each box, by name; a non-zero result ends the list and is returned. */
int bh_list(struct bh_ctx *ctx, int (*fn)(void *arg, struct bh_box *box), void *arg,
            struct bh_error *err);

/* ---- what happened ---- */

/* A box that was destroyed. Its name and its keys may be another box's by now. */
struct bh_record {
    size_t size;
    const char *id;
    const char *name;
    const char *provider;
    const char *image;
    const char *cause; /* reason for its end, or "" */
    int64_t created_ms;
    int64_t updated_ms; /* 0 in this one and the next three: it has not happened */
    int64_t paused_ms;
    int64_t resumed_ms;
    int64_t used_ms;
    int64_t destroyed_ms;
    int exit_code;          /* of its first process; -1: not known, or a signal ended it */
    int exit_signal;        /* 0: none, or not known */
    const char *logs;       /* the last 64 KiB that its first process printed, as UTF-8 */
    const char *transcript; /* a reference to what its coding agent said, or NULL */
    const char *json;       /* all of it but the logs, as `bellhop ls --all --json` prints it */
};
/*
 * Calls fn for each record, newest first. Records are kept for bh_options.records_for_ms, and at
 * most 10,000 of them. A record has no variables and no secrets of the box. A non-zero result ends
 * the list and is returned.
 */
int bh_list_records(struct bh_ctx *ctx, int (*fn)(void *arg, const struct bh_record *record),
                    void *arg, struct bh_error *err);

struct bh_event {
    size_t size;
    int64_t position; /* in the context's state directory, from 1; never used twice */
    int64_t seq;      /* of its box, from 1, without a gap */
    const char *id;   /* 32 hex digits, or the id that its author gave */
    const char *box_id;
    const char *box_name;
    const char *kind;     /* "state", or another word for a fact that changes no state */
    int64_t time_ms;      /* not before that of the box's event before */
    enum bh_state before; /* BH_STATE_UNKNOWN: the box was new */
    enum bh_state after;
    const char *cause; /* or "" */
    const char *actor; /* "bellhop rm", "monitor", "janitor", or bh_options.actor */
    const char *json;  /* all of it, as `bellhop events --json` prints it */
};
struct bh_event_options {
    size_t size;
    /* A box's name, or a box's id. A name is that of the box that has it, else of the last box that
     * had it. NULL: all boxes. */
    const char *box;
    /* Only events after this one: seq with a box, position without. 0: from the first that is
     * kept. */
    int64_t since;
};
/*
 * Calls fn for each event, oldest first; it does not wait for more. The last 10,000 of a box are
 * kept, as long as the box or its record is. A non-zero result ends the list and is returned.
 * BH_NOT_FOUND: there is neither such a box nor a record of it.
 */
int bh_list_events(struct bh_ctx *ctx, const struct bh_event_options *opts,
                   int (*fn)(void *arg, const struct bh_event *event), void *arg,
                   struct bh_error *err);

/* Succeeds if the guest agent and the coding agent both answer as they should. */
int bh_health(struct bh_box *box, int64_t timeout_ms, struct bh_error *err);

struct bh_prompt_options {
    size_t size;
    const char *text;
    const char *session;       /* one of the coding agent's; NULL: a new one */
    int64_t timeout_ms;        /* for the whole turn, which is aborted then; 0: none */
    int64_t action_timeout_ms; /* for the answer to each request; 0: 120 s */
    int64_t warn_after_ms;     /* 0: 30 s. Not above the next */
    int64_t stale_after_ms;    /* 0: 5 minutes */
};
/*
 * Sends a prompt to the box's coding agent and waits until its turn is over: *ret_json is {"session",
 * "text"}, the text of its last message; free() it. An agent that says nothing for warn_after_ms is an
 * event "turn_warning" of the box, and for stale_after_ms "turn_stale"; the call goes on waiting. A
 * turn whose call is canceled is aborted. BH_UNIMPLEMENTED: its recipe names no `conversation`.
 */
int bh_prompt(struct bh_box *box, const struct bh_prompt_options *opts, char **ret_json,
              struct bh_error *err);

int bh_start(struct bh_box *box, int64_t timeout_ms, struct bh_error *err);
/* Starts the coding agent of a box that runs, unless it answers already (bh_create_options.
 * defer_agent). On failure the error has its step. */
int bh_start_agent(struct bh_box *box, int64_t timeout_ms, struct bh_error *err);
int bh_stop(struct bh_box *box, int64_t timeout_ms, struct bh_error *err); /* keeps the disk */
/* A box that is destroyed already is no error. */
int bh_destroy(struct bh_box *box, int64_t timeout_ms, struct bh_error *err);
/* bh_destroy(); if the box's engine cannot do it, the box goes all the same, and *ret_left says why: what the engine has
 * of it is left there, and bh_gc() removes it once the engine in force is that one. *ret_left is NULL if nothing is left;
 * free() it. A box of a daemon is only destroyed. */
int bh_forget(struct bh_box *box, int64_t timeout_ms, char **ret_left, struct bh_error *err);
/*
 * level "freeze": the box's processes stand still and keep their memory. "disk": as bh_stop(). NULL:
 * "freeze" if the provider can. A paused box stays paused: no error. BH_UNIMPLEMENTED: the provider,
 * or this machine, cannot do it, and nothing has changed. BH_FAILED_PRECONDITION: the box does not
 * run. Its time to live begins anew; any call that needs the box, and any connection to a forwarded
 * port, resumes it.
 */
int bh_pause(struct bh_box *box, const char *level, int64_t timeout_ms, struct bh_error *err);
/* Returns once the guest agent has answered, at the latest after 90 seconds. A running box: no
 * error. A box that was paused to disk is started; another stopped one is
 * BH_FAILED_PRECONDITION. */
int bh_resume(struct bh_box *box, int64_t timeout_ms, struct bh_error *err);
/* Extends the box's time to live to at least duration_ms from now; never shortens it. */
int bh_extend(struct bh_box *box, int64_t duration_ms, int64_t *ret_deadline_ms,
              struct bh_error *err);
/* The box counts as used while the descriptor *ret_fd is open; close() ends the hold. */
int bh_hold(struct bh_box *box, int *ret_fd, struct bh_error *err);

/* ---- snapshots ---- */

/*
 * A snapshot is the content of a box's disk over its image. It has what programs wrote to the disk,
 * secrets included; no memory, no bh_create_options.secrets, no values of variables. Equal content
 * is stored once.
 */
struct bh_snapshot_info {
    size_t size;
    const char *name;
    const char *id;
    const char *box_name; /* of the box that it is of */
    const char *box_id;
    const char *provider;
    const char *image;
    const char *agent;
    int64_t created_ms;
    uint64_t bytes;        /* of the files that the box had changed */
    uint64_t copied_bytes; /* of these, the ones that were not stored yet */
    uint64_t entries;      /* number of these files, directories and links */
    uint32_t n_layers;
    const char *json; /* all of it, as `bellhop snapshots ls --json` prints it */
};
struct bh_snapshot_options {
    size_t size;
    const char *name;   /* as a box's; NULL: the box's with a number */
    int64_t timeout_ms; /* 0: 30 minutes */
};
/*
 * The box keeps running; its processes stand still for the moment of the copy, so that no file is
 * half written. Stopped and paused boxes stay so. opts may be NULL. fn (or NULL) is called once.
 * BH_UNIMPLEMENTED: the provider cannot do it. BH_ALREADY_EXISTS: the name is taken.
 * BH_RESOURCE_EXHAUSTED: the disk is full, the box has more than 1,000,000 changed files, or its
 * disk has 32 layers. On failure nothing is left.
 */
int bh_snapshot(struct bh_box *box, const struct bh_snapshot_options *opts,
                int (*fn)(void *arg, const struct bh_snapshot_info *info), void *arg,
                struct bh_error *err);
/* Calls fn for each snapshot, oldest first; a non-zero result ends the list and is returned. */
int bh_list_snapshots(struct bh_ctx *ctx, int (*fn)(void *arg, const struct bh_snapshot_info *info),
                      void *arg, struct bh_error *err);
/* BH_FAILED_PRECONDITION: a box was made from it, or restored to it; the message names the box. */
int bh_remove_snapshot(struct bh_ctx *ctx, const char *name, struct bh_error *err);
/* Reads all of it. BH_DATA_LOSS: the message names the first path that is damaged. timeout_ms 0:
 * 30 minutes. */
int bh_verify_snapshot(struct bh_ctx *ctx, const char *name, int64_t timeout_ms,
                       struct bh_error *err);
/* The box's disk gets the snapshot's content; what is on it is lost. The box keeps its name, id and
 * keys. One that ran or was paused runs afterwards, a stopped one stays stopped. BH_DATA_LOSS: the
 * snapshot is damaged, and nothing has changed. */
int bh_restore(struct bh_box *box, const char *snapshot, int64_t timeout_ms, struct bh_error *err);

struct bh_fork_options {
    size_t size;
    const char *name;            /* of the new box; NULL: the box's with a number */
    int64_t timeout_ms;          /* 0: as of bh_snapshot() and bh_create() */
    const char *const *host_env; /* as in bh_create_options */
};
/* Makes a second box with the content of the first one's disk and its options, secrets and variables
 * included; token, password and time to live are new. opts may be NULL. bh_box_free() the handle. */
int bh_fork(struct bh_box *box, const struct bh_fork_options *opts, struct bh_box **ret_box,
            struct bh_error *err);

/* Reports as JSON which isolation and limits the kernel enforces. free() *ret_json. */
int bh_inspect(struct bh_box *box, char **ret_json, struct bh_error *err);

/* ---- commands ---- */

struct bh_run_options {
    size_t size;
    const char *const *argv; /* either this or shell */
    const char *shell;       /* a script of any size, run by the interpreter of its first line
                              * ("#!/usr/bin/env python3"), else by bash or sh */
    const char *cwd;         /* NULL: the box's workdir */
    const char *user;        /* NULL: the box's user */
    const char *const *env;  /* "K=V" */
    /* Chosen by the caller, so that a repeated start has one effect; NULL: random. */
    const char *id;
    int64_t timeout_ms; /* 0: none */
    bool detach;        /* bh_run: return once the command has started */
    bool pty;
    uint16_t cols, rows;
    int stdin_fd; /* bh_run: -1: no input (a zeroed struct reads descriptor 0) */
    /* bh_run: gets the output as it comes; a non-zero result ends the call with BH_CANCELED. NULL:
     * the output is dropped. */
    int (*output)(void *arg, int stream /* 1 stdout, 2 stderr */, const char *data, size_t len);
    void *output_arg;
    int64_t grace_ms;           /* from SIGTERM to SIGKILL at the timeout; 0: two seconds */
    bool stdin_open;            /* bh_exec_start: keep its input open for bh_exec_write */
    bool kill_on_exit;          /* kill its descendants when it exits */
    bool wait_eof;              /* end only when every process has closed its output */
    bool raw;                   /* pty: no echo, no line editing, bytes unchanged */
    const char *umask;          /* "022"; NULL: the agent's */
    const char *const *rlimits; /* "nofile=1024", "core=unlimited" */
    /* Limits by a control group of its own; 0: none. BH_UNIMPLEMENTED where the box cannot make a
     * group, which is so with cgroup v1. */
    uint64_t memory_bytes;
    uint32_t pids;
    uint32_t cpu_millis; /* thousandths of a processor */
    /* Output that the agent keeps for reading again: the first and the last bytes of each stream.
     * Both 0: 512 KiB each. */
    uint64_t head_bytes;
    uint64_t tail_bytes;
    /* bh_run: being attached does not count as use of the box; input, output and running commands
     * do. For a shell that may be left open. */
    bool no_hold;
};

enum bh_known { BH_NO = 0, BH_YES = 1, BH_NOT_KNOWN = -1 };

struct bh_run_result {
    size_t size;
    char id[132]; /* an id has at most 128 bytes */
    int pid;
    char reason[16]; /* exited, signaled, timeout, oom, canceled, lost; "" if detached */
    int code;        /* exit status if reason is exited */
    char signal[16]; /* "SIGKILL" */
    int64_t wall_ms, user_ms, system_ms;
    uint64_t max_rss_bytes;
    enum bh_known oom;   /* the kernel killed it for lack of memory */
    char tree[16];       /* state of its descendants: gone, left, best_effort */
    int64_t read_bytes;  /* from the disk; -1: not known */
    int64_t write_bytes; /* to the disk; -1: not known */
    uint64_t lost_bytes; /* output that the agent dropped before it could be read */
};

/*
 * Runs a command to its end. Starts a stopped box first. After a broken connection, output
 * continues at the byte where it broke and input at the byte that was accepted: nothing is
 * delivered twice, and output that could not be kept is counted in lost_bytes. If the call is
 * canceled, or the rest of the input cannot be delivered, the command is killed. If its end is not
 * known after ten seconds, the error's field is "id", and its message says so.
 */
int bh_run(struct bh_box *box, const struct bh_run_options *opts, struct bh_run_result *ret_result,
           struct bh_error *err);

/*
 * A handle of one command: the caller's position in its output and input. The command belongs to
 * the box and lives on without a handle. A handle is used by its box's thread, and before its box
 * is freed; bh_exec_write, _signal and _resize may be called from the output function of
 * bh_exec_follow.
 */
struct bh_exec;

/*
 * Starts a command and returns once it runs. If the id exists, attaches to that command, provided
 * that the request is the same; else BH_ALREADY_EXISTS. bh_exec_free() the handle. If the call is
 * canceled, a command with a random id is killed; one with the caller's may run.
 */
int bh_exec_start(struct bh_box *box, const struct bh_run_options *opts, struct bh_exec **ret_exec,
                  struct bh_error *err);
/* Attaches to a command by id, whoever started it: running, or ended within the last ten
 * minutes. */
int bh_exec_attach(struct bh_box *box, const char *id, struct bh_exec **ret_exec,
                   struct bh_error *err);
struct bh_exec *bh_exec_free(struct bh_exec *exec); /* the handle, not the command; returns NULL */
const char *bh_exec_id(const struct bh_exec *exec); /* the handle's */
int bh_exec_pid(const struct bh_exec *exec);        /* in the box */
/* The position at which bh_exec_follow and bh_exec_read continue, in bytes from the command's
 * start. stream: 1 stdout, 2 stderr. */
void bh_exec_seek(struct bh_exec *exec, int stream, uint64_t offset);
uint64_t bh_exec_offset(const struct bh_exec *exec, int stream);

struct bh_follow_options {
    size_t size;
    int64_t timeout_ms; /* then BH_DEADLINE_EXCEEDED; the call can be repeated; 0: none */
    /* Copied to the command's input, which is closed at its end; -1: none (zeroed: 0). The call fails
     * if the rest of it cannot be read or delivered. */
    int stdin_fd;
    bool lossless; /* back-pressure: the command waits for this reader, and there are no gaps */
    /* As in bh_run_options; a non-zero result ends the call with BH_CANCELED. May be NULL. */
    int (*output)(void *arg, int stream, const char *data, size_t len);
    /* Output that the agent no longer keeps. NULL: it is only counted in lost_bytes. */
    void (*gap)(void *arg, int stream, uint64_t bytes);
    void *arg;
};
/* Delivers output from the handle's offsets to the command's end. If canceled, the command lives
 * on. */
int bh_exec_follow(struct bh_exec *exec, const struct bh_follow_options *opts,
                   struct bh_run_result *ret_result, struct bh_error *err);
/* Reads at most 64 KiB of one stream without waiting; *ret_len is 0 if there is nothing new.
 * BH_DATA_LOSS: the agent no longer keeps these bytes; the error's detail names the first that it
 * keeps. */
int bh_exec_read(struct bh_exec *exec, int stream, void *buf, size_t bytes, size_t *ret_len,
                 bool *ret_eof, struct bh_error *err);
/* Writes all of data; returns once the command has taken it. timeout_ms 0: none. After an error
 * the same data may be written again: bytes that the command has are not written twice. Other data
 * comes after what has arrived. Each handle, and the input of a follow, writes by itself. */
int bh_exec_write(struct bh_exec *exec, const void *data, size_t len, int64_t timeout_ms,
                  struct bh_error *err);
int bh_exec_close_stdin(struct bh_exec *exec, struct bh_error *err);
/* Signals the command's first process; tree: its descendants too. signal: "SIGTERM", "term" or
 * "15". */
int bh_exec_signal(struct bh_exec *exec, const char *signal, bool tree, struct bh_error *err);
int bh_exec_resize(struct bh_exec *exec, uint16_t cols, uint16_t rows, struct bh_error *err);
/* Waits for the command's end, or fails with BH_DEADLINE_EXCEEDED; timeout_ms 0: none. */
int bh_exec_wait(struct bh_exec *exec, int64_t timeout_ms, struct bh_run_result *ret_result,
                 struct bh_error *err);
/* Drops the result and the output of a command that has ended. */
int bh_exec_forget(struct bh_exec *exec, struct bh_error *err);

struct bh_exec_info {
    size_t size;
    const char *id;
    const char *state;   /* starting, running, ended, failed */
    const char *command; /* one line for a person, quoted as for a shell */
    int pid;
    bool pty;
    bool stdin_open;
    int64_t started_ms;
    int64_t ended_ms;      /* 0 while it runs */
    uint64_t stdout_bytes; /* so far, dropped bytes included */
    uint64_t stderr_bytes;
    struct bh_run_result result; /* if it has ended */
    const char *json;            /* the agent's whole reply */
};
/* Calls fn for each command that runs or whose result is kept, oldest first. A non-zero result ends
 * the list and is returned. */
int bh_exec_list(struct bh_box *box, int (*fn)(void *arg, const struct bh_exec_info *info),
                 void *arg, struct bh_error *err);
/* The same for one command: calls fn once. */
int bh_exec_get(struct bh_exec *exec, int (*fn)(void *arg, const struct bh_exec_info *info),
                void *arg, struct bh_error *err);

/* The same as bh_exec_signal and bh_exec_resize by id, without a handle. */
int bh_signal(struct bh_box *box, const char *id, const char *signal, struct bh_error *err);
int bh_resize(struct bh_box *box, const char *id, uint16_t cols, uint16_t rows,
              struct bh_error *err);

/* Calls any method of the guest agent's API ("Exec/List"), JSON in and out. free() *ret_json. For a
 * stream, on_message gets each message (non-zero: BH_CANCELED) and *ret_json is not touched. */
int bh_call(struct bh_box *box, const char *method, const char *params_json,
            int (*on_message)(void *arg, const char *json), void *arg, int64_t timeout_ms,
            char **ret_json, struct bh_error *err);

/* ---- files, search, ports ---- */

/* Forwards a TCP port of the box to this machine's loopback; *ret_url: "http://127.0.0.1:PORT".
 * free() it. */
int bh_get_url(struct bh_box *box, uint16_t port, char **ret_url, struct bh_error *err);

/* Reads a whole file of at most max_bytes (else BH_RESOURCE_EXHAUSTED). free() *ret_data. A NUL
 * follows the data. */
int bh_read(struct bh_box *box, const char *path, size_t max_bytes, char **ret_data,
            size_t *ret_len, struct bh_error *err);
/* Replaces a file, all or nothing. mode 0: 0644. */
int bh_write(struct bh_box *box, const char *path, const void *data, size_t len, uint32_t mode,
             struct bh_error *err);

#define BH_ETAG_BYTES 128 /* a tag and its NUL */

/* One file or directory of the box. Relative paths start at the workdir. */
struct bh_file_info {
    size_t size;
    const char *path;
    const char *name;
    const char *type; /* file, directory, symlink, fifo, socket, block, char; "" with an error */
    uint64_t bytes;
    uint32_t mode; /* 0644 */
    uint32_t uid, gid;
    const char *user, *group;
    const char *mtime;  /* "2026-11-22T01:35:00.123456789Z" */
    const char *target; /* of a symlink, or "" */
    const char *etag;   /* if asked for, else "" */
    const char *error;  /* reason why this entry of a list could not be read, or "" */
};
struct bh_file_list_options {
    size_t size;
    const char *path;
    uint32_t depth; /* levels of directories; 0: 1 */
    bool etag;
};
/* Calls fn once; its result is returned. */
int bh_file_stat(struct bh_box *box, const char *path, bool etag,
                 int (*fn)(void *arg, const struct bh_file_info *info), void *arg,
                 struct bh_error *err);
/* Calls fn for each entry, sorted by path. A non-zero result ends the list and is returned. */
int bh_file_list(struct bh_box *box, const struct bh_file_list_options *opts,
                 int (*fn)(void *arg, const struct bh_file_info *info), void *arg,
                 struct bh_error *err);

struct bh_file_read_options {
    size_t size;
    const char *path;
    uint64_t offset;
    uint64_t length;      /* 0: to the end */
    const char *if_match; /* BH_ABORTED unless the file has this tag; or NULL */
    /* Gets the bytes as they come; a non-zero result ends the call with BH_CANCELED. */
    int (*write)(void *arg, const char *data, size_t len);
    void *arg;
};
/* etag: room for BH_ETAG_BYTES, or NULL. */
int bh_file_read(struct bh_box *box, const struct bh_file_read_options *opts, char *etag,
                 struct bh_error *err);

struct bh_file_write_options {
    size_t size;
    const char *path;
    const void *data;
    size_t len;
    uint32_t mode;             /* 0: the old file's, or 0644 */
    const char *if_match;      /* BH_ABORTED unless the file has this tag ("*": any); or NULL */
    const char *if_none_match; /* "*": BH_ABORTED if the file exists */
    bool sync;                 /* fsync before the reply */
    bool digest;               /* the agent checks a SHA-256 before it replaces the file */
};
/* Replaces a file's content, all or nothing. etag: gets the new tag; BH_ETAG_BYTES, or NULL. */
int bh_file_write(struct bh_box *box, const struct bh_file_write_options *opts, char *etag,
                  struct bh_error *err);

struct bh_file_change_options {
    size_t size;
    const char *if_match; /* of the file that is changed, as in bh_file_write_options */
    const char *if_none_match;
    bool recursive;            /* remove, copy: directories too */
    bool missing_ok;           /* remove */
    bool overwrite;            /* move, copy */
    bool no_parents;           /* mkdir, move, copy: missing directories are an error */
    uint32_t mode;             /* mkdir, set_attr; 0: 0755, as it is */
    const char *owner, *group; /* set_attr; or NULL */
    const char *mtime;         /* set_attr: as bh_file_info has it; or NULL */
};
/* opts may be NULL. */
int bh_file_remove(struct bh_box *box, const char *path, const struct bh_file_change_options *opts,
                   struct bh_error *err);
int bh_file_mkdir(struct bh_box *box, const char *path, const struct bh_file_change_options *opts,
                  struct bh_error *err);
int bh_file_move(struct bh_box *box, const char *from, const char *to,
                 const struct bh_file_change_options *opts, struct bh_error *err);
int bh_file_copy(struct bh_box *box, const char *from, const char *to,
                 const struct bh_file_change_options *opts, struct bh_error *err);
int bh_file_set_attr(struct bh_box *box, const char *path,
                     const struct bh_file_change_options *opts, struct bh_error *err);

struct bh_edit {
    const char *old_text; /* literal text, which must occur count times */
    const char *new_text;
    uint32_t count; /* 0: 1 */
    bool all;       /* replace it however often it occurs */
};
struct bh_edit_options {
    size_t size;
    const char *path;
    const struct bh_edit *edits; /* in this order, all or none */
    size_t n_edits;
    bool dry_run;
    const char *if_match;
};
struct bh_edit_result {
    size_t size;
    uint64_t replaced;
    char etag[BH_ETAG_BYTES];
    char *diff; /* unified; NULL if it is too long. free() it */
};
int bh_file_edit(struct bh_box *box, const struct bh_edit_options *opts,
                 struct bh_edit_result *ret_result, struct bh_error *err);

struct bh_watch_event {
    size_t size;
    const char *type; /* started, created, removed, renamed, modified, written, attributes,
                         unwatched, overflow (look again), end */
    const char *path;
    const char *from; /* renamed: the old path; or "" */
    bool directory;
    const char *json; /* the agent's whole message */
};
struct bh_watch_options {
    size_t size;
    const char *path; /* NULL: the workdir */
    bool not_recursive;
    const char *const *excludes; /* as lines of a .gitignore */
    int64_t timeout_ms;          /* then BH_DEADLINE_EXCEEDED; 0: none */
};
/* Reports the changes below a directory in order, until it is removed or fn returns non-zero
 * (BH_CANCELED). After `started`, every change is reported, or an overflow is. */
int bh_file_watch(struct bh_box *box, const struct bh_watch_options *opts,
                  int (*fn)(void *arg, const struct bh_watch_event *event), void *arg,
                  struct bh_error *err);

/* Gets a tree as an archive: tar, tar.gz, tar.zst. */
struct bh_archive_get_options {
    size_t size;
    const char *path;
    const char *format;          /* NULL: tar */
    const char *const *excludes; /* globs */
    bool reproducible;
    int (*write)(void *arg, const char *data, size_t len);
    void *arg;
};
int bh_archive_get(struct bh_box *box, const struct bh_archive_get_options *opts,
                   struct bh_error *err);
/* Extracts an archive of any of the agent's formats into a directory, all or nothing. */
struct bh_archive_put_options {
    size_t size;
    const char *path;
    bool replace; /* replace the directory's content instead of merging into it */
    bool keep_owner;
    /* Produces the archive: bytes written to out, 0 at its end, negative to give up. */
    int64_t (*read)(void *arg, char *out, size_t max);
    void *arg;
};
int bh_archive_put(struct bh_box *box, const struct bh_archive_put_options *opts,
                   uint64_t *ret_entries, struct bh_error *err);

struct bh_search_options {
    size_t size;
    const char *pattern;
    const char *path;         /* NULL: the workdir */
    const char *const *globs; /* as rg -g */
    const char *const
        *types; /* grep: as rg -t; glob: file, directory, symlink, executable, empty */
    const char *const *types_not; /* grep: as rg -T */
    const char *letters;          /* sensitive, insensitive, smart; NULL: sensitive */
    const char *sort;             /* path, modified, accessed, changed; NULL: as found */
    const char *mode;    /* grep: lines (NULL), files, files_without_match, count, count_matches */
    const char *replace; /* grep: each match as this, in `replaced` */
    bool hidden, no_ignore, follow;
    bool fixed, regex; /* the pattern is literal text; glob: the pattern is an expression */
    bool word, line, invert, multiline, only_matching; /* grep: as rg -w -x -v -U -o */
    uint32_t before, after;                            /* grep: lines around */
    uint32_t max_per_file;                             /* grep; 0: no limit */
    uint32_t max_depth;
    uint64_t max_filesize;
    uint64_t limit;                /* results in all; 0: no limit */
    const char *cursor;            /* continue after the page that returned it */
    const char *const *patterns;   /* grep: lines that match any of these; instead of pattern */
    const char *const *iglobs;     /* as rg --iglob */
    const char *const *excludes;   /* globs of what to leave out */
    const char *const *types_add;  /* grep: as rg --type-add */
    const char *const *extensions; /* glob: only names that end in one of these */
    const char *encoding;          /* grep: none, utf-16le, utf-16be, latin1; NULL: auto */
    const char *binary;            /* grep: text, report; NULL: skip binary files */
    const char *user;              /* search with the rights of this user; NULL: the box's user */
    bool no_ignore_vcs, no_ignore_parent, one_file_system; /* as rg has them */
    bool reverse;                                          /* with sort */
    bool dotall, crlf;                                     /* grep: as rg has them */
    bool full_path; /* glob: the pattern is for the whole absolute path */
    /* A relative path is not made absolute, and paths of results are relative to the workdir
     * too. */
    bool keep_relative;
    uint32_t context;            /* grep: lines before and after */
    uint32_t max_columns;        /* grep: cut longer lines after so many bytes; 0: no limit */
    uint32_t min_depth;          /* glob */
    uint64_t min_size, max_size; /* glob: bytes; 0: no limit */
    int64_t changed_within_ms;   /* glob: modified so long ago at most; 0: any time */
    int64_t changed_after_ms, changed_before_ms; /* glob: points in time; 0: no limit */
};
struct bh_search_result {
    size_t size;
    uint64_t found;
    bool limit_reached;
    uint64_t incomplete; /* number of paths that could not be searched */
    /* For the next page, if the limit was reached and results are sorted; free() it. */
    char *cursor;
    char *json; /* the agent's `end`: counts, and the paths that failed; free() it */
};
struct bh_match {
    size_t size;
    const char *path;
    uint64_t line;    /* 0: the match is a whole file (mode is not lines) */
    uint64_t column;  /* in bytes, from 1 */
    uint64_t offset;  /* of the line in its file, in bytes */
    const char *text; /* without its line feed */
    size_t text_len;
    const char *replaced; /* the line with `replace` applied, or NULL */
    uint64_t count;       /* mode count, count_matches */
    const char *json;     /* the agent's whole message: also submatches and context lines */
};
/* Calls fn for each result; a non-zero result ends the search with BH_CANCELED. ret_result may be
 * NULL. */
int bh_grep(struct bh_box *box, const struct bh_search_options *opts,
            int (*fn)(void *arg, const struct bh_match *match), void *arg,
            struct bh_search_result *ret_result, struct bh_error *err);
int bh_glob(struct bh_box *box, const struct bh_search_options *opts,
            int (*fn)(void *arg, const char *path, const char *type), void *arg,
            struct bh_search_result *ret_result, struct bh_error *err);

struct bh_upload_options {
    size_t size;
    const char *source; /* a directory, or a file */
    const char *dest;   /* a directory in the box */
    const char *git;    /* as in bh_create_options; "as-is": every file, no git rules */
    bool with_secrets;
    const char *as; /* name of a single file in dest; NULL: its own */
};
struct bh_upload_result {
    size_t size;
    uint64_t files;
    uint64_t bytes;
    char *left_out; /* files that look like secrets and were not sent, one per line; free() it */
};
/*
 * Uploads a file or a tree, all or nothing. A single file of 16 MiB or more continues after a
 * broken connection; BH_ABORTED if it changes meanwhile.
 */
int bh_upload(struct bh_box *box, const struct bh_upload_options *opts,
              struct bh_upload_result *ret_result, struct bh_error *err);
/*
 * Downloads a file or tree into a local directory, under its own name. For a file, the reply must
 * hold that one entry and nothing else: otherwise the call fails with BH_DATA_LOSS and changes
 * nothing. A link to a directory arrives as a directory with the link's name, any other link as a
 * link.
 */
int bh_download(struct bh_box *box, const char *path, const char *local_dir, struct bh_error *err);

struct bh_sync_options {
    size_t size;
    const char *local;  /* a directory here */
    const char *remote; /* a directory in the box */
    bool to_local;      /* the box is the source; local is created if it is missing */
    bool dry_run;       /* change nothing */
    bool delete_extra;  /* also remove files that only the target has and that were never synced */
    bool checksum;      /* compare contents even if size and time are the same */
    /* .git too; from a box only if you trust it: git runs programs that .git names. */
    bool with_git;
    bool with_secrets;
    const char *const *excludes; /* globs, NULL-terminated, or NULL */
    /* Called for each change before any is made; what: "send", "touch" (mode and time only) or
     * "remove"; name is relative. A non-zero result ends the call with BH_CANCELED. */
    int (*change)(void *arg, const char *what, const char *name);
    void *change_arg;
    /* The box may have so many more files than the local directory, else BH_RESOURCE_EXHAUSTED.
     * Each takes 256 bytes of memory. 0: 100,000. */
    uint64_t max_files;
};
struct bh_sync_result {
    size_t size;
    uint64_t sent, sent_bytes; /* files and links */
    uint64_t removed;
    uint64_t touched;
    uint64_t unchanged;
    uint64_t kept; /* files that only the target has, and that were left there */
};
/* Makes the target directory like the source: sends files that differ, removes files that the
 * source has lost since the last sync of the two. Ignored files (.gitignore, .bellhopignore) are
 * neither sent nor removed. Names from a box are checked before anything changes: BH_DATA_LOSS for
 * one that leads outside or occurs twice, BH_PERMISSION_DENIED for one that git could take for a
 * repository. */
int bh_sync(struct bh_box *box, const struct bh_sync_options *opts,
            struct bh_sync_result *ret_result, struct bh_error *err);

/* ---- activity, holds, ports ---- */

struct bh_activity {
    size_t size;
    bool busy;
    /* Some of calls, commands, connections, cpu and holds: "commands, holds"; or "". */
    char reasons[80];
    int64_t idle_ms;      /* 0 while busy */
    uint32_t calls;       /* open requests */
    uint32_t commands;    /* running commands */
    uint32_t connections; /* established connections to ports of the box */
    uint32_t holds;
    int64_t cpu_ms; /* processor time used in the last cpu_window_ms; -1: not known yet */
    int64_t cpu_window_ms;
    char *json; /* the agent's whole reply; free() it */
};
/* The call does not count as use and does not start a stopped box (BH_FAILED_PRECONDITION). */
int bh_activity(struct bh_box *box, struct bh_activity *ret, struct bh_error *err);

struct bh_hold_options {
    size_t size;
    const char *id;     /* hold id; reusing an id renews that hold; NULL: random */
    const char *reason; /* for a person; or NULL */
    int64_t ttl_ms;     /* 0: ten minutes; at most a day */
};
/* The box counts as used until the hold is released or expires, even if the caller exits; `bellhopd
 * hold` does the same from inside. ret_id has room for 129 bytes. */
int bh_hold_take(struct bh_box *box, const struct bh_hold_options *opts, char *ret_id,
                 struct bh_error *err);
int bh_hold_release(struct bh_box *box, const char *id, struct bh_error *err);

struct bh_port {
    size_t size;
    uint16_t port;
    const char *protocol; /* tcp, udp */
    const char *address;  /* local address of the listener */
    bool reachable;       /* bh_get_url can forward it */
    bool is_agent;        /* a port of Bellhop's guest agent */
    uint32_t connections;
    int pid;             /* 0: not known */
    const char *process; /* its name, or "" */
    const char *command; /* id of the command that the process belongs to, or "" */
};
/* Calls fn for each listening port. A non-zero result ends the list and is returned. */
int bh_ports(struct bh_box *box, int (*fn)(void *arg, const struct bh_port *port), void *arg,
             struct bh_error *err);

struct bh_wait_port_options {
    size_t size;
    uint16_t port;
    int64_t timeout_ms;  /* 0: thirty seconds; then BH_DEADLINE_EXCEEDED */
    const char *path;    /* GET this until the status is below 400; NULL: a connection is enough */
    const char *exec_id; /* BH_FAILED_PRECONDITION if this command ends first; or NULL */
};
/* Waits until something listens on the port. *ret_status: with a path, the HTTP status; may be
 * NULL. */
int bh_wait_port(struct bh_box *box, const struct bh_wait_port_options *opts, int *ret_status,
                 struct bh_error *err);

/* Runs every tool that the box's image promises; BH_FAILED_PRECONDITION names the first that does
 * not work. If ret_json is not NULL, *ret_json gets the report in both cases; free() it. */
int bh_ready(struct bh_box *box, char **ret_json, struct bh_error *err);
/* The agent's metrics in Prometheus' text format. free() *ret_text. */
int bh_metrics(struct bh_box *box, char **ret_text, struct bh_error *err);

/* ---- images ---- */

struct bh_image_info {
    size_t size;
    const char *name;
    const char *version;
    const char *path;  /* its directory; "": a template that is not built */
    const char *hash;  /* of its inputs, or "" */
    const char *forms; /* "squashfs oci", or "" */
    uint64_t bytes;    /* of all forms on the disk */
    uint32_t boxes;    /* boxes that use it */
    bool replaced;     /* a newer build has its name; it is kept for the boxes that use it */
};
/* Calls fn for each built image, by name and version, then for each template that is not built. A
 * non-zero result ends the list and is returned. */
int bh_image_list(struct bh_ctx *ctx, int (*fn)(void *arg, const struct bh_image_info *info),
                  void *arg, struct bh_error *err);

struct bh_image_build_options {
    size_t size;
    const char *image; /* NAME[:VERSION], or the path of an e2b.toml or its directory */
    const char *const
        *forms;         /* "squashfs", "dir", "tar", "oci", "vm", "dockerfile"; NULL: squashfs */
    bool fresh;         /* rebuild every layer with Debian's newest packages */
    int64_t timeout_ms; /* 0: an hour */
    /* "K=V" or NULL: the build gets the proxies and pip's index (PIP_INDEX_URL and such) of
     * these. */
    const char *const *host_env;
};
/* Builds the forms that are missing; concurrent callers build them once. An error in the template
 * is BH_INVALID_ARGUMENT with its file and line. free() *ret_path, the image's directory. */
int bh_image_build(struct bh_ctx *ctx, const struct bh_image_build_options *opts, char **ret_path,
                   struct bh_error *err);
/* The image's manifest as JSON; the inputs, for a template that is not built. free() *ret_json. */
int bh_image_inspect(struct bh_ctx *ctx, const char *image, char **ret_json, struct bh_error *err);
/* BH_FAILED_PRECONDITION while a box uses it. */
int bh_image_remove(struct bh_ctx *ctx, const char *image, struct bh_error *err);

/* ---- the machine ---- */

/* Finishes or rolls back interrupted operations and removes leftovers that no box owns. Boxes stay,
 * however long they have been stopped. fn gets a line for each action. */
int bh_gc(struct bh_ctx *ctx, void (*fn)(void *arg, const char *line), void *arg,
          struct bh_error *err);
/* The same; also removes boxes, with their disks, that have been stopped (or in error, with nothing
 * running) for at least stopped_for_ms. -1: none. */
int bh_gc_stopped(struct bh_ctx *ctx, int64_t stopped_for_ms,
                  void (*fn)(void *arg, const char *line), void *arg, struct bh_error *err);

struct bh_gc_options {
    size_t size;
    /* Removes boxes, with their disks, that have been stopped for at least so long. 0: none; 1: every
     * stopped box. */
    int64_t stopped_for_ms;
    /* Forgets the records of boxes that were destroyed at least so long ago. 0: as the context; 1:
     * every record. */
    int64_t records_for_ms;
    bool dry_run; /* only tell, change nothing */
};
/* The same with options. If several do this at once, each thing is done by one of them. */
int bh_gc_run(struct bh_ctx *ctx, const struct bh_gc_options *opts,
              void (*fn)(void *arg, const char *line), void *arg, struct bh_error *err);

struct bh_provider_info {
    const char *name;
    const char *summary;
    bool usable;
    const char *runtime; /* the OCI runtime that passed, or "" */
    const char *why;     /* reason why it is not usable */
    const char *engine;  /* as found: "Docker 20.10.24 at unix:///var/run/docker.sock", or "" */
};
int bh_providers(struct bh_ctx *ctx, void (*fn)(void *arg, const struct bh_provider_info *info),
                 void *arg, struct bh_error *err);

#ifdef __cplusplus
}
#endif

#endif
