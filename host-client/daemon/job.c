#include "daemon/job.h"

#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "daemon/access.h"
#include "daemon/contexts.h"
#include "daemon/daemon.h"
#include "daemon/service.h"
#include "http/respond.h"
#include "lib/box/box.h"
#include "lib/box/quota.h"
#include "lib/box/store_snapshots.h"
#include "lib/util/context.h"

struct pending {
    struct ask ask;
    struct buf body;
    size_t charged;
    char actor[64]; /* of the events of boxes; read while the client is surely there */
    struct job job;
};

static void free_pending(void *state)
{
    struct pending *p = state;

    request_discharge(p->job.q, p->charged);
    buf_done(&p->body);
    for (size_t i = 0; i < ROUTE_MAX_PARAMS; i++)
        free(p->job.params[i]);
    json_decref(p->job.body);
    json_decref(p->job.reply);
    free(p->job.repeat_key);
    free(p->job.bytes);
    free(p);
}

int job_check_query(struct request *q, const char *const *known, struct err *e)
{
    _cleanup_free_ char *name = NULL;
    int r = uri_query_unknown(q->query, known, &name, e);

    return r < 0 || !name ? r
                          : err_field(e, ERR_INVALID, name, "there is no parameter '%.80s'", name);
}

static int job_begin(struct request *q, struct err *e)
{
    const char *key = request_header(q, "Idempotency-Key");
    struct pending *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return err_oom(e);
    buf_init(&p->body, q->route->max_body_bytes);
    p->job = (struct job){
        .row = request_row(q), .daemon = request_owner(q), .q = q, .is_admin = request_is_admin(q)};
    q->state = p;
    q->free_state = free_pending;
    access_actor_of_events(q, p->actor, sizeof(p->actor));
    if (key && !(p->job.repeat_key = strdup(key)))
        return err_oom(e);
    r = job_check_query(q, p->job.row->query, e);
    return r < 0 ? r : routes_params(p->job.row, q->target, p->job.params, e);
}

static int job_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    struct pending *p = q->state;
    int r = request_charge(q, *len, e);

    if (r < 0)
        return r;
    p->charged += *len;
    r = buf_add(&p->body, data, *len, e);
    *len = 0;
    return r;
}

static int parse_body(struct pending *p, struct err *e)
{
    p->job.text = p->body.data;
    p->job.text_len = p->body.len;
    if (p->body.len)
        return jx_parse_object(p->body.data, p->body.len, &p->job.body, e);
    p->job.body = json_object();
    return p->job.body ? 0 : err_oom(e);
}

/* Here, and not on the thread that serves sockets: a long reply takes a while. */
static int write_reply(struct job *j, struct err *e)
{
    char *text = NULL;
    int r = jx_dump(j->reply, &text, &j->n_bytes, e);

    j->bytes = text;
    j->type = "application/json";
    json_decref(TAKE(j->reply));
    return r;
}

static void run_job(struct request *q)
{
    struct pending *p = q->state;
    struct job *j = &p->job;
    struct err *e = &p->ask.error;
    int r = parse_body(p, e);

    if (r == 0)
        r = contexts_take(j->daemon->contexts, p->actor, &j->ctx, e);
    if (r == 0)
        r = j->row->answer(j, e);
    contexts_give(j->daemon->contexts, j->ctx);
    if (r == 0 && j->reply)
        r = write_reply(j, e);
    p->ask.r = r;
    request_answer(q, &p->ask);
}

static int job_finish(struct request *q, struct err *e)
{
    struct pending *p = q->state;
    int r = request_ask(q, &p->ask, run_job, e);

    if (r != 0)
        return r == REQUEST_PARKED ? 0 : r;
    if (p->job.bytes)
        return respond_text_take(q, p->job.status ? p->job.status : HTTP_OK, p->job.type,
                                 TAKE(p->job.bytes), p->job.n_bytes, e);
    return respond_empty(q, p->job.status ? p->job.status : HTTP_NO_CONTENT, e);
}

const struct request_ops job_ops = {.begin = job_begin, .body = job_body, .finish = job_finish};

int job_fail(struct err *e, int r, const struct bh_error *error)
{
    return contexts_error(e, r, error);
}

const struct jx_field job_no_fields[] = {{0}};

int job_decode(struct job *j, const struct jx_field *fields, void *out, struct err *e)
{
    return jx_decode(j->body, fields, out, e);
}

int job_number(struct job *j, const char *name, int64_t min, int64_t max, int64_t *ret,
               struct err *e)
{
    _cleanup_free_ char *text = NULL;
    int r = request_query(j->q, name, &text, e);

    if (r == 0 && text)
        r = str_parse_i64(text, min, max, ret, e);
    return r < 0 ? err_at(e, r, name) : 0;
}

int job_reply_take(struct job *j, json_t *v, struct err *e)
{
    j->reply = v;
    return v ? 0 : err_oom(e);
}

int job_reply_json_take(struct job *j, char *text, struct err *e)
{
    j->bytes = text;
    j->n_bytes = text ? strlen(text) : 0;
    j->type = "application/json";
    return text ? 0 : err_oom(e);
}

static int refuse_box(const char *name, struct err *e)
{
    return err_field(e, ERR_NOT_FOUND, "name", "there is no box with the name '%.64s'", name);
}

int job_find_box(struct bh_ctx *ctx, const char *name, struct bh_box **ret, struct err *e)
{
    struct bh_error error = {0};
    int r = bh_get_by_id(ctx, name, ret, &error);

    /* Ids come first: they are random, and a name may be chosen to look like one. */
    if (r == -BH_INVALID_ARGUMENT || (r == -BH_NOT_FOUND && !bh_error_gone(&error, NULL))) {
        error = (struct bh_error){0};
        r = bh_get(ctx, name, ret, &error);
    }
    return job_fail(e, r, &error);
}

int job_find_seen_box(const struct request *q, struct bh_ctx *ctx, const char *name,
                      struct bh_box **ret, struct err *e)
{
    char owner[ACCESS_NAME_BYTES] = "";
    struct bh_box *box = NULL;
    struct err why = {0};
    int r = job_find_box(ctx, name, &box, &why);

    if (r == 0 && !access_sees_owner(q, quota_owner(&box->spec))) {
        (void)bh_box_free(box);
        return refuse_box(name, e);
    }
    if (r < 0 && str_eq(why.detail_name, "gone") &&
        (store_owner_of(ctx->store, why.detail, owner, NULL) < 0 || !access_sees_owner(q, owner)))
        return refuse_box(name, e);
    if (r == 0)
        *ret = box;
    else
        *e = why;
    return r;
}

int job_box(struct job *j, struct bh_box **ret, struct err *e)
{
    return job_find_seen_box(j->q, j->ctx, j->params[0], ret, e);
}

int job_check_box(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct err why = {0};
    int r = job_box(j, &box, &why);

    if (r == 0 || str_eq(why.detail_name, "gone"))
        return 0;
    *e = why;
    return r;
}

int job_check_snapshot(struct job *j, const char *name, struct err *e)
{
    struct snapshot_row row = {0};
    char owner[ACCESS_NAME_BYTES] = "";
    int r = access_sees_owner(j->q, "") ? 0 : store_find_snapshot(j->ctx->store, name, &row, e);

    if (r == 0 && *row.id)
        r = store_owner_of(j->ctx->store, row.box_id, owner, e);
    if (r == 0 && *row.id && !access_sees_owner(j->q, owner))
        r = err_field(e, ERR_NOT_FOUND, "snapshot", "there is no snapshot '%.64s'", name);
    snapshot_row_done(&row);
    return r;
}
