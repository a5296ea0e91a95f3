#include "daemon/gateway.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bellhop/bellhop.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "daemon/access.h"
#include "daemon/agents.h"
#include "daemon/answers.h"
#include "daemon/contexts.h"
#include "daemon/daemon.h"
#include "daemon/job.h"
#include "daemon/service.h"
#include "http/proxy.h"
#include "http/respond.h"
#include "lib/box/signature.h"
#include "lib/box/store_access.h"
#include "lib/util/context.h"

#define HEADER_BOX "Bellhop-Box"
#define HEADER_PORT "Bellhop-Port"
#define HEADER_TIMEOUT "Bellhop-Proxy-Timeout-Ms"
#define LOCAL_DOMAIN "localhost"
#define PORTS_PREFIX "/v1/proxy/"                  /* at the agent */
#define CALL_ANSWER_MS (INT64_C(24) * 3600 * 1000) /* a method of the agent may take its time */
#define AGENT_GRACE_MS 5000 /* the agent's own deadline comes first: its error says more */
#define PORT_DIGITS 5
#define LIST_MS (60 * 1000)

/*
 * A page from a box must not act as a page of the daemon, whose address it has: it gets an origin of its own. Pages that
 * need one to keep (cookies, storage) are reached by their host name.
 */
#define PAGE_SANDBOX "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"

struct passage {
    struct agent_use use;
    char *box;    /* its name or id */
    char *path;   /* the target at the agent */
    char *prefix; /* below which the client sees a port: "" at the root; NULL: no port */
    bool is_by_path;
    struct ask check; /* may the sender reach the box? */
    char *cookie;     /* Set-Cookie of a signature that came in the query; or NULL */
    struct proxy *proxy;
};

/* ---- by host and by header ---- */

static const struct api_route port_row = {
    .route = {.name = "gateway",
              .path = "/",
              .verbs = VERB_ANY,
              .flags = ROUTE_PAGES | ROUTE_OWN_PAGES | ROUTE_SIGNED,
              .max_body_bytes = UINT64_MAX,
              .ops = &gateway_ops,
              .summary = "a port of a box, by its host name or by headers"},
    .path = "/{path...}",
    .scope = SCOPE_USE,
    .guest_path = PORTS_PREFIX,
};

/* "8080-one.localhost.:7000" -> the label's length if the domain is `domain`; 0: it is not. */
static size_t label_len(const char *host, const char *domain)
{
    size_t len = strcspn(host, ":"), n = strlen(domain);

    len -= len && host[len - 1] == '.'; /* the name in absolute form */
    if (len < n + 2 || strncasecmp(host + len - n, domain, n) != 0 || host[len - n - 1] != '.')
        return 0;
    return len - n - 1;
}

/* ret_port may be NULL. The texts are the caller's; NULL: no memory. */
static bool find_label(const char *host, const char *domain, char **ret_port, char **ret_box)
{
    size_t len = label_len(host, domain);
    size_t digits = strspn(host, "0123456789");

    if (!digits || digits > PORT_DIGITS || digits + 1 >= len || host[digits] != '-' ||
        memchr(host, '.', len))
        return false;
    if (ret_port) {
        *ret_port = strndup(host, digits);
        *ret_box = strndup(host + digits + 1, len - digits - 1);
    }
    return true;
}

/* Whether the request is for a port of a box; as find_label(). */
static bool find_port(struct request *q, char **ret_port, char **ret_box)
{
    char *const *domains = request_daemon(q)->domains;
    const char *box = request_header(q, HEADER_BOX);
    const char *port = request_header(q, HEADER_PORT);
    const char *host = request_host(q);

    if (box && port) {
        if (ret_port) {
            *ret_port = strdup(port);
            *ret_box = strdup(box);
        }
        return true;
    }
    if (host && find_label(host, LOCAL_DOMAIN, ret_port, ret_box))
        return true;
    for (; host && domains && *domains; domains++)
        if (find_label(host, *domains, ret_port, ret_box))
            return true;
    return false;
}

const struct api_route *gateway_by_name(struct request *q)
{
    return find_port(q, NULL, NULL) ? &port_row : NULL;
}

/* ---- the target at the agent ---- */

/* The raw path behind the box's segment, with the query: "/files/a%20b?x=1". *ret_box: that segment. */
static const char *skip_box(const struct request *q, const struct api_route *row,
                            const char **ret_box, size_t *ret_len)
{
    const char *box = q->target + (strstr(row->path, "{box}") - row->path);

    *ret_box = box;
    *ret_len = strcspn(box, "/?");
    return box + *ret_len;
}

