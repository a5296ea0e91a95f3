#include "dialect/e2b/headers.h"

#include "common/str.h"
#include "dialect/e2b/who.h"
#include "http/deadline.h"

#define KEEPALIVE_MAX_S 86400
/*
 * E2B's Python SDK 1.0 to 1.4, which fails on unknown fields. 1.5, which ignores them, sends the same
 * and gets the same, as from envd.
 */
#define E2B_LEGACY_AGENT "connect-python"

int e2b_read_headers(struct request *q, struct rpc_call *call, char **ret_user, struct err *e)
{
    const char *timeout = request_header(q, "Connect-Timeout-Ms");
    const char *keepalive = request_header(q, "Keepalive-Ping-Interval");
    const char *agent = request_header(q, "User-Agent");
    uint64_t ms = 0, s = 0;
    int r;

    *ret_user = who_basic(request_header(q, "Authorization"));
    call->user = *ret_user;
    call->wants_replay = request_header(q, E2B_REPLAY_HEADER) != NULL;
    call->is_legacy = agent && str_eq(agent, E2B_LEGACY_AGENT);
    if (timeout && *timeout) {
        r = str_parse_u64(timeout, 0, DEADLINE_MAX_MS, &ms, e);
        if (r < 0)
            return err_at(e, r, "Connect-Timeout-Ms");
        call->timeout_ms = (int64_t)ms;
    }
    /* What is no number means the default, as it does there. */
    if (keepalive && str_parse_u64(keepalive, 1, KEEPALIVE_MAX_S, &s, NULL) == 0)
        call->keepalive_ms = (int64_t)s * 1000;
    return 0;
}
