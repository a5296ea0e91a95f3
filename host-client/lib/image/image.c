#include "lib/image/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/image/template.h"
#include "lib/image/template_words.h"

/* ---- which one ---- */

static bool dir_has(const char *dir, const char *name)
{
    _cleanup_free_ char *path = path_join(dir, name);

    return path && access(path, F_OK) == 0;
}

int image_locate(const struct bh_ctx *ctx, const char *image, char **ret_dir, struct err *e)
{
    bool is_path = template_is_path(image);
    _cleanup_free_ char *dir = is_path ? strdup(image) : path_join(ctx->image_dir, image);
    _cleanup_free_ char *real = dir ? realpath(dir, NULL) : NULL;

    if (!dir)
        return err_oom(e);
    if (!real && !is_path)
        return err_field(e, ERR_NOT_FOUND, "image",
                         "there is no image '%.100s' in '%.200s' ('bellhop image build' makes one)",
                         image, ctx->image_dir);
    if (!real)
        return err_at(e, err_sys(e, errno, "image '%.300s'", image), "image");
    *ret_dir = TAKE(real);
    return 0;
}

int image_resolve(const struct bh_ctx *ctx, const char *image, char **ret_dir, struct err *e)
{
    _cleanup_free_ char *real = NULL;
    int r = image_locate(ctx, image, &real, e);

    if (r < 0)
        return r;
    if (!dir_has(real, SPEC_IMAGE_SQUASHFS) && !dir_has(real, "rootfs"))
        return err_field(
            e, ERR_NOT_FOUND, "image",
            "image '%.300s' has neither " SPEC_IMAGE_SQUASHFS " nor a directory 'rootfs'", image);
    *ret_dir = TAKE(real);
    return 0;
}

/* ---- its manifest ---- */

/* The user's name becomes a word of a command line and a part of paths. */
static int take_user(json_t *doc, const char **ret, struct err *e)
{
    json_t *name = json_object_get(json_object_get(doc, "user"), "name");
    const char *user = json_string_value(name);

    if (!name)
        return 0;
    if (!user || word_user(user))
        return err_field(e, ERR_INVALID, "user.name", "user.name: '%.40s' is not %s",
                         user ? user : "", word_user(""));
    *ret = user;
    return 0;
}

int image_facts(const char *dir, struct image_facts *ret, struct err *e)
{
    static const struct jx_field fields[] = {
        JX(struct image_facts, name, jx_str, 0),      JX(struct image_facts, version, jx_str, 0),
        JX(struct image_facts, hash, jx_str, 0),      JX(struct image_facts, start_cmd, jx_str, 0),
        JX(struct image_facts, ready_cmd, jx_str, 0), JX(struct image_facts, workdir, jx_str, 0),
        JX(struct image_facts, cpu_count, jx_u32, 0), JX(struct image_facts, memory_mb, jx_u32, 0),
        JX(struct image_facts, env, jx_array, 0),     {0},
    };
    struct image_facts f = {.name = "", .version = "", .hash = "", .user = TEMPLATE_USER};
    _cleanup_free_ char *path = path_join(dir, "manifest.json");
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r;

    f.start_cmd = f.ready_cmd = f.workdir = "";
    if (!path)
        return err_oom(e);
    r = io_read_file(AT_FDCWD, path, IMAGE_MANIFEST_MAX_BYTES, &text, &len, e);
    if (r == -ERR_NOT_FOUND) {
        *ret = f;
        return 0;
    }
    if (r == 0)
        r = jx_parse(text, len, &f.doc, e);
    if (r == 0)
        r = jx_decode_lax(f.doc, fields, &f, e);
    if (r == 0)
        r = take_user(f.doc, &f.user, e);
    if (r < 0) {
        json_decref(f.doc);
        return err_at(e, err_wrap(e, r, "manifest of the image '%.200s'", dir), "image");
    }
    *ret = f;
    return 0;
}

void image_facts_done(struct image_facts *f)
{
    json_decref(f->doc);
    *f = (struct image_facts){0};
}

/* ---- for a new box ---- */

/* A built name is taken as it is; a template of the user's own is checked each time. */
static bool is_built(const struct bh_ctx *ctx, const char *image)
{
    _cleanup_free_ char *toml = NULL;
    _cleanup_free_ char *link = NULL;
    struct stat st;

    if (!template_is_path(image)) {
        link = path_join(ctx->image_dir, image);
        return link && access(link, F_OK) == 0;
    }
    toml = path_join(image, "e2b.toml");
    return stat(image, &st) < 0 || !(S_ISREG(st.st_mode) || (toml && access(toml, F_OK) == 0));
}

/* The project goes into the template's workdir. A workdir that is the user's home is every
 * template's default: the project is not mixed with the files there. */
static int take_workdir(struct spec *spec, const struct image_facts *facts, struct err *e)
{
    const char *home = str_has_prefix(facts->workdir, "/home/") ? facts->workdir + 6 : "";
    char *dest;

    if ((spec->asked & SPEC_ASKED_DEST) || !*facts->workdir || strcmp(home, facts->user) == 0)
        return 0;
    dest = strdup(facts->workdir);
    if (!dest)
        return err_oom(e);
    free(spec->dest);
    spec->dest = dest;
    return 0;
}

static int take_facts(struct spec *spec, struct err *e)
{
    struct image_facts facts;
    int r = image_facts(spec->image_dir, &facts, e);

    if (r < 0)
        return r;
    if (!spec->cpu_millis)
        spec->cpu_millis = facts.cpu_count * 1000;
    if (!spec->memory_bytes)
        spec->memory_bytes = (uint64_t)facts.memory_mb << 20;
    r = take_workdir(spec, &facts, e);
    image_facts_done(&facts);
    return r;
}

/* Builds the forms for boxes of an image that has only other forms. If its template is not
 * known, returns `r`, whose error stands in *e. */
static int build_missing_form(struct bh_ctx *ctx, const struct image_build *build, char **ret,
                              int r, struct err *e)
{
    struct err other = {0};
    int n = image_build(ctx, build, ret, &other);

    if (n == -ERR_NOT_FOUND)
        return r;
    if (n < 0 && e)
        *e = other;
    return n;
}

int image_settle(struct bh_ctx *ctx, struct spec *spec, const char *const *host_env, struct err *e)
{
    const struct image_build build = {.ref = spec->image, .host_env = host_env};
    char *dir = NULL;
    int r;

    if (is_built(ctx, spec->image)) {
        r = image_resolve(ctx, spec->image, &dir, e);
        if (r == -ERR_NOT_FOUND && !template_is_path(spec->image))
            r = build_missing_form(ctx, &build, &dir, r, e);
    } else {
        r = image_build(ctx, &build, &dir, e);
    }
    if (r < 0)
        return r;
    free(spec->image_dir);
    spec->image_dir = dir;
    return take_facts(spec, e);
}
