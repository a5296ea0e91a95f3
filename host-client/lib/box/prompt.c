/* prompt: a turn of a box's coding agent, whose silences are events of the box. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "lib/box/box.h"
#include "lib/box/history.h"
#include "lib/box/prompt.h"
#include "lib/box/remote.h"
#include "lib/recipe/bootstrap.h"
#include "lib/recipe/conversation.h"
#include "lib/util/socket.h"

#define ABORT_MS 10000    /* it is repeated for so long */
#define ABORT_TRY_MS 5000 /* one that hangs leaves time for another */
#define ABORT_RETRY_MS 500

struct prompt {
    struct bh_box *box;
    uint16_t port; /* of the agent, in the box */
    char *username, *password;
    char *session;
};

static void tell_silence(void *arg, enum turn_silence silence, int64_t silent_ms)
{
    const struct prompt *p = arg;
    const char *kind = silence == TURN_STALE ? PROMPT_STALE : PROMPT_WARNING;

    if (p->box->remote)
        remote_note_silence(p->box, kind, p->session, silent_ms);
    else
        (void)prompt_note_silence(p->box, kind, p->session, silent_ms, NULL);
}

int prompt_note_silence(struct bh_box *box, const char *kind, const char *session,
                        int64_t silent_ms, struct err *e)
{
    char cause[HISTORY_CAUSE_BYTES], time[32];

    (void)snprintf(cause, sizeof(cause), "session %.100s: the coding agent has said nothing for %s",
                   session, str_format_duration(silent_ms, time, sizeof(time)));
    return store_add_event(box->ctx->store, box->row.id, NULL, kind, cause, e);
}

static int refuse_agent(const char *name, struct err *e)
{
    return err_field(e, ERR_UNIMPLEMENTED, "agent",
                     "the coding agent '%.64s' takes no prompts here", name);
}

static int take_record(struct prompt *p, const struct bootstrap_record *record, struct err *e)
{
    const char *username = record->recipe.health.username;

    if (!record->recipe.conversation)
        return refuse_agent(record->recipe.name, e);
    p->port = record->port;
    if (username && !(p->username = strdup(username)))
        return err_oom(e);
    return bootstrap_password(p->box->dir, false, &p->password, e);
}

/* Of a box of the store. */
static int load_record(struct prompt *p, struct err *e)
{
    struct bootstrap_record record = {0};
    int r = bootstrap_record_load(p->box->dir, &record, e);

    if (r == 0)
        r = take_record(p, &record, e);
    bootstrap_record_done(&record);
    return r;
}

/* Of a daemon's box. */
static int ask_login(struct prompt *p, struct err *e)
{
    _cleanup_json_ json_t *v = NULL;
    const char *api, *username, *password;
    json_int_t port;
    int r = remote_agent_login(p->box, &v, e);

    if (r < 0)
        return r;
    api = json_string_value(json_object_get(v, "conversation"));
    username = json_string_value(json_object_get(v, "username"));
    password = json_string_value(json_object_get(v, "password"));
    port = json_integer_value(json_object_get(v, "port"));
    if (!api || !conversation_knows(api))
        return refuse_agent(p->box->spec.agent, e);
    if (port < 1 || port > UINT16_MAX)
        return err_field(e, ERR_DATA_LOSS, "daemon",
                         "the daemon's answer has no port of the agent");
    p->port = (uint16_t)port;
    p->username = username && *username ? strdup(username) : NULL;
    p->password = strdup(password ? password : "");
    return p->password && (p->username || !username || !*username) ? 0 : err_oom(e);
}

static int load_agent(struct prompt *p, struct err *e)
{
    if (!box_has_agent(p->box))
        return err_field(e, ERR_PRECONDITION, "agent", "the box '%s' has no coding agent",
                         p->box->row.name);
    return p->box->remote ? ask_login(p, e) : load_record(p, e);
}

static struct conversation new_conversation(const struct prompt *p, struct client *client,
                                            int cancel_fd, int64_t action_ms)
{
    return (struct conversation){.client = client,
                                 .cancel_fd = cancel_fd,
                                 .port = p->port,
                                 .username = p->username,
                                 .password = p->password,
                                 .action_ms = action_ms ? action_ms : TURN_ACTION_MS};
}

