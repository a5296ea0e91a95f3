/* compose: POST /files/compose: several files become one, in their order, and are gone. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/dialect.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "dialect/e2b/file_paths.h"
#include "dialect/e2b/put.h"
#include "dialect/e2b/rest_routes.h"
#include "http/respond.h"
#include "fs/write.h"

#define COMPOSE_MAX_SOURCES 10000
#define COPY_BYTES (128 * 1024)
#define RANGE_BYTES (1u << 30) /* copied by one system call */
#define RANDOM_BYTES 16

struct compose_params {
    char **sources;
    const char *destination;
    const char *username;
};

static const struct jx_field compose_fields[] = {
    JX_AS("source_paths", struct compose_params, sources, jx_strv, JX_NULLABLE),
    JX(struct compose_params, destination, jx_str, JX_NULLABLE),
    JX(struct compose_params, username, jx_str, JX_NULLABLE),
    {0},
};

struct compose {
    struct files_call call; /* path: the destination */
    char **sources;         /* resolved */
    int dirfd;              /* the destination's directory, and its name there */
    char *name;
    char *temp; /* its name while it is being made; NULL: there is none */
    int fd;
};

static void compose_done(struct compose *c)
{
    if (c->temp)
        (void)unlinkat(c->dirfd, c->temp, 0);
    fd_close(c->fd);
    fd_close(c->dirfd);
    free(c->temp);
    free(c->name);
    strv_free(c->sources);
    files_call_done(&c->call);
}

static int check_source(struct compose *c, const char *asked, const char *path, struct err *e)
{
    _cleanup_free_ char *cleaned = path_clean(path);
    _cleanup_free_ char *destination = path_clean(c->call.path);
    _cleanup_close_ int fd = -1;
    struct stat st;

    if (!cleaned || !destination)
        return err_oom(e);
    if (strcmp(cleaned, destination) == 0)
        return err_set(e, ERR_INVALID, "source path \"%.200s\" cannot be the same as destination",
                       asked);
    if (fs_open(c->call.caller, path, O_PATH, 0, &fd, NULL) < 0 || fstat(fd, &st) < 0)
        return err_set(e, ERR_NOT_FOUND, "source file not found: %.200s", asked);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "source path is not a regular file: %.200s", asked);
    return 0;
}