/* The text between the box's segment and the next variable: "/files/". */
static size_t fixed_len(const struct api_route *row)
{
    return strcspn(strstr(row->path, "{box}") + strlen("{box}"), "{");
}

/* The signature is for the daemon alone. */
static void drop_signature(char *target)
{
    char *query = strchr(target, '?'), *to = query;
    size_t len;

    for (char *from = query; from && *from; from += len) {
        len = 1 + strcspn(from + 1, "&");
        if (strncmp(from + 1, SIGNATURE_PARAMETER "=", strlen(SIGNATURE_PARAMETER "=")) == 0)
            continue;
        (void)memmove(to, from, len);
        *to = to == query ? '?' : '&';
        to += len;
    }
    if (to)
        *to = '\0';
}

static int passage_by_path(struct request *q, struct passage *g, struct err *e)
{
    const struct api_route *row = request_row(q);
    const char *box;
    size_t len;
    const char *tail = skip_box(q, row, &box, &len);
    const char *rest = tail + fixed_len(row);
    int r = uri_decode(box, len, &g->box, e);

    if (r < 0)
        return r;
    if (asprintf(&g->path, "%s%s", row->guest_path, rest) < 0)
        g->path = NULL;
    if (str_eq(row->guest_path, PORTS_PREFIX)) {
        g->is_by_path = true;
        g->prefix = strndup(q->target, (size_t)(rest - q->target) + strcspn(rest, "/?"));
    }
    return g->path && (g->prefix || !g->is_by_path) ? 0 : err_oom(e);
}

static int passage_by_name(struct request *q, struct passage *g, struct err *e)
{
    _cleanup_free_ char *port = NULL;

    if (!find_port(q, &port, &g->box) || !port || !g->box)
        return err_oom(e);
    if (!*port || port[strspn(port, "0123456789")] || strlen(port) > PORT_DIGITS)
        return err_field(e, ERR_INVALID, HEADER_PORT, "a port from 1 to 65535 is needed");
    g->prefix = strdup("");
    if (asprintf(&g->path, PORTS_PREFIX "%s%s", port, q->target) < 0)
        g->path = NULL;
    return g->prefix && g->path ? 0 : err_oom(e);
}

/* ---- the request ---- */

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcasecmp(name, *names) == 0)
            return true;
    return false;
}

/* A token of the daemon, as access.c looks for it in a request that came by TCP. */
static bool is_own_token(struct request *q, const char *name, const char *value)
{
    if (access_is_of_socket(q) || access_principal(q)->is_nobody)
        return false;
    if (strcasecmp(name, "Authorization") == 0)
        return strncasecmp(value, "Bearer ", 7) == 0;
    return strcasecmp(name, "Sec-WebSocket-Protocol") == 0 && strstr(value, ACCESS_SUBPROTOCOL);
}

/* A program in the box gets the client's headers. The agent takes our word about pages: the gate has looked at them. */
static bool passage_drops(void *arg, const char *name, const char *value)
{
    static const char *const always[] = {"X-Access-Token", HEADER_BOX, HEADER_PORT,
                                         WIRE_HEADER_PREFIX, NULL};
    static const char *const ours[] = {
        "Authorization",  "Cookie",         "Origin", "Sec-Fetch-Site",
        "Sec-Fetch-Mode", "Sec-Fetch-Dest", NULL};
    struct request *q = arg;
    const struct passage *g = q->state;

    /* A browser has one jar for all ports of a name: below a path come the cookies of programs that are in no box. */
    if (g->is_by_path && strcasecmp(name, "Cookie") == 0)
        return true;
    return is_one_of(name, always) ||
           (g->prefix ? is_own_token(q, name, value) : is_one_of(name, ours));
}

/* Below a path the origin is the daemon's: a box does not set what holds for all of it. */
static bool is_for_origin(const char *name)
{
    static const char *const names[] = {
        "Set-Cookie", "Clear-Site-Data",        "Strict-Transport-Security",
        "Alt-Svc",    "Reporting-Endpoints",    "Report-To",
        "NEL",        "Service-Worker-Allowed", "Origin-Agent-Cluster",
        NULL};

    return is_one_of(name, names);
}

static int64_t answer_ms(struct request *q, const struct passage *g)
{
    const char *given = request_header(q, HEADER_TIMEOUT);
    int64_t ms = PROXY_ANSWER_MS;

    if (!g->prefix)
        return CALL_ANSWER_MS;
    if (given && str_parse_i64(given, 1, CALL_ANSWER_MS, &ms, NULL) < 0)
        ms = PROXY_ANSWER_MS; /* the agent refuses it */
    return ms + AGENT_GRACE_MS;
}

