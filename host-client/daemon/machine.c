/* machine: answers about everything but one box: history, images, leftovers, providers, settings. */
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "daemon/answers.h"
#include "common/str.h"
#include "daemon/daemon.h"
#include "http/request.h"
#include "http/respond.h"

#define PAGE_DEFAULT 1000
#define PAGE_MOST 10000

/* ---- history: events and records ---- */

struct page {
    json_t *list;
    int64_t limit;
    const char *cursor; /* of records: the id of the last one of the page before; or NULL */
    bool is_past;       /* the cursor */
    bool is_full;
    int64_t next; /* of events: the position or number of the last one */
};

static int add_page(struct page *p, const char *json)
{
    p->is_full = json_array_size(p->list) == (size_t)p->limit;
    return p->is_full ? 1 : json_array_append_new(p->list, json_loads(json, JSON_ALLOW_NUL, NULL));
}

/* fn's callbacks return 1 at the end of the page, and -1 without memory. */
static int page_result(int r, const struct bh_error *error, struct err *e)
{
    return r < 0 && !error->code ? err_oom(e) : job_fail(e, r < 0 ? r : 0, error);
}

static int page_add_event(void *arg, const struct bh_event *event)
{
    struct page *p = arg;
    int r = add_page(p, event->json);

    if (r == 0)
        p->next = p->cursor ? event->seq : event->position;
    return r;
}

int answer_history(struct job *j, struct err *e)
{
    struct page p = {.limit = PAGE_DEFAULT, .list = json_array(), .cursor = j->params[0]};
    struct bh_event_options o = {.size = sizeof(o), .box = j->params[0]};
    struct bh_error error = {0};
    int r = p.list ? job_number(j, "limit", 1, PAGE_MOST, &p.limit, e) : err_oom(e);

    if (r == 0 && j->params[0])
        r = job_check_box(j, e);
    if (r == 0)
        r = job_number(j, "since", 0, INT64_MAX, &o.since, e);
    p.next = o.since;
    if (r == 0)
        r = page_result(bh_list_events(j->ctx, &o, page_add_event, &p, &error), &error, e);
    if (r == 0)
        r = job_reply_take(j,
                           json_pack("{s:O, s:I, s:b}", "events", p.list, "next_since",
                                     (json_int_t)p.next, "more", p.is_full),
                           e);
    json_decref(p.list);
    return r;
}

static int page_add_record(void *arg, const struct bh_record *record)
{
    struct page *p = arg;

    if (p->cursor && !p->is_past) {
        p->is_past = strcmp(record->id, p->cursor) == 0;
        return 0;
    }
    return add_page(p, record->json);
}

int answer_records(struct job *j, struct err *e)
{
    _cleanup_free_ char *cursor = NULL;
    struct page p = {.limit = PAGE_DEFAULT, .list = json_array()};
    struct bh_error error = {0};
    json_t *last;
    int r = p.list ? job_number(j, "limit", 1, PAGE_MOST, &p.limit, e) : err_oom(e);

    if (r == 0)
        r = request_query(j->q, "cursor", &cursor, e);
    p.cursor = cursor;
    if (r == 0)
        r = page_result(bh_list_records(j->ctx, page_add_record, &p, &error), &error, e);
    last = json_array_get(p.list, json_array_size(p.list) - 1);
    if (r == 0)
        r = job_reply_take(
            j,
            json_pack("{s:O, s:s?}", "records", p.list, "next_cursor",
                      p.is_full ? json_string_value(json_object_get(last, "id")) : NULL),
            e);
    json_decref(p.list);
    return r;
}

struct record_search {
    const char *id;
    json_t *found;
};

static int find_record(void *arg, const struct bh_record *record)
{
    struct record_search *s = arg;

    if (strcmp(record->id, s->id) != 0)
        return 0;
    s->found = json_loads(record->json, JSON_ALLOW_NUL, NULL);
    return json_object_set_new(s->found, "logs", json_string(record->logs)) < 0 ? -1 : 1;
}

/* One record, with what the box's first process printed last. */
int answer_record(struct job *j, struct err *e)
{
    struct record_search s = {.id = j->params[0]};
    struct bh_error error = {0};
    int r = page_result(bh_list_records(j->ctx, find_record, &s, &error), &error, e);

    if (r == 0 && !s.found)
        return err_field(e, ERR_NOT_FOUND, "id", "there is no record of a box '%.80s'", s.id);
    j->reply = s.found;
    return r;
}

/* ---- images ---- */

