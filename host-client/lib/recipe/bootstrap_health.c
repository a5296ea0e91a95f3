#include "lib/recipe/bootstrap_health.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/recipe/bootstrap_guest.h"

#define LINE_MAX_BYTES (4 * 1024 * 1024)   /* limit of one line of an agent */
#define PARSED_MAX_BYTES (8 * 1024 * 1024) /* limit of memory: more is no answer */
#define READ_PAUSE_MS 100
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
    int status = 0;
    int r;

    if (p->health->username &&
        asprintf(&basic, "%s:%s", p->health->username, p->password ? p->password : "") < 0)
        return err_oom(e);
    r = client_get_port(p->client, p->port, p->health->path, basic, deadline_mono_ms, &status,
                        &body, e);
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
