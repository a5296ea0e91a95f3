#include "lib/recipe/conversation.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"

#define LOOK_MS 500
#define ANSWER_BYTES (4 * 1024 * 1024) /* the last message, with the outputs of its tools */
#define PARSED_BYTES (12 * 1024 * 1024)
#define SESSION_BYTES 128
#define PATH_BYTES (SESSION_BYTES + 64)

bool conversation_knows(const char *api)
{
    return str_eq(api, "opencode");
}

/* ---- requests ---- */

/* The id becomes a part of a path. */
static int check_session(const char *id, struct err *e)
{
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");

    return n && n < SESSION_BYTES && !id[n]
               ? 0
               : err_field(e, ERR_INVALID, "session", "session: '%.80s' is no session's id", id);
}

/* ret_text: as it came; or NULL. *ret: its JSON, or NULL for an empty answer; ret may be NULL. */
static int ask_agent(const struct conversation *c, const char *method, const char *path,
                     const char *json, struct buf *ret_text, json_t **ret, struct err *e)
{
    _cleanup_free_ char *basic = NULL;
    _cleanup_buf_ struct buf body = {0};
    struct client_port_request request = {
        .port = c->port, .method = method, .path = path, .json = json, .max_body = ANSWER_BYTES};
    int status = 0, r;

    if (c->username && asprintf(&basic, "%s:%s", c->username, c->password) < 0)
        return err_oom(e);
    request.basic = basic;
    r = client_ask_port(c->client, &request, clock_mono_ms() + c->action_ms, &status, &body, e);
    if (r < 0)
        return err_wrap(e, r, "the coding agent: %s %s", method, path);
    if (status == 404)
        return err_field(e, ERR_NOT_FOUND, "session", "the coding agent has no such session");
    if (status < 200 || status > 299)
        return err_set(e, ERR_UNAVAILABLE, "the coding agent: %s %s: status %d", method, path,
                       status);
    if (!ret)
        return 0;
    *ret = NULL;
    if (body.len && jx_parse_within(body.data, body.len, PARSED_BYTES, ret, NULL) < 0)
        return err_set(e, ERR_UNAVAILABLE, "the coding agent: %s %s: the answer is not JSON",
                       method, path);
    if (ret_text) {
        *ret_text = body;
        body = (struct buf){0};
    }
    return 0;
}

int conversation_begin(const struct conversation *c, char **ret_session, struct err *e)
{
    _cleanup_json_ json_t *session = NULL;
    const char *id;
    int r = ask_agent(c, "POST", "/session", "{}", NULL, &session, e);

    if (r < 0)
        return r;
    id = json_string_value(json_object_get(session, "id"));
    r = check_session(id ? id : "", e);
    if (r < 0)
        return r;
    *ret_session = strdup(id);
    return *ret_session ? 0 : err_oom(e);
}

int conversation_abort(const struct conversation *c, const char *session, struct err *e)
{
    char path[PATH_BYTES];
    int r = check_session(session, e);

    (void)snprintf(path, sizeof(path), "/session/%s/abort", session);
    return r < 0 ? r : ask_agent(c, "POST", path, "{}", NULL, NULL, e); /* the answer is `true` */
}

/* ---- one turn ---- */

struct follow {
    const struct conversation *c;
    const char *session;
    char before[SESSION_BYTES]; /* the id of the last message before the prompt, or "" */
    struct buf seen;            /* the last message, as it came */
    json_t *last;
};

static const char *message_text(const json_t *message, const char *key)
{
    const char *text = json_string_value(json_object_get(json_object_get(message, "info"), key));

    return text ? text : "";
}

/* Reads the last message of the session. *ret_news: it is another one, or there is more of it. */
static int read_last(struct follow *f, bool *ret_news, struct err *e)
{
    _cleanup_json_ json_t *list = NULL;
    _cleanup_buf_ struct buf text = {0};
    char path[PATH_BYTES];
    int r;

    (void)snprintf(path, sizeof(path), "/session/%s/message?limit=1", f->session);
    r = ask_agent(f->c, "GET", path, NULL, &text, &list, e);
    if (r < 0)
        return r;
    *ret_news = text.len != f->seen.len || memcmp(text.data, f->seen.data, text.len) != 0;
    buf_done(&f->seen);
    f->seen = text;
    text = (struct buf){0};
    json_decref(f->last);
    f->last = json_incref(json_array_get(list, json_array_size(list) - 1));
    return 0;
}

