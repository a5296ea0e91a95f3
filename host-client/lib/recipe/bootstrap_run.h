#pragma once
/*
 * bootstrap_run: one run of a recipe from the inside: what its steps share. Steps are in
 * bootstrap.c, the installation in bootstrap_install.c.
 */
#include <jansson.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/recipe/bootstrap.h"
#include "lib/recipe/bootstrap_record.h"
#include "lib/recipe/recipe.h"

struct bootstrap {
    const struct bootstrap_request *req;
    struct bootstrap_record rec; /* what this run will keep */
    struct bootstrap_record old; /* what was kept of the last one; zeroed: nothing */
    struct recipe_vars vars;     /* borrow from here */
    char *home;
    char *install;
    char *password;
    char port_text[8];
    json_t *env; /* for each command: the recipe's, then the box's */
    char *log;   /* the end of what a failing command said, or NULL */
};

/* The end of a step: at most timeout_ms from now, and not after the whole run's. */
int64_t bootstrap_step_end(const struct bootstrap *b, uint32_t timeout_ms);

/* Runs argv (a list of templates) in the box; status other than 0 is an error, its log in b->log. */
int bootstrap_command(struct bootstrap *b, json_t *argv, int64_t deadline_mono_ms, struct err *e);

/* The npm packages into ${install}, then the recipe's commands. */
int bootstrap_install(struct bootstrap *b, int64_t deadline_mono_ms, struct err *e);
