#pragma once
/*
 * bootstrap_record: what is kept of a box's coding agent in the box's directory, all 0600:
 *   agent.json         the recipe as it was, version, port, session: to come back, to ask its health
 *   agent-password     of its server; made once a box
 *   agent-start.json   the whole Exec/Start request that the monitor keeps running
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/recipe/recipe.h"

struct bootstrap_record {
    char *agent;   /* as it was asked for: "opencode@1.18.33" */
    char *session; /* or NULL */
    uint16_t port; /* 0: none */
    struct recipe recipe;
};

/* ERR_NOT_FOUND: there is none. */
int bootstrap_record_load(const char *box_dir, struct bootstrap_record *ret, struct err *e);
int bootstrap_record_save(const char *box_dir, const struct bootstrap_record *rec, struct err *e);
void bootstrap_record_done(struct bootstrap_record *rec);

/* The box's password: made when there is none and `make` says so; else "". */
int bootstrap_password(const char *box_dir, bool make, char **ret, struct err *e);

/* request NULL: nothing is kept running. */
int bootstrap_save_start(const char *box_dir, const json_t *request, struct err *e);
