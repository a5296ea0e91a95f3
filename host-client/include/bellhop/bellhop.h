/*
 * libbellhop: boxes in which coding agents work.
 *
 * A context (struct bh_ctx) is one state directory; a box (struct bh_box) is one sandbox with
 * Bellhop's guest agent in it. There is no global state. The library never prints, exits, reads
 * the environment or touches signals.
 *
 * Errors: a function that can fail returns 0 or a negative enum bh_code and fills the caller's
 * struct bh_error, which may be NULL and needs no freeing. On failure no out-parameter is touched.
 *
 * Ownership: what comes through a `ret_` parameter is the caller's and is given back by the
 * function its comment names. `const` pointers within returned structs belong to the struct.
 *
 * Threads: a context and its boxes are used by one thread at a time; contexts are independent.
 *
 * Time: durations are milliseconds; points in time are milliseconds since 1970 (UTC).
 *
 * Option structs start with their size: set `.size = sizeof(opts)` and zero the rest. A smaller
 * size than today's means an older caller; the missing fields have their defaults.
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
    char
        step[32]; /* what failed: a bootstrap step ("install", "health", ...), "ready_cmd", or "" */
    /* With a step: the tail of the log behind the error. Else what the agent's error has for
     * programs, as a JSON object ({"etag":"..."}, {"first_held":4096}), or "". */
    char detail[4096];
};

const char *bh_code_name(int code); /* "not_found" */
const char *bh_version(void);       /* "0.1.0" */

/* ---- context ---- */

struct bh_progress {
    /* "image", "create", "upload", "install", "start", "health", ...; "building": once a second, how
     * long the image's last step has taken; "warning": a person should see the text in any case */
    const char *phase;
    const char *text; /* what is happening, for a person */
    uint64_t done;    /* of total, in bytes; total 0: not known */
    uint64_t total;
    bool finished; /* the phase is over */
};

struct bh_options {
    size_t size;
    const char *state_dir;    /* required: boxes and their store; made 0700 when missing */
    const char *cache_dir;    /* required: downloads that can be made again */
    const char *agent_path;   /* bellhopd; NULL: as installed */
    const char *monitor_path; /* bellhop-monitor; NULL: as installed */
    const char *recipe_dir;   /* bootstrap recipes; NULL: as installed */
    const char *image_dir;    /* images by name; NULL: as installed */
    int cancel_fd;            /* readable: end what is being waited for; 0 or -1: none */
    void (*progress)(void *arg, const struct bh_progress *p); /* may be NULL */
    void *progress_arg;
    bool no_resume;           /* a call on a stopped box is an error instead of starting it again */
    const char *npm_registry; /* where coding agents come from; NULL: as npm's settings say */
    const char *template_dir; /* what images are built with; NULL: as installed */
    const char *image_cache_dir; /* their layers; NULL: beside the images */
    int64_t answer_timeout_ms;   /* how long a guest agent may be silent on a call; 0: 30 seconds */
};

