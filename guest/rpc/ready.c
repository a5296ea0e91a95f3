/*
 * System.Ready: does what the box promises really work? Each tool is run (`NAME --version`) as a
 * command of its own with a deadline, all at the same time; a tool that is there but does not
 * start is not ready. Nothing waits on a thread: the reply is a source.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "fs/root.h"
#include "proc/registry.h"
#include "rpc/agent.h"
#include "rpc/rpc.h"

#include "common/banned.h"

#define TOOL_DEADLINE_MS 2000
#define TOOL_OUTPUT_BYTES 4096
#define MAX_TOOLS 32

/* Told about when they are there; only those in agent->required decide. */
static const char *const known_tools[] = {"fd",   "rg",   "git", "node",    "npm",
                                          "curl", "bash", "tar", "python3", NULL};

struct tool {
    const char *name;
    bool is_required;
    struct proc *proc; /* NULL: it did not start */
    struct proc_sub sub;
    struct err error;
};

struct ready {
    struct source source;
    struct agent *agent;
    struct tool tools[MAX_TOOLS];
    size_t n_tools;
};

static void on_change(void *arg)
{
    struct ready *s = arg;

    source_wake(&s->source);
}

static bool is_over(const struct tool *t)
{
    struct proc_info i;

    if (!t->proc)
        return true;
    proc_get_info(t->proc, &i);
    return i.state == PROC_ENDED || i.state == PROC_FAILED;
}

/* The first line that the tool printed, or NULL. */
static char *read_version(struct proc *p)
{
    struct proc_output out = {0};
    char *line = NULL;
    size_t len;

    for (int s = PROC_STDOUT; s < N_PROC_STREAMS && !line; s++) {
        if (proc_copy_output(p, (enum proc_stream)s, &out, NULL) < 0)
            continue;
        len = 0;
        while (len < out.head_len && out.head[len] != '\n' && len < 200)
            len++;
        if (len && str_is_utf8(out.head, len))
            line = strndup(out.head, len);
        proc_output_done(&out);
    }
    return line;
}

static const char *why_not(const struct proc_info *i, char *out, size_t size)
{
    if (i->state == PROC_FAILED)
        (void)snprintf(out, size, "%s", i->error.message);
    else if (i->reason == REASON_TIMEOUT)
        (void)snprintf(out, size, "did not answer within %d ms", TOOL_DEADLINE_MS);
    else if (i->reason == REASON_EXITED)
        (void)snprintf(out, size, "exit code %d", i->code);
    else
        (void)snprintf(out, size, "%s", proc_reason_name(i->reason));
    return out;
}

static json_t *new_tool(const struct tool *t, bool *ret_ok)
{
    _cleanup_free_ char *version = NULL;
    struct proc_info i = {.state = PROC_FAILED, .error = t->error};
    char why[ERR_MESSAGE_BYTES];
    json_t *v;

    if (t->proc)
        proc_get_info(t->proc, &i);
    *ret_ok = i.state == PROC_ENDED && i.reason == REASON_EXITED && i.code == 0;
    v = json_pack("{s:s, s:b, s:b}", "name", t->name, "ok", (int)*ret_ok, "required",
                  (int)t->is_required);
    if (!v)
        return NULL;
    if (*ret_ok) {
        version = read_version(t->proc);
        (void)json_object_set_new(v, "version", json_string(version ? version : ""));
    } else {
        (void)json_object_set_new(v, "error", json_string(why_not(&i, why, sizeof(why))));
    }
    return v;
}

static json_t *new_disk(const struct agent *a)
{
    const char *path = a->workdir ? a->workdir : fs_root_path(a->root);
    struct statvfs st;

    if (statvfs(path, &st) < 0)
        return json_pack("{s:s, s:b}", "path", path, "ok", 0);
    return json_pack("{s:s, s:b, s:I, s:I}", "path", path, "ok", st.f_bavail > 0, "free_bytes",
                     (json_int_t)(st.f_bavail * st.f_frsize), "total_bytes",
                     (json_int_t)(st.f_blocks * st.f_frsize));
}

