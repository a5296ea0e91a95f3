#pragma once
/*
 * image: built images. Each is a directory NAME-HASH below image_dir with a manifest.json; the
 * links NAME and NAME:VERSION lead to the newest (image/README.md).
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/util/context.h"
#include "lib/provider/spec.h"

#define IMAGE_MANIFEST_MAX_BYTES ((size_t)1 << 20)

/* Resolves to the real path: a box keeps its image when the name moves on to a newer one.
 * free() it. */
int image_resolve(const struct bh_ctx *ctx, const char *image, char **ret_dir, struct err *e);

/* The facts of a manifest that matter to a box. An image without a manifest has none of them. */
struct image_facts {
    json_t *doc; /* owns the strings below; NULL: there is no manifest */
    const char *name, *version, *hash;
    const char *start_cmd, *ready_cmd;
    const char *workdir;
    const char *user;              /* commands run as this user; never empty */
    uint32_t cpu_count, memory_mb; /* 0: no limit */
    json_t *env;                   /* "K=V" strings, or NULL */
};
int image_facts(const char *dir, struct image_facts *ret, struct err *e);
void image_facts_done(struct image_facts *f);

/*
 * Makes sure that a new box's image exists: builds a missing one from its template, once however
 * many commands ask. Fills spec->image_dir, and the limits and dest that nobody asked for.
 */
int image_settle(struct bh_ctx *ctx, struct spec *spec, const char *const *host_env, struct err *e);

/* Builds; *ret_dir (may be NULL) is the image's directory. Existing forms are not made again. */
struct image_build {
    const char *ref; /* a reference for template_find() */
    const char *const *forms;
    bool fresh;                  /* rebuild the layers, to get Debian's newest packages */
    const char *const *host_env; /* the proxies and pip's index come from it; or NULL */
    int64_t timeout_ms;
};
int image_build(struct bh_ctx *ctx, const struct image_build *b, char **ret_dir, struct err *e);

/* The boxes made from one image, and their snapshots. Only the store, a layer above, knows them. */
struct image_boxes {
    uint32_t n;
    char name[80]; /* one of them */
};
typedef int (*image_count_boxes_fn)(struct bh_ctx *ctx, const char *dir, struct image_boxes *ret,
                                    struct err *e);

/* bh_image_list() and bh_image_remove() (bellhop.h). */
int image_list(struct bh_ctx *ctx, image_count_boxes_fn count_boxes,
               int (*fn)(void *arg, const struct bh_image_info *info), void *arg, struct err *e);
int image_remove(struct bh_ctx *ctx, const char *image, image_count_boxes_fn count_boxes,
                 struct err *e);
