#pragma once
/* spec: what a caller asks of a command. Plain data that owns its strings. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "proc/spawn.h"

#define SPEC_ID_MAX_BYTES 128
#define SPEC_DIGEST_BYTES 32
#define SPEC_KILL_GRACE_MS 2000

struct proc_spec {
    char *id;     /* NULL: the registry makes one */
    char **argv;  /* or script */
    char *script; /* bytes */
    size_t script_len;
    char **env; /* "K=V"; goes over the defaults */
    char *cwd;  /* NULL: workdir, or else the user's home */
    char *user; /* NULL: the agent's default */

    char *stdin_data; /* NULL: none */
    size_t stdin_len;
    bool stdin_open; /* stays open after stdin_data, until closed */

    bool has_pty, pty_raw;
    uint32_t cols, rows;

    uint64_t timeout_ms; /* 0: none */
    uint64_t kill_grace_ms;
    bool kill_on_exit;    /* the end of the first process ends its tree */
    bool wait_eof;        /* it has ended when its output is at its end as well */
    bool cancel_on_leave; /* see proc_own() */
    bool leader_only;     /* the timeout is a KILL of the first process, and of nothing else */

    char *tag;  /* a dialect's, and of no meaning here, as is the note: by what it is found, */
    char *note; /* and what is to be known of it later */

    int umask; /* -1: the agent's */
    struct spawn_limit limits[SPAWN_MAX_LIMITS];
    size_t n_limits;
    struct cgroup_limits cgroup;

    uint64_t head_bytes, tail_bytes; /* of output kept, a stream */
    uint64_t spill_bytes;            /* of a stream, in a file; 0: none */

    const char *default_user; /* borrowed from the agent's options, or NULL */
    const char *workdir;      /* likewise */

    unsigned char digest[SPEC_DIGEST_BYTES]; /* of the request, without its id */
};

void proc_spec_init(struct proc_spec *s); /* the defaults */
void proc_spec_done(struct proc_spec *s);
/* *ret owns copies of all that s owns. */
int proc_spec_copy(const struct proc_spec *s, struct proc_spec *ret, struct err *e);
/* Drops what only the start needs: argv, script, env, stdin_data. */
void proc_spec_used(struct proc_spec *s);
/* 1 to SPEC_ID_MAX_BYTES of letters, digits and "._:-". */
int proc_spec_check_id(const char *id, struct err *e);
