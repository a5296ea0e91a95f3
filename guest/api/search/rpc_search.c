/*
 * search: Glob and Grep. Both run on a pool thread, with the rights of the box's user, and stream
 * what they find.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"
#include "fs/root.h"
#include "agent.h"
#include "api/jtext.h"
#include "api/queue.h"
#include "api/rpc.h"
#include "api/search/search_params.h"
#include "system/metrics.h"

#define LINE_MAX_BYTES QUEUE_TEXT_MAX_BYTES

/* --- the disk, on behalf of a user --- */

static int access_open(void *arg, const char *path, int flags)
{
    struct err e = {0};
    int fd;

    if (fs_open(arg, path, flags, 0, &fd, &e) < 0)
        return e.sys ? -e.sys : -EACCES;
    return fd;
}

static int access_enter(void *arg, struct err *e)
{
    return fs_actor_enter(&((const struct fs_caller *)arg)->actor, e);
}

static void access_leave(void *arg)
{
    fs_actor_leave(&((const struct fs_caller *)arg)->actor);
}

/* The absolute path of an open directory, to find the ignore files above it. */
static char *whole_path(const struct fs_caller *c, int fd, const char *path)
{
    _cleanup_free_ char *joined = NULL;
    char link[64], target[PATH_MAX];
    ssize_t n;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, target, sizeof(target));
    if (n > 0 && (size_t)n < sizeof(target) && target[0] == '/')
        return strndup(target, (size_t)n);
    if (fs_caller_path(c, path, &joined, NULL) < 0) /* no /proc, or a path too long for it */
        return NULL;
    return path_clean(joined);
}

struct run {
    struct queue *q;
    const struct search_params *p;
    struct tree_access access;
    struct tree_options tree;
    struct order order;
    struct notes notes;
    struct buf line; /* the message being written; results never come two at once */
};

static bool run_is_gone(void *arg)
{
    return queue_is_gone(((struct run *)arg)->q);
}

static void set_tree(struct run *run, const struct fs_caller *c, const char *whole)
{
    const struct search_params *p = run->p;
    const char *home = c->actor.user.home;

    run->tree = (struct tree_options){
        .shown = p->path ? p->path : "",
        .whole = whole,
        .hidden = p->hidden,
        .no_ignore = p->no_ignore,
        .no_ignore_vcs = p->no_ignore_vcs,
        .no_ignore_parent = p->no_ignore_parent,
        .follow = p->follow,
        .one_file_system = p->one_file_system,
        .min_depth = p->min_depth,
        .max_depth = p->max_depth,
        .max_filesize = p->max_filesize,
        .globs = p->globs,
        .iglobs = p->iglobs,
        .exclude = p->exclude,
        .types = p->types,
        .type_not = p->type_not,
        .type_add = p->type_add,
        .home = home && strcmp(home, "/") != 0 ? home : NULL,
        .n_workers = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? TREE_MAX_WORKERS : 1,
    };
    run->order = (struct order){.by = (enum order_by)p->sort,
                                .reverse = p->reverse,
                                .after = p->after,
                                .with_after = !p->is_glob};
}

/* --- encoding --- */

static int send_message(struct run *run, struct jtext *t, struct err *e)
{
    int r;

    jtext_close(t, '}');
    jtext_close(t, '}');
    r = jtext_end(t, e);
    if (r == 0)
        r = queue_push(run->q, run->line.data, run->line.len, e);
    buf_clear(&run->line);
    return r;
}

static void begin(struct run *run, struct jtext *t, const char *name)
{
    jtext_begin(t, &run->line);
    jtext_open(t, '{');
    jtext_key(t, name);
    jtext_open(t, '{');
}

static void add_count(struct jtext *t, const char *name, uint64_t n)
{
    jtext_key(t, name);
    jtext_int(t, n);
}

static void add_incomplete(struct jtext *t, const struct notes *n)
{
    jtext_key(t, "incomplete");
    jtext_open(t, '[');
    for (size_t i = 0; i < n->n; i++) {
        jtext_open(t, '{');
        jtext_key(t, "path");
        jtext_path(t, n->list[i].path);
        jtext_key(t, "error");
        jtext_str(t, n->list[i].error);
        jtext_close(t, '}');
    }
    jtext_close(t, ']');
    if (n->total > n->n) /* only so many are listed */
        add_count(t, "incomplete_more", n->total - n->n);
}

/* What both ends have in common. last: where to go on, when there is a limit and an order. */
static int send_end(struct run *run, struct jtext *t, bool limit_reached,
                    const struct order_place *last, uint64_t n_of_last, struct err *e)
{
    _cleanup_free_ char *cursor = NULL;
    int r = 0;

    add_incomplete(t, &run->notes);
    jtext_key(t, "limit_reached");
    jtext_bool(t, limit_reached);
    if (limit_reached && last->below)
        r = search_cursor_new(run->p, last, n_of_last, &cursor, e);
    if (cursor) {
        jtext_key(t, "cursor");
        jtext_str(t, cursor);
    }
    return r < 0 ? r : send_message(run, t, e);
}

