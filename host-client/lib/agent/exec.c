#include "lib/agent/exec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/util/context.h"

static int make_id(const char *id, char out[EXEC_ID_BYTES], struct err *e)
{
    char hex[17];
    int r;

    if (id) {
        if (!*id || strlen(id) >= EXEC_ID_BYTES)
            return err_field(e, ERR_INVALID, "id", "id must have 1 to %d characters",
                             EXEC_ID_BYTES - 1);
        (void)snprintf(out, EXEC_ID_BYTES, "%s", id);
        return 0;
    }
    r = io_random_hex(8, hex, e);
    if (r == 0)
        (void)snprintf(out, EXEC_ID_BYTES, "run-%s", hex);
    return r;
}

static int open_stop_fd(struct bh_exec *x, struct err *e)
{
    struct epoll_event readable = {.events = EPOLLIN};

    x->input_failed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    x->stop_fd = epoll_create1(EPOLL_CLOEXEC);
    if (x->input_failed_fd < 0 || x->stop_fd < 0 ||
        epoll_ctl(x->stop_fd, EPOLL_CTL_ADD, x->input_failed_fd, &readable) < 0 ||
        (x->cancel_fd >= 0 && epoll_ctl(x->stop_fd, EPOLL_CTL_ADD, x->cancel_fd, &readable) < 0))
        return err_sys(e, errno, "epoll");
    return 0;
}

int exec_new(struct bh_box *box, const char *id, struct bh_exec **ret, struct err *e)
{
    struct bh_exec *x = calloc(1, sizeof(*x));
    int r;

    if (!x)
        return err_oom(e);
    x->box = box;
    x->cancel_fd = agent_ops(box)->get_cancel_fd(box);
    x->input_failed_fd = x->stop_fd = -1;
    r = make_id(id, x->id, e);
    if (r == 0)
        r = exec_input_new(&x->own, e);
    if (r == 0)
        r = exec_input_new(&x->pumped, e);
    if (r == 0)
        r = open_stop_fd(x, e);
    if (r == 0)
        r = agent_ops(box)->wake(box, e);
    if (r == 0)
        x->mark = agent_ops(box)->get_mark(box);
    if (r == 0)
        r = agent_ops(box)->new_client(box, x->stop_fd, &x->stream, e);
    if (r == 0)
        r = agent_ops(box)->new_client(box, x->cancel_fd, &x->calls, e);
    if (r < 0) {
        (void)bh_exec_free(x);
        return r;
    }
    *ret = x;
    return 0;
}

struct bh_exec *bh_exec_free(struct bh_exec *x)
{
    if (!x)
        return NULL;
    (void)client_free(x->stream);
    (void)client_free(x->calls);
    fd_close(x->stop_fd);
    fd_close(x->input_failed_fd);
    json_decref(x->request);
    free(x->unsent);
    free(x);
    return NULL;
}

int bh_exec_start(struct bh_box *box, const struct bh_run_options *opts, struct bh_exec **ret_exec,
                  struct bh_error *err)
{
    struct bh_exec *x = NULL;
    struct bh_run_options o;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0)
        r = exec_request_check(&o, &e);
    if (r == 0)
        r = exec_new(box, o.id, &x, &e);
    if (r == 0)
        r = exec_request_new(box, x->id, &o, o.stdin_open, false, &x->request, &e);
    if (r == 0)
        r = agent_ops(box)->extend_lease(box, o.timeout_ms, &e);
    if (r == 0)
        r = exec_start_own(x, o.id != NULL, &e);
    if (r < 0) {
        (void)bh_exec_free(x);
        return ctx_fail(err, r, &e);
    }
    x->is_pty = o.pty;
    *ret_exec = x;
    return 0;
}

int bh_exec_attach(struct bh_box *box, const char *id, struct bh_exec **ret_exec,
                   struct bh_error *err)
{
    _cleanup_json_ json_t *reply = NULL;
    _cleanup_json_ json_t *params = NULL;
    struct bh_exec *x = NULL;
    struct err e = {0};
    int r = exec_new(box, id ? id : "", &x, &e);

    if (r == 0) {
        params = json_pack("{s:s}", "id", x->id);
        r = params ? client_call(x->calls, RPC_exec_get, params, 0, &reply, &e) : err_oom(&e);
    }
    if (r < 0) {
        (void)bh_exec_free(x);
        return ctx_fail(err, r, &e);
    }
    x->is_started = true;
    x->pid = (int)json_integer_value(json_object_get(reply, "pid"));
    x->is_pty = json_is_true(json_object_get(reply, "pty"));
    *ret_exec = x;
    return 0;
}

const char *bh_exec_id(const struct bh_exec *x)
{
    return x->id;
}

int bh_exec_pid(const struct bh_exec *x)
{
    return x->pid;
}

static bool is_stream(int stream)
{
    return stream == 1 || stream == 2;
}

void bh_exec_seek(struct bh_exec *x, int stream, uint64_t offset)
{
    if (is_stream(stream))
        x->offset[stream] = offset;
}

uint64_t bh_exec_offset(const struct bh_exec *x, int stream)
{
    return is_stream(stream) ? x->offset[stream] : 0;
}

int bh_exec_follow(struct bh_exec *x, const struct bh_follow_options *opts,
                   struct bh_run_result *ret_result, struct bh_error *err)
{
    struct bh_run_result result = {.size = sizeof(result)};
    struct bh_follow_options o;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0)
        r = exec_follow(x, &o, &result, &e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    exec_give_result(&result, ret_result);
    return 0;
}

