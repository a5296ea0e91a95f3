#pragma once
/*
 * bootstrap_record: files about a box's coding agent in the box's directory, all 0600:
 *   agent.json         the recipe as it was, version, port, session: for restarts and health checks
 *   agent-password     of its server; made once for each box
 *   agent-start.json   the whole Exec/Start request that the monitor keeps running
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/recipe/recipe.h"

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

/* request NULL: the monitor keeps nothing running. */
int bootstrap_save_start(const char *box_dir, const json_t *request, struct err *e);
