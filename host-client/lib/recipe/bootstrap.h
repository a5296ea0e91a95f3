#pragma once
/*
 * bootstrap: brings a coding agent into a box by a recipe (bootstrap/NAME.json; its schema lies
 * beside it): check, install, files, environment, start, health, each with a time limit.
 * Environment values never pass through a shell. Idempotent: the right version is not installed
 * again, a healthy agent is not started again.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/agent/client.h"
#include "lib/recipe/recipe.h"
#include "lib/util/context.h"

/* In agent-start.json beside the request: the monitor restarts the command so often. */
#define SUPERVISE_MAX_KEY "max_restarts"

struct bootstrap_request {
    struct bh_ctx *ctx;
    struct client *client;
    const char *box_id;
    const char *box_dir;    /* holds agent-password and agent-start.json, 0600 */
    const char *agent;      /* "opencode", "opencode@1.18.33", "./mine.json" */
    const char *config_dir; /* --agent-config, or NULL */
    const char *workdir;    /* in the box */
    char *const *env;       /* the box's variables, "K=V" */
    const char *layer;      /* the place of a layer (agent_layer.h) in the box, or NULL */
    const char *layer_of;   /* with layer: "opencode-1.18.33" */
    uint16_t port;          /* 0: the recipe's */
    int64_t deadline_mono_ms;
};

struct bootstrap_result {
    char *name;
    char *version;
    uint16_t port;  /* 0: it has no port (pi) */
    char *username; /* of its HTTP server, or "" */
    char *password; /* or "" */
    char *exec_id;  /* the running command, or "" */
};
void bootstrap_result_done(struct bootstrap_result *r);

/* Checks the recipe without doing anything; errors for an unknown or broken one. */
int bootstrap_check(struct bh_ctx *ctx, const char *agent, struct err *e);

/* On failure *step names the step and *ret_log (may be NULL; free() it) is the log's tail. */
int bootstrap_run(const struct bootstrap_request *req, struct bootstrap_result *ret, char step[32],
                  char **ret_log, struct err *e);
/* One health check of a running agent, within timeout_ms. */
int bootstrap_health(struct bh_ctx *ctx, const char *box_dir, struct client *client,
                     int64_t timeout_ms, struct err *e);

/* ---- the record ---- */

/*
 * bootstrap_record: files about a box's coding agent in the box's directory, all 0600:
 *   agent.json         the recipe as it was, version, port, session: for restarts and health checks
 *   agent-password     of its server; made once for each box
 *   agent-start.json   the whole Exec/Start request that the monitor keeps running
 */

struct bootstrap_record {
    char *agent;   /* the request: "opencode@1.18.33" */
    char *session; /* or NULL */
    uint16_t port; /* 0: none */
    struct recipe recipe;
};

/* ERR_NOT_FOUND: there is no record. */
int bootstrap_record_load(const char *box_dir, struct bootstrap_record *ret, struct err *e);
int bootstrap_record_save(const char *box_dir, const struct bootstrap_record *rec, struct err *e);
void bootstrap_record_done(struct bootstrap_record *rec);

/* Reads the box's password; if there is none, makes it if `make`, else returns "". */
int bootstrap_password(const char *box_dir, bool make, char **ret, struct err *e);

/* Saves agent-start.json. request NULL: the monitor keeps nothing running. */
int bootstrap_start_save(const char *box_dir, const json_t *request, struct err *e);
