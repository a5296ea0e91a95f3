/* docker_image: the image of a box, which the engine gets once from its OCI form (image/README.md). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/docker/docker.h"

#define MANIFEST_BYTES ((size_t)1 << 20)
#define DIGEST_BYTES 72 /* "sha256:" and 64 digits */

static int read_image_json(const char *dir, const char *name, json_t **ret, struct err *e)
{
    _cleanup_free_ char *path = path_join(dir, name);
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r = path ? io_read_file(AT_FDCWD, path, MANIFEST_BYTES, &text, &len, e) : err_oom(e);

    if (r == 0)
        r = jx_parse(text, len, ret, e);
    return r < 0 ? err_wrap(e, r, "the image '%s'", dir) : 0;
}

/* ---- its names ---- */

/* The image as its files describe it. */
struct image_ids {
    char manifest[DIGEST_BYTES], config[DIGEST_BYTES];
    json_t *layers; /* the digests of the unpacked layers; owned */
};

static int read_blob(const char *dir, json_t *descriptor, char digest[DIGEST_BYTES], json_t **ret,
                     struct err *e)
{
    const char *text = json_string_value(json_object_get(descriptor, "digest"));
    char name[128];

    if (!text || !str_has_prefix(text, "sha256:") || strlen(text) != DIGEST_BYTES - 1 ||
        strspn(text + strlen("sha256:"), "0123456789abcdef") != 64)
        return err_set(e, ERR_DATA_LOSS, "the image '%s' has no valid digest", dir);
    (void)snprintf(digest, DIGEST_BYTES, "%s", text);
    (void)snprintf(name, sizeof(name), "oci/blobs/sha256/%s", text + strlen("sha256:"));
    return read_image_json(dir, name, ret, e);
}

static int read_ids(const char *dir, struct image_ids *ret, struct err *e)
{
    _cleanup_json_ json_t *index = NULL, *manifest = NULL, *config = NULL;
    int r = read_image_json(dir, "oci/index.json", &index, e);

    if (r == 0)
        r = read_blob(dir, json_array_get(json_object_get(index, "manifests"), 0), ret->manifest,
                      &manifest, e);
    if (r == 0)
        r = read_blob(dir, json_object_get(manifest, "config"), ret->config, &config, e);
    if (r == 0)
        ret->layers = json_incref(json_object_get(json_object_get(config, "rootfs"), "diff_ids"));
    return r == 0 && !ret->layers ? err_set(e, ERR_DATA_LOSS, "the image '%s' has no layers", dir)
                                  : r;
}

/* ---- in the engine ---- */

/* By one of its digests; which of them is an image's id depends on the engine's store. The layers prove the content. */
static int find_image(struct engine *d, const struct image_ids *ids, char **ret, struct err *e)
{
    const char *const names[] = {ids->config, ids->manifest};

    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        _cleanup_json_ json_t *doc = NULL;
        struct err why = {0};
        int r = engine_get(d, &doc, &why, "/images/%s/json", names[i]);

        if (r < 0 && r != -ERR_NOT_FOUND) {
            if (e)
                *e = why;
            return r;
        }
        if (r < 0 ||
            !json_equal(json_object_get(json_object_get(doc, "RootFS"), "Layers"), ids->layers))
            continue;
        *ret = strdup(names[i]);
        return *ret ? 1 : err_oom(e);
    }
    return 0;
}

static int load_image(const struct provider_box *b, struct engine *d, struct err *e)
{
    _cleanup_free_ char *path = path_join(b->spec->image_dir, "oci.tar");
    _cleanup_close_ int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    struct stat st;

    if (!path)
        return err_oom(e);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "open '%s'", path);
    ctx_progress(b->ctx, "image", 0, (uint64_t)st.st_size, false,
                 "loading the image '%s' into the engine", b->spec->image);
    return engine_load(d, fd, st.st_size, e);
}

int docker_settle_image(const struct provider_box *b, struct engine *d, char **ret, struct err *e)
{
    struct image_ids ids = {{0}};
    int r = read_ids(b->spec->image_dir, &ids, e);

    if (r == 0)
        r = find_image(d, &ids, ret, e);
    if (r == 0) {
        r = load_image(b, d, e);
        if (r == 0)
            r = find_image(d, &ids, ret, e);
        if (r == 0)
            r = err_field(e, ERR_DATA_LOSS, "image",
                          "the engine has not got the image '%s' that was loaded", b->spec->image);
    }
    json_decref(ids.layers);
    return r < 0 ? r : 0;
}