struct bh_ctx;
int bh_open(const struct bh_options *opts, struct bh_ctx **ret_ctx, struct bh_error *err);
/* The options in force, every path filled in; the strings are the context's. */
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
    const char *provider;     /* "oci" (default), "process" */
    const char *image;        /* NAME, NAME:VERSION, a path, or "host"; NULL: "slim" */
    const char *runtime;      /* oci: "runc", "crun", "runsc"; NULL: the first that works */
    const char *agent;        /* NAME[@VERSION], a recipe's path, or NULL/"none" */
    const char *agent_config; /* a directory with the agent's own configuration, or NULL */
    const char *project;      /* a directory to upload, or NULL */
    const char *dest;         /* where it goes; NULL: "/workspace" */
    const char *git;          /* "full" (default), "shallow", "none" */
    bool with_secrets;        /* upload untracked files that look like secrets too */
    const char *repo_url;     /* clone in the box instead of an upload; excludes project */
    const char *git_token_file;
    const char *network;              /* "user" (default), "none", "host" */
    const char *privilege;            /* "sudo" (default), "strict" */
    const char *on_timeout;           /* "stop" (default), "rm" */
    int64_t timeout_ms;               /* time to live; 0: ten minutes */
    uint32_t cpu_millis;              /* 0: oci: all but one processor, of few 4/5 */
    uint64_t memory_bytes;            /* 0: oci: 80 % of the machine's */
    uint32_t pids;                    /* 0: 4096 */
    uint16_t agent_port;              /* in the box; 0: the recipe's */
    const char *const *env;           /* "K=V", NULL-terminated, or NULL */
    const char *const *secrets;       /* "K=V": a file 0600 each in the box */
    const char *const *labels;        /* "K=V" */
    const char *const *allow_missing; /* pieces of isolation that may be missing, by name */
    int64_t start_timeout_ms;         /* for everything; 0: five minutes */
    /* The caller's environment, of which the box gets what it needs to reach the network:
     * HTTP_PROXY and its kin, NODE_EXTRA_CA_CERTS, SSL_CERT_FILE. NULL: nothing. */
    const char *const *host_env;
    /* Limit of its disk: a quota, or the box is stopped. 0: oci: 80 % of what is free. */
    uint64_t disk_bytes;
    bool no_upload; /* the box is for the project (its name, what it remembers), but stays empty */
};

/*
 * The box called opts->name, running and with its agent healthy: made, or, when it is there,
 * started again; BH_FAILED_PRECONDITION when it is for another project. Many callers at once make
 * one box. What a failing step made is undone and the first error is reported.
 */
int bh_create(struct bh_ctx *ctx, const struct bh_create_options *opts, struct bh_box **ret_box,
              struct bh_error *err);
int bh_get(struct bh_ctx *ctx, const char *name, struct bh_box **ret_box, struct bh_error *err);
struct bh_box *bh_box_free(struct bh_box *box); /* the handle, not the box; returns NULL */

struct bh_connect_options {
    size_t size;
    const char *name;    /* required, as a box's: what errors call it */
    const char *url;     /* required: where its agent answers, "http://127.0.0.1:4711" */
    const char *token;   /* the agent's, or NULL */
    const char *workdir; /* NULL: "/workspace" */
    /* As in bh_create_options: what commands get of it. */
    const char *const *env;
    const char *const *host_env;
    int64_t timeout_ms; /* for the agent to answer; 0: 30 seconds */
};
/*
 * A handle of a guest agent that somebody else has started. Commands, files and searches work;
 * nothing here keeps it alive or ends it, it is in no list, and what concerns its life (start,
 * stop, destroy, extend, hold, inspect, get_url) is BH_FAILED_PRECONDITION.
 */
int bh_connect(struct bh_ctx *ctx, const struct bh_connect_options *opts, struct bh_box **ret_box,
               struct bh_error *err);

struct bh_box_info {
    size_t size;
    const char *name;
    const char *id;
    const char *provider;
    const char *image;
    enum bh_state state;
    const char *cause; /* why it is in that state, or "" */
    int64_t created_ms;
    int64_t state_since_ms;
    int64_t deadline_ms;   /* when its time is over; 0 when it is not running */
    const char *workdir;   /* in the box */
    const char *guest_url; /* TCP address of the guest agent, or "" */
    const char *guest_socket;
    const char *agent_name; /* "opencode", or "none" */
    const char *agent_version;
    const char *agent_url;      /* "" when it has none */
    const char *agent_password; /* "" when it has none */
    const char *json;           /* everything, as `bellhop status --json` prints it */
};
/* A snapshot; valid until the next call on this box. */
const struct bh_box_info *bh_box_info(struct bh_box *box);

/* Calls fn for each box, by name; a non-zero result ends the list and is returned. */
int bh_list(struct bh_ctx *ctx, int (*fn)(void *arg, struct bh_box *box), void *arg,
            struct bh_error *err);

