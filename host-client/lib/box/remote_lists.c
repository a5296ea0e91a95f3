/* remote_lists: the events, records and snapshots of a daemon. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/lifecycle.h"
#include "lib/box/remote.h"
#include "lib/box/remote_calls.h"
#include "lib/util/context.h"
#include "lib/util/daemon_client.h"

#define PAGE_EVENTS 1000
#define PAGE_RECORDS 200
#define RECORDS_MAX 10000 /* the most that a daemon keeps */

/* ---- events ---- */

struct event_facts {
    int64_t position, seq, time_ms;
    const char *id, *kind, *before, *after, *cause, *actor;
    json_t *box;
};

#define EVENT(member, fn, flags) JX(struct event_facts, member, fn, flags)
static const struct jx_field event_fields[] = {
    EVENT(position, jx_i64, JX_REQUIRED),
    EVENT(seq, jx_i64, JX_REQUIRED),
    EVENT(time_ms, jx_i64, JX_REQUIRED),
    EVENT(id, jx_str, JX_REQUIRED),
    EVENT(kind, jx_str, JX_REQUIRED),
    EVENT(before, jx_str, JX_NULLABLE),
    EVENT(after, jx_str, JX_REQUIRED),
    EVENT(cause, jx_str, JX_REQUIRED),
    EVENT(actor, jx_str, JX_REQUIRED),
    EVENT(box, jx_object, JX_REQUIRED),
    {0},
};

static const char *member_text(json_t *v, const char *key)
{
    const char *text = json_string_value(json_object_get(v, key));

    return text ? text : "";
}

static int tell_event(json_t *v, int (*fn)(void *arg, const struct bh_event *event), void *arg,
                      struct err *e)
{
    _cleanup_free_ char *text = json_dumps(v, JSON_COMPACT);
    struct event_facts f = {0};
    struct err why = {0};

    if (jx_decode_lax(v, event_fields, &f, &why) < 0)
        return remote_bad_answer(e, &why);
    const struct bh_event event = {
        .size = sizeof(event),
        .position = f.position,
        .seq = f.seq,
        .id = f.id,
        .box_id = member_text(f.box, "id"),
        .box_name = member_text(f.box, "name"),
        .kind = f.kind,
        .time_ms = f.time_ms,
        .before = f.before ? lifecycle_parse(f.before) : BH_STATE_UNKNOWN,
        .after = lifecycle_parse(f.after),
        .cause = f.cause,
        .actor = f.actor,
        .json = text,
    };

    return text ? fn(arg, &event) : err_oom(e);
}

static int tell_events(json_t *list, int (*fn)(void *arg, const struct bh_event *event), void *arg,
                       struct err *e)
{
    json_t *v;
    size_t i;
    int r = 0;

    json_array_foreach (list, i, v)
        if (r == 0)
            r = tell_event(v, fn, arg, e);
    return r;
}

int remote_list_events(struct bh_ctx *ctx, const struct bh_event_options *o,
                       int (*fn)(void *arg, const struct bh_event *event), void *arg, struct err *e)
{
    _cleanup_free_ char *box = daemon_client_encode(o->box ? o->box : "");
    int64_t since = o->since;

    for (;;) {
        _cleanup_json_ json_t *page = NULL;
        json_t *list = NULL;
        int64_t next;
        int r =
            box ? remote_get_page(ctx, &page, e, "/v1/%s%s%shistory?since=%" PRId64 "&limit=%d",
                                  *box ? "boxes/" : "", box, *box ? "/" : "", since, PAGE_EVENTS)
                : err_oom(e);

        if (r == 0)
            r = remote_page_list(page, "events", &list, e);
        if (r == 0)
            r = tell_events(list, fn, arg, e);
        if (r != 0 || !json_is_true(json_object_get(page, "more")))
            return r;
        next = json_integer_value(json_object_get(page, "next_since"));
        if (next <= since)
            return err_field(e, ERR_DATA_LOSS, "daemon", "the daemon's pages do not end");
        since = next;
    }
}

