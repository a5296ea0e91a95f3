#include "lib/provider/oci/record.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/procfs.h"

#define RECORD_MAX_BYTES 65536
#define UNNAMED_USER "user" /* for a record of an earlier version, which names none */

char *oci_path(const struct provider_box *b, const char *name)
{
    char *path;

    return asprintf(&path, "%s/%s", b->dir, name) < 0 ? NULL : path;
}

static int load_json(const struct provider_box *b, const char *name, json_t **ret, struct err *e)
{
    _cleanup_free_ char *path = oci_path(b, name);
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r;

    if (!path)
        return err_oom(e);
    r = io_read_file(AT_FDCWD, path, RECORD_MAX_BYTES, &text, &len, e);
    if (r < 0)
        return r;
    return err_wrap(e, jx_parse(text, len, ret, e), "'%s'", path);
}

static int save_take(const struct provider_box *b, const char *name, json_t *obj, struct err *e)
{
    _cleanup_json_ json_t *owned = obj;
    _cleanup_free_ char *path = oci_path(b, name);
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r;

    if (!owned || !path)
        return err_oom(e);
    r = jx_dump(owned, &text, &len, e);
    if (r < 0)
        return r;
    return io_write_file(AT_FDCWD, path, text, len, 0600, true, e);
}

static uint64_t get_u64(json_t *obj, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(obj, key));

    return v > 0 ? (uint64_t)v : 0;
}

static void get_text(json_t *obj, const char *key, char *out, size_t out_bytes)
{
    const char *s = json_string_value(json_object_get(obj, key));

    (void)snprintf(out, out_bytes, "%s", s ? s : "");
}

int oci_disk_load(const struct provider_box *b, struct oci_disk *ret, struct err *e)
{
    _cleanup_json_ json_t *obj = NULL;
    int r;

    r = load_json(b, "oci/disk.json", &obj, e);
    if (r < 0)
        return r;
    ret->base = (uint32_t)get_u64(obj, "base");
    ret->uid = (uint32_t)get_u64(obj, "uid");
    ret->gid = (uint32_t)get_u64(obj, "gid");
    get_text(obj, "user", ret->user, sizeof(ret->user));
    if (!ret->user[0])
        (void)snprintf(ret->user, sizeof(ret->user), "%s", UNNAMED_USER);
    return 0;
}

int oci_disk_save(const struct provider_box *b, const struct oci_disk *disk, struct err *e)
{
    return save_take(b, "oci/disk.json",
                     json_pack("{s:I, s:I, s:I, s:s}", "base", (json_int_t)disk->base, "uid",
                               (json_int_t)disk->uid, "gid", (json_int_t)disk->gid, "user",
                               disk->user),
                     e);
}

static struct oci_proc get_proc(json_t *run, const char *key)
{
    json_t *obj = json_object_get(run, key);

    return (struct oci_proc){.pid = (pid_t)get_u64(obj, "pid"), .start = get_u64(obj, "start")};
}

static json_t *new_proc(const struct oci_proc *p)
{
    return json_pack("{s:I, s:I}", "pid", (json_int_t)p->pid, "start", (json_int_t)p->start);
}

int oci_run_load(const struct provider_box *b, struct oci_run *ret, struct err *e)
{
    _cleanup_json_ json_t *obj = NULL;
    int r;

    r = load_json(b, "run.json", &obj, e);
    if (r < 0)
        return r;
    *ret = (struct oci_run){0};
    get_text(obj, "runtime", ret->runtime, sizeof(ret->runtime));
    get_text(obj, "runtime_path", ret->runtime_path, sizeof(ret->runtime_path));
    get_text(obj, "container", ret->container, sizeof(ret->container));
    get_text(obj, "cgroup", ret->cgroup, sizeof(ret->cgroup));
    get_text(obj, "network", ret->network, sizeof(ret->network));
    get_text(obj, "lower", ret->lower, sizeof(ret->lower));
    get_text(obj, "network_program", ret->network_program, sizeof(ret->network_program));
    ret->network_filtered = json_is_true(json_object_get(obj, "network_filtered"));
    ret->is_started = json_is_true(json_object_get(obj, "started"));
    ret->init = get_proc(obj, "init");
    ret->listener = get_proc(obj, "listener");
    if (!ret->listener.pid) /* an earlier version wrote none */
        ret->listener = ret->init;
    ret->keeper = get_proc(obj, "keeper");
    ret->helper = get_proc(obj, "helper");
    return 0;
}

int oci_run_save(const struct provider_box *b, const struct oci_run *run, struct err *e)
{
    json_t *obj = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:b, s:o, s:o, s:o, s:o}",
                            "runtime", run->runtime, "runtime_path", run->runtime_path, "container",
                            run->container, "cgroup", run->cgroup, "network", run->network, "lower",
                            run->lower, "network_program", run->network_program, "network_filtered",
                            run->network_filtered, "started", run->is_started, "init",
                            new_proc(&run->init), "listener", new_proc(&run->listener), "keeper",
                            new_proc(&run->keeper), "helper", new_proc(&run->helper));

    return save_take(b, "run.json", obj, e);
}

int oci_run_remove(const struct provider_box *b, struct err *e)
{
    _cleanup_free_ char *path = oci_path(b, "run.json");

    if (!path)
        return err_oom(e);
    if (unlink(path) < 0 && errno != ENOENT)
        return err_sys(e, errno, "unlink '%s'", path);
    return 0;
}

int oci_proc_identify(pid_t pid, struct oci_proc *ret, struct err *e)
{
    uint64_t start = procfs_start_time(pid);

    if (!start)
        return err_set(e, ERR_NOT_FOUND, "process %d is not there", (int)pid);
    *ret = (struct oci_proc){.pid = pid, .start = start};
    return 0;
}

bool oci_proc_is_alive(const struct oci_proc *p)
{
    return procfs_is_alive(p->pid, p->start);
}

void oci_proc_signal(const struct oci_proc *p, int sig)
{
    (void)procfs_kill(p->pid, p->start, sig);
}

bool oci_proc_wait(const struct oci_proc *p, int timeout_ms)
{
    return procfs_wait_gone(p->pid, p->start, timeout_ms);
}

/* ---- layers.json ---- */

int oci_layers_load(const struct provider_box *b, const char *dir, char ***ret, struct err *e)
{
    static const struct jx_field fields[] = {
        {.name = "layers", .fn = jx_strv, .flags = JX_REQUIRED}, {0}};
    _cleanup_free_ char *name = path_join(dir, "layers.json");
    _cleanup_json_ json_t *obj = NULL;
    struct err why = {0};
    char **layers = NULL;
    int r = name ? load_json(b, name, &obj, &why) : err_oom(&why);

    if (r == 0)
        r = jx_decode_lax(obj, fields, &layers, &why);
    if (r == -ERR_NOT_FOUND) {
        layers = calloc(1, sizeof(*layers));
        r = layers ? 0 : err_oom(&why);
    }
    if (r < 0) {
        if (e)
            *e = why;
        return r;
    }
    *ret = layers;
    return 0;
}

int oci_layers_save(const struct provider_box *b, const char *dir, char *const *layers,
                    struct err *e)
{
    _cleanup_free_ char *name = path_join(dir, "layers.json");

    return name ? save_take(b, name, json_pack("{s:o}", "layers", jx_new_strv(layers)), e)
                : err_oom(e);
}
