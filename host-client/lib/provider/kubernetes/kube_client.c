#include "lib/provider/kubernetes/kube_client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/kubernetes/kube_config.h"
#include "lib/provider/kubernetes/kube_retry.h"
#include "lib/util/socket.h"
#include "lib/util/transport.h"

#define KUBE_ANSWER_BYTES (16 * 1024 * 1024)
#define KUBE_PARSED_BYTES (64 * 1024 * 1024)
#define KUBE_LOG_BYTES (256 * 1024)
#define KUBE_PATH_BYTES 2048
#define KUBE_REGISTRY "docker.io/bellhop"
#define WATCH_S 1800

const char *const kube_reach_names[] = {"any", "address", "exec", "forward", NULL};

static const struct {
    const char *group; /* up to the namespace */
    const char *plural;
} kube_kinds[] = {
    [KUBE_PODS] = {"/api/v1", "pods"},
    [KUBE_SECRETS] = {"/api/v1", "secrets"},
    [KUBE_CLAIMS] = {"/api/v1", "persistentvolumeclaims"},
    [KUBE_POLICIES] = {"/apis/networking.k8s.io/v1", "networkpolicies"},
    [KUBE_EVENTS] = {"/api/v1", "events"},
    [KUBE_LEASES] = {"/apis/coordination.k8s.io/v1", "leases"},
    [KUBE_SANDBOX_CLAIMS] = {"/apis/extensions.agents.x-k8s.io/v1beta1", "sandboxclaims"},
    [KUBE_SANDBOXES] = {"/apis/agents.x-k8s.io/v1beta1", "sandboxes"},
    [KUBE_WARM_POOLS] = {"/apis/extensions.agents.x-k8s.io/v1beta1", "sandboxwarmpools"},
};

enum kube_way {
    KUBE_BY_CONFIG,
    KUBE_BY_PROXY,
    KUBE_INSIDE,
};
static const char *const way_prefixes[] = {"kubeconfig:", "proxy:", "incluster:"};

struct kube {
    struct bh_ctx *ctx;
    struct http *http;
    int64_t deadline_mono_ms;
    int patience_ms;
    enum kube_way way;
    enum kube_reach reach;
    struct kube_config config;
    char *socket; /* of kubectl proxy; or NULL */
    char *engine, *namespace, *registry;
};

/* ---- which one ---- */

static const char *text_or_null(const char *text)
{
    return text && *text ? text : NULL;
}

/* Values go into the address as they are. */
static int check_values(const struct bh_ctx *ctx, struct err *e)
{
    const struct {
        const char *field, *value, *refused;
    } values[] = {{KUBE_FIELD, ctx->kubeconfig, "&"},
                  {"kube_context", ctx->kube_context, "&?"},
                  {"kube_namespace", ctx->kube_namespace, "&?/"},
                  {"kube_registry", ctx->kube_registry, "&?"}};

    for (size_t i = 0; i < N_ELEMENTS(values); i++)
        if (values[i].value && strpbrk(values[i].value, values[i].refused) &&
            !strstr(values[i].value, "?reach="))
            return err_field(e, ERR_INVALID, values[i].field, "%s: '%.100s' has one of '%s'",
                             values[i].field, values[i].value, values[i].refused);
    return 0;
}

static int add_value(struct buf *b, const char *key, const char *value, struct err *e)
{
    if (!text_or_null(value))
        return 0;
    return buf_addf(b, e, "%c%s=%s", b->data && strchr(b->data, '?') ? '&' : '?', key, value);
}

int kube_choose(const struct bh_ctx *ctx, char **ret, struct err *e)
{
    const char *given = text_or_null(ctx->kubeconfig);
    bool is_address = false;
    _cleanup_buf_ struct buf b;
    int r;

    buf_init(&b, KUBE_PATH_BYTES);
    if (!given)
        return err_field(e, ERR_UNAVAILABLE, KUBE_FIELD,
                         "no cluster is known: neither KUBECONFIG nor ~/.kube/config is there");
    for (size_t i = 0; i < N_ELEMENTS(way_prefixes); i++)
        is_address = is_address || str_has_prefix(given, way_prefixes[i]);
    r = check_values(ctx, e);
    if (r == 0)
        r = buf_addf(&b, e, "%s%s", is_address ? "" : way_prefixes[KUBE_BY_CONFIG], given);
    if (r == 0)
        r = add_value(&b, "context", ctx->kube_context, e);
    if (r == 0)
        r = add_value(&b, "namespace", ctx->kube_namespace, e);
    if (r == 0)
        r = add_value(&b, "registry", ctx->kube_registry, e);
    if (r < 0)
        return r;
    *ret = buf_take(&b);
    return 0;
}

