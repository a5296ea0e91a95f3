/* box_info: a box as JSON, and as struct bh_box_info. */
#include "lib/box/box.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/box_provider.h"
#include "lib/box/history.h"
#include "lib/box/lifecycle.h"
#include "lib/box/remote.h"
#include "lib/recipe/bootstrap.h"

#define PASSWORD_BYTES 4096
#define BOX_JSON_BYTES (16u << 20)

static void put_password(struct jx_writer *w, const struct bh_box *box)
{
    _cleanup_free_ char *path = box_path(box, "agent-password");
    _cleanup_free_ char *text = NULL;
    size_t len = 0;

    if (path && io_read_file(AT_FDCWD, path, PASSWORD_BYTES, &text, &len, NULL) == 0)
        text[strcspn(text, "\r\n")] = '\0';
    jx_put_str(w, "password", text && str_is_utf8(text, strlen(text)) ? text : "");
}

/* "http://127.0.0.1:40123" for a forwarded port, "" for another. */
static void put_port_url(struct jx_writer *w, const struct bh_box *box, json_int_t port)
{
    char key[24];
    char url[48] = "";
    json_int_t host_port;

    (void)snprintf(key, sizeof(key), "%lld", (long long)port);
    host_port = json_integer_value(json_object_get(box->row.ports, key));
    if (host_port > 0 && box_row_is_live(&box->row))
        (void)snprintf(url, sizeof(url), "http://127.0.0.1:%lld", (long long)host_port);
    jx_put_str(w, "url", url);
}

static void put_guest(struct jx_writer *w, const struct bh_box *box)
{
    _cleanup_free_ char *socket = box_path(box, "run/agent.sock");
    _cleanup_free_ char *token = box_path(box, "token");

    if (!socket || !token)
        w->r = err_oom(w->e);
    jx_put_begin(w, "guest");
    if (box->url) {
        jx_put_str(w, "url", box->url);
    } else {
        put_port_url(w, box, 0);
        jx_put_str(w, "socket", socket);
        jx_put_str(w, "token_file", token);
    }
    jx_put_end(w);
}

static void put_agent_text(struct jx_writer *w, const struct bh_box *box, const char *name,
                           const char *unknown)
{
    const char *text = json_string_value(json_object_get(box->row.agent, name));

    jx_put_str(w, name, text ? text : unknown);
}

static void put_agent(struct jx_writer *w, const struct bh_box *box, bool with_password)
{
    json_int_t port = json_integer_value(json_object_get(box->row.agent, "port"));

    jx_put_begin(w, "agent");
    put_agent_text(w, box, "name", box->spec.agent);
    put_agent_text(w, box, "version", "");
    if (port > 0)
        put_port_url(w, box, port);
    else
        jx_put_str(w, "url", "");
    put_agent_text(w, box, "username", "");
    if (with_password)
        put_password(w, box);
    put_agent_text(w, box, "exec_id", "");
    jx_put_i64(w, "port", port);
    jx_put_end(w);
}

/* Has a later pair the same key? That one counts. */
static bool is_repeated(char *const *pair, size_t key_len)
{
    for (char *const *later = pair + 1; *later; later++)
        if (strncmp(*later, *pair, key_len + 1) == 0)
            return true;
    return false;
}

/* An object of "K=V". */
static void put_pairs(struct jx_writer *w, const char *name, char *const *pairs)
{
    jx_put_begin(w, name);
    for (char *const *l = pairs; l && *l; l++) {
        const char *eq = strchr(*l, '=');
        _cleanup_free_ char *key = eq ? strndup(*l, (size_t)(eq - *l)) : NULL;

        if (key && !is_repeated(l, strlen(key)))
            jx_put_str(w, key, eq + 1);
    }
    jx_put_end(w);
}

static void put_spec(struct jx_writer *w, const struct spec *s)
{
    jx_put_begin(w, "options");
    jx_put_str(w, "network", s->network);
    jx_put_str(w, "privilege", s->privilege);
    jx_put_str(w, "runtime", s->runtime);
    jx_put_str(w, "on_timeout", s->on_timeout);
    jx_put_str(w, "on_idle", s->on_idle);
    jx_put_str(w, "on_gone", s->on_gone);
    jx_put_i64(w, "timeout_ms", s->timeout_ms);
    jx_put_i64(w, "idle_ms", s->idle_ms);
    jx_put_i64(w, "cpu_millis", s->cpu_millis);
    jx_put_i64(w, "memory_bytes", (int64_t)s->memory_bytes);
    jx_put_i64(w, "disk_bytes", (int64_t)s->disk_bytes);
    jx_put_i64(w, "pids", s->pids);
    if (s->pool && *s->pool)
        jx_put_str(w, "pool", s->pool);
    jx_put_end(w);
}

static void put_value_take(struct jx_writer *w, const char *name, json_t *v)
{
    jx_put_value(w, name, v);
    json_decref(v);
}

static void put_project(struct jx_writer *w, const struct box_row *row)
{
    if (!row->project) { /* an older store did not record one */
        jx_put_str(w, "project", NULL);
        return;
    }
    jx_put_begin(w, "project");
    put_value_take(w, "path", jx_new_path(row->project));
    put_value_take(w, "remote", jx_new_path(row->remote));
    jx_put_end(w);
}