static void add_text(struct jtext *t, const struct grep_line *l)
{
    jtext_bytes(t, l->text, l->len);
    if (l->truncated) {
        jtext_key(t, "truncated");
        jtext_bool(t, true);
    }
}

static void add_lines(struct jtext *t, const char *name, const struct grep_line *lines, size_t n)
{
    jtext_key(t, name);
    jtext_open(t, '[');
    for (size_t i = 0; i < n; i++) {
        jtext_open(t, '{');
        add_count(t, "line", lines[i].number);
        add_text(t, &lines[i]);
        jtext_close(t, '}');
    }
    jtext_close(t, ']');
}

static void add_spans(struct jtext *t, const struct match_span *spans, size_t n)
{
    jtext_key(t, "submatches");
    jtext_open(t, '[');
    for (size_t i = 0; i < n; i++) {
        jtext_open(t, '[');
        jtext_int(t, spans[i].start);
        jtext_int(t, spans[i].end);
        jtext_close(t, ']');
    }
    jtext_close(t, ']');
}

/* What a match says besides its path. */
static void add_match(struct jtext *t, const struct grep_result *r)
{
    add_count(t, "line", r->line.number);
    if (r->column)
        add_count(t, "column", r->column);
    add_count(t, "offset", r->offset);
    add_text(t, &r->line);
    add_spans(t, r->spans, r->n_spans);
    if (r->replaced) {
        jtext_key(t, "replaced");
        jtext_open(t, '{');
        add_text(t, r->replaced);
        jtext_close(t, '}');
    }
    add_lines(t, "before", r->before, r->n_before);
    add_lines(t, "after", r->after, r->n_after);
}

static int on_match(void *arg, const char *path, const struct grep_result *res, struct err *e)
{
    struct run *run = arg;
    struct jtext t;

    begin(run, &t, "match");
    jtext_key(&t, "path");
    jtext_path(&t, path);
    if (res->is_binary) {
        jtext_key(&t, "binary");
        jtext_bool(&t, true);
        add_count(&t, "offset", res->offset);
    } else if (run->p->mode == GREP_COUNT || run->p->mode == GREP_COUNT_MATCHES) {
        add_count(&t, "count", res->count);
    } else if (run->p->mode == GREP_LINES) {
        add_match(&t, res);
    }
    return send_message(run, &t, e);
}

static int on_found(void *arg, const struct tree_entry *entry, struct err *e)
{
    struct run *run = arg;
    struct jtext t;

    begin(run, &t, "file");
    jtext_key(&t, "path");
    jtext_path(&t, entry->path);
    jtext_key(&t, "type");
    jtext_str(&t, search_type_name(entry->type));
    return send_message(run, &t, e);
}

/* --- the work --- */

/* Which types are found: as fd -t has it, "executable" alone means files, "empty" alone files and
 * directories. */
static unsigned types_of(unsigned found)
{
    const unsigned kinds = SEARCH_FILE | SEARCH_DIR | SEARCH_SYMLINK | SEARCH_OTHER;

    if (found & SEARCH_EXECUTABLE)
        found |= SEARCH_FILE;
    if (found & SEARCH_EMPTY && !(found & kinds))
        found |= SEARCH_FILE | SEARCH_DIR;
    return found ? found : kinds;
}

/* The farthest time there is for one that is farther. */
static int64_t ns_of_ms(int64_t ms)
{
    int64_t ns;

    if (__builtin_mul_overflow(ms, 1000000, &ns))
        return ms < 0 ? INT64_MIN : INT64_MAX;
    return ns;
}

static struct glob_options glob_options_of(const struct run *run)
{
    const struct search_params *p = run->p;
    unsigned found = types_of(p->found);

    return (struct glob_options){
        .tree = run->tree,
        .order = run->order,
        .pattern = p->pattern,
        .kind = (enum glob_kind)p->kind,
        .letters = (enum match_case)p->letters,
        .full_path = p->full_path,
        .files = found & SEARCH_FILE,
        .dirs = found & SEARCH_DIR,
        .symlinks = found & SEARCH_SYMLINK,
        .others = found & SEARCH_OTHER,
        .executable = p->found & SEARCH_EXECUTABLE,
        .empty = p->found & SEARCH_EMPTY,
        .extensions = strv_len(p->extensions) ? p->extensions : NULL,
        .min_size = p->min_size,
        .max_size = p->max_size,
        .has_size = p->min_size || p->max_size != UINT64_MAX,
        .changed_after_ns = ns_of_ms(p->changed_after_ms),
        .changed_before_ns = ns_of_ms(p->changed_before_ms),
        .limit = p->limit,
    };
}

