#pragma once
/* spec: the request for a command. Plain data that owns its strings. */
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
    char **env; /* "K=V"; overrides the defaults */
    char *cwd;  /* NULL: workdir, or else the user's home */
    char *user; /* NULL: the agent's default */

    char *stdin_data; /* NULL: none */
    size_t stdin_len;
    bool stdin_open; /* stdin stays open after stdin_data until it is closed */

    bool has_pty, pty_raw;
    uint32_t cols, rows;

    uint64_t timeout_ms; /* 0: none */
    uint64_t kill_grace_ms;
    bool kill_on_exit;    /* kill the tree when the first process exits */
    bool wait_eof;        /* the command ends when its output is at its end as well */
    bool cancel_on_leave; /* see proc_own() */
    bool leader_only;     /* the timeout sends SIGKILL to the first process and ends nothing else */

    /* A dialect's own: how it finds the command, and what it reports of it. Not used here. */
    char *tag, *note;

    int umask; /* -1: the agent's */
    struct spawn_limit limits[SPAWN_MAX_LIMITS];
    size_t n_limits;
    struct cgroup_limits cgroup;

    uint64_t head_bytes, tail_bytes; /* of output kept in memory, per stream */
    uint64_t spill_bytes;            /* of output kept in a file, per stream; 0: none */

    const char *default_user; /* borrowed from the agent's options, or NULL */
    const char *workdir;      /* likewise */

    unsigned char digest[SPEC_DIGEST_BYTES]; /* of the request without its id */
};

void proc_spec_init(struct proc_spec *s); /* the defaults */
void proc_spec_done(struct proc_spec *s);
/* *ret owns copies of everything that s owns. */
int proc_spec_copy(const struct proc_spec *s, struct proc_spec *ret, struct err *e);
/* Drops what only the start needs: argv, script, env, stdin_data. */
void proc_spec_used(struct proc_spec *s);
/* 1 to SPEC_ID_MAX_BYTES of letters, digits and "._:-". */
int proc_spec_check_id(const char *id, struct err *e);

/*
 * The part of a request that is kept for people to see: the beginning of its arguments or of its
 * script. A request may be megabytes and a thousand results are kept, so the request itself is
 * dropped once the command runs. Not changed after proc_summary_init(): any thread may read it.
 */
#define SUMMARY_ARGV_BYTES 4096 /* 2,024 commands at most: 8 MiB */
#define SUMMARY_SCRIPT_BYTES 1024

struct proc_summary {
    char **argv;          /* whole arguments, as many as fit; NULL: it is a script */
    size_t n_omitted;     /* arguments after these */
    size_t omitted_bytes; /* length of the omitted arguments together */
    char *script;         /* the beginning, never cut within a character; may contain NULs */
    size_t script_len;    /* of the beginning */
    size_t script_bytes;  /* of the whole */
};

int proc_summary_init(struct proc_summary *s, const struct proc_spec *spec, struct err *e);
void proc_summary_done(struct proc_summary *s);
