/* System.Resync: clock, random numbers and generation after a restore or a copy. */
#include <string.h>

#include "common/b64.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "agent.h"
#include "api/rpc.h"
#include "http/server.h"
#include "system/resync.h"

#define GENERATION_MAX ((uint64_t)1 << 53) /* every JSON parser keeps such integers exact */
#define NOW_MAX_MS (253402300799000LL)     /* the end of the year 9999 */

struct resync_params {
    int64_t now_ms;
    int64_t tolerance_ms;
    struct jx_bytes entropy;
    uint64_t generation;
};

static const struct jx_field resync_fields[] = {
    JX(struct resync_params, now_ms, jx_i64, 0),
    JX(struct resync_params, tolerance_ms, jx_i64, 0),
    JX(struct resync_params, entropy, jx_bytes, 0),
    JX(struct resync_params, generation, jx_u64, 0),
    {0},
};

static int check_request(const struct resync_params *p, uint64_t generation, struct err *e)
{
    if (p->now_ms < 0 || p->now_ms > NOW_MAX_MS)
        return err_field(e, ERR_INVALID, "now_ms",
                         "field 'now_ms' must be milliseconds since 1970, up to the year 9999");
    if (p->tolerance_ms < -1)
        return err_field(e, ERR_INVALID, "tolerance_ms",
                         "field 'tolerance_ms' must be at least -1");
    if (p->entropy.data &&
        (p->entropy.len < RESYNC_ENTROPY_MIN || p->entropy.len > RESYNC_ENTROPY_MAX))
        return err_field(e, ERR_INVALID, "entropy", "field 'entropy' must have from %d to %d bytes",
                         RESYNC_ENTROPY_MIN, RESYNC_ENTROPY_MAX);
    if (p->generation && (p->generation <= generation || p->generation > GENERATION_MAX))
        return err_field(e, ERR_PRECONDITION, "generation",
                         "the generation is %llu already: it only grows",
                         (unsigned long long)generation);
    return 0;
}

static int run_resync(const struct resync_params *p, struct agent *a, json_t **ret, struct err *e)
{
    struct resync_clock clock = {0};
    struct resync_entropy random = {0};
    uint64_t before = a->generation;
    unsigned closed = 0;

    if (p->now_ms)
        resync_clock(p->now_ms, p->tolerance_ms, &clock);
    if (p->entropy.data)
        resync_entropy(p->entropy.data, p->entropy.len, &random);
    a->generation = p->generation ? p->generation : before + 1;
    if (a->server)
        closed = server_drop_idle(a->server);
    *ret = json_pack("{s:{s:s, s:o, s:I}, s:s, s:s, s:I, s:I, s:I}", "clock", "result",
                     resync_name(clock.result), "offset_ms",
                     p->now_ms ? json_integer(clock.offset_ms) : json_null(), "now_ms",
                     (json_int_t)clock_real_ms(), "entropy", resync_name(random.entropy), "reseed",
                     resync_name(random.reseed), "generation", (json_int_t)a->generation,
                     "previous_generation", (json_int_t)before, "connections_closed",
                     (json_int_t)closed);
    return *ret ? 0 : err_oom(e);
}

/* {"now_ms":..., "entropy":{"b64":"..."}, "generation":7}; every field may be absent. */
int rpc_system_resync(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct resync_params p = {.tolerance_ms = RESYNC_TOLERANCE_MS};
    int r;

    r = jx_decode(call->params, resync_fields, &p, e);
    if (r == 0)
        r = check_request(&p, call->agent->generation, e);
    if (r == 0)
        r = run_resync(&p, call->agent, ret, e);
    if (p.entropy.data)
        explicit_bzero(p.entropy.data, p.entropy.len);
    jx_bytes_done(&p.entropy);
    return r;
}
