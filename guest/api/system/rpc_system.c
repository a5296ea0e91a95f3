/* System.Info and System.Lease: facts about the agent, and the time at which the box ends. */
#include <inttypes.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/jsonx.h"
#include "common/wire/wire.h"
#include "fs/root.h"
#include "agent.h"
#include "api/rpc.h"
#include "system/info.h"
#include "system/lease.h"
#include "system/metrics.h"

static const struct jx_field no_fields[] = {{0}};

/* Features that a client may rely on, by name. The list only grows. */
static json_t *new_features(const struct agent *a)
{
    static const char *const always[] = {"exec",   "pty",     "files", "archive", "glob",
                                         "grep",   "ndjson",  "sse",   "connect", "proxy",
                                         "tunnel", "metrics", "ready", "ports",   "activity",
                                         "hold",   "resync",  "env",   NULL};
    json_t *list = json_array();

    for (size_t i = 0; list && always[i]; i++)
        (void)json_array_append_new(list, json_string(always[i]));
    if (list && a->lease)
        (void)json_array_append_new(list, json_string("lease"));
    return list;
}

int rpc_system_info(const struct rpc_call *call, json_t **ret, struct err *e)
{
    const struct agent *a = call->agent;
    char started[CLOCK_TEXT_BYTES];
    char libraries[256];
    int64_t uptime_ms = clock_mono_ms() - a->started_mono_ms;
    struct info i;
    json_t *v;
    int r;

    r = jx_decode(call->params, no_fields, NULL, e);
    if (r < 0)
        return r;
    info_get(&i);
    clock_text(clock_real_ms() - uptime_ms, started);
    v = json_pack("{s:s, s:s, s:i, s:o, s:i, s:i, s:I, s:s, s:I}", "version", i.version, "commit",
                  i.commit, "protocol", WIRE_PROTOCOL, "features", new_features(a), "pid",
                  (int)getpid(), "uid", (int)geteuid(), "uptime_ms", (json_int_t)uptime_ms,
                  "started_at", started, "idle_ms", (json_int_t)metrics_idle_ms());
    if (!v)
        return err_oom(e);
    (void)json_object_set_new(v, "user",
                              a->default_user ? json_string(a->default_user) : json_null());
    (void)json_object_set_new(v, "workdir", a->workdir ? jx_new_path(a->workdir) : json_null());
    (void)json_object_set_new(v, "root", jx_new_path(fs_root_path(a->root)));
    (void)json_object_set_new(v, "read_only", json_boolean(a->is_read_only));
    (void)json_object_set_new(v, "init", json_boolean(a->lease != NULL));
    (void)json_object_set_new(v, "generation", json_integer((json_int_t)a->generation));
    (void)json_object_set_new(v, "jit", json_boolean(i.has_jit));
    (void)json_object_set_new(v, "cgroup", json_string(i.cgroup));
    (void)json_object_set_new(
        v, "libraries", json_string(info_libraries(a->http_library, libraries, sizeof(libraries))));
    (void)json_object_set_new(v, "platform",
                              json_pack("{s:s, s:s, s:s, s:s, s:i, s:I}", "os", i.kernel.sysname,
                                        "kernel", i.kernel.release, "arch", i.kernel.machine,
                                        "hostname", i.kernel.nodename, "cpus", (int)i.cpus,
                                        "memory_bytes", (json_int_t)i.memory_bytes));
    *ret = v;
    return 0;
}

struct lease_params {
    json_t *expires_in_ms;
    bool force;
};

static const struct jx_field lease_fields[] = {
    JX(struct lease_params, expires_in_ms, jx_any, 0),
    JX(struct lease_params, force, jx_bool, 0),
    {0},
};

static int set_lease(struct lease *l, const struct lease_params *p, struct err *e)
{
    int64_t ms = LEASE_NONE;

    if (!json_is_null(p->expires_in_ms)) {
        if (!json_is_integer(p->expires_in_ms) || json_integer_value(p->expires_in_ms) < 0)
            return err_field(e, ERR_INVALID, "expires_in_ms",
                             "field 'expires_in_ms' must be a whole number that is not negative");
        ms = json_integer_value(p->expires_in_ms);
    }
    if (!l)
        return err_field(e, ERR_PRECONDITION, "expires_in_ms",
                         "the agent is not the box's init: it can't end the box");
    return lease_set(l, ms, p->force, e);
}

/* {} reports; {"expires_in_ms":N} extends (null: no end); with "force" it also shortens. */
int rpc_system_lease(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct lease *l = call->agent->lease;
    struct lease_params p = {0};
    int64_t left_ms;
    int r;

    r = jx_decode(call->params, lease_fields, &p, e);
    if (r == 0 && p.expires_in_ms)
        r = set_lease(l, &p, e);
    if (r < 0)
        return r;
    left_ms = l ? lease_left_ms(l) : LEASE_NONE;
    *ret = left_ms == LEASE_NONE
               ? json_pack("{s:n, s:I}", "expires_in_ms", "idle_ms", (json_int_t)metrics_idle_ms())
               : json_pack("{s:I, s:I}", "expires_in_ms", (json_int_t)left_ms, "idle_ms",
                           (json_int_t)metrics_idle_ms());
    return *ret ? 0 : err_oom(e);
}
