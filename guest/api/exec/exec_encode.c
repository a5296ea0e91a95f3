#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "common/signals.h"
#include "api/exec/exec_json.h"

const char *exec_stream_name(enum proc_stream s)
{
    return s == PROC_STDOUT ? "stdout" : "stderr";
}

int exec_jx_stream(json_t *v, void *out, struct err *e)
{
    const char *s = json_string_value(v);

    if (!str_eq(s, "stdout") && !str_eq(s, "stderr"))
        return err_set(e, ERR_INVALID, "must be \"stdout\" or \"stderr\"");
    *(enum proc_stream *)out = str_eq(s, "stdout") ? PROC_STDOUT : PROC_STDERR;
    return 0;
}

static json_t *new_exit(const struct proc_info *i)
{
    static const char *const trees[] = {
        [TREE_BEST_EFFORT] = "best_effort", [TREE_GONE] = "gone", [TREE_LEFT] = "left"};
    char name[SIGNAL_NAME_BYTES];
    json_t *oom = i->oom == OOM_UNKNOWN ? json_string("unknown") : json_boolean(i->oom == OOM_YES);

    return json_pack("{s:s, s:o, s:o, s:o, s:s}", "reason", proc_reason_name(i->reason), "code",
                     i->code < 0 ? json_null() : json_integer(i->code), "signal",
                     i->signal ? json_string(signal_name(i->signal, name)) : json_null(), "oom",
                     oom, "tree", trees[i->tree]);
}

static json_t *new_count(int64_t n)
{
    return n < 0 ? json_null() : json_integer(n);
}

static json_t *new_usage(const struct proc_usage *u)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "wall_ms", (json_int_t)u->wall_ms,
                     "user_ms", (json_int_t)u->user_ms, "system_ms", (json_int_t)u->system_ms,
                     "max_rss_bytes", (json_int_t)u->max_rss_bytes, "tree_peak_bytes",
                     new_count(u->tree_peak_bytes), "read_bytes", new_count(u->read_bytes),
                     "write_bytes", new_count(u->write_bytes));
}

/* The byte counts of one stream. */
static json_t *new_counts(const struct proc *p, const struct proc_info *i, enum proc_stream s)
{
    json_t *obj = json_pack("{s:I, s:I}", "bytes", (json_int_t)i->bytes[s], "dropped_bytes",
                            (json_int_t)i->dropped[s]);
    struct err why = {0};
    int r = 0;

    if (obj && proc_spec(p)->spill_bytes)
        r = json_object_set_new(obj, "spilled_bytes", json_integer((json_int_t)i->spilled[s]));
    if (obj && r == 0 && i->spill_sys[s]) {
        (void)err_sys(&why, i->spill_sys[s], "spilling output");
        r = json_object_set_new(obj, "spill_error", json_string(why.message));
    }
    if (r < 0) {
        json_decref(obj);
        return NULL;
    }
    return obj;
}

static int set_new(json_t *obj, const char *name, json_t *value, struct err *e)
{
    return json_object_set_new(obj, name, value) < 0 ? err_oom(e) : 0;
}

/* Adds one stream with its bytes: the head, and the tail if bytes between them are missing. */
static int add_output(struct proc *p, const struct proc_info *i, enum proc_stream s, json_t *obj,
                      struct err *e)
{
    _cleanup_(proc_output_done) struct proc_output o = {0};
    json_t *out;
    int r;

    r = proc_copy_output(p, s, &o, e);
    if (r < 0)
        return r;
    out = new_counts(p, i, s);
    r = set_new(obj, exec_stream_name(s), out, e);
    if (r == 0)
        r = jx_add_bytes(out, o.head, o.head_len, e);
    if (r == 0 && o.has_gap)
        r = set_new(out, "tail", jx_new_bytes(o.tail, o.tail_len), e);
    return r;
}

static int add_streams(struct proc *p, const struct proc_info *i, bool has_output, json_t *obj,
                       struct err *e)
{
    size_t n = proc_spec(p)->has_pty ? 1 : N_PROC_STREAMS;
    int r = 0;

