/* docker_gc: what is left in engines: containers of boxes that are gone, and images of snapshots that are gone. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/docker/docker.h"
#include "lib/provider/store_mark.h"

/* Podman's list fails while the network of any container in it is made or removed ("updating container state"). */
#define LIST_TRIES 5
#define LIST_PAUSE_MS 200
#define SWEEP_OBJECT_MS 20000

/* ---- containers ---- */

struct docker_sweep {
    struct engine *engine;
    int64_t object_ms, until_mono_ms;
    bool (*is_kept)(void *arg, const char *id, bool has_disk);
    void *arg;
    void (*report)(void *arg, const char *line);
    void *report_arg;
};

static bool has_box_name(json_t *row, const char *box)
{
    json_t *names = json_object_get(row, "Names"), *v;
    char name[DOCKER_NAME_BYTES], new[DOCKER_NAME_BYTES];
    size_t i;

    (void)snprintf(name, sizeof(name), DOCKER_NAME_OF, box);
    (void)snprintf(new, sizeof(new), DOCKER_NEW_NAME_OF, box);
    json_array_foreach (names, i, v) {
        const char *text = json_string_value(v);

        text = text ? text + (*text == '/') : "";
        if (str_eq(text, name) || str_eq(text, new))
            return true;
    }
    return false;
}

/* A container that somebody made of a snapshot's image, or of a commit of the box's container, has the labels of the box:
 * it inherits them. Its name is its own; that of ours may be another one by now. */
static bool has_own_labels(struct docker_sweep *s, json_t *row, const char *box)
{
    const char *image = docker_image_hex(json_string_value(json_object_get(row, "ImageID")));
    _cleanup_json_ json_t *doc = NULL;
    json_t *labels;

    if (!image || engine_get(s->engine, &doc, NULL, "/images/sha256:%s/json", image) < 0)
        return false;
    labels = json_object_get(json_object_get(doc, "Config"), "Labels");
    return doc && !str_eq(json_string_value(json_object_get(labels, DOCKER_LABEL_BOX)), box);
}

/* One that hangs does not use up the time of the others. */
static void begin_removal(struct docker_sweep *s)
{
    int64_t at = clock_mono_ms() + s->object_ms;

    engine_set_deadline(s->engine, at < s->until_mono_ms ? at : s->until_mono_ms);
}

static int sweep_container(struct docker_sweep *s, json_t *row, struct err *e)
{
    const char *id = json_string_value(json_object_get(row, "Id"));
    const char *box =
        json_string_value(json_object_get(json_object_get(row, "Labels"), DOCKER_LABEL_BOX));
    char line[160];
    int r;

    if (!docker_is_id(id) || !box || !ctx_is_box_id(box))
        return 0;
    begin_removal(s);
    if ((!has_box_name(row, box) && !has_own_labels(s, row, box)) || s->is_kept(s->arg, box, true))
        return 0;
    r = docker_remove_container(s->engine, id, e);
    if (r < 0)
        return err_wrap(e, r, "the container of '%s'", box);
    (void)snprintf(line, sizeof(line), "removed the container of '%s', which is gone", box);
    if (s->report)
        s->report(s->report_arg, line);
    return 0;
}

/* The filter is the engine's; the label is compared again all the same. */
static int list_marked(struct engine *d, const char *kind, const char *mark, json_t **ret,
                       struct err *e)
{
    char label[96];
    _cleanup_free_ char *filter = NULL;
    _cleanup_json_ json_t *list = NULL;
    json_t *row;
    size_t i;
    int r = 0;

    (void)snprintf(label, sizeof(label), DOCKER_LABEL_STORE "=%s", mark);
    filter = engine_encode_take(json_pack("{s:[s]}", "label", label));
    if (!filter)
        return err_oom(e);
    for (int n_tries = 0; n_tries < LIST_TRIES; n_tries++) {
        r = engine_get(d, &list, e, "/%s/json?all=1&filters=%s", kind, filter);
        if (r != -ERR_UNAVAILABLE || !engine_is_podman(d))
            break;
        (void)poll(NULL, 0, LIST_PAUSE_MS);
    }
    if (r == 0 && !json_is_array(list))
        r = docker_answer_is_strange(e, "list");
    if (r < 0)
        return r;
    *ret = json_array();
    json_array_foreach (list, i, row)
        if (str_eq(json_string_value(
                       json_object_get(json_object_get(row, "Labels"), DOCKER_LABEL_STORE)),
                   mark))
            (void)json_array_append(*ret, row);
    return 0;
}

static int sweep_containers(struct docker_sweep *s, const char *mark, struct err *e)
{
    _cleanup_json_ json_t *list = NULL;
    json_t *row;
    size_t i;
    int first = list_marked(s->engine, "containers", mark, &list, e);

    json_array_foreach (list, i, row) {
        struct err why = {0};
        int r = sweep_container(s, row, &why);

        if (r < 0 && first == 0) {
            first = r;
            if (e)
                *e = why;
        }
        if (r == -ERR_CANCELED || (r < 0 && clock_until_ms(s->until_mono_ms) == 0))
            break;
    }
    return first;
}

