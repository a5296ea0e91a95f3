#include "lib/agent/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/context.h"

int agent_begin(struct bh_box *box, struct client **ret, struct err *e)
{
    int r = agent_ops(box)->wake(box, e);

    return r < 0 ? r : agent_ops(box)->get_client(box, ret, e);
}

int agent_resolve(const struct bh_box *box, const char *key, const char *path, char **ret,
                  struct err *e)
{
    _cleanup_free_ char *workdir = NULL;

    if (!path || !*path)
        return err_field(e, ERR_INVALID, key, "%s must not be empty", key);
    workdir = agent_ops(box)->new_workdir(box);
    /* Not cleaned: the agent must resolve "link/..", which depends on the link's target. */
    *ret = workdir ? str_eq(path, ".") ? strdup(workdir) : path_join(workdir, path) : NULL;
    return *ret ? 0 : err_oom(e);
}

int agent_begin_on_path(struct bh_box *box, const char *path, struct client **ret_client,
                        char **ret_path, struct err *e)
{
    _cleanup_free_ char *checked = NULL;
    int r = agent_resolve(box, "path", path, &checked, e);

    if (r == 0)
        r = agent_begin(box, ret_client, e);
    return r < 0 ? r : agent_resolve(box, "path", path, ret_path, e);
}

int64_t agent_deadline(int64_t timeout_ms)
{
    return timeout_ms > 0 ? clock_mono_ms() + timeout_ms : 0;
}

/* ---- requests ---- */

void params_set_take(json_t *p, const char *key, json_t *value, struct err *e)
{
    if ((!value || json_object_set_new(p, key, value) < 0) && !e->code)
        (void)err_oom(e);
}

void params_set_path(json_t *p, const struct bh_box *box, const char *key, const char *path,
                     struct err *e)
{
    _cleanup_free_ char *full = NULL;

    if (!e->code && agent_resolve(box, key, path, &full, e) == 0)
        params_set_take(p, key, jx_new_path(full), e);
}

static void params_check_text(const char *key, const char *s, struct err *e)
{
    if (!e->code && !str_is_utf8(s, strlen(s)))
        (void)err_field(e, ERR_INVALID, key, "the %s is not valid UTF-8", key);
}

void params_set_text(json_t *p, const char *key, const char *s, struct err *e)
{
    if (!s)
        return;
    params_check_text(key, s, e);
    params_set_take(p, key, json_string(s), e);
}

void params_set_flag(json_t *p, const char *key, bool on, struct err *e)
{
    if (on)
        params_set_take(p, key, json_true(), e);
}

void params_set_count(json_t *p, const char *key, uint64_t n, struct err *e)
{
    if (n)
        params_set_take(p, key, json_integer((json_int_t)n), e);
}

void params_set_list(json_t *p, const char *key, const char *const *list, struct err *e)
{
    json_t *a = list ? json_array() : NULL;

    for (; a && *list; list++) {
        params_check_text(key, *list, e);
        (void)json_array_append_new(a, json_string(*list));
    }
    if (a)
        params_set_take(p, key, a, e);
}

void params_set_mode(json_t *p, const char *key, uint32_t mode, struct err *e)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%04o", (unsigned)mode);
    if (mode)
        params_set_text(p, key, text, e);
}

int agent_call_take(struct bh_box *box, enum rpc_method method, json_t *params, int64_t timeout_ms,
                    json_t **ret, struct err *e)
{
    struct client *c = NULL;
    int r = e->code ? -e->code : params ? agent_begin(box, &c, e) : err_oom(e);

    if (r == 0)
        r = client_call(c, method, params, agent_deadline(timeout_ms), ret, e);
    json_decref(params);
    return r;
}

/* ---- replies ---- */

const char *reply_text(const json_t *obj, const char *key)
{
    const char *s = json_string_value(json_object_get(obj, key));

    return s ? s : "";
}

int64_t reply_count(const json_t *obj, const char *key)
{
    return json_integer_value(json_object_get(obj, key));
}

int reply_bytes(json_t *obj, struct jx_bytes *ret, struct err *e)
{
    _cleanup_json_ json_t *only = json_pack("{s:O*, s:O*}", "text", json_object_get(obj, "text"),
                                            "b64", json_object_get(obj, "b64"));

    if (!only)
        return err_oom(e);
    return err_wrap(e, jx_bytes(only, ret, e), "the guest agent's answer");
}

/* ---- any method ---- */

struct relay {
    int (*fn)(void *arg, const char *json);
    void *arg;
};

static int relay_message(void *arg, json_t *msg)
{
    struct relay *relay = arg;
    _cleanup_free_ char *text = NULL;

    if (jx_dump(msg, &text, NULL, NULL) < 0)
        return 1;
    return relay->fn(relay->arg, text);
}

int bh_call(struct bh_box *box, const char *method, const char *params_json,
            int (*message)(void *arg, const char *json), void *arg, int64_t timeout_ms,
            char **ret_json, struct bh_error *err)
{
    struct relay relay = {.fn = message, .arg = arg};
    _cleanup_json_ json_t *params = NULL;
    _cleanup_json_ json_t *reply = NULL;
    struct client *c = NULL;
    struct err e = {0};
    int r = jx_parse(params_json ? params_json : "{}", params_json ? strlen(params_json) : 2,
                     &params, &e);

    r = r < 0 ? err_at(&e, r, "params") : agent_begin(box, &c, &e);
    if (r == 0 && message)
        r = client_stream_named(c, method, params, agent_deadline(timeout_ms), relay_message,
                                &relay, &e);
    else if (r == 0)
        r = client_call_named(c, method, params, agent_deadline(timeout_ms), &reply, &e);
    if (r == 0 && reply && ret_json)
        r = jx_dump(reply, ret_json, NULL, &e);
    return ctx_fail(err, r, &e);
}