static int is_at_work(struct follow *f, bool *ret, struct err *e)
{
    _cleanup_json_ json_t *all = NULL;
    const char *type;
    int r = ask_agent(f->c, "GET", "/session/status", NULL, NULL, &all, e);

    if (r < 0)
        return r;
    type = json_string_value(json_object_get(json_object_get(all, f->session), "type"));
    *ret = type && !str_eq(type, "idle");
    return 0;
}

/* Is the last message the agent's, of this turn, and whole? */
static bool is_answered(const struct follow *f)
{
    const json_t *info = json_object_get(f->last, "info");

    return str_eq(message_text(f->last, "role"), "assistant") &&
           !str_eq(message_text(f->last, "id"), f->before) &&
           (json_object_get(info, "error") ||
            json_is_integer(json_object_get(json_object_get(info, "time"), "completed")));
}

static int send_prompt(struct follow *f, const char *text, struct err *e)
{
    _cleanup_json_ json_t *body =
        json_pack("{s:[{s:s, s:s}]}", "parts", "type", "text", "text", text);
    _cleanup_json_ json_t *ignored = NULL;
    _cleanup_free_ char *json = body ? json_dumps(body, JSON_COMPACT) : NULL;
    char path[PATH_BYTES];

    if (!json)
        return err_field(e, ERR_INVALID, "text", "text: a prompt must be UTF-8");
    (void)snprintf(path, sizeof(path), "/session/%s/prompt_async", f->session);
    return ask_agent(f->c, "POST", path, json, NULL, &ignored, e);
}

static int join_texts(const struct follow *f, char **ret, struct err *e)
{
    _cleanup_buf_ struct buf out = {0};
    const json_t *part;
    size_t i;
    int r = 0;

    buf_init(&out, ANSWER_BYTES);
    json_array_foreach (json_object_get(f->last, "parts"), i, part) {
        const char *text = json_string_value(json_object_get(part, "text"));

        if (r == 0 && text && str_eq(json_string_value(json_object_get(part, "type")), "text"))
            r = buf_adds(&out, text, e);
    }
    if (r == 0)
        r = buf_add(&out, "", 1, e);
    if (r == 0)
        *ret = buf_take(&out);
    return r;
}

static int take_answer(const struct follow *f, char **ret_text, struct err *e)
{
    const json_t *error = json_object_get(json_object_get(f->last, "info"), "error");
    const char *why = json_string_value(json_object_get(json_object_get(error, "data"), "message"));

    if (!why)
        why = json_string_value(json_object_get(error, "name"));
    return error ? err_set(e, ERR_INTERNAL, "the coding agent failed: %.400s", why ? why : "?")
                 : join_texts(f, ret_text, e);
}

static int wait_for_look(const struct follow *f, int64_t deadline_mono_ms, struct err *e)
{
    struct pollfd cancel = {.fd = f->c->cancel_fd, .events = POLLIN};

    if (deadline_mono_ms && !clock_until_ms(deadline_mono_ms))
        return err_field(e, ERR_DEADLINE, "timeout", "the coding agent's turn is not over in time");
    if (poll(&cancel, 1, LOOK_MS) > 0)
        return err_set(e, ERR_CANCELED, "canceled");
    return 0;
}

static int follow_turn(struct follow *f, struct conversation_turn *t, struct err *e)
{
    bool is_working = true;
    int r = 0;

    for (;;) {
        enum turn_silence silence;
        bool has_news = false;

        /* The state first: a message that is read afterwards is not older. */
        r = is_at_work(f, &is_working, e);
        if (r == 0)
            r = read_last(f, &has_news, e);
        if (r < 0 || (!is_working && is_answered(f)))
            return r;
        if (has_news)
            turn_note_event(&t->clock, clock_mono_ms());
        silence = turn_look(&t->clock, clock_mono_ms());
        if (silence)
            t->on_silence(t->arg, silence, clock_mono_ms() - t->clock.event_ms);
        r = wait_for_look(f, t->deadline_mono_ms, e);
        if (r < 0)
            return r;
    }
}

int conversation_prompt(const struct conversation *c, const char *session,
                        struct conversation_turn *t, char **ret_text, struct err *e)
{
    struct follow f = {.c = c, .session = session};
    bool ignored;
    int r = check_session(session, e);

    if (r == 0)
        r = read_last(&f, &ignored, e);
    (void)snprintf(f.before, sizeof(f.before), "%s", message_text(f.last, "id"));
    if (r == 0)
        r = send_prompt(&f, t->text, e);
    if (r == 0)
        r = follow_turn(&f, t, e);
    if (r == 0)
        r = take_answer(&f, ret_text, e);
    buf_done(&f.seen);
    json_decref(f.last);
    return r;
}
