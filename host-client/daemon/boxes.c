/* boxes: lists, shows and changes boxes. */
#include "daemon/answers.h"

#include <stdlib.h>
#include <string.h>

#include "bellhop/bellhop.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "daemon/access.h"
#include "http/request.h"
#include "lib/box/box.h"
#include "lib/box/lifecycle.h"
#include "lib/box/prompt.h"
#include "lib/box/quota.h"
#include "lib/recipe/bootstrap.h"

#define STEP_MS (2 * 60 * 1000) /* to start, stop, pause, resume or remove a box */
#define LIST_DEFAULT 1000
#define LIST_MOST 10000
#define LIST_BYTES (64u << 20)

/* Without token and password: who may use a box gets them where they are needed. */
json_t *box_json(struct bh_box *box)
{
    return box_new_json(box, false);
}

/* ---- the list ---- */

struct box_list {
    char *label, *states, *cursor; /* as of struct store_filter; or NULL */
    int64_t limit;
    struct buf out;
    int64_t n;
    char last[BOX_NAME_BYTES];
    bool is_full;
    const struct request *q; /* the sender, who may see the boxes of one owner alone */
};

static int write_box(struct box_list *l, struct bh_box *box)
{
    (void)snprintf(l->last, sizeof(l->last), "%s", box->row.name);
    return (l->n++ && buf_adds(&l->out, ",", NULL) < 0) ||
                   box_write_json(box, false, &l->out, NULL) < 0
               ? -1
               : 0;
}

static int add_box(void *arg, struct bh_box *box)
{
    struct box_list *l = arg;

    if (!access_sees_owner(l->q, quota_owner(&box->spec)))
        return 0;
    l->is_full = l->n == l->limit;
    return l->is_full ? 1 : write_box(l, box);
}

static int check_states(const char *states, struct err *e)
{
    for (const char *p = states;; p++) {
        size_t n = strcspn(p, ",");
        char word[32];

        (void)snprintf(word, sizeof(word), "%.*s", (int)n, p);
        if (lifecycle_parse(word) == BH_STATE_UNKNOWN)
            return err_field(e, ERR_INVALID, "state", "state: there is no state '%s'", word);
        p += n;
        if (!*p)
            return 0;
    }
}

static int read_list_query(struct job *j, struct box_list *l, struct err *e)
{
    int r = request_query(j->q, "label", &l->label, e);

    if (r == 0)
        r = request_query(j->q, "state", &l->states, e);
    if (r == 0)
        r = request_query(j->q, "cursor", &l->cursor, e);
    if (r == 0)
        r = job_number(j, "limit", 1, LIST_MOST, &l->limit, e);
    return r == 0 && l->states ? check_states(l->states, e) : r;
}

/* The page, and in "next_cursor" where the next one begins. */
static int reply_list(struct job *j, struct box_list *l, struct err *e)
{
    int r = l->is_full ? buf_addf(&l->out, e, "],\"next_cursor\":\"%s\"}", l->last)
                       : buf_adds(&l->out, "],\"next_cursor\":null}", e);

    return r < 0 ? r : job_reply_json_take(j, buf_take(&l->out), e);
}

int answer_list(struct job *j, struct err *e)
{
    struct box_list l = {.limit = LIST_DEFAULT, .q = j->q};
    struct bh_error error = {0};
    int r = read_list_query(j, &l, e);

    buf_init(&l.out, LIST_BYTES);
    if (r == 0)
        r = buf_adds(&l.out, "{\"boxes\":[", e);
    if (r == 0) {
        const struct store_filter some = {.after = l.cursor, .states = l.states, .label = l.label};

        r = box_list(j->ctx, &some, add_box, &l, &error);
        r = r < 0 && !error.code ? err_oom(e) : job_fail(e, r < 0 ? r : 0, &error);
    }
    if (r == 0)
        r = reply_list(j, &l, e);
    buf_done(&l.out);
    free(l.label);
    free(l.states);
    free(l.cursor);
    return r;
}

/* ---- one box ---- */

int answer_get(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    int r = job_box(j, &box, e);

    return r < 0 ? r : job_reply_take(j, box_json(box), e);
}

int answer_by_key(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    _cleanup_free_ char *key = NULL;
    struct bh_error error = {0};
    int r = request_query(j->q, "key", &key, e);

    if (r == 0 && !key)
        r = err_field(e, ERR_INVALID, "key", "key: the parameter is missing");
    if (r == 0)
        r = job_fail(e, bh_get_by_key(j->ctx, key, &box, &error), &error);
    /* Other owners' boxes are not there; nor are those that are gone, whose owner is not looked up. */
    if ((r == 0 && !access_sees_owner(j->q, quota_owner(&box->spec))) ||
        (r == -ERR_NOT_FOUND && !access_sees_owner(j->q, "")))
        r = err_field(e, ERR_NOT_FOUND, "key", "there is no box with the key '%.64s'", key);
    return r < 0 ? r : job_reply_take(j, box_json(box), e);
}

/* ---- its coding agent ---- */