/* 0 when the guest agent and the coding agent both answer as they should. */
int bh_health(struct bh_box *box, int64_t timeout_ms, struct bh_error *err);

int bh_start(struct bh_box *box, int64_t timeout_ms, struct bh_error *err);
int bh_stop(struct bh_box *box, int64_t timeout_ms, struct bh_error *err); /* keeps the disk */
int bh_destroy(struct bh_box *box, int64_t timeout_ms, struct bh_error *err);
/* The box lives for at least duration_ms from now; its time is never made shorter. */
int bh_extend(struct bh_box *box, int64_t duration_ms, int64_t *ret_deadline_ms,
              struct bh_error *err);
/* While the hold is open (a descriptor; close() ends it) the box counts as used. */
int bh_hold(struct bh_box *box, int *ret_fd, struct bh_error *err);
/* What is really enforced, read back from the kernel, as JSON. free() it. */
int bh_inspect(struct bh_box *box, char **ret_json, struct bh_error *err);

/* ---- commands ---- */

struct bh_run_options {
    size_t size;
    const char *const *argv; /* this or shell */
    const char *shell;       /* a script of any size: for the interpreter of its first line
                              * ("#!/usr/bin/env python3"), or else for bash or sh */
    const char *cwd;         /* NULL: the box's workdir */
    const char *user;        /* NULL: the box's user */
    const char *const *env;  /* "K=V" */
    const char *id;     /* the caller's, for a command that must happen once; NULL: one is made */
    int64_t timeout_ms; /* 0: none */
    bool detach;        /* bh_run: return when it has started */
    bool pty;
    uint16_t cols, rows;
    int stdin_fd; /* bh_run: -1: no input (a zeroed struct reads descriptor 0) */
    /* bh_run: output as it comes; a non-zero result ends the call with BH_CANCELED. NULL:
     * dropped. */
    int (*output)(void *arg, int stream /* 1 stdout, 2 stderr */, const char *data, size_t len);
    void *output_arg;
    int64_t grace_ms;           /* from SIGTERM to SIGKILL at the timeout; 0: two seconds */
    bool stdin_open;            /* bh_exec_start: its input is open for bh_exec_write */
    bool kill_on_exit;          /* what it started ends with it */
    bool wait_eof;              /* it has ended when its output is closed by all who hold it */
    bool raw;                   /* pty: no echo, no line editing, every byte as it is */
    const char *umask;          /* "022"; NULL: the agent's */
    const char *const *rlimits; /* "nofile=1024", "core=unlimited" */
    uint64_t memory_bytes;      /* a control group of its own; 0: no limit. BH_UNIMPLEMENTED */
    uint32_t pids;              /* where the box cannot make one: with cgroup v1 */
    uint32_t cpu_millis;        /* thousandths of a processor */
    uint64_t head_bytes;        /* how much of each stream is kept for reading again; */
    uint64_t tail_bytes;        /* both 0: 512 KiB each */
    /* bh_run: being attached is not use of the box; what is typed, runs and is printed is. For a
     * shell, which may be left open. */
    bool no_hold;
};

enum bh_known { BH_NO = 0, BH_YES = 1, BH_NOT_KNOWN = -1 };

struct bh_run_result {
    size_t size;
    char id[132]; /* an id has at most 128 bytes */
    int pid;
    char reason[16]; /* exited, signaled, timeout, oom, canceled, lost; "" when detached */
    int code;        /* exit status when reason is exited */
    char signal[16]; /* "SIGKILL" */
    int64_t wall_ms, user_ms, system_ms;
    uint64_t max_rss_bytes;
    enum bh_known oom;  /* did the kernel kill it for want of memory */
    char tree[16];      /* what it started: gone, left, best_effort */
    int64_t read_bytes; /* from and to the disk; -1: not known */
    int64_t write_bytes;
    uint64_t lost_bytes; /* of output, that came while nobody could read it */
};

