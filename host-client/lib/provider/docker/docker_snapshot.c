/* docker_snapshot: a disk as an image that the engine commits, and a disk of one. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/docker/docker.h"
#include "lib/provider/store_mark.h"

int docker_check_capture(struct provider_box *b, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container c = {0};
    int r;

    if (b->spec->read_only)
        return err_field(e, ERR_PRECONDITION, "read-only",
                         "the box's root cannot be written: there is nothing to keep");
    r = docker_open_container(b, &d, &c, e);
    if (r == 0)
        r = err_set(e, ERR_NOT_FOUND, "the engine has no container of the box any more");
    else if (r > 0)
        r = c.is_running && !c.is_paused ? docker_check_freezer(d, &c, "snapshot", e) : 0;
    docker_container_done(&c);
    return r;
}

const char *docker_image_hex(const char *image)
{
    const char *hex = image && str_has_prefix(image, "sha256:") ? image + strlen("sha256:") : image;

    return docker_is_id(hex) ? hex : NULL;
}

/* ---- capture ---- */

/* The bytes that the container has written, as the engine counts them; 0: it does not say. */
static uint64_t written_bytes(struct engine *d, const char *id)
{
    _cleanup_json_ json_t *doc = NULL;
    json_int_t n = 0;

    if (engine_get(d, &doc, NULL, "/containers/%.72s/json?size=1", id) == 0)
        n = json_integer_value(json_object_get(doc, "SizeRw"));
    return n > 0 ? (uint64_t)n : 0;
}

static int commit_container(struct provider_box *b, struct engine *d,
                            const struct docker_container *found, const struct provider_capture *c,
                            json_t **ret, struct err *e)
{
    char mark[STORE_MARK_BYTES], path[320];
    _cleanup_json_ json_t *config = NULL;
    int r = store_mark(b->ctx, mark, e);

    if (r < 0)
        return r;
    config = json_pack("{s:{s:s, s:s}}", "Labels", DOCKER_LABEL_STORE, mark, DOCKER_LABEL_SNAPSHOT,
                       c->id);
    /* Also of a box that is paused: somebody may have unpaused its container. Engines leave a paused one as it is. */
    (void)snprintf(path, sizeof(path),
                   "/commit?container=%.72s&repo=" DOCKER_SNAPSHOT_REPO "&tag=%s&pause=1",
                   found->id, c->id);
    return config ? engine_post_once(d, path, config, ret, e) : err_oom(e);
}

int docker_capture(struct provider_box *b, struct provider_capture *c, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container found = {0};
    _cleanup_json_ json_t *made = NULL;
    const char *image = NULL;
    int r = docker_open_container(b, &d, &found, e);

    if (r == 0)
        r = err_set(e, ERR_NOT_FOUND, "the engine has no container of the box any more");
    if (r == 1)
        r = commit_container(b, d, &found, c, &made, e);
    if (r == 0) {
        image = json_string_value(json_object_get(made, "Id"));
        if (!docker_image_hex(image))
            r = docker_answer_is_strange(e, "id of the image");
    }
    if (r == 0) {
        c->layers = calloc(1, sizeof(char *));
        c->disk = json_pack("{s:s, s:s}", "image", image, "engine", engine_url(d));
        c->bytes = c->copied = written_bytes(d, found.id);
        if (!c->layers || !c->disk)
            r = err_oom(e);
    }
    docker_container_done(&found);
    return r;
}

/* ---- restore ---- */

int docker_check_image(struct engine *d, const char *image, struct err *e)
{
    const char *hex = docker_image_hex(image);
    struct err why = {0};
    int r = hex ? engine_get(d, NULL, &why, "/images/sha256:%s/json", hex)
                : err_set(&why, ERR_DATA_LOSS, "the snapshot has no image of an engine");

    if (r == -ERR_NOT_FOUND)
        return err_field(
            e, ERR_NOT_FOUND, "snapshot",
            "snapshot: the engine has no such image: it is on another engine, or somebody "
            "else removed it");
    if (r < 0 && e)
        *e = why;
    return r;
}

static int verify_at(struct bh_ctx *ctx, const char *url, const char *image,
                     int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    int r = engine_open(ctx, url, deadline_mono_ms, &d, e);

    return r < 0 ? r : docker_check_image(d, image, e);
}

/* Its digest proves the image: if the engine's address is another one by now, the engine in force may have it. */
int docker_verify(struct bh_ctx *ctx, const json_t *disk, int64_t deadline_mono_ms, struct err *e)
{
    const char *url = json_string_value(json_object_get(disk, "engine"));
    const char *image = json_string_value(json_object_get(disk, "image"));
    _cleanup_free_ char *in_force = NULL;
    int r = url ? verify_at(ctx, url, image, deadline_mono_ms, e)
                : err_set(e, ERR_DATA_LOSS, "the snapshot names no engine");

    if (r == 0 || r == -ERR_CANCELED || !url || engine_choose(ctx, &in_force, NULL) < 0 ||
        str_eq(in_force, url))
        return r;
    return verify_at(ctx, in_force, image, deadline_mono_ms, NULL) == 0 ? 0 : r;
}

