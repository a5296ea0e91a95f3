#pragma once
/*
 * registry: every command this agent started, by id, from the request until its result has been
 * kept for REGISTRY_KEEP_MS after its end. Callers hold a struct proc by reference, never a pid.
 *
 * All functions are thread-safe unless they say otherwise; none waits for a process. Starting is
 * done by a pool thread, everything after that by the loop.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/err.h"
#include "proc/spec.h"
#include "proc/words.h"

#define REGISTRY_MAX_RUNNING 1024         /* the default */
#define REGISTRY_MAX_LINGERING 4096       /* ended, but a descendant still holds a pipe */
#define REGISTRY_MAX_KEPT 1000            /* the default */
#define REGISTRY_KEEP_MS (10 * 60 * 1000) /* the default */
#define REGISTRY_MAX_FORGOTTEN 4096       /* ids of which it is known that they were there */
#define REGISTRY_MAX_SUBS 256             /* readers and waiters of one command */

#define PROC_STDIN_QUEUE_BYTES (16 * 1024 * 1024) /* one more write waits above this */
/*
 * A lossless reader further behind stops the reading, until it has come as close as the second. The
 * first and one more read fit into the tail that is kept by default.
 */
#define PROC_LAG_BYTES (384 * 1024)
#define PROC_LAG_RESUME_BYTES (96 * 1024)
#define PROC_LINGER_MS 5000 /* a lossless reader that vanished is waited for */
#define PROC_STALL_MS 5000  /* one that yields and takes nothing is waited for so long */

struct loop;
struct pool;
struct registry;
struct proc;

enum proc_state {
    PROC_STARTING,
    PROC_RUNNING,
    PROC_ENDED,
    PROC_FAILED, /* never ran: proc_get_info() gives the error */
};

enum proc_reason {
    REASON_NONE = 0,
    REASON_EXITED,
    REASON_SIGNALED,
    REASON_TIMEOUT,
    REASON_OOM,
    REASON_CANCELED,
    REASON_LOST, /* the kernel could not say how it ended */
    N_REASONS
};

enum proc_oom {
    OOM_NO,
    OOM_YES,
    OOM_UNKNOWN,
};

