#include "search/glob.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "search/ignore.h"
#include "search/pattern.h"

/* Result of glob_visit() that ends the walk at the limit. Internal. */
#define ENOUGH (-(int)ERR_ABORTED)

struct glob_job {
    const struct glob_options *o;
    const struct tree_access *access;
    const struct glob_sink *sink;
    struct notes *notes;
    unsigned types; /* of enum glob_type, with the defaults */
    int64_t changed_after_ns, changed_before_ns;
    struct rules
        *rules; /* a glob, as the one line of an ignore file: paths that it hides are found */
    struct pattern *whole; /* a glob of the whole path */
    struct match *match;   /* a regex or a fixed text */
    struct matcher *matchers[TREE_MAX_WORKERS];
    pthread_mutex_t lock;      /* over the sink */
    struct glob_result result; /* guarded by lock */
};

/* --- filters --- */

static const char *name_of(const struct tree_entry *entry, size_t *ret_len)
{
    const char *slash = memrchr(entry->below, '/', entry->below_len);
    const char *name = slash ? slash + 1 : entry->below;

    *ret_len = entry->below_len - (size_t)(name - entry->below);
    return name;
}

static bool glob_is_match(const struct glob_job *j, unsigned worker, const struct tree_entry *entry)
{
    struct match_span ignored;
    size_t len;
    const char *text = name_of(entry, &len);

    if (j->rules)
        return rules_match(j->rules, entry->below, entry->below_len, entry->type == TREE_DIR) ==
               IGNORE_HIDE;
    if (j->whole)
        return pattern_match(j->whole, entry->whole, strlen(entry->whole));
    if (!j->match)
        return true;
    if (j->o->full_path) {
        text = entry->whole;
        len = strlen(text);
    }
    matcher_set_text(j->matchers[worker], text, len);
    return matcher_find(j->matchers[worker], &ignored, NULL) > 0;
}

/* The name ends in '.' and the extension, and has something before that. */
static bool has_extension(const struct tree_entry *entry, char *const *extensions)
{
    size_t len;
    const char *name = name_of(entry, &len);

    for (; *extensions; extensions++) {
        const char *ext = **extensions == '.' ? *extensions + 1 : *extensions;
        size_t n = strlen(ext);

        if (len > n + 1 && name[len - n - 1] == '.' && strncasecmp(name + len - n, ext, n) == 0)
            return true;
    }
    return false;
}

static bool is_empty_dir(const struct glob_job *j, const struct tree_entry *entry)
{
    int fd = tree_entry_open(entry, j->access, O_RDONLY | O_DIRECTORY);
    _cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *ent;
    bool is_empty = true;

    if (!d) {
        fd_close(fd);
        return false;
    }
    while (is_empty && (ent = readdir(d)))
        is_empty = strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0;
    return is_empty;
}

/* Like fd: a link to a file counts as a file, with the link's own size. */
static bool is_of_size(const struct glob_job *j, const struct tree_entry *entry,
                       const struct stat *st)
{
    uint64_t size = (uint64_t)st->st_size;
    struct tree_entry target = *entry;
    struct stat of_target;

    if (size < j->o->min_size || size > j->o->max_size)
        return false;
    if (!S_ISLNK(st->st_mode))
        return S_ISREG(st->st_mode);
    target.via_link = true;
    return tree_entry_stat(&target, j->access, &of_target) == 0 && S_ISREG(of_target.st_mode);
}

static bool is_in_time(const struct glob_job *j, const struct stat *st)
{
    int64_t ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;

    return (!j->changed_after_ns || ns > j->changed_after_ns) &&
           (!j->changed_before_ns || ns < j->changed_before_ns);
}

/* The filters that need stat(2). */
static bool is_wanted_by_stat(const struct glob_job *j, const struct tree_entry *entry)
{
    const struct glob_options *o = j->o;
    bool has_size = o->min_size || o->max_size != UINT64_MAX;
    bool has_times = j->changed_after_ns || j->changed_before_ns;
    bool is_executable = j->types & GLOB_EXECUTABLE, is_empty = j->types & GLOB_EMPTY;
    struct stat st;
    int r;

    if (!is_executable && !is_empty && !has_size && !has_times)
        return true;
    r = tree_entry_stat(entry, j->access, &st);
    if (r < 0) {
        notes_add_errno(j->notes, entry->path, -r);
        return false;
    }
    if (is_executable && !(st.st_mode & 0111))
        return false;
    if (has_size && !is_of_size(j, entry, &st))
        return false;
    if (is_empty &&
        !(S_ISREG(st.st_mode) ? st.st_size == 0 : S_ISDIR(st.st_mode) && is_empty_dir(j, entry)))
        return false;
    return is_in_time(j, &st);
}

static bool glob_wants(void *arg, unsigned worker, const struct tree_entry *entry)
{
    const struct glob_job *j = arg;
    char *const *extensions = j->o->extensions;

    return j->types & 1u << entry->type && glob_is_match(j, worker, entry) &&
           (!extensions || !*extensions || has_extension(entry, extensions)) &&
           is_wanted_by_stat(j, entry);
}

/* --- the results --- */

static int glob_keep_place(struct glob_job *j, const struct tree_entry *entry, struct err *e)
{
    struct order_place *last = &j->result.last;

    if (j->o->order.by == ORDER_NONE || !j->o->limit ||
        j->result.n_files + j->result.n_dirs != j->o->limit)
        return 0;
    last->below = strndup(entry->below, entry->below_len);
    last->key = entry->key;
    return last->below ? 0 : err_oom(e);
}

