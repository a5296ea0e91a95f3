#include "lib/image/image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/image/template.h"
#include "lib/provider/provider.h"
#include "lib/util/context.h"
#include "lib/util/beneath.h"

/* ---- which one ---- */

static bool dir_has(const char *dir, const char *name)
{
    _cleanup_free_ char *path = path_join(dir, name);

    return path && access(path, F_OK) == 0;
}

/* As image_resolve(), also for an image that has no form for boxes. */
static int image_locate(const struct bh_ctx *ctx, const char *image, char **ret_dir, struct err *e)
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

/* ---- the OCI form ---- */

static int file_digest(const char *path, char out[2 * SHA256_DIGEST_SIZE + 1], struct err *e)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx sha;
    char data[8192];
    ssize_t n;

    if (fd < 0)
        return err_sys(e, errno, "open '%s'", path);
    sha256_init(&sha);
    while ((n = read(fd, data, sizeof(data))) > 0)
        sha256_update(&sha, (size_t)n, (const uint8_t *)data);
    if (n < 0)
        return err_sys(e, errno, "read '%s'", path);
    sha256_digest(&sha, sizeof(digest), digest);
    str_hex(digest, sizeof(digest), out);
    return 0;
}

/* The form is there, with the guest agent of this version in it (image/forms.sh). */
static bool has_oci_form(const struct bh_ctx *ctx, const char *dir)
{
    _cleanup_free_ char *tar = path_join(dir, "oci.tar");
    _cleanup_free_ char *note = path_join(dir, ".agent.oci");
    _cleanup_free_ char *text = NULL;
    char digest[2 * SHA256_DIGEST_SIZE + 1];
    size_t len = 0;

    return tar && note && access(tar, R_OK) == 0 &&
           file_digest(ctx->agent_path, digest, NULL) == 0 &&
           io_read_file(AT_FDCWD, note, 4096, &text, &len, NULL) == 0 &&
           strncmp(text, digest, strlen(digest)) == 0;
}

static int settle_oci(struct bh_ctx *ctx, const struct spec *spec, const char *const *host_env,
                      char **ret, struct err *e)
{
    static const char *const forms[] = {"oci", NULL};
    const struct image_build build = {.ref = spec->image, .forms = forms, .host_env = host_env};
    _cleanup_free_ char *joined = template_is_path(spec->image)
                                      ? strdup(spec->image)
                                      : path_join(ctx->image_dir, spec->image);
    _cleanup_free_ char *dir = joined && is_built(ctx, spec->image) ? realpath(joined, NULL) : NULL;
    int r;

    if (dir && has_oci_form(ctx, dir)) {
        *ret = TAKE(dir);
        return 0;
    }
    r = image_build(ctx, &build, ret, e);
    if (r != -ERR_NOT_FOUND || !dir)
        return r;
    return err_field(e, ERR_PRECONDITION, "image",
                     "the image '%.100s' has no OCI form with the guest agent of this version: "
                     "'bellhop image build --form oci' of its e2b.toml makes one",
                     spec->image);
}

/* ---- settling ---- */

static int settle_rootfs(struct bh_ctx *ctx, const struct spec *spec, const char *const *host_env,
                         char **ret, struct err *e)
{
    const struct image_build build = {.ref = spec->image, .host_env = host_env};
    int r;

    if (!is_built(ctx, spec->image))
        return image_build(ctx, &build, ret, e);
    r = image_resolve(ctx, spec->image, ret, e);
    if (r == -ERR_NOT_FOUND && !template_is_path(spec->image))
        r = build_missing_form(ctx, &build, ret, r, e);
    return r;
}

int image_settle(struct bh_ctx *ctx, struct spec *spec, const char *const *host_env, struct err *e)
{
    const struct provider *p = provider_find(spec->provider);
    char *dir = NULL;
    int r = p && p->image == PROVIDER_IMAGE_OCI ? settle_oci(ctx, spec, host_env, &dir, e)
                                                : settle_rootfs(ctx, spec, host_env, &dir, e);

    if (r < 0)
        return r;
    free(spec->image_dir);
    spec->image_dir = dir;
    return take_facts(spec, e);
}

/* ---- all images ---- */

/* images: list, build, inspect and remove images. */

