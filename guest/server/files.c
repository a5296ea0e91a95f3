/* files: /v1/files/{path} and /v1/archive are two things each, by the verb. */
#include "server/files.h"

#include "common/cleanup.h"
#include "rpc/agent.h"
#include "server/handlers.h"
#include "server/state.h"
#include "server/uri.h"

#include "common/banned.h"

int files_caller_new(struct request *q, const char *user, const char *cwd, struct fs_caller **ret,
                     struct err *e)
{
    const struct agent *a = q->server->agent;

    return fs_caller_new(a->root, user ? user : a->default_user, cwd ? cwd : a->workdir, ret, e);
}

int files_check_query(struct request *q, const char *const *known, struct err *e)
{
    _cleanup_free_ char *name = NULL;
    int r;

    r = uri_query_unknown(q->query, known, &name, e);
    if (r < 0 || !name)
        return r;
    return err_field(e, ERR_INVALID, name, "unknown parameter '%.60s'", name);
}

static const struct request_ops *by_verb(const struct request *q, const struct request_ops *get,
                                         const struct request_ops *put)
{
    return q->verb == VERB_PUT ? put : get;
}

static const struct request_ops *file_ops(const struct request *q)
{
    return by_verb(q, &file_get_ops, &file_put_ops);
}

static int files_begin(struct request *q, struct err *e)
{
    return file_ops(q)->begin(q, e);
}

static int refuse_unasked_body(struct err *e)
{
    return err_set(e, ERR_INVALID, "a GET takes no body");
}

static int files_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    const struct request_ops *ops = file_ops(q);

    return ops->body ? ops->body(q, data, len, e) : refuse_unasked_body(e);
}

static int files_finish(struct request *q, struct err *e)
{
    return file_ops(q)->finish(q, e);
}

static void files_done(struct request *q)
{
    file_ops(q)->done(q);
}

const struct request_ops files_ops = {
    .begin = files_begin, .body = files_body, .finish = files_finish, .done = files_done};

static const struct request_ops *tree_ops(const struct request *q)
{
    return by_verb(q, &archive_get_ops,
                   &archive_put_ops); /* a POST gets too: what its body names */
}

static int archive_begin(struct request *q, struct err *e)
{
    return tree_ops(q)->begin(q, e);
}

static int archive_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    const struct request_ops *ops = tree_ops(q);

    return ops->body ? ops->body(q, data, len, e) : refuse_unasked_body(e);
}

static int archive_finish(struct request *q, struct err *e)
{
    return tree_ops(q)->finish(q, e);
}

static void archive_done(struct request *q)
{
    tree_ops(q)->done(q);
}

const struct request_ops archive_ops = {
    .begin = archive_begin, .body = archive_body, .finish = archive_finish, .done = archive_done};