static int passage_start(struct request *q, struct passage *g, int fd, struct err *e)
{
    _cleanup_buf_ struct buf headers = {0};
    char what[PROXY_WHAT_BYTES];
    struct proxy_target t = {.fd = fd,
                             .what = what,
                             .path = g->path,
                             .host = "bellhop",
                             .is_own = !g->prefix,
                             .answer_ms = answer_ms(q, g),
                             .drops = passage_drops,
                             .arg = q};
    int r;

    buf_init(&headers, 2 * URI_MAX_BYTES);
    (void)snprintf(what, sizeof(what), "the agent of the box '%.40s'", g->box);
    r = buf_addf(&headers, e, "X-Access-Token: %s\r\n", agents_token(&g->use));
    if (r == 0 && g->prefix)
        r = buf_addf(&headers, e, WIRE_HEADER_PREFIX ": %s\r\n", g->prefix);
    if (r < 0) {
        fd_close(fd);
        return r;
    }
    t.headers = headers.data;
    if (!g->prefix || g->is_by_path) {
        t.drops_reply = is_for_origin;
        t.reply_name = "Content-Security-Policy";
        t.reply_value = g->prefix ? PAGE_SANDBOX : "sandbox";
    }
    if (g->cookie) {
        t.reply_name = "Set-Cookie";
        t.reply_value = g->cookie;
    }
    r = proxy_new_take(q, &t, &g->proxy, e);
    explicit_bzero(headers.data, headers.len);
    return r;
}

static void passage_free(void *state)
{
    struct passage *g = state;

    free(g->box);
    free(g->path);
    free(g->prefix);
    free(g->cookie);
    free(g);
}

/* ---- who may ---- */

static int check_target(struct request *q, const struct passage *g, const char *box_id,
                        const char *owner, struct err *e)
{
    uint64_t port;
    char digits[PORT_DIGITS + 1];
    size_t n;

    if (!g->prefix)
        return access_check_file(q, box_id, owner, q->rest ? q->rest : "", e);
    n = strspn(g->path + strlen(PORTS_PREFIX), "0123456789");
    (void)snprintf(digits, sizeof(digits), "%.*s", (int)n, g->path + strlen(PORTS_PREFIX));
    if (n > PORT_DIGITS || str_parse_u64(digits, 1, UINT16_MAX, &port, NULL) < 0)
        return err_field(e, ERR_INVALID, HEADER_PORT, "a port from 1 to 65535 is needed");
    return access_check_port(q, box_id, owner, (uint16_t)port, e);
}

static int passage_pin_box(struct passage *g, const char *id, struct err *e)
{
    char *copy = strdup(id);

    if (!copy)
        return err_oom(e);
    free(g->box);
    g->box = copy;
    return 0;
}

/* On a worker: finds the box, which is not woken for a sender who may not reach it. */
static void run_passage_check(struct request *q)
{
    struct passage *g = q->state;
    struct err *e = &g->check.error;
    char owner[ACCESS_NAME_BYTES] = "";
    struct bh_box *box = NULL;
    struct bh_ctx *ctx = NULL;
    struct err why = {0};
    int r = contexts_take(request_daemon(q)->contexts, "daemon", &ctx, e);
    int found = r == 0 ? job_find_box(ctx, g->box, &box, &why) : r;
    const char *id = box ? bh_box_summary(box)->id : why.detail;

    if (r == 0 && (found == 0 || str_eq(why.detail_name, "gone"))) {
        r = store_owner_of(ctx->store, id, owner, e);
        if (r == 0)
            r = check_target(q, g, id, owner, e);
        if (r == 0) /* a box that takes over its name meanwhile was not checked */
            r = passage_pin_box(g, id, e);
    } else if (r == 0) {
        /* A sender without a token does not learn which boxes there are. */
        r = access_principal(q)->is_nobody ? check_target(q, g, "none", "", e) : found;
        if (r == found)
            *e = why;
    }
    (void)bh_box_free(box);
    contexts_give(request_daemon(q)->contexts, ctx);
    g->check.r = r;
    request_answer(q, &g->check);
}

static int passage_check(struct request *q, struct passage *g, struct err *e)
{
    const struct principal *p = access_principal(q);

    if (!p->is_nobody && !*p->owner)
        return 0;
    return request_ask(q, &g->check, run_passage_check, e);
}

