#include "daemon/access.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "daemon/contexts.h"
#include "daemon/daemon.h"
#include "daemon/service.h"
#include "event/pool.h"
#include "http/gate.h"
#include "http/request.h"
#include "lib/box/signature.h"
#include "lib/util/context.h"

#define USED_EVERY_MS 60000 /* the last use of a token is stored so often */
#define TOKEN_TEXT_MAX 256  /* of a header; ours are shorter */
#define BEARER "Bearer "
#define END_BATCH 64 /* requests that are ended at a time */

/* q->caller. */
struct sender {
    struct principal p; /* first */
    int64_t expires_ms; /* of the token; 0: never */
    struct request *request;
    struct sender *next, **link; /* guarded by the lock; link NULL: not in the list */
    _Atomic bool is_revoked, is_expired;
};

struct access {
    struct daemon *daemon;
    uint8_t key[SIGNATURE_KEY_BYTES];
    char **domains;          /* ".NAME", or NULL */
    pthread_mutex_t reading; /* held while the store is read; taken before lock */
    pthread_mutex_t lock;
    /* guarded by lock: */
    struct store_token *tokens;
    size_t n_tokens;
    struct store_open_port *open_ports;
    size_t n_open_ports;
    bool must_save; /* a use that is not stored yet; a worker is about to */
    struct sender *watched;
};

/* ---- what the store has ---- */

struct reading {
    struct store_token *tokens;
    size_t n_tokens;
    struct store_open_port *open_ports;
    size_t n_open_ports;
};

static int read_one_token(void *arg, const struct store_token *t)
{
    struct reading *g = arg;

    if (g->n_tokens < TOKENS_MAX)
        g->tokens[g->n_tokens++] = *t;
    return 0;
}

static int read_one_port(void *arg, const struct store_open_port *p)
{
    struct reading *g = arg;

    if (g->n_open_ports < OPEN_PORTS_MAX)
        g->open_ports[g->n_open_ports++] = *p;
    return 0;
}

/* Shrinks the lists to their content: most stores have a few tokens. */
static void *shrink_list(void *list, size_t n, size_t size)
{
    void *smaller = realloc(list, n ? n * size : 1);

    return smaller ? smaller : list;
}

static int read_lists(struct store *store, struct reading *g, struct err *e)
{
    int r;

    g->tokens = calloc(TOKENS_MAX, sizeof(*g->tokens));
    g->open_ports = calloc(OPEN_PORTS_MAX, sizeof(*g->open_ports));
    if (!g->tokens || !g->open_ports)
        return err_oom(e);
    r = store_list_tokens(store, read_one_token, g, e);
    if (r == 0)
        r = store_list_open_ports(store, read_one_port, g, e);
    g->tokens = shrink_list(g->tokens, g->n_tokens, sizeof(*g->tokens));
    g->open_ports = shrink_list(g->open_ports, g->n_open_ports, sizeof(*g->open_ports));
    return r;
}

/* With the lock. A use that the store has not yet is kept. */
static void keep_uses(const struct access *a, struct reading *g)
{
    for (size_t i = 0; i < g->n_tokens; i++)
        for (size_t j = 0; j < a->n_tokens; j++)
            if (str_eq(g->tokens[i].id, a->tokens[j].id) &&
                a->tokens[j].used_ms > g->tokens[i].used_ms)
                g->tokens[i].used_ms = a->tokens[j].used_ms;
}

static int refuse_ended(const struct sender *s, struct err *e)
{
    return err_set(e, ERR_UNAUTHENTICATED, "the token %s",
                   s->is_revoked ? "was revoked" : "has expired");
}

/* ---- replies that go on when their token ends ---- */

/* With the lock. */
static bool is_known(const struct access *a, const char *id)
{
    for (size_t i = 0; i < a->n_tokens; i++)
        if (str_eq(a->tokens[i].id, id))
            return true;
    return false;
}

