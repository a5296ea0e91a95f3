/*
 * run: commands in a box. Output is read by offset: after a dropped connection the rest is asked
 * for again, so nothing is lost and nothing comes twice; the command's id makes a repeated start
 * harmless.
 */
#include <pthread.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/b64.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box.h"
#include "lib/box_environment.h"
#include "lib/control.h"
#include "lib/options.h"
#include "lib/socket.h"

#include "common/banned.h"

#define RUN_RECONNECTS 20 /* in a row without a byte between them */
#define RUN_RECONNECT_MS 250
#define RUN_LEASE_GRACE_MS 60000 /* beyond the command's own deadline */
#define RUN_CONTROL_MS 5000
#define RUN_CLEAN_MS 5000
#define RUN_STDIN_BYTES (64 * 1024)
#define RUN_TIMEOUT_MAX_MS (365LL * 24 * 3600 * 1000)

struct stdin_pump {
    struct client *client;
    pthread_t thread;
    bool is_running;
    int fd;
    int stop_fd; /* its client is canceled by it too */
    const char *id;
};

struct run {
    struct bh_box *box;
    const struct bh_run_options *opts;
    struct client *client;
    char id[64];
    int pid;
    bool is_started;
    bool has_end;
    bool is_ended_here; /* the receiver of the output wanted no more */
    uint64_t offset[3]; /* by stream: 1, 2 */
    unsigned n_failures;
    struct stdin_pump pump;
    struct bh_run_result *result;
    struct err why; /* what a message was wrong with */
    int failed;
};

/* ---- standard input ---- */

/* By offset: a write whose answer was lost is not written twice. */
static int pump_write(struct stdin_pump *p, uint64_t offset, const char *data, size_t len)
{
    json_t *bytes = jx_new_bytes(data, len);
    json_t *params = bytes ? json_pack("{s:s, s:I, s:o}", "id", p->id, "offset", (json_int_t)offset,
                                       "data", bytes)
                           : NULL;
    int r = -ERR_EXHAUSTED;

    for (unsigned i = 0; params && i < RUN_RECONNECTS; i++) {
        r = client_call(p->client, "Exec/Write", params, 0, NULL, NULL);
        if (r != -ERR_UNAVAILABLE && r != -ERR_DATA_LOSS)
            break;
        if (socket_wait_canceled(p->stop_fd, RUN_RECONNECT_MS))
            break;
    }
    json_decref(params);
    return r;
}

static void *pump_run(void *arg)
{
    struct stdin_pump *p = arg;
    _cleanup_free_ char *data = malloc(RUN_STDIN_BYTES);
    uint64_t offset = 0;
    json_t *params;

    while (data && socket_wait(p->fd, false, p->stop_fd, 0, NULL) == 0) {
        ssize_t n = read(p->fd, data, RUN_STDIN_BYTES);

        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n > 0 && pump_write(p, offset, data, (size_t)n) < 0)
            return NULL; /* it takes no more: its end says why */
        if (n > 0) {
            offset += (uint64_t)n;
            continue;
        }
        params = json_pack("{s:s}", "id", p->id);
        (void)client_call(p->client, "Exec/CloseStdin", params, clock_mono_ms() + RUN_CLEAN_MS,
                          NULL, NULL);
        json_decref(params);
        break;
    }
    return NULL;
}

static int pump_start(struct run *run, struct err *e)
{
    struct stdin_pump *p = &run->pump;
    int r;

    if (run->opts->stdin_fd < 0 || run->opts->detach || p->is_running)
        return 0;
    p->fd = run->opts->stdin_fd;
    p->id = run->id;
    p->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->stop_fd < 0)
        return err_sys(e, errno, "eventfd");
    r = box_new_client(run->box, p->stop_fd, &p->client, e);
    if (r < 0)
        return r;
    r = pthread_create(&p->thread, NULL, pump_run, p);
    p->is_running = r == 0;
    return r ? err_sys(e, r, "start a thread") : 0;
}

static void pump_stop(struct stdin_pump *p)
{
    uint64_t one = 1;

    if (p->is_running) {
        (void)!write(p->stop_fd, &one, sizeof(one));
        (void)pthread_join(p->thread, NULL);
    }
    p->is_running = false;
    p->client = client_free(p->client);
    fd_close(TAKE_FD(p->stop_fd));
}

/* ---- messages ---- */