/*
 * Runs a command to its end. Starts a stopped box first. When the connection breaks, the rest
 * is read from where it broke and the input goes on from what was accepted: nothing comes twice,
 * and what could not be kept is counted in lost_bytes. Canceled, the command is ended.
 */
int bh_run(struct bh_box *box, const struct bh_run_options *opts, struct bh_run_result *ret_result,
           struct bh_error *err);

/*
 * One command of a box: where this caller is in its output and input. The command is the box's:
 * it lives on without a handle. A handle is used by its box's thread; bh_exec_write, _signal and
 * _resize may be called from within the output function of bh_exec_follow.
 */
struct bh_exec;

/*
 * Starts a command and returns when it runs. An id that is there already is attached to when the
 * request is the same, else BH_ALREADY_EXISTS.
 */
int bh_exec_start(struct bh_box *box, const struct bh_run_options *opts, struct bh_exec **ret_exec,
                  struct bh_error *err);
/* A command that was started before, by anybody, running or ended (ten minutes are kept). */
int bh_exec_attach(struct bh_box *box, const char *id, struct bh_exec **ret_exec,
                   struct bh_error *err);
struct bh_exec *bh_exec_free(struct bh_exec *exec); /* the handle, not the command; returns NULL */
const char *bh_exec_id(const struct bh_exec *exec); /* the handle's */
int bh_exec_pid(const struct bh_exec *exec);        /* in the box */
/* Where bh_exec_follow and bh_exec_read go on: bytes from the command's start. */
void bh_exec_seek(struct bh_exec *exec, int stream, uint64_t offset);
uint64_t bh_exec_offset(const struct bh_exec *exec, int stream);

struct bh_follow_options {
    size_t size;
    int64_t timeout_ms; /* then BH_DEADLINE_EXCEEDED, and it can be called again; 0: none */
    int stdin_fd;       /* given to the command, then closed; -1: none (a zeroed struct: 0) */
    bool lossless;      /* the command waits for this reader instead of leaving gaps */
    /* As in bh_run_options; a non-zero result ends the call with BH_CANCELED. May be NULL. */
    int (*output)(void *arg, int stream, const char *data, size_t len);
    /* Output that is not held any more. NULL: only counted in lost_bytes. */
    void (*gap)(void *arg, int stream, uint64_t bytes);
    void *arg;
};
/* Output from the handle's offsets to the command's end. Canceled, the command lives on. */
int bh_exec_follow(struct bh_exec *exec, const struct bh_follow_options *opts,
                   struct bh_run_result *ret_result, struct bh_error *err);
/* What is there of one stream, at most 64 KiB, without waiting: *ret_len 0 when nothing new is.
 * BH_DATA_LOSS names the first byte that is held. */
int bh_exec_read(struct bh_exec *exec, int stream, void *buf, size_t bytes, size_t *ret_len,
                 bool *ret_eof, struct bh_error *err);
/* All of it, when the command has taken it. timeout_ms 0: none. Repeated after an error, what the
 * command has is not given to it twice. */
int bh_exec_write(struct bh_exec *exec, const void *data, size_t len, int64_t timeout_ms,
                  struct bh_error *err);
int bh_exec_close_stdin(struct bh_exec *exec, struct bh_error *err);
/* To the first process, or to all it has started. signal: "SIGTERM", "term" or "15". */
int bh_exec_signal(struct bh_exec *exec, const char *signal, bool tree, struct bh_error *err);
int bh_exec_resize(struct bh_exec *exec, uint16_t cols, uint16_t rows, struct bh_error *err);
/* Its end, or BH_DEADLINE_EXCEEDED; timeout_ms 0: none. */
int bh_exec_wait(struct bh_exec *exec, int64_t timeout_ms, struct bh_run_result *ret_result,
                 struct bh_error *err);