#define IMAGES_MAX 1000

/* ---- list ---- */

static const struct {
    const char *form, *file;
} image_forms[] = {
    {"squashfs", SPEC_IMAGE_SQUASHFS},
    {"dir", "rootfs"},
    {"tar", "rootfs.tar.zst"},
    {"oci", "oci.tar"},
    {"vm", "disk.ext4"},
    {"dockerfile", "Dockerfile"},
};

/* A virtual machine's disk file is sparse. */
static uint64_t bytes_on_disk(const struct stat *st)
{
    uint64_t taken = (uint64_t)st->st_blocks * 512;

    return taken < (uint64_t)st->st_size ? taken : (uint64_t)st->st_size;
}

/* The size of the files; a directory counts with the manifest's size. */
static int describe_forms(const char *dir, const struct image_facts *facts, struct buf *names,
                          uint64_t *ret_bytes, struct err *e)
{
    int r = 0;

    *ret_bytes = 0;
    for (size_t i = 0; r == 0 && i < N_ELEMENTS(image_forms); i++) {
        _cleanup_free_ char *path = path_join(dir, image_forms[i].file);
        struct stat st;

        if (!path)
            return err_oom(e);
        if (stat(path, &st) < 0)
            continue;
        *ret_bytes += S_ISDIR(st.st_mode)
                          ? (uint64_t)json_integer_value(json_object_get(facts->doc, "size_bytes"))
                          : bytes_on_disk(&st);
        r = buf_addf(names, e, "%s%s", names->len ? " " : "", image_forms[i].form);
    }
    return r == 0 ? buf_add(names, "", 1, e) : r;
}

struct listing {
    struct bh_ctx *ctx;
    image_count_boxes_fn count_boxes;
    int (*fn)(void *arg, const struct bh_image_info *info);
    void *arg;
    struct err *e;
};

static bool leads_to(const struct bh_ctx *ctx, const char *name, const char *dir)
{
    _cleanup_free_ char *link = path_join(ctx->image_dir, name);
    _cleanup_free_ char *real = link ? realpath(link, NULL) : NULL;

    return real && strcmp(real, dir) == 0;
}

/* Does NAME or NAME:VERSION resolve to it? */
static bool is_named(const struct bh_ctx *ctx, const struct image_facts *facts, const char *dir)
{
    _cleanup_free_ char *full = NULL;

    return leads_to(ctx, facts->name, dir) ||
           (asprintf(&full, "%s:%s", facts->name, facts->version) >= 0 && leads_to(ctx, full, dir));
}

static int give_image(struct listing *l, const char *dir)
{
    struct bh_image_info info = {.size = sizeof(info), .path = dir};
    struct image_boxes boxes = {0};
    struct image_facts facts;
    struct buf names;
    int r = image_facts(dir, &facts, l->e);

    if (r < 0)
        return r;
    buf_init(&names, 256);
    r = describe_forms(dir, &facts, &names, &info.bytes, l->e);
    if (r == 0)
        r = l->count_boxes(l->ctx, dir, &boxes, l->e);
    if (r == 0) {
        info.name = facts.name;
        info.version = facts.version;
        info.hash = facts.hash;
        info.forms = names.data;
        info.boxes = boxes.n;
        info.replaced = !is_named(l->ctx, &facts, dir);
        r = l->fn(l->arg, &info);
    }
    buf_done(&names);
    image_facts_done(&facts);
    return r;
}

/* The directories NAME-HASH, sorted. */
static int list_dirs(const struct bh_ctx *ctx, char ***ret, struct err *e)
{
    _cleanup_strv_ char **found = calloc(1, sizeof(char *));
    struct dirent **entries = NULL;
    int n = scandir(ctx->image_dir, &entries, NULL, alphasort);
    int r = found ? 0 : err_oom(e);

    for (int i = 0; i < n; i++) {
        _cleanup_free_ char *dir = path_join(ctx->image_dir, entries[i]->d_name);
        _cleanup_free_ char *manifest = dir ? path_join(dir, "manifest.json") : NULL;
        struct stat st;

        if (r == 0 && entries[i]->d_name[0] != '.' && manifest && lstat(dir, &st) == 0 &&
            S_ISDIR(st.st_mode) && access(manifest, F_OK) == 0 && strv_len(found) < IMAGES_MAX)
            r = strv_push(&found, dir, e);
        free(entries[i]);
    }
    free(entries);
    if (r == 0)
        *ret = TAKE(found);
    return r;
}

