/*
 * System.Ready: does what the box promises really work? Each tool is run (`NAME --version`) as a
 * command of its own with a deadline, all at the same time; a tool that is there but does not
 * start is not ready. Nothing waits on a thread: the reply is a source.
 */
#include "api/system/ready.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "fs/root.h"
#include "proc/cgroup.h"
#include "proc/registry.h"
#include "agent.h"
#include "api/rpc.h"
#include "system/boxfacts.h"
#include "system/info.h"

#define TOOL_DEADLINE_MS 3000
#define TOOL_OUTPUT_BYTES 4096
#define MAX_TOOLS 32
#define N_LIMITS 3

/* Told about when they are there; only those in agent->required decide. */
static const struct known {
    const char *name;
    const char *argument; /* NULL: --version */
    const char *instead;  /* does as well: an older name */
} known_tools[] = {
    {"fd", NULL, "fdfind"},       {"rg", NULL, NULL},   {"magick", NULL, "convert"},
    {"ffmpeg", "-version", NULL}, {"git", NULL, NULL},  {"python3", NULL, NULL},
    {"pip", NULL, "pip3"},        {"node", NULL, NULL}, {"npm", NULL, NULL},
    {"curl", NULL, NULL},         {"bash", NULL, NULL}, {"tar", NULL, NULL},
};

struct tool {
    const char *name;
    const char *argument;
    bool is_required;
    int instead_of;    /* this other tool, or -1 */
    struct proc *proc; /* NULL: it did not start */
    struct proc_sub sub;
    struct err error;
};

struct ready {
    struct source source;
    struct agent *agent;
    struct tool tools[MAX_TOOLS];
    size_t n_tools;
    json_t *answers; /* of an earlier call: {"ready","missing","tools"}; then no tool is run */
    int64_t age_ms;
    int64_t now_ms; /* the caller's; 0: not said */
};

/* ---- what is kept ---- */

struct ready_cache {
    pthread_mutex_t lock;
    /* guarded by lock: */
    json_t *answers;
    int64_t at_mono_ms;
    bool has_limits;
    bool limits[N_LIMITS]; /* memory, pids, cpu */
};

int ready_cache_new(struct ready_cache **ret, struct err *e)
{
    struct ready_cache *c = calloc(1, sizeof(*c));

    if (!c)
        return err_oom(e);
    (void)pthread_mutex_init(&c->lock, NULL);
    *ret = c;
    return 0;
}

struct ready_cache *ready_cache_free(struct ready_cache *c)
{
    if (!c)
        return NULL;
    json_decref(c->answers);
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
    return NULL;
}

/* Copies: the counts of references are not for several threads. */
static json_t *get_answers(struct ready_cache *c, int64_t *ret_age_ms)
{
    int64_t now_ms = clock_mono_ms();
    json_t *copy = NULL;

    (void)pthread_mutex_lock(&c->lock);
    if (c->answers && now_ms - c->at_mono_ms < READY_KEEP_MS) {
        copy = json_deep_copy(c->answers);
        *ret_age_ms = now_ms - c->at_mono_ms;
    }
    (void)pthread_mutex_unlock(&c->lock);
    return copy;
}

static void keep_answers(struct ready_cache *c, const json_t *answers)
{
    json_t *copy = json_is_true(json_object_get(answers, "ready")) ? json_deep_copy(answers) : NULL;

    (void)pthread_mutex_lock(&c->lock);
    json_decref(c->answers);
    c->answers = copy;
    c->at_mono_ms = clock_mono_ms();
    (void)pthread_mutex_unlock(&c->lock);
}

/* By trying, once. */
static void get_limits(struct ready_cache *c, bool ret[N_LIMITS])
{
    static const struct cgroup_limits tries[N_LIMITS] = {
        {.memory_bytes = 1ull << 30}, {.pids = 64}, {.cpu_millis = 1000}};

    (void)pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < N_LIMITS && !c->has_limits; i++) {
        struct cgroup *g = NULL;

        c->limits[i] = cgroup_new(&tries[i], &g, NULL) == 0;
        cgroup_free(g);
    }
    c->has_limits = true;
    memcpy(ret, c->limits, sizeof(c->limits));
    (void)pthread_mutex_unlock(&c->lock);
}

/* ---- the tools ---- */

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

