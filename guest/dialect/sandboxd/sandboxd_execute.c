/*
 * sandboxd_execute: POST /execute {command, timeout_seconds} is the native Exec/Run of a shell command, with its
 * result in the client's form.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/stream.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/signals.h"
#include "common/str.h"
#include "dialect/sandboxd/sandboxd.h"

#define EXECUTE_TIMEOUT_S 300.0
#define EXECUTE_MAX_S (7 * 24 * 3600.0)
#define EXIT_TIMED_OUT 124

struct execute {
    struct source source; /* first: the server has a pointer to it */
    struct source *run;   /* Exec/Run's, owned */
    double timeout_s;
};

/* ---- the result ---- */

/* {"text"} or {"b64"} as text: the client takes no other. */
static int add_text(struct buf *out, json_t *bytes, struct err *e)
{
    const char *b64 = json_string_value(json_object_get(bytes, "b64"));
    json_t *text = json_object_get(bytes, "text");
    _cleanup_free_ char *raw = NULL;
    size_t len = b64 ? strlen(b64) : 0;
    int r;

    if (text)
        return buf_add(out, json_string_value(text), json_string_length(text), e);
    if (!b64)
        return 0;
    raw = calloc(1, len + 1);
    r = raw ? b64_decode(b64, len, raw, &len, e) : err_oom(e);
    if (r < 0)
        return r;
    for (size_t i = 0; i < len; i++)
        raw[i] = raw[i] ? raw[i] : '?';
    raw[len] = '\0';
    str_make_utf8(raw);
    return buf_add(out, raw, len, e);
}

/* Output of which the middle is missing says so. */
static int add_stream(json_t *reply, json_t *result, const char *name, const char *note,
                      struct err *e)
{
    json_t *stream = json_object_get(result, name);
    json_t *tail = json_object_get(stream, "tail");
    _cleanup_buf_ struct buf out;
    int r;

    buf_init(&out, STREAM_MESSAGE_MAX);
    r = add_text(&out, stream, e);
    if (r == 0 && tail)
        r = buf_addf(&out, e, "\n[%lld bytes are left out]\n",
                     json_integer_value(json_object_get(stream, "dropped_bytes")));
    if (r == 0 && tail)
        r = add_text(&out, tail, e);
    if (r == 0)
        r = buf_adds(&out, note, e);
    if (r < 0)
        return r;
    return json_object_set_new(reply, name, json_stringn(out.len ? out.data : "", out.len)) < 0
               ? err_oom(e)
               : 0;
}

static int exit_code(json_t *end)
{
    const char *name = json_string_value(json_object_get(end, "signal"));
    int sig;

    if (name && signal_parse(name, &sig, NULL) == 0)
        return -sig; /* as Python's subprocess has it, in which the client's runtime is written */
    return (int)json_integer_value(json_object_get(end, "code"));
}

static int new_reply(const struct execute *x, json_t *result, json_t **ret, struct err *e)
{
    json_t *end = json_object_get(result, "exit");
    bool is_late = str_eq(json_string_value(json_object_get(end, "reason")), "timeout");
    _cleanup_json_ json_t *reply = json_pack(
        "{s:i, s:b}", "exit_code", is_late ? EXIT_TIMED_OUT : exit_code(end), "timed_out", is_late);
    char note[64] = "";
    int r = reply ? 0 : err_oom(e);

    if (is_late)
        (void)snprintf(note, sizeof(note), "Command timed out after %g seconds", x->timeout_s);
    if (r == 0)
        r = add_stream(reply, result, "stdout", "", e);
    if (r == 0)
        r = add_stream(reply, result, "stderr", note, e);
    if (r == 0)
        *ret = json_incref(reply);
    return r;
}

/* ---- the source ---- */

static int execute_next(struct source *s, json_t **ret_msg, struct err *e)
{
    struct execute *x = (struct execute *)s;
    _cleanup_json_ json_t *result = NULL;
    int r = x->run->ops->next(x->run, &result, e);

    if (r != SOURCE_MESSAGE)
        return r;
    r = new_reply(x, result, ret_msg, e);
    return r < 0 ? r : SOURCE_MESSAGE;
}

static void execute_free(struct source *s)
{
    struct execute *x = (struct execute *)s;

    x->run->ops->free(x->run);
    free(x);
}

static int get_timeout(json_t *params, double *ret, struct err *e)
{
    json_t *v = json_object_get(params, "timeout_seconds");
    double s = json_number_value(v);

    *ret = EXECUTE_TIMEOUT_S;
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_number(v) || !isfinite(s) || s <= 0)
        return err_field(e, ERR_INVALID, "timeout_seconds",
                         "field 'timeout_seconds' must be a number above 0");
    *ret = s < EXECUTE_MAX_S ? s : EXECUTE_MAX_S;
    return 0;
}

int sandboxd_execute(const struct rpc_call *call, struct source **ret, struct err *e)
{
    static const struct source_ops ops = {.next = execute_next, .free = execute_free};
    json_t *command = json_object_get(call->params, "command");
    struct rpc_call inner = *call;
    _cleanup_json_ json_t *params = NULL;
    _cleanup_free_ struct execute *x = calloc(1, sizeof(*x));
    int r = x ? get_timeout(call->params, &x->timeout_s, e) : err_oom(e);

    if (r < 0)
        return r;
    if (!json_is_string(command))
        return err_field(e, ERR_INVALID, "command", "field 'command' must be a string");
    params = json_pack("{s:O, s:I}", "shell", command, "timeout_ms",
                       (json_int_t)ceil(x->timeout_s * 1000));
    if (!params)
        return err_oom(e);
    inner.params = params;
    r = rpc_exec_run(&inner, &x->run, e);
    if (r < 0)
        return r;
    source_set_waker(x->run, source_wake, &x->source);
    x->source.ops = &ops;
    *ret = &TAKE(x)->source;
    return 0;
}
