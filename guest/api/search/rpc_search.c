/*
 * search: Glob and Grep. Both run on a pool thread, with the rights of the box's user, and stream
 * what they find.
 */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "api/jtext.h"
#include "api/queue.h"
#include "api/rpc.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "fs/root.h"
#include "search/glob.h"
#include "search/search.h"
#include "system/metrics.h"

#define UNSET UINT32_MAX
#define LINE_MAX_BYTES QUEUE_TEXT_MAX_BYTES

/* A request, decoded into the options of guest/search, and its work. Holds the notes: large for a stack. */
struct search_call {
    json_t *source; /* a reference: strings below are borrowed from it */
    const struct agent *agent;
    bool is_glob;
    char *path; /* owned, as the lists of the options */
    const char *user;
    const char *cursor;
    uint64_t fingerprint;       /* of the request without its cursor and limit */
    uint32_t context;           /* the default of grep.grep.before and after */
    struct glob_options glob;   /* with is_glob */
    struct search_options grep; /* without */
    struct tree_options *tree;  /* the one of the two that counts, as order */
    struct order *order;
    /* the work's: */
    struct queue *q;
    struct tree_access access;
    struct notes notes;
    struct buf line; /* the message being written; results never come two at once */
};

/* --- fields --- */

static const char *const case_names[] = {"sensitive", "insensitive", "smart", NULL};
static const char *const mode_names[] = {
    "lines", "files", "count", "count_matches", "files_without_match", NULL};
static const char *const binary_names[] = {"skip", "report", "text", NULL};
static const char *const encoding_names[] = {"auto",     "none",   "utf-16le",
                                             "utf-16be", "latin1", NULL};
static const char *const kind_names[] = {"glob", "regex", "fixed", NULL};
static const char *const sort_names[] = {"none",    "path", "modified", "accessed",
                                         "changed", "size", NULL};
static const char *const type_names[] = {"file",       "directory", "symlink", "other",
                                         "executable", "empty",     NULL};

static int add_type(json_t *v, unsigned *found, struct err *e)
{
    unsigned type;
    int r = jx_one_of(v, type_names, &type, e);

    if (r == 0)
        *found |= 1u << type;
    return r;
}

/* One name or a list of them. */
static int decode_type(json_t *v, void *out, struct err *e)
{
    json_t *one;
    size_t i;

    if (!json_is_array(v))
        return add_type(v, out, e);
    json_array_foreach (v, i, one) {
        int r = add_type(one, out, e);

        if (r < 0)
            return r;
    }
    return 0;
}

#define FIELD(wire, member, fn) JX_AS(wire, struct search_call, member, fn, JX_NULLABLE)
#define ENUM(wire, member, names) JX_ENUM(wire, struct search_call, member, names, JX_NULLABLE)
#define RANGE(wire, member, min, max) \
    JX_RANGE(wire, struct search_call, member, jx_u32, JX_NULLABLE, min, max)

#define TREE_FIELD(o, name, fn) FIELD(#name, o.tree.name, fn)

/* o: the member of struct search_call that takes the options. */
#define COMMON_FIELDS(o) \
    FIELD("path", path, jx_path), FIELD("user", user, jx_str), FIELD("cursor", cursor, jx_str), \
        ENUM("sort", o.order.by, sort_names), FIELD("reverse", o.order.reverse, jx_bool), \
        TREE_FIELD(o, globs, jx_strv), TREE_FIELD(o, iglobs, jx_strv), \
        TREE_FIELD(o, exclude, jx_strv), TREE_FIELD(o, types, jx_strv), \
        TREE_FIELD(o, type_not, jx_strv), TREE_FIELD(o, type_add, jx_strv), \
        TREE_FIELD(o, hidden, jx_bool), TREE_FIELD(o, no_ignore, jx_bool), \
        TREE_FIELD(o, no_ignore_vcs, jx_bool), TREE_FIELD(o, no_ignore_parent, jx_bool), \
        TREE_FIELD(o, follow, jx_bool), TREE_FIELD(o, one_file_system, jx_bool), \
        TREE_FIELD(o, max_depth, jx_u32), TREE_FIELD(o, max_filesize, jx_u64)

