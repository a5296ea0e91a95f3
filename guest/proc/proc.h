#pragma once
/*
 * proc: the inside of a command, shared by the files that are its parts (registry.c: ids and
 * retention; launch.c: from spec to child; output.c: pipes and readers; input.c: stdin; proc.c: the
 * end; killer.c: ending a tree).
 * Nobody outside guest/proc/ includes it.
 *
 * Locks: registry.lock before proc.lock. Fields without a lock belong to the loop's thread, or do
 * not change after the start.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "common/user.h"
#include "proc/cgroup.h"
#include "proc/chunk.h"
#include "proc/journal.h"
#include "event/loop.h"
#include "proc/oom.h"
#include "proc/registry.h"
#include "proc/spill.h"
#include "proc/command_tree.h"
#include "proc/words.h"
#include "event/pool.h"

#define N_ID_BUCKETS 1024
#define PROC_READ_BYTES (64 * 1024)

enum kill_phase {
    KILL_NONE = 0,
    KILL_TERM,  /* the tree has been asked, the grace runs */
    KILL_FORCE, /* SIGKILL */
    KILL_DONE,
};

struct proc {
    struct registry *reg;
    char *id;
    struct proc_spec spec; /* its words, environment and stdin until it runs */
    struct words words;
    uint32_t serial;
    _Atomic int refs;
    struct cgroup *cgroup; /* NULL: no limits */
    char *script_path;     /* a script's file, until the command has ended; NULL: none */
    /*
     * For the reaper alone: written by the kernel when the child is made, 0 again once it has been waited
     * for. Everybody else uses info.pid.
     */
    _Atomic pid_t child_pid;
    /* guarded by registry.lock: */
    struct proc *id_next, *list_next, *list_prev, *kept_next;
    struct proc *running_next, *running_prev;
    bool is_listed;
    int64_t ended_mono_ms;

    _Atomic bool is_eof_waived;
    _Atomic int n_asked; /* signals to the tree, asked for by callers, on their way */

    pthread_mutex_t lock;
    /* guarded by lock: */
    struct launch *launch; /* launch_run()'s, from before the child is made until it is settled */
    /* But the counts, which are the journals'. The pid stays when the number may be another's. */
    struct proc_info info;
    uint64_t start; /* of the process info.pid; with it, its identity. 0: unknown */
    struct journal out[N_PROC_STREAMS];
    struct spill spill[N_PROC_STREAMS];
    bool is_spilling; /* a pool thread writes, or is about to */
    struct chunk *stdin_first, *stdin_last;
    size_t stdin_queued;
    bool stdin_close_asked;
    bool stdin_is_within_line; /* the last byte that was accepted is no line feed */
    bool stdin_broken;         /* the command closed its end */
    int n_owners;
    bool is_detached;
    bool cancel_asked;
    bool is_reaped;           /* info.pid may be another process's by now */
    bool had_others_in_group; /* its process group was not empty when it was reaped */
    int stdin_fd,
        out_fd[N_PROC_STREAMS]; /* changed by the loop's thread with the lock; a pty: out_fd[0] */
    bool is_paused[N_PROC_STREAMS];
    bool is_awaited; /* a lossless reader's connection broke: until linger_timer it may come back */
    uint64_t left_at[N_PROC_STREAMS];

    /*
     * The readers: changed with both locks, so that either will do for a look. Who is woken wants
     * `lock` at once, so it is not held then.
     */
    pthread_mutex_t subs_lock; /* after lock */
    struct proc_sub *subs;
    size_t n_subs;
    bool is_over; /* guarded by subs_lock: ended or failed, and that is announced */

    struct pool_item spill_item; /* of the one who sets is_spilling */

    /* the loop's: */
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
    bool has_job;     /* a pool thread works on the tree */
    unsigned n_blind; /* JOB_KILLs that could not look at the processes */
    struct tree tree; /* while it is being ended; the job's while there is one */
    size_t n_left;
    bool is_lingering;
    long long oom_kills_before; /* -1: can't be known */
};