static int run_glob(struct run *run, int fd, struct err *e)
{
    const struct glob_options o = glob_options_of(run);
    const struct glob_sink sink = {.found = on_found, .is_gone = run_is_gone, .arg = run};
    struct glob_result res;
    struct jtext t;
    int r = glob_run(fd, &o, &run->access, &sink, &run->notes, &res, e);

    if (r == 0) {
        begin(run, &t, "end");
        add_count(&t, "files", res.n_files);
        add_count(&t, "dirs", res.n_dirs);
        r = send_end(run, &t, res.limit_reached, &res.last, 0, e);
    }
    free(res.last.below);
    return r;
}

static struct search_options grep_options_of(const struct run *run)
{
    const struct search_params *p = run->p;

    return (struct search_options){
        .tree = run->tree,
        .order = run->order,
        .match = {.pattern = p->pattern,
                  .len = p->pattern ? strlen(p->pattern) : 0,
                  .more = p->patterns,
                  .letters = (enum match_case)p->letters,
                  .fixed = p->fixed,
                  .word = p->word,
                  .line = p->line,
                  .multiline = p->multiline,
                  .dotall = p->dotall,
                  .crlf = p->crlf,
                  .groups = p->replace},
        .grep = {.mode = (enum grep_mode)p->mode,
                 .binary = (enum grep_binary)p->binary,
                 .encoding = (enum window_encoding)p->encoding,
                 .invert = p->invert,
                 .multiline = p->multiline,
                 .crlf = p->crlf,
                 .only_matching = p->only_matching,
                 .replace = p->replace,
                 .max_text = p->max_columns,
                 .before = p->before,
                 .after = p->after_lines,
                 .max_per_file = p->max_per_file},
        .skip = p->skip,
        .max_results = p->limit,
    };
}

static int run_grep(struct run *run, int fd, struct err *e)
{
    const struct search_options o = grep_options_of(run);
    const struct search_sink sink = {.result = on_match, .is_gone = run_is_gone, .arg = run};
    struct search_result res;
    struct jtext t;
    int r = search_run(fd, &o, &run->access, &sink, &run->notes, &res, e);

    if (r == 0) {
        metrics_searched(res.n_bytes);
        begin(run, &t, "end");
        add_count(&t, "matches", res.n_results);
        add_count(&t, "files_matched", res.n_files_matched);
        add_count(&t, "files_searched", res.n_files);
        add_count(&t, "files_binary", res.n_files_binary);
        add_count(&t, "bytes_searched", res.n_bytes);
        r = send_end(run, &t, res.limit_reached, &res.last, res.n_of_last, e);
    }
    free(res.last.below);
    return r;
}

/* With the caller's identity taken. */
static int run_as(struct run *run, struct fs_caller *c, struct err *e)
{
    const char *path = run->p->path ? run->p->path : ".";
    _cleanup_close_ int fd = -1;
    _cleanup_free_ char *whole = NULL;
    int flags = O_RDONLY | (run->p->is_glob ? O_DIRECTORY : 0);
    int r = fs_open(c, path, flags, 0, &fd, e);

    if (r < 0)
        return err_at(e, r, "path");
    whole = whole_path(c, fd, path);
    if (!whole)
        return err_oom(e);
    set_tree(run, c, whole);
    return run->p->is_glob ? run_glob(run, fd, e) : run_grep(run, fd, e);
}

static int work(struct queue *q, void *arg, struct err *e)
{
    const struct search_params *p = arg;
    const struct agent *agent = p->agent;
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    struct run *run = NULL;
    int r;

    r = fs_caller_new(agent->root, p->user ? p->user : agent->default_user, agent->workdir, &c, e);
    if (r < 0)
        return r;
    run = calloc(1, sizeof(*run)); /* holds the notes: large for a stack */
    if (!run)
        return err_oom(e);
    run->q = q;
    run->p = p;
    run->access = (struct tree_access){
        .open = access_open, .enter = access_enter, .leave = access_leave, .arg = c};
    notes_init(&run->notes);
    buf_init(&run->line, LINE_MAX_BYTES);
    r = fs_actor_enter(&c->actor, e);
    if (r == 0) {
        r = run_as(run, c, e);
        fs_actor_leave(&c->actor);
    }
    notes_done(&run->notes);
    buf_done(&run->line);
    free(run);
    return r;
}

static int start(const struct rpc_call *call, bool is_glob, struct source **ret, struct err *e)
{
    struct search_params *p;
    int r = search_params_new(call, is_glob, &p, e);

    return r < 0 ? r : queue_source_new(work, p, search_params_free, ret, e);
}

int rpc_search_glob(const struct rpc_call *call, struct source **ret, struct err *e)
{
    return start(call, true, ret, e);
}

int rpc_search_grep(const struct rpc_call *call, struct source **ret, struct err *e)
{
    return start(call, false, ret, e);
}