static int give_templates(struct listing *l)
{
    _cleanup_strv_ char **names = NULL;
    int r = template_names(l->ctx, &names, l->e);

    for (char **p = names; r == 0 && p && *p; p++) {
        _cleanup_template_ struct template *t = NULL;
        _cleanup_free_ char *link = path_join(l->ctx->image_dir, *p);
        struct bh_image_info info = {
            .size = sizeof(info), .name = *p, .path = "", .hash = "", .forms = ""};

        if (!link)
            return err_oom(l->e);
        if (access(link, F_OK) == 0)
            continue;
        r = template_find(l->ctx, *p, &t, l->e);
        if (r < 0)
            return r;
        info.version = t->version;
        r = l->fn(l->arg, &info);
    }
    return r;
}

int image_list(struct bh_ctx *ctx, image_count_boxes_fn count_boxes,
               int (*fn)(void *arg, const struct bh_image_info *info), void *arg, struct err *e)
{
    _cleanup_strv_ char **dirs = NULL;
    struct listing l = {.ctx = ctx, .count_boxes = count_boxes, .fn = fn, .arg = arg, .e = e};
    int r = list_dirs(ctx, &dirs, e);

    for (char **p = dirs; r == 0 && p && *p; p++) {
        _cleanup_free_ char *real = realpath(*p, NULL);

        r = real ? give_image(&l, real) : 0;
    }
    return r == 0 ? give_templates(&l) : r;
}

/* ---- build ---- */

int bh_image_build(struct bh_ctx *ctx, const struct bh_image_build_options *opts, char **ret_path,
                   struct bh_error *err)
{
    struct bh_image_build_options o;
    struct image_build b;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0 && (!o.image || !*o.image))
        r = err_field(&e, ERR_INVALID, "image", "which image?");
    if (r == 0) {
        b = (struct image_build){.ref = o.image,
                                 .forms = o.forms,
                                 .fresh = o.fresh,
                                 .timeout_ms = o.timeout_ms,
                                 .host_env = o.host_env};
        r = image_build(ctx, &b, ret_path, &e);
    }
    return ctx_fail(err, r, &e);
}

/* ---- inspect ---- */

static json_t *list_json(char *const *list)
{
    json_t *array = json_array();

    for (; array && *list; list++)
        (void)json_array_append_new(array, json_string(*list));
    return array;
}

static json_t *template_json(const struct template *t)
{
    json_t *doc = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:b}", "name", t->name,
        "version", t->version, "template", t->path, "suite", t->suite, "user", t->user, "workdir",
        t->workdir, "start_cmd", t->start_cmd, "ready_cmd", t->ready_cmd, "dockerfile",
        t->dockerfile, "cpu_count", (json_int_t)t->cpu_count, "memory_mb", (json_int_t)t->memory_mb,
        "size_mb", (json_int_t)t->size_mb, "node", t->node);
    const struct {
        const char *key;
        char *const *list;
    } lists[] = {{"packages", t->packages}, {"npm", t->npm}, {"pip", t->pip},
                 {"agents", t->agents},     {"env", t->env}, {"exclude", t->exclude},
                 {"flavours", t->flavours}};

    for (size_t i = 0; doc && i < N_ELEMENTS(lists); i++)
        (void)json_object_set_new(doc, lists[i].key, list_json(lists[i].list));
    if (doc && t->from)
        (void)json_object_set_new(doc, "from", template_json(t->from));
    return doc;
}

/* ERR_NOT_FOUND for a path that may be a template's. */
static int locate_image(const struct bh_ctx *ctx, const char *image, char **ret, struct err *e)
{
    _cleanup_free_ char *manifest = path_join(image, "manifest.json");

    if (!manifest)
        return err_oom(e);
    return !template_is_path(image) || access(manifest, F_OK) == 0
               ? image_locate(ctx, image, ret, e)
               : image_resolve(ctx, image, ret, e);
}

