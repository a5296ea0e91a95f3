#pragma once
/*
 * bootstrap_run: the state of one run of a recipe, shared by its steps. bootstrap.c has the steps,
 * bootstrap_install.c the installation, bootstrap_start.c start and health.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/recipe/bootstrap.h"
#include "lib/recipe/recipe.h"

struct bootstrap {
    const struct bootstrap_request *req;
    struct bootstrap_record rec; /* the record of this run */
    struct bootstrap_record old; /* the record of the last run; zeroed: none */
    struct recipe_vars vars;     /* borrowed from this struct */
    char *home;
    char *install;
    bool has_layer; /* ${install} is a layer: nothing is to be installed there */
    char *password;
    char port_text[8];
    json_t *env; /* for each command: the recipe's, then the box's */
    char *log;   /* the end of a failed command's output, or NULL */
};

/* The deadline of a step: timeout_ms from now, but not after the whole run's. */
int64_t bootstrap_step_end(const struct bootstrap *b, uint32_t timeout_ms);

/* Takes *log as the log of the failed step. */
void bootstrap_keep_log(struct bootstrap *b, char **log);

/* Runs argv (a list of templates) in the box; a status other than 0 is an error with its log in
 * b->log. */
int bootstrap_command(struct bootstrap *b, json_t *argv, int64_t deadline_mono_ms, struct err *e);

/* 1: the box has Node.js; 0: it has not. */
int bootstrap_has_node(struct bootstrap *b, int64_t deadline_mono_ms, struct err *e);

/* Installs the npm packages into ${install}, then runs the recipe's commands. */
int bootstrap_install(struct bootstrap *b, int64_t deadline_mono_ms, struct err *e);

/*
 * Starts the agent with the last session, if there is one, and waits until it is healthy. An agent
 * that does not know the session gets a new one, once; an agent that ends for another reason keeps
 * its session for the next time. *step names the step at work.
 */
int bootstrap_begin(struct bootstrap *b, const char **step, struct err *e);
/* One health check, until end_mono_ms at most. */
int bootstrap_probe_once(struct bootstrap *b, int64_t end_mono_ms, struct err *e);
/* Saves the request that the monitor keeps running from now on. */
int bootstrap_save_start(struct bootstrap *b, struct err *e);