/* The value of a key after the '?', as far as the next '&'. */
static int engine_value(const char *engine, const char *key, char **ret, struct err *e)
{
    const char *p = strchr(engine, '?');
    size_t n = strlen(key);

    for (; p; p = strchr(p + 1, '&'))
        if (strncmp(p + 1, key, n) == 0 && p[1 + n] == '=') {
            *ret = strndup(p + n + 2, strcspn(p + n + 2, "&"));
            return *ret ? 0 : err_oom(e);
        }
    return 0;
}

static int read_reach(struct kube *k, const char *engine, struct err *e)
{
    _cleanup_free_ char *word = NULL;
    int r = engine_value(engine, "reach", &word, e);

    if (r < 0 || !word)
        return r;
    for (size_t i = 0; kube_reach_names[i]; i++)
        if (str_eq(word, kube_reach_names[i])) {
            k->reach = (enum kube_reach)i;
            return 0;
        }
    return err_field(e, ERR_INVALID, KUBE_FIELD,
                     "kubeconfig: reach is any, address, exec or forward, not '%.40s'", word);
}

static int read_way(struct kube *k, const char *engine, struct err *e)
{
    _cleanup_free_ char *place = NULL, *context = NULL;
    size_t way = 0;
    int r = engine_value(engine, "context", &context, e);

    while (way < N_ELEMENTS(way_prefixes) && !str_has_prefix(engine, way_prefixes[way]))
        way++;
    if (way == N_ELEMENTS(way_prefixes))
        return err_field(e, ERR_INVALID, KUBE_FIELD,
                         "kubeconfig: '%.200s' is no address of a cluster", engine);
    engine += strlen(way_prefixes[way]);
    place = strndup(engine, strcspn(engine, "?"));
    if (!place)
        return err_oom(e);
    k->way = (enum kube_way)way;
    if (r < 0)
        return r;
    if (k->way == KUBE_BY_CONFIG)
        return kube_config_read(&k->config, place, context, e);
    if (k->way == KUBE_INSIDE)
        return kube_config_of_pod(&k->config, place, e);
    k->socket = TAKE(place);
    k->config.server = strdup("http://localhost"); /* kubectl proxy refuses other hosts */
    return k->config.server ? 0 : err_oom(e);
}

/* A name of Kubernetes: it goes into paths as it is. */
static int check_namespace(const char *name, struct err *e)
{
    if (*name && strlen(name) <= 63 &&
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(name))
        return 0;
    return err_field(e, ERR_INVALID, "kube_namespace",
                     "kube_namespace: '%.64s' is no name of a namespace", name);
}

static int read_engine(struct kube *k, const char *engine, struct err *e)
{
    int r = read_reach(k, engine, e);

    if (r == 0)
        r = read_way(k, engine, e);
    if (r == 0)
        r = engine_value(engine, "namespace", &k->namespace, e);
    if (r == 0)
        r = engine_value(engine, "registry", &k->registry, e);
    if (r == 0 && !k->namespace)
        k->namespace = strdup(k->config.namespace ? k->config.namespace : "default");
    if (r == 0 && !k->registry)
        k->registry = strdup(KUBE_REGISTRY);
    if (r == 0 && (!k->namespace || !k->registry))
        r = err_oom(e);
    return r < 0 ? r : check_namespace(k->namespace, e);
}

int kube_open(struct bh_ctx *ctx, const char *engine, int64_t deadline_mono_ms, struct kube **ret,
              struct err *e)
{
    struct kube *k = calloc(1, sizeof(*k));
    int r = 0;

