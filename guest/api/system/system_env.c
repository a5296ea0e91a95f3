/* System.Env: the environment of all later commands. */
#include <string.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "proc/environ.h"
#include "agent.h"
#include "api/exec/exec_json.h"
#include "api/rpc.h"

struct env_params {
    char **set;
    char **unset;
    bool replace;
};

static const struct jx_field env_fields[] = {
    JX(struct env_params, set, exec_jx_env, 0),
    JX(struct env_params, unset, jx_strv, 0),
    JX(struct env_params, replace, jx_bool, 0),
    {0},
};

static int new_env(struct registry *reg, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *v = json_object();
    _cleanup_strv_ char **env = NULL;
    int r;

    r = v ? environ_copy(reg, &env, e) : err_oom(e);
    for (char **at = env; r == 0 && at && *at; at++) {
        char *value = *at + strcspn(*at, "=");

        *value++ = '\0';
        if (json_object_set_new(v, *at, jx_new_path(value)) < 0)
            r = err_oom(e);
    }
    if (r == 0)
        *ret = json_pack("{s:O}", "env", v);
    return r == 0 && !*ret ? err_oom(e) : r;
}

/* {} reports; {"set":{"A":"b"},"unset":["C"],"replace":true} changes. */
int rpc_system_env(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct env_params p = {0};
    int r;

    r = jx_decode(call->params, env_fields, &p, e);
    if (r == 0 && (p.set || p.unset || p.replace)) {
        r = environ_change(call->agent->registry, p.replace, p.unset, p.set, e);
        if (r < 0)
            r = err_at(e, r, "set");
    }
    if (r == 0)
        r = new_env(call->agent->registry, ret, e);
    strv_free(p.set);
    strv_free(p.unset);
    return r;
}