/* With the lock: the tokens are compared only after they were read. */
static bool check_end(const struct access *a, struct sender *s, int64_t now_ms, bool is_read)
{
    s->is_revoked = is_read && !is_known(a, s->p.token);
    s->is_expired = s->expires_ms && now_ms >= s->expires_ms;
    return s->is_revoked || s->is_expired;
}

/* With the lock. */
static void sender_unlink(struct sender *s)
{
    if (!s->link)
        return;
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    s->link = NULL;
}

static size_t take_ended(struct access *a, bool is_read, struct request *list[END_BATCH])
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&a->lock);
    int64_t now_ms = clock_real_ms();
    struct sender *next;
    size_t n = 0;

    for (struct sender *s = a->watched; s && n < END_BATCH; s = next) {
        next = s->next;
        if (!check_end(a, s, now_ms, is_read))
            continue;
        sender_unlink(s);
        list[n++] = request_ref(s->request);
    }
    return n;
}

/* revoke() wakes requests, which must not be done with the lock held. */
static void end_requests(struct access *a, bool is_read)
{
    struct request *list[END_BATCH];
    size_t n;

    do {
        n = take_ended(a, is_read, list);
        for (size_t i = 0; i < n; i++) {
            list[i]->route->ops->revoke(list[i]);
            request_unref(list[i]);
        }
    } while (n == END_BATCH);
}

void access_sweep(struct access *a)
{
    end_requests(a, false);
}

int access_watch(struct request *q, struct err *e)
{
    struct access *a = request_daemon(q)->access;
    struct sender *s = q->caller;
    bool has_ended = false;

    if (!*s->p.token || s->request)
        return 0;
    s->request = q;
    WITH_LOCK (&a->lock) {
        has_ended = check_end(a, s, clock_real_ms(), true);
        if (!has_ended) {
            s->next = a->watched;
            s->link = &a->watched;
            if (s->next)
                s->next->link = &s->next;
            a->watched = s;
        }
    }
    return has_ended ? refuse_ended(s, e) : 0;
}

void access_unwatch(const struct request *q)
{
    if (q->caller)
        WITH_LOCK (&request_daemon(q)->access->lock) {
            sender_unlink(q->caller);
        }
}

bool access_has_ended(const struct request *q, struct err *e)
{
    struct sender *s = q->caller;
    bool has_ended = s->is_revoked || s->is_expired;

    if (has_ended)
        (void)refuse_ended(s, e);
    return has_ended;
}

int access_read(struct access *a, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *reading = mutex_lock(&a->reading);
    struct reading g = {0};
    struct bh_ctx *ctx = NULL;
    int r = contexts_take(a->daemon->contexts, "daemon", &ctx, e);

    if (r == 0)
        r = read_lists(ctx->store, &g, e);
    contexts_give(a->daemon->contexts, ctx);
    if (r == 0)
        WITH_LOCK (&a->lock) {
            const struct reading old = {.tokens = a->tokens, .open_ports = a->open_ports};

            keep_uses(a, &g);
            a->tokens = g.tokens;
            a->n_tokens = g.n_tokens;
            a->open_ports = g.open_ports;
            a->n_open_ports = g.n_open_ports;
            g = old;
        }
    free(g.tokens);
    free(g.open_ports);
    if (r == 0)
        end_requests(a, true);
    return r;
}

/* The names and those below them; 'localhost' too, whose names lead to this machine. */
static int copy_domains(struct access *a, struct err *e)
{
    int r = strv_push(&a->domains, ".localhost", e);

    for (char *const *name = a->daemon->domains; r == 0 && name && *name; name++) {
        _cleanup_free_ char *dotted = NULL;

        if (asprintf(&dotted, ".%s", *name) < 0)
            return err_oom(e);
        r = strv_push(&a->domains, dotted, e);
    }
    return r;
}

int access_new(struct daemon *d, struct access **ret, struct err *e)
{
    struct access *a = calloc(1, sizeof(*a));
    int r;

    if (!a)
        return err_oom(e);
    a->daemon = d;
    (void)pthread_mutex_init(&a->reading, NULL);
    (void)pthread_mutex_init(&a->lock, NULL);
    r = access_read(a, e); /* makes the directory, if it is new */
    if (r == 0)
        r = copy_domains(a, e);
    if (r == 0)
        r = signature_read_key(d->options.state_dir, a->key, e);
    if (r < 0) {
        (void)access_free(a);
        return r;
    }
    *ret = a;
    return 0;
}

