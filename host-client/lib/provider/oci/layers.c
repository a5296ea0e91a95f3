#include "lib/provider/oci/layers.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/provider/freezer.h"
#include "lib/provider/layer_store.h"
#include "lib/provider/oci/rootfs.h"
#include "lib/util/beneath.h"

#define FREEZE_MS 10000
#define THAW_MS 5000
#define DISK "oci/disk"
#define NEXT_DISK "oci/disk.next" /* not finished, or the old one on its way out */
#define TAG "tag"                 /* in a disk that restore made */
#define TAG_MAX_BYTES 64
#define KNOWN "oci/known-files"

/* ---- capture ---- */

struct capture {
    struct oci_run run;
    struct freezer_guard guard;
};

static int capture_freeze(void *arg, struct err *e)
{
    struct capture *c = arg;

    return freezer_guard_begin(&c->guard, c->run.cgroup, FREEZE_MS, e);
}

static int capture_thaw(void *arg, struct err *e)
{
    struct capture *c = arg;

    return freezer_guard_end(&c->guard, THAW_MS, e);
}

/* *ret_runs: its processes can write. */
static int load_run_of(struct provider_box *b, struct oci_run *ret, bool *ret_runs, struct err *e)
{
    int r = oci_run_load(b, ret, e);

    *ret_runs = r == 0 && oci_proc_is_alive(&ret->init);
    oci_run_name(b, ret);
    return r == -ERR_NOT_FOUND ? 0 : r;
}

int oci_layers_check(struct provider_box *b, struct err *e)
{
    struct oci_run run = {0};
    char **layers = NULL;
    bool runs;
    int r;

    if (geteuid() != 0)
        return err_set(e, ERR_DENIED, "the oci provider needs root (try sudo)");
    r = load_run_of(b, &run, &runs, e);
    if (r == 0)
        r = oci_layers_load(b, DISK, &layers, e);
    if (r == 0 && strv_len(layers) >= LAYER_MAX_CHAIN)
        r = err_field(e, ERR_EXHAUSTED, "snapshot",
                      "the box's disk has %d layers of snapshots, and no more are possible",
                      LAYER_MAX_CHAIN);
    (void)strv_free(layers);
    if (r < 0 || !runs)
        return r;
    if (str_eq(run.runtime, "runsc"))
        return err_field(e, ERR_UNIMPLEMENTED, "snapshot",
                         "runsc may keep written data in its memory: stop the box first");
    return freezer_check(run.cgroup, run.init.pid, e);
}

static int make_layer(struct provider_box *b, const struct provider_capture *c, uint32_t base,
                      struct layer_facts *ret, struct err *e)
{
    _cleanup_free_ char *upper = oci_path(b, DISK "/upper");
    _cleanup_free_ char *known = oci_path(b, KNOWN);
    _cleanup_close_ int fd = -1;
    struct capture frozen = {0};
    struct layer_make m = {.ctx = b->ctx,
                           .id = c->id,
                           .base = base,
                           .max_copied = b->spec->disk_bytes * 2, /* before the freeze, in it */
                           .deadline_mono_ms = c->deadline_mono_ms,
                           .known_path = known,
                           .arg = &frozen};
    bool runs;
    int r = upper && known ? load_run_of(b, &frozen.run, &runs, e) : err_oom(e);

    if (r < 0)
        return r;
    /* One that is said to be paused may run: a pause or resume was killed, or a person thawed it. */
    if (runs && !(c->is_paused && freezer_is_frozen(frozen.run.cgroup))) {
        m.freeze = capture_freeze;
        m.thaw = capture_thaw;
    }
    m.from = fd = open(upper, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "open '%s'", upper) : layer_make(&m, ret, e);
}

int oci_layers_capture(struct provider_box *b, struct provider_capture *c, struct err *e)
{
    struct layer_facts facts = {{0}};
    struct oci_disk disk = {0};
    char **layers = NULL;
    json_t *doc = NULL;
    int r = oci_layers_check(b, e);

    if (r == 0)
        r = oci_disk_load(b, &disk, e);
    if (r == 0)
        r = oci_layers_load(b, DISK, &layers, e);
    if (r == 0)
        r = make_layer(b, c, disk.base, &facts, e);
    if (r < 0) {
        (void)strv_free(layers);
        return r;
    }
    if (facts.n_entries || !*layers)
        r = strv_push(&layers, facts.digest, e);
    else
        (void)layer_drop_made(b->ctx, c->id, NULL);
    doc = json_pack("{s:I, s:I, s:s}", "uid", (json_int_t)disk.uid, "gid", (json_int_t)disk.gid,
                    "user", disk.user);
    if (r == 0 && !doc)
        r = err_oom(e);
    if (r < 0) {
        (void)layer_drop_made(b->ctx, c->id, NULL);
        (void)strv_free(layers);
        json_decref(doc);
        return r;
    }
    (void)snprintf(c->layer, sizeof(c->layer), "%s",
                   str_eq(layers[strv_len(layers) - 1], facts.digest) ? facts.digest : "");
    c->layers = layers;
    c->disk = doc;
    c->n_entries = facts.n_entries;
    c->bytes = facts.bytes;
    c->copied = facts.copied;
    c->n_devices = facts.n_devices;
    return 0;
}

/* ---- a disk of layers ---- */

