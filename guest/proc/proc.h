#pragma once
/*
 * proc: the inside of a command, shared by the files that implement it (registry.c: ids and
 * retention; environ.c: variables of all commands; launch.c: from spec to child; output.c: pipes and
 * readers; input.c: stdin; proc.c: the end; killer.c: ending a tree; reap.c: waiting for children).
 * No file outside guest/proc/ includes it.
 *
 * Locks: registry.lock before proc.lock. Fields without a lock belong to the loop's thread, or do
 * not change after the start.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "common/list.h"
#include "common/user.h"
#include "event/loop.h"
#include "event/pool.h"
#include "proc/cgroup.h"
#include "proc/command_tree.h"
#include "proc/journal.h"
#include "proc/oom.h"
#include "proc/registry.h"

#define N_ID_BUCKETS 1024
#define PROC_READ_BYTES (64 * 1024)

enum kill_phase {
    KILL_NONE = 0,
    KILL_TERM,  /* SIGTERM was sent, the grace period runs */
    KILL_FORCE, /* SIGKILL */
    KILL_DONE,
};

/* One of several that write to stdin, each by an offset of its own. */
struct proc_writer {
    char name[PROC_WRITER_MOST + 1];
    uint64_t accepted; /* its bytes */
    uint64_t end;      /* of the last of them, in info.stdin_accepted */
};

struct proc {
    struct registry *reg;
    char *id;
    struct proc_spec spec; /* argv, script, env and stdin_data only until it runs */
    struct proc_summary summary;
    uint32_t serial;
    _Atomic int refs;
    struct cgroup *cgroup; /* NULL: no limits */
    char *script_path;     /* a script's file, unlinked when the command ends; NULL: none */
    /*
     * For the reaper alone: the kernel writes it when it creates the child; 0 again once the child
     * has been reaped. Everybody else uses info.pid.
     */
    _Atomic pid_t child_pid;
    /* guarded by registry.lock: */
    struct proc *id_next;           /* in the bucket of by_id */
    struct list_link all_link;      /* in registry.all */
    struct list_link progress_link; /* in registry.running, later in registry.kept */
    int64_t ended_mono_ms;

    _Atomic bool is_eof_waived;
    _Atomic int n_asked; /* signals to the tree that callers asked for and that are not sent yet */

    pthread_mutex_t lock;
    /* guarded by lock: */
    struct launch *launch; /* launch_run()'s, from before the clone until launch_settle() */
    /*
     * Without the byte counts, which the journals have. info.pid stays set after the reaping, when
     * the number may belong to another process.
     */
    struct proc_info info;
    uint64_t start; /* start time of info.pid: the two identify the process. 0: unknown */
    struct journal out[N_PROC_STREAMS];
    struct spill spill[N_PROC_STREAMS];
    bool is_spilling; /* a pool thread writes, or is about to */
    struct chunk_queue stdin_queue;
    struct proc_writer *writers; /* the one that wrote last is the last; NULL: none yet */
    size_t n_writers;
    bool stdin_close_asked;
    bool stdin_is_within_line; /* the last accepted byte is no line feed */
    bool stdin_broken;         /* the command closed its end */
    int n_owners;
    bool is_detached;
    bool cancel_asked;
    bool is_reaped;           /* info.pid may be another process's by now */
    bool had_others_in_group; /* its process group was not empty when it was reaped */
    int stdin_fd,
        out_fd[N_PROC_STREAMS]; /* changed by the loop's thread with the lock; a pty: out_fd[0] */
    bool is_paused[N_PROC_STREAMS];
    bool is_awaited; /* a lossless reader's connection broke; it may come back until linger_timer */
    uint64_t left_at[N_PROC_STREAMS];

    /*
     * The readers. Changing them needs both locks; either lock is enough to read them. `lock` is
     * not held while readers are woken, because a woken reader takes it at once.
     */
    pthread_mutex_t subs_lock; /* after lock */
    struct proc_sub *subs;
    size_t n_subs;
    bool is_over; /* guarded by subs_lock: ended or failed, and announced */

    struct pool_item spill_item; /* used by the thread that sets is_spilling */

    /* of the loop's thread: */
    bool is_adopted;
    struct loop_watch *stdin_watch, *out_watch[N_PROC_STREAMS];
    bool is_watched; /* its output */
    struct loop_timer *watch_timer, *timeout_timer, *wake_timer, *poll_timer, *drain_timer,
        *linger_timer, *stall_timer;
    int64_t started_mono_ms;
    enum kill_phase kill_phase;
    enum proc_reason kill_reason; /* REASON_NONE: as the status says */
    int64_t kill_deadline_ms;
    int poll_ms;
    bool has_job;             /* a pool thread works on the tree */
    unsigned n_blind;         /* JOB_KILLs that could not read the process table */
    struct command_tree tree; /* while it is being ended; belongs to the job while there is one */
    size_t n_left;
    bool is_lingering;
    long long oom_kills_before; /* -1: unknown */
};