/* ---- records ---- */

struct record_facts {
    const char *id, *name, *provider, *image, *cause, *transcript;
    int64_t created_ms, updated_ms, paused_ms, resumed_ms, used_ms, destroyed_ms;
    json_t *exit;
};

#define RECORD(member, fn, flags) JX(struct record_facts, member, fn, flags)
static const struct jx_field record_fields[] = {
    RECORD(id, jx_str, JX_REQUIRED),
    RECORD(name, jx_str, JX_REQUIRED),
    RECORD(provider, jx_str, JX_REQUIRED),
    RECORD(image, jx_str, JX_REQUIRED),
    RECORD(cause, jx_str, JX_REQUIRED),
    RECORD(transcript, jx_str, JX_NULLABLE),
    RECORD(created_ms, jx_i64, JX_REQUIRED),
    RECORD(updated_ms, jx_i64, JX_REQUIRED),
    RECORD(paused_ms, jx_i64, JX_REQUIRED),
    RECORD(resumed_ms, jx_i64, JX_REQUIRED),
    RECORD(used_ms, jx_i64, JX_REQUIRED),
    RECORD(destroyed_ms, jx_i64, JX_REQUIRED),
    RECORD(exit, jx_any, 0),
    {0},
};

/* Without the logs, which a list does not have. */
static int tell_record(json_t *v, int (*fn)(void *arg, const struct bh_record *record), void *arg,
                       struct err *e)
{
    _cleanup_free_ char *text = json_dumps(v, JSON_COMPACT);
    struct record_facts f = {0};
    struct err why = {0};
    json_t *code;

    if (jx_decode_lax(v, record_fields, &f, &why) < 0)
        return remote_bad_answer(e, &why);
    code = json_object_get(f.exit, "code");
    const struct bh_record record = {
        .size = sizeof(record),
        .id = f.id,
        .name = f.name,
        .provider = f.provider,
        .image = f.image,
        .cause = f.cause,
        .created_ms = f.created_ms,
        .updated_ms = f.updated_ms,
        .paused_ms = f.paused_ms,
        .resumed_ms = f.resumed_ms,
        .used_ms = f.used_ms,
        .destroyed_ms = f.destroyed_ms,
        .exit_code = json_is_integer(code) ? (int)json_integer_value(code) : -1,
        .exit_signal = (int)json_integer_value(json_object_get(f.exit, "signal")),
        .logs = "",
        .transcript = f.transcript,
        .json = text,
    };

    return text ? fn(arg, &record) : err_oom(e);
}

int remote_list_records(struct bh_ctx *ctx, int (*fn)(void *arg, const struct bh_record *record),
                        void *arg, struct err *e)
{
    char cursor[CTX_BOX_ID_CHARS + 1] = "";
    size_t n = 0;

    for (;;) {
        _cleanup_json_ json_t *page = NULL;
        const char *next;
        json_t *list = NULL, *v;
        size_t i;
        int r = remote_get_page(ctx, &page, e, "/v1/records?limit=%d%s%s", PAGE_RECORDS,
                                *cursor ? "&cursor=" : "", cursor);

        if (r == 0)
            r = remote_page_list(page, "records", &list, e);
        json_array_foreach (list, i, v)
            if (r == 0)
                r = tell_record(v, fn, arg, e);
        n += json_array_size(list);
        next = json_string_value(json_object_get(page, "next_cursor"));
        if (r != 0 || !next)
            return r;
        if (!ctx_is_box_id(next) || n > RECORDS_MAX)
            return err_field(e, ERR_DATA_LOSS, "daemon", "the daemon's pages do not end");
        (void)snprintf(cursor, sizeof(cursor), "%s", next);
    }
}

/* ---- snapshots ---- */

struct snapshot_facts {
    const char *name, *id, *box, *box_id, *provider, *image, *agent;
    int64_t created_ms;
    uint64_t bytes, copied_bytes, entries;
    json_t *layers;
};

