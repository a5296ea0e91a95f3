#include "lib/provider/oci/runtime.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/util/beneath.h"
#include "lib/provider/oci/oci.h"
#include "lib/provider/oci/bundle.h"
#include "lib/provider/freezer.h"
#include "lib/provider/oci/cgroup.h"
#include "lib/provider/oci/runtime_exec.h"

#define MAX_ARGS 24
#define PROBE_TIMEOUT_MS 10000
#define PROBE_CACHE_MS 30000
#define CACHE_MAX_BYTES 65536
#define LOG_MAX_BYTES ((size_t)1 << 20)
#define WHY_BYTES 256
#define STATUS_SIGNAL 128 /* above it: the program was killed by status - 128 */

static const char *const runtime_names[] = {"runc", "crun", "runsc"};

/* ---- command lines ---- */

struct args {
    const char *v[MAX_ARGS];
    size_t n;
};

static void add_arg(struct args *a, const char *arg)
{
    if (a->n + 1 < MAX_ARGS)
        a->v[a->n++] = arg;
}

/* Adds the options before the command. runsc: no sandbox network (it wants a namespace of its
 * own) but the stack of the namespace that it starts in; the box's unix sockets are made on the
 * host. */
static void add_globals(struct args *a, const struct oci_container *c)
{
    const char *name = c->runtime->name;

    add_arg(a, c->runtime->path);
    add_arg(a, "--root");
    add_arg(a, c->state_dir);
    if (c->log_path) {
        add_arg(a, "--log");
        add_arg(a, c->log_path);
    }
    if (str_eq(name, "crun"))
        add_arg(a, "--cgroup-manager=cgroupfs");
    if (str_eq(name, "runsc")) {
        add_arg(a, "--platform=systrap");
        add_arg(a, "--ignore-cgroups");
        add_arg(a, "--host-uds=create");
        /* The box's writes go to its disk, not to a file that the next start cannot use. A
         * fault of gVisor's shows then: `ls -l` of a symbolic link says "Bad file descriptor". */
        add_arg(a, "--overlay2=none");
        add_arg(a, str_eq(c->network, "none") ? "--network=none" : "--network=host");
    }
}

static int64_t time_left(const struct oci_container *c)
{
    return c->deadline_mono_ms ? clock_until_ms(c->deadline_mono_ms) : OCI_COMMAND_TIMEOUT_MS;
}

static int run_runtime(const struct oci_container *c, const struct args *a, struct oci_output *out,
                       struct err *e)
{
    const struct oci_cmd cmd = {
        .argv = a->v, .stdio_fd = -1, .timeout_ms = time_left(c), .cancel_fd = c->cancel_fd};

    return oci_exec(&cmd, out, e);
}

/* ---- containers ---- */

/* The last line of the runtime's log, which is the cause. The log is text or JSON. */
static void last_log_line(const char *path, char *out, size_t out_bytes)
{
    _cleanup_free_ char *text = NULL;
    size_t len;
    char *line, *msg;

    out[0] = '\0';
    if (!path || io_read_file(AT_FDCWD, path, LOG_MAX_BYTES, &text, &len, NULL) < 0)
        return;
    while (len && text[len - 1] == '\n')
        text[--len] = '\0';
    line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    msg = strstr(line, "msg=");
    oci_one_line(msg ? msg + 4 : line, out, out_bytes);
}

static int read_pid(const char *path, pid_t *ret, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    uint64_t pid;
    size_t len;
    int r;

    r = io_read_file(AT_FDCWD, path, 64, &text, &len, e);
    if (r < 0)
        return r;
    while (len && text[len - 1] == '\n')
        text[--len] = '\0';
    r = str_parse_u64(text, 2, INT32_MAX, &pid, e);
    if (r == 0)
        *ret = (pid_t)pid;
    return r;
}

int oci_runtime_create(const struct oci_container *c, const char *bundle, int console_fd,
                       struct oci_stage *stage, pid_t *ret_pid, struct err *e)
{
    _cleanup_free_ char *pid_path = NULL;
    _cleanup_free_ char *pid_tmp = NULL;
    struct oci_output out;
    struct args a = {.n = 0};
    struct oci_cmd cmd = {.argv = a.v,
                          .stdio_fd = console_fd,
                          .setup = oci_stage_enter,
                          .setup_arg = stage,
                          .timeout_ms = time_left(c),
                          .cancel_fd = c->cancel_fd};
    char why[300];
    int r;