enum proc_tree {
    TREE_BEST_EFFORT, /* no sign of anything left, but no proof */
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
    int64_t max_rss_bytes;           /* of the largest process */
    int64_t tree_peak_bytes;         /* of all together; -1: no group of its own counts it */
    int64_t read_bytes, write_bytes; /* -1: the kernel did not let us see */
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
    int spill_sys[N_PROC_STREAMS];    /* errno of the disk that took no more; 0: it did not */
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

/* The bounds that the operator may choose; 0 is the default. */
struct registry_options {
    size_t max_running;
    size_t max_kept;       /* results */
    int64_t keep_ms;       /* a result, after the end */
    size_t output_bytes;   /* memory for the output of all commands together */
    size_t spill_bytes;    /* disk for it, where commands ask for that */
    const char *spill_dir; /* NULL: /var/tmp, or else /tmp. Borrowed */
    rlim_t nofile;         /* the soft limit of descriptors that commands get */
};

/*
 * Made on the main thread before there are others (SIGCHLD is blocked for all of them here) and
 * before the loop runs. The agent becomes the reaper of its descendants' orphans.
 */
int registry_new(struct loop *l, struct pool *p, const struct registry_options *o,
                 struct registry **ret, struct err *e);
/* After the loop and the pool have stopped. What runs goes on running. */
struct registry *registry_free(struct registry *r);

/*
 * Starts a command, or finds the one that has this id and the same request (*ret_is_new false).
 * Consumes the spec's content in any case. ERR_EXISTS: same id, another request.
 */
int registry_start(struct registry *r, struct proc_spec *take, struct proc **ret, bool *ret_is_new,
                   struct err *e);
int registry_get(struct registry *r, const char *id, struct proc **ret, struct err *e);
/*
 * The one started last to which is_it says yes, as a reference; NULL: to none. is_it is called with
 * the registry's lock held: it may only look.
 */
struct proc *registry_find(struct registry *r, bool (*is_it)(struct proc *p, const void *arg),
                           const void *arg);
/* A list of references, in the order of their start; the caller unrefs each and frees the list. */
int registry_list(struct registry *r, struct proc ***ret, size_t *ret_n, struct err *e);
/* ERR_PRECONDITION while it runs. */
int registry_forget(struct registry *r, const char *id, struct err *e);
void registry_count(struct registry *r, struct registry_counts *ret);
const char *proc_reason_name(enum proc_reason reason);

struct proc *proc_ref(struct proc *p);
struct proc *proc_unref(struct proc *p); /* accepts NULL; returns NULL */

/* Do not change after the start. */
const char *proc_id(const struct proc *p);
/* Without argv, script, env and stdin_data once it runs. */
const struct proc_spec *proc_spec(const struct proc *p);
const struct words *proc_words(const struct proc *p);
/* 0: it is being started, or never ran. */
pid_t proc_pid(struct proc *p);

void proc_get_info(struct proc *p, struct proc_info *ret);

/*
 * One who wants to know when something about the command has changed. Embedded in the caller's
 * struct; fn is called with the command's lock held, so it may only take note or wake somebody.
 */
struct proc_sub {
    void (*fn)(void *arg);
    void *arg;
    int64_t deadline_ms; /* fn is also called then; 0: no */
    bool is_end_only;    /* of no interest is what comes before the end (or the deadline) */
    bool is_lossless;    /* hold the command up rather than let this reader miss output */
    /* With is_lossless: however slow it is, it is waited for as long as it takes something. Once it
     * took nothing for PROC_STALL_MS it is passed by until it does, and may find that output is gone. */
    bool yields;
    uint64_t read_to[N_PROC_STREAMS]; /* with is_lossless; kept by proc_read() */
    int64_t behind_ms; /* with yields: since when it is waited for and takes nothing; likewise */
    bool is_passed;    /* it is not waited for any more; likewise */
    struct proc_sub *next;
};
int proc_subscribe(struct proc *p, struct proc_sub *s, struct err *e);
void proc_unsubscribe(struct proc *p, struct proc_sub *s);
/* Another deadline for one that is subscribed. */
void proc_wake_at(struct proc *p, struct proc_sub *s, int64_t at_mono_ms);
/* The same for one whose connection broke: what a lossless reader has not read yet holds the command
 * up for PROC_LINGER_MS more, or until another lossless reader comes. */
void proc_leave(struct proc *p, struct proc_sub *s);

/* As journal_read(). `s`, or NULL: who reads, for is_lossless. */
int proc_read(struct proc *p, struct proc_sub *s, enum proc_stream stream, uint64_t offset,
              void *out, size_t max, size_t *ret_len, uint64_t *ret_first_held, struct err *e);
/* What is held: a copy of the head and one of the tail, each for the caller to free. */
struct proc_output {
    char *head, *tail;
    size_t head_len, tail_len;
    bool has_gap; /* between them are bytes that are spilled or dropped */
};
int proc_copy_output(struct proc *p, enum proc_stream stream, struct proc_output *ret,
                     struct err *e);
void proc_output_done(struct proc_output *o);

/*
 * Puts the data at the offset (-1: at the end) into the queue for stdin; bytes before what was
 * accepted already are not written twice. *ret_end: the offset after it. -ERR_UNAVAILABLE: the
 * queue is full, come again when woken.
 */
int proc_write(struct proc *p, int64_t offset, const void *data, size_t len, uint64_t *ret_end,
               struct err *e);
/*
 * Whole lines beside those who write by offset, which do not count them: *ret_end is where these are.
 * -ERR_ABORTED: what was accepted last is no whole line.
 */
int proc_write_between_lines(struct proc *p, const void *data, size_t len, uint64_t *ret_end,
                             struct err *e);
int proc_close_stdin(struct proc *p, struct err *e);

/* To the first process alone, or with is_tree to all that it started. */
int proc_signal(struct proc *p, int sig, bool is_tree, struct err *e);
/* Its end is not put off any more (wait_eof) by those who hold its output open. */
void proc_waive_eof(struct proc *p);
int proc_resize(struct proc *p, unsigned cols, unsigned rows, struct err *e);

/*
 * An owner keeps a command that was started with the spec's cancel_on_leave alive: when the last
 * one goes, the whole tree is ended (canceled).
 */
void proc_own(struct proc *p);
void proc_disown(struct proc *p);
/* The command shall live on without owners. */
void proc_detach(struct proc *p);