/* The engine in force and the mark of the store. 0: a machine without an engine has nothing of ours in one. */
static int open_swept(struct bh_ctx *ctx, int64_t deadline_mono_ms, struct engine **ret,
                      char mark[STORE_MARK_BYTES], struct err *e)
{
    _cleanup_free_ char *url = NULL, *mark_path = path_join(ctx->state_dir, "mark");
    int r;

    if (!mark_path)
        return err_oom(e);
    if (access(mark_path, F_OK) < 0 || engine_choose(ctx, &url, NULL) < 0)
        return 0;
    r = engine_open(ctx, url, deadline_mono_ms, ret, e);
    if (r == 0)
        r = store_mark(ctx, mark, e);
    return r < 0 ? r : 1;
}

int docker_sweep_within(struct bh_ctx *ctx, const struct docker_sweep_limits *limits,
                        bool (*is_kept)(void *arg, const char *id, bool has_disk), void *arg,
                        void (*report)(void *arg, const char *line), void *report_arg,
                        struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    int64_t until = clock_mono_ms() + limits->total_ms;
    char mark[STORE_MARK_BYTES];
    int r = open_swept(ctx, until, &d, mark, e);
    struct docker_sweep s = {.engine = d,
                             .object_ms = limits->object_ms,
                             .until_mono_ms = until,
                             .is_kept = is_kept,
                             .arg = arg,
                             .report = report,
                             .report_arg = report_arg};

    return r == 1 ? sweep_containers(&s, mark, e) : r;
}

int docker_sweep(struct bh_ctx *ctx, bool (*is_kept)(void *arg, const char *id, bool has_disk),
                 void *arg, void (*report)(void *arg, const char *line), void *report_arg,
                 struct err *e)
{
    static const struct docker_sweep_limits limits = {PROVIDER_MS, SWEEP_OBJECT_MS};

    return docker_sweep_within(ctx, &limits, is_kept, arg, report, report_arg, e);
}

/* ---- images of snapshots ---- */

/*
 * An image that a container still has cannot be removed. Its id is then the name of a file in <state_dir>/docker-gone,
 * which holds the engine's address: each removal of a container of that engine, and gc, try again. So it is with the
 * image of a capture that failed, which has the snapshot's id: its engine may finish it later.
 */
#define GONE_DIR "docker-gone"
#define FORGET_MS 10000       /* one image; a longer removal is repeated */
#define RETRY_MS 5000         /* all images of one engine */
#define RETRY_ALL_MS 20000    /* and of all engines */
#define LATE_S ((time_t)3600) /* a commit that is not there by then never comes */

static bool is_gone_name(const char *name)
{
    return docker_is_id(name) || ctx_is_box_id(name);
}

enum image_removal {
    IMAGE_KEPT, /* a container has it */
    IMAGE_REMOVED,
    IMAGE_ABSENT,
};

/* An enum image_removal, or an error. */
static int remove_image(struct engine *d, const char *name, struct err *e)
{
    struct err why = {0};
    char path[128];
    int r;

    (void)snprintf(path, sizeof(path), "/images/%s:%.64s",
                   docker_is_id(name) ? "sha256" : DOCKER_SNAPSHOT_REPO, name);
    r = engine_call(d, "DELETE", path, NULL, NULL, &why);
    if (r == 0)
        return IMAGE_REMOVED;
    if (r == -ERR_NOT_FOUND)
        return IMAGE_ABSENT;
    if (r == -ERR_EXISTS)
        return IMAGE_KEPT;
    if (e)
        *e = why;
    return r;
}

static int note_gone(const struct bh_ctx *ctx, const char *hex, const char *url, struct err *e)
{
    _cleanup_free_ char *dir = path_join(ctx->state_dir, GONE_DIR);
    _cleanup_free_ char *path = dir ? path_join(dir, hex) : NULL;
    int r = path ? io_mkdir_p(dir, 0700, e) : err_oom(e);

    return r < 0 ? r : io_write_file(AT_FDCWD, path, url, strlen(url), 0600, true, e);
}

/* The image of a capture that is absent may come. */
static int forget_image(struct bh_ctx *ctx, const char *url, const char *name,
                        int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    int r = engine_open(ctx, url, deadline_mono_ms, &d, NULL);

    if (r == 0)
        r = remove_image(d, name, NULL);
    return r == IMAGE_REMOVED || (r == IMAGE_ABSENT && docker_is_id(name))
               ? 0
               : note_gone(ctx, name, url, e);
}

int docker_forget(struct bh_ctx *ctx, const json_t *disk, struct err *e)
{
    const char *image = json_string_value(json_object_get(disk, "image"));
    const char *url = json_string_value(json_object_get(disk, "engine"));
    const char *hex = docker_image_hex(image);

    return hex && url ? forget_image(ctx, url, hex, clock_mono_ms() + FORGET_MS, e) : 0;
}

