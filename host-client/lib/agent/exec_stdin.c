/*
 * exec_stdin: the input of a command, written by offset: bytes that the agent accepted before a
 * connection broke are not written twice.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "lib/agent/exec.h"
#include "lib/util/socket.h"

struct exec_pump {
    struct bh_exec *exec;
    struct client *client; /* canceled by stop_fd */
    pthread_t thread;
    bool is_running;
    int fd;
    int stop_fd;
};

/* If another client may have written, the offset is unknown: the first piece goes without one, so
 * it cannot be repeated, and the reply tells the offset. */
static int write_piece(struct bh_exec *exec, struct client *c, const char *data, size_t len,
                       int64_t deadline_mono_ms, int cancel_fd, struct err *e)
{
    _cleanup_json_ json_t *params =
        json_pack("{s:s, s:o}", "id", exec->id, "data", jx_new_bytes(data, len));
    int r = params ? -ERR_UNAVAILABLE : err_oom(e);

    if (params && exec->knows_written)
        (void)json_object_set_new(params, "offset", json_integer((json_int_t)exec->written));
    if (params && deadline_mono_ms > 0) {
        int left = clock_until_ms(deadline_mono_ms);

        (void)json_object_set_new(params, "timeout_ms", json_integer(left > 0 ? left : 1));
    }
    for (unsigned i = 0; params && i < EXEC_RETRIES; i++) {
        _cleanup_json_ json_t *reply = NULL;

        r = client_call(c, RPC_exec_write, params,
                        deadline_mono_ms > 0 ? deadline_mono_ms + EXEC_GRACE_MS : 0, &reply, e);
        if (r == 0) {
            exec->written = (uint64_t)json_integer_value(json_object_get(reply, "offset"));
            exec->knows_written = true;
            return 0;
        }
        if (!exec->knows_written || (r != -ERR_UNAVAILABLE && r != -ERR_DATA_LOSS))
            break;
        if (socket_wait_canceled(cancel_fd, EXEC_RETRY_MS))
            return err_set(e, ERR_CANCELED, "canceled");
    }
    return r;
}

int exec_write(struct bh_exec *exec, struct client *c, const char *data, size_t len,
               int64_t deadline_mono_ms, int cancel_fd, struct err *e)
{
    int r = 0;

    for (size_t done = 0; r == 0 && done < len;) {
        size_t n = len - done < EXEC_PIECE_BYTES ? len - done : EXEC_PIECE_BYTES;

        r = write_piece(exec, c, data + done, n, deadline_mono_ms, cancel_fd, e);
        done += n;
    }
    return r;
}

static void *pump_main(void *arg)
{
    struct exec_pump *p = arg;
    _cleanup_free_ char *data = malloc(EXEC_PIECE_BYTES);

    while (data && socket_wait(p->fd, false, p->stop_fd, 0, NULL) == 0) {
        _cleanup_json_ json_t *params = NULL;
        ssize_t n = read(p->fd, data, EXEC_PIECE_BYTES);

        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n > 0) {
            /* If the command takes no more input, its end tells why. */
            if (exec_write(p->exec, p->client, data, (size_t)n, 0, p->stop_fd, NULL) < 0)
                break;
            continue;
        }
        params = json_pack("{s:s}", "id", p->exec->id);
        (void)client_call(p->client, RPC_exec_close_stdin, params, clock_mono_ms() + EXEC_CALL_MS,
                          NULL, NULL);
        break;
    }
    return NULL;
}

int exec_pump_start(struct bh_exec *exec, int fd, struct exec_pump **ret, struct err *e)
{
    struct exec_pump *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return err_oom(e);
    p->exec = exec;
    p->fd = fd;
    p->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = p->stop_fd < 0 ? err_sys(e, errno, "eventfd") : 0;
    if (r == 0)
        r = agent_ops(exec->box)->new_client(exec->box, p->stop_fd, &p->client, e);
    if (r == 0) {
        int failed = pthread_create(&p->thread, NULL, pump_main, p);

        p->is_running = failed == 0;
        r = failed ? err_sys(e, failed, "start a thread") : 0;
    }
    if (r < 0) {
        (void)exec_pump_stop(p);
        return r;
    }
    *ret = p;
    return 0;
}

struct exec_pump *exec_pump_stop(struct exec_pump *p)
{
    uint64_t one = 1;

    if (!p)
        return NULL;
    if (p->is_running) {
        (void)!write(p->stop_fd, &one, sizeof(one));
        (void)pthread_join(p->thread, NULL);
    }
    (void)client_free(p->client);
    fd_close(p->stop_fd);
    free(p);
    return NULL;
}
