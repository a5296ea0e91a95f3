/* files: /files is two things, by the verb. */
#include "dialect/e2b/http_handlers.h"
#include "http/gate.h"

static const struct request_ops *ops_of(const struct request *q)
{
    return q->verb == VERB_POST ? &e2b_file_post_ops : &e2b_file_get_ops;
}

static int files_begin(struct request *q, struct err *e)
{
    return ops_of(q)->begin(q, e);
}

static int files_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    const struct request_ops *ops = ops_of(q);

    if (ops->body)
        return ops->body(q, data, len, e);
    if (q->bytes_in + *len > REQUEST_DRAIN_BYTES) {
        q->error_status = GATE_TOO_LARGE_STATUS;
        return err_set(e, ERR_EXHAUSTED, "the body of a GET is larger than %d bytes",
                       REQUEST_DRAIN_BYTES);
    }
    return e2b_drop_body(q, data, len, e);
}

static int files_finish(struct request *q, struct err *e)
{
    return ops_of(q)->finish(q, e);
}

static void files_done(struct request *q)
{
    if (ops_of(q)->done)
        ops_of(q)->done(q);
}

const struct request_ops e2b_files_ops = {
    .begin = files_begin, .body = files_body, .finish = files_finish, .done = files_done};