    if (asprintf(&pid_path, "%s/pid", bundle) < 0 || asprintf(&pid_tmp, "%s/.pid", bundle) < 0)
        return err_oom(e);
    (void)unlink(pid_path);
    (void)unlink(pid_tmp); /* of a runc that was killed while writing; runc does not overwrite it */
    add_globals(&a, c);
    add_arg(&a, "create");
    add_arg(&a, "--bundle");
    add_arg(&a, bundle);
    add_arg(&a, "--pid-file");
    add_arg(&a, pid_path);
    add_arg(&a, c->id);
    r = oci_exec(&cmd, &out, e);
    if (r < 0)
        return r;
    if (out.status) {
        last_log_line(c->log_path, why, sizeof(why));
        return err_set(e, ERR_INTERNAL, "%s could not create the box: %s", c->runtime->name, why);
    }
    return read_pid(pid_path, ret_pid, e);
}

int oci_runtime_delete(const struct oci_container *c, struct err *e)
{
    struct oci_output out;
    struct args a = {.n = 0};
    char why[300];
    int r;

    if (access(c->state_dir, F_OK) < 0)
        return 0;
    add_globals(&a, c);
    add_arg(&a, "delete");
    add_arg(&a, "--force");
    add_arg(&a, c->id);
    r = run_runtime(c, &a, &out, e);
    if (r < 0 || out.status == 0)
        return r;
    oci_one_line(out.text, why, sizeof(why));
    return err_set(e, ERR_INTERNAL, "%s could not delete the box: %s", c->runtime->name, why);
}

int oci_runtime_command(const struct oci_container *c, const char *command, struct err *e)
{
    struct oci_output out;
    struct args a = {.n = 0};
    char why[300];
    int r;

    add_globals(&a, c);
    add_arg(&a, command);
    add_arg(&a, c->id);
    r = run_runtime(c, &a, &out, e);
    if (r < 0 || out.status == 0)
        return r;
    oci_one_line(out.text, why, sizeof(why));
    return err_set(e, ERR_INTERNAL, "%s could not %s the box: %s", c->runtime->name, command, why);
}

/* ---- the probe ---- */

/* Does the program need a loader? A file that is no ELF counts as one that does. */
static bool is_dynamic(const char *path)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    Elf64_Ehdr head;
    Elf64_Phdr ph;

    if (fd < 0 || pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phentsize != sizeof(ph))
        return true;
    for (int i = 0; i < head.e_phnum; i++) {
        off_t at = (off_t)head.e_phoff + i * (off_t)sizeof(ph);

        if (pread(fd, &ph, sizeof(ph), at) != (ssize_t)sizeof(ph) || ph.p_type == PT_INTERP)
            return true;
    }
    return false;
}

static int copy_probe_file(const char *from, const char *to, struct err *e)
{
    _cleanup_close_ int in = open(from, O_RDONLY | O_CLOEXEC);
    _cleanup_close_ int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    struct stat st;

    if (in < 0)
        return err_sys(e, errno, "open '%s'", from);
    if (out < 0)
        return err_sys(e, errno, "create '%s'", to);
    if (fstat(in, &st) < 0)
        return err_sys(e, errno, "stat '%s'", from);
    while (st.st_size > 0) {
        ssize_t n = sendfile(out, in, NULL, (size_t)st.st_size);

        if (n <= 0)
            return err_sys(e, n < 0 ? errno : EIO, "copy '%s'", from);
        st.st_size -= n;
    }
    return 0;
}

static int probe_files(struct bh_ctx *ctx, const char *dir, const char *cgroup, struct err *e)
{
    static const char *const argv[] = {"/bellhopd", "--version", NULL};
    _cleanup_free_ char *rootfs = NULL;
    _cleanup_free_ char *program = NULL;
    int r;

    if (asprintf(&rootfs, "%s/rootfs", dir) < 0 || asprintf(&program, "%s/bellhopd", rootfs) < 0)
        return err_oom(e);
    if (mkdir(rootfs, 0755) < 0)
        return err_sys(e, errno, "mkdir '%s'", rootfs);
    r = copy_probe_file(ctx->agent_path, program, e);
    if (r < 0)
        return r;
    return oci_bundle_write_probe(dir, rootfs, argv, is_dynamic(ctx->agent_path), cgroup, e);
}

/* 1: somebody killed it, which tells about this run alone; a runtime reports its box's signal as a shell does. */
static int probe_run(const struct oci_container *c, const char *dir, char why[WHY_BYTES],
                     struct err *e)
{
    struct oci_output out;
    struct args a = {.n = 0};
    struct oci_cmd cmd = {
        .argv = a.v, .stdio_fd = -1, .timeout_ms = PROBE_TIMEOUT_MS, .cancel_fd = c->cancel_fd};
    struct err failed = {0};
    int r;