/* Drops the result of a command that has ended. */
int bh_exec_forget(struct bh_exec *exec, struct bh_error *err);

struct bh_exec_info {
    size_t size;
    const char *id;
    const char *state;   /* starting, running, ended, failed */
    const char *command; /* its words, for a person: quoted as a shell would want them */
    int pid;
    bool pty;
    bool stdin_open;
    int64_t started_ms;
    int64_t ended_ms;      /* 0 while it runs */
    uint64_t stdout_bytes; /* so far, with what is not held any more */
    uint64_t stderr_bytes;
    struct bh_run_result result; /* when it has ended */
    const char *json;            /* the agent's whole answer */
};
/* The commands of a box that run or whose results are kept, oldest first. A non-zero result ends
 * the list and is returned. */
int bh_exec_list(struct bh_box *box, int (*fn)(void *arg, const struct bh_exec_info *info),
                 void *arg, struct bh_error *err);
/* One of them: fn is called once. */
int bh_exec_get(struct bh_exec *exec, int (*fn)(void *arg, const struct bh_exec_info *info),
                void *arg, struct bh_error *err);

/* By id, without a handle. */
int bh_signal(struct bh_box *box, const char *id, const char *signal, struct bh_error *err);
int bh_resize(struct bh_box *box, const char *id, uint16_t cols, uint16_t rows,
              struct bh_error *err);

/* Any method of the guest agent's API ("Exec/List"), JSON in and out. free() *ret_json. For a
 * stream, on_message gets each message and *ret_json stays untouched. */
int bh_call(struct bh_box *box, const char *method, const char *params_json,
            int (*on_message)(void *arg, const char *json), void *arg, int64_t timeout_ms,
            char **ret_json, struct bh_error *err);

/* ---- files, search, ports ---- */

/* A loopback URL on this machine for a TCP port in the box. free() it. */
int bh_get_url(struct bh_box *box, uint16_t port, char **ret_url, struct bh_error *err);

/* The whole file, at most max_bytes. free() *ret_data. A NUL follows the data. */
int bh_read(struct bh_box *box, const char *path, size_t max_bytes, char **ret_data,
            size_t *ret_len, struct bh_error *err);
int bh_write(struct bh_box *box, const char *path, const void *data, size_t len, uint32_t mode,
             struct bh_error *err);

/* One file or directory of the box. Paths that are relative start at the workdir. */
#define BH_ETAG_BYTES 128 /* a tag and its NUL */

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
    const char *etag;   /* when asked for, or "" */
    const char *error;  /* why this entry of a list could not be read, or "" */
};
struct bh_file_list_options {
    size_t size;
    const char *path;
    uint32_t depth; /* 0: 1, what is directly in it */
    bool etag;
};
/* Calls fn once. */
int bh_file_stat(struct bh_box *box, const char *path, bool etag,
                 int (*fn)(void *arg, const struct bh_file_info *info), void *arg,
                 struct bh_error *err);
/* All of it, sorted, however long. A non-zero result of fn ends it and is returned. */
int bh_file_list(struct bh_box *box, const struct bh_file_list_options *opts,
                 int (*fn)(void *arg, const struct bh_file_info *info), void *arg,
                 struct bh_error *err);

struct bh_file_read_options {
    size_t size;
    const char *path;
    uint64_t offset;
    uint64_t length;      /* 0: to the end */
    const char *if_match; /* the tag it must still have, else BH_ABORTED; or NULL */
    /* The bytes as they come; a non-zero result ends the call with BH_CANCELED. */
    int (*write)(void *arg, const char *data, size_t len);
    void *arg;
};
/* etag: BH_ETAG_BYTES, or NULL. */
int bh_file_read(struct bh_box *box, const struct bh_file_read_options *opts, char *etag,
                 struct bh_error *err);

