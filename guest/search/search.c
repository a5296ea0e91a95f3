#include "search/search.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"

/* Result of the sink that ends the search at its limit. Internal. */
#define ENOUGH (-(int)ERR_ABORTED)

struct search_job {
    const struct search_options *o;
    const struct tree_access *access;
    const struct search_sink *sink;
    struct notes *notes;
    struct grepper *greppers[TREE_MAX_WORKERS];
    pthread_mutex_t lock;        /* over the sink */
    struct search_result result; /* guarded by lock */
    unsigned n_explosions;       /* guarded by lock */
};

/* A file that is being searched. */
struct search_file {
    struct search_job *job;
    const char *path;
    const char *below; /* the tree's root; "" for a file that was named */
    int64_t key;
    uint64_t n_seen; /* results */
};

/* Whether the search that this one continues has returned this result. */
static bool was_given(const struct search_file *f)
{
    const char *after = f->job->o->order.after.below;

    return after && f->n_seen <= f->job->o->skip && strcmp(after, f->below) == 0;
}

static int search_keep_place(struct search_job *j, const struct search_file *f, struct err *e)
{
    if (j->o->order.by == ORDER_NONE || !j->result.limit_reached)
        return 0;
    j->result.last = (struct order_place){.below = strdup(f->below), .key = f->key};
    j->result.n_of_last = f->n_seen;
    return j->result.last.below ? 0 : err_oom(e);
}

static int on_result(void *arg, const struct grep_result *r, struct err *e)
{
    struct search_file *f = arg;
    struct search_job *j = f->job;
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&j->lock);
    struct search_result *res = &j->result;
    int ret;

    if (res->limit_reached)
        return ENOUGH;
    f->n_seen++;
    if (was_given(f))
        return 0;
    ret = j->sink->result(j->sink->arg, f->path, r, e);
    if (ret < 0)
        return ret;
    res->n_results += r->count;
    res->limit_reached = j->o->max_results && res->n_results >= j->o->max_results;
    ret = search_keep_place(j, f, e);
    return ret < 0 ? ret : res->limit_reached ? ENOUGH : 0;
}

static bool job_is_gone(void *arg)
{
    const struct search_job *j = arg;

    return j->sink->is_gone && j->sink->is_gone(j->sink->arg);
}

static bool file_is_gone(void *arg)
{
    return job_is_gone(((struct search_file *)arg)->job);
}

static void add_stats(struct search_job *j, const struct grep_stats *s)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&j->lock);

    j->result.n_files++;
    j->result.n_files_matched += s->results > 0;
    j->result.n_files_binary += s->was_binary;
    j->result.n_bytes += s->bytes;
}

/* Notes the failure of one file. Ends the search if the pattern reached PCRE2's limits on too many files. */
static int note_failure(struct search_job *j, const char *path, int r, struct err *why,
                        struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&j->lock);

    notes_add(j->notes, path, why->message);
    if (r != -ERR_EXHAUSTED || strcmp(why->field, "pattern") != 0 ||
        ++j->n_explosions < SEARCH_MAX_EXPLOSIONS)
        return 0;
    if (e)
        *e = *why;
    return err_wrap(e, r, "'%.200s' and %d files before it", path, SEARCH_MAX_EXPLOSIONS - 1);
}

static int grep_fd(unsigned worker, int fd, struct search_file *f, enum grep_binary binary,
                   struct err *e)
{
    struct search_job *j = f->job;
    const struct grep_sink sink = {.result = on_result, .is_gone = file_is_gone, .arg = f};
    struct grep_stats stats;
    struct err why = {0};
    bool own_fault;
    int r;

    r = grepper_run(j->greppers[worker], fd, binary, &sink, &stats, &own_fault, &why);
    add_stats(j, &stats);
    if (own_fault)
        return note_failure(j, f->path, r, &why, e);
    if (r < 0 && e)
        *e = why;
    return r;
}

static bool search_wants(void *arg, unsigned worker, const struct tree_entry *entry)
{
    (void)arg;
    (void)worker;
    return entry->type == TREE_FILE;
}

static int search_visit(void *arg, unsigned worker, const struct tree_entry *entry, struct err *e)
{
    struct search_job *j = arg;
    struct search_file f = {
        .job = j, .path = entry->path, .below = entry->below, .key = entry->key};
    _cleanup_close_ int fd = -1;
    struct stat st;

    if (entry->type != TREE_FILE)
        return 0;
    fd = tree_entry_open(entry, j->access, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        notes_add_errno(j->notes, entry->path, -fd);
        fd = -1;
        return 0;
    }
    if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode)) /* replaced since it was listed */
        return 0;
    return grep_fd(worker, fd, &f, j->o->grep.binary, e);
}

static int search_tree(struct search_job *j, int fd, struct err *e)
{
    const struct tree_visitor v = {
        .visit = search_visit, .wants = search_wants, .is_gone = job_is_gone, .arg = j};

    return order_walk(fd, &j->o->tree, &j->o->order, j->access, &v, j->notes, e);
}

/* A binary file that was named is searched too: whether it matches is reported. */
static int search_fd(struct search_job *j, int fd, struct err *e)
{
    struct search_file f = {.job = j, .path = j->o->tree.shown, .below = ""};
    enum grep_binary binary = j->o->grep.binary;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "stat");
    if (S_ISDIR(st.st_mode))
        return search_tree(j, fd, e);
    if (!S_ISREG(st.st_mode))
        return err_field(e, ERR_PRECONDITION, "path", "neither a directory nor a regular file");
    if (binary == GREP_BINARY_SKIP)
        binary = GREP_BINARY_REPORT;
    return grep_fd(0, fd, &f, binary, e);
}

int search_run(int fd, const struct search_options *o, const struct tree_access *access,
               const struct search_sink *sink, struct notes *notes, struct search_result *ret,
               struct err *e)
{
    struct search_job j = {.o = o, .access = access, .sink = sink, .notes = notes};
    struct match *m = NULL;
    int r = match_new(&o->match, &m, e);

    *ret = j.result;
    if (r < 0)
        return r;
    (void)pthread_mutex_init(&j.lock, NULL);
    for (unsigned i = 0; r == 0 && i < o->tree.n_workers && i < TREE_MAX_WORKERS; i++)
        r = grepper_new(m, &o->grep, &j.greppers[i], e);
    if (r == 0)
        r = search_fd(&j, fd, e);
    if (r == ENOUGH && j.result.limit_reached)
        r = 0;
    for (unsigned i = 0; i < TREE_MAX_WORKERS; i++)
        grepper_free(j.greppers[i]);
    match_free(m);
    (void)pthread_mutex_destroy(&j.lock);
    *ret = j.result;
    return r;
}
