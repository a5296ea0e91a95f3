#pragma once
/*
 * words: what a person can see of a command that was started: the beginning of its arguments or of its
 * script. The whole of a request may be megabytes, and a thousand results are kept: so the request
 * is dropped once the command runs. Plain data, not changed after words_init(): any thread may read.
 */
#include <stddef.h>

#include "common/err.h"
#include "proc/spec.h"

#define WORDS_ARGV_BYTES 4096 /* 2,024 commands at most: 8 MiB */
#define WORDS_SCRIPT_BYTES 1024

struct words {
    char **argv;          /* whole arguments, as many as fit; NULL: it is a script */
    size_t n_omitted;     /* arguments after these, */
    size_t omitted_bytes; /* and how long they are together */
    char *script;         /* the beginning, never cut within a character; may have NULs */
    size_t script_len;    /* of the beginning */
    size_t script_bytes;  /* of the whole */
};

int words_init(struct words *w, const struct proc_spec *s, struct err *e);
void words_done(struct words *w);
