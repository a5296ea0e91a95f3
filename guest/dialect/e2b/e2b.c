#include "dialect/e2b/e2b.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "system/info.h"
#include "dialect/e2b/watchers.h"

#define INIT_BUDGET_BYTES (8 * 1024 * 1024)

struct e2b {
    struct usage_clock *usage;
    _Atomic uint64_t init_bytes; /* charged now */
    struct watchers *watchers;
    pthread_mutex_t init; /* before lock, and the locks of what an /init sets */
    int64_t newest_ns;    /* guarded by init */
    pthread_mutex_t lock;
    /* guarded by lock: */
    char *user;
    char *workdir;
    char *events; /* "E2B_EVENTS_ADDRESS=http://ADDRESS", or NULL */
};

int e2b_new(const char *user, const char *workdir, struct e2b **ret, struct err *e)
{
    struct e2b *s = calloc(1, sizeof(*s));

    if (!s)
        return err_oom(e);
    (void)pthread_mutex_init(&s->init, NULL);
    (void)pthread_mutex_init(&s->lock, NULL);
    if (usage_clock_new(&s->usage, e) < 0 || watchers_new(&s->watchers, e) < 0 ||
        e2b_set_defaults(s, user, workdir, e) < 0) {
        e2b_free(s);
        return -ERR_EXHAUSTED;
    }
    *ret = s;
    return 0;
}

struct e2b *e2b_free(struct e2b *s)
{
    if (!s)
        return NULL;
    usage_clock_free(s->usage);
    watchers_free(s->watchers);
    free(s->user);
    free(s->workdir);
    free(s->events);
    (void)pthread_mutex_destroy(&s->init);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
    return NULL;
}

struct watchers *e2b_watchers(struct e2b *s)
{
    return s->watchers;
}

static int copy_setting(struct e2b *s, char *const *from, char **ret, struct err *e)
{
    char *text = NULL;
    bool is_set;

    (void)pthread_mutex_lock(&s->lock);
    is_set = *from != NULL;
    if (is_set)
        text = strdup(*from);
    (void)pthread_mutex_unlock(&s->lock);
    if (is_set && !text)
        return err_oom(e);
    *ret = text;
    return 0;
}

int e2b_default_user(struct e2b *s, char **ret, struct err *e)
{
    return copy_setting(s, &s->user, ret, e);
}

int e2b_default_workdir(struct e2b *s, char **ret, struct err *e)
{
    return copy_setting(s, &s->workdir, ret, e);
}

/* With the lock. */
static void replace_setting(char **at, char **with)
{
    char *old = *at;

    if (!*with)
        return;
    *at = *with;
    *with = old;
}

int e2b_set_defaults(struct e2b *s, const char *user, const char *workdir, struct err *e)
{
    _cleanup_free_ char *new_user = user && *user ? strdup(user) : NULL;
    _cleanup_free_ char *new_workdir = workdir && *workdir ? strdup(workdir) : NULL;

    if ((user && *user && !new_user) || (workdir && *workdir && !new_workdir))
        return err_oom(e);
    (void)pthread_mutex_lock(&s->lock);
    replace_setting(&s->user, &new_user);
    replace_setting(&s->workdir, &new_workdir);
    (void)pthread_mutex_unlock(&s->lock);
    return 0;
}

#define SANDBOX "E2B_SANDBOX"
#define EVENTS "E2B_EVENTS_ADDRESS"

bool e2b_has_variable(const char *name)
{
    return str_eq(name, SANDBOX) || str_eq(name, EVENTS);
}

int e2b_add_variables(struct e2b *s, struct strv_list *list, struct err *e)
{
    _cleanup_free_ char *events = NULL;
    int r = copy_setting(s, &s->events, &events, e);

    if (r == 0)
        r = strv_list_add(list, SANDBOX "=true", e);
    return r == 0 && events ? strv_list_add(list, events, e) : r;
}

int e2b_set_events(struct e2b *s, const char *address, struct err *e)
{
    bool is_v6 = strchr(address, ':') != NULL;
    _cleanup_free_ char *setting = NULL;

    if (asprintf(&setting, EVENTS "=http://%s%s%s", is_v6 ? "[" : "", address, is_v6 ? "]" : "") <
        0) {
        setting = NULL;
        return err_oom(e);
    }
    (void)pthread_mutex_lock(&s->lock);
    replace_setting(&s->events, &setting);
    (void)pthread_mutex_unlock(&s->lock);
    return 0;
}

int e2b_charge_init(struct e2b *s, size_t len, struct err *e)
{
    if (s->init_bytes + len > INIT_BUDGET_BYTES)
        return err_set(e, ERR_EXHAUSTED, "too many large requests at once");
    s->init_bytes += len;
    return 0;
}

void e2b_discharge_init(struct e2b *s, size_t len)
{
    s->init_bytes -= len;
}

struct usage_clock *e2b_usage_clock(struct e2b *s)
{
    return s->usage;
}

void e2b_begin_init(struct e2b *s)
{
    (void)pthread_mutex_lock(&s->init);
}

void e2b_end_init(struct e2b *s)
{
    (void)pthread_mutex_unlock(&s->init);
}

bool e2b_is_news(const struct e2b *s, int64_t real_ns)
{
    return real_ns >= s->newest_ns; /* the same once more: its answer was lost, maybe */
}

void e2b_note_news(struct e2b *s, int64_t real_ns)
{
    s->newest_ns = real_ns;
}