static int add_image(void *arg, const struct bh_image_info *i)
{
    return json_array_append_new(
        arg, json_pack("{s:s, s:s, s:b, s:b, s:s, s:s, s:s, s:I, s:I}", "name", i->name, "version",
                       i->version, "built", *i->path != '\0', "replaced", i->replaced, "path",
                       i->path, "hash", i->hash, "forms", i->forms, "bytes", (json_int_t)i->bytes,
                       "boxes", (json_int_t)i->boxes));
}

int answer_images(struct job *j, struct err *e)
{
    struct bh_error error = {0};
    json_t *list = json_array();
    int r =
        list ? page_result(bh_image_list(j->ctx, add_image, list, &error), &error, e) : err_oom(e);

    if (r == 0)
        r = job_reply_take(j, json_pack("{s:O}", "images", list), e);
    json_decref(list);
    return r;
}

int answer_image(struct job *j, struct err *e)
{
    struct bh_error error = {0};
    char *text = NULL;
    int r = job_fail(e, bh_image_inspect(j->ctx, j->params[0], &text, &error), &error);

    return r < 0 ? r : job_reply_json_take(j, text, e);
}

struct build_body {
    struct bh_image_build_options o;
    char **forms;
};

static const struct jx_field build_fields[] = {
    JX(struct build_body, forms, jx_strv, 0),
    JX_AS("fresh", struct build_body, o.fresh, jx_bool, 0),
    JX_AS("timeout_ms", struct build_body, o.timeout_ms, jx_i64, 0),
    {0},
};

int answer_build_image(struct job *j, struct err *e)
{
    struct build_body b = {.o = {.size = sizeof(b.o), .image = j->params[0]}};
    _cleanup_free_ char *path = NULL;
    struct bh_error error = {0};
    int r = job_decode(j, build_fields, &b, e);

    b.o.forms = (const char *const *)b.forms;
    b.o.host_env = j->daemon->options.host_env;
    if (r == 0)
        r = job_fail(e, bh_image_build(j->ctx, &b.o, &path, &error), &error);
    (void)strv_free(b.forms);
    return r < 0 ? r : job_reply_take(j, json_pack("{s:s}", "path", path), e);
}

int answer_remove_image(struct job *j, struct err *e)
{
    struct bh_error error = {0};
    int r = job_decode(j, job_no_fields, NULL, e);

    return r < 0 ? r : job_fail(e, bh_image_remove(j->ctx, j->params[0], &error), &error);
}

/* ---- leftovers ---- */

static void add_line(void *arg, const char *line)
{
    (void)json_array_append_new(arg, json_string(line));
}

struct gc_body {
    struct bh_gc_options o;
};

static const struct jx_field gc_fields[] = {
    JX_AS("stopped_for_ms", struct gc_body, o.stopped_for_ms, jx_i64, 0),
    JX_AS("records_for_ms", struct gc_body, o.records_for_ms, jx_i64, 0),
    JX_AS("dry_run", struct gc_body, o.dry_run, jx_bool, 0),
    {0},
};

int answer_gc(struct job *j, struct err *e)
{
    struct gc_body b = {.o = {.size = sizeof(b.o)}};
    struct bh_error error = {0};
    json_t *lines = json_array();
    int r = lines ? job_decode(j, gc_fields, &b, e) : err_oom(e);

    if (r == 0 && (b.o.stopped_for_ms < 0 || b.o.records_for_ms < 0))
        r = err_field(e, ERR_INVALID, b.o.stopped_for_ms < 0 ? "stopped_for_ms" : "records_for_ms",
                      "must not be negative");
    if (r == 0)
        r = job_fail(e, bh_gc_run(j->ctx, &b.o, add_line, lines, &error), &error);
    if (r == 0)
        r = job_reply_take(j, json_pack("{s:O}", "done", lines), e);
    json_decref(lines);
    return r;
}

/* ---- settings ---- */

int answer_config(struct job *j, struct err *e)
{
    struct bh_options o = {.size = sizeof(o)};

    bh_get_options(j->ctx, &o);
    return job_reply_take(
        j,
        json_pack("{s:s?, s:s?, s:s?, s:s?, s:s?, s:s?, s:s?, s:s?, s:I, s:I, s:I}", "state_dir",
                  o.state_dir, "cache_dir", o.cache_dir, "agent_path", o.agent_path, "monitor_path",
                  o.monitor_path, "recipe_dir", o.recipe_dir, "image_dir", o.image_dir,
                  "template_dir", o.template_dir, "image_cache_dir", o.image_cache_dir,
                  "answer_timeout_ms", (json_int_t)o.answer_timeout_ms, "provider_timeout_ms",
                  (json_int_t)o.provider_timeout_ms, "records_for_ms",
                  (json_int_t)o.records_for_ms),
        e);
}