static int take_bytes(struct run *run, int stream, json_t *data, struct err *e)
{
    const char *text = json_string_value(json_object_get(data, "text"));
    json_t *b64 = json_object_get(data, "b64");
    _cleanup_free_ char *raw = NULL;
    size_t len = json_string_length(json_object_get(data, "text"));
    int r;

    if (!text) {
        raw = malloc(json_string_length(b64) / 4 * 3 + 1);
        if (!raw)
            return err_oom(e);
        r = b64_decode(json_string_value(b64) ? json_string_value(b64) : "",
                       json_string_length(b64), raw, &len, e);
        if (r < 0)
            return r;
        text = raw;
    }
    run->offset[stream] += len;
    if (!run->opts->output || len == 0)
        return 0;
    if (run->opts->output(run->opts->output_arg, stream, text, len) == 0)
        return 0;
    run->is_ended_here = true;
    return err_set(e, ERR_CANCELED, "the receiver of the output ended the command");
}

static int stream_of(json_t *data)
{
    return str_eq(json_string_value(json_object_get(data, "stream")), "stderr") ? 2 : 1;
}

/* Bytes that the agent could not keep: the count is right again, the caller is told nothing was
 * whole. With a lossless reader it happens only after a long break of the connection. */
static int take_gap(struct run *run, json_t *gap, struct err *e)
{
    json_int_t bytes = json_integer_value(json_object_get(gap, "bytes"));

    run->offset[stream_of(gap)] += (uint64_t)bytes;
    return err_set(e, ERR_DATA_LOSS, "%lld bytes of output came while nobody could read them",
                   (long long)bytes);
}

static int64_t count_of(json_t *obj, const char *name)
{
    return json_integer_value(json_object_get(obj, name));
}

static void take_end(struct run *run, json_t *end)
{
    json_t *exit = json_object_get(end, "exit");
    json_t *usage = json_object_get(end, "usage");
    const char *reason = json_string_value(json_object_get(exit, "reason"));
    const char *signal = json_string_value(json_object_get(exit, "signal"));
    struct bh_run_result *res = run->result;

    run->has_end = true;
    (void)snprintf(res->reason, sizeof(res->reason), "%s", reason ? reason : "lost");
    (void)snprintf(res->signal, sizeof(res->signal), "%s", signal ? signal : "");
    res->code = (int)count_of(exit, "code");
    res->wall_ms = count_of(usage, "wall_ms");
    res->user_ms = count_of(usage, "user_ms");
    res->system_ms = count_of(usage, "system_ms");
    res->max_rss_bytes = (uint64_t)count_of(usage, "max_rss_bytes");
}

static int on_message(void *arg, json_t *msg)
{
    struct run *run = arg;
    json_t *v;

    if ((v = json_object_get(msg, "start"))) {
        run->is_started = true;
        run->pid = (int)count_of(v, "pid");
        run->failed = pump_start(run, &run->why);
        return run->failed < 0 || run->opts->detach;
    }
    run->n_failures = 0;
    if ((v = json_object_get(msg, "data")))
        run->failed = take_bytes(run, stream_of(v), v, &run->why);
    else if ((v = json_object_get(msg, "gap")))
        run->failed = take_gap(run, v, &run->why);
    else if ((v = json_object_get(msg, "end")))
        take_end(run, v);
    return run->failed < 0;
}

/* ---- the request ---- */