int bh_exec_read(struct bh_exec *x, int stream, void *buf, size_t bytes, size_t *ret_len,
                 bool *ret_eof, struct bh_error *err)
{
    _cleanup_json_ json_t *params = NULL;
    _cleanup_json_ json_t *reply = NULL;
    struct jx_bytes data = {0};
    struct err e = {0};
    int r = is_stream(stream) ? 0 : err_field(&e, ERR_INVALID, "stream", "stream must be 1 or 2");

    if (r == 0) {
        params = json_pack("{s:s, s:s, s:I, s:I}", "id", x->id, "stream",
                           stream == 2 ? "stderr" : "stdout", "offset",
                           (json_int_t)x->offset[stream], "max_bytes",
                           (json_int_t)(bytes < EXEC_PIECE_BYTES ? bytes : EXEC_PIECE_BYTES));
        r = params ? client_call(x->calls, RPC_exec_read, params, 0, &reply, &e) : err_oom(&e);
    }
    if (r == 0)
        r = reply_bytes(reply, &data, &e);
    if (r == 0 && data.len > bytes)
        r = err_set(&e, ERR_DATA_LOSS, "the guest agent sent more than was asked for");
    if (r == 0) {
        memcpy(buf, data.data, data.len);
        x->offset[stream] += data.len;
        *ret_len = data.len;
        if (ret_eof)
            *ret_eof = json_is_true(json_object_get(reply, "eof"));
    }
    jx_bytes_done(&data);
    return ctx_fail(err, r, &e);
}

int bh_exec_write(struct bh_exec *x, const void *data, size_t len, int64_t timeout_ms,
                  struct bh_error *err)
{
    struct err e = {0};
    int r =
        exec_write(x, &x->own, x->calls, data, len, agent_deadline(timeout_ms), x->cancel_fd, &e);

    return ctx_fail(err, r, &e);
}

static int exec_call_take(struct bh_exec *x, enum rpc_method method, json_t *params_take,
                          json_t **ret, struct bh_error *err)
{
    struct err e = {0};
    int r = params_take ? client_call(x->calls, method, params_take, 0, ret, &e) : err_oom(&e);

    json_decref(params_take);
    return ctx_fail(err, r, &e);
}

int bh_exec_close_stdin(struct bh_exec *x, struct bh_error *err)
{
    return exec_call_take(x, RPC_exec_close_stdin, json_pack("{s:s}", "id", x->id), NULL, err);
}

int bh_exec_signal(struct bh_exec *x, const char *signal, bool tree, struct bh_error *err)
{
    json_t *params =
        json_pack("{s:s, s:s, s:b}", "id", x->id, "signal", signal ? signal : "", "tree", tree);

    return exec_call_take(x, RPC_exec_signal, params, NULL, err);
}

int bh_exec_resize(struct bh_exec *x, uint16_t cols, uint16_t rows, struct bh_error *err)
{
    json_t *params = json_pack("{s:s, s:i, s:i}", "id", x->id, "cols", cols, "rows", rows);

    return exec_call_take(x, RPC_exec_resize, params, NULL, err);
}

/* ERR_DEADLINE: the command still runs. Without an answer, ERR_UNAVAILABLE. */
static int wait_once(struct bh_exec *x, int64_t ms, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *params =
        json_pack("{s:s, s:I}", "id", x->id, "timeout_ms", (json_int_t)ms);
    int64_t until = clock_mono_ms() + ms;
    int r;

    if (!params)
        return err_oom(e);
    r = client_call(x->calls, RPC_exec_wait, params, until + EXEC_GRACE_MS, ret, e);
    if (r != -ERR_DEADLINE || clock_mono_ms() < until + EXEC_GRACE_MS)
        return r;
    return err_set(e, ERR_UNAVAILABLE, "the guest agent does not answer");
}

int bh_exec_wait(struct bh_exec *x, int64_t timeout_ms, struct bh_run_result *ret_result,
                 struct bh_error *err)
{
    struct bh_run_result result = {.size = sizeof(result)};
    _cleanup_json_ json_t *reply = NULL;
    int64_t deadline = agent_deadline(timeout_ms);
    struct err e = {0};
    int r;

    do {
        int left = clock_until_ms(deadline);
        int64_t ms = left >= 0 && left < EXEC_WAIT_MS ? left : EXEC_WAIT_MS;
        int64_t began = clock_mono_ms();

        r = wait_once(x, ms > 0 ? ms : 1, &reply, &e);
        if (r == -ERR_DEADLINE && clock_mono_ms() - began < ms / 2)
            r = err_set(&e, ERR_DATA_LOSS, "the guest agent did not wait");
    } while (r == -ERR_DEADLINE && clock_until_ms(deadline) != 0);
    if (r < 0)
        return ctx_fail(err, r, &e);
    exec_read_result(reply, &result);
    (void)snprintf(result.id, sizeof(result.id), "%s", x->id);
    result.pid = x->pid;
    exec_give_result(&result, ret_result);
    return 0;
}

int bh_exec_forget(struct bh_exec *x, struct bh_error *err)
{
    return exec_call_take(x, RPC_exec_forget, json_pack("{s:s}", "id", x->id), NULL, err);
}

/* ---- replies, decoded into the public structs ---- */

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