    if (!k)
        return err_oom(e);
    kube_config_init(&k->config);
    k->ctx = ctx;
    k->deadline_mono_ms = deadline_mono_ms;
    k->engine = strdup(engine);
    r = k->engine ? read_engine(k, engine, e) : err_oom(e);
    if (r == 0)
        r = http_new(ctx->cancel_fd, &k->http, e);
    if (r < 0) {
        (void)kube_free(k);
        return r;
    }
    http_set_debug(k->http, &ctx->debug);
    http_set_ca(k->http, k->config.ca);
    http_set_certificate(k->http, k->config.cert, k->config.key);
    *ret = k;
    return 0;
}

struct kube *kube_free(struct kube *k)
{
    if (!k)
        return NULL;
    (void)http_free(k->http);
    kube_config_done(&k->config);
    free(k->socket);
    free(k->engine);
    free(k->namespace);
    free(k->registry);
    free(k);
    return NULL;
}

const char *kube_engine(const struct kube *k)
{
    return k->engine;
}

/* A context whose name cannot stand in the address is not named. */
static int add_missing(struct buf *b, const char *key, const char *value, struct err *e)
{
    _cleanup_free_ char *given = NULL;
    int r = engine_value(b->data, key, &given, e);

    return r < 0 || given || !value || strpbrk(value, "&?") ? r : add_value(b, key, value, e);
}

int kube_pin(const struct kube *k, char **ret, struct err *e)
{
    _cleanup_buf_ struct buf b;
    int r;

    buf_init(&b, KUBE_PATH_BYTES);
    r = buf_addf(&b, e, "%s", k->engine);
    if (r == 0 && k->way == KUBE_BY_CONFIG)
        r = add_missing(&b, "context", k->config.context, e);
    if (r == 0 && k->way == KUBE_BY_CONFIG)
        r = add_missing(&b, "namespace", k->namespace, e);
    if (r == 0)
        *ret = buf_take(&b);
    return r;
}

const char *kube_namespace(const struct kube *k)
{
    return k->namespace;
}

const char *kube_registry(const struct kube *k)
{
    return k->registry;
}

enum kube_reach kube_reach(const struct kube *k)
{
    return k->reach;
}

bool kube_is_inside(const struct kube *k)
{
    return k->way == KUBE_INSIDE;
}

int kube_cancel_fd(const struct kube *k)
{
    return k->ctx->cancel_fd;
}

int64_t kube_deadline(const struct kube *k)
{
    return k->deadline_mono_ms;
}

void kube_set_deadline(struct kube *k, int64_t deadline_mono_ms)
{
    k->deadline_mono_ms = deadline_mono_ms;
}

void kube_set_patience(struct kube *k, int ms)
{
    k->patience_ms = ms;
}

int kube_patience(const struct kube *k)
{
    return k->patience_ms;
}

/* ---- answers ---- */

const char *kube_text_at(const json_t *obj, ...)
{
    const char *key, *text;
    va_list ap;

    va_start(ap, obj);
    while ((key = va_arg(ap, const char *)))
        obj = *key >= '0' && *key <= '9' && json_is_array(obj)
                  ? json_array_get(obj, (size_t)(*key - '0'))
                  : json_object_get(obj, key);
    va_end(ap);
    text = json_string_value(obj);
    return text ? text : "";
}

/* All refusals for a rule have the reason Forbidden; the message tells the rule. */
static enum err_code code_of_forbidden(const char *message)
{
    if (strstr(message, "exceeded quota") || strstr(message, "failed quota") ||
        strstr(message, "maximum "))
        return ERR_EXHAUSTED;
    return strstr(message, "violates PodSecurity") || strstr(message, "is being terminated")
               ? ERR_PRECONDITION
               : ERR_DENIED;
}

static enum err_code code_of_status(int status, const char *reason, const char *message)
{
    switch (status) {
    case 404:
        return ERR_NOT_FOUND;
    case 409:
        return str_eq(reason, "AlreadyExists") ? ERR_EXISTS : ERR_ABORTED;
    case 401:
        return ERR_DENIED;
    case 403:
        return code_of_forbidden(message);
    case 400:
    case 422:
        return ERR_INVALID;
    case 410:
        return ERR_RANGE;
    default:
        return ERR_UNAVAILABLE;
    }
}

