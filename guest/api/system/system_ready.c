/* System.Ready: whether the tools work, and the facts of the box: disk, clock, users, kernel. */
#include <stdlib.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "fs/root.h"
#include "agent.h"
#include "api/dialect.h"
#include "api/files/files.h"
#include "api/stream.h"
#include "http/respond.h"
#include "system/info.h"
#include "system/ready.h"

struct ready_source {
    struct source source; /* first */
    const struct agent *agent;
    struct ready_check *check;
    int64_t now_ms; /* the caller's clock; 0: not given */
};

static json_t *new_tool(const struct ready_tool *t)
{
    json_t *v = json_pack("{s:s, s:b, s:b, s:s}", "name", t->name, "ok", (int)t->is_ok, "required",
                          (int)t->is_required, t->is_ok ? "version" : "error", t->text);

    if (v && t->program)
        (void)json_object_set_new(v, "program", json_string(t->program));
    return v;
}

static json_t *new_report(const struct ready_report *r)
{
    _cleanup_json_ json_t *tools = json_array();
    _cleanup_json_ json_t *missing = json_array();

    for (size_t i = 0; i < r->n_tools; i++) {
        const struct ready_tool *t = &r->tools[i];

        (void)json_array_append_new(tools, new_tool(t));
        if (!t->is_ok && t->is_required)
            (void)json_array_append_new(missing, json_string(t->name));
    }
    return json_pack("{s:b, s:O, s:O, s:I}", "ready", (int)r->is_ready, "missing", missing, "tools",
                     tools, "age_ms", (json_int_t)r->age_ms);
}

static json_t *new_disk(const struct agent *a)
{
    const char *path = a->workdir ? a->workdir : fs_root_path(a->root);
    struct info_disk d;

    if (!info_get_disk(path, &d))
        return json_pack("{s:o, s:b}", "path", jx_new_path(path), "ok", 0);
    return json_pack("{s:o, s:b, s:b, s:I, s:I, s:I, s:I}", "path", jx_new_path(path), "ok",
                     d.free_bytes > 0 && !d.is_read_only, "read_only", (int)d.is_read_only,
                     "free_bytes", (json_int_t)d.free_bytes, "total_bytes",
                     (json_int_t)d.total_bytes, "free_inodes", (json_int_t)d.free_inodes,
                     "total_inodes", (json_int_t)d.total_inodes);
}

static json_t *new_id_map(const struct info_id_range *ranges, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < n; i++)
        (void)json_array_append_new(list, json_pack("[I, I, I]", (json_int_t)ranges[i].inside,
                                                    (json_int_t)ranges[i].outside,
                                                    (json_int_t)ranges[i].count));
    return list;
}

static json_t *new_clock(const struct info_box *b, int64_t caller_ms)
{
    char text[CLOCK_TEXT_BYTES];

    clock_text(b->real_ms, text);
    return json_pack("{s:s, s:o, s:I, s:I}", "now", text, "offset_ms",
                     caller_ms ? json_integer(caller_ms - b->real_ms) : json_null(), "monotonic_ms",
                     (json_int_t)b->mono_ms, "boottime_ms", (json_int_t)b->boot_ms);
}

static json_t *new_limits(struct ready *ready)
{
    json_t *obj = json_object();
    bool limits[N_CGROUP_LIMITS];

    ready_get_limits(ready, limits);
    for (size_t i = 0; obj && i < N_CGROUP_LIMITS; i++)
        (void)json_object_set_new(obj, cgroup_limit_name(i), json_boolean(limits[i]));
    return obj;
}

static json_t *new_kernel(const struct agent *a, const struct info_box *b)
{
    struct info i;

    info_get(&i);
    return json_pack("{s:s, s:s, s:b, s:b, s:b, s:o}", "release", i.kernel.release, "cgroup",
                     i.cgroup, "jit", (int)i.has_jit, "openat2", (int)b->has_openat2, "pidfd",
                     (int)b->has_pidfd, "limits", new_limits(a->ready));
}

