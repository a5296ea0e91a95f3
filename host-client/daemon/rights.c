/* rights: answers about who may use the daemon and its boxes: tokens, quotas, shared URLs, and the record of calls. */
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "daemon/access.h"
#include "daemon/answers.h"
#include "daemon/daemon.h"
#include "http/request.h"
#include "http/respond.h"
#include "lib/box/audit.h"
#include "lib/box/shared_url.h"
#include "lib/box/signature.h"
#include "lib/box/store_access.h"
#include "lib/util/context.h"

#define CALLS_DEFAULT 1000
#define CALLS_MOST 10000
#define LAST_CALLS_MOST 1000

/* The unix socket has no token, and every right. */
int answer_access(struct job *j, struct err *e)
{
    const struct principal *p = access_principal(j->q);

    return job_reply_take(j,
                          json_pack("{s:s, s:s, s:s, s:s}", "scope",
                                    token_scope_name(p->is_local ? TOKEN_ADMIN : p->scope), "token",
                                    p->token, "name", p->name, "owner", p->owner),
                          e);
}

/* ---- tokens ---- */

static int add_token(void *arg, const struct store_token *t)
{
    return json_array_append_new(arg, store_token_json(t));
}

/* A list, by a function of the store that calls `add` for each entry. {name: list} is the reply. Takes list. */
static int reply_list_take(struct job *j, const char *name, int r, json_t *list, struct err *e)
{
    if (r == 0)
        r = job_reply_take(j, json_pack("{s:O}", name, list), e);
    else if (r == -1 && !e->code) /* json_array_append_new() */
        r = err_oom(e);
    json_decref(list);
    return r;
}

int answer_tokens(struct job *j, struct err *e)
{
    json_t *list = json_array();
    int r = list ? store_list_tokens(j->ctx->store, add_token, list, e) : err_oom(e);

    return reply_list_take(j, "tokens", r, list, e);
}

struct token_body {
    const char *scope, *name, *owner;
    int64_t for_ms;
};

static const struct jx_field token_fields[] = {
    JX(struct token_body, scope, jx_str, JX_REQUIRED),
    JX(struct token_body, name, jx_str, 0),
    JX(struct token_body, owner, jx_str, 0),
    JX(struct token_body, for_ms, jx_i64, 0),
    {0},
};

static int check_for_ms(int64_t for_ms, int64_t most_ms, struct err *e)
{
    return for_ms >= 0 && for_ms <= most_ms
               ? 0
               : err_field(e, ERR_INVALID, "for_ms", "for_ms must be from 1 to %lld",
                           (long long)most_ms);
}

/* The reply has the text of the token, once. The token is valid when its client gets it. */
int answer_make_token(struct job *j, struct err *e)
{
    struct token_body b = {0};
    struct store_token t = {0};
    char text[TOKEN_TEXT_BYTES];
    int r = job_decode(j, token_fields, &b, e);

    if (r == 0)
        r = check_for_ms(b.for_ms, TOKEN_EXPIRES_MAX_MS, e);
    if (r == 0)
        r = token_describe(&t, b.scope, b.name, b.owner, e);
    if (r < 0)
        return r;
    t.expires_ms = b.for_ms ? clock_real_ms() + b.for_ms : 0;
    r = store_make_token(j->ctx->store, &t, text, e);
    if (r == 0)
        r = access_read(j->daemon->access, e);
    if (r == 0)
        r = job_reply_take(j, store_token_json(&t), e);
    if (r == 0 && json_object_set_new(j->reply, "token", json_string(text)) < 0)
        r = err_oom(e);
    explicit_bzero(text, sizeof(text));
    j->status = HTTP_CREATED;
    return r;
}

int answer_revoke_token(struct job *j, struct err *e)
{
    int r = store_revoke_token(j->ctx->store, j->params[0], e);

    return r < 0 ? r : access_read(j->daemon->access, e);
}

/* ---- quotas ---- */

static int add_quota(void *arg, const struct store_quota *q)
{
    return json_array_append_new(arg, store_quota_json(q));
}

int answer_quotas(struct job *j, struct err *e)
{
    json_t *list = json_array();
    int r = list ? store_list_quotas(j->ctx->store, add_quota, list, e) : err_oom(e);

    return reply_list_take(j, "quotas", r, list, e);
}

static const struct jx_field quota_fields[] = {
    JX(struct store_quota, boxes, jx_u32, 0),
    JX(struct store_quota, cpu_millis, jx_u32, 0),
    JX_RANGE("memory_bytes", struct store_quota, memory_bytes, jx_u64, 0, 0, INT64_MAX),
    JX_RANGE("disk_bytes", struct store_quota, disk_bytes, jx_u64, 0, 0, INT64_MAX),
    {0},
};

static int read_owner(struct job *j, struct store_quota *q, struct err *e)
{
    int r = access_check_name("owner", j->params[0], e);

    if (r == 0)
        memcpy(q->owner, j->params[0], strlen(j->params[0]) + 1);
    return r;
}

int answer_set_quota(struct job *j, struct err *e)
{
    struct store_quota q = {0};
    int r = read_owner(j, &q, e);

    if (r == 0)
        r = job_decode(j, quota_fields, &q, e);
    if (r == 0)
        r = store_set_quota(j->ctx->store, &q, e);
    return r < 0 ? r : job_reply_take(j, store_quota_json(&q), e);
}

int answer_remove_quota(struct job *j, struct err *e)
{
    struct store_quota q = {0};
    int r = read_owner(j, &q, e);

    return r < 0 ? r : store_set_quota(j->ctx->store, &q, e);
}

/* ---- URLs that need no token ---- */

struct share_body {
    uint32_t port;
    const char *file;
    bool is_lan;
    int64_t for_ms;
};