/* The text of kubectl proxy or of a balancer is no Status: then nobody knows whether the cluster is there. */
static int kube_refusal(int status, const char *data, size_t len, struct kube_retry *t,
                        struct err *e)
{
    _cleanup_json_ json_t *obj = NULL;
    char message[ERR_MESSAGE_BYTES], reason[64];

    if (len)
        (void)jx_parse_within(data, len, KUBE_PARSED_BYTES, &obj, NULL);
    if (!str_eq(kube_text(obj, "kind"), "Status")) {
        (void)snprintf(message, sizeof(message), "%.*s", (int)(len < 300 ? len : 300),
                       len ? data : "");
        str_make_utf8(message);
        message[strcspn(message, "\r\n")] = '\0';
        return err_field(e, status == 401 || status == 403 ? ERR_DENIED : ERR_UNAVAILABLE,
                         KUBE_FIELD, "the cluster does not answer: status %d, '%s'", status,
                         message);
    }
    kube_retry_read(t, obj);
    (void)snprintf(reason, sizeof(reason), "%.60s", kube_text(obj, "reason"));
    (void)snprintf(message, sizeof(message), "%.400s", kube_text(obj, "message"));
    str_make_utf8(message);
    str_make_utf8(reason);
    return err_set(e, code_of_status(status, reason, message), "kubernetes: %s (%s)", message,
                   reason);
}

/* ---- calls ---- */

static int kube_path(const struct kube *k, enum kube_kind kind, const char *name, const char *query,
                     char out[KUBE_PATH_BYTES])
{
    return snprintf(out, KUBE_PATH_BYTES, "%s/namespaces/%s/%s%s%s%s%s", kube_kinds[kind].group,
                    k->namespace, kube_kinds[kind].plural, name ? "/" : "", name ? name : "",
                    query ? "?" : "", query ? query : "");
}

static int kube_request(struct kube *k, const char *method, const char *path, const json_t *body,
                        size_t max_body, struct http_response *res, struct err *e)
{
    bool is_patch = str_eq(method, "PATCH");
    /* Without "Expect:" libcurl sends the body only after a 100 Continue: one round trip more. */
    const char *headers[] = {is_patch ? "Content-Type: application/merge-patch+json"
                                      : "Content-Type: application/json",
                             "Accept: application/json", "Expect:", k->config.bearer, NULL};
    struct http_request req = {.method = method,
                               .headers = headers,
                               .unix_socket = k->socket,
                               .deadline_mono_ms = k->deadline_mono_ms,
                               .max_body = max_body};
    _cleanup_free_ char *text = NULL, *url = NULL;
    int r = body ? jx_dump(body, &text, &req.body_len, e) : 0;

    if (r == 0 && asprintf(&url, "%s%s", k->config.server, path) < 0) {
        url = NULL;
        r = err_oom(e);
    }
    req.url = url;
    req.body = text;
    if (r == 0) {
        r = http_do(k->http, &req, res, e);
        if (r < 0 && r != -ERR_CANCELED)
            r = err_at(e, err_wrap(e, r, "the cluster"), KUBE_FIELD);
    }
    if (text)
        explicit_bzero(text, req.body_len); /* it may be a Secret */
    return r;
}

static int kube_call_once(struct kube *k, const char *method, const char *path, const json_t *body,
                          struct kube_retry *t, json_t **ret, struct err *e)
{
    struct http_response res = {0};
    _cleanup_json_ json_t *obj = NULL;
    int r = kube_request(k, method, path, body, KUBE_ANSWER_BYTES, &res, e);

    kube_retry_answer(t, r < 0 ? NULL : &res);
    if (r < 0)
        return r;
    if (res.status < 200 || res.status > 299)
        r = kube_refusal(res.status, res.body.data, res.body.len, t, e);
    else if (jx_parse_within(res.body.data, res.body.len, KUBE_PARSED_BYTES, &obj, e) < 0)
        r = err_field(e, ERR_UNAVAILABLE, KUBE_FIELD, "the cluster's answer is not JSON");
    http_response_done(&res);
    if (r == 0 && ret)
        *ret = TAKE(obj);
    return r;
}

