#pragma once
/*
 * template: the definition of an image: an e2b.toml with E2B's own fields, and Bellhop's in
 * [bellhop] (docs/images.md lists them). A template is read and checked as a whole, together with
 * the templates that it is based on (`from`), down to Debian. A wrong or unknown field is
 * ERR_INVALID with "FILE:LINE: ..." and the field's name.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/util/context.h"

#define TEMPLATE_MAX_DEPTH 8 /* templates based on each other */
#define TEMPLATE_USER "user" /* the default */

struct template
{
    char *path; /* of the file */
    char *name; /* from here on none but `from` is NULL; absent fields of E2B's are "" */
    char *version;
    char *template_id;
    char *team_id;
    char *dockerfile;
    char *start_cmd;
    char *ready_cmd;
    char *suite;
    char *user;
    char *workdir; /* default: the user's home */
    char *from_name;
    uint32_t cpu_count; /* 0, as for memory: no limit */
    uint32_t memory_mb;
    uint32_t size_mb; /* of the squashfs; 0: no limit */
    bool node;
    char **packages, **npm, **pip, **agents, **env, **exclude, **flavours;
    struct template *from; /* NULL: Debian itself */
};

/* A file, or a directory with an e2b.toml in it. */
int template_load(const struct bh_ctx *ctx, const char *path, struct template **ret, struct err *e);

/*
 * "NAME", "NAME:VERSION" or a path (with a '/' or ending in ".toml"): one of our templates, else
 * ./e2b.toml if it has that name. ERR_NOT_FOUND with the field "image", also for another version.
 */
int template_find(const struct bh_ctx *ctx, const char *ref, struct template **ret, struct err *e);
bool template_is_path(const char *ref);

/* The names of our templates, sorted (strv). */
int template_names(const struct bh_ctx *ctx, char ***ret, struct err *e);

/* Writes the template as a directory of plain files, which is made (image/README.md).
 * The build of an image writes the file `agents`. */
int template_write(const struct template *t, const char *dir, struct err *e);

struct template *template_free(struct template *t); /* accepts NULL; returns NULL */
static inline void template_free_p(struct template **t)
{
    (void)template_free(*t);
}
#define _cleanup_template_ __attribute__((cleanup(template_free_p)))

/* NULL if the word may be the name of an image's user, else a description of the expected word. */
const char *word_user(const char *word);