/* Of two names for one tool the one that works is told, and the first when neither does. */
static bool is_told(const struct ready *s, size_t i, const bool *ok)
{
    size_t other;

    if (s->tools[i].instead_of >= 0)
        return ok[i] && !ok[s->tools[i].instead_of];
    for (other = 0; other < s->n_tools; other++)
        if (s->tools[other].instead_of == (int)i)
            return ok[i] || !ok[other];
    return true;
}

static int new_answers(const struct ready *s, json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *tools = json_array();
    _cleanup_json_ json_t *missing = json_array();
    json_t *all[MAX_TOOLS] = {NULL};
    bool ok[MAX_TOOLS];

    for (size_t i = 0; i < s->n_tools; i++)
        all[i] = new_tool(&s->tools[i], &ok[i]);
    for (size_t i = 0; i < s->n_tools; i++) {
        const struct tool *t = &s->tools[i];

        if (!is_told(s, i, ok)) {
            json_decref(all[i]);
            continue;
        }
        if (t->instead_of >= 0) {
            (void)json_object_set_new(all[i], "program", json_string(t->name));
            (void)json_object_set_new(all[i], "name", json_string(s->tools[t->instead_of].name));
        }
        (void)json_array_append_new(tools, all[i]);
        if (!ok[i] && t->is_required)
            (void)json_array_append_new(missing, json_string(t->name));
    }
    *ret = json_pack("{s:b, s:O, s:O}", "ready", json_array_size(missing) == 0, "missing", missing,
                     "tools", tools);
    return *ret ? 0 : err_oom(e);
}

/* ---- the box ---- */

static json_t *new_disk(const struct agent *a)
{
    const char *path = a->workdir ? a->workdir : fs_root_path(a->root);
    struct statvfs st;

    if (statvfs(path, &st) < 0)
        return json_pack("{s:o, s:b}", "path", jx_new_path(path), "ok", 0);
    return json_pack("{s:o, s:b, s:b, s:I, s:I, s:I, s:I}", "path", jx_new_path(path), "ok",
                     st.f_bavail > 0 && !(st.f_flag & ST_RDONLY), "read_only",
                     (st.f_flag & ST_RDONLY) != 0, "free_bytes",
                     (json_int_t)(st.f_bavail * st.f_frsize), "total_bytes",
                     (json_int_t)(st.f_blocks * st.f_frsize), "free_inodes",
                     (json_int_t)st.f_favail, "total_inodes", (json_int_t)st.f_files);
}

static json_t *new_map(const struct boxfacts_range *ranges, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < n; i++)
        (void)json_array_append_new(list, json_pack("[I, I, I]", (json_int_t)ranges[i].inside,
                                                    (json_int_t)ranges[i].outside,
                                                    (json_int_t)ranges[i].count));
    return list;
}

static json_t *new_clock(const struct boxfacts *f, int64_t caller_ms)
{
    char text[CLOCK_TEXT_BYTES];

    clock_text(f->real_ms, text);
    return json_pack("{s:s, s:o, s:I, s:I}", "now", text, "offset_ms",
                     caller_ms ? json_integer(caller_ms - f->real_ms) : json_null(), "monotonic_ms",
                     (json_int_t)f->mono_ms, "boottime_ms", (json_int_t)f->boot_ms);
}

static json_t *new_kernel(const struct agent *a, const struct boxfacts *f)
{
    bool limits[N_LIMITS];
    struct info i;

    info_get(&i);
    get_limits(a->ready, limits);
    return json_pack("{s:s, s:s, s:b, s:b, s:b, s:{s:b, s:b, s:b}}", "release", i.kernel.release,
                     "cgroup", i.cgroup, "jit", (int)i.has_jit, "openat2", (int)f->has_openat2,
                     "pidfd", (int)f->has_pidfd, "limits", "memory", (int)limits[0], "pids",
                     (int)limits[1], "cpu", (int)limits[2]);
}

