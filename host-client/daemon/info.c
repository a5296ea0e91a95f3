/* info: what the daemon is. */
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "daemon/answers.h"
#include "daemon/daemon.h"
#include "http/server.h"

struct providers {
    json_t *list;
    bool failed;
};

static void add_provider(void *arg, const struct bh_provider_info *i)
{
    struct providers *p = arg;

    p->failed |=
        json_array_append_new(p->list, json_pack("{s:s, s:s, s:b, s:s, s:s}", "name", i->name,
                                                 "summary", i->summary, "usable", i->usable,
                                                 "runtime", i->runtime, "why", i->why)) < 0;
}

/* The library probes each of them, and says of each whether a box can be made with it now. */
int providers_json(struct job *j, json_t **ret, struct err *e)
{
    struct providers p = {.list = json_array()};
    struct bh_error error = {0};
    int r =
        p.list ? job_fail(e, bh_providers(j->ctx, add_provider, &p, &error), &error) : err_oom(e);

    if (r == 0 && p.failed)
        r = err_oom(e);
    if (r < 0)
        json_decref(p.list);
    else
        *ret = p.list;
    return r;
}

int answer_providers(struct job *j, struct err *e)
{
    json_t *list = NULL;
    int r = providers_json(j, &list, e);

    return r < 0 ? r : job_reply_take(j, json_pack("{s:o}", "providers", list), e);
}

int answer_info(struct job *j, struct err *e)
{
    json_t *list = NULL;
    int r = providers_json(j, &list, e);

    if (r < 0)
        return r;
    return job_reply_take(
        j,
        json_pack("{s:s, s:i, s:I, s:I, s:s, s:o}", "version", bh_version(), "pid", (int)getpid(),
                  "started_ms", (json_int_t)j->daemon->started_ms, "now_ms",
                  (json_int_t)clock_real_ms(), "http", server_library(), "providers", list),
        e);
}
