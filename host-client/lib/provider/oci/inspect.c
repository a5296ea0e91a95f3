#include "lib/provider/oci/inspect.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"
#include "lib/provider/oci/bundle.h"
#include "lib/provider/oci/cgroup.h"
#include "lib/provider/oci/rootfs.h"

#define STATUS_MAX_BYTES 65536
#define SECCOMP_FILTER 2
/* The runtime returns a moment before the box's program is executed, with its seccomp filter. */
#define REQUIRE_WAIT_MS 15000
#define REQUIRE_POLL_MS 2

struct facts {
    bool user_ns, pid_ns, mount_ns, ipc_ns, uts_ns, net_ns;
    unsigned seccomp;
    bool no_new_privs;
    uint64_t cap_eff, cap_bnd;
    uint32_t first_uid, n_uids; /* the host's uid of the box's uid 0 */
    struct oci_limits limits;
};

/* ---- reading ---- */

static uint64_t status_value(const char *status, const char *key, int base)
{
    const char *p = strstr(status, key);
    uint64_t v = 0;

    if (p)
        (void)sscanf(p + strlen(key), base == 16 ? " %" SCNx64 : " %" SCNu64, &v);
    return v;
}

/* Is the process in another namespace of this kind than we are? */
static bool namespace_differs(pid_t pid, const char *kind)
{
    struct stat ours, theirs;
    char path[48];

    (void)snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
    if (stat(path, &ours) < 0)
        return false;
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, kind);
    return stat(path, &theirs) == 0 && ours.st_ino != theirs.st_ino;
}

static void read_uid_map(pid_t pid, struct facts *f)
{
    _cleanup_free_ char *text = NULL;
    char path[48];

    (void)snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
    if (io_read_file(AT_FDCWD, path, STATUS_MAX_BYTES, &text, NULL, NULL) == 0)
        (void)sscanf(text, "%*u %u %u", &f->first_uid, &f->n_uids);
}

static int read_facts(const struct oci_run *run, struct facts *f, struct err *e)
{
    _cleanup_free_ char *status = NULL;
    pid_t pid = run->init.pid;
    char path[48];
    int r;

    *f = (struct facts){0};
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    r = io_read_file(AT_FDCWD, path, STATUS_MAX_BYTES, &status, NULL, e);
    if (r < 0)
        return r;
    f->seccomp = (unsigned)status_value(status, "\nSeccomp:", 10);
    f->no_new_privs = status_value(status, "\nNoNewPrivs:", 10) == 1;
    f->cap_eff = status_value(status, "\nCapEff:", 16);
    f->cap_bnd = status_value(status, "\nCapBnd:", 16);
    f->user_ns = namespace_differs(pid, "user");
    f->pid_ns = namespace_differs(pid, "pid");
    f->mount_ns = namespace_differs(pid, "mnt");
    f->ipc_ns = namespace_differs(pid, "ipc");
    f->uts_ns = namespace_differs(pid, "uts");
    f->net_ns = namespace_differs(pid, "net");
    read_uid_map(pid, f);
    oci_cgroup_read(run->cgroup, &f->limits);
    return 0;
}

/* ---- what was asked for against what is there ---- */

struct piece {
    bool wanted;
    bool there;
};

static void compare_pieces(const struct spec *spec, const struct oci_run *run,
                           const struct facts *f, struct piece out[SPEC_N_PIECES])
{
    bool strict = oci_is_strict(spec);
    uint64_t allowed = strict ? 0 : oci_bundle_capabilities();
    /* The host sees gVisor's kernel with the privileges it needs; the box's own processes and
     * their capabilities exist only inside it. */
    bool gvisor = str_eq(run->runtime, "runsc");
    const struct piece pieces[SPEC_N_PIECES] = {
        [SPEC_USER_NAMESPACE] = {true, f->user_ns && f->first_uid != 0},
        [SPEC_PID_NAMESPACE] = {true, f->pid_ns || gvisor},
        [SPEC_MOUNT_NAMESPACE] = {true, f->mount_ns},
        [SPEC_IPC_NAMESPACE] = {true, f->ipc_ns},
        [SPEC_UTS_NAMESPACE] = {true, f->uts_ns},
        [SPEC_NETWORK_NAMESPACE] = {!str_eq(run->network, "host"), f->net_ns},
        [SPEC_SECCOMP] = {true, f->seccomp == SECCOMP_FILTER},
        [SPEC_NO_NEW_PRIVILEGES] = {strict, f->no_new_privs},
        [SPEC_CAPABILITIES] = {true, gvisor || !((f->cap_bnd | f->cap_eff) & ~allowed)},
        [SPEC_PIDS_LIMIT] = {spec->pids > 0, f->limits.pids && f->limits.pids <= spec->pids},
        [SPEC_MEMORY_LIMIT] = {spec->memory_bytes > 0,
                               f->limits.memory_bytes &&
                                   f->limits.memory_bytes <= spec->memory_bytes},
        [SPEC_CPU_LIMIT] = {spec->cpu_millis > 0,
                            f->limits.cpu_millis && f->limits.cpu_millis <= spec->cpu_millis},
        [SPEC_NETWORK_FILTER] = {str_eq(run->network, "user"), run->network_filtered},
    };

    memcpy(out, pieces, sizeof(pieces));
}