static int ready_next(struct source *source, json_t **ret_msg, struct err *e)
{
    struct ready_source *s = (struct ready_source *)source;
    const struct ready_report *report = ready_check_poll(s->check);
    struct info_box b;
    json_t *v;

    if (!report)
        return SOURCE_WAIT;
    v = new_report(report);
    if (!v)
        return err_oom(e);
    info_get_box(&b);
    (void)json_object_set_new(v, "disk", new_disk(s->agent));
    (void)json_object_set_new(v, "clock", new_clock(&b, s->now_ms));
    (void)json_object_set_new(v, "users",
                              json_pack("{s:i, s:i, s:b, s:o, s:o}", "uid", (int)geteuid(), "gid",
                                        (int)getegid(), "user_namespace", (int)b.is_user_namespace,
                                        "uid_map", new_id_map(b.uids, b.n_uids), "gid_map",
                                        new_id_map(b.gids, b.n_gids)));
    (void)json_object_set_new(v, "kernel", new_kernel(s->agent, &b));
    *ret_msg = v;
    return SOURCE_MESSAGE;
}

static void ready_source_free(struct source *source)
{
    struct ready_source *s = (struct ready_source *)source;

    ready_check_free(s->check);
    free(s);
}

static const struct source_ops ready_source_ops = {.next = ready_next, .free = ready_source_free};

struct ready_params {
    bool fresh;
    int64_t now_ms;
};

static const struct jx_field ready_fields[] = {
    JX(struct ready_params, fresh, jx_bool, 0),
    JX(struct ready_params, now_ms, jx_i64, 0),
    {0},
};

/* {"fresh":true} runs the tools even if a report is kept. */
int rpc_system_ready(const struct rpc_call *call, struct source **ret, struct err *e)
{
    struct ready_params p = {0};
    struct ready_source *s;
    int r;

    r = jx_decode(call->params, ready_fields, &p, e);
    if (r == 0 && p.now_ms < 0)
        r = err_field(e, ERR_INVALID, "now_ms", "field 'now_ms' must be milliseconds since 1970");
    if (r < 0)
        return r;
    s = calloc(1, sizeof(*s));
    if (!s)
        return err_oom(e);
    *s = (struct ready_source){
        .source.ops = &ready_source_ops, .agent = call->agent, .now_ms = p.now_ms};
    r = ready_check_new(call->agent->ready, p.fresh, source_wake, s, &s->check, e);
    if (r < 0) {
        free(s);
        return r;
    }
    *ret = &s->source;
    return 0;
}

/* ---- the route ---- */

/* /v1/ready is System.Ready as a probe: 503 unless all that is required works. */
static int ready_begin(struct request *q, struct err *e)
{
    static const char *const known[] = {"fresh", NULL};
    _cleanup_json_ json_t *params = NULL;
    struct rpc_call call = {.agent = request_agent(q)};
    struct source *source;
    bool fresh = false;
    int r;

    r = files_check_query(q, known, e);
    if (r < 0)
        return r;
    r = request_query_bool(q, "fresh", &fresh, e);
    if (r < 0)
        return r;
    call.params = params = json_pack("{s:b}", "fresh", (int)fresh);
    if (!params)
        return err_oom(e);
    r = rpc_system_ready(&call, &source, e);
    if (r < 0)
        return r;
    source_set_waker(source, stream_wake_request, q);
    q->state = source;
    return 0;
}

static int ready_finish(struct request *q, struct err *e)
{
    _cleanup_json_ json_t *msg = NULL;
    int r;

    r = stream_pull(q, q->state, &msg, e);
    if (r == SOURCE_WAIT)
        return 0;
    if (r != SOURCE_MESSAGE)
        return r < 0 ? r : err_set(e, ERR_INTERNAL, "no answer");
    return respond_json(
        q, json_is_true(json_object_get(msg, "ready")) ? HTTP_OK : HTTP_SERVICE_UNAVAILABLE, msg,
        e);
}

static void ready_done(struct request *q)
{
    struct source *source = q->state;

    if (source)
        source->ops->free(source);
}

const struct request_ops ready_ops = {
    .begin = ready_begin, .finish = ready_finish, .done = ready_done};
