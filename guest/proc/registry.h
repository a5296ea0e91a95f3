#pragma once
/*
 * registry: every command that this agent started, by id, from the request until its result has
 * been kept for REGISTRY_KEEP_MS after its end. Callers hold a struct proc by reference, never a
 * pid.
 *
 * All functions are thread-safe unless they say otherwise; none waits for a process. A pool thread
 * starts a command; the loop does everything after that.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "proc/spec.h"

#define REGISTRY_MAX_RUNNING 1024         /* the default */
#define REGISTRY_MAX_LINGERING 4096       /* ended, but a descendant still holds a pipe */
#define REGISTRY_MAX_KEPT 1000            /* the default */
#define REGISTRY_KEEP_MS (10 * 60 * 1000) /* the default */
#define REGISTRY_MAX_FORGOTTEN 4096 /* ids that are remembered after their result is dropped */
#define REGISTRY_MAX_SUBS 256       /* readers and waiters of one command */
#define PTY_MAX_SIDE 10000          /* columns or rows of a terminal */
#define REGISTRY_START_FILE_ID "start"
#define REGISTRY_START_FILE_MAX_BYTES (1024 * 1024)

#define PROC_STDIN_QUEUE_BYTES (16 * 1024 * 1024) /* high-water mark: further writes wait */
/*
 * Back-pressure: the agent stops reading the output when a lossless reader is further behind than
 * PROC_LAG_BYTES, and goes on when it has come within PROC_LAG_RESUME_BYTES. PROC_LAG_BYTES and one
 * more read fit into the default tail.
 */
#define PROC_LAG_BYTES (384 * 1024)
#define PROC_LAG_RESUME_BYTES (96 * 1024)
#define PROC_LINGER_MS 5000 /* back-pressure continues this long after a lossless reader vanished */
#define PROC_STALL_MS 5000  /* stall timeout of a reader that yields */

struct loop;
struct pool;
struct registry;
struct proc;

enum proc_state {
    PROC_STARTING,
    PROC_RUNNING,
    PROC_ENDED,
    PROC_FAILED, /* it never ran: proc_get_info() returns the error */
};

enum proc_reason {
    REASON_NONE = 0,
    REASON_EXITED,
    REASON_SIGNALED,
    REASON_TIMEOUT,
    REASON_OOM,
    REASON_CANCELED,
    REASON_LOST, /* the exit status is unknown: the kernel did not report it */
    N_REASONS
};

enum proc_oom {
    OOM_NO,
    OOM_YES,
    OOM_UNKNOWN,
};

enum proc_tree {
    TREE_BEST_EFFORT, /* no process was found, but that is no proof */
    TREE_GONE,
    TREE_LEFT,
};

enum proc_stream {
    PROC_STDOUT, /* also a pty's output */
    PROC_STDERR,
    N_PROC_STREAMS
};

struct proc_usage {
    int64_t wall_ms, user_ms, system_ms;
    int64_t max_rss_bytes;   /* of the largest process */
    int64_t tree_peak_bytes; /* of all processes together; -1: no cgroup of its own counts it */
    int64_t read_bytes, write_bytes; /* -1: not visible in this kernel */
};

struct proc_info {
    enum proc_state state;
    struct err error; /* PROC_FAILED */
    pid_t pid;
    int64_t started_ms, ended_ms; /* real time; 0: not yet */
    enum proc_reason reason;
    int code;   /* -1: none */
    int signal; /* 0: none */
    bool has_core;
    enum proc_oom oom;
    enum proc_tree tree;
    struct proc_usage usage;
    uint64_t bytes[N_PROC_STREAMS], dropped[N_PROC_STREAMS];
    uint64_t spilled[N_PROC_STREAMS]; /* bytes in the stream's file */
    int spill_sys[N_PROC_STREAMS];    /* errno that ended spilling; 0: none */
    bool is_eof[N_PROC_STREAMS];
    bool is_stdin_open;
    bool is_stdin_broken; /* the command closed its end */
    uint64_t stdin_accepted, stdin_written;
};

struct registry_counts {
    uint64_t running, kept, started_total, failed_total;
    uint64_t ended_total[N_REASONS];
    uint64_t stdout_bytes_total, stderr_bytes_total, adopted_total;
    uint64_t journal_bytes, dropped_bytes_total;
    int64_t last_output_mono_ms, last_end_mono_ms; /* 0: none yet */
};