int oci_inspect_require(const struct provider_box *b, const struct oci_run *run, struct err *e)
{
    int64_t deadline = clock_mono_ms() + REQUIRE_WAIT_MS;
    struct piece pieces[SPEC_N_PIECES];
    struct facts f;

    for (;;) {
        const char *missing = NULL;
        int r;

        r = read_facts(run, &f, e);
        if (r < 0)
            return err_wrap(e, r, "the box ended at once");
        /* /proc says little of a dead process: that is no missing piece. */
        if (!oci_proc_is_alive(&run->init))
            return err_set(
                e, ERR_UNAVAILABLE,
                "the box's first process ended at once; its output is in '%s/console.log'", b->dir);
        compare_pieces(b->spec, run, &f, pieces);
        for (size_t i = 0; !missing && i < SPEC_N_PIECES; i++)
            if (pieces[i].wanted && !pieces[i].there && !oci_may_miss(b->spec, spec_pieces[i]))
                missing = spec_pieces[i];
        if (!missing)
            return 0;
        if (clock_mono_ms() >= deadline)
            return oci_missing(b->spec, missing, "read back from the kernel", e);
        (void)poll(NULL, 0, REQUIRE_POLL_MS);
    }
}

/* ---- as JSON ---- */

static json_t *new_isolation(const struct oci_run *run, const struct facts *f,
                             const struct piece pieces[SPEC_N_PIECES])
{
    json_t *obj = json_pack("{s:s, s:s, s:s}", "runtime", run->runtime, "lower", run->lower,
                            "kernel", str_eq(run->runtime, "runsc") ? "gvisor" : "host");
    char caps[24];
    int r = 0;

    for (size_t i = 0; i < SPEC_N_OF_PROCESS; i++)
        if (i != SPEC_CAPABILITIES)
            r |= json_object_set_new(obj, spec_pieces[i], json_boolean(pieces[i].there));
    (void)snprintf(caps, sizeof(caps), "%016" PRIx64, f->cap_bnd);
    r |= json_object_set_new(obj, "capabilities", json_string(caps));
    r |= json_object_set_new(obj, "first_uid", json_integer(f->first_uid));
    r |= json_object_set_new(obj, "uids", json_integer(f->n_uids));
    if (r == 0)
        return obj;
    json_decref(obj);
    return NULL;
}

static json_t *new_limit(uint64_t v)
{
    return v ? json_integer((json_int_t)v) : json_string("unlimited");
}

/* Names of the devices in the box's network namespace. */
static json_t *new_devices(pid_t pid)
{
    _cleanup_free_ char *text = NULL;
    json_t *list = json_array();
    char path[48];
    char *save = NULL;
    int n = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/net/dev", (int)pid);
    if (io_read_file(AT_FDCWD, path, STATUS_MAX_BYTES, &text, NULL, NULL) < 0)
        return list;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[32];

        if (n++ >= 2 && sscanf(line, " %31[^:]:", name) == 1) /* skip two header lines */
            (void)json_array_append_new(list, json_string(name));
    }
    return list;
}

/* Names the enforcer of the disk limit: the kernel, or the monitor by counting. */
static json_t *new_disk_by(const struct provider_box *b, const struct facts *f)
{
    _cleanup_free_ char *dir = oci_path(b, "oci/disk");

    if (!b->spec->disk_bytes)
        return json_string("nobody");
    return json_string(dir && oci_quota_holds(dir, f->first_uid) ? "quota" : "monitor");
}

static json_t *new_missing(const struct piece pieces[SPEC_N_PIECES])
{
    json_t *list = json_array();

    for (size_t i = 0; i < SPEC_N_PIECES; i++)
        if (pieces[i].wanted && !pieces[i].there)
            (void)json_array_append_new(list, json_string(spec_pieces[i]));
    return list;
}

int oci_inspect(const struct provider_box *b, const struct oci_run *run, json_t **ret,
                struct err *e)
{
    struct piece pieces[SPEC_N_PIECES];
    struct facts f;
    json_t *obj;
    int r;

    r = read_facts(run, &f, e);
    if (r < 0)
        return r;
    compare_pieces(b->spec, run, &f, pieces);
    obj = json_pack(
        "{s:o, s:{s:o, s:o, s:o, s:o, s:o}, s:{s:o}, s:{s:s, s:s, s:b, s:o}, s:o}", "isolation",
        new_isolation(run, &f, pieces), "limits", "pids", new_limit(f.limits.pids), "memory_bytes",
        new_limit(f.limits.memory_bytes), "cpu_millis", new_limit(f.limits.cpu_millis),
        "disk_bytes", new_limit(b->spec->disk_bytes), "disk_limited_by", new_disk_by(b, &f), "used",
        "memory_bytes", json_integer((json_int_t)oci_cgroup_memory_used(run->cgroup)), "network",
        "mode", run->network, "program", run->network_program, "filtered", run->network_filtered,
        "devices", new_devices(run->init.pid), "missing", new_missing(pieces));
    if (!obj)
        return err_oom(e);
    *ret = obj;
    return 0;
}