static void put_times(struct jx_writer *w, const struct box_times *t)
{
    jx_put_i64(w, "updated_ms", t->updated_ms);
    jx_put_i64(w, "paused_ms", t->paused_ms);
    jx_put_i64(w, "resumed_ms", t->resumed_ms);
    jx_put_i64(w, "used_ms", t->used_ms);
}

static void put_workdir(struct jx_writer *w, const struct bh_box *box)
{
    _cleanup_free_ char *workdir = box_workdir(box);

    if (!workdir)
        w->r = err_oom(w->e);
    jx_put_str(w, "workdir", workdir);
}

int box_write_json(const struct bh_box *box, bool with_password, struct buf *out, struct err *e)
{
    const struct box_row *row = &box->row;
    struct jx_writer w = {.out = out, .e = e};

    jx_put_begin(&w, NULL);
    jx_put_str(&w, "name", row->name);
    jx_put_str(&w, "id", row->id);
    jx_put_str(&w, "provider", box->spec.provider);
    jx_put_str(&w, "image", box->spec.image);
    jx_put_str(&w, "state", bh_state_name(row->state));
    jx_put_str(&w, "cause", row->cause);
    jx_put_i64(&w, "created_ms", row->times.created_ms);
    jx_put_i64(&w, "state_since_ms", row->state_since_ms);
    jx_put_i64(&w, "deadline_ms", box_row_is_live(row) ? row->deadline_ms : 0);
    put_workdir(&w, box);
    put_guest(&w, box);
    put_agent(&w, box, with_password);
    jx_put_value(&w, "ports", row->ports);
    put_pairs(&w, "labels", box->spec.labels);
    put_spec(&w, &box->spec);
    put_project(&w, row);
    put_times(&w, &row->times);
    if (row->keys && strchr(row->keys, '"'))
        put_value_take(&w, "keys", store_keys_json(row->keys));
    else
        jx_put_raw(&w, "keys", "[]");
    jx_put_str(&w, "transcript", row->transcript);
    if (box->spec.sources)
        put_pairs(&w, "sources", box->spec.sources);
    else
        jx_put_str(&w, "sources", NULL);
    jx_put_raw(&w, "snapshot", row->snapshot ? row->snapshot : "null");
    jx_put_end(&w);
    return w.r;
}

json_t *box_new_json(const struct bh_box *box, bool with_password)
{
    _cleanup_buf_ struct buf text = {.max = BOX_JSON_BYTES};
    json_t *v = NULL;
    int r = box_write_json(box, with_password, &text, NULL);

    return r == 0 && jx_parse(text.data, text.len, &v, NULL) == 0 ? v : NULL;
}

void box_clear_info(struct bh_box *box)
{
    json_decref(TAKE(box->info_json));
    free(TAKE(box->info_text));
    memset(&box->info, 0, sizeof(box->info));
}

static const char *text_of(json_t *obj, const char *key)
{
    const char *s = json_string_value(json_object_get(obj, key));

    return s ? s : "";
}

/* The fields that need no JSON. */
static void fill_info(struct bh_box *box, json_t *guest, json_t *agent)
{
    struct bh_box_info *i = &box->info;

    i->size = sizeof(*i);
    i->name = box->row.name;
    i->id = box->row.id;
    i->provider = box->spec.provider;
    i->image = box->spec.image;
    i->state = box->row.state;
    i->cause = box->row.cause;
    i->created_ms = box->row.times.created_ms;
    i->state_since_ms = box->row.state_since_ms;
    i->deadline_ms = box_row_is_live(&box->row) ? box->row.deadline_ms : 0;
    i->workdir = text_of(box->info_json, "workdir");
    i->guest_url = text_of(guest, "url");
    i->guest_socket = text_of(guest, "socket");
    i->agent_name = text_of(agent, "name");
    i->agent_version = text_of(agent, "version");
    i->agent_url = text_of(agent, "url");
    i->agent_password = text_of(agent, "password");
    i->updated_ms = box->row.times.updated_ms;
    i->paused_ms = box->row.times.paused_ms;
    i->resumed_ms = box->row.times.resumed_ms;
    i->used_ms = box->row.times.used_ms;
    i->json = "{}";
}

/* Makes the info of a text that has at least "workdir", "guest" and "agent". */
static void set_info(struct bh_box *box, int r, struct buf *text)
{
    box_clear_info(box);
    if (r == 0 && jx_parse(text->data, text->len, &box->info_json, NULL) < 0)
        box->info_json = NULL;
    fill_info(box, json_object_get(box->info_json, "guest"),
              json_object_get(box->info_json, "agent"));
}

const struct bh_box_info *bh_box_info(struct bh_box *box)
{
    _cleanup_buf_ struct buf text = {.max = BOX_JSON_BYTES};
    int r = box->remote ? remote_write_json(box, true, &text, NULL)
                        : box_write_json(box, true, &text, NULL);

    set_info(box, r, &text);
    if (r == 0 && (box->info_text = buf_take(&text)))
        box->info.json = box->info_text;
    return &box->info;
}

const struct bh_box_info *bh_box_summary(struct bh_box *box)
{
    _cleanup_buf_ struct buf text = {.max = BOX_JSON_BYTES};
    struct jx_writer w = {.out = &text};

    if (box->remote) {
        set_info(box, remote_write_json(box, false, &text, NULL), &text);
        return &box->info;
    }
    jx_put_begin(&w, NULL);
    put_workdir(&w, box);
    put_guest(&w, box);
    put_agent(&w, box, true);
    jx_put_end(&w);
    set_info(box, w.r, &text);
    return &box->info;
}
