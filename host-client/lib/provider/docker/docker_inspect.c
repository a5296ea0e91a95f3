/* docker_inspect: the isolation and limits of a container: read back from the kernel where its processes are on this
 * machine, else "unknown": what an engine was asked for is no proof. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/provider/docker/docker.h"
#include "lib/util/procfs.h"

#define STATUS_BYTES 65536
#define SECCOMP_FILTER 2

static uint64_t status_number(const char *status, const char *key, int base)
{
    const char *p = strstr(status, key);
    uint64_t v = 0;

    if (p)
        (void)sscanf(p + strlen(key), base == 16 ? " %" SCNx64 : " %" SCNu64, &v);
    return v;
}

static bool has_own_namespace(pid_t pid, const char *kind)
{
    struct stat ours, theirs;
    char path[48];

    (void)snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
    if (stat(path, &ours) < 0)
        return false;
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, kind);
    return stat(path, &theirs) == 0 && ours.st_ino != theirs.st_ino;
}

static json_t *read_kernel_isolation(pid_t pid)
{
    _cleanup_free_ char *status = NULL;
    char path[48], caps[24];

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    if (io_read_file(AT_FDCWD, path, STATUS_BYTES, &status, NULL, NULL) < 0)
        return NULL;
    (void)snprintf(caps, sizeof(caps), "%016" PRIx64, status_number(status, "\nCapBnd:", 16));
    return json_pack(
        "{s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:s}", "user_namespace",
        (int)has_own_namespace(pid, "user"), "pid_namespace", (int)has_own_namespace(pid, "pid"),
        "mount_namespace", (int)has_own_namespace(pid, "mnt"), "ipc_namespace",
        (int)has_own_namespace(pid, "ipc"), "uts_namespace", (int)has_own_namespace(pid, "uts"),
        "network_namespace", (int)has_own_namespace(pid, "net"), "seccomp",
        status_number(status, "\nSeccomp:", 10) == SECCOMP_FILTER, "no_new_privileges",
        status_number(status, "\nNoNewPrivs:", 10) == 1, "capabilities", caps);
}

/* NULL: the processes are not on this machine, or have ended, and the pid may have been another's. */
static json_t *new_kernel_isolation(const struct docker_container *c)
{
    struct docker_process p = docker_own_process(c);
    json_t *obj = p.pid ? read_kernel_isolation(p.pid) : NULL;

    if (obj && !procfs_is_alive(p.pid, p.start)) {
        json_decref(obj);
        obj = NULL;
    }
    return obj;
}

static json_t *new_isolation(const struct docker_facts *f, const struct docker_container *c,
                             bool is_local, const struct spec *spec)
{
    json_t *obj = is_local ? new_kernel_isolation(c) : NULL;
    json_t *host = json_object_get(c->doc, "HostConfig");
    const char *runtime = json_string_value(json_object_get(host, "Runtime"));

    if (!obj)
        obj = provider_unknown_isolation();
    if (!runtime || !*runtime || f->is_podman) /* its word is always "oci" */
        runtime = *spec->runtime ? spec->runtime : f->default_runtime;
    (void)json_object_set_new(obj, "runtime", json_string(runtime));
    (void)json_object_set_new(obj, "kernel",
                              json_string(str_eq(runtime, "runsc") ? "gvisor" : "engine"));
    (void)json_object_set_new(obj, "read_only_root",
                              json_boolean(json_is_true(json_object_get(host, "ReadonlyRootfs"))));
    return obj;
}

static json_t *new_limit(json_t *host, const char *key, json_int_t divisor)
{
    json_int_t v = json_integer_value(json_object_get(host, key));

    return v > 0 ? json_integer(v / divisor) : json_string("unlimited");
}

static json_t *new_engine(const struct docker_facts *f, const struct provider_box *b)
{
    json_t *cgroup = f->cgroup_version ? json_integer(f->cgroup_version) : json_string("unknown");

    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:o, s:b, s:s, s:O*, s:O*}", "kind",
                     f->is_podman ? "podman" : "docker", "address", b->spec->engine, "name",
                     f->name, "version", f->version, "rootless", (int)f->is_rootless,
                     "cgroup_version", cgroup, "user_namespace",
                     (int)(f->has_userns || f->is_rootless), "default_runtime", f->default_runtime,
                     "runtimes", f->runtimes, "security_options", f->security);
}

/* Limits are the engine's words; the isolation is the kernel's where it can be read. */
static int describe_container(const struct provider_box *b, const struct docker_facts *f,
                              const struct docker_container *c, bool is_local, json_t **ret,
                              struct err *e)
{
    json_t *host = json_object_get(c->doc, "HostConfig");

    *ret = json_pack("{s:o, s:{s:o, s:o, s:o, s:s}, s:{s:s, s:b}, s:[], s:o}", "isolation",
                     new_isolation(f, c, is_local, b->spec), "limits", "pids",
                     new_limit(host, "PidsLimit", 1), "memory_bytes", new_limit(host, "Memory", 1),
                     "cpu_millis", new_limit(host, "NanoCpus", 1000000), "disk_bytes", "unlimited",
                     "network", "mode", b->spec->network, "filtered", 0, "missing", "engine",
                     new_engine(f, b));
    return *ret ? 0 : err_oom(e);
}

int docker_inspect(struct provider_box *b, json_t **ret, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_facts facts = {0};
    struct docker_container c = {0};
    int r = docker_open_container(b, &d, &c, e);

    if (r == 0 || (r == 1 && !c.is_running))
        r = err_set(e, ERR_PRECONDITION, "the box is not running");
    if (r == 1)
        r = docker_read_facts(d, &facts, e);
    if (r == 0)
        r = describe_container(b, &facts, &c, engine_is_local(d), ret, e);
    docker_facts_done(&facts);
    docker_container_done(&c);
    return r;
}
