#include "system/ready.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "proc/registry.h"

#define TOOL_DEADLINE_MS 3000
#define TOOL_OUTPUT_BYTES 4096
#define VERSION_MAX_BYTES 200

struct known_tool {
    const char *name;
    const char *argument; /* NULL: --version */
    const char *instead;  /* does as well: an older name */
};

/* Reported if they exist; only the required tools decide whether the box is ready. */
static const struct known_tool known_tools[] = {
    {"fd", NULL, "fdfind"},       {"rg", NULL, NULL},   {"magick", NULL, "convert"},
    {"ffmpeg", "-version", NULL}, {"git", NULL, NULL},  {"python3", NULL, NULL},
    {"pip", NULL, "pip3"},        {"node", NULL, NULL}, {"npm", NULL, NULL},
    {"curl", NULL, NULL},         {"bash", NULL, NULL}, {"tar", NULL, NULL},
};

struct ready {
    struct ready_options o;
    pthread_mutex_t lock;
    /* guarded by lock: */
    struct ready_report *report; /* NULL: none in which the box is ready */
    int64_t report_mono_ms;
    bool has_limits;
    bool limits[N_CGROUP_LIMITS];
};

struct tool_run {
    const char *name;
    const char *argument;
    bool is_required;
    int instead_of;    /* index of the tool that this is another name of, or -1 */
    struct proc *proc; /* NULL: it did not start */
    struct proc_sub sub;
    struct err error;
};

struct ready_check {
    struct ready *ready;
    void (*on_change)(void *arg);
    void *arg;
    struct tool_run tools[READY_MAX_TOOLS];
    size_t n_tools;
    struct ready_report report;
    bool has_report;
};

int ready_new(const struct ready_options *o, struct ready **ret, struct err *e)
{
    struct ready *r = calloc(1, sizeof(*r));

    if (!r)
        return err_oom(e);
    r->o = *o;
    (void)pthread_mutex_init(&r->lock, NULL);
    *ret = r;
    return 0;
}

struct ready *ready_free(struct ready *r)
{
    if (!r)
        return NULL;
    free(r->report);
    (void)pthread_mutex_destroy(&r->lock);
    free(r);
    return NULL;
}

void ready_get_limits(struct ready *r, bool ret[N_CGROUP_LIMITS])
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&r->lock);

    if (!r->has_limits)
        cgroup_probe_limits(r->limits);
    r->has_limits = true;
    memcpy(ret, r->limits, sizeof(r->limits));
}

static bool ready_copy_report(struct ready *r, struct ready_report *ret)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&r->lock);
    int64_t age_ms = clock_mono_ms() - r->report_mono_ms;

    if (!r->report || age_ms >= READY_KEEP_MS)
        return false;
    *ret = *r->report;
    ret->age_ms = age_ms;
    return true;
}

/* Without memory for a copy, the next call runs the tools again. */
static void ready_keep_report(struct ready *r, const struct ready_report *report)
{
    struct ready_report *copy = report->is_ready ? malloc(sizeof(*copy)) : NULL;
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&r->lock);

    if (copy)
        *copy = *report;
    free(r->report);
    r->report = copy;
    r->report_mono_ms = clock_mono_ms();
}

/* ---- from tools to the report ---- */

static bool tool_is_over(const struct tool_run *t)
{
    struct proc_info i;

    if (!t->proc)
        return true;
    proc_get_info(t->proc, &i);
    return i.state == PROC_ENDED || i.state == PROC_FAILED;
}

/* Copies the first line that the tool printed; "" if there is none. */
static void tool_copy_version(struct proc *p, char *out, size_t size)
{
    out[0] = '\0';
    for (int s = PROC_STDOUT; s < N_PROC_STREAMS && !out[0]; s++) {
        struct proc_output o = {0};
        size_t len = 0;

        if (proc_copy_output(p, (enum proc_stream)s, &o, NULL) < 0)
            continue;
        while (len < o.head_len && o.head[len] != '\n' && len < VERSION_MAX_BYTES)
            len++;
        if (len && str_is_utf8(o.head, len))
            (void)snprintf(out, size, "%.*s", (int)len, o.head);
        proc_output_done(&o);
    }
}

static void tool_copy_failure(const struct proc_info *i, char *out, size_t size)
{
    if (i->state == PROC_FAILED) {
        (void)snprintf(out, size, "%s", i->error.message);
        str_make_utf8(out); /* it may name a path */
    } else if (i->reason == REASON_TIMEOUT)
        (void)snprintf(out, size, "did not answer within %d ms", TOOL_DEADLINE_MS);
    else if (i->reason == REASON_EXITED)
        (void)snprintf(out, size, "exit code %d", i->code);
    else
        (void)snprintf(out, size, "%s", proc_reason_name(i->reason));
}

static bool tool_is_ok(const struct tool_run *t)
{
    struct proc_info i;

    if (!t->proc)
        return false;
    proc_get_info(t->proc, &i);
    return i.state == PROC_ENDED && i.reason == REASON_EXITED && i.code == 0;
}