struct access *access_free(struct access *a)
{
    if (!a)
        return NULL;
    free(a->tokens);
    free(a->open_ports);
    (void)strv_free(a->domains);
    (void)pthread_mutex_destroy(&a->lock);
    (void)pthread_mutex_destroy(&a->reading);
    free(a);
    return NULL;
}

/* ---- the last uses ---- */

/* On a worker. A store that is full or busy now gets it with the next use. */
static void save_uses(void *arg)
{
    struct access *a = arg;
    struct store_token *used = calloc(TOKENS_MAX, sizeof(*used));
    struct bh_ctx *ctx = NULL;
    size_t n = 0;

    WITH_LOCK (&a->lock) {
        a->must_save = false;
        for (size_t i = 0; used && i < a->n_tokens; i++)
            if (a->tokens[i].used_ms)
                used[n++] = a->tokens[i];
    }
    if (n && contexts_take(a->daemon->contexts, "daemon", &ctx, NULL) == 0)
        for (size_t i = 0; i < n; i++)
            (void)store_set_token_used(ctx->store, used[i].id, used[i].used_ms, NULL);
    contexts_give(a->daemon->contexts, ctx);
    free(used);
}

/* ---- tokens ---- */

/* The token's text in the request: *ret_len 0 without one. It is not copied. */
static const char *find_token_text(struct request *q, size_t *ret_len)
{
    const char *text = request_header(q, "Authorization");
    size_t len = strlen(BEARER);

    if (text && strncasecmp(text, BEARER, len) == 0)
        text += len;
    else
        text = request_header(q, "X-Access-Token");
    if (text) {
        *ret_len = strlen(text);
        return text;
    }
    text = request_header(q, "Sec-WebSocket-Protocol");
    text = text ? strstr(text, ACCESS_SUBPROTOCOL) : NULL;
    text = text ? text + strlen(ACCESS_SUBPROTOCOL) : "";
    *ret_len = strcspn(text, ", ");
    return text;
}

/* Compares with each token there is, whichever fits: the time tells nothing about them. */
static struct store_token *find_by_hash(struct access *a, const uint8_t hash[TOKEN_HASH_BYTES])
{
    struct store_token *found = NULL;

    for (size_t i = 0; i < a->n_tokens; i++)
        if (str_secret_eq((const char *)a->tokens[i].hash, TOKEN_HASH_BYTES, (const char *)hash,
                          TOKEN_HASH_BYTES))
            found = &a->tokens[i];
    return found;
}

static int find_token(struct access *a, const char *text, size_t len, struct store_token *ret,
                      struct err *e)
{
    uint8_t hash[TOKEN_HASH_BYTES];
    int64_t now_ms = clock_real_ms();
    bool is_found = false, must_save = false;

    if (!len || len > TOKEN_TEXT_MAX)
        return err_set(e, ERR_UNAUTHENTICATED, "a token is needed: Authorization: Bearer TOKEN");
    token_hash(text, len, hash);
    WITH_LOCK (&a->lock) {
        struct store_token *t = find_by_hash(a, hash);

        is_found = t != NULL;
        if (t && llabs(now_ms - t->used_ms) >= USED_EVERY_MS) { /* the clock may be set back */
            t->used_ms = now_ms;
            must_save = !a->must_save;
            a->must_save = true;
        }
        if (t)
            *ret = *t;
    }
    if (must_save && pool_run(a->daemon->pool, save_uses, a, NULL) < 0)
        WITH_LOCK (&a->lock) {
            a->must_save = false;
        }
    if (!is_found)
        return err_set(e, ERR_UNAUTHENTICATED, "the token is not known, or was revoked");
    if (ret->expires_ms && now_ms >= ret->expires_ms)
        return err_set(e, ERR_UNAUTHENTICATED, "the token has expired");
    return 0;
}

