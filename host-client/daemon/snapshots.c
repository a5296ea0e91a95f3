/* snapshots: answers about snapshots, and the boxes that are taken back to one. */
#include <string.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "daemon/answers.h"
#include "daemon/repeat.h"
#include "http/respond.h"

struct snapshot_list {
    const char *name;   /* only this one; or NULL */
    const char *box_id; /* only those of this box; or NULL */
    json_t *list;
};

static int add_snapshot(void *arg, const struct bh_snapshot_info *i)
{
    struct snapshot_list *l = arg;

    if ((l->name && strcmp(l->name, i->name) != 0) ||
        (l->box_id && strcmp(l->box_id, i->box_id) != 0))
        return 0;
    return json_array_append_new(l->list, json_loads(i->json, JSON_ALLOW_NUL, NULL));
}

static int list_snapshots(struct job *j, struct snapshot_list *l, struct err *e)
{
    struct bh_error error = {0};
    int r;

    l->list = json_array();
    r = l->list ? bh_list_snapshots(j->ctx, add_snapshot, l, &error) : -1;
    return r == 0 || error.code ? job_fail(e, r, &error) : err_oom(e);
}

int answer_snapshots(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct snapshot_list l = {0};
    int r = j->params[0] ? job_box(j, &box, e) : 0;

    if (r < 0)
        return r;
    l.box_id = box ? bh_box_summary(box)->id : NULL;
    r = list_snapshots(j, &l, e);
    if (r == 0)
        r = job_reply_take(j, json_pack("{s:O}", "snapshots", l.list), e);
    json_decref(l.list);
    return r;
}

int answer_snapshot(struct job *j, struct err *e)
{
    struct snapshot_list l = {.name = j->params[0]};
    int r = list_snapshots(j, &l, e);

    if (r == 0 && !json_array_size(l.list))
        r = err_field(e, ERR_NOT_FOUND, "snapshot", "there is no snapshot '%.80s'", l.name);
    if (r == 0)
        r = job_reply_take(j, json_incref(json_array_get(l.list, 0)), e);
    json_decref(l.list);
    return r;
}

/* ---- make, remove, verify ---- */

struct snapshot_body {
    struct bh_snapshot_options o;
};

static const struct jx_field snapshot_fields[] = {
    JX_AS("name", struct snapshot_body, o.name, jx_str, JX_NULLABLE),
    JX_AS("timeout_ms", struct snapshot_body, o.timeout_ms, jx_i64, 0),
    {0},
};

static int reply_snapshot(void *arg, const struct bh_snapshot_info *i)
{
    struct job *j = arg;

    j->reply = json_loads(i->json, JSON_ALLOW_NUL, NULL);
    return 0;
}

struct made_search {
    struct job *j;
    const char *name, *box_id;
};

static int check_made(void *arg, const struct bh_snapshot_info *i)
{
    struct made_search *s = arg;

    return str_eq(i->name, s->name) && str_eq(i->box_id, s->box_id) &&
                   i->created_ms >= s->j->begun_ms
               ? reply_snapshot(s->j, i)
               : 0;
}

static int make_snapshot(struct job *j, struct err *e)
{
    struct snapshot_body body = {.o = {.size = sizeof(body.o)}};
    struct bh_box *box _cleanup_box_ = NULL;
    struct bh_error error = {0};
    char name[REPEAT_NAME_BYTES];
    int r = job_decode(j, snapshot_fields, &body, e);

    if (r == 0 && !body.o.name && j->repeat_key) {
        r = repeat_name(j, "snapshot-", name, e);
        body.o.name = name;
    }
    if (r == 0)
        r = job_box(j, &box, e);
    if (r == 0 && j->begun_ms) {
        /* A killed daemon may have made it. */
        struct made_search s = {j, body.o.name, bh_box_summary(box)->id};

        r = job_fail(e, bh_list_snapshots(j->ctx, check_made, &s, &error), &error);
    }
    if (r == 0 && !j->reply)
        r = job_fail(e, bh_snapshot(box, &body.o, reply_snapshot, j, &error), &error);
    j->status = HTTP_CREATED;
    return r == 0 && !j->reply ? err_oom(e) : r;
}

int answer_make_snapshot(struct job *j, struct err *e)
{
    return repeat_answer(j, make_snapshot, e);
}

int answer_remove_snapshot(struct job *j, struct err *e)
{
    struct bh_error error = {0};
    int r = job_decode(j, job_no_fields, NULL, e);

    return r < 0 ? r : job_fail(e, bh_remove_snapshot(j->ctx, j->params[0], &error), &error);
}

struct wait_body {
    const char *snapshot;
    int64_t timeout_ms;
};

static const struct jx_field verify_fields[] = {
    JX(struct wait_body, timeout_ms, jx_i64, 0),
    {0},
};

int answer_verify_snapshot(struct job *j, struct err *e)
{
    struct wait_body body = {0};
    struct bh_error error = {0};
    int r = job_decode(j, verify_fields, &body, e);

    if (r == 0)
        r = job_fail(e, bh_verify_snapshot(j->ctx, j->params[0], body.timeout_ms, &error), &error);
    return r;
}

static const struct jx_field restore_fields[] = {
    JX(struct wait_body, snapshot, jx_str, JX_REQUIRED),
    JX(struct wait_body, timeout_ms, jx_i64, 0),
    {0},
};

int answer_restore(struct job *j, struct err *e)
{
    struct wait_body body = {0};
    struct bh_box *box _cleanup_box_ = NULL;
    struct bh_error error = {0};
    int r = job_decode(j, restore_fields, &body, e);

    if (r == 0)
        r = job_box(j, &box, e);
    if (r == 0)
        r = job_check_snapshot(j, body.snapshot, e);
    if (r == 0)
        r = job_fail(e, bh_restore(box, body.snapshot, body.timeout_ms, &error), &error);
    return r < 0 ? r : job_reply_take(j, box_json(box), e);
}