    for (size_t s = 0; r == 0 && s < n; s++)
        r = has_output ? add_output(p, i, (enum proc_stream)s, obj, e)
                       : set_new(obj, exec_stream_name((enum proc_stream)s),
                                 new_counts(p, i, (enum proc_stream)s), e);
    return r;
}

int exec_new_result(struct proc *p, bool has_output, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *obj = NULL;
    struct proc_info i;
    int r;

    proc_get_info(p, &i);
    obj = json_pack("{s:s, s:I, s:o, s:o}", "id", proc_id(p), "pid", (json_int_t)i.pid, "exit",
                    new_exit(&i), "usage", new_usage(&i.usage));
    if (!obj)
        return err_oom(e);
    r = add_streams(p, &i, has_output, obj, e);
    if (r < 0)
        return r;
    *ret = json_incref(obj);
    return 0;
}

/* Adds the beginning of the script and the length of the whole. */
static int add_script(const struct proc_summary *w, json_t *obj, struct err *e)
{
    json_t *script = jx_new_bytes(w->script, w->script_len);

    if (!script)
        return err_oom(e);
    if (set_new(script, "bytes", json_integer((json_int_t)w->script_bytes), e) < 0) {
        json_decref(script);
        return err_oom(e);
    }
    if (set_new(obj, "script", script, e) < 0)
        return err_oom(e);
    return set_new(obj, "shell", json_true(), e);
}

static int add_summary(const struct proc_summary *w, json_t *obj, struct err *e)
{
    json_t *list;
    int r = 0;

    if (w->script)
        return add_script(w, obj, e);
    if (w->n_omitted)
        r = set_new(obj, "argv_omitted",
                    json_pack("{s:I, s:I}", "arguments", (json_int_t)w->n_omitted, "bytes",
                              (json_int_t)w->omitted_bytes),
                    e);
    if (r < 0)
        return r;
    list = json_array();
    for (char **at = w->argv; list && r == 0 && *at; at++)
        r = json_array_append_new(list, **at ? jx_new_path(*at) : json_string(""));
    if (!list || r < 0) {
        json_decref(list);
        return err_oom(e);
    }
    return set_new(obj, "argv", list, e);
}

static int add_time(json_t *obj, const char *name, int64_t real_ms, struct err *e)
{
    char text[CLOCK_TEXT_BYTES];

    if (real_ms == 0)
        return 0;
    clock_text(real_ms, text);
    return set_new(obj, name, json_string(text), e);
}

int exec_new_state(struct proc *p, json_t **ret, struct err *e)
{
    static const char *const states[] = {[PROC_STARTING] = "starting",
                                         [PROC_RUNNING] = "running",
                                         [PROC_ENDED] = "ended",
                                         [PROC_FAILED] = "failed"};
    _cleanup_json_ json_t *obj = NULL;
    struct proc_info i;
    int r;

    proc_get_info(p, &i);
    obj = json_pack("{s:s, s:s, s:I, s:b, s:b}", "id", proc_id(p), "state", states[i.state], "pid",
                    (json_int_t)i.pid, "pty", proc_spec(p)->has_pty, "stdin_open", i.is_stdin_open);
    if (!obj)
        return err_oom(e);
    r = add_summary(proc_summary(p), obj, e);
    if (r == 0)
        r = add_time(obj, "started", i.started_ms, e);
    if (r == 0)
        r = add_time(obj, "ended", i.ended_ms, e);
    if (r == 0)
        r = add_streams(p, &i, false, obj, e);
    if (r == 0 && i.state == PROC_ENDED)
        r = set_new(obj, "exit", new_exit(&i), e);
    if (r == 0 && i.state == PROC_ENDED)
        r = set_new(obj, "usage", new_usage(&i.usage), e);
    if (r < 0)
        return r;
    *ret = json_incref(obj);
    return 0;
}
