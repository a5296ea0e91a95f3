/* rpc_exec: the Exec methods that answer at once. */
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "common/signals.h"
#include "api/exec/exec_json.h"
#include "api/rpc.h"

/* Decodes the request into params, whose first member is the id, and finds the command. */
static int decode_and_get(const struct rpc_call *call, const struct jx_field *fields, void *params,
                          struct proc **ret, struct err *e)
{
    int r = jx_decode(call->params, fields, params, e);

    if (r < 0)
        return r;
    return registry_get(call->agent->registry, *(const char *const *)params, ret, e);
}

struct id_params {
    const char *id;
};

static const struct jx_field id_fields[] = {
    JX(struct id_params, id, jx_str, JX_REQUIRED),
    {0},
};

/* {"id"}: success. */
static int reply_id(const char *id, json_t **ret, struct err *e)
{
    json_t *obj = json_pack("{s:s}", "id", id);

    if (!obj)
        return err_oom(e);
    *ret = obj;
    return 0;
}

/* ---- Read ---- */

struct read_params {
    const char *id;
    enum proc_stream stream;
    uint64_t offset;
    uint32_t max_bytes;
};

static const struct jx_field read_fields[] = {
    JX(struct read_params, id, jx_str, JX_REQUIRED),
    JX(struct read_params, stream, exec_jx_stream, JX_NULLABLE),
    JX(struct read_params, offset, jx_u64, JX_NULLABLE),
    JX(struct read_params, max_bytes, jx_u32, JX_NULLABLE),
    {0},
};

int rpc_exec_read(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct read_params p = {.max_bytes = EXEC_CHUNK_BYTES};
    _cleanup_proc_ struct proc *proc = NULL;
    _cleanup_free_ char *buf = NULL;
    _cleanup_json_ json_t *obj = NULL;
    struct proc_info info;
    uint64_t held;
    size_t n, max;
    int r;

    r = decode_and_get(call, read_fields, &p, &proc, e);
    if (r < 0)
        return r;
    max = p.max_bytes < EXEC_CHUNK_BYTES ? p.max_bytes : EXEC_CHUNK_BYTES;
    buf = malloc(max + 1);
    if (!buf)
        return err_oom(e);
    proc_get_info(proc, &info); /* before the read: an end found here has all the bytes */
    r = proc_read(proc, NULL, p.stream, p.offset, buf, max, &n, &held, e);
    if (r == -ERR_DATA_LOSS)
        return err_detail_u64(e, r, "first_held", held);
    if (r < 0)
        return r;
    obj = json_pack("{s:s, s:s, s:I, s:I, s:b}", "id", p.id, "stream", exec_stream_name(p.stream),
                    "offset", (json_int_t)p.offset, "next_offset", (json_int_t)(p.offset + n),
                    "eof", info.is_eof[p.stream] && p.offset + n >= info.bytes[p.stream]);
    if (!obj)
        return err_oom(e);
    r = jx_add_bytes(obj, buf, n, e);
    if (r < 0)
        return r;
    *ret = json_incref(obj);
    return 0;
}

/* ---- CloseStdin, Resize, Forget ---- */

int rpc_exec_close_stdin(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_proc_ struct proc *proc = NULL;
    struct id_params p = {0};
    int r;

    r = decode_and_get(call, id_fields, &p, &proc, e);
    if (r == 0)
        r = proc_close_stdin(proc, e);
    return r < 0 ? r : reply_id(p.id, ret, e);
}

struct resize_params {
    const char *id;
    uint32_t cols, rows;
};

static const struct jx_field resize_fields[] = {
    JX(struct resize_params, id, jx_str, JX_REQUIRED),
    JX(struct resize_params, cols, jx_u32, JX_REQUIRED),
    JX(struct resize_params, rows, jx_u32, JX_REQUIRED),
    {0},
};

int rpc_exec_resize(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_proc_ struct proc *proc = NULL;
    struct resize_params p = {0};
    int r;

    r = decode_and_get(call, resize_fields, &p, &proc, e);
    if (r == 0)
        r = proc_resize(proc, p.cols, p.rows, e);
    return r < 0 ? r : reply_id(p.id, ret, e);
}

int rpc_exec_forget(const struct rpc_call *call, json_t **ret, struct err *e)
{
    struct id_params p = {0};
    int r;

    r = jx_decode(call->params, id_fields, &p, e);
    if (r == 0)
        r = registry_forget(call->agent->registry, p.id, e);
    return r < 0 ? r : reply_id(p.id, ret, e);
}

/* ---- Signal ---- */

struct signal_params {
    const char *id;
    int signal;
    bool tree;
};

static int jx_signal(json_t *v, void *out, struct err *e)
{
    int r;

    if (json_is_string(v))
        return signal_parse(json_string_value(v), out, e);
    if (!json_is_integer(v))
        return err_set(e, ERR_INVALID, "must be a signal's name or number");
    r = signal_check(json_integer_value(v), e);
    if (r == 0)
        *(int *)out = (int)json_integer_value(v);
    return r;
}

static const struct jx_field signal_fields[] = {
    JX(struct signal_params, id, jx_str, JX_REQUIRED),
    JX(struct signal_params, signal, jx_signal, JX_REQUIRED),
    JX(struct signal_params, tree, jx_bool, JX_NULLABLE),
    {0},
};

int rpc_exec_signal(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_proc_ struct proc *proc = NULL;
    struct signal_params p = {0};
    int r;

    r = decode_and_get(call, signal_fields, &p, &proc, e);
    if (r == 0)
        r = proc_signal(proc, p.signal, p.tree, e);
    return r < 0 ? r : reply_id(p.id, ret, e);
}

/* ---- Get, List ---- */

struct get_params {
    const char *id;
    bool output;
};

static const struct jx_field get_fields[] = {
    JX(struct get_params, id, jx_str, JX_REQUIRED),
    JX(struct get_params, output, jx_bool, JX_NULLABLE),
    {0},
};

int rpc_exec_get(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *obj = NULL, *result = NULL;
    _cleanup_proc_ struct proc *proc = NULL;
    struct get_params p = {0};
    int r;

    r = decode_and_get(call, get_fields, &p, &proc, e);
    if (r == 0)
        r = exec_new_state(proc, &obj, e);
    if (r < 0)
        return r;
    if (p.output) {
        r = exec_new_result(proc, true, &result, e);
        if (r < 0)
            return r;
        for (size_t s = 0; s < N_PROC_STREAMS; s++) {
            const char *name = exec_stream_name((enum proc_stream)s);

            if (json_object_get(result, name))
                (void)json_object_set(obj, name, json_object_get(result, name));
        }
    }
    *ret = json_incref(obj);
    return 0;
}

static const struct jx_field no_fields[] = {{0}};

int rpc_exec_list(const struct rpc_call *call, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *list = json_array();
    struct proc **all = NULL;
    size_t n = 0;
    int r;

    r = list ? jx_decode(call->params, no_fields, NULL, e) : err_oom(e);
    if (r == 0)
        r = registry_list(call->agent->registry, &all, &n, e);
    for (size_t i = 0; i < n; i++) {
        json_t *obj = NULL;

        if (r == 0)
            r = exec_new_state(all[i], &obj, e);
        if (r == 0 && json_array_append_new(list, obj) < 0)
            r = err_oom(e);
        proc_unref(all[i]);
    }
    free(all);
    if (r < 0)
        return r;
    *ret = json_pack("{s:O}", "commands", list);
    return *ret ? 0 : err_oom(e);
}
