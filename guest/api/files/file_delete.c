/* file_delete: DELETE and OPTIONS of /v1/files/{path}. */
#include <stdlib.h>

#include "common/cleanup.h"
#include "fs/change.h"
#include "api/files/file_sink.h"
#include "api/files/files.h"
#include "api/handlers.h"
#include "http/respond.h"
#include "http/route.h"

struct file_delete {
    struct ask ask;
    char *user;
    char *cwd;
    char *if_match;
    char *if_none_match;
};

static void free_delete(void *state)
{
    struct file_delete *d = state;

    free(d->user);
    free(d->cwd);
    free(d->if_match);
    free(d->if_none_match);
    free(d);
}

static int delete_begin(struct request *q, struct err *e)
{
    static const char *const known[] = {"user", "cwd", NULL};
    struct file_delete *d = calloc(1, sizeof(*d));
    int r;

    if (!d)
        return err_oom(e);
    q->state = d;
    q->free_state = free_delete;
    if ((r = files_check_path(q, e)) < 0 || (r = files_check_query(q, known, e)) < 0 ||
        (r = request_query(q, "user", &d->user, e)) < 0 ||
        (r = request_query(q, "cwd", &d->cwd, e)) < 0 ||
        (r = files_header(q, "If-Match", &d->if_match, e)) < 0)
        return r;
    return files_header(q, "If-None-Match", &d->if_none_match, e);
}

static void delete_job(struct request *q)
{
    struct file_delete *d = q->state;
    const struct fs_remove_options o = {.condition = {d->if_match, d->if_none_match}};
    struct fs_caller *c = NULL;
    uint64_t removed;

    d->ask.r = files_caller_new(q, d->user, d->cwd, &c, &d->ask.error);
    if (d->ask.r == 0)
        d->ask.r = fs_remove(c, q->rest, &o, &removed, &d->ask.error);
    fs_caller_unref(c);
    request_answer(q, &d->ask);
}

static int delete_finish(struct request *q, struct err *e)
{
    struct file_delete *d = q->state;
    int r = request_ask(q, &d->ask, delete_job, e);

    if (r == REQUEST_PARKED)
        return 0;
    if (r < 0)
        return files_add_tag(q, r, e->detail_name[0] ? e->detail : "", e);
    return respond_empty(q, HTTP_NO_CONTENT, e);
}

const struct request_ops file_delete_ops = {.begin = delete_begin, .finish = delete_finish};

/* Answers OPTIONS: the methods, and that uploads can be resumed. */
static int options_finish(struct request *q, struct err *e)
{
    struct reply *response = reply_new_empty();
    char limit[FILE_SINK_LIMIT_BYTES], allow[64];

    if (!response)
        return err_oom(e);
    file_sink_limit(limit);
    route_allow(q->route_verbs, allow, sizeof(allow));
    reply_add_header(response, "Allow", allow);
    reply_add_header(response, "Accept-Patch", UPLOADS_TYPE ", " FILES_TYPE);
    reply_add_header(response, "Accept-Ranges", "bytes");
    reply_add_header(response, "Upload-Limit", limit);
    return respond_queue(q, HTTP_NO_CONTENT, response, e);
}

const struct request_ops file_options_ops = {.finish = options_finish};
