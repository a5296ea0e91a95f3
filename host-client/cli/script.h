#pragma once
/*
 * script: a shell script of ours (image/), run to its end with the caller's environment. What it
 * prints is shown as progress, line by line, and its end is kept. ^C ends it with what it started.
 */
#include "cli/cli.h"

#define SCRIPT_TAIL_BYTES 1500

struct script {
    const char *const *argv;          /* argv[0] is the script's path, run by sh */
    const char *phase;                /* of the progress */
    bool must_finish;                 /* it cleans up: ^C does not end it */
    int status;                       /* out: its exit status, or 128 and the signal */
    char tail[SCRIPT_TAIL_BYTES + 1]; /* out: the end of what it printed */
};

/* Succeeds if the script ran, whatever its status. */
int cli_script_run(struct cli *c, struct script *s, struct bh_error *err);
/* The last line of the tail, without its line feed; cuts the tail. */
const char *cli_script_last_line(struct script *s);