static int new_reply(struct ready *s, json_t **ret, struct err *e)
{
    struct boxfacts f;
    json_t *v = NULL;
    int r = 0;

    if (s->answers) {
        v = json_incref(s->answers);
    } else {
        r = new_answers(s, &v, e);
        if (r == 0)
            keep_answers(s->agent->ready, v);
    }
    if (r < 0)
        return r;
    boxfacts_get(&f);
    (void)json_object_set_new(v, "age_ms", json_integer(s->age_ms));
    (void)json_object_set_new(v, "disk", new_disk(s->agent));
    (void)json_object_set_new(v, "clock", new_clock(&f, s->now_ms));
    (void)json_object_set_new(v, "users",
                              json_pack("{s:i, s:i, s:b, s:o, s:o}", "uid", (int)geteuid(), "gid",
                                        (int)getegid(), "user_namespace", (int)f.is_user_namespace,
                                        "uid_map", new_map(f.uids, f.n_uids), "gid_map",
                                        new_map(f.gids, f.n_gids)));
    (void)json_object_set_new(v, "kernel", new_kernel(s->agent, &f));
    *ret = v;
    return 0;
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
        proc_disown(t->proc); /* cancels it if it still runs, or as soon as it does */
        (void)registry_forget(s->agent->registry, proc_id(t->proc), NULL);
        proc_unref(t->proc);
    }
    json_decref(s->answers);
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
        r = strv_push(&spec.argv, t->argument ? t->argument : "--version", e);
    if (r < 0) {
        proc_spec_done(&spec);
        return r;
    }
    spec.timeout_ms = TOOL_DEADLINE_MS;
    spec.kill_grace_ms = 100;
    spec.cancel_on_leave = true;
    spec.head_bytes = spec.tail_bytes = TOOL_OUTPUT_BYTES;
    spec.default_user = s->agent->default_user;
    spec.cwd = strdup("/");
    r = registry_start(s->agent->registry, &spec, &t->proc, &is_new, e);
    if (r < 0)
        return r;
    proc_own(t->proc);
    t->sub = (struct proc_sub){.fn = on_change, .arg = s};
    return proc_subscribe(t->proc, &t->sub, e);
}

static int find_tool(const struct ready *s, const char *name)
{
    for (size_t i = 0; i < s->n_tools; i++)
        if (str_eq(s->tools[i].name, name))
            return (int)i;
    return -1;
}

static int add_tool(struct ready *s, const char *name, const char *argument, bool is_required)
{
    int found = find_tool(s, name);

    if (found >= 0 || s->n_tools == MAX_TOOLS)
        return found;
    s->tools[s->n_tools] = (struct tool){
        .name = name, .argument = argument, .is_required = is_required, .instead_of = -1};
    return (int)s->n_tools++;
}

static const char *argument_of(const char *name)
{
    for (size_t i = 0; i < N_ELEMENTS(known_tools); i++)
        if (str_eq(known_tools[i].name, name))
            return known_tools[i].argument;
    return NULL;
}

static void add_tools(struct ready *s)
{
    for (char **p = s->agent->required; p && *p; p++)
        (void)add_tool(s, *p, argument_of(*p), true);
    for (size_t i = 0; i < N_ELEMENTS(known_tools); i++) {
        const struct known *k = &known_tools[i];
        int first = add_tool(s, k->name, k->argument, false);
        int second = k->instead ? find_tool(s, k->instead) : -1;

        if (first < 0 || !k->instead || second >= 0) /* a required one stands for itself */
            continue;
        second = add_tool(s, k->instead, k->argument, false);
        if (second >= 0) {
            s->tools[second].instead_of = first;
            s->tools[second].is_required = s->tools[first].is_required;
        }
    }
}

struct ready_params {
    bool fresh;
    int64_t now_ms;
};

static const struct jx_field ready_fields[] = {
    JX(struct ready_params, fresh, jx_bool, 0),
    JX(struct ready_params, now_ms, jx_i64, 0),
    {0},
};

/* {"fresh":true}: the tools are run, whatever they said a moment ago. */
int rpc_system_ready(const struct rpc_call *call, struct source **ret, struct err *e)
{
    struct ready_params p = {0};
    struct ready *s;
    int r;

    r = jx_decode(call->params, ready_fields, &p, e);
    if (r == 0 && p.now_ms < 0)
        r = err_field(e, ERR_INVALID, "now_ms", "field 'now_ms' must be milliseconds since 1970");
    if (r < 0)
        return r;
    s = calloc(1, sizeof(*s));
    if (!s)
        return err_oom(e);
    s->now_ms = p.now_ms;
    s->source.ops = &ready_ops;
    s->agent = call->agent;
    if (!p.fresh)
        s->answers = get_answers(s->agent->ready, &s->age_ms);
    if (!s->answers)
        add_tools(s);
    for (size_t i = 0; i < s->n_tools; i++)
        (void)start_tool(s, &s->tools[i], &s->tools[i].error);
    *ret = &s->source;
    return 0;
}