    add_globals(&a, c);
    add_arg(&a, "run");
    add_arg(&a, "--bundle");
    add_arg(&a, dir);
    add_arg(&a, c->id);
    r = oci_exec(&cmd, &out, &failed);
    if (r == -ERR_CANCELED)
        return err_set(e, ERR_CANCELED, "%s", failed.message);
    if (r < 0) {
        (void)snprintf(why, WHY_BYTES, "%s", failed.message);
        return 0;
    }
    if (out.status)
        oci_one_line(out.text, why, WHY_BYTES);
    if (out.status && !why[0])
        (void)snprintf(why, WHY_BYTES, "a test box ended with status %d", out.status);
    if (!out.status && !strstr(out.text, "bellhopd"))
        (void)snprintf(why, WHY_BYTES, "a test box did not print what it should");
    return out.status > STATUS_SIGNAL;
}

static int probe_in(struct bh_ctx *ctx, const struct oci_runtime *rt, const char *dir,
                    char why[WHY_BYTES], struct err *e)
{
    _cleanup_free_ char *state = NULL;
    char cgroup[FREEZER_NAME_BYTES];
    struct oci_container c = {.runtime = rt, .network = "none", .cancel_fd = ctx->cancel_fd};
    int r;

    c.id = strrchr(dir, '/') + 1;
    if (asprintf(&state, "%s/state", dir) < 0)
        return err_oom(e);
    c.state_dir = state;
    freezer_name(ctx->state_dir, c.id, cgroup);
    r = probe_files(ctx, dir, cgroup, e);
    if (r == 0)
        r = probe_run(&c, dir, why, e);
    (void)oci_runtime_delete(&c, NULL);
    (void)oci_cgroup_remove(cgroup, OCI_COMMAND_TIMEOUT_MS, NULL);
    return r;
}

/* why "" : it works. 1: it does not, but only this time. */
static int probe_runtime(struct bh_ctx *ctx, const struct oci_runtime *rt, char why[WHY_BYTES],
                         struct err *e)
{
    _cleanup_free_ char *dir = NULL;
    int r;

    why[0] = '\0';
    if (access(ctx->agent_path, R_OK) < 0)
        return err_field(e, ERR_PRECONDITION, "agent-path", "the guest agent '%s' is not there",
                         ctx->agent_path);
    if (asprintf(&dir, "%s/probe-XXXXXX", ctx->cache_dir) < 0)
        return err_oom(e);
    r = io_mkdir_p(ctx->cache_dir, 0700, e);
    if (r < 0)
        return r;
    if (!mkdtemp(dir))
        return err_sys(e, errno, "make a directory in '%s'", ctx->cache_dir);
    r = probe_in(ctx, rt, dir, why, e);
    (void)dirtree_remove(dir, NULL);
    return r;
}

/* ---- its result, kept for a moment: {"runc":{"key","why","at"}} ---- */

enum belief { BELIEVE_ALL, BELIEVE_SUCCESS };

