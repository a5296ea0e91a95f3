#pragma once
/* repo: clone a git repository inside a box. */
#include <jansson.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/agent/client.h"
#include "lib/util/context.h"

struct repo_request {
    struct bh_ctx *ctx;
    struct client *client;
    struct client *cleaner; /* with a token: removes it, and no cancel descriptor stops it */
    const char *url;
    const char *dest;       /* a directory in the box */
    json_t *env;            /* the environment of git */
    const char *token_file; /* of this machine, or NULL */
    int64_t deadline_mono_ms;
};

/*
 * The token reaches git through a credential helper that reads a file 0600 in the box. The file is
 * removed again whatever happens. The token is in no argv, no environment and not in the clone's
 * configuration.
 */
int repo_clone(const struct repo_request *req, struct err *e);
int repo_check_token(const char *token_file, struct err *e); /* readable, not empty */