struct bh_file_write_options {
    size_t size;
    const char *path;
    const void *data;
    size_t len;
    uint32_t mode;             /* 0: the old file's, or 0644 */
    const char *if_match;      /* a tag, "*", or NULL; BH_ABORTED when it is another one */
    const char *if_none_match; /* "*": only when it is not there yet */
    bool sync;                 /* on the disk before the answer */
    bool digest;               /* checked with a SHA-256 on the way */
};
/* The whole new content, all there or not at all. etag: the new one's, or NULL. */
int bh_file_write(struct bh_box *box, const struct bh_file_write_options *opts, char *etag,
                  struct bh_error *err);

struct bh_file_change_options {
    size_t size;
    const char *if_match; /* on what is changed, as in bh_file_write_options */
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
    const char *old_text; /* must be there count times */
    const char *new_text;
    uint32_t count; /* 0: 1 */
    bool all;       /* any number of times */
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
    char *diff; /* a unified one; NULL when it is too long. free() it */
};
int bh_file_edit(struct bh_box *box, const struct bh_edit_options *opts,
                 struct bh_edit_result *ret_result, struct bh_error *err);

struct bh_watch_event {
    size_t size;
    const char *type; /* started, created, removed, renamed, modified, written, attributes,
                         unwatched, overflow (look again), end */
    const char *path;
    const char *from; /* renamed: before; or "" */
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
/* What happens to a directory, in order, until it goes, or fn wants no more (BH_CANCELED). Nothing
 * that happens after `started` is missed without an overflow. */
int bh_file_watch(struct bh_box *box, const struct bh_watch_options *opts,
                  int (*fn)(void *arg, const struct bh_watch_event *event), void *arg,
                  struct bh_error *err);

/* A tree as an archive: tar, tar.gz, tar.zst. */
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
/* An archive of any of the agent's formats into a directory: all of it, or nothing. */
struct bh_archive_put_options {
    size_t size;
    const char *path;
    bool replace; /* the directory becomes what the archive has */
    bool keep_owner;
    /* The archive: bytes written to out, 0 at its end, negative to give up. */
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
    bool fixed, regex; /* the pattern is text; glob: is an expression */
    bool word, line, invert, multiline, only_matching; /* grep: as rg -w -x -v -U -o */
    uint32_t before, after;                            /* grep: lines around */
    uint32_t max_per_file;                             /* grep; 0: no limit */
    uint32_t max_depth;
    uint64_t max_filesize;
    uint64_t limit;                /* results in all; 0: no limit */
    const char *cursor;            /* go on there; with sort */
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
    /* A relative path is not made absolute, and paths of results are relative to the workdir too. */
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
    uint64_t incomplete; /* paths that could not be searched: the answer is not whole */
    char *cursor;        /* when the limit was reached and there is an order; free() it */
    char *json;          /* the agent's `end`: counts, and the incomplete paths; free() it */
};
struct bh_match {
    size_t size;
    const char *path;
    uint64_t line;   /* 0: a whole file (mode is not lines) */
    uint64_t column; /* bytes from 1 */
    uint64_t offset;
    const char *text; /* without its line feed */
    size_t text_len;
    const char *replaced; /* or NULL */
    uint64_t count;
    const char *json; /* submatches, the lines around */
};
/* A non-zero result of fn ends the search with BH_CANCELED. */
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
    const char *as; /* a single file's name in dest; NULL: its own */
};
struct bh_upload_result {
    size_t size;
    uint64_t files;
    uint64_t bytes;
    char *left_out; /* secret-looking files that were not sent, one a line; free() it */
};
int bh_upload(struct bh_box *box, const struct bh_upload_options *opts,
              struct bh_upload_result *ret_result, struct bh_error *err);
/*
 * A file or tree of the box into a local directory, under its own name. Of a file just that one entry is
 * accepted: anything else in the answer is BH_DATA_LOSS, and then nothing has changed. A link to a
 * directory arrives as a directory of the link's name, any other link as a link.
 */