/* By a client of its own: the other one may be canceled. Returns r; the error says so if the turn may go on. */
static int abort_turn(const struct prompt *p, int r, struct err *e)
{
    int64_t deadline_ms = clock_mono_ms() + ABORT_MS;
    struct client *client = NULL;
    struct conversation c;
    struct err why = {0};
    int aborted = box_new_client(p->box, -1, &client, &why);

    while (client) {
        int64_t left_ms = deadline_ms - clock_mono_ms();

        c = new_conversation(p, client, -1, left_ms < ABORT_TRY_MS ? left_ms : ABORT_TRY_MS);
        aborted = conversation_abort(&c, p->session, &why);
        if (aborted == 0 || aborted == -ERR_INVALID || aborted == -ERR_NOT_FOUND ||
            deadline_ms - clock_mono_ms() <= ABORT_RETRY_MS)
            break;
        (void)socket_wait_canceled(-1, ABORT_RETRY_MS);
    }
    (void)client_free(client);
    if (aborted == 0 || aborted == -ERR_NOT_FOUND) /* no session has no turn */
        return r;
    (void)err_at(e, r, "session");
    return err_wrap(e, r, "the turn of the session '%.100s' may go on (%.200s)", p->session,
                    why.message);
}

static int run_prompt(struct prompt *p, const struct bh_prompt_options *o, char **ret_text,
                      struct err *e)
{
    struct conversation_turn t = {.text = o->text, .on_silence = tell_silence, .arg = p};
    struct client *client = NULL;
    struct conversation c;
    int r = box_client(p->box, &client, e);

    if (r < 0)
        return r;
    c = new_conversation(p, client, p->box->ctx->cancel_fd, o->action_timeout_ms);
    if (o->session)
        r = (p->session = strdup(o->session)) ? 0 : err_oom(e);
    else
        r = conversation_begin(&c, &p->session, e);
    if (r == 0)
        r = turn_begin(&t.clock, clock_mono_ms(), o->warn_after_ms, o->stale_after_ms, e);
    t.deadline_mono_ms = o->timeout_ms ? clock_mono_ms() + o->timeout_ms : 0;
    if (r == 0)
        r = conversation_prompt(&c, p->session, &t, ret_text, e);
    if (r == -ERR_CANCELED || r == -ERR_DEADLINE)
        r = p->session ? abort_turn(p, r, e) : r;
    return r;
}

static int check_options(const struct bh_prompt_options *o, struct err *e)
{
    struct turn clock;

    if (!o->text || !*o->text)
        return err_field(e, ERR_INVALID, "text", "text: the prompt is empty");
    if (o->timeout_ms < 0 || o->action_timeout_ms < 0)
        return err_field(e, ERR_INVALID, o->timeout_ms < 0 ? "timeout" : "action-timeout",
                         "must not be negative");
    return turn_begin(&clock, 0, o->warn_after_ms, o->stale_after_ms, e);
}

int bh_prompt(struct bh_box *box, const struct bh_prompt_options *opts, char **ret_json,
              struct bh_error *err)
{
    struct bh_prompt_options o;
    struct prompt p = {.box = box};
    _cleanup_json_ json_t *reply = NULL;
    _cleanup_free_ char *text = NULL;
    _cleanup_close_ int hold = -1;
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    if (r == 0)
        r = check_options(&o, &e);
    if (r == 0)
        r = box_wake_own(box, &e);
    if (r == 0)
        r = load_agent(&p, &e);
    if (r == 0)
        r = box_hold(box, &hold, &e);
    if (r == 0)
        r = run_prompt(&p, &o, &text, &e);
    if (r == 0)
        reply = json_pack("{s:s, s:s}", "session", p.session, "text", text);
    if (r == 0)
        r = reply && (*ret_json = json_dumps(reply, JSON_COMPACT)) ? 0 : err_oom(&e);
    free(p.username);
    if (p.password)
        explicit_bzero(p.password, strlen(p.password));
    free(p.password);
    free(p.session);
    return ctx_fail(err, r, &e);
}