/* ---- the gate ---- */

/* Whether it came by the unix socket, which only its owner and root can open. */
bool access_is_of_socket(const struct request *q)
{
    struct sockaddr_storage own = {0};
    socklen_t len = sizeof(own);

    return getsockname(request_fd(q), (struct sockaddr *)&own, &len) == 0 &&
           own.ss_family == AF_UNIX;
}

/* The mode of the socket keeps others out; its peer is asked all the same, for whoever passed it on. */
static bool peer_is_owner(const struct request *q)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);

    return getsockopt(request_fd(q), SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

/*
 * DNS rebinding: a browser takes the daemon for a site of another name. Over TCP its pages have no token, but a person
 * could be asked for one. The socket, which a person may have led to a port of theirs, asks for none; and a page of such
 * a site sends neither header with a GET: there only a browser has reason to send a name with a dot. Other programs may
 * use any name.
 */
static bool may_be_browser(struct request *q, const char *host)
{
    return request_header(q, "Origin") || request_header(q, "Sec-Fetch-Site") ||
           (access_is_of_socket(q) && strchr(host, '.'));
}

static int check_browser_host(struct request *q, struct err *e)
{
    const char *host = request_host(q);

    if (!host || !*host || !may_be_browser(q, host) ||
        origin_host_is_allowed(host, request_daemon(q)->access->domains))
        return 0;
    return err_field(e, ERR_DENIED, "Host",
                     "a browser is answered at addresses, 'localhost' and the names of --domain, "
                     "not at '%.200s'",
                     host);
}

static bool is_for_owners(const struct api_route *row)
{
    return row->route.flags & ROUTE_OWNED || row->guest_path || strstr(row->path, "/{box}");
}

static int check_scope(const struct api_route *row, const struct principal *p, struct err *e)
{
    if ((int)p->scope < (int)row->scope)
        return err_field(e, ERR_DENIED, "scope", "this needs a token of the scope '%s', not '%s'",
                         token_scope_name((enum token_scope)row->scope),
                         token_scope_name(p->scope));
    if (*p->owner && !is_for_owners(row))
        return err_field(e, ERR_DENIED, "owner",
                         "this is closed to tokens of an owner, such as '%s'", p->owner);
    return 0;
}

static int authorize_token(struct request *q, struct sender *s, struct err *e)
{
    const struct api_route *row = request_row(q);
    struct principal *p = &s->p;
    struct store_token t = {0};
    size_t len;
    const char *text = find_token_text(q, &len);
    int r;

    if (!len && row->route.flags & ROUTE_SIGNED) {
        p->is_nobody = true;
        return 0;
    }
    r = find_token(request_daemon(q)->access, text, len, &t, e);
    /* A program behind a port has tokens of its own. */
    if (r == -ERR_UNAUTHENTICATED && row->route.flags & ROUTE_SIGNED) {
        p->is_nobody = true;
        return 0;
    }
    if (r < 0)
        return r;
    s->expires_ms = t.expires_ms;
    p->scope = t.scope;
    memcpy(p->token, t.id, sizeof(p->token));
    memcpy(p->name, t.name, sizeof(p->name));
    memcpy(p->owner, t.owner, sizeof(p->owner));
    return check_scope(row, p, e);
}

int access_authorize(struct request *q, struct err *e)
{
    struct sender *s;
    int r = check_browser_host(q, e);

    if (r < 0 || q->route->flags & ROUTE_OPEN)
        return r;
    s = calloc(1, sizeof(*s));
    if (!s)
        return err_oom(e);
    q->caller = s;
    if (!access_is_of_socket(q))
        return authorize_token(q, s, e);
    if (!peer_is_owner(q))
        return err_set(e, ERR_DENIED, "the socket takes requests of its owner and root only");
    s->p.is_local = true;
    s->p.scope = TOKEN_ADMIN;
    return 0;
}

/* ---- the sender ---- */

const struct principal *access_principal(const struct request *q)
{
    return q->caller;
}

bool access_is_admin(const struct request *q)
{
    const struct principal *p = q->caller;

    return p && !p->is_nobody && p->scope == TOKEN_ADMIN;
}

void access_actor(const struct request *q, char *out, size_t n)
{
    const struct principal *p = q->caller;

    if (!p || p->is_local)
        (void)snprintf(out, n, "daemon");
    else if (p->is_nobody)
        (void)snprintf(out, n, "signature");
    else
        (void)snprintf(out, n, "token %s", *p->name ? p->name : p->token);
}

void access_actor_of_events(struct request *q, char *out, size_t n)
{
    const struct principal *p = q->caller;
    const char *told = request_header(q, WIRE_HEADER_ACTOR);
    size_t len = told ? strlen(told) : 0;

    access_actor(q, out, n);
    if (p && p->is_local && len && len < n && str_is_utf8(told, len))
        (void)snprintf(out, n, "%s", told);
}

bool access_sees_owner(const struct request *q, const char *owner)
{
    const struct principal *p = q->caller;

    return p && !p->is_nobody && (!*p->owner || str_eq(p->owner, owner));
}

/* ---- ports and files of boxes ---- */

/* The signature of a page's parts is in a cookie. A program in a box may have set others of its name before it. */
static int check_cookies(struct request *q, const char *text, struct err *e)
{
    static const char name[] = SIGNATURE_PARAMETER "=";
    const char *at = request_header(q, "Cookie");
    int r = err_set(e, ERR_UNAUTHENTICATED,
                    "a token or a signature is needed: Authorization: Bearer TOKEN");

    for (; r < 0 && at && *at; at += strspn(at, "; ")) {
        size_t len = strcspn(at, ";");
        char signature[SIGNATURE_TEXT_BYTES];

        if (str_has_prefix(at, name)) {
            (void)snprintf(signature, sizeof(signature), "%.*s", (int)(len - strlen(name)),
                           at + strlen(name));
            r = signature_check(request_daemon(q)->access->key, text, clock_real_ms(), signature,
                                e);
        }
        at += len;
    }
    return r;
}

static int check_signed(struct request *q, const char *text, struct err *e)
{
    _cleanup_free_ char *signature = NULL;
    int r = request_query(q, SIGNATURE_PARAMETER, &signature, e);

    if (r < 0)
        return r;
    if (!signature)
        return check_cookies(q, text, e);
    return signature_check(request_daemon(q)->access->key, text, clock_real_ms(), signature, e);
}

static int check_own_box(struct request *q, const char *box_id, const char *owner, struct err *e)
{
    return access_sees_owner(q, owner)
               ? 0
               : err_field(e, ERR_NOT_FOUND, "name", "there is no box '%s'", box_id);
}

static bool is_open_port(struct access *a, const char *box_id, uint16_t port)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&a->lock);

    for (size_t i = 0; i < a->n_open_ports; i++)
        if (a->open_ports[i].port == port && str_eq(a->open_ports[i].box_id, box_id))
            return true;
    return false;
}

int access_check_port(struct request *q, const char *box_id, const char *owner, uint16_t port,
                      struct err *e)
{
    const struct principal *p = q->caller;
    char text[64];

    if (p && !p->is_nobody)
        return check_own_box(q, box_id, owner, e);
    if (is_open_port(request_daemon(q)->access, box_id, port))
        return 0;
    (void)snprintf(text, sizeof(text), "port %s %u", box_id, (unsigned)port);
    return check_signed(q, text, e);
}

int access_check_file(struct request *q, const char *box_id, const char *owner, const char *path,
                      struct err *e)
{
    const struct principal *p = q->caller;
    _cleanup_free_ char *text = NULL;

    if (p && !p->is_nobody)
        return check_own_box(q, box_id, owner, e);
    if (!(q->verb & (VERB_GET | VERB_HEAD)))
        return err_set(e, ERR_UNAUTHENTICATED, "a token is needed: Authorization: Bearer TOKEN");
    if (asprintf(&text, "file %s %s", box_id, path) < 0)
        return err_oom(e);
    return check_signed(q, text, e);
}