/* Of two names of one tool, the one that works is reported, and the first if neither does. */
static bool tool_is_reported(const struct ready_check *c, size_t i, const bool *ok)
{
    if (c->tools[i].instead_of >= 0)
        return ok[i] && !ok[c->tools[i].instead_of];
    for (size_t other = 0; other < c->n_tools; other++)
        if (c->tools[other].instead_of == (int)i)
            return ok[i] || !ok[other];
    return true;
}

static void tool_report(const struct ready_check *c, const struct tool_run *t, bool is_ok,
                        struct ready_tool *ret)
{
    struct proc_info i = {.state = PROC_FAILED, .error = t->error};

    *ret = (struct ready_tool){.name = t->name, .is_required = t->is_required, .is_ok = is_ok};
    if (t->instead_of >= 0) {
        ret->name = c->tools[t->instead_of].name;
        ret->program = t->name;
    }
    if (t->proc)
        proc_get_info(t->proc, &i);
    if (is_ok)
        tool_copy_version(t->proc, ret->text, sizeof(ret->text));
    else
        tool_copy_failure(&i, ret->text, sizeof(ret->text));
}

const struct ready_report *ready_check_poll(struct ready_check *c)
{
    struct ready_report *report = &c->report;
    bool ok[READY_MAX_TOOLS];

    if (c->has_report)
        return report;
    for (size_t i = 0; i < c->n_tools; i++)
        if (!tool_is_over(&c->tools[i]))
            return NULL;
    for (size_t i = 0; i < c->n_tools; i++)
        ok[i] = tool_is_ok(&c->tools[i]);
    report->is_ready = true;
    for (size_t i = 0; i < c->n_tools; i++) {
        if (!tool_is_reported(c, i, ok))
            continue;
        tool_report(c, &c->tools[i], ok[i], &report->tools[report->n_tools++]);
        report->is_ready = report->is_ready && (ok[i] || !c->tools[i].is_required);
    }
    c->has_report = true;
    ready_keep_report(c->ready, report);
    return report;
}

/* ---- the tools ---- */

static int tool_start(struct ready_check *c, struct tool_run *t, struct err *e)
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
    spec.default_user = c->ready->o.default_user;
    spec.cwd = strdup("/");
    r = registry_start(c->ready->o.registry, &spec, &t->proc, &is_new, e);
    if (r < 0)
        return r;
    proc_own(t->proc);
    t->sub = (struct proc_sub){.fn = c->on_change, .arg = c->arg};
    return proc_subscribe(t->proc, &t->sub, e);
}

static int tool_find(const struct ready_check *c, const char *name)
{
    for (size_t i = 0; i < c->n_tools; i++)
        if (str_eq(c->tools[i].name, name))
            return (int)i;
    return -1;
}

/* Its index, also if it is there already; -1: there is no room. */
static int tool_add(struct ready_check *c, const char *name, const char *argument, bool is_required)
{
    int found = tool_find(c, name);

    if (found >= 0 || c->n_tools == READY_MAX_TOOLS)
        return found;
    c->tools[c->n_tools] = (struct tool_run){
        .name = name, .argument = argument, .is_required = is_required, .instead_of = -1};
    return (int)c->n_tools++;
}

static const char *known_tool_argument(const char *name)
{
    for (size_t i = 0; i < N_ELEMENTS(known_tools); i++)
        if (str_eq(known_tools[i].name, name))
            return known_tools[i].argument;
    return NULL;
}

static void add_all_tools(struct ready_check *c)
{
    for (char *const *p = c->ready->o.required; p && *p; p++)
        (void)tool_add(c, *p, known_tool_argument(*p), true);
    for (size_t i = 0; i < N_ELEMENTS(known_tools); i++) {
        const struct known_tool *k = &known_tools[i];
        int first = tool_add(c, k->name, k->argument, false);
        int second = k->instead ? tool_find(c, k->instead) : -1;

        if (first < 0 || !k->instead || second >= 0) /* a required one stands for itself */
            continue;
        second = tool_add(c, k->instead, k->argument, false);
        if (second >= 0) {
            c->tools[second].instead_of = first;
            c->tools[second].is_required = c->tools[first].is_required;
        }
    }
}

int ready_check_new(struct ready *r, bool is_fresh, void (*on_change)(void *arg), void *arg,
                    struct ready_check **ret, struct err *e)
{
    struct ready_check *c = calloc(1, sizeof(*c));

    if (!c)
        return err_oom(e);
    c->ready = r;
    c->on_change = on_change;
    c->arg = arg;
    c->has_report = !is_fresh && ready_copy_report(r, &c->report);
    if (!c->has_report)
        add_all_tools(c);
    for (size_t i = 0; i < c->n_tools; i++)
        (void)tool_start(c, &c->tools[i], &c->tools[i].error);
    *ret = c;
    return 0;
}

struct ready_check *ready_check_free(struct ready_check *c)
{
    if (!c)
        return NULL;
    for (size_t i = 0; i < c->n_tools; i++) {
        struct tool_run *t = &c->tools[i];

        if (!t->proc)
            continue;
        proc_unsubscribe(t->proc, &t->sub);
        proc_disown(t->proc); /* cancels it if it still runs, or as soon as it does */
        (void)registry_forget(c->ready->o.registry, proc_id(t->proc), NULL);
        proc_unref(t->proc);
    }
    free(c);
    return NULL;
}