static int64_t mtime_of(const char *path)
{
    struct stat st;

    return stat(path, &st) < 0 ? 0
                               : (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
}

static void cache_key(struct bh_ctx *ctx, const struct oci_runtime *rt, char *out, size_t bytes)
{
    (void)snprintf(out, bytes, "%s %lld %lld", rt->path, (long long)mtime_of(rt->path),
                   (long long)mtime_of(ctx->agent_path));
}

static json_t *cache_load(const char *path)
{
    _cleanup_free_ char *text = NULL;
    json_t *obj = NULL;
    size_t len;

    if (io_read_file(AT_FDCWD, path, CACHE_MAX_BYTES, &text, &len, NULL) < 0 ||
        jx_parse(text, len, &obj, NULL) < 0 || !json_is_object(obj)) {
        json_decref(obj);
        return json_object();
    }
    return obj;
}

static bool cache_get(json_t *cache, const struct oci_runtime *rt, const char *key,
                      enum belief belief, char why[WHY_BYTES])
{
    json_t *row = json_object_get(cache, rt->name);
    const char *k = json_string_value(json_object_get(row, "key"));
    const char *w = json_string_value(json_object_get(row, "why"));
    int64_t age = clock_real_ms() - json_integer_value(json_object_get(row, "at"));

    if (!k || !w || !str_eq(k, key) || age < 0 || age > PROBE_CACHE_MS ||
        (*w && belief == BELIEVE_SUCCESS))
        return false;
    (void)snprintf(why, WHY_BYTES, "%s", w);
    return true;
}

static void cache_put(const char *path, json_t *cache, const struct oci_runtime *rt,
                      const char *key, const char *why)
{
    _cleanup_free_ char *text = NULL;
    size_t len;

    if (json_object_set_new(cache, rt->name,
                            json_pack("{s:s, s:s, s:I}", "key", key, "why", why, "at",
                                      (json_int_t)clock_real_ms())) == 0 &&
        jx_dump(cache, &text, &len, NULL) == 0)
        (void)io_write_file(AT_FDCWD, path, text, len, 0600, false, NULL);
}

static int probe_cached(struct bh_ctx *ctx, const struct oci_runtime *rt, enum belief belief,
                        char why[WHY_BYTES], struct err *e)
{
    _cleanup_free_ char *path = NULL;
    _cleanup_json_ json_t *cache = NULL;
    char key[512];
    int r;

    if (asprintf(&path, "%s/oci-probe.json", ctx->cache_dir) < 0)
        return err_oom(e);
    cache = cache_load(path);
    cache_key(ctx, rt, key, sizeof(key));
    if (cache_get(cache, rt, key, belief, why))
        return 0;
    r = probe_runtime(ctx, rt, why, e);
    if (r == 0)
        cache_put(path, cache, rt, key, why);
    return r < 0 ? r : 0;
}

/* ---- the choice ---- */

/* why "" : *ret works. */
static int try_runtime(struct bh_ctx *ctx, const char *name, enum belief belief,
                       struct oci_runtime *ret, char why[WHY_BYTES], struct err *e)
{
    _cleanup_free_ char *path = oci_find_program(name);

    if (!path || strlen(path) >= sizeof(ret->path)) {
        (void)snprintf(why, WHY_BYTES, "it is not installed");
        return 0;
    }
    (void)snprintf(ret->name, sizeof(ret->name), "%s", name);
    (void)snprintf(ret->path, sizeof(ret->path), "%s", path);
    return probe_cached(ctx, ret, belief, why, e);
}

static bool is_known_runtime(const char *name)
{
    for (size_t i = 0; i < N_ELEMENTS(runtime_names); i++)
        if (str_eq(runtime_names[i], name))
            return true;
    return false;
}

static int choose_named(struct bh_ctx *ctx, const char *name, enum belief belief,
                        struct oci_runtime *ret, struct err *e)
{
    char why[WHY_BYTES] = "";
    int r;

    if (!is_known_runtime(name))
        return err_field(e, ERR_INVALID, "runtime", "unknown runtime '%s': runc, crun or runsc",
                         name);
    r = try_runtime(ctx, name, belief, ret, why, e);
    if (r < 0)
        return r;
    if (why[0])
        return err_field(e, ERR_PRECONDITION, "runtime", "the runtime '%s' does not work here: %s",
                         name, why);
    return 0;
}

static int choose_runtime(struct bh_ctx *ctx, const char *name, enum belief belief,
                          struct oci_runtime *ret, struct err *e)
{
    char all[ERR_MESSAGE_BYTES - 64] = "";

    if (name[0])
        return choose_named(ctx, name, belief, ret, e);
    for (size_t i = 0; i < N_ELEMENTS(runtime_names); i++) {
        char why[WHY_BYTES] = "";
        size_t used = strlen(all);
        int r;

        r = try_runtime(ctx, runtime_names[i], belief, ret, why, e);
        if (r < 0)
            return r;
        if (!why[0])
            return 0;
        (void)snprintf(all + used, sizeof(all) - used, "%s%s: %.120s", used ? "; " : "",
                       runtime_names[i], why);
    }
    return err_field(e, ERR_PRECONDITION, "runtime", "no runtime works here: %s", all);
}

int oci_runtime_choose(struct bh_ctx *ctx, const char *name, struct oci_runtime *ret, struct err *e)
{
    return choose_runtime(ctx, name, BELIEVE_ALL, ret, e);
}

int oci_runtime_require(struct bh_ctx *ctx, const char *name, struct oci_runtime *ret,
                        struct err *e)
{
    struct err why = {0};
    int r = choose_runtime(ctx, name, BELIEVE_ALL, ret, &why);

    if (r == -ERR_PRECONDITION)
        return choose_runtime(ctx, name, BELIEVE_SUCCESS, ret, e);
    if (r < 0 && e)
        *e = why;
    return r;
}