static int check_layers(const struct provider_box *b, char *const *layers, struct err *e)
{
    int r = 0;

    if (strv_len(layers) > LAYER_MAX_CHAIN)
        return err_field(e, ERR_EXHAUSTED, "snapshot", "the snapshot has more than %d layers",
                         LAYER_MAX_CHAIN);
    for (; r == 0 && *layers; layers++)
        r = layer_check(b->ctx, *layers, e);
    return r;
}

/* The disk's directory `name`, empty over the layers. */
static int make_over(const struct provider_box *b, const char *name, char *const *layers,
                     const struct oci_disk *disk, struct err *e)
{
    size_t n = strv_len(layers);
    _cleanup_free_ char *top = n ? layer_tree_path(b->ctx, layers[n - 1]) : NULL;
    int r = check_layers(b, layers, e);

    if (r == 0)
        r = oci_rootfs_empty(b, name, top, disk, e);
    return r < 0 ? r : oci_layers_save(b, name, layers, e);
}

static int read_disk_facts(const json_t *doc, struct oci_disk *disk, struct err *e)
{
    json_int_t uid = json_integer_value(json_object_get(doc, "uid"));
    json_int_t gid = json_integer_value(json_object_get(doc, "gid"));
    const char *user = json_string_value(json_object_get(doc, "user"));

    if (uid < 0 || uid >= (json_int_t)OCI_RANGE || gid < 0 || gid >= (json_int_t)OCI_RANGE ||
        !user || strlen(user) >= OCI_USER_BYTES)
        return err_field(e, ERR_DATA_LOSS, "snapshot", "the snapshot does not name its user");
    disk->uid = (uint32_t)uid;
    disk->gid = (uint32_t)gid;
    (void)snprintf(disk->user, sizeof(disk->user), "%s", user);
    return 0;
}

int oci_layers_prepare(const struct provider_box *b, struct oci_disk *disk, struct err *e)
{
    int r = read_disk_facts(b->source->disk, disk, e);

    return r < 0 ? r : make_over(b, DISK, b->source->layers, disk, e);
}

static int write_tag(const struct provider_box *b, const char *tag, struct err *e)
{
    _cleanup_free_ char *path = oci_path(b, NEXT_DISK "/" TAG);

    return path ? io_write_file(AT_FDCWD, path, tag, strlen(tag), 0600, true, e) : err_oom(e);
}

/* On the disk before the caller stores whose layers the box has. */
static int exchange_disks(const struct provider_box *b, struct err *e)
{
    _cleanup_free_ char *top = oci_path(b, "oci");
    _cleanup_free_ char *now = oci_path(b, DISK);
    _cleanup_free_ char *next = oci_path(b, NEXT_DISK);
    _cleanup_close_ int dir = top ? open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    if (!top || !now || !next)
        return err_oom(e);
    if (renameat2(AT_FDCWD, next, AT_FDCWD, now, RENAME_EXCHANGE) < 0)
        return err_sys(e, errno, "exchange '%s' and '%s'", now, next);
    return dir < 0 || fsync(dir) < 0 ? err_sys(e, errno, "sync '%s'", top) : 0;
}

int oci_layers_restore(struct provider_box *b, const struct provider_source *source, struct err *e)
{
    struct oci_disk disk = {0}, want = {0};
    int r = oci_disk_load(b, &disk, e);

    if (r == 0)
        r = read_disk_facts(source->disk, &want, e);
    if (r == 0 && (want.uid != disk.uid || want.gid != disk.gid || !str_eq(want.user, disk.user)))
        r = err_field(e, ERR_PRECONDITION, "snapshot",
                      "the snapshot's user is '%s' (%u), and the box's is '%s' (%u)", want.user,
                      want.uid, disk.user, disk.uid);
    if (r == 0)
        r = make_over(b, NEXT_DISK, source->layers, &disk, e);
    if (r == 0)
        r = write_tag(b, source->tag, e);
    return r < 0 ? r : exchange_disks(b, e);
}

int oci_layers_has_restored(struct provider_box *b, const char *tag, struct err *e)
{
    _cleanup_free_ char *next = oci_path(b, NEXT_DISK);
    _cleanup_free_ char *path = oci_path(b, DISK "/" TAG);
    _cleanup_free_ char *text = NULL;
    struct err why = {0};
    int r = next && path ? io_read_file(AT_FDCWD, path, TAG_MAX_BYTES, &text, NULL, &why)
                         : err_oom(&why);

    if (r < 0 && r != -ERR_NOT_FOUND) {
        if (e)
            *e = why;
        return r;
    }
    r = dirtree_remove(next, e);
    return r < 0 ? r : text && str_eq(text, tag);
}

int oci_layers_trees(const struct provider_box *b, char ***ret, struct err *e)
{
    _cleanup_strv_ char **layers = NULL;
    _cleanup_strv_ char **trees = NULL;
    int r = oci_layers_load(b, DISK, &layers, e);

    if (r == 0)
        r = check_layers(b, layers, e);
    for (char **l = layers; r == 0 && *l; l++) {
        _cleanup_free_ char *tree = layer_tree_path(b->ctx, *l);

        r = tree ? strv_push(&trees, tree, e) : err_oom(e);
    }
    if (r == 0)
        *ret = TAKE(trees);
    return r;
}
