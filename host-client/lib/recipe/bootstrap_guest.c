#include "lib/recipe/bootstrap_guest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"

#define END_GRACE_MS 3000

/* ---- logs ---- */

/* Adds one line, cut to the limit and without terminal control characters. */
static int add_line(struct buf *out, const char *line, size_t len, struct err *e)
{
    size_t n =
        len > BOOTSTRAP_LOG_LINE_CHARS ? str_utf8_whole(line, BOOTSTRAP_LOG_LINE_CHARS) : len;
    size_t start = out->len;
    int r = buf_add(out, line, n, e);

    for (size_t i = start; r == 0 && i < out->len; i++)
        if ((unsigned char)out->data[i] < ' ' || out->data[i] == 127)
            out->data[i] = ' ';
    return r == 0 ? buf_adds(out, "\n", e) : r;
}

static void mask_secret(char *text, const char *secret)
{
    size_t len = secret ? strlen(secret) : 0;

    for (char *p = text; len && (p = strstr(p, secret)); p += len)
        memset(p, '*', len);
}

/* The beginning of the last n lines. */
static const char *last_lines(const char *text, size_t len, int n)
{
    const char *p = text + len;

    while (p > text && n) {
        const char *nl = memrchr(text, '\n', (size_t)(p - text));

        if (!nl)
            return text;
        n--;
        p = nl;
    }
    return p > text || !n ? p + 1 : p;
}