int bh_image_inspect(struct bh_ctx *ctx, const char *image, char **ret_json, struct bh_error *err)
{
    _cleanup_template_ struct template *t = NULL;
    _cleanup_free_ char *dir = NULL;
    _cleanup_json_ json_t *doc = NULL;
    struct image_facts facts = {0};
    struct err e = {0};
    int r = locate_image(ctx, image, &dir, &e);

    if (r == 0) {
        r = image_facts(dir, &facts, &e);
        doc = r == 0 && facts.doc ? json_deep_copy(facts.doc) : r == 0 ? json_object() : NULL;
        if (doc)
            (void)json_object_set_new(doc, "path", json_string(dir));
        image_facts_done(&facts);
    } else if (r == -ERR_NOT_FOUND) {
        r = template_find(ctx, image, &t, &e);
        doc = r == 0 ? template_json(t) : NULL;
    }
    if (r == 0)
        r = doc ? jx_dump(doc, ret_json, NULL, &e) : err_oom(&e);
    return ctx_fail(err, r, &e);
}

/* ---- remove ---- */

/* Removes the links to the image, so that its names are gone. */
static int remove_links(const struct bh_ctx *ctx, const char *dir, struct err *e)
{
    _cleanup_closedir_ DIR *d = opendir(ctx->image_dir);
    struct dirent *entry;

    while (d && (entry = readdir(d))) {
        _cleanup_free_ char *path = path_join(ctx->image_dir, entry->d_name);
        char target[PATH_MAX];
        ssize_t n = path ? readlink(path, target, sizeof(target) - 1) : -1;

        if (n < 0)
            continue;
        target[n] = '\0';
        if (strcmp(path_name(target), path_name(dir)) == 0 && unlink(path) < 0)
            return err_sys(e, errno, "unlink '%s'", path);
    }
    return 0;
}

/* Excludes a build of the same name, which makes directories and links. */
static int lock_name(const struct bh_ctx *ctx, const char *name, int *ret_fd, struct err *e)
{
    _cleanup_free_ char *path = NULL;
    _cleanup_close_ int fd = -1;

    if (asprintf(&path, "%s/.%s.lock", ctx->image_dir, name) < 0)
        return err_oom(e);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK
                   ? err_field(e, ERR_PRECONDITION, "image", "the image '%s' is being built", name)
                   : err_sys(e, errno, "lock '%s'", path);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int remove_dir(struct bh_ctx *ctx, const char *dir, image_count_boxes_fn count_boxes,
                      struct err *e)
{
    _cleanup_free_ char *gone = NULL;
    _cleanup_close_ int lock = -1;
    struct image_boxes boxes = {0};
    struct image_facts facts;
    int r = image_facts(dir, &facts, e);

    if (r < 0)
        return r;
    r = lock_name(ctx, facts.name, &lock, e);
    image_facts_done(&facts);
    if (r == 0)
        r = count_boxes(ctx, dir, &boxes, e);
    if (r < 0)
        return r;
    if (boxes.n)
        return err_field(e, ERR_PRECONDITION, "image", "%u box%s the image, such as '%s'", boxes.n,
                         boxes.n == 1 ? " uses" : "es use", boxes.name);
    r = remove_links(ctx, dir, e);
    if (r < 0)
        return r;
    /* Renamed first: a directory that cannot be removed at once must not look like an image. */
    if (asprintf(&gone, "%s/.%s.tmp.%d", ctx->image_dir, path_name(dir), (int)getpid()) < 0)
        return err_oom(e);
    if (rename(dir, gone) < 0)
        return err_sys(e, errno, "rename '%s'", dir);
    return dirtree_remove(gone, e);
}

int image_remove(struct bh_ctx *ctx, const char *image, image_count_boxes_fn count_boxes,
                 struct err *e)
{
    _cleanup_free_ char *dir = NULL;
    _cleanup_free_ char *own = realpath(ctx->image_dir, NULL);
    _cleanup_free_ char *parent = NULL;
    int r = image_locate(ctx, image, &dir, e);

    if (r < 0)
        return r;
    parent = path_dir(dir);
    if (!own || !parent || strcmp(own, parent) != 0)
        return err_field(e, ERR_INVALID, "image", "'%.200s' is not one of the images in '%.200s'",
                         image, ctx->image_dir);
    return remove_dir(ctx, dir, count_boxes, e);
}