static int glob_visit_wanted(void *arg, unsigned worker, const struct tree_entry *entry,
                             struct err *e)
{
    struct glob_job *j = arg;
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&j->lock);
    struct glob_result *res = &j->result;
    int r;

    (void)worker;
    if (j->o->limit && res->n_files + res->n_dirs >= j->o->limit) {
        res->limit_reached = true;
        return ENOUGH;
    }
    r = j->sink->found(j->sink->arg, entry, e);
    if (r < 0)
        return r;
    if (entry->type == TREE_DIR)
        res->n_dirs++;
    else
        res->n_files++;
    return glob_keep_place(j, entry, e);
}

static int glob_visit(void *arg, unsigned worker, const struct tree_entry *entry, struct err *e)
{
    return glob_wants(arg, worker, entry) ? glob_visit_wanted(arg, worker, entry, e) : 0;
}

static bool glob_is_gone(void *arg)
{
    const struct glob_job *j = arg;

    return j->sink->is_gone && j->sink->is_gone(j->sink->arg);
}

/* --- the pattern --- */

static int glob_compile_match(struct glob_job *j, struct err *e)
{
    const struct match_options m = {.pattern = j->o->pattern,
                                    .len = strlen(j->o->pattern),
                                    .letters = j->o->letters,
                                    .fixed = j->o->kind == GLOB_FIXED,
                                    .bytes_apart = true};
    int r = match_new(&m, &j->match, e);

    for (unsigned i = 0; r == 0 && i < TREE_MAX_WORKERS; i++)
        r = matcher_new(j->match, &j->matchers[i], e);
    return r;
}

static int glob_compile(struct glob_job *j, struct err *e)
{
    const char *pattern = j->o->pattern;
    char *globs[] = {(char *)(uintptr_t)pattern, NULL};
    bool caseless;
    int r;

    if (!pattern)
        return 0;
    if (j->o->kind != GLOB_GLOB)
        return glob_compile_match(j, e);
    caseless = match_is_caseless(j->o->letters, pattern, strlen(pattern));
    if (j->o->full_path)
        return err_at(e, pattern_new(pattern, strlen(pattern), caseless, &j->whole, e), "pattern");
    if (!*pattern || *pattern == '!' || *pattern == '#')
        return err_field(e, ERR_INVALID, "pattern", "must be a glob");
    r = rules_add_globs(&j->rules, globs, caseless ? RULES_IGLOBS : RULES_GLOBS, "pattern", e);
    if (r < 0 && e)
        e->field[0] = '\0';
    return err_at(e, r, "pattern");
}

static void glob_job_done(struct glob_job *j)
{
    (void)pthread_mutex_destroy(&j->lock);
    for (unsigned i = 0; i < TREE_MAX_WORKERS; i++)
        matcher_free(j->matchers[i]);
    match_free(j->match);
    pattern_free(j->whole);
    rules_free(j->rules);
}

/* "executable" alone means files, "empty" alone files and directories, as fd --type has it. */
static unsigned types_with_defaults(unsigned types)
{
    const unsigned kinds = GLOB_FILE | GLOB_DIR | GLOB_SYMLINK | GLOB_OTHER;

    if (types & GLOB_EXECUTABLE)
        types |= GLOB_FILE;
    if (types & GLOB_EMPTY && !(types & kinds))
        types |= GLOB_FILE | GLOB_DIR;
    return types & kinds ? types : types | kinds;
}

/* Saturates: the farthest time there is for one that is farther. */
static int64_t ns_from_ms(int64_t ms)
{
    int64_t ns;

    if (__builtin_mul_overflow(ms, 1000000, &ns))
        return ms < 0 ? INT64_MIN : INT64_MAX;
    return ns;
}

static int64_t changed_after_ns(const struct glob_options *o)
{
    int64_t after_ms = o->changed_after_ms, since;

    if (o->changed_within_ms) {
        if (__builtin_sub_overflow(clock_real_ms(), o->changed_within_ms, &since))
            since = INT64_MAX;
        after_ms = since > after_ms ? since : after_ms;
    }
    return ns_from_ms(after_ms);
}

int glob_run(int rootfd, const struct glob_options *o, const struct tree_access *access,
             const struct glob_sink *sink, struct notes *notes, struct glob_result *ret,
             struct err *e)
{
    struct glob_job j = {.o = o,
                         .access = access,
                         .sink = sink,
                         .notes = notes,
                         .types = types_with_defaults(o->types),
                         .changed_after_ns = changed_after_ns(o),
                         .changed_before_ns = ns_from_ms(o->changed_before_ms)};
    bool streams = o->order.by == ORDER_NONE || (o->order.by == ORDER_PATH && !o->order.reverse);
    const struct tree_visitor v = {.visit = streams ? glob_visit : glob_visit_wanted,
                                   .wants = glob_wants,
                                   .is_gone = glob_is_gone,
                                   .arg = &j};
    int r;

    (void)pthread_mutex_init(&j.lock, NULL);
    r = glob_compile(&j, e);
    if (r == 0)
        r = order_walk(rootfd, &o->tree, &o->order, access, &v, notes, e);
    if (r == ENOUGH && j.result.limit_reached)
        r = 0;
    glob_job_done(&j);
    *ret = j.result;
    return r;
}