static int kube_call(struct kube *k, const char *method, const char *path, const json_t *body,
                     json_t **ret, struct err *e)
{
    struct kube_retry t = {0};
    struct err why;
    int r, again;

    do {
        why = (struct err){0};
        r = kube_call_once(k, method, path, body, &t, ret, &why);
        again = kube_retry_pause(k, &t, r, &why);
    } while (again == 1);
    r = again < 0 ? again : r;
    if (r < 0 && e)
        *e = why;
    return r;
}

/* A gateway may answer 200 in place of its cluster. */
static int check_name(const json_t *answer, const char *name, struct err *e)
{
    return str_eq(kube_text(answer, "metadata", "name"), name)
               ? 0
               : err_field(e, ERR_UNAVAILABLE, KUBE_FIELD,
                           "the cluster answers with something else than '%.100s'", name);
}

int kube_get(struct kube *k, enum kube_kind kind, const char *name, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *found = NULL;
    char path[KUBE_PATH_BYTES];
    int r;

    (void)kube_path(k, kind, name, NULL, path);
    r = kube_call(k, "GET", path, NULL, &found, e);
    if (r == 0)
        r = check_name(found, name, e);
    if (r == 0 && ret)
        *ret = TAKE(found);
    return r;
}

int kube_list(struct kube *k, enum kube_kind kind, const char *query, json_t **ret, struct err *e)
{
    char path[KUBE_PATH_BYTES];

    (void)kube_path(k, kind, NULL, query, path);
    return kube_call(k, "GET", path, NULL, ret, e);
}

int kube_find_listed(struct kube *k, enum kube_kind kind, const char *name, json_t **ret,
                     struct err *e)
{
    _cleanup_json_ json_t *list = NULL;
    char query[KUBE_POD_BYTES + 64];
    struct err why = {0};
    const json_t *items;
    json_t *v;
    size_t i;
    int r;

    (void)snprintf(query, sizeof(query), "fieldSelector=metadata.name%%3D%s", name);
    r = kube_list(k, kind, query, &list, &why);
    if (r == -ERR_NOT_FOUND) /* it would be taken for an answer about the box */
        return err_set(e, ERR_UNAVAILABLE, "the cluster does not list: %.400s", why.message);
    if (r < 0) {
        if (e)
            *e = why;
        return r;
    }
    items = json_object_get(list, "items");
    if (!json_is_array(items))
        return err_set(e, ERR_DATA_LOSS, "the cluster's list of objects is none");
    json_array_foreach (items, i, v)
        if (str_eq(kube_text(v, "metadata", "name"), name)) {
            *ret = json_incref(v);
            return 1;
        }
    return 0;
}

int kube_create(struct kube *k, enum kube_kind kind, const json_t *body, bool is_trial,
                json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *made = NULL;
    char path[KUBE_PATH_BYTES];
    int r;

    (void)kube_path(k, kind, NULL, is_trial ? "dryRun=All" : NULL, path);
    r = kube_call(k, "POST", path, body, &made, e);
    if (r == 0)
        r = check_name(made, kube_text(body, "metadata", "name"), e);
    if (r < 0)
        return r;
    if (ret)
        *ret = TAKE(made);
    return 0;
}

int kube_replace(struct kube *k, enum kube_kind kind, const char *name, const json_t *body,
                 json_t **ret, struct err *e)
{
    char path[KUBE_PATH_BYTES];

    (void)kube_path(k, kind, name, NULL, path);
    return kube_call(k, "PUT", path, body, ret, e);
}

/*
 * Repeats the call while it is refused for another reason than the object's uid: a writer was faster, or a gateway does
 * not reach the cluster. The message of a 409 is no interface, and a 404 may be the gateway's: the list tells.
 */