static const struct jx_field glob_fields[] = {
    COMMON_FIELDS(glob),
    FIELD("pattern", glob.pattern, jx_str),
    ENUM("case", glob.letters, case_names),
    ENUM("kind", glob.kind, kind_names),
    FIELD("type", glob.types, decode_type),
    FIELD("full_path", glob.full_path, jx_bool),
    FIELD("extensions", glob.extensions, jx_strv),
    TREE_FIELD(glob, min_depth, jx_u32),
    FIELD("min_size", glob.min_size, jx_u64),
    FIELD("max_size", glob.max_size, jx_u64),
    FIELD("changed_after_ms", glob.changed_after_ms, jx_i64),
    FIELD("changed_before_ms", glob.changed_before_ms, jx_i64),
    FIELD("changed_within_ms", glob.changed_within_ms, jx_i64),
    FIELD("limit", glob.limit, jx_u64),
    {0},
};

static const struct jx_field grep_fields[] = {
    COMMON_FIELDS(grep),
    FIELD("pattern", grep.match.pattern, jx_str),
    FIELD("patterns", grep.match.more, jx_strv),
    ENUM("case", grep.match.letters, case_names),
    FIELD("fixed", grep.match.fixed, jx_bool),
    FIELD("word", grep.match.word, jx_bool),
    FIELD("line", grep.match.line, jx_bool),
    FIELD("multiline", grep.match.multiline, jx_bool),
    FIELD("dotall", grep.match.dotall, jx_bool),
    FIELD("crlf", grep.match.crlf, jx_bool),
    RANGE("context", context, 0, GREP_MAX_CONTEXT),
    RANGE("before", grep.grep.before, 0, GREP_MAX_CONTEXT),
    RANGE("after", grep.grep.after, 0, GREP_MAX_CONTEXT),
    FIELD("max_per_file", grep.grep.max_per_file, jx_u64),
    ENUM("mode", grep.grep.mode, mode_names),
    ENUM("binary", grep.grep.binary, binary_names),
    ENUM("encoding", grep.grep.encoding, encoding_names),
    FIELD("invert", grep.grep.invert, jx_bool),
    FIELD("only_matching", grep.grep.only_matching, jx_bool),
    FIELD("replace", grep.grep.replace, jx_str),
    RANGE("max_columns", grep.grep.max_text, 1, GREP_TEXT_MAX_BYTES),
    FIELD("max_count", grep.max_results, jx_u64),
    {0},
};

/* --- cursors --- */

static int check_cursor(struct search_call *p, struct err *e)
{
    struct order *order = p->order;
    _cleanup_json_ json_t *copy = NULL;
    _cleanup_free_ char *text = NULL;

    if (order->by == ORDER_NONE)
        return p->cursor ? err_field(e, ERR_INVALID, "cursor", "field 'cursor' is for 'sort'") : 0;
    copy = json_copy(p->source);
    if (copy) {
        (void)json_object_del(copy, "cursor");
        (void)json_object_del(copy, "limit");
        (void)json_object_del(copy, "max_count");
        text = json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS);
    }
    if (!text)
        return err_oom(e);
    p->fingerprint = order_fingerprint(text, strlen(text));
    if (!p->cursor)
        return 0;
    return order_cursor_read(p->cursor, p->fingerprint, &order->after, &p->grep.skip, e);
}

/* --- the request --- */

static int check_grep(const struct search_options *o, struct err *e)
{
    const char *field = o->grep.replace ? "replace" : "only_matching";

    if (!o->match.pattern && !strv_len(o->match.more))
        return err_field(e, ERR_INVALID, "pattern", "field 'pattern' is required");
    if ((o->grep.replace || o->grep.only_matching) && o->grep.mode != GREP_LINES)
        return err_field(e, ERR_INVALID, field, "field '%s' is for mode \"lines\"", field);
    return 0;
}

static int check_request(struct search_call *p, struct err *e)
{
    const struct order *order = p->order;
    int r;

    if (p->grep.match.dotall && !p->grep.match.multiline)
        return err_field(e, ERR_INVALID, "dotall", "field 'dotall' is for 'multiline'");
    if (order->reverse && order->by == ORDER_NONE)
        return err_field(e, ERR_INVALID, "reverse", "field 'reverse' is for 'sort'");
    r = p->is_glob ? 0 : check_grep(&p->grep, e);
    return r < 0 ? r : check_cursor(p, e);
}

static void set_grep_defaults(struct search_call *p)
{
    struct match_options *match = &p->grep.match;
    struct grep_options *grep = &p->grep.grep;

    if (grep->before == UNSET)
        grep->before = p->context;
    if (grep->after == UNSET)
        grep->after = p->context;
    grep->multiline = match->multiline;
    grep->crlf = match->crlf;
    match->len = match->pattern ? strlen(match->pattern) : 0;
    match->groups = grep->replace;
    p->grep.order.with_after = true;
}

