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

struct search_call {
    struct queue *q;
    struct search_params *p;
    struct tree_access access;
    struct notes notes;
    struct buf line; /* the message being written; results never come two at once */
};

static bool search_is_gone(void *arg)
{
    return queue_is_gone(((struct search_call *)arg)->q);
}

/* The options that no request has. */
static void set_tree(struct search_params *p, const struct fs_caller *c, const char *whole)
{
    struct tree_options *tree = search_params_tree(p);
    const char *home = c->actor.user.home;

    tree->shown = p->path ? p->path : "";
    tree->whole = whole;
    tree->home = home && strcmp(home, "/") != 0 ? home : NULL;
    tree->n_workers = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? TREE_MAX_WORKERS : 1;
}

/* --- encoding --- */

static int send_message(struct search_call *c, struct jtext *t, struct err *e)
{
    int r;

    jtext_close(t, '}');
    jtext_close(t, '}');
    r = jtext_end(t, e);
    if (r == 0)
        r = queue_push(c->q, c->line.data, c->line.len, e);
    buf_clear(&c->line);
    return r;
}

static void begin_message(struct search_call *c, struct jtext *t, const char *name)
{
    jtext_begin(t, &c->line);
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

/* The fields that both ends have. last: where to continue, if there is a limit and an order. */
static int send_end(struct search_call *c, struct jtext *t, bool limit_reached,
                    const struct order_place *last, uint64_t n_of_last, struct err *e)
{
    _cleanup_free_ char *cursor = NULL;
    int r = 0;

    add_incomplete(t, &c->notes);
    jtext_key(t, "limit_reached");
    jtext_bool(t, limit_reached);
    if (limit_reached && last->below)
        r = search_cursor_new(c->p, last, n_of_last, &cursor, e);
    if (cursor) {
        jtext_key(t, "cursor");
        jtext_str(t, cursor);
    }
    return r < 0 ? r : send_message(c, t, e);
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

/* The fields of a match besides its path. */
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
    struct search_call *c = arg;
    enum grep_mode mode = c->p->grep.grep.mode;
    struct jtext t;

    begin_message(c, &t, "match");
    jtext_key(&t, "path");
    jtext_path(&t, path);
    if (res->is_binary) {
        jtext_key(&t, "binary");
        jtext_bool(&t, true);
        add_count(&t, "offset", res->offset);
    } else if (mode == GREP_COUNT || mode == GREP_COUNT_MATCHES) {
        add_count(&t, "count", res->count);
    } else if (mode == GREP_LINES) {
        add_match(&t, res);
    }
    return send_message(c, &t, e);
}

static int on_found(void *arg, const struct tree_entry *entry, struct err *e)
{
    struct search_call *c = arg;
    struct jtext t;

    begin_message(c, &t, "file");
    jtext_key(&t, "path");
    jtext_path(&t, entry->path);
    jtext_key(&t, "type");
    jtext_str(&t, search_type_name(entry->type));
    return send_message(c, &t, e);
}

/* --- the work --- */

static int run_glob(struct search_call *c, int fd, struct err *e)
{
    const struct glob_sink sink = {.found = on_found, .is_gone = search_is_gone, .arg = c};
    struct glob_result res;
    struct jtext t;
    int r = glob_run(fd, &c->p->glob, &c->access, &sink, &c->notes, &res, e);

    if (r == 0) {
        begin_message(c, &t, "end");
        add_count(&t, "files", res.n_files);
        add_count(&t, "dirs", res.n_dirs);
        r = send_end(c, &t, res.limit_reached, &res.last, 0, e);
    }
    free(res.last.below);
    return r;
}

static int run_grep(struct search_call *c, int fd, struct err *e)
{
    const struct search_sink sink = {.result = on_match, .is_gone = search_is_gone, .arg = c};
    struct search_result res;
    struct jtext t;
    int r = search_run(fd, &c->p->grep, &c->access, &sink, &c->notes, &res, e);

    if (r == 0) {
        metrics_searched(res.n_bytes);
        begin_message(c, &t, "end");
        add_count(&t, "matches", res.n_results);
        add_count(&t, "files_matched", res.n_files_matched);
        add_count(&t, "files_searched", res.n_files);
        add_count(&t, "files_binary", res.n_files_binary);
        add_count(&t, "bytes_searched", res.n_bytes);
        r = send_end(c, &t, res.limit_reached, &res.last, res.n_of_last, e);
    }
    free(res.last.below);
    return r;
}

/* The thread has the caller's identity. */
static int search_as_user(struct search_call *c, struct fs_caller *caller, struct err *e)
{
    const char *path = c->p->path ? c->p->path : ".";
    _cleanup_close_ int fd = -1;
    _cleanup_free_ char *whole = NULL;
    int flags = O_RDONLY | (c->p->is_glob ? O_DIRECTORY : 0);
    int r = fs_open(caller, path, flags, 0, &fd, e);

    if (r < 0)
        return err_at(e, r, "path");
    whole = whole_path(caller, fd, path);
    if (!whole)
        return err_oom(e);
    set_tree(c->p, caller, whole);
    return c->p->is_glob ? run_glob(c, fd, e) : run_grep(c, fd, e);
}

static int search_work(struct queue *q, void *arg, struct err *e)
{
    struct search_params *p = arg;
    const struct agent *agent = p->agent;
    _cleanup_fs_caller_ struct fs_caller *caller = NULL;
    struct search_call *c;
    int r;

    r = fs_caller_new(agent->root, p->user ? p->user : agent->default_user, agent->workdir, &caller,
                      e);
    if (r < 0)
        return r;
    c = calloc(1, sizeof(*c)); /* holds the notes: large for a stack */
    if (!c)
        return err_oom(e);
    c->q = q;
    c->p = p;
    c->access = (struct tree_access){
        .open = access_open, .enter = access_enter, .leave = access_leave, .arg = caller};
    notes_init(&c->notes);
    buf_init(&c->line, LINE_MAX_BYTES);
    r = fs_actor_enter(&caller->actor, e);
    if (r == 0) {
        r = search_as_user(c, caller, e);
        fs_actor_leave(&caller->actor);
    }
    notes_done(&c->notes);
    buf_done(&c->line);
    free(c);
    return r;
}

static int search_start(const struct rpc_call *call, bool is_glob, struct source **ret,
                        struct err *e)
{
    struct search_params *p;
    int r = search_params_new(call, is_glob, &p, e);

    return r < 0 ? r : queue_source_new(search_work, p, search_params_free, ret, e);
}

int rpc_search_glob(const struct rpc_call *call, struct source **ret, struct err *e)
{
    return search_start(call, true, ret, e);
}

int rpc_search_grep(const struct rpc_call *call, struct source **ret, struct err *e)
{
    return search_start(call, false, ret, e);
}