static int call_on_uid(struct kube *k, const char *method, enum kube_kind kind, const char *name,
                       const char *uid, const json_t *body, struct err *e)
{
    struct kube_retry t = {0};
    char path[KUBE_PATH_BYTES];
    struct err why, told;
    int r, seen, again = 0;

    (void)kube_path(k, kind, name, NULL, path);
    do {
        _cleanup_json_ json_t *now = NULL;

        why = told = (struct err){0};
        r = kube_call(k, method, path, body, NULL, &why);
        if (r == 0)
            return 0;
        if (r != -ERR_NOT_FOUND && r != -ERR_ABORTED)
            break;
        seen = kube_find_listed(k, kind, name, &now, &told);
        if (seen == 0 || (seen == 1 && !str_eq(kube_text(now, "metadata", "uid"), uid)))
            return 0;
        if (seen < 0) {
            why = told;
            r = seen;
            break;
        }
        if (r == -ERR_NOT_FOUND)
            r = err_set(&why, ERR_UNAVAILABLE, "the cluster does not find '%s', and lists it",
                        name);
        t.is_passing = true;
        again = kube_retry_pause(k, &t, r, &why);
        r = again < 0 ? again : r;
    } while (again == 1);
    if (e)
        *e = why;
    return r;
}

int kube_delete(struct kube *k, enum kube_kind kind, const char *name, const char *uid, int grace_s,
                struct err *e)
{
    _cleanup_json_ json_t *body = json_pack("{s:s, s:s, s:{s:s}}", "kind", "DeleteOptions",
                                            "apiVersion", "v1", "preconditions", "uid", uid);

    if (!body)
        return err_oom(e);
    if (grace_s >= 0)
        (void)json_object_set_new(body, "gracePeriodSeconds", json_integer(grace_s));
    return call_on_uid(k, "DELETE", kind, name, uid, body, e);
}

int kube_delete_tree(struct kube *k, enum kube_kind kind, const char *name, const char *uid,
                     struct err *e)
{
    _cleanup_json_ json_t *body =
        json_pack("{s:s, s:s, s:s, s:{s:s}}", "kind", "DeleteOptions", "apiVersion", "v1",
                  "propagationPolicy", "Foreground", "preconditions", "uid", uid);

    return body ? call_on_uid(k, "DELETE", kind, name, uid, body, e) : err_oom(e);
}

int kube_patch(struct kube *k, enum kube_kind kind, const char *name, const char *uid,
               const json_t *body, struct err *e)
{
    return body ? call_on_uid(k, "PATCH", kind, name, uid, body, e) : err_oom(e);
}

static bool has_named(const json_t *list, const char *name)
{
    const json_t *v;
    size_t i;

    json_array_foreach (list, i, v)
        if (str_eq(kube_text(v, "name"), name))
            return true;
    return false;
}

/* First the list of all groups, which every API server has. */
int kube_serves(struct kube *k, enum kube_kind kind, struct err *e)
{
    _cleanup_json_ json_t *groups = NULL, *version = NULL;
    const char *prefix = kube_kinds[kind].group, *group = prefix + strlen("/apis/");
    const json_t *v;
    char wanted[128];
    size_t i;
    int r;

    (void)snprintf(wanted, sizeof(wanted), "%s", group);
    wanted[strcspn(wanted, "/")] = '\0';
    r = kube_call(k, "GET", "/apis", NULL, &groups, e);
    if (r < 0)
        return r;
    if (!json_is_array(json_object_get(groups, "groups")))
        return err_set(e, ERR_DATA_LOSS, "the cluster's list of its groups is none");
    json_array_foreach (json_object_get(groups, "groups"), i, v) {
        const json_t *w;
        size_t j;

        json_array_foreach (json_object_get(v, "versions"), j, w)
            if (str_eq(kube_text(v, "name"), wanted) &&
                str_eq(kube_text(w, "groupVersion"), group)) {
                r = kube_call(k, "GET", prefix, NULL, &version, e);
                return r < 0 ? r
                             : has_named(json_object_get(version, "resources"),
                                         kube_kinds[kind].plural);
            }
    }
    return 0;
}

int kube_logs(struct kube *k, const char *pod, const char *container, char **ret, size_t *ret_len,
              struct err *e)
{
    struct http_response res = {0};
    char path[KUBE_PATH_BYTES], name[KUBE_POD_BYTES + 8], query[128];
    int r;