/* jx_strv made it; the options only borrow. */
static void free_list(char *const *list)
{
    strv_free((char **)(uintptr_t)list);
}

static void search_params_free(void *arg)
{
    struct search_call *p = arg;
    const struct tree_options *t;

    if (!p)
        return;
    t = p->tree;
    free(p->path);
    free(p->order->after.below);
    free_list(t->globs);
    free_list(t->iglobs);
    free_list(t->exclude);
    free_list(t->types);
    free_list(t->type_not);
    free_list(t->type_add);
    free_list(p->glob.extensions);
    free_list(p->grep.match.more);
    json_decref(p->source);
    notes_done(&p->notes);
    buf_done(&p->line);
    free(p);
}

static int search_params_new(const struct rpc_call *call, bool is_glob, struct search_call **ret,
                             struct err *e)
{
    struct search_call *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return err_oom(e);
    p->source = json_incref(call->params);
    p->agent = call->agent;
    p->is_glob = is_glob;
    p->tree = is_glob ? &p->glob.tree : &p->grep.tree;
    p->order = is_glob ? &p->glob.order : &p->grep.order;
    *p->tree = (struct tree_options){.max_depth = UINT32_MAX, .max_filesize = UINT64_MAX};
    p->glob.max_size = UINT64_MAX;
    p->grep.grep =
        (struct grep_options){.before = UNSET, .after = UNSET, .max_per_file = UINT64_MAX};
    notes_init(&p->notes);
    buf_init(&p->line, LINE_MAX_BYTES);
    r = jx_decode(call->params, is_glob ? glob_fields : grep_fields, p, e);
    if (r == 0)
        r = check_request(p, e);
    if (r < 0) {
        search_params_free(p);
        return r;
    }
    set_grep_defaults(p);
    *ret = p;
    return 0;
}

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

static bool search_is_gone(void *arg)
{
    return queue_is_gone(((struct search_call *)arg)->q);
}

/* The options that no request has. */
static void set_tree(struct search_call *p, const struct fs_caller *c, const char *whole)
{
    struct tree_options *tree = p->tree;
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
        r = order_cursor_new(c->fingerprint, last, n_of_last, &cursor, e);
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
    enum grep_mode mode = c->grep.grep.mode;
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
    jtext_str(&t, type_names[entry->type]);
    return send_message(c, &t, e);
}

/* --- the work --- */

static int run_glob(struct search_call *c, int fd, struct err *e)
{
    const struct glob_sink sink = {.found = on_found, .is_gone = search_is_gone, .arg = c};
    struct glob_result res;
    struct jtext t;
    int r = glob_run(fd, &c->glob, &c->access, &sink, &c->notes, &res, e);

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
    int r = search_run(fd, &c->grep, &c->access, &sink, &c->notes, &res, e);

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
    const char *path = c->path ? c->path : ".";
    _cleanup_close_ int fd = -1;
    _cleanup_free_ char *whole = NULL;
    int flags = O_RDONLY | (c->is_glob ? O_DIRECTORY : 0);
    int r = fs_open(caller, path, flags, 0, &fd, e);

    if (r < 0)
        return err_at(e, r, "path");
    whole = whole_path(caller, fd, path);
    if (!whole)
        return err_oom(e);
    set_tree(c, caller, whole);
    return c->is_glob ? run_glob(c, fd, e) : run_grep(c, fd, e);
}

static int search_work(struct queue *q, void *arg, struct err *e)
{
    struct search_call *c = arg;
    const struct agent *agent = c->agent;
    _cleanup_fs_caller_ struct fs_caller *caller = NULL;
    int r = fs_caller_new(agent->root, c->user ? c->user : agent->default_user, agent->workdir,
                          &caller, e);

    if (r < 0)
        return r;
    c->q = q;
    c->access = (struct tree_access){
        .open = access_open, .enter = access_enter, .leave = access_leave, .arg = caller};
    r = fs_actor_enter(&caller->actor, e);
    if (r < 0)
        return r;
    r = search_as_user(c, caller, e);
    fs_actor_leave(&caller->actor);
    return r;
}

static int search_start(const struct rpc_call *call, bool is_glob, struct source **ret,
                        struct err *e)
{
    struct search_call *p;
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
