/* exec_info: replies about a command, decoded into the public structs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/agent/exec.h"
#include "lib/util/context.h"

#define COMMAND_BYTES (64 * 1024) /* of a command line for a person */

/* -1 for null: the kernel does not say. */
static int64_t maybe_count(json_t *obj, const char *name)
{
    json_t *v = json_object_get(obj, name);

    return json_is_integer(v) ? json_integer_value(v) : -1;
}

static const char *text_of(json_t *obj, const char *name, const char *otherwise)
{
    const char *s = json_string_value(json_object_get(obj, name));

    return s ? s : otherwise;
}

void exec_read_result(json_t *reply, struct bh_run_result *ret)
{
    json_t *exit = json_object_get(reply, "exit");
    json_t *usage = json_object_get(reply, "usage");
    json_t *oom = json_object_get(exit, "oom");

    (void)snprintf(ret->reason, sizeof(ret->reason), "%s", text_of(exit, "reason", "lost"));
    (void)snprintf(ret->signal, sizeof(ret->signal), "%s", text_of(exit, "signal", ""));
    (void)snprintf(ret->tree, sizeof(ret->tree), "%s", text_of(exit, "tree", ""));
    ret->oom = json_is_boolean(oom) ? (json_is_true(oom) ? BH_YES : BH_NO) : BH_NOT_KNOWN;
    ret->code = (int)reply_count(exit, "code");
    ret->wall_ms = reply_count(usage, "wall_ms");
    ret->user_ms = reply_count(usage, "user_ms");
    ret->system_ms = reply_count(usage, "system_ms");
    ret->max_rss_bytes = (uint64_t)reply_count(usage, "max_rss_bytes");
    ret->read_bytes = maybe_count(usage, "read_bytes");
    ret->write_bytes = maybe_count(usage, "write_bytes");
}

void exec_give_result(const struct bh_run_result *result, struct bh_run_result *ret)
{
    size_t size;

    if (!ret)
        return;
    size = ret->size && ret->size < sizeof(*result) ? ret->size : sizeof(*result);
    memcpy(ret, result, size);
    ret->size = size;
}

/* "2026-11-22T01:35:00.123Z" -> milliseconds since 1970; 0 for anything else. */
static int64_t time_of(json_t *obj, const char *name)
{
    struct tm tm = {0};
    const char *rest = strptime(text_of(obj, name, ""), "%Y-%m-%dT%H:%M:%S", &tm);
    uint64_t ms = 0;
    char digits[4];

    if (!rest)
        return 0;
    (void)snprintf(digits, sizeof(digits), "%s", *rest == '.' ? rest + 1 : "0");
    (void)str_parse_u64(digits, 0, 999, &ms, NULL);
    return (int64_t)timegm(&tm) * 1000 + (int64_t)ms;
}

/* Adds a word, quoted for a shell if necessary. */
static int add_word(struct buf *b, const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%^";
    int r;

    if (*word && strspn(word, plain) == strlen(word))
        return buf_adds(b, word, NULL);
    r = buf_adds(b, "'", NULL);
    for (; r == 0 && *word; word++)
        r = *word == '\'' ? buf_adds(b, "'\\''", NULL) : buf_add(b, word, 1, NULL);
    return r < 0 ? r : buf_adds(b, "'", NULL);
}

/* Adds the first line that is not blank, and "..." if there are more. */
static void add_script(struct buf *b, const json_t *script)
{
    const char *text = json_string_value(json_object_get(script, "text"));
    size_t len;

    if (!text) {
        (void)buf_adds(b, "(a script)", NULL);
        return;
    }
    text += strspn(text, " \t\n");
    len = strcspn(text, "\n");
    (void)buf_add(b, text, len, NULL);
    if (text[len + strspn(text + len, " \t\n")])
        (void)buf_adds(b, " ...", NULL);
}

static char *command_of(json_t *obj)
{
    struct buf b;
    json_t *word;
    size_t i;

    buf_init(&b, COMMAND_BYTES);
    if (json_object_get(obj, "shell"))
        add_script(&b, json_object_get(obj, "script"));
    json_array_foreach (json_object_get(obj, "argv"), i, word) {
        _cleanup_free_ char *text = NULL;

        if (json_string_length(word) == 0 && json_is_string(word))
            text = strdup("");
        else if (jx_path(word, &text, NULL) < 0)
            text = strdup("?");
        if ((i && buf_adds(&b, " ", NULL) < 0) || !text || add_word(&b, text) < 0)
            break;
    }
    if (json_object_get(obj, "argv_omitted"))
        (void)buf_adds(&b, " ...", NULL);
    return b.len ? buf_take(&b) : strdup("");
}

static int give_exec_info(json_t *obj, int (*fn)(void *arg, const struct bh_exec_info *info),
                          void *arg, struct err *e)
{
    _cleanup_free_ char *command = command_of(obj);
    _cleanup_free_ char *text = NULL;
    struct bh_exec_info i = {
        .size = sizeof(i),
        .id = text_of(obj, "id", ""),
        .state = text_of(obj, "state", ""),
        .command = command,
        .pid = (int)reply_count(obj, "pid"),
        .pty = json_is_true(json_object_get(obj, "pty")),
        .stdin_open = json_is_true(json_object_get(obj, "stdin_open")),
        .started_ms = time_of(obj, "started"),
        .ended_ms = time_of(obj, "ended"),
        .stdout_bytes = (uint64_t)reply_count(json_object_get(obj, "stdout"), "bytes"),
        .stderr_bytes = (uint64_t)reply_count(json_object_get(obj, "stderr"), "bytes"),
        .result = {.size = sizeof(i.result)},
    };
    int r = command ? jx_dump(obj, &text, NULL, e) : err_oom(e);

    if (r < 0)
        return r;
    i.json = text;
    (void)snprintf(i.result.id, sizeof(i.result.id), "%s", i.id);
    i.result.pid = i.pid;
    if (str_eq(i.state, "ended"))
        exec_read_result(obj, &i.result);
    return fn(arg, &i);
}

int bh_exec_list(struct bh_box *box, int (*fn)(void *arg, const struct bh_exec_info *info),
                 void *arg, struct bh_error *err)
{
    _cleanup_json_ json_t *reply = NULL;
    struct client *c = NULL;
    struct err e = {0};
    json_t *obj;
    size_t i;
    int r = agent_begin(box, &c, &e);

    if (r == 0)
        r = client_call(c, RPC_exec_list, NULL, 0, &reply, &e);
    json_array_foreach (json_object_get(reply, "commands"), i, obj) {
        if (r == 0)
            r = give_exec_info(obj, fn, arg, &e);
    }
    return r < 0 ? ctx_fail(err, r, &e) : r;
}

int bh_exec_get(struct bh_exec *exec, int (*fn)(void *arg, const struct bh_exec_info *info),
                void *arg, struct bh_error *err)
{
    _cleanup_json_ json_t *params = json_pack("{s:s, s:b}", "id", exec->id, "output", 1);
    _cleanup_json_ json_t *reply = NULL;
    struct err e = {0};
    int r = params ? client_call(exec->calls, RPC_exec_get, params, 0, &reply, &e) : err_oom(&e);

    if (r == 0)
        r = give_exec_info(reply, fn, arg, &e);
    return r < 0 ? ctx_fail(err, r, &e) : r;
}
