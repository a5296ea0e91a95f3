/* facts: answers about one box that come from its guest agent, its provider or its commands. */
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "common/wire/method.h"
#include "daemon/answers.h"
#include "http/request.h"
#include "lib/box/box_environment.h"

#define LOG_PIECE_BYTES (64 * 1024)
#define LOG_BYTES (8u << 20) /* in one answer */

int answer_health(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct bh_error error = {0};
    int r = job_box(j, &box, e);

    return r < 0 ? r : job_fail(e, bh_health(box, 0, &error), &error);
}

/* For a client that starts commands through the gateway as the command line does here. */
int answer_environment(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    int r = job_box(j, &box, e);

    return r < 0 ? r : box_environment_json(box, NULL, &j->reply, e);
}

int answer_activity(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct bh_activity activity = {.size = sizeof(activity)};
    struct bh_error error = {0};
    int r = job_box(j, &box, e);

    if (r == 0)
        r = job_fail(e, bh_activity(box, &activity, &error), &error);
    return r < 0 ? r : job_reply_json_take(j, activity.json, e);
}

int answer_ports(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct bh_error error = {0};
    char *text = NULL;
    int r = job_box(j, &box, e);

    if (r == 0)
        r = job_fail(
            e, bh_call(box, rpc_method_name(RPC_system_ports), NULL, NULL, NULL, 0, &text, &error),
            &error);
    return r < 0 ? r : job_reply_json_take(j, text, e);
}

/* A port of the box on this machine's loopback; without one, the coding agent's. */
int answer_url(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    _cleanup_free_ char *url = NULL;
    struct bh_error error = {0};
    int64_t port = 0;
    int r = job_number(j, "port", 1, UINT16_MAX, &port, e);

    if (r == 0)
        r = job_box(j, &box, e);
    if (r == 0 && port)
        r = job_fail(e, bh_get_url(box, (uint16_t)port, &url, &error), &error);
    else if (r == 0 && !*bh_box_summary(box)->agent_url)
        r = err_field(e, ERR_PRECONDITION, "port", "the box has no coding agent with a URL now");
    if (r < 0)
        return r;
    return job_reply_take(j, json_pack("{s:s}", "url", url ? url : bh_box_summary(box)->agent_url),
                          e);
}

/* The box, and in "enforced" what the kernel says; null while the box does not run. */
int answer_status(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    _cleanup_free_ char *text = NULL;
    struct bh_error error = {0};
    json_t *enforced = NULL;
    int r = job_box(j, &box, e);

    if (r == 0 && bh_box_summary(box)->state == BH_STATE_RUNNING)
        r = job_fail(e, bh_inspect(box, &text, &error), &error);
    if (r == 0)
        r = job_reply_take(j, box_json(box), e);
    if (r < 0)
        return r;
    enforced = text ? json_loads(text, JSON_ALLOW_NUL, NULL) : NULL;
    return json_object_set_new(j->reply, "enforced", enforced ? enforced : json_null()) < 0
               ? err_oom(e)
               : 0;
}

int answer_ready(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct bh_error error = {0};
    char *text = NULL;
    int r = job_box(j, &box, e);

    if (r == 0)
        r = job_fail(e, bh_ready(box, &text, &error), &error);
    if (r < 0) {
        free(text);
        return r;
    }
    return job_reply_json_take(j, text, e);
}

int answer_metrics(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct bh_error error = {0};
    int r = job_box(j, &box, e);

    if (r == 0)
        r = job_fail(e, bh_metrics(box, &j->bytes, &error), &error);
    j->n_bytes = r == 0 ? strlen(j->bytes) : 0;
    j->type = "text/plain; version=0.0.4; charset=utf-8";
    return r;
}

/* ---- what a command printed ---- */

/* The offset of the first byte that is kept still, of the error's detail. */
static bool first_kept(const struct bh_error *error, uint64_t *ret)
{
    _cleanup_json_ json_t *detail = json_loads(error->detail, 0, NULL);
    json_t *first = json_object_get(detail, "first_held");

    *ret = (uint64_t)json_integer_value(first);
    return error->code == BH_DATA_LOSS && json_is_integer(first);
}

static int read_stream(struct bh_exec *exec, int stream, struct buf *out, struct err *e)
{
    for (;;) {
        struct bh_error error = {0};
        uint64_t first;
        size_t n = 0;
        bool eof;
        int r = buf_reserve(out, LOG_PIECE_BYTES, e);

        if (r < 0)
            return r;
        r = bh_exec_read(exec, stream, out->data + out->len, LOG_PIECE_BYTES, &n, &eof, &error);
        if (r < 0 && first_kept(&error, &first) && first > bh_exec_offset(exec, stream)) {
            bh_exec_seek(exec, stream, first);
            continue;
        }
        if (r < 0 || !n)
            return job_fail(e, r, &error);
        out->len += n;
    }
}

static const char *log_id(struct bh_box *box, const char *id, json_t **ret_owner)
{
    *ret_owner = box_json(box);
    return id ? id
              : json_string_value(json_object_get(json_object_get(*ret_owner, "agent"), "exec_id"));
}

static int read_logs(struct job *j, struct bh_box *box, const char *id, const char *stream,
                     struct err *e)
{
    _cleanup_buf_ struct buf out = {0};
    struct bh_exec *exec = NULL;
    struct bh_error error = {0};
    int r = job_fail(e, bh_exec_attach(box, id, &exec, &error), &error);

    buf_init(&out, LOG_BYTES);
    if (r == 0 && !str_eq(stream, "stderr"))
        r = read_stream(exec, 1, &out, e);
    if (r == 0 && !str_eq(stream, "stdout"))
        r = read_stream(exec, 2, &out, e);
    (void)bh_exec_free(exec);
    if (r < 0)
        return r;
    j->n_bytes = out.len;
    j->bytes = buf_take(&out);
    j->type = "text/plain";
    return j->bytes ? 0 : err_oom(e);
}

/* The bytes as the command wrote them: those that the agent keeps of its output, then of its errors. */
int answer_logs(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    _cleanup_free_ char *id = NULL;
    _cleanup_free_ char *stream = NULL;
    _cleanup_json_ json_t *owner = NULL;
    const char *wanted;
    int r = request_query(j->q, "id", &id, e);

    if (r == 0)
        r = request_query(j->q, "stream", &stream, e);
    if (r == 0 && stream && !str_eq(stream, "stdout") && !str_eq(stream, "stderr"))
        r = err_field(e, ERR_INVALID, "stream", "stream: must be stdout or stderr");
    if (r == 0)
        r = job_box(j, &box, e);
    if (r < 0)
        return r;
    wanted = log_id(box, id, &owner);
    if (!wanted || !*wanted)
        return err_field(e, ERR_NOT_FOUND, "id", "the box has no coding agent; name a command");
    return read_logs(j, box, wanted, stream, e);
}