/* A page that a signed URL led to asks for its parts without the signature: its browser gets a cookie. */
static int passage_make_cookie(struct request *q, struct passage *g, struct err *e)
{
    _cleanup_free_ char *signature = NULL;
    int r = access_principal(q)->is_nobody && g->prefix && !g->is_by_path && !g->cookie
                ? request_query(q, SIGNATURE_PARAMETER, &signature, e)
                : 0;

    /* An open port takes any text there: only one that can be a signature becomes a header. */
    if (r < 0 || !signature || signature[strspn(signature, "0123456789abcdef.")])
        return r;
    return asprintf(&g->cookie, SIGNATURE_PARAMETER "=%s; Path=/; HttpOnly; SameSite=Lax",
                    signature) < 0
               ? err_oom(e)
               : 0;
}

static int gateway_begin(struct request *q, struct err *e)
{
    struct passage *g = q->state;
    int fd = -1, r = 0;

    if (!g) {
        g = calloc(1, sizeof(*g));
        if (!g)
            return err_oom(e);
        q->state = g;
        q->free_state = passage_free;
        r = request_row(q) == &port_row ? passage_by_name(q, g, e) : passage_by_path(q, g, e);
    }
    if (r == 0)
        r = access_watch(q, e);
    if (r == 0 && access_principal(q)->is_nobody)
        drop_signature(g->path);
    if (r == 0)
        r = passage_check(q, g, e);
    if (r == 0)
        r = passage_make_cookie(q, g, e);
    if (r == 0)
        r = agents_connect(q, &g->use, g->box, &fd, e);
    return r == 0 ? passage_start(q, g, fd, e) : r;
}

/* An agent that failed may have ended: the next request looks again. */
static int check_passage(struct request *q, struct passage *g, int r)
{
    if (r < 0 && !request_is_gone(q))
        agents_forget(request_daemon(q)->agents, agents_box_id(&g->use));
    return r;
}

static int gateway_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    struct passage *g = q->state;

    return check_passage(q, g, proxy_body(g->proxy, data, len, e));
}

static int gateway_finish(struct request *q, struct err *e)
{
    struct passage *g = q->state;

    return check_passage(q, g, proxy_finish(g->proxy, e));
}

static void gateway_done(struct request *q)
{
    struct passage *g = q->state;

    if (!g)
        return;
    g->proxy = proxy_leave(g->proxy);
    agents_leave(&g->use);
}

const struct request_ops gateway_ops = {.begin = gateway_begin,
                                        .body = gateway_body,
                                        .finish = gateway_finish,
                                        .done = gateway_done,
                                        .revoke = request_revoke};

/* ---- a directory's list ---- */

static bool asks_for_list(const struct request *q)
{
    const char *query = strchr(q->target, '?');
    _cleanup_free_ char *value = NULL;

    return query && uri_query_get(query + 1, "list", &value, NULL) == 0 && value &&
           (str_eq(value, "true") || str_eq(value, "1"));
}

#define LIST_ROW(path_) \
    { \
        .route = {.name = path_, \
                  .path = path_, \
                  .verbs = VERB_GET, \
                  .max_body_bytes = UINT64_MAX, \
                  .ops = &job_ops, \
                  .summary = "with list=true: the files of a directory"}, \
        .path = path_, .scope = SCOPE_USE, .query = (const char *const[]){"list", NULL}, \
        .answer = answer_list_files \
    }

static const struct api_route list_rows[] = {LIST_ROW("/v1/boxes/{box}/files/{path...}"),
                                             LIST_ROW("/sandboxes/{box}/fs/{path...}")};

const struct api_route *gateway_refine(const struct request *q, const struct api_route *row)
{
    for (size_t i = 0; q->verb == VERB_GET && row && i < N_ELEMENTS(list_rows); i++)
        if (str_eq(row->path, list_rows[i].path) && asks_for_list(q))
            return &list_rows[i];
    return row;
}

int answer_list_files(struct job *j, struct err *e)
{
    struct bh_error error = {0};
    struct bh_box *box = NULL;
    _cleanup_free_ char *text = NULL;
    _cleanup_free_ char *params = NULL;
    json_t *o = NULL;
    int r = job_box(j, &box, e);

    if (r == 0) {
        o = json_pack("{s:o}", "path", jx_new_path(*j->q->rest ? j->q->rest : "."));
        params = o ? json_dumps(o, JSON_COMPACT) : NULL;
        json_decref(o);
        r = params
                ? job_fail(e, bh_call(box, "Fs/List", params, NULL, NULL, LIST_MS, &text, &error),
                           &error)
                : err_oom(e);
    }
    if (r == 0 && !(j->reply = json_loads(text, JSON_ALLOW_NUL, NULL)))
        r = err_oom(e);
    (void)bh_box_free(box);
    return r;
}
