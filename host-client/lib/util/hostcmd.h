#pragma once
/*
 * hostcmd: a program of this machine (git, npm), run to its end with a clean environment. Its
 * standard input is empty, its output goes to a descriptor or a bounded buffer, the end of what
 * it says on standard error becomes part of the error. Ended (with what it started) at the
 * deadline and when the cancel descriptor becomes readable.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"

#define HOSTCMD_SAID_BYTES 512
#define HOSTCMD_LINE_BYTES 1024 /* a longer one comes in pieces */
#define HOSTCMD_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct hostcmd {
    const char *const *argv; /* argv[0] without a slash is looked for in `path` */
    const char *path;        /* NULL: HOSTCMD_PATH; the program gets it as PATH */
    const char *const *env;  /* "K=V" beside PATH, HOME, LC_ALL; or NULL */
    const char *cwd;         /* or NULL */
    int out_fd;              /* where its output goes; -1: into out, or nowhere */
    struct buf *out;         /* may be NULL */
    /* Each line of its output as it comes, without its end; NULL: none. Instead of out. */
    void (*line)(void *arg, const char *line);
    void *line_arg;
    void (*tick)(
        void *arg); /* after each second in which it says nothing; gets line_arg; or NULL */
    char *said;     /* HOSTCMD_SAID_BYTES: gets the last line of its standard error; or NULL */
    int grace_ms;   /* from SIGTERM to SIGKILL; 0: half a second */
    int cancel_fd;  /* as in bh_options: 0 or -1 for none */
    int64_t deadline_mono_ms;
};

/* 0 when it exited with 0. ERR_NOT_FOUND: there is no such program. ERR_PRECONDITION: it failed,
 * the message has the last line that it said; *ret_status (may be NULL) is its exit status, or -1. */
int hostcmd_run(const struct hostcmd *cmd, int *ret_status, struct err *e);

/* The environment variables that name a network's proxy; the list ends with NULL. */
extern const char *const hostcmd_proxy_names[];
/* Is "K=V" one of them? */
bool hostcmd_is_proxy_variable(const char *variable);
