#pragma once
/*
 * image: built images: directories NAME-HASH below image_dir, with the links NAME and NAME:VERSION
 * to the newest (image/README.md), each with a manifest.json.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/util/context.h"
#include "lib/provider/spec.h"

#define IMAGE_MANIFEST_MAX_BYTES ((size_t)1 << 20)

/* The real path, so that a box stays with the image that it was made from when the name moves
 * on to a newer one. free() it. */
int image_resolve(const struct bh_ctx *ctx, const char *image, char **ret_dir, struct err *e);

/* The same of an image that need not be one for boxes: it may have other forms only. */
int image_locate(const struct bh_ctx *ctx, const char *image, char **ret_dir, struct err *e);

/* What a manifest says that acts in a box. An image without a manifest has none of it. */
struct image_facts {
    json_t *doc; /* owns what the others borrow; NULL: there is no manifest */
    const char *name, *version, *hash;
    const char *start_cmd, *ready_cmd;
    const char *workdir;
    const char *user;              /* who commands run as; never empty */
    uint32_t cpu_count, memory_mb; /* 0: no limit */
    json_t *env;                   /* "K=V" strings, or NULL */
};
int image_facts(const char *dir, struct image_facts *ret, struct err *e);
void image_facts_done(struct image_facts *f);

/*
 * The image that a new box is to have is there: built from its template when it is missing, once
 * however many ask. Fills spec->image_dir, and its limits and dest where none were asked for.
 */
int image_settle(struct bh_ctx *ctx, struct spec *spec, const char *const *host_env, struct err *e);

/* Builds; *ret_dir (may be NULL) is the image's directory. What is there is not made again. */
struct image_build {
    const char *ref; /* as template_find() has it */
    const char *const *forms;
    bool fresh; /* layers are made again, so that Debian's newest packages come in */
    const char *const *host_env; /* of whom the build has the proxies and pip's index; or NULL */
    int64_t timeout_ms;
};
int image_build(struct bh_ctx *ctx, const struct image_build *b, char **ret_dir, struct err *e);

/* The boxes made from one image. The store knows them; it lies above this room. */
struct image_boxes {
    uint32_t n;
    char name[64]; /* one of them */
};
typedef int (*image_count_boxes_fn)(struct bh_ctx *ctx, const char *dir, struct image_boxes *ret,
                                    struct err *e);

/* bh_image_list() and bh_image_remove() (bellhop.h). */
int image_list(struct bh_ctx *ctx, image_count_boxes_fn count_boxes,
               int (*fn)(void *arg, const struct bh_image_info *info), void *arg, struct err *e);
int image_remove(struct bh_ctx *ctx, const char *image, image_count_boxes_fn count_boxes,
                 struct err *e);