/* The operator's bounds; 0 selects the default. */
struct registry_options {
    size_t max_running;
    size_t max_kept;       /* results */
    int64_t keep_ms;       /* how long a result is kept after the end */
    size_t output_bytes;   /* memory for the output of all commands together */
    size_t spill_bytes;    /* disk for the output of all commands that asked for it */
    const char *spill_dir; /* NULL: /var/tmp, or else /tmp. Borrowed */
    rlim_t nofile;         /* the commands' soft limit of descriptors */
};

/*
 * Call it on the main thread before there are other threads (it blocks SIGCHLD for all of them) and
 * before the loop runs. The agent becomes the subreaper of its descendants.
 */
int registry_new(struct loop *l, struct pool *p, const struct registry_options *o,
                 struct registry **ret, struct err *e);
/* Call it after the loop and the pool have stopped. Running commands go on. */
struct registry *registry_free(struct registry *r);

/*
 * Starts a command, or finds the one with this id and the same request (*ret_is_new false).
 * Consumes the spec's content in any case. ERR_EXISTS: the id belongs to another request.
 */
int registry_start(struct registry *r, struct proc_spec *take, struct proc **ret, bool *ret_is_new,
                   struct err *e);
/*
 * Starts the script in a file as a command with the id REGISTRY_START_FILE_ID. user and workdir are
 * the agent's defaults or NULL, borrowed for as long as the registry lives. Errors name the file.
 */
int registry_start_file(struct registry *r, const char *path, const char *user, const char *workdir,
                        struct err *e);
int registry_get(struct registry *r, const char *id, struct proc **ret, struct err *e);
/*
 * A reference to the command started last for which is_match returns true; NULL: there is none.
 * is_match is called with the registry's lock held: it may only look.
 */
struct proc *registry_find(struct registry *r, bool (*is_match)(struct proc *p, const void *arg),
                           const void *arg);
/*
 * The id of the command that a process of the box belongs to: by the mark that descendants inherit,
 * or by the session that the first process leads (see command_tree.h). Reads /proc: call it on a
 * pool thread. ERR_NOT_FOUND: the process belongs to no known command.
 */
int registry_find_owner(struct registry *r, pid_t pid, char out[SPEC_ID_MAX_BYTES + 1],
                        struct err *e);
/* References in the order of their start; the caller unrefs each and frees the list. */
int registry_list(struct registry *r, struct proc ***ret, size_t *ret_n, struct err *e);
/* Drops the result. ERR_PRECONDITION: the command is running. */
int registry_forget(struct registry *r, const char *id, struct err *e);
void registry_count(struct registry *r, struct registry_counts *ret);
const char *proc_reason_name(enum proc_reason reason);

struct proc *proc_ref(struct proc *p);
struct proc *proc_unref(struct proc *p); /* accepts NULL; returns NULL */

static inline void proc_unref_p(struct proc **p)
{
    proc_unref(*p);
}
#define _cleanup_proc_ _cleanup_(proc_unref_p)

/* These do not change after the start. */
const char *proc_id(const struct proc *p);
/* Without argv, script, env and stdin_data once the command runs. */
const struct proc_spec *proc_spec(const struct proc *p);
const struct proc_summary *proc_summary(const struct proc *p);
/* 0: it is being started, or never ran. */
pid_t proc_pid(struct proc *p);

void proc_get_info(struct proc *p, struct proc_info *ret);

/*
 * A subscription to changes of the command, embedded in the caller's struct. fn is called with the
 * command's lock held: it may only take note or wake somebody.
 */
struct proc_sub {
    void (*fn)(void *arg);
    void *arg;
    int64_t deadline_ms; /* fn is also called at this time; 0: never */
    bool is_end_only;    /* call fn only for the end and the deadline */
    bool is_lossless;    /* apply back-pressure rather than let this reader miss output */
    /*
     * With is_lossless: back-pressure lasts as long as the reader takes something. A reader that
     * takes nothing for PROC_STALL_MS is passed over until it reads again, and may find that output
     * is gone.
     */
    bool yields;
    /* Kept by proc_read(): */
    uint64_t read_to[N_PROC_STREAMS]; /* with is_lossless */
    int64_t behind_ms; /* with yields: since when the reader has stalled; 0: it has not */
    bool is_passed;    /* with yields: the reader exceeded the stall timeout */
    struct proc_sub *next;
};
int proc_subscribe(struct proc *p, struct proc_sub *s, struct err *e);
void proc_unsubscribe(struct proc *p, struct proc_sub *s);
/* Changes the deadline of a subscription. */
void proc_wake_at(struct proc *p, struct proc_sub *s, int64_t at_mono_ms);
/*
 * Unsubscribes a reader whose connection broke. The unread output of a lossless reader keeps up the
 * back-pressure for PROC_LINGER_MS more, or until another lossless reader comes.
 */