struct registry {
    struct loop *loop;
    struct pool *pool;
    uint32_t instance;
    uint64_t ignored_signals; /* reset to the default in children */
    struct oom oom;           /* of the loop's thread */
    int oom_score_adj;        /* of the children; -1: leave it */
    bool counts_io;           /* the kernel counts bytes read and written */
    char *path;               /* PATH of commands that bring none */
    struct user_cache users;
    int null_fd;               /* stdin of commands without one; -1: the box has no /dev/null */
    struct registry_options o; /* with the defaults filled in */
    struct journal_budget budget, spill_budget;
    pthread_mutex_t lock;
    /* guarded by lock: */
    struct proc *by_id[N_ID_BUCKETS];
    struct list all;     /* oldest start first */
    struct list running; /* not ended, oldest start first */
    struct list kept;    /* ended, oldest end first */
    uint32_t next_serial;
    size_t n_lingering;
    uint64_t forgotten[REGISTRY_MAX_FORGOTTEN]; /* a ring of hashes of ids */
    size_t forgotten_at;
    struct registry_counts totals;
    char **env; /* environ.c */

    /* of the loop's thread: */
    int signal_fd;
    struct loop_watch *signal_watch;
    struct loop_timer *sweep_timer, *keep_timer;
    char scratch[PROC_READ_BYTES];
};

/* launch.c: on a pool thread. Sets pid, descriptors and state; posts to the loop. */
void launch_run(void *proc);
/*
 * On the loop's thread, for a child that has ended while launch_run() is in spawn(): completes the
 * start in its place. False: launch_run() has just done so, or the child never became the program,
 * which spawn() handles.
 */
bool launch_take_over(struct proc *p);

/* Sets the size of a terminal, by its master. */
int pty_resize(int master, unsigned cols, unsigned rows, struct err *e);

/* proc.c, on the loop's thread */
void proc_adopt(struct proc *p); /* starts watches and timers, once */
/* With the lock, on any thread: ERR_PRECONDITION while it is being started, or if it never ran. */
int proc_check_started(const struct proc *p, struct err *e);
void proc_reaped(struct proc *p, int status, const struct rusage *ru, bool is_lost);
void proc_finish(struct proc *p);    /* the result is complete */
void proc_abandon(struct proc *p);   /* after the loop has stopped: drops watches and timers */
void proc_check_end(struct proc *p); /* calls proc_finish() if the result is complete */

/* output.c; on the loop's thread, except the first four */
void proc_wake(struct proc *p);             /* without the lock */
void proc_wake_all(struct proc *p);         /* the same at the end; later calls wake all, too */
void proc_post(struct proc *p, loop_fn fn); /* fn drops a reference */
void proc_post_lazily(struct proc *p, loop_fn fn); /* the same, by loop_post_lazily() */
void output_watch(struct proc *p);
bool output_is_wanted(struct proc *p); /* with the lock, any thread: a lossless reader is behind */
bool output_has_readers(struct proc *p); /* before the end; any thread */
void output_drain(struct proc *p);       /* after the first process ended: reads its last output */

/* input.c, on the loop's thread */
void input_pump(struct proc *p);
void input_close(struct proc *p);
/* With the lock, before another thread can write: the bytes are stdin's first. */
int input_queue_first(struct proc *p, const char *data, size_t len, struct err *e);

/* killer.c, on the loop's thread */
void killer_begin(struct proc *p, enum proc_reason reason);
void killer_reaped(struct proc *p);
int killer_signal_tree(struct proc *p, int sig, struct err *e); /* any thread */
/*
 * A caller's signal to the tree is on its way: the end waits, so that it counts what is left after
 * it.
 */
bool killer_holds_end(struct proc *p);

/* registry.c */
void proc_remove_script(struct proc *p);
void registry_failed(struct proc *p); /* it never ran: its id is free again */
void registry_ended(struct proc *p);  /* from running to kept; on the loop's thread */
void registry_lingering(struct proc *p, bool on);
void registry_relieve(struct registry *r); /* evicts kept output while the memory budget is short */
void registry_relieve_spill(struct registry *r,
                            uint64_t bytes); /* evicts files to free so many bytes */

/* reap.c, on the loop's thread */
int reap_init(struct registry *r, struct err *e);
void reap_done(struct registry *r);
bool reap_has_children(struct registry *r); /* own or adopted; reaps orphans that have ended */