struct registry {
    struct loop *loop;
    struct pool *pool;
    uint32_t instance;
    uint64_t ignored_signals; /* that the children get back */
    struct oom oom;           /* the loop's */
    int oom_score_adj;        /* of the children; -1: leave it */
    bool counts_io;           /* does this kernel? */
    char *path;               /* the PATH of commands that bring none */
    struct user_cache users;
    int null_fd; /* the stdin of commands that get none; -1: a box without /dev/null */
    struct registry_options o; /* with the defaults filled in */
    struct journal_budget budget, spill_budget;
    pthread_mutex_t lock;
    /* guarded by lock: */
    struct proc *by_id[N_ID_BUCKETS];
    struct proc *first, *last;           /* all that are listed, oldest start first */
    struct proc *kept_first, *kept_last; /* of these the ended ones, oldest end first */
    struct proc *running;                /* and the others, latest start first */
    uint32_t next_serial;
    size_t n_running, n_kept, n_lingering;
    uint64_t forgotten[REGISTRY_MAX_FORGOTTEN]; /* hashes of ids, a ring */
    size_t forgotten_at;
    struct registry_counts totals;
    char **env; /* environ.h */

    /* the loop's: */
    int signal_fd;
    struct loop_watch *signal_watch;
    struct loop_timer *sweep_timer, *keep_timer;
    char scratch[PROC_READ_BYTES];
};

/* launch.c: on a pool thread. Sets pid, descriptors, state; posts to the loop. */
void launch_run(void *proc);
/*
 * On the loop's thread, of a child that has ended while launch_run() is in spawn(): does its part.
 * False: it did that just now, or the child never became the program, which spawn() sees to.
 */
bool launch_take_over(struct proc *p);

/* proc.c, on the loop's thread */
void proc_adopt(struct proc *p); /* watches and timers, once */
/* With the lock, on any thread: ERR_PRECONDITION when it is still being started, or never ran. */
int proc_check_started(const struct proc *p, struct err *e);
void proc_reaped(struct proc *p, int status, const struct rusage *ru, bool is_lost);
void proc_finish(struct proc *p);    /* the result is complete */
void proc_abandon(struct proc *p);   /* the loop has stopped: let go of it */
void proc_check_end(struct proc *p); /* is the result complete? then finishes */

/* output.c; on the loop's thread but for the first two */
void proc_wake(struct proc *p);             /* without the lock */
void proc_wake_all(struct proc *p);         /* the same at the end, which is for ever */
void proc_post(struct proc *p, loop_fn fn); /* fn has a reference to drop */
void output_watch(struct proc *p);
bool output_is_wanted(struct proc *p);   /* with the lock: by who must not miss any; any thread */
bool output_has_readers(struct proc *p); /* before the end; any thread */
void output_drain(struct proc *p);       /* the first process has ended: what it wrote is read */

/* input.c, on the loop's thread */
void input_pump(struct proc *p);
void input_close(struct proc *p);

/* killer.c, on the loop's thread */
void killer_begin(struct proc *p, enum proc_reason reason);
void killer_reaped(struct proc *p);
int killer_signal_tree(struct proc *p, int sig, struct err *e); /* any thread */
/* A tree is being ended by a caller's signal: whether anything is left is asked for when that is done. */
bool killer_holds_end(struct proc *p);

/* registry.c */
void registry_failed(struct proc *p); /* never ran: the id is free again */
void registry_ended(struct proc *p);  /* from running to kept; on the loop's thread */
void registry_lingering(struct proc *p, bool on);
void registry_relieve(struct registry *r);                       /* the budget is nearly used up */
void registry_relieve_spill(struct registry *r, uint64_t bytes); /* so much more is wanted */

/* reap.c, on the loop's thread */
int reap_init(struct registry *r, struct err *e);
void reap_done(struct registry *r);
bool reap_has_children(struct registry *r); /* own or adopted; ended orphans are reaped by it */
