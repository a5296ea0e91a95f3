#pragma once
/*
 * spec: what was asked for a box, kept with it for its whole life as JSON (in the store), so that
 * it can be started again and so that a second `up` can be compared with the first. No secrets:
 * those are files 0600 of the box's directory.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"

#define SPEC_TTL_MS (10 * 60 * 1000)
#define SPEC_PIDS 4096
#define SPEC_DEST "/workspace"

struct spec {
    char *provider;  /* never NULL, as are all but those that say so */
    char *image;     /* the name or path as asked */
    char *image_dir; /* resolved: a directory with rootfs/ in it; "" for host and process */
    char *runtime;   /* "" until the probe has chosen */
    char *agent;     /* "opencode@1.2.3", a path, "none" */
    char *dest;
    char *network;
    char *privilege;
    char *on_timeout;
    int64_t timeout_ms;
    uint32_t cpu_millis;
    uint64_t memory_bytes;
    uint32_t pids;
    uint16_t agent_port;
    char **env;
    char **labels;
    char **allow_missing;
};

/* Defaults filled in, every value checked; the error names the field. */
int spec_from_options(const struct bh_create_options *opts, struct spec *ret, struct err *e);
int spec_from_json(json_t *obj, struct spec *ret, struct err *e);
json_t *spec_to_json(const struct spec *s);
void spec_done(struct spec *s);