void proc_leave(struct proc *p, struct proc_sub *s);

/* As journal_read(). `s` is the reader's subscription, for is_lossless, or NULL. */
int proc_read(struct proc *p, struct proc_sub *s, enum proc_stream stream, uint64_t offset,
              void *out, size_t max, size_t *ret_len, uint64_t *ret_first_held, struct err *e);
/* Copies of the head and the tail that are held in memory; proc_output_done() frees them. */
struct proc_output {
    char *head, *tail;
    size_t head_len, tail_len;
    bool has_gap; /* bytes between them were spilled or dropped */
};
int proc_copy_output(struct proc *p, enum proc_stream stream, struct proc_output *ret,
                     struct err *e);
void proc_output_done(struct proc_output *o);

#define PROC_WRITER_MOST 32 /* bytes of a writer's name */
#define PROC_WRITERS 64     /* of a command; the offset of the one that wrote first is forgotten */

struct proc_written {
    uint64_t offset; /* after the data */
    uint64_t end;    /* the command has the data once info.stdin_written is there */
};

/*
 * Queues data for stdin at the offset (-1: at the end); bytes before what was accepted already are
 * not written twice. With a writer's name the offset counts its bytes alone, so that several may
 * repeat their writes; NULL: those of all. ERR_UNAVAILABLE: the queue, or the table of writers, is
 * full of what the command has not read; retry when woken.
 */
int proc_write(struct proc *p, const char *writer, int64_t offset, const void *data, size_t len,
               struct proc_written *ret, struct err *e);
/*
 * Queues whole lines that the offsets of other writers do not count; the result has the present end
 * of those offsets. ERR_ABORTED: the last accepted data does not end a line.
 */
int proc_write_between_lines(struct proc *p, const void *data, size_t len, struct proc_written *ret,
                             struct err *e);
int proc_close_stdin(struct proc *p, struct err *e);

/* Signals the first process alone, or with is_tree everything that it started. */
int proc_signal(struct proc *p, int sig, bool is_tree, struct err *e);
/*
 * Ends the wait for the end of the output (wait_eof): holders of the pipes no longer delay the end.
 */
void proc_waive_eof(struct proc *p);
int proc_resize(struct proc *p, unsigned cols, unsigned rows, struct err *e);

/*
 * Ownership of a command that was started with cancel_on_leave: when the last owner leaves, the
 * whole tree is killed (reason canceled).
 */
void proc_own(struct proc *p);
void proc_disown(struct proc *p);
/* Lets the command live on without owners. */
void proc_detach(struct proc *p);

/*
 * The variables that every later command gets. They override PATH, HOME, USER and LOGNAME, and the
 * command's own request overrides them. Running commands keep their environment. Bounded; nothing of
 * the agent's own environment is in it.
 */
#define ENVIRON_MAX_VARS 256
#define ENVIRON_MAX_BYTES (128 * 1024) /* of "NAME=VALUE" together */
#define ENVIRON_NAME_BYTES 256

/*
 * Changes all or nothing: with `replace` it drops all variables first, then it unsets names, then
 * it sets "NAME=VALUE"s. Lists end with NULL, or are NULL. Errors name the variable.
 */
int environ_change(struct registry *r, bool replace, char *const *unset, char *const *set,
                   struct err *e);
/*
 * Sets the variables of a file, one "NAME=VALUE" a line, all or nothing. Empty lines do not count.
 * Errors name the file.
 */
int environ_load_file(struct registry *r, const char *path, struct err *e);
/* "NAME=VALUE"s in the order they were first set, the caller's; NULL when there is none. */
int environ_copy(struct registry *r, char ***ret, struct err *e);

/*
 * Sets "NAME=VALUE"s in a list of the caller's: each replaces the variable of its name, or is
 * appended.
 */
int environ_set_all(char ***env, char *const *settings, struct err *e);