int bh_download(struct bh_box *box, const char *path, const char *local_dir, struct bh_error *err);

struct bh_sync_options {
    size_t size;
    const char *local;  /* a directory here */
    const char *remote; /* a directory in the box */
    bool to_local;      /* the box's is the source, and local is made when it is missing */
    bool dry_run;       /* nothing is changed */
    bool delete_extra;  /* removes also what is on the other side only and never was here */
    bool checksum;      /* compares contents whatever the times say */
    bool with_git; /* .git too; out of a box only of one that is trusted: git runs what it names */
    bool with_secrets;
    const char *const *excludes; /* globs, NULL-terminated, or NULL */
    /* For each change, before any is made: "send", "touch" (mode and time alone), "remove"; name is
     * relative. A non-zero result ends the call with BH_CANCELED. */
    int (*change)(void *arg, const char *what, const char *name);
    void *change_arg;
    /* Limit of the files that the box has besides as many as are here: BH_RESOURCE_EXHAUSTED. Each takes
     * 256 bytes of memory. 0: 100,000. */
    uint64_t max_files;
};
struct bh_sync_result {
    size_t size;
    uint64_t sent, sent_bytes; /* files and links */
    uint64_t removed;
    uint64_t touched;
    uint64_t unchanged;
    uint64_t kept; /* on the other side only, and left there */
};
/* Makes one directory like the other: sends what differs, removes what went since the last sync of the
 * same two. What is ignored (.gitignore, .bellhopignore) is neither sent nor removed. Names that a box
 * gives are checked before anything changes: BH_DATA_LOSS for one that leads outside or comes twice,
 * BH_PERMISSION_DENIED for one that git could take for a repository. */
int bh_sync(struct bh_box *box, const struct bh_sync_options *opts,
            struct bh_sync_result *ret_result, struct bh_error *err);

/* ---- what goes on in a box ---- */

struct bh_activity {
    size_t size;
    bool busy;
    char reasons[80];  /* of calls, commands, connections, cpu, holds: "commands, holds"; or "" */
    int64_t idle_ms;   /* 0 while busy */
    uint32_t calls;    /* requests that are open */
    uint32_t commands; /* that run */
    uint32_t connections; /* established ones to ports of the box */
    uint32_t holds;
    int64_t cpu_ms; /* used in the last cpu_window_ms; -1: not known yet */
    int64_t cpu_window_ms;
    char *json; /* everything; free() it */
};
/* Asking does not count as use, and does not start a stopped box (BH_FAILED_PRECONDITION). */
int bh_activity(struct bh_box *box, struct bh_activity *ret, struct bh_error *err);

struct bh_hold_options {
    size_t size;
    const char *id;     /* renews the hold of that name; NULL: one is made */
    const char *reason; /* for people; or NULL */
    int64_t ttl_ms;     /* 0: ten minutes; at most a day */
};
/* The box counts as used until the hold is released or its time is over, whoever has gone
 * meanwhile; `bellhopd hold` does the same from inside. ret_id has room for 129 bytes. */
int bh_hold_take(struct bh_box *box, const struct bh_hold_options *opts, char *ret_id,
                 struct bh_error *err);
int bh_hold_release(struct bh_box *box, const char *id, struct bh_error *err);

struct bh_port {
    size_t size;
    uint16_t port;
    const char *protocol; /* tcp, udp */
    const char *address;  /* what it is bound to */
    bool reachable;       /* by bh_get_url */
    bool is_agent;        /* Bellhop's own */
    uint32_t connections;
    int pid;             /* 0: not known */
    const char *process; /* its name, or "" */
    const char *command; /* the id of the command it belongs to, or "" */
};
/* What listens in the box. A non-zero result of fn ends the list and is returned. */
int bh_ports(struct bh_box *box, int (*fn)(void *arg, const struct bh_port *port), void *arg,
             struct bh_error *err);