static void new_name(const struct provider_box *b, char out[DOCKER_NAME_BYTES])
{
    (void)snprintf(out, DOCKER_NAME_BYTES, DOCKER_NEW_NAME_OF, b->id);
}

static int remove_named(const struct provider_box *b, struct engine *d, const char *name,
                        struct err *e)
{
    struct docker_container c = {0};
    int r = docker_find_named(b, d, name, &c, e);

    if (r == 1)
        r = docker_remove_container(d, c.id, e);
    docker_container_done(&c);
    return r;
}

/* The container with the new disk takes the place of the old one, which may be gone already. */
static int take_container_place(const struct provider_box *b, struct engine *d, struct err *e)
{
    char name[DOCKER_NAME_BYTES], new[DOCKER_NAME_BYTES];
    struct docker_container old = {0}, c = {0};
    struct err why = {0};
    int r = docker_find_container(b, d, &old, e);

    docker_container_name(b, name);
    new_name(b, new);
    if (r == 1)
        r = docker_remove_container(d, old.id, e);
    docker_container_done(&old);
    if (r < 0)
        return r;
    r = engine_post(d, NULL, &why, "/containers/%s/rename?name=%s", new, name);
    if (docker_find_named(b, d, name, &c, NULL) == 1) { /* also if the answer was lost */
        r = 0;
        (void)docker_record_container(b, c.id, NULL); /* else its name leads to it */
    }
    docker_container_done(&c);
    if (r < 0 && e)
        *e = why;
    return r;
}

/* Nothing is removed for a disk that could not take the place. */
static int check_place(const struct provider_box *b, struct engine *d, struct err *e)
{
    struct docker_container c = {0};
    char name[DOCKER_NAME_BYTES];
    int r;

    docker_container_name(b, name);
    r = docker_find_named(b, d, name, &c, e);
    docker_container_done(&c);
    return r < 0 ? r : 0;
}

int docker_restore(struct provider_box *b, const struct provider_source *source, struct err *e)
{
    const char *image = json_string_value(json_object_get(source->disk, "image"));
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container old = {0};
    char new[DOCKER_NAME_BYTES], id[DOCKER_ID_BYTES];
    int r = docker_open_container(b, &d, &old, e);

    docker_container_done(&old);
    new_name(b, new);
    if (r >= 0)
        r = check_place(b, d, e);
    if (r == 0)
        r = docker_check_image(d, image, e);
    if (r == 0)
        r = remove_named(b, d, new, e);
    if (r == 0)
        r = docker_create_container(b, d, new, image, source->tag, id, e);
    if (r < 0 && d) {
        (void)remove_named(b, d, new, NULL);
        return r;
    }
    return r < 0 ? r : take_container_place(b, d, e);
}

/* The disk of one that is being removed, or whose removal has failed, is not there any more. */
static bool is_ending(const struct docker_container *c)
{
    return docker_is_being_removed(c) ||
           provider_state(&provider_docker, c->status) == BH_STATE_ERROR;
}

/* Of a restore that died. One with the name that is not the box's is left alone. */
int docker_drop_restored(const struct provider_box *b, struct engine *d, struct err *e)
{
    char new[DOCKER_NAME_BYTES];
    struct err why = {0};
    int r;

    new_name(b, new);
    r = remove_named(b, d, new, &why);
    if (r < 0 && r != -ERR_EXISTS && e)
        *e = why;
    return r == -ERR_EXISTS ? 0 : r;
}

static bool has_tag(const struct docker_container *c, const char *tag)
{
    json_t *labels = json_object_get(json_object_get(c->doc, "Config"), "Labels");

    return str_eq(json_string_value(json_object_get(labels, DOCKER_LABEL_TAG)), tag);
}

int docker_has_restored(struct provider_box *b, const char *tag, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container c = {0}, made = {0};
    char new[DOCKER_NAME_BYTES];
    bool is_there, is_new_there, has, new_has;
    int r = docker_open_container(b, &d, &c, e);

    new_name(b, new);
    is_there = r == 1 && !is_ending(&c);
    has = is_there && has_tag(&c, tag);
    docker_container_done(&c);
    if (r < 0)
        return r;
    r = docker_find_named(b, d, new, &made, e);
    is_new_there = r == 1;
    new_has = is_new_there && has_tag(&made, tag);
    docker_container_done(&made);
    if (r < 0)
        return r;
    if (new_has && !is_there) { /* it died between the removal and the renaming */
        r = take_container_place(b, d, e);
        return r < 0 ? r : 1;
    }
    r = is_new_there ? remove_named(b, d, new, e) : 0;
    return r < 0 ? r : has;
}