static const struct jx_field share_fields[] = {
    JX_RANGE("port", struct share_body, port, jx_u32, 0, 1, UINT16_MAX),
    JX(struct share_body, file, jx_str, 0),
    JX_AS("lan", struct share_body, is_lan, jx_bool, 0),
    JX(struct share_body, for_ms, jx_i64, 0),
    {0},
};

static int check_share(const struct share_body *b, struct err *e)
{
    if (!b->port == !b->file)
        return err_field(e, ERR_INVALID, "port", "a port of the box is needed, or a file");
    if (b->file && b->file[0] != '/')
        return err_field(e, ERR_INVALID, "file", "'%.200s' is no absolute path", b->file);
    return check_for_ms(b->for_ms, SIGNATURE_MAX_MS, e);
}

int answer_sign_url(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    _cleanup_free_ char *url = NULL;
    struct share_body b = {0};
    int64_t until_ms = 0;
    int r = job_decode(j, share_fields, &b, e);

    if (r == 0)
        r = check_share(&b, e);
    if (r == 0)
        r = job_box(j, &box, e);
    if (r == 0) {
        const struct shared_target t = {.box_id = bh_box_summary(box)->id,
                                        .port = (uint16_t)b.port,
                                        .file = b.file,
                                        .is_lan = b.is_lan};

        r = shared_url_sign(j->daemon->options.state_dir, &t, b.for_ms, &url, &until_ms, e);
    }
    return r < 0 ? r
                 : job_reply_take(
                       j, json_pack("{s:s, s:I}", "url", url, "until_ms", (json_int_t)until_ms), e);
}

struct open_list {
    const char *box_id;
    json_t *ports;
};

static int add_open_port(void *arg, const struct store_open_port *p)
{
    struct open_list *l = arg;

    return str_eq(p->box_id, l->box_id)
               ? json_array_append_new(l->ports, json_integer((json_int_t)p->port))
               : 0;
}

int answer_open_ports(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct open_list l = {.ports = json_array()};
    int r = l.ports ? job_box(j, &box, e) : err_oom(e);

    if (r == 0) {
        l.box_id = bh_box_summary(box)->id;
        r = store_list_open_ports(j->ctx->store, add_open_port, &l, e);
    }
    return reply_list_take(j, "ports", r, l.ports, e);
}

/* The box and the port that the path names. */
static int find_box_port(struct job *j, struct bh_box **ret, uint16_t *ret_port, struct err *e)
{
    uint64_t port = 0;
    int r = str_parse_u64(j->params[1], 1, UINT16_MAX, &port, e);

    *ret_port = (uint16_t)port;
    return r < 0 ? err_at(e, r, "port") : job_box(j, ret, e);
}

int answer_open_port(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    struct shared_target t = {0};
    _cleanup_free_ char *url = NULL;
    int r = job_decode(j, job_no_fields, NULL, e);

    if (r == 0)
        r = find_box_port(j, &box, &t.port, e);
    if (r == 0) {
        t.box_id = bh_box_summary(box)->id;
        r = shared_open_port(j->ctx->store, j->daemon->options.state_dir, &t, &url, e);
    }
    if (r == 0)
        r = access_read(j->daemon->access, e);
    return r < 0 ? r : job_reply_take(j, json_pack("{s:s}", "url", url), e);
}

int answer_close_port(struct job *j, struct err *e)
{
    struct bh_box *box _cleanup_box_ = NULL;
    uint16_t port;
    int r = find_box_port(j, &box, &port, e);

    if (r == 0)
        r = shared_close_port(j->ctx->store, bh_box_summary(box)->id, port, e);
    return r < 0 ? r : access_read(j->daemon->access, e);
}

/* ---- the record of calls ---- */

struct call_page {
    json_t *calls;
    int64_t since, limit;
    int64_t last; /* keep the newest ones only; 0: all */
    bool is_full;
};

static int add_call(void *arg, json_t *entry)
{
    struct call_page *p = arg;
    int64_t seq = json_integer_value(json_object_get(entry, "seq"));

    if (seq <= p->since)
        return 0;
    if (p->last) {
        if (json_array_size(p->calls) == (size_t)p->last)
            (void)json_array_remove(p->calls, 0);
        p->since = seq;
        return json_array_append(p->calls, entry);
    }
    p->is_full = json_array_size(p->calls) == (size_t)p->limit;
    if (p->is_full)
        return 1;
    p->since = seq;
    return json_array_append(p->calls, entry);
}

int answer_audit(struct job *j, struct err *e)
{
    struct call_page p = {.calls = json_array(), .limit = CALLS_DEFAULT};
    int r = p.calls ? job_number(j, "since", 0, INT64_MAX, &p.since, e) : err_oom(e);

    if (r == 0)
        r = job_number(j, "limit", 1, CALLS_MOST, &p.limit, e);
    if (r == 0)
        r = job_number(j, "last", 1, LAST_CALLS_MOST, &p.last, e);
    if (r == 0)
        r = audit_list(j->daemon->options.state_dir, add_call, &p, e);
    if (r == -1 && !e->code)
        r = err_oom(e);
    if (r >= 0)
        r = job_reply_take(j,
                           json_pack("{s:O, s:I, s:b}", "calls", p.calls, "next_since",
                                     (json_int_t)p.since, "more", p.is_full),
                           e);
    json_decref(p.calls);
    return r;
}

int answer_verify_audit(struct job *j, struct err *e)
{
    uint64_t n = 0;
    int r = job_decode(j, job_no_fields, NULL, e);

    if (r == 0)
        r = audit_verify(j->daemon->options.state_dir, &n, e);
    return r < 0
               ? r
               : job_reply_take(j, json_pack("{s:b, s:I}", "whole", 1, "calls", (json_int_t)n), e);
}
