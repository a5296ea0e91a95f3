#include "lib/box/ports.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "lib/provider/limits.h"
#include "lib/box/control.h"
#include "lib/box/remote.h"

#define FORWARD_MS 5000
#define EXTEND_MAX_MS (365LL * 24 * 3600 * 1000)

int ports_forward(struct bh_box *box, uint16_t port, uint16_t *ret_host_port, struct err *e)
{
    _cleanup_json_ json_t *reply = NULL;
    int r = control_call_take(box->ctx, box->row.id,
                              json_pack("{s:s, s:i}", "op", "forward", "port", (int)port),
                              FORWARD_MS, &reply, e);

    if (r == 0 && ret_host_port)
        *ret_host_port = (uint16_t)json_integer_value(json_object_get(reply, "host_port"));
    return r;
}

int bh_get_url(struct bh_box *box, uint16_t port, char **ret_url, struct bh_error *err)
{
    struct err e = {0};
    uint16_t host_port = 0;
    char *url = NULL;
    int r;

    if (port == 0)
        return ctx_fail(err, err_field(&e, ERR_INVALID, "port", "port must be from 1 to 65535"),
                        &e);
    if (box->remote)
        return ctx_fail(err, remote_get_url(box, port, ret_url, &e), &e);
    r = box_wake_own(box, &e);
    if (r == 0)
        r = ports_forward(box, port, &host_port, &e);
    if (r == 0 && asprintf(&url, "http://127.0.0.1:%u", (unsigned)host_port) < 0)
        r = err_oom(&e);
    if (r == 0)
        *ret_url = url;
    return ctx_fail(err, r, &e);
}

int bh_extend(struct bh_box *box, int64_t duration_ms, int64_t *ret_deadline_ms,
              struct bh_error *err)
{
    _cleanup_json_ json_t *reply = NULL;
    struct err e = {0};
    int r;

    if (duration_ms <= 0 || duration_ms > EXTEND_MAX_MS)
        return ctx_fail(
            err, err_field(&e, ERR_INVALID, "for", "for must be more than 0 and at most a year"),
            &e);
    if (box->remote) {
        r = remote_step_take(box, "keep", json_pack("{s:I}", "for_ms", (json_int_t)duration_ms), 0,
                             &e);
        if (r == 0 && ret_deadline_ms)
            *ret_deadline_ms = box->row.deadline_ms;
        return ctx_fail(err, r, &e);
    }
    r = limits_check_time(box->ctx->limits, "for", duration_ms, &e);
    if (r == 0)
        r = box_wake_own(box, &e);
    if (r == 0)
        r = control_call_take(box->ctx, box->row.id,
                              json_pack("{s:s, s:I, s:b}", "op", "extend", "until_ms",
                                        (json_int_t)(clock_real_ms() + duration_ms), "awake", 1),
                              FORWARD_MS, &reply, &e);
    if (r == 0 && ret_deadline_ms)
        *ret_deadline_ms = json_integer_value(json_object_get(reply, "deadline_ms"));
    return ctx_fail(err, r, &e);
}

int bh_hold(struct bh_box *box, int *ret_fd, struct bh_error *err)
{
    bool is_attached = box->provider && box->provider->is_elsewhere;
    struct err e = {0};
    int r = is_attached ? box_wake(box, &e) : box_wake_own(box, &e);

    if (r == 0)
        r = box_hold(box, ret_fd, &e);
    if (r == 0 && is_attached) { /* nobody here ends it: any descriptor will do */
        *ret_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        r = *ret_fd < 0 ? err_sys(&e, errno, "open '/dev/null'") : 0;
    }
    return ctx_fail(err, r, &e);
}
