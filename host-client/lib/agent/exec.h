#pragma once
/*
 * exec: struct bh_exec from the inside: a command of a box, and the caller's position in its output
 * and input. It has two clients, so that a write or a signal can be sent while the output is
 * followed. One thread at a time, except for the pump of the input, which has its own client;
 * while it runs, only the pump uses `written`.
 */
#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"
#include "common/jsonx.h"
#include "lib/agent/call.h"

#define EXEC_ID_BYTES 129            /* the agent's ids have at most 128 characters */
#define EXEC_RETRIES 20              /* connections in a row without progress */
#define EXEC_RETRY_MS 250            /* between two retries */
#define EXEC_RETRY_MOST_MS 1000      /* of a request that is refused: doubled from EXEC_RETRY_MS */
#define EXEC_FAILING_MS 25000        /* of these connections together: each may fail slowly */
#define EXEC_CALL_MS 5000            /* deadline of short calls that the caller did not ask for */
#define EXEC_WAIT_MS 60000           /* one Exec/Wait; a longer wait is several of them */
#define EXEC_GRACE_MS 5000           /* for the reply to a wait that has timed out */
#define EXEC_PIECE_BYTES (64 * 1024) /* of one Read and one Write */

/* One that writes to the command's input: the agent counts the bytes of each by itself. */
struct exec_input {
    char writer[17];
    uint64_t written;     /* accepted */
    uint64_t failed_hash; /* of the data of the last write, if that failed; else 0 */
};

struct bh_exec {
    struct bh_box *box;
    int64_t mark; /* of agent_ops: when the command began */
    struct client *stream;
    struct client *calls;
    int cancel_fd;       /* the context's */
    int input_failed_fd; /* eventfd: the pump of the input has failed */
    int stop_fd;         /* epoll of the two: cancels `stream` */
    json_t *request;     /* parameters of Exec/Start, as long as it may be repeated; or NULL */
    char id[EXEC_ID_BYTES];
    int pid;
    bool is_started;
    bool is_pty;
    bool is_input_lost; /* the last follow failed because the rest of the input was not accepted */
    uint64_t offset[3]; /* by stream: 1, 2 */
    struct exec_input own;    /* of bh_exec_write() */
    struct exec_input pumped; /* of a follow, used by its thread */
    char *unsent;             /* input that a follow has read, and that may not have arrived */
    size_t unsent_len;
};

/* Wakes the box and makes a handle with its clients. id NULL: random. */
int exec_new(struct bh_box *box, const char *id, struct bh_exec **ret, struct err *e);

/* exec_run.c: the parameters of Exec/Start. */
int exec_request_check(const struct bh_run_options *o, struct err *e);
int exec_request_new(struct bh_box *box, const char *id, const struct bh_run_options *o,
                     bool stdin_open, bool lossless, json_t **ret, struct err *e);

/* exec.c: decodes a reply's exit and usage; copies as much of a result as *ret has room
 * for. */
void exec_read_result(json_t *reply, struct bh_run_result *ret);
void exec_give_result(const struct bh_run_result *result, struct bh_run_result *ret);

/*
 * exec_follow.c: writes to the command's input by offset, so that every request can be repeated. After an error the
 * same data may be written again: what has arrived is not written twice. Other data comes after what has arrived.
 */
int exec_write(struct bh_exec *exec, struct exec_input *in, struct client *c, const char *data,
               size_t len, int64_t deadline_mono_ms, int cancel_fd, struct err *e);
int exec_input_new(struct exec_input *in, struct err *e);
int exec_follow(struct bh_exec *exec, const struct bh_follow_options *opts,
                struct bh_run_result *ret, struct err *e);
/* Starts the command and returns once it runs. */
int exec_start(struct bh_exec *exec, struct err *e);
/* exec_run.c: the same. If it is canceled, a command whose id the caller has not chosen is killed: nobody knows it. */
int exec_start_own(struct bh_exec *exec, bool has_callers_id, struct err *e);
