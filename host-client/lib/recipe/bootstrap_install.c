#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/recipe/bootstrap_guest.h"
#include "lib/recipe/bootstrap_run.h"
#include "lib/recipe/npm.h"

#define PROGRESS_STEP_BYTES (1024 * 1024)

/* ---- what the box is ---- */

static int box_arch(struct bootstrap *b, int64_t deadline, char out[32], struct err *e)
{
    _cleanup_json_ json_t *reply = NULL;
    const char *arch = NULL;
    int r = client_call(b->req->client, RPC_system_info, NULL, deadline, &reply, e);

    if (r < 0)
        return r;
    (void)json_unpack(reply, "{s:{s:s}}", "platform", "arch", &arch);
    if (!arch)
        return err_set(e, ERR_DATA_LOSS, "the guest agent does not say what processor it has");
    (void)snprintf(out, 32, "%s", arch);
    return 0;
}

/* 1: the box's processor has the flag; 0: it has not. */
static int box_has_cpu_flag(struct bootstrap *b, const char *flag, int64_t deadline, struct err *e)
{
    _cleanup_json_ json_t *argv =
        json_pack("[s, s, s, s, s]", "grep", "-qwF", "--", flag, "/proc/cpuinfo");
    struct guest_run run = {0};
    int r = argv ? guest_run(b->req->client, argv, NULL, "/", deadline, &run, e) : err_oom(e);

    if (r < 0)
        return r;
    r = run.status == 0;
    guest_run_done(&run);
    return r;
}

/* Takes the first row that fits. */
static int choose_package(struct bootstrap *b, const struct recipe_npm *rows, size_t n,
                          const char *arch, int64_t deadline, const struct recipe_npm **ret,
                          struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        const struct recipe_npm *row = &rows[i];
        int r = 1;

        if (*row->arch && !str_eq(row->arch, arch))
            continue;
        if (*row->cpu)
            r = box_has_cpu_flag(b, row->cpu, deadline, e);
        if (r < 0)
            return r;
        if (r > 0) {
            *ret = row;
            return 0;
        }
    }
    return err_set(e, ERR_UNIMPLEMENTED, "%s has no package for %s", b->rec.recipe.name, arch);
}

/* ---- sending an archive of the cache ---- */

struct sending {
    struct bh_ctx *ctx;
    const char *label;
    int fd;
    uint64_t done, total, reported;
};

static int64_t read_archive(void *arg, char *out, size_t max, struct err *e)
{
    struct sending *s = arg;
    ssize_t n;

    do
        n = read(s->fd, out, max);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_sys(e, errno, "read the package");
    s->done += (uint64_t)n;
    if (s->done - s->reported >= PROGRESS_STEP_BYTES) {
        ctx_progress(s->ctx, "install", s->done, s->total, false, "sending %s", s->label);
        s->reported = s->done;
    }
    return n;
}

static int send_archive(struct bootstrap *b, const char *path, const char *into, int64_t deadline,
                        struct err *e)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct sending s = {.ctx = b->req->ctx, .label = b->rec.recipe.name, .fd = fd};
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "open '%s'", path);
    s.total = (uint64_t)st.st_size;
    return client_put_archive(b->req->client, into, "mode=replace", read_archive, &s, deadline,
                              NULL, e);
}

/* ---- npm ---- */

static int fetch_agent(struct bootstrap *b, struct npm *npm, int64_t deadline, char **ret_path,
                       struct err *e)
{
    const struct recipe *rec = &b->rec.recipe;
    bool is_own = str_eq(rec->version, rec->own_version);
    const struct recipe_npm *row = NULL;
    _cleanup_free_ char *lock = NULL;
    char arch[32];
    int r = box_arch(b, deadline, arch, e);

    if (r < 0)
        return r;
    if (rec->npm_lock) {
        lock = path_join(rec->dir, rec->npm_lock);
        return lock ? npm_fetch_tree(npm, lock, is_own ? NULL : rec->version, arch, ret_path, e)
                    : err_oom(e);
    }
    r = choose_package(b, rec->npm, rec->n_npm, arch, deadline, &row, e);
    return r < 0 ? r
                 : npm_fetch(npm, row->package, rec->version, is_own ? row->integrity : NULL,
                             ret_path, e);
}

static int install_npm(struct bootstrap *b, int64_t deadline, struct err *e)
{
    _cleanup_free_ char *path = NULL;
    struct npm *npm = NULL;
    int r = npm_new(b->req->ctx, deadline, &npm, e);

    if (r == 0)
        r = fetch_agent(b, npm, deadline, &path, e);
    npm_free(npm);
    return r < 0 ? r : send_archive(b, path, b->install, deadline, e);
}

/* ---- Node.js ---- */

int bootstrap_has_node(struct bootstrap *b, int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_json_ json_t *argv = json_pack("[s, s]", "node", "--version");
    struct guest_run run = {0};
    struct err why = {0};
    int r = argv ? guest_run(b->req->client, argv, b->env, "/", deadline_mono_ms, &run, &why)
                 : err_oom(&why);

    if (r == -ERR_NOT_FOUND || r == -ERR_DENIED)
        return 0;
    if (r < 0) {
        if (e)
            *e = why;
        return r;
    }
    r = run.status == 0;
    guest_run_done(&run);
    return r;
}

/* Installs npm's build in a box without Node.js, in the first directory of the recipe's PATH. */
static int install_node(struct bootstrap *b, int64_t deadline, struct err *e)
{
    const struct recipe *rec = &b->rec.recipe;
    const struct recipe_npm *row = NULL;
    _cleanup_free_ char *path = NULL;
    _cleanup_free_ char *into = NULL;
    struct npm *npm = NULL;
    char arch[32];
    int r = bootstrap_has_node(b, deadline, e);

    if (r)
        return r < 0 ? r : 0;
    if (asprintf(&into, "%s/.bellhop/node", b->home) < 0)
        return err_oom(e);
    r = box_arch(b, deadline, arch, e);
    if (r == 0)
        r = choose_package(b, rec->node, rec->n_node, arch, deadline, &row, e);
    if (r == 0)
        r = npm_new(b->req->ctx, deadline, &npm, e);
    if (r == 0)
        r = npm_fetch(npm, row->package, rec->node_version, row->integrity, &path, e);
    npm_free(npm);
    return r < 0 ? r : send_archive(b, path, into, deadline, e);
}

int bootstrap_install(struct bootstrap *b, int64_t deadline_mono_ms, struct err *e)
{
    const struct recipe *rec = &b->rec.recipe;
    json_t *argv;
    size_t i;
    int r = 0;

    if (rec->n_node)
        r = install_node(b, deadline_mono_ms, e);
    if (r == 0 && !b->has_layer && (rec->n_npm || rec->npm_lock))
        r = install_npm(b, deadline_mono_ms, e);
    if (r < 0)
        return r;
    json_array_foreach (rec->install_argvs, i, argv) {
        r = bootstrap_command(b, argv, deadline_mono_ms, e);
        if (r < 0)
            return r;
    }
    return 0;
}