struct bh_wait_port_options {
    size_t size;
    uint16_t port;
    int64_t timeout_ms;  /* 0: thirty seconds; then BH_DEADLINE_EXCEEDED */
    const char *path;    /* asked for by HTTP until the status is below 400; NULL: a connection */
    const char *exec_id; /* when this command ends first: BH_FAILED_PRECONDITION; or NULL */
};
int bh_wait_port(struct bh_box *box, const struct bh_wait_port_options *opts, int *ret_status,
                 struct bh_error *err);

/* 0 when every tool the box promises runs; else BH_FAILED_PRECONDITION names the first that does
 * not. *ret_json, when it is not NULL, has the report in both cases; free() it. */
int bh_ready(struct bh_box *box, char **ret_json, struct bh_error *err);
/* The agent's metrics as Prometheus has them. free() *ret_text. */
int bh_metrics(struct bh_box *box, char **ret_text, struct bh_error *err);

/* ---- images ---- */

struct bh_image_info {
    size_t size;
    const char *name;
    const char *version;
    const char *path;  /* its directory; "": a template that is not built */
    const char *hash;  /* of what it is made from, or "" */
    const char *forms; /* "squashfs oci", or "" */
    uint64_t bytes;    /* of all forms on the disk */
    uint32_t boxes;    /* that stand on it */
    bool replaced;     /* no name leads to it any more: a newer build has taken its place */
};
/* Those that are built, by name and version, then the templates that are not. A non-zero result of
 * fn ends the list and is returned. */
int bh_image_list(struct bh_ctx *ctx, int (*fn)(void *arg, const struct bh_image_info *info),
                  void *arg, struct bh_error *err);

struct bh_image_build_options {
    size_t size;
    const char *image; /* NAME[:VERSION], or the path of an e2b.toml or its directory */
    const char *const
        *forms;         /* "squashfs", "dir", "tar", "oci", "vm", "dockerfile"; NULL: squashfs */
    bool fresh;         /* every layer anew, with Debian's newest packages */
    int64_t timeout_ms; /* 0: an hour */
    /* "K=V" or NULL: of these the build has the proxies and pip's index (PIP_INDEX_URL and such). */
    const char *const *host_env;
};
/* Makes what is missing; many callers at once make it once. An error in the template is
 * BH_INVALID_ARGUMENT with its file and line. free() *ret_path, the image's directory. */
int bh_image_build(struct bh_ctx *ctx, const struct bh_image_build_options *opts, char **ret_path,
                   struct bh_error *err);
/* Its manifest as JSON; of a template that is not built, what it would be made from. free() it. */
int bh_image_inspect(struct bh_ctx *ctx, const char *image, char **ret_json, struct bh_error *err);
/* BH_FAILED_PRECONDITION while a box stands on it. */
int bh_image_remove(struct bh_ctx *ctx, const char *image, struct bh_error *err);

/* ---- the machine ---- */

/* Finishes or undoes what was interrupted, removes what no box owns. Boxes stay, however long they
 * have been stopped. fn gets a line for each thing that was done. */
int bh_gc(struct bh_ctx *ctx, void (*fn)(void *arg, const char *line), void *arg,
          struct bh_error *err);
/* The same, and removes boxes, with their disks, that have been stopped (or in error, with nothing
 * of them running) for at least so long. -1: none. */
int bh_gc_stopped(struct bh_ctx *ctx, int64_t stopped_for_ms,
                  void (*fn)(void *arg, const char *line), void *arg, struct bh_error *err);

struct bh_provider_info {
    const char *name;
    const char *summary;
    bool usable;
    const char *runtime; /* the OCI runtime that passed, or "" */
    const char *why;     /* when it is not usable */
};
int bh_providers(struct bh_ctx *ctx, void (*fn)(void *arg, const struct bh_provider_info *info),
                 void *arg, struct bh_error *err);

#ifdef __cplusplus
}
#endif

#endif