/* The API by which the agent takes prompts, or null. */
static json_t *new_conversation_name(const struct bh_box *box)
{
    struct bootstrap_record record = {0};
    json_t *name = NULL;

    if (box->dir && bootstrap_record_load(box->dir, &record, NULL) == 0 &&
        record.recipe.conversation)
        name = json_string(record.recipe.conversation);
    bootstrap_record_done(&record);
    return name ? name : json_null();
}

/* The coding agent's own login, with which its API is used through the gateway. */
int answer_agent(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    int r = job_box(j, &box, e);
    json_t *whole = r == 0 ? json_loads(bh_box_info(box)->json, JSON_ALLOW_NUL, NULL) : NULL;

    if (r < 0)
        return r;
    j->reply = json_incref(json_object_get(whole, "agent"));
    json_decref(whole);
    return j->reply &&
                   json_object_set_new(j->reply, "conversation", new_conversation_name(box)) == 0
               ? 0
               : err_oom(e);
}

struct silence_body {
    const char *kind, *session;
    int64_t silent_ms;
};

static const struct jx_field silence_fields[] = {
    JX(struct silence_body, kind, jx_str, JX_REQUIRED),
    JX(struct silence_body, session, jx_str, JX_REQUIRED),
    JX(struct silence_body, silent_ms, jx_i64, JX_REQUIRED),
    {0},
};

/* Of a client that waits for the agent: nobody else knows how long it may be silent. */
int answer_silence(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct silence_body body = {0};
    int r = job_decode(j, silence_fields, &body, e);

    if (r == 0 && !str_eq(body.kind, PROMPT_WARNING) && !str_eq(body.kind, PROMPT_STALE))
        r = err_field(e, ERR_INVALID, "kind",
                      "kind: it is '" PROMPT_WARNING "' or '" PROMPT_STALE "'");
    if (r == 0 && body.silent_ms < 0)
        r = err_field(e, ERR_INVALID, "silent_ms", "silent_ms: the time must not be negative");
    if (r == 0)
        r = job_box(j, &box, e);
    return r < 0 ? r : prompt_note_silence(box, body.kind, body.session, body.silent_ms, e);
}

/* ---- changes ---- */

/* Does `step` to the box that the path names, and replies with the box as it is then. */
static int change_box(struct job *j,
                      int (*step)(struct bh_box *box, int64_t timeout_ms, struct bh_error *err),
                      struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct bh_error error = {0};
    int r = job_decode(j, job_no_fields, NULL, e);

    if (r == 0)
        r = job_box(j, &box, e);
    if (r == 0)
        r = job_fail(e, step(box, STEP_MS, &error), &error);
    return r < 0 ? r : job_reply_take(j, box_json(box), e);
}

struct pause_body {
    const char *level;
};

static const struct jx_field pause_fields[] = {
    JX(struct pause_body, level, jx_str, JX_NULLABLE),
    {0},
};

int answer_pause(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct bh_error error = {0};
    struct pause_body body = {0};
    int r = job_decode(j, pause_fields, &body, e);

    if (r == 0)
        r = job_box(j, &box, e);
    if (r == 0)
        r = job_fail(e, bh_pause(box, body.level, STEP_MS, &error), &error);
    return r < 0 ? r : job_reply_take(j, box_json(box), e);
}

int answer_resume(struct job *j, struct err *e)
{
    return change_box(j, bh_resume, e);
}

int answer_start(struct job *j, struct err *e)
{
    return change_box(j, bh_start, e);
}

int answer_stop(struct job *j, struct err *e)
{
    return change_box(j, bh_stop, e);
}

/* An agent may have to be installed first. */
int answer_start_agent(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct bh_error error = {0};
    int r = job_decode(j, job_no_fields, NULL, e);

    if (r == 0)
        r = job_box(j, &box, e);
    if (r == 0)
        r = job_fail(e, bh_start_agent(box, 0, &error), &error);
    return r < 0 ? r : job_reply_take(j, box_json(box), e);
}

int answer_destroy(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct bh_error error = {0};
    int r = job_box(j, &box, e);

    return r < 0 ? r : job_fail(e, bh_destroy(box, STEP_MS, &error), &error);
}

/* ---- its time to live ---- */

struct keep_body {
    int64_t for_ms;
};

static const struct jx_field keep_fields[] = {
    JX(struct keep_body, for_ms, jx_i64, JX_REQUIRED),
    {0},
};

int answer_keep(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct bh_error error = {0};
    struct keep_body body = {0};
    int64_t deadline_ms = 0;
    int r = job_decode(j, keep_fields, &body, e);

    if (r == 0)
        r = job_box(j, &box, e);
    if (r == 0)
        r = job_fail(e, bh_extend(box, body.for_ms, &deadline_ms, &error), &error);
    if (r == 0)
        r = job_reply_take(j, box_json(box), e);
    if (r == 0) /* the monitor has not stored it yet */
        r = json_object_set_new(j->reply, "deadline_ms", json_integer(deadline_ms)) < 0 ? err_oom(e)
                                                                                        : 0;
    return r;
}