#define SNAPSHOT(member, fn, flags) JX(struct snapshot_facts, member, fn, flags)
static const struct jx_field snapshot_fields[] = {
    SNAPSHOT(name, jx_str, JX_REQUIRED),
    SNAPSHOT(id, jx_str, JX_REQUIRED),
    SNAPSHOT(box, jx_str, JX_REQUIRED),
    SNAPSHOT(box_id, jx_str, JX_REQUIRED),
    SNAPSHOT(provider, jx_str, JX_NULLABLE),
    SNAPSHOT(image, jx_str, JX_NULLABLE),
    SNAPSHOT(agent, jx_str, JX_NULLABLE),
    SNAPSHOT(created_ms, jx_i64, JX_REQUIRED),
    SNAPSHOT(bytes, jx_u64, JX_NULLABLE),
    SNAPSHOT(copied_bytes, jx_u64, JX_NULLABLE),
    SNAPSHOT(entries, jx_u64, JX_NULLABLE),
    SNAPSHOT(layers, jx_array, JX_REQUIRED),
    {0},
};

int remote_tell_snapshot(json_t *v, int (*fn)(void *arg, const struct bh_snapshot_info *info),
                         void *arg, struct err *e)
{
    _cleanup_free_ char *text = json_dumps(v, JSON_COMPACT);
    struct snapshot_facts f = {.provider = "", .image = "", .agent = ""};
    struct err why = {0};

    if (jx_decode_lax(v, snapshot_fields, &f, &why) < 0)
        return remote_bad_answer(e, &why);
    const struct bh_snapshot_info info = {
        .size = sizeof(info),
        .name = f.name,
        .id = f.id,
        .box_name = f.box,
        .box_id = f.box_id,
        .provider = f.provider,
        .image = f.image,
        .agent = f.agent,
        .created_ms = f.created_ms,
        .bytes = f.bytes,
        .copied_bytes = f.copied_bytes,
        .entries = f.entries,
        .n_layers = (uint32_t)json_array_size(f.layers),
        .json = text,
    };

    return text ? fn(arg, &info) : err_oom(e);
}

int remote_list_snapshots(struct bh_ctx *ctx,
                          int (*fn)(void *arg, const struct bh_snapshot_info *info), void *arg,
                          struct err *e)
{
    _cleanup_json_ json_t *page = NULL;
    json_t *list = NULL, *v;
    size_t i;
    int r = remote_get_page(ctx, &page, e, "/v1/snapshots");

    if (r == 0)
        r = remote_page_list(page, "snapshots", &list, e);
    json_array_foreach (list, i, v)
        if (r == 0)
            r = remote_tell_snapshot(v, fn, arg, e);
    return r;
}

static int call_snapshot(struct bh_ctx *ctx, const char *method, const char *name, const char *step,
                         const json_t *body, struct err *e)
{
    _cleanup_free_ char *part = daemon_client_encode(name);
    _cleanup_free_ char *path = NULL;

    if (!*name)
        return err_field(e, ERR_NOT_FOUND, "snapshot", "there is no snapshot ''");
    if (!part || asprintf(&path, "/v1/snapshots/%s%s", part, step) < 0) {
        path = NULL;
        return err_oom(e);
    }
    return remote_call(ctx, method, path, body, REMOTE_LONG_MS, NULL, e);
}

int remote_remove_snapshot(struct bh_ctx *ctx, const char *name, struct err *e)
{
    return call_snapshot(ctx, "DELETE", name, "", NULL, e);
}

int remote_verify_snapshot(struct bh_ctx *ctx, const char *name, int64_t timeout_ms, struct err *e)
{
    _cleanup_json_ json_t *body = json_pack("{s:I}", "timeout_ms", (json_int_t)timeout_ms);

    return body ? call_snapshot(ctx, "POST", name, "/verify", body, e) : err_oom(e);
}
