/* sandboxd: the row of agent-sandbox's runtime API: routes, errors, metadata. */
#include "dialect/sandboxd/sandboxd.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "common/wire/wire.h"
#include "http/respond.h"

#define METADATA_PREFIX "SANDBOX_"

int sandboxd_path(const char *path, const char **ret, struct err *e)
{
    int depth = 0;

    path += strspn(path, "/");
    for (const char *p = path; *p && depth >= 0; p += strspn(p, "/")) {
        size_t n = strcspn(p, "/");

        if (n == 2 && p[0] == '.' && p[1] == '.')
            depth--;
        else if (n != 1 || p[0] != '.')
            depth++;
        p += n;
    }
    if (depth < 0)
        return err_field(e, ERR_DENIED, "path", "the path leads out of the sandbox's directory");
    *ret = *path ? path : ".";
    return 0;
}

/* ---- health, metadata ---- */

static int root_finish(struct request *q, struct err *e)
{
    _cleanup_json_ json_t *body =
        json_pack("{s:s, s:s}", "status", "ok", "message", "the guest agent answers");

    return body ? respond_json(q, HTTP_OK, body, e) : err_oom(e);
}

static const struct request_ops root_ops = {.finish = root_finish};

/* Programs in the box may ask: a variable that sounds like a secret is left out. */
static bool is_secret(const char *name, size_t len)
{
    static const char *const words[] = {"TOKEN", "SECRET", "PASSW", "CRED",    "KEY",
                                        "AUTH",  "BEARER", "CERT",  "PRIVATE", "SIGN"};

    for (size_t i = 0; i < N_ELEMENTS(words); i++)
        for (size_t at = 0, n = strlen(words[i]); at + n <= len; at++)
            if (strncasecmp(name + at, words[i], n) == 0)
                return true;
    return false;
}

/* The variables that the container was given: the agent's environment does not change. */
static int metadata_finish(struct request *q, struct err *e)
{
    _cleanup_json_ json_t *env = json_object();
    _cleanup_json_ json_t *body = NULL;

    for (char **v = environ; env && *v; v++) {
        size_t len = strcspn(*v, "=");
        _cleanup_free_ char *name = strndup(*v, len);

        if (!name)
            return err_oom(e);
        if (str_has_prefix(name, METADATA_PREFIX) && (*v)[len] && str_is_utf8(*v, strlen(*v)) &&
            !is_secret(name, len) && json_object_set_new(env, name, json_string(*v + len + 1)) < 0)
            return err_oom(e);
    }
    body = env ? json_pack("{s:O}", "env", env) : NULL;
    return body ? respond_json(q, HTTP_OK, body, e) : err_oom(e);
}

static const struct request_ops metadata_ops = {.finish = metadata_finish};

/* ---- errors ---- */

/* The message is all that the client's runtime has. */
static int sandboxd_write_error(const struct request *q, const struct err *error,
                                struct error_reply *ret, struct err *e)
{
    _cleanup_json_ json_t *body =
        json_pack("{s:s, s:s}", "message", error->message, "code", err_wire_name((int)error->code));

    (void)q;
    ret->type = WIRE_TYPE_JSON;
    ret->challenge = "Bearer realm=\"bellhop\"";
    return body ? jx_dump(body, &ret->text, &ret->len, e) : err_oom(e);
}

/* ---- the row ---- */

static const struct route execute_route = {
    .name = "sandboxd_execute",
    .path = "/execute",
    .verbs = VERB_POST,
    .max_body_bytes = WIRE_JSON_MAX_BYTES,
    .ops = &call_ops,
};

static const struct route sandboxd_routes[] = {
    {
        .name = "sandboxd_health",
        .path = "/",
        .verbs = VERB_GET | VERB_HEAD,
        .flags = ROUTE_OPEN | ROUTE_RESERVE | ROUTE_QUIET,
        .ops = &root_ops,
    },
    {
        .name = "sandboxd_metadata",
        .path = "/v1/metadata",
        .verbs = VERB_GET | VERB_HEAD,
        .flags = ROUTE_QUIET,
        .ops = &metadata_ops,
    },
    {
        .name = "sandboxd_upload",
        .path = "/upload",
        .verbs = VERB_POST,
        .flags = ROUTE_CHANGES,
        .max_body_bytes = UINT64_MAX,
        .ops = &sandboxd_upload_ops,
    },
    {
        .name = "sandboxd_download",
        .path = "/download/",
        .verbs = VERB_GET | VERB_HEAD,
        .flags = ROUTE_REST,
        .ops = &sandboxd_download_ops,
    },
    {
        .name = "sandboxd_list",
        .path = "/list/",
        .verbs = VERB_GET,
        .flags = ROUTE_REST,
        .ops = &sandboxd_list_ops,
    },
    {
        .name = "sandboxd_exists",
        .path = "/exists/",
        .verbs = VERB_GET,
        .flags = ROUTE_REST,
        .ops = &sandboxd_exists_ops,
    },
};

/* The path of a method is "/SERVICE/NAME": of one without a service it is the name alone. */
static const struct rpc_method sandboxd_methods[] = {
    {
        .service = "",
        .name = "execute",
        .kind = RPC_SOURCE,
        .flags = RPC_BLOCKS | RPC_SINGLE,
        .source = sandboxd_execute,
    },
};

static int sandboxd_choose_codec(struct request *q, const struct rpc_method *m,
                                 const struct codec **ret, struct err *e)
{
    static const struct codec json = {.reply_type = WIRE_TYPE_JSON};

    (void)q;
    (void)m;
    (void)e;
    *ret = &json;
    return 0;
}

const struct dialect sandboxd_dialect = {
    .name = "sandboxd",
    .method_prefix = "",
    .methods = sandboxd_methods,
    .n_methods = N_ELEMENTS(sandboxd_methods),
    .call_route = &execute_route,
    .routes = sandboxd_routes,
    .n_routes = N_ELEMENTS(sandboxd_routes),
    .choose_codec = sandboxd_choose_codec,
    .write_error = sandboxd_write_error,
    .list_directory = sandboxd_list_directory,
};
