#include "search/glob.h"

#include <pthread.h>
#include <string.h>

#include "search/ignore.h"

#include "common/banned.h"

/* visit() ends the walk so when there are enough results; never seen outside. */
#define ENOUGH (-(int)ERR_ABORTED)

struct glob_job {
    const struct glob_options *o;
    const struct glob_sink *sink;
    struct rules
        *rules; /* the pattern, as the one line of an ignore file: what it hides is found */
    pthread_mutex_t lock;      /* over the sink */
    struct glob_result result; /* guarded by lock */
};

static bool is_wanted(const struct glob_options *o, enum tree_type type)
{
    switch (type) {
    case TREE_FILE:
        return o->files;
    case TREE_DIR:
        return o->dirs;
    case TREE_SYMLINK:
        return o->symlinks;
    case TREE_OTHER:
    default:
        return o->others;
    }
}

static int give(struct glob_job *j, const struct tree_entry *entry, struct err *e)
{
    struct glob_result *res = &j->result;
    int r;

    if (j->o->limit && res->n_files + res->n_dirs >= j->o->limit) {
        res->limit_reached = true;
        return ENOUGH;
    }
    r = j->sink->found(j->sink->arg, entry, e);
    if (r == 0 && entry->type == TREE_DIR)
        res->n_dirs++;
    else if (r == 0)
        res->n_files++;
    return r;
}

static int visit(void *arg, unsigned worker, const struct tree_entry *entry, struct err *e)
{
    struct glob_job *j = arg;
    int r;

    (void)worker;
    if (!is_wanted(j->o, entry->type))
        return 0;
    if (j->rules && rules_match(j->rules, entry->below, entry->below_len,
                                entry->type == TREE_DIR) != IGNORE_HIDE)
        return 0;
    (void)pthread_mutex_lock(&j->lock);
    r = give(j, entry, e);
    (void)pthread_mutex_unlock(&j->lock);
    return r;
}

static bool is_gone(void *arg)
{
    const struct glob_job *j = arg;

    return j->sink->is_gone && j->sink->is_gone(j->sink->arg);
}

static int compile(const char *pattern, struct rules **ret, struct err *e)
{
    char *globs[] = {(char *)(uintptr_t)pattern, NULL};
    int r;

    if (!*pattern || *pattern == '!' || *pattern == '#')
        return err_field(e, ERR_INVALID, "pattern", "must be a glob");
    r = rules_from_globs(globs, ret, e);
    if (r < 0 && e)
        e->field[0] = '\0';
    return err_at(e, r, "pattern");
}

int glob_run(int rootfd, const struct glob_options *o, const struct tree_access *access,
             const struct glob_sink *sink, struct notes *notes, struct glob_result *ret,
             struct err *e)
{
    struct glob_job j = {.o = o, .sink = sink};
    const struct tree_visitor v = {.visit = visit, .is_gone = is_gone, .arg = &j};
    struct tree *t = NULL;
    int r = 0;

    if (o->pattern)
        r = compile(o->pattern, &j.rules, e);
    if (r == 0)
        r = tree_new(rootfd, &o->tree, access, notes, &t, e);
    if (r < 0) {
        rules_free(j.rules);
        return r;
    }
    (void)pthread_mutex_init(&j.lock, NULL);
    r = tree_walk(t, &v, e);
    if (r == ENOUGH && j.result.limit_reached)
        r = 0;
    (void)pthread_mutex_destroy(&j.lock);
    tree_free(t);
    rules_free(j.rules);
    *ret = j.result;
    return r;
}