char *guest_log_tail(const char *text, size_t len, const char *secret)
{
    _cleanup_free_ char *copy = NULL;
    _cleanup_buf_ struct buf out;
    const char *p, *end;

    while (len && (text[len - 1] == '\n' || text[len - 1] == '\r'))
        len--;
    copy = malloc(len + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    for (size_t i = 0; i < len; i++)
        if (!copy[i])
            copy[i] = ' ';
    mask_secret(copy, secret);
    buf_init(&out, BOOTSTRAP_LOG_LINES * (BOOTSTRAP_LOG_LINE_CHARS + 1));
    end = copy + len;
    for (p = len ? last_lines(copy, len, BOOTSTRAP_LOG_LINES) : end; p < end;) {
        size_t n = strcspn(p, "\n");

        if (add_line(&out, p, n, NULL) < 0)
            return NULL;
        p += n + 1;
    }
    while (out.len > BOOTSTRAP_LOG_BYTES - 1)
        buf_consume(&out, strcspn(out.data, "\n") + 1);
    return buf_take(&out);
}

/* Adds the bytes of {"text"} or {"b64"}, and of "tail" if some were dropped. */
static int add_stream(json_t *reply, const char *name, struct buf *out, struct err *e)
{
    json_t *stream = json_object_get(reply, name);
    json_t *tail = json_object_get(stream, "tail");
    json_t *bytes = NULL;
    struct jx_bytes data = {0};
    int r;

    if (!stream)
        return 0;
    bytes = json_object();
    for (const char *const *k = (const char *const[]){"text", "b64", NULL}; bytes && *k; k++)
        if (json_object_get(tail ? tail : stream, *k))
            (void)json_object_set(bytes, *k, json_object_get(tail ? tail : stream, *k));
    r = bytes ? jx_bytes(bytes, &data, e) : err_oom(e);
    json_decref(bytes);
    if (r == 0)
        r = buf_add(out, data.data ? data.data : "", data.len, e);
    jx_bytes_done(&data);
    return r;
}

static char *log_of(json_t *reply, const char *secret)
{
    _cleanup_buf_ struct buf both;

    buf_init(&both, 32 * 1024 * 1024);
    if (add_stream(reply, "stdout", &both, NULL) < 0 ||
        add_stream(reply, "stderr", &both, NULL) < 0)
        return strdup("");
    return guest_log_tail(both.data ? both.data : "", both.len, secret);
}

char *guest_log(struct client *c, const char *id, const char *secret, int64_t deadline_mono_ms)
{
    _cleanup_json_ json_t *params = json_pack("{s:s, s:b}", "id", id, "output", 1);
    _cleanup_json_ json_t *reply = NULL;

    if (!params || client_call(c, RPC_exec_get, params, deadline_mono_ms, &reply, NULL) < 0)
        return strdup("");
    return log_of(reply, secret);
}

/* ---- commands ---- */

static json_t *new_run(json_t *argv, json_t *env, const char *cwd, int64_t deadline_mono_ms)
{
    int64_t left = clock_until_ms(deadline_mono_ms);
    json_t *params = json_pack("{s:O, s:{s:i, s:i}}", "argv", argv, "output", "head_bytes",
                               BOOTSTRAP_OUTPUT_BYTES, "tail_bytes", BOOTSTRAP_OUTPUT_BYTES);

    if (params && env)
        (void)json_object_set(params, "env", env);
    if (params && cwd)
        (void)json_object_set_new(params, "cwd", json_string(cwd));
    if (params && left > 0)
        (void)json_object_set_new(params, "timeout_ms", json_integer(left));
    return params;
}

int guest_run(struct client *c, json_t *argv, json_t *env, const char *cwd,
              int64_t deadline_mono_ms, struct guest_run *ret, struct err *e)
{
    _cleanup_json_ json_t *params = new_run(argv, env, cwd, deadline_mono_ms);
    _cleanup_json_ json_t *reply = NULL;
    const char *reason = "";
    struct guest_run run = {.status = -1};
    json_t *code = NULL;
    int r;

    if (!params)
        return err_oom(e);
    /* The command has its timeout; the response gets a little more. */
    r = client_call(c, RPC_exec_run, params, deadline_mono_ms + END_GRACE_MS, &reply, e);
    if (r < 0)
        return r;
    (void)json_unpack(reply, "{s:{s:s, s?o}}", "exit", "reason", &reason, "code", &code);
    if (str_eq(reason, "exited"))
        run.status = (int)json_integer_value(code);
    (void)snprintf(run.reason, sizeof(run.reason), "%s", reason);
    buf_init(&run.output, 2 * BOOTSTRAP_OUTPUT_BYTES);
    r = add_stream(reply, "stdout", &run.output, e);
    if (r == 0 && !run.output.len)
        r = add_stream(reply, "stderr", &run.output, e);
    if (r == 0) {
        run.log = log_of(reply, NULL);
        r = run.log ? 0 : err_oom(e);
    }
    if (r < 0) {
        guest_run_done(&run);
        return r;
    }
    *ret = run;
    return 0;
}

void guest_run_done(struct guest_run *r)
{
    if (!r)
        return;
    buf_done(&r->output);
    free(r->log);
    r->log = NULL;
}

/* ---- the coding agent's command ---- */

/* The first message says that it runs: leave the stream, not the command. */
static int stop_at_start(void *arg, json_t *msg)
{
    bool *has_started = arg;

    *has_started = json_object_get(msg, "start") != NULL;
    return *has_started;
}

int guest_start(struct client *c, json_t *request, int64_t deadline_mono_ms, struct err *e)
{
    bool has_started = false;
    struct err why = {0};
    int r = client_stream(c, RPC_exec_start, request, deadline_mono_ms, stop_at_start, &has_started,
                          &why);

    if (has_started)
        return 0;
    if (r == 0)
        return err_set(e, ERR_DATA_LOSS, "the command did not say that it started");
    if (e)
        *e = why;
    return r;
}

static void describe_end(json_t *reply, char *out, size_t out_bytes)
{
    json_t *end = json_object_get(reply, "exit");
    const char *reason = json_string_value(json_object_get(end, "reason"));
    const char *signal = json_string_value(json_object_get(end, "signal"));

    if (str_eq(reason, "exited"))
        (void)snprintf(out, out_bytes, "it exited with status %d",
                       (int)json_integer_value(json_object_get(end, "code")));
    else
        (void)snprintf(out, out_bytes, "it ended: %s%s%s", reason ? reason : "unknown",
                       signal ? " by " : "", signal ? signal : "");
}

int guest_state(struct client *c, int64_t deadline_mono_ms, enum guest_state *ret, char *ended,
                size_t ended_bytes, struct err *e)
{
    _cleanup_json_ json_t *params = json_pack("{s:s}", "id", BOOTSTRAP_EXEC_ID);
    _cleanup_json_ json_t *reply = NULL;
    struct err why = {0};
    const char *state;
    int r;

    if (!params)
        return err_oom(e);
    r = client_call(c, RPC_exec_get, params, deadline_mono_ms, &reply, &why);
    if (r == -ERR_NOT_FOUND) {
        *ret = GUEST_ABSENT;
        return 0;
    }
    if (r < 0) {
        if (e)
            *e = why;
        return r;
    }
    state = json_string_value(json_object_get(reply, "state"));
    if (str_eq(state, "running") || str_eq(state, "starting")) {
        *ret = GUEST_RUNNING;
        return 0;
    }
    *ret = GUEST_ENDED;
    if (ended)
        describe_end(reply, ended, ended_bytes);
    return 0;
}

/* Waits until it has ended; an earlier deadline is no error. */
static int wait_end(struct client *c, int64_t timeout_ms, int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_json_ json_t *params =
        json_pack("{s:s, s:I}", "id", BOOTSTRAP_EXEC_ID, "timeout_ms", (json_int_t)timeout_ms);
    struct err why = {0};
    int r = params ? client_call(c, RPC_exec_wait, params, deadline_mono_ms, NULL, &why)
                   : err_oom(&why);

    if (r == 0 || r == -ERR_DEADLINE)
        return r;
    if (e)
        *e = why;
    return r;
}

static int send_signal(struct client *c, const char *signal, int64_t deadline_mono_ms)
{
    _cleanup_json_ json_t *params =
        json_pack("{s:s, s:s, s:b}", "id", BOOTSTRAP_EXEC_ID, "signal", signal, "tree", 1);

    /* A command that has just ended cannot be signaled: wait_end() notices that. */
    return params ? client_call(c, RPC_exec_signal, params, deadline_mono_ms, NULL, NULL)
                  : -ERR_EXHAUSTED;
}

int guest_end(struct client *c, int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_json_ json_t *params = json_pack("{s:s}", "id", BOOTSTRAP_EXEC_ID);
    enum guest_state state;
    int r = guest_state(c, deadline_mono_ms, &state, NULL, 0, e);

    if (r < 0 || state == GUEST_ABSENT)
        return r;
    if (state == GUEST_RUNNING) {
        (void)send_signal(c, "TERM", deadline_mono_ms);
        r = wait_end(c, END_GRACE_MS, deadline_mono_ms, e);
        if (r == -ERR_DEADLINE) {
            (void)send_signal(c, "KILL", deadline_mono_ms);
            r = wait_end(c, END_GRACE_MS, deadline_mono_ms, e);
        }
        if (r == -ERR_DEADLINE)
            return err_set(e, ERR_DEADLINE, "the old command does not end");
        if (r < 0)
            return r;
    }
    return params ? client_call(c, RPC_exec_forget, params, deadline_mono_ms, NULL, e) : err_oom(e);
}

/* ---- health ---- */

#define LINE_MAX_BYTES (4 * 1024 * 1024)   /* limit of one line of an agent */
#define PARSED_MAX_BYTES (8 * 1024 * 1024) /* limit of memory: more is no answer */
#define READ_PAUSE_MS 20
#define NONCE_BYTES 6

int bootstrap_check_answer(json_t *expect, json_t *answer, struct err *e)
{
    const char *key;
    json_t *want;

    if (!json_is_object(answer))
        return err_set(e, ERR_UNAVAILABLE, "it answers, but not with a JSON object");
    json_object_foreach (expect, key, want) {
        if (!json_equal(json_object_get(answer, key), want))
            return err_set(e, ERR_UNAVAILABLE, "its answer does not have the right '%.40s'", key);
    }
    return 0;
}

/* ---- http ---- */

static int probe_http(const struct bootstrap_probe *p, int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_free_ char *basic = NULL;
    _cleanup_json_ json_t *answer = NULL;
    _cleanup_buf_ struct buf body = {0};
    struct client_port_request request;
    int status = 0;
    int r;

    if (p->health->username &&
        asprintf(&basic, "%s:%s", p->health->username, p->password ? p->password : "") < 0)
        return err_oom(e);
    request = (struct client_port_request){
        .port = p->port, .method = "GET", .path = p->health->path, .basic = basic};
    r = client_ask_port(p->client, &request, deadline_mono_ms, &status, &body, e);
    if (r < 0)
        return r;
    if (status != 200)
        return err_set(e, ERR_UNAVAILABLE, "GET %s on port %u: status %d", p->health->path,
                       (unsigned)p->port, status);
    if (jx_parse_within(body.data ? body.data : "", body.len, PARSED_MAX_BYTES, &answer, NULL) < 0)
        return err_set(e, ERR_UNAVAILABLE, "GET %s on port %u: the answer is not JSON",
                       p->health->path, (unsigned)p->port);
    return bootstrap_check_answer(p->health->expect, answer, e);
}

/* ---- rpc ---- */

/* The bytes that the command has written so far: older lines are ignored. */
static int stdout_bytes(struct client *c, int64_t deadline_mono_ms, uint64_t *ret, struct err *e)
{
    _cleanup_json_ json_t *params = json_pack("{s:s}", "id", BOOTSTRAP_EXEC_ID);
    _cleanup_json_ json_t *reply = NULL;
    json_int_t bytes = 0;
    int r = params ? client_call(c, RPC_exec_get, params, deadline_mono_ms, &reply, e) : err_oom(e);

    if (r < 0)
        return r;
    (void)json_unpack(reply, "{s:{s:I}}", "stdout", "bytes", &bytes);
    *ret = (uint64_t)bytes;
    return 0;
}

static int send_line(const struct bootstrap_probe *p, const char *id, int64_t deadline_mono_ms,
                     struct err *e)
{
    _cleanup_json_ json_t *msg = json_copy(p->health->send);
    _cleanup_json_ json_t *params = NULL;
    _cleanup_free_ char *text = NULL, *line = NULL;
    struct err why = {0};
    size_t len;
    int r;

    if (!msg || json_object_set_new(msg, "id", json_string(id)) < 0)
        return err_oom(e);
    r = jx_dump(msg, &text, &len, e);
    if (r < 0)
        return r;
    if (asprintf(&line, "%s\n", text) < 0)
        return err_oom(e);
    /* Another client may be writing: the line goes between its lines, and its offsets stay. */
    params =
        json_pack("{s:s, s:{s:s}, s:I, s:b}", "id", BOOTSTRAP_EXEC_ID, "data", "text", line,
                  "timeout_ms", (json_int_t)clock_until_ms(deadline_mono_ms), "between_lines", 1);
    if (!params)
        return err_oom(e);
    r = client_call(p->client, RPC_exec_write, params, deadline_mono_ms, NULL, &why);
    if (r == -ERR_INVALID && str_eq(why.field, "between_lines")) {
        /* The guest agent is older than the field: the box was started before an update. */
        (void)json_object_del(params, "between_lines");
        return client_call(p->client, RPC_exec_write, params, deadline_mono_ms, NULL, e);
    }
    if (r < 0 && e)
        *e = why;
    return r;
}

struct answers {
    struct buf text; /* bytes without a line feed so far */
    uint64_t offset;
    const char *id;
    json_t *found;
};

/* Ignores lines that are not JSON or not ours: they answer another client. */
static void take_lines(struct answers *a)
{
    char *nl;

    while (!a->found && a->text.len && (nl = memchr(a->text.data, '\n', a->text.len))) {
        size_t len = (size_t)(nl - a->text.data);
        json_t *msg = NULL;

        if (jx_parse_within(a->text.data, len, PARSED_MAX_BYTES, &msg, NULL) == 0 &&
            str_eq(json_string_value(json_object_get(msg, "id")), a->id))
            a->found = json_incref(msg);
        json_decref(msg);
        buf_consume(&a->text, len + 1);
    }
}

/* Reads new output; its end is an error. */
static int read_more(struct client *c, struct answers *a, int64_t deadline_mono_ms, size_t *ret_n,
                     struct err *e)
{
    _cleanup_json_ json_t *params = json_pack("{s:s, s:s, s:I}", "id", BOOTSTRAP_EXEC_ID, "stream",
                                              "stdout", "offset", (json_int_t)a->offset);
    _cleanup_json_ json_t *reply = NULL;
    struct jx_bytes data = {0};
    _cleanup_json_ json_t *bytes = NULL;
    int r =
        params ? client_call(c, RPC_exec_read, params, deadline_mono_ms, &reply, e) : err_oom(e);

    if (r < 0)
        return r;
    bytes = json_object();
    for (const char *const *k = (const char *const[]){"text", "b64", NULL}; bytes && *k; k++)
        if (json_object_get(reply, *k))
            (void)json_object_set(bytes, *k, json_object_get(reply, *k));
    r = bytes ? jx_bytes(bytes, &data, e) : err_oom(e);
    if (r == 0)
        r = buf_add(&a->text, data.data ? data.data : "", data.len, e);
    *ret_n = data.len;
    jx_bytes_done(&data);
    if (r < 0)
        return r;
    a->offset = (uint64_t)json_integer_value(json_object_get(reply, "next_offset"));
    if (!*ret_n && json_is_true(json_object_get(reply, "eof")))
        return err_set(e, ERR_UNAVAILABLE, "it has closed its output");
    return 0;
}

static int wait_answer(struct client *c, struct answers *a, int64_t deadline_mono_ms, struct err *e)
{
    while (!a->found) {
        struct timespec pause = {.tv_nsec = READ_PAUSE_MS * 1000000L};
        size_t n = 0;
        int r = read_more(c, a, deadline_mono_ms, &n, e);

        if (r < 0)
            return r;
        take_lines(a);
        if (a->found)
            break;
        if (!clock_until_ms(deadline_mono_ms))
            return err_set(e, ERR_DEADLINE, "it does not answer");
        if (!n)
            (void)nanosleep(&pause, NULL);
    }
    return 0;
}

/* "data.sessionId" */
static const char *member_at(json_t *v, const char *path)
{
    while (v && *path) {
        char key[64];
        size_t len = strcspn(path, ".");

        (void)snprintf(key, sizeof(key), "%.*s", (int)len, path);
        v = json_object_get(v, key);
        path += len + (path[len] == '.');
    }
    return json_string_value(v);
}

static int keep_session(const struct recipe_health *h, json_t *answer, char **ret, struct err *e)
{
    const char *session = h->session && ret ? member_at(answer, h->session) : NULL;

    if (!session)
        return 0;
    free(*ret);
    *ret = strdup(session);
    return *ret ? 0 : err_oom(e);
}

static int probe_rpc(const struct bootstrap_probe *p, int64_t deadline_mono_ms, char **ret_session,
                     struct err *e)
{
    char nonce[2 * NONCE_BYTES + 1], id[64];
    struct answers a = {.id = id};
    int r = io_random_hex(NONCE_BYTES, nonce, e);

    if (r < 0)
        return r;
    (void)snprintf(id, sizeof(id), "bellhop-%s", nonce);
    buf_init(&a.text, LINE_MAX_BYTES);
    r = stdout_bytes(p->client, deadline_mono_ms, &a.offset, e);
    if (r == 0)
        r = send_line(p, id, deadline_mono_ms, e);
    if (r == 0)
        r = wait_answer(p->client, &a, deadline_mono_ms, e);
    if (r == 0)
        r = bootstrap_check_answer(p->health->expect, a.found, e);
    if (r == 0)
        r = keep_session(p->health, a.found, ret_session, e);
    json_decref(a.found);
    buf_done(&a.text);
    return r;
}

int bootstrap_probe(const struct bootstrap_probe *p, int64_t deadline_mono_ms, char **ret_session,
                    struct err *e)
{
    return p->health->path ? probe_http(p, deadline_mono_ms, e)
                           : probe_rpc(p, deadline_mono_ms, ret_session, e);
}