int docker_drop_capture(struct provider_box *b, const char *id, struct err *e)
{
    int64_t most_ms = provider_deadline(b), ms = clock_mono_ms() + FORGET_MS;

    return forget_image(b->ctx, b->spec->engine, id, ms < most_ms ? ms : most_ms, e);
}

static bool is_late(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && time(NULL) - st.st_mtime > LATE_S;
}

static int retry_gone(const char *dir, struct engine *d, const char *name)
{
    _cleanup_free_ char *path = path_join(dir, name);
    int r = path ? remove_image(d, name, NULL) : err_oom(NULL);

    if (r == IMAGE_REMOVED || (r == IMAGE_ABSENT && (docker_is_id(name) || is_late(path))))
        (void)unlink(path);
    return r;
}

/* The notes, by the engine's address. NULL: there are none. */
static json_t *read_notes(const char *dir_path)
{
    _cleanup_closedir_ DIR *dir = opendir(dir_path);
    json_t *notes = NULL;

    for (const struct dirent *f; dir && (f = readdir(dir));) {
        _cleanup_free_ char *path = path_join(dir_path, f->d_name);
        _cleanup_free_ char *url = NULL;
        size_t len = 0;

        if (!path || !is_gone_name(f->d_name) ||
            io_read_file(AT_FDCWD, path, ENGINE_URL_BYTES, &url, &len, NULL) < 0)
            continue;
        notes = notes ? notes : json_object();
        if (!json_object_get(notes, url))
            (void)json_object_set_new(notes, url, json_array());
        (void)json_array_append_new(json_object_get(notes, url), json_string(f->d_name));
    }
    return notes;
}

/* An engine may fail to remove one image, and remove the next: Podman does, where somebody gave the first a second name. */
static void retry_names(struct bh_ctx *ctx, const char *dir, const char *url, json_t *names)
{
    _cleanup_engine_ struct engine *d = NULL;
    int r = engine_open(ctx, url, clock_mono_ms() + RETRY_MS, &d, NULL);
    json_t *v;
    size_t i;

    json_array_foreach (names, i, v)
        if (d && r != -ERR_DEADLINE && r != -ERR_CANCELED)
            r = retry_gone(dir, d, json_string_value(v));
}

void docker_retry_forget(struct bh_ctx *ctx, const char *url)
{
    _cleanup_free_ char *dir = path_join(ctx->state_dir, GONE_DIR);
    _cleanup_json_ json_t *notes = dir ? read_notes(dir) : NULL;
    json_t *names = json_object_get(notes, url);

    if (names)
        retry_names(ctx, dir, url, names);
}

static void forget_noted(struct bh_ctx *ctx)
{
    _cleanup_free_ char *dir = path_join(ctx->state_dir, GONE_DIR);
    _cleanup_json_ json_t *notes = dir ? read_notes(dir) : NULL;
    int64_t until = clock_mono_ms() + RETRY_ALL_MS;
    const char *url;
    json_t *names;

    json_object_foreach (notes, url, names)
        if (clock_until_ms(until) > 0)
            retry_names(ctx, dir, url, names);
}

/* The snapshot's id of its image; NULL: it is none of ours. An image that somebody made of one has its labels, and another
 * name. Podman puts a registry before ours. */
static const char *snapshot_of(json_t *row)
{
    static const char *const starts[] = {DOCKER_SNAPSHOT_REPO ":",
                                         "localhost/" DOCKER_SNAPSHOT_REPO ":",
                                         "docker.io/library/" DOCKER_SNAPSHOT_REPO ":"};
    json_t *tags = json_object_get(row, "RepoTags"), *v;
    size_t i;

    json_array_foreach (tags, i, v) {
        const char *tag = json_string_value(v);

        for (size_t k = 0; tag && k < N_ELEMENTS(starts); k++)
            if (str_has_prefix(tag, starts[k]) && ctx_is_box_id(tag + strlen(starts[k])))
                return tag + strlen(starts[k]);
    }
    return NULL;
}

static void forget_lost(struct bh_ctx *ctx, const struct provider_lost *lost)
{
    _cleanup_engine_ struct engine *d = NULL;
    _cleanup_json_ json_t *list = NULL;
    char mark[STORE_MARK_BYTES], line[120];
    json_t *row;
    size_t i;

    if (open_swept(ctx, clock_mono_ms() + RETRY_ALL_MS, &d, mark, NULL) != 1 ||
        list_marked(d, "images", mark, &list, NULL) < 0)
        return;
    json_array_foreach (list, i, row) {
        const char *box =
            json_string_value(json_object_get(json_object_get(row, "Labels"), DOCKER_LABEL_BOX));
        const char *id = snapshot_of(row);

        if (!box || !id || !ctx_is_box_id(box) || !lost->is_lost(lost->arg, box, id) ||
            remove_image(d, id, NULL) != IMAGE_REMOVED)
            continue;
        (void)snprintf(line, sizeof(line),
                       "removed the image of the snapshot '%.16s', which is gone", id);
        lost->report(lost->arg, line);
    }
}

void docker_forget_rest(struct bh_ctx *ctx, const struct provider_lost *lost)
{
    forget_noted(ctx);
    forget_lost(ctx, lost);
}