    (void)snprintf(name, sizeof(name), "%s/log", pod);
    (void)snprintf(query, sizeof(query), "container=%s&tailLines=1000&limitBytes=250000",
                   container);
    (void)kube_path(k, KUBE_PODS, name, query, path);
    r = kube_request(k, "GET", path, NULL, KUBE_LOG_BYTES, &res, e);
    if (r == 0 && res.status != 200)
        r = kube_refusal(res.status, res.body.data, res.body.len, &(struct kube_retry){0}, e);
    if (r == 0)
        r = buf_add(&res.body, "", 1, e);
    if (r == 0) {
        *ret_len = res.body.len - 1;
        *ret = buf_take(&res.body);
    }
    http_response_done(&res);
    return r;
}

int kube_version(struct kube *k, json_t **ret, struct err *e)
{
    return kube_call(k, "GET", "/version", NULL, ret, e);
}

/* ---- WebSockets ---- */

static int kube_upgrade(struct kube *k, const char *path, const char *protocol, bool is_patient,
                        int *ret_status, int *ret_fd, struct err *e)
{
    char key[64], protocol_line[96];
    /* A watch is refused without an origin. */
    const char *headers[] = {"Upgrade: websocket",
                             "Sec-WebSocket-Version: 13",
                             "Origin: http://localhost",
                             key,
                             NULL,
                             NULL,
                             NULL};
    struct kube_retry t = {0};
    struct http_request req = {.method = "GET",
                               .headers = headers,
                               .unix_socket = k->socket,
                               .deadline_mono_ms = k->deadline_mono_ms,
                               .ret_status = &t.status};
    _cleanup_free_ char *url = NULL;
    unsigned char raw[16];
    struct err why;
    size_t n;
    int r = io_random(raw, sizeof(raw), e), again;

    if (r < 0)
        return r;
    n = (size_t)snprintf(key, sizeof(key), "Sec-WebSocket-Key: ");
    b64_encode(raw, sizeof(raw), key + n);
    key[n + B64_LEN(sizeof(raw))] = '\0';
    n = 4;
    if (protocol) {
        (void)snprintf(protocol_line, sizeof(protocol_line), "Sec-WebSocket-Protocol: %.60s",
                       protocol);
        headers[n++] = protocol_line;
    }
    headers[n] = k->config.bearer;
    if (asprintf(&url, "%s%s", k->config.server, path) < 0) {
        url = NULL;
        return err_oom(e);
    }
    req.url = url;
    do {
        why = (struct err){0};
        t.status = 0;
        r = http_upgrade(k->http, &req, ret_fd, &why);
        /* 500: the pod's node refuses. */
        again = is_patient && t.status != 500 ? kube_retry_pause(k, &t, r, &why) : 0;
    } while (again == 1);
    if (ret_status)
        *ret_status = t.status;
    r = again < 0 ? again : r;
    if (r < 0 && e)
        *e = why;
    return r < 0 && r != -ERR_CANCELED ? err_wrap(e, r, "the cluster") : r;
}

int kube_watch_socket(struct kube *k, enum kube_kind kind, const char *name, const char *version,
                      int *ret_status, int *ret_fd, struct err *e)
{
    char path[KUBE_PATH_BYTES], query[512];

    if (!*version || strspn(version, "0123456789") != strlen(version))
        return err_set(e, ERR_DATA_LOSS, "the object has no version that can be watched from");
    (void)snprintf(query, sizeof(query),
                   "watch=1&allowWatchBookmarks=true&timeoutSeconds=%d&resourceVersion=%.32s"
                   "&fieldSelector=metadata.name%%3D%.253s",
                   WATCH_S, version, name);
    (void)kube_path(k, kind, NULL, query, path);
    return kube_upgrade(k, path, NULL, false, ret_status, ret_fd, e);
}

int kube_websocket(struct kube *k, const char *pod, const char *call, const char *protocol,
                   int *ret_fd, struct err *e)
{
    char path[KUBE_PATH_BYTES], name[KUBE_POD_BYTES + KUBE_CALL_BYTES];

    (void)snprintf(name, sizeof(name), "%s/%s", pod, call);
    (void)kube_path(k, KUBE_PODS, name, NULL, path);
    return kube_upgrade(k, path, protocol, true, NULL, ret_fd, e);
}
