#pragma once
/* repo: a git repository cloned inside a box. */
#include <stdint.h>

#include "common/err.h"
#include "lib/box/box.h"

/*
 * Into the box's workdir. The token (a file of this machine, or NULL) is given to git by a
 * credential helper that reads a file 0600 in the box, which is removed again whatever happens;
 * it is in no argv, no environment and not in the clone's configuration.
 */
int repo_clone(struct bh_box *box, struct client *c, const char *url, const char *token_file,
               int64_t deadline_mono_ms, struct err *e);
int repo_check_token(const char *token_file, struct err *e); /* readable, not empty */