static json_t *new_argv(const char *const *argv)
{
    json_t *list = json_array();

    for (; list && *argv; argv++)
        if (json_array_append_new(list, jx_new_path(*argv)) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static int set_new(json_t *obj, const char *name, json_t *value, struct err *e)
{
    return json_object_set_new(obj, name, value) < 0 ? err_oom(e) : 0;
}

static int add_command(struct run *run, json_t *params, struct err *e)
{
    const struct bh_run_options *o = run->opts;
    _cleanup_free_ char *workdir = box_workdir(run->box->dir, &run->box->spec);
    json_t *env = NULL;
    int r;

    if (!workdir)
        return err_oom(e);
    r = o->argv ? set_new(params, "argv", new_argv(o->argv), e)
                : set_new(params, "shell", jx_new_bytes(o->shell, strlen(o->shell)), e);
    if (r == 0)
        r = set_new(params, "cwd", jx_new_path(o->cwd ? o->cwd : workdir), e);
    if (r == 0)
        r = box_environment_json(run->box, o->env, &env, e);
    if (r == 0)
        r = set_new(params, "env", env, e);
    if (r == 0 && o->user)
        r = set_new(params, "user", json_string(o->user), e);
    return r;
}

static int new_request(struct run *run, json_t **ret, struct err *e)
{
    const struct bh_run_options *o = run->opts;
    _cleanup_json_ json_t *params = json_pack("{s:s}", "id", run->id);
    int r = params ? add_command(run, params, e) : err_oom(e);

    if (r == 0 && o->timeout_ms > 0)
        r = set_new(params, "timeout_ms", json_integer(o->timeout_ms), e);
    if (r == 0 && o->pty)
        r = set_new(
            params, "pty",
            json_pack("{s:i, s:i}", "cols", o->cols ? o->cols : 80, "rows", o->rows ? o->rows : 24),
            e);
    if (r == 0 && o->stdin_fd >= 0 && !o->detach)
        r = set_new(params, "stdin_open", json_true(), e);
    if (r == 0 && !o->detach)
        r = set_new(params, "lossless", json_true(), e);
    if (r == 0)
        *ret = TAKE(params);
    return r;
}

static json_t *new_attach(const struct run *run)
{
    return json_pack("{s:s, s:I, s:I, s:b}", "id", run->id, "stdout_offset",
                     (json_int_t)run->offset[1], "stderr_offset", (json_int_t)run->offset[2],
                     "lossless", 1);
}

/* ---- running ---- */

/* One connection: the start, or what is left after it. */
static int run_once(struct run *run, json_t *request, struct err *e)
{
    json_t *params = run->is_started ? new_attach(run) : json_incref(request);
    int r = params ? client_stream(run->client, run->is_started ? "Exec/Attach" : "Exec/Start",
                                   params, 0, on_message, run, e)
                   : err_oom(e);

    json_decref(params);
    if (run->failed < 0) {
        if (e)
            *e = run->why;
        return run->failed;
    }
    return r == -ERR_CANCELED && run->is_started && run->opts->detach ? 0 : r;
}

static int run_all(struct run *run, json_t *request, struct err *e)
{
    for (;;) {
        int r = run_once(run, request, e);

        if (r == 0 || run->has_end)
            return 0;
        if (r == -ERR_NOT_FOUND && run->is_started) {
            (void)snprintf(run->result->reason, sizeof(run->result->reason), "lost");
            return 0;
        }
        if (run->failed < 0 || (r != -ERR_UNAVAILABLE && r != -ERR_DATA_LOSS) ||
            ++run->n_failures > RUN_RECONNECTS)
            return r;
        if (socket_wait_canceled(run->box->ctx->cancel_fd, RUN_RECONNECT_MS))
            return err_set(e, ERR_CANCELED, "canceled");
    }
}

/* Whoever waited for it has gone: so does the command, with what it started. */
static void end_command(struct run *run)
{
    static const char *const signals[] = {"SIGTERM", "SIGKILL"};
    struct client *c = NULL;
    json_t *id = json_pack("{s:s, s:i}", "id", run->id, "timeout_ms", 2000);
    int r = box_new_client(run->box, -1, &c, NULL);

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(signals); i++) {
        json_t *params =
            json_pack("{s:s, s:s, s:b}", "id", run->id, "signal", signals[i], "tree", 1);

        r = client_call(c, "Exec/Signal", params, clock_mono_ms() + RUN_CLEAN_MS, NULL, NULL);
        json_decref(params);
        if (client_call(c, "Exec/Wait", id, clock_mono_ms() + RUN_CLEAN_MS, NULL, NULL) == 0)
            break;
    }
    json_decref(id);
    (void)client_free(c);
}

/* The box must outlive the command. */
static int extend_lease(struct run *run, struct err *e)
{
    if (run->opts->timeout_ms <= 0)
        return 0;
    return control_call_take(
        run->box->ctx, run->box->row.id,
        json_pack("{s:s, s:I}", "op", "extend", "until_ms",
                  (json_int_t)(clock_real_ms() + run->opts->timeout_ms + RUN_LEASE_GRACE_MS)),
        RUN_CONTROL_MS, NULL, e);
}

static int check(const struct bh_run_options *o, struct err *e)
{
    if (!o->argv == !o->shell)
        return err_field(e, ERR_INVALID, "argv", "one of argv and shell is required");
    if (o->argv && !o->argv[0])
        return err_field(e, ERR_INVALID, "argv", "argv must not be empty");
    if (o->timeout_ms < 0 || o->timeout_ms > RUN_TIMEOUT_MAX_MS)
        return err_field(e, ERR_INVALID, "timeout", "timeout must be from 0 to a year");
    if (o->id && (!*o->id || strlen(o->id) >= sizeof(((struct run *)0)->id)))
        return err_field(e, ERR_INVALID, "id", "id must have 1 to 63 characters");
    return 0;
}

static int make_id(struct run *run, struct err *e)
{
    char hex[17];
    int r;

    if (run->opts->id) {
        (void)snprintf(run->id, sizeof(run->id), "%s", run->opts->id);
        return 0;
    }
    r = io_random_hex(8, hex, e);
    if (r == 0)
        (void)snprintf(run->id, sizeof(run->id), "run-%s", hex);
    return r;
}

static int run_command(struct run *run, struct err *e)
{
    _cleanup_close_ int hold = -1;
    _cleanup_json_ json_t *request = NULL;
    int r = make_id(run, e);

    if (r == 0)
        r = box_wake(run->box, e);
    if (r == 0)
        r = box_client(run->box, &run->client, e);
    if (r == 0)
        r = new_request(run, &request, e);
    if (r == 0 && !run->opts->detach)
        r = control_open_take(run->box->ctx, run->box->row.id, json_pack("{s:s}", "op", "hold"),
                              RUN_CONTROL_MS, &hold, e);
    if (r == 0)
        r = extend_lease(run, e);
    if (r == 0) {
        r = run_all(run, request, e);
        pump_stop(&run->pump);
    }
    if (r == -ERR_CANCELED && (run->is_started || !run->is_ended_here))
        end_command(run);
    return r;
}

int bh_run(struct bh_box *box, const struct bh_run_options *opts, struct bh_run_result *ret_result,
           struct bh_error *err)
{
    struct bh_run_options o;
    struct bh_run_result result = {.size = sizeof(result)};
    struct run run = {.box = box, .opts = &o, .result = &result, .pump = {.stop_fd = -1}};
    struct err e = {0};
    size_t size;
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0)
        r = check(&o, &e);
    if (r == 0)
        r = run_command(&run, &e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    (void)snprintf(result.id, sizeof(result.id), "%s", run.id);
    result.pid = run.pid;
    if (ret_result) {
        size = ret_result->size && ret_result->size < sizeof(result) ? ret_result->size
                                                                     : sizeof(result);
        result.size = size;
        memcpy(ret_result, &result, size);
    }
    return 0;
}

/* ---- the rest of the agent's API ---- */

static int call_simple(struct bh_box *box, const char *method, json_t *params_take,
                       struct bh_error *err)
{
    struct client *c = NULL;
    struct err e = {0};
    int r = params_take ? box_wake(box, &e) : err_oom(&e);

    if (r == 0)
        r = box_client(box, &c, &e);
    if (r == 0)
        r = client_call(c, method, params_take, 0, NULL, &e);
    json_decref(params_take);
    return ctx_fail(err, r, &e);
}

int bh_signal(struct bh_box *box, const char *id, const char *signal, struct bh_error *err)
{
    return call_simple(box, "Exec/Signal", json_pack("{s:s, s:s}", "id", id, "signal", signal),
                       err);
}

int bh_resize(struct bh_box *box, const char *id, uint16_t cols, uint16_t rows,
              struct bh_error *err)
{
    return call_simple(box, "Exec/Resize",
                       json_pack("{s:s, s:i, s:i}", "id", id, "cols", (int)cols, "rows", (int)rows),
                       err);
}

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

static int parse_params(const char *text, json_t **ret, struct err *e)
{
    int r = jx_parse(text ? text : "{}", text ? strlen(text) : 2, ret, e);

    return r < 0 ? err_at(e, r, "params") : 0;
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
    int r = parse_params(params_json, &params, &e);

    if (r == 0)
        r = box_wake(box, &e);
    if (r == 0)
        r = box_client(box, &c, &e);
    if (r < 0)
        return ctx_fail(err, r, &e);
    if (message) {
        r = client_stream(c, method, params, box_deadline(timeout_ms), relay_message, &relay, &e);
        return ctx_fail(err, r, &e);
    }
    r = client_call(c, method, params, box_deadline(timeout_ms), &reply, &e);
    if (r == 0 && ret_json)
        r = jx_dump(reply, ret_json, NULL, &e);
    return ctx_fail(err, r, &e);
}
