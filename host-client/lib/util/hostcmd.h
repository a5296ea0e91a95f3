#pragma once
/*
 * hostcmd: runs a program of this machine (git, npm) to its end with a clean environment. Its
 * standard input is empty. Its output goes to a descriptor or a bounded buffer. The end of its
 * standard error becomes part of the error. The program and its children are killed at the
 * deadline and when the cancel descriptor becomes readable.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"
#include "lib/util/debug.h"

#define HOSTCMD_SAID_BYTES 512
#define HOSTCMD_LINE_BYTES 1024 /* a longer line is split */
#define HOSTCMD_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct hostcmd {
    const char *const *argv; /* argv[0] without a slash is searched in `path` */
    const char *path;        /* NULL: HOSTCMD_PATH; the program gets it as PATH */
    const char *const *env;  /* "K=V" beside PATH, HOME, LC_ALL; or NULL */
    const char *cwd;         /* or NULL */
    int out_fd;              /* gets its output; -1: into out, or discarded */
    struct buf *out;         /* may be NULL */
    /* Gets each line of its output without the line feed, instead of out; or NULL. */
    void (*line)(void *arg, const char *line);
    void *line_arg;
    void (*tick)(void *arg); /* called after each silent second with line_arg; or NULL */
    char *said;              /* HOSTCMD_SAID_BYTES: gets the last line of standard error; or NULL */
    int grace_ms;            /* from SIGTERM to SIGKILL; 0: half a second */
    int cancel_fd;           /* as in bh_options: 0 or -1 for none */
    int64_t deadline_mono_ms;
    const struct debug *debug; /* or NULL: gets a line with the words, but not the variables */
};

/* 0: it exited with 0. ERR_NOT_FOUND: there is no such program. ERR_PRECONDITION: it failed;
 * the message has its last line, and *ret_status (may be NULL) its exit status, or -1. */
int hostcmd_run(const struct hostcmd *cmd, int *ret_status, struct err *e);

/* The environment variables that name a network's proxy; the list ends with NULL. */
extern const char *const hostcmd_proxy_names[];
/* Is "K=V" one of them? */
bool hostcmd_is_proxy_variable(const char *variable);