static int new_reply(const struct ready *s, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *tools = json_array();
    _cleanup_json_ json_t *missing = json_array();
    bool ready = true;

    if (!tools || !missing)
        return err_oom(e);
    for (size_t i = 0; i < s->n_tools; i++) {
        bool ok;

        if (json_array_append_new(tools, new_tool(&s->tools[i], &ok)) < 0)
            return err_oom(e);
        if (ok || !s->tools[i].is_required)
            continue;
        ready = false;
        (void)json_array_append_new(missing, json_string(s->tools[i].name));
    }
    *ret = json_pack("{s:b, s:O, s:O, s:o}", "ready", (int)ready, "missing", missing, "tools",
                     tools, "disk", new_disk(s->agent));
    return *ret ? 0 : err_oom(e);
}

static int ready_next(struct source *source, json_t **ret_msg, struct err *e)
{
    struct ready *s = (struct ready *)source;
    int r;

    for (size_t i = 0; i < s->n_tools; i++)
        if (!is_over(&s->tools[i]))
            return SOURCE_WAIT;
    r = new_reply(s, ret_msg, e);
    return r < 0 ? r : SOURCE_MESSAGE;
}

static void ready_free(struct source *source)
{
    struct ready *s = (struct ready *)source;

    for (size_t i = 0; i < s->n_tools; i++) {
        struct tool *t = &s->tools[i];

        if (!t->proc)
            continue;
        proc_unsubscribe(t->proc, &t->sub);
        if (!is_over(t))
            (void)proc_signal(t->proc, SIGKILL, true, NULL);
        (void)registry_forget(s->agent->registry, proc_id(t->proc), NULL);
        proc_unref(t->proc);
    }
    free(s);
}

static const struct source_ops ready_ops = {.next = ready_next, .free = ready_free};

static int start_tool(struct ready *s, struct tool *t, struct err *e)
{
    struct proc_spec spec;
    bool is_new;
    int r;

    proc_spec_init(&spec);
    r = strv_push(&spec.argv, t->name, e);
    if (r == 0)
        r = strv_push(&spec.argv, "--version", e);
    if (r < 0) {
        proc_spec_done(&spec);
        return r;
    }
    spec.timeout_ms = TOOL_DEADLINE_MS;
    spec.kill_grace_ms = 100;
    spec.head_bytes = spec.tail_bytes = TOOL_OUTPUT_BYTES;
    spec.default_user = s->agent->default_user;
    spec.cwd = strdup("/");
    r = registry_start(s->agent->registry, &spec, &t->proc, &is_new, e);
    if (r < 0)
        return r;
    t->sub = (struct proc_sub){.fn = on_change, .arg = s};
    return proc_subscribe(t->proc, &t->sub, e);
}

static bool is_listed(const struct ready *s, const char *name)
{
    for (size_t i = 0; i < s->n_tools; i++)
        if (str_eq(s->tools[i].name, name))
            return true;
    return false;
}

static void add_tool(struct ready *s, const char *name, bool is_required)
{
    if (s->n_tools < MAX_TOOLS && !is_listed(s, name))
        s->tools[s->n_tools++] = (struct tool){.name = name, .is_required = is_required};
}

int rpc_system_ready(const struct rpc_call *call, struct source **ret, struct err *e)
{
    static const struct jx_field no_fields[] = {{0}};
    struct ready *s;
    int r;

    r = jx_decode(call->params, no_fields, NULL, e);
    if (r < 0)
        return r;
    s = calloc(1, sizeof(*s));
    if (!s)
        return err_oom(e);
    s->source.ops = &ready_ops;
    s->agent = call->agent;
    for (char **p = call->agent->required; p && *p; p++)
        add_tool(s, *p, true);
    for (size_t i = 0; known_tools[i]; i++)
        add_tool(s, known_tools[i], false);
    for (size_t i = 0; i < s->n_tools; i++)
        (void)start_tool(s, &s->tools[i], &s->tools[i].error);
    *ret = &s->source;
    return 0;
}
