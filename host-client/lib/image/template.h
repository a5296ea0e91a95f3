#pragma once
/*
 * template: what an image is made of: an e2b.toml in E2B's own fields, and Bellhop's in [bellhop]
 * (docs/images.md has them all). Read whole, checked whole: a wrong or unknown field is ERR_INVALID
 * with "FILE:LINE: ..." and the field's name. With what it stands on (`from`), down to Debian.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/util/context.h"

#define TEMPLATE_MAX_DEPTH 8 /* of `from` */
#define TEMPLATE_USER "user" /* where nothing is said */

struct template
{
    char *path; /* of the file */
    char *name; /* none is NULL, but `from`, and those of E2B that are not there are "" */
    char *version;
    char *template_id;
    char *team_id;
    char *dockerfile;
    char *start_cmd;
    char *ready_cmd;
    char *suite;
    char *user;
    char *workdir; /* the user's home where nothing is said */
    char *from_name;
    uint32_t cpu_count; /* 0, as of memory: no limit */
    uint32_t memory_mb;
    uint32_t size_mb; /* of the squashfs; 0: no limit */
    bool node;
    char **packages, **npm, **pip, **agents, **env, **exclude, **flavours;
    struct template *from; /* NULL: Debian itself */
};

/* A file, or a directory with an e2b.toml in it. */
int template_load(const struct bh_ctx *ctx, const char *path, struct template **ret, struct err *e);

/*
 * "NAME", "NAME:VERSION" or a path (with a '/' or ending in ".toml"): one of ours, else ./e2b.toml
 * when it has that name. ERR_NOT_FOUND with the field "image", also for another version.
 */
int template_find(const struct bh_ctx *ctx, const char *ref, struct template **ret, struct err *e);
bool template_is_path(const char *ref);

/* The names of ours, sorted: strv. */
int template_names(const struct bh_ctx *ctx, char ***ret, struct err *e);

/* As a directory of plain files, which is made (image/README.md). `agents` is its file of that
 * name: image_agents_write(). */
int template_write(const struct template *t, const char *dir, struct err *e);

struct template *template_free(struct template *t); /* accepts NULL; returns NULL */
static inline void template_free_p(struct template **t)
{
    (void)template_free(*t);
}
#define _cleanup_template_ __attribute__((cleanup(template_free_p)))