static int check_sources(struct compose *c, char **asked, struct err *e)
{
    for (char **s = asked; *s; s++) {
        _cleanup_free_ char *path = NULL;
        int r = files_call_path(&c->call, *s, &path, e);

        if (r < 0)
            return err_wrap(e, r, "error resolving source path \"%.200s\"", *s);
        r = check_source(c, *s, path, e);
        if (r == 0)
            r = strv_push(&c->sources, path, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int no_room(struct err *e)
{
    int r = err_set(e, ERR_EXHAUSTED, "not enough disk space available");

    if (e)
        e->sys = ENOSPC;
    return r;
}

static int open_temp(struct compose *c, struct err *e)
{
    char random[2 * RANDOM_BYTES + 1];
    int r = dirs_make_parents(c->call.caller, c->call.path, &c->call.owner, e);

    if (r < 0)
        return err_wrap(e, r, "error ensuring directories");
    r = fs_open_parent(c->call.caller, c->call.path, &c->dirfd, &c->name, e);
    if (r == 0)
        r = io_random_hex(RANDOM_BYTES, random, e);
    if (r < 0)
        return r;
    if (asprintf(&c->temp, "%.200s.e2b-compose.%s.tmp", c->name, random) < 0) {
        c->temp = NULL;
        return err_oom(e);
    }
    c->fd = openat(c->dirfd, c->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                   FS_NEW_FILE_MODE);
    if (c->fd < 0 && (errno == ENOSPC || errno == EDQUOT))
        return no_room(e);
    if (c->fd < 0)
        return fault_sys(e, ERR_INTERNAL, errno, "error creating destination file: open %s",
                         c->temp);
    if (fchown(c->fd, c->call.owner.uid, c->call.owner.gid) < 0)
        return fault_sys(e, ERR_INTERNAL, errno, "error changing file ownership: chown %s",
                         c->temp);
    return 0;
}

/* Copies by copy_file_range() where that works, the rest through a buffer. 0, or -1 with errno. */
static int copy_bytes(int from, int to)
{
    _cleanup_free_ char *data = NULL;
    struct err e = {0};
    ssize_t n;

    while ((n = copy_file_range(from, NULL, to, NULL, RANGE_BYTES, 0)) > 0)
        ;
    if (n < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EIO))
        return -1;
    data = malloc(COPY_BYTES); /* also when it says 0: files that are made up as they are read */
    if (!data) {
        errno = ENOMEM;
        return -1;
    }
    while ((n = read(from, data, COPY_BYTES)) > 0)
        if (io_write_all(to, data, (size_t)n, &e) < 0) {
            errno = e.sys;
            return -1;
        }
    return n < 0 ? -1 : 0;
}

static int add_source(struct compose *c, const char *path, struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct err inner = {0};
    struct stat st;
    int r = fs_open(c->call.caller, path, O_RDONLY, 0, &fd, &inner);

    if (r < 0)
        return fault_of(e, ERR_INTERNAL, &inner, "error opening source file %s: open", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) /* any more: a device may have no end */
        return err_set(e, ERR_INVALID, "source path is not a regular file: %.200s", path);
    if (copy_bytes(fd, c->fd) == 0)
        return 0;
    if (errno == ENOSPC || errno == EDQUOT)
        return no_room(e);
    return fault_sys(e, ERR_INTERNAL, errno, "error composing source %s", path);
}

/* A source may be the destination by another path (a link to its directory): it is the new file
 * now. */
static void remove_source(struct compose *c, const struct stat *made, const char *path)
{
    _cleanup_close_ int dirfd = -1;
    _cleanup_free_ char *name = NULL;
    struct stat st;

    if (fs_open_parent(c->call.caller, path, &dirfd, &name, NULL) == 0 &&
        fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        (st.st_ino != made->st_ino || st.st_dev != made->st_dev))
        (void)unlinkat(dirfd, name, 0);
}

static int compose_run(struct compose *c, struct err *e)
{
    struct stat made;
    int r = open_temp(c, e);

    for (char **s = c->sources; r == 0 && *s; s++)
        r = add_source(c, *s, e);
    if (r < 0)
        return r;
    if (fstat(c->fd, &made) < 0)
        return fault_sys(e, ERR_INTERNAL, errno, "error finalizing compose: stat %s", c->temp);
    if (renameat(c->dirfd, c->temp, c->dirfd, c->name) < 0)
        return fault_sys(e, ERR_INTERNAL, errno, "error finalizing compose: rename %s",
                         c->call.path);
    free(TAKE(c->temp));
    for (char **s = c->sources; *s; s++)
        remove_source(c, &made, *s);
    return 0;
}

static int compose_parts(const struct agent *a, const struct compose_params *p, json_t **ret,
                         struct err *e)
{
    _cleanup_(compose_done) struct compose c = {.dirfd = -1, .fd = -1};
    int r;

    if (!p->sources || !p->sources[0])
        return err_set(e, ERR_INVALID, "source_paths must not be empty");
    if (strv_len(p->sources) > COMPOSE_MAX_SOURCES)
        return err_set(e, ERR_INVALID, "more than %d source_paths", COMPOSE_MAX_SOURCES);
    if (!p->destination || !*p->destination)
        return err_set(e, ERR_INVALID, "destination is required");
    r = files_rest_init(&c.call, a, p->username, e);
    if (r < 0)
        return r;
    r = files_call_path(&c.call, p->destination, &c.call.path, e);
    if (r < 0)
        return err_wrap(e, r, "error resolving destination path");
    r = check_sources(&c, p->sources, e);
    if (r == 0)
        r = compose_run(&c, e);
    if (r < 0)
        return r;
    *ret = put_new_entry(c.call.path, -1);
    return *ret ? 0 : err_oom(e);
}

/*
 * text: {"source_paths":[...],"destination":...,"username"?:...}. The destination is complete or
 * unchanged; the sources are removed only after success. *ret: {"path","name","type"}, the
 * caller's. Errors in the words of envd; for want of room -ERR_EXHAUSTED with e->sys ENOSPC.
 */
static int compose_files(const struct agent *a, const char *text, size_t len, json_t **ret,
                         struct err *e)
{
    struct compose_params p = {0};
    _cleanup_json_ json_t *body = NULL;
    int r = jx_parse(text, len, &body, e);

    if (r == 0)
        r = jx_decode_lax(body, compose_fields, &p, e);
    if (r < 0)
        r = err_wrap(e, r, "invalid request body");
    else
        r = compose_parts(a, &p, ret, e);
    strv_free(p.sources);
    return r;
}

/* ---- the route -------------------------------------------------------------------------------- */

struct composing {
    struct ask ask;
    struct buf body;
    json_t *entry; /* the worker's, then the connection's thread's */
};

static void composing_free(void *state)
{
    struct composing *c = state;

    json_decref(c->entry);
    buf_done(&c->body);
    free(c);
}

static int compose_begin(struct request *q, struct err *e)
{
    struct composing *c = calloc(1, sizeof(*c));

    if (!c)
        return err_oom(e);
    buf_init(&c->body, COMPOSE_MAX_BYTES);
    q->state = c;
    q->free_state = composing_free;
    return 0;
}

static int compose_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    struct composing *c = q->state;
    int r = buf_add(&c->body, data, *len, e);

    *len = 0;
    return r;
}

static void compose_job(struct request *q)
{
    struct composing *c = q->state;

    c->ask.r = compose_files(request_agent(q), c->body.data ? c->body.data : "", c->body.len,
                             &c->entry, &c->ask.error);
    request_answer(q, &c->ask);
}

static int compose_finish(struct request *q, struct err *e)
{
    struct composing *c = q->state;
    int r = request_ask(q, &c->ask, compose_job, e);

    if (r == REQUEST_PARKED)
        return 0;
    return r < 0 ? r : respond_json(q, HTTP_OK, c->entry, e);
}

const struct request_ops e2b_compose_ops = {
    .begin = compose_begin, .body = compose_body, .finish = compose_finish};
