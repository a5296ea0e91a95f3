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
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "fs/root.h"
#include "rpc/agent.h"
#include "rpc/queue.h"
#include "rpc/rpc.h"
#include "search/glob.h"
#include "search/search.h"
#include "system/metrics.h"

#include "common/banned.h"

#define MESSAGE_BYTES 256 /* about what a message weighs besides its text */
#define UNSET UINT32_MAX

struct params {
    json_t *source; /* a reference: strings below are borrowed from it */
    const struct agent *agent;
    bool is_glob;

    const char *pattern;
    char *path; /* owned, as the lists */
    const char *user;
    char **globs;
    char **types;
    char **type_not;
    bool hidden;
    bool no_ignore;
    uint32_t max_depth;
    uint64_t max_filesize;
    uint64_t limit;
    bool sort;
    unsigned type; /* glob: an enum tree_type + 1, 0 for all */

    uint32_t context;
    uint32_t before;
    uint32_t after;
    uint64_t max_per_file;
    unsigned letters; /* enum match_case */
    unsigned mode;    /* enum grep_mode */
    unsigned binary;  /* enum grep_binary */
    bool fixed;
    bool word;
    bool line;
    bool invert;
    bool multiline;
    bool dotall;
};

/* --- decoding --- */

static int one_of(json_t *v, const char *const *names, unsigned *out, struct err *e)
{
    const char *s = json_string_value(v);
    char list[128] = "";
    size_t n = 0;

    for (unsigned i = 0; names[i]; i++) {
        if (s && strcmp(s, names[i]) == 0) {
            *out = i;
            return 0;
        }
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s\"%s\"", i ? ", " : "", names[i]);
    }
    return err_set(e, ERR_INVALID, "must be one of %s", list);
}

static int decode_case(json_t *v, void *out, struct err *e)
{
    static const char *const names[] = {"sensitive", "insensitive", "smart", NULL};

    return one_of(v, names, out, e);
}

static int decode_mode(json_t *v, void *out, struct err *e)
{
    static const char *const names[] = {"lines", "files", "count", NULL};

    return one_of(v, names, out, e);
}

static int decode_binary(json_t *v, void *out, struct err *e)
{
    static const char *const names[] = {"skip", "report", "text", NULL};

    return one_of(v, names, out, e);
}

static const char *const type_names[] = {"file", "directory", "symlink", "other", NULL};

static int decode_type(json_t *v, void *out, struct err *e)
{
    unsigned type;
    int r = one_of(v, type_names, &type, e);

    if (r == 0)
        *(unsigned *)out = type + 1;
    return r;
}

static int decode_sort(json_t *v, void *out, struct err *e)
{
    static const char *const names[] = {"path", NULL};
    unsigned ignored;
    int r = one_of(v, names, &ignored, e);

    if (r == 0)
        *(bool *)out = true;
    return r;
}

static int decode_context(json_t *v, void *out, struct err *e)
{
    uint32_t n;
    int r = jx_u32(v, &n, e);

    if (r == 0 && n > GREP_MAX_CONTEXT)
        r = err_set(e, ERR_INVALID, "must be at most %d", GREP_MAX_CONTEXT);
    if (r == 0)
        *(uint32_t *)out = n;
    return r;
}

#define COMMON_FIELDS \
    JX(struct params, path, jx_path, JX_NULLABLE), JX(struct params, user, jx_str, JX_NULLABLE), \
        JX(struct params, globs, jx_strv, JX_NULLABLE), \
        JX(struct params, types, jx_strv, JX_NULLABLE), \
        JX(struct params, type_not, jx_strv, JX_NULLABLE), \
        JX(struct params, hidden, jx_bool, JX_NULLABLE), \
        JX(struct params, no_ignore, jx_bool, JX_NULLABLE), \
        JX(struct params, max_depth, jx_u32, JX_NULLABLE), \
        JX(struct params, max_filesize, jx_u64, JX_NULLABLE), \
        JX(struct params, sort, decode_sort, JX_NULLABLE)

static const struct jx_field glob_fields[] = {
    COMMON_FIELDS,
    JX(struct params, pattern, jx_str, JX_NULLABLE),
    JX(struct params, type, decode_type, JX_NULLABLE),
    JX(struct params, limit, jx_u64, JX_NULLABLE),
    {0},
};

static const struct jx_field grep_fields[] = {
    COMMON_FIELDS,
    JX(struct params, pattern, jx_str, JX_REQUIRED),
    JX(struct params, context, decode_context, JX_NULLABLE),
    JX(struct params, before, decode_context, JX_NULLABLE),
    JX(struct params, after, decode_context, JX_NULLABLE),
    JX_AS("max_count", struct params, limit, jx_u64, JX_NULLABLE),
    JX(struct params, max_per_file, jx_u64, JX_NULLABLE),
    JX_AS("case", struct params, letters, decode_case, JX_NULLABLE),
    JX(struct params, mode, decode_mode, JX_NULLABLE),
    JX(struct params, binary, decode_binary, JX_NULLABLE),
    JX(struct params, fixed, jx_bool, JX_NULLABLE),
    JX(struct params, word, jx_bool, JX_NULLABLE),
    JX(struct params, line, jx_bool, JX_NULLABLE),
    JX(struct params, invert, jx_bool, JX_NULLABLE),
    JX(struct params, multiline, jx_bool, JX_NULLABLE),
    JX(struct params, dotall, jx_bool, JX_NULLABLE),
    {0},
};

static void params_free(void *arg)
{
    struct params *p = arg;

    if (!p)
        return;
    free(p->path);
    strv_free(p->globs);
    strv_free(p->types);
    strv_free(p->type_not);
    json_decref(p->source);
    free(p);
}

static int params_new(const struct rpc_call *call, const struct jx_field *fields,
                      struct params **ret, struct err *e)
{
    struct params *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return err_oom(e);
    *p = (struct params){.source = json_incref(call->params),
                         .agent = call->agent,
                         .is_glob = fields == glob_fields,
                         .max_depth = UINT32_MAX,
                         .max_filesize = UINT64_MAX,
                         .max_per_file = UINT64_MAX,
                         .before = UNSET,
                         .after = UNSET};
    r = jx_decode(call->params, fields, p, e);
    if (r == 0 && p->dotall && !p->multiline)
        r = err_field(e, ERR_INVALID, "dotall", "field 'dotall' is for 'multiline'");
    if (r < 0) {
        params_free(p);
        return r;
    }
    if (p->before == UNSET)
        p->before = p->context;
    if (p->after == UNSET)
        p->after = p->context;
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

struct run {
    struct queue *q;
    const struct params *p;
    struct tree_access access;
    struct tree_options tree;
    struct notes notes;
};

static bool run_is_gone(void *arg)
{
    return queue_is_gone(((struct run *)arg)->q);
}

static void set_tree(struct run *run, const struct fs_caller *c, const char *whole)
{
    const struct params *p = run->p;
    const char *home = c->actor.user.home;

    run->tree = (struct tree_options){
        .shown = p->path ? p->path : "",
        .whole = whole,
        .hidden = p->hidden,
        .no_ignore = p->no_ignore,
        .sort = p->sort,
        .max_depth = p->max_depth,
        .max_filesize = p->max_filesize,
        .globs = p->globs,
        .types = p->types,
        .type_not = p->type_not,
        .home = home && strcmp(home, "/") != 0 ? home : NULL,
        .skip_prefix = FS_TEMP_PREFIX,
        .n_workers = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? TREE_MAX_WORKERS : 1,
    };
}

/* --- encoding --- */

static int push(struct run *run, const char *name, json_t *body_taken, size_t weight, struct err *e)
{
    json_t *msg = body_taken ? json_object() : NULL;

    if (msg && json_object_set_new(msg, name, body_taken) < 0) {
        json_decref(msg);
        msg = NULL;
    } else if (!msg) {
        json_decref(body_taken);
    }
    return msg ? queue_push_take(run->q, msg, weight + MESSAGE_BYTES, e) : err_oom(e);
}

static json_t *new_incomplete(struct notes *n)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < n->n; i++) {
        json_t *path = jx_new_path(n->list[i].path);

        (void)json_array_append_new(
            list, json_pack("{s:o, s:s}", "path", path, "error", n->list[i].error));
    }
    return list;
}

static int push_end(struct run *run, json_t *body_taken, bool limit_reached, struct err *e)
{
    uint64_t more = run->notes.total - run->notes.n;

    (void)json_object_set_new(body_taken, "incomplete", new_incomplete(&run->notes));
    if (more) /* only so many are listed */
        (void)json_object_set_new(body_taken, "incomplete_more", json_integer((json_int_t)more));
    (void)json_object_set_new(body_taken, "limit_reached", json_boolean(limit_reached));
    return push(run, "end", body_taken, run->notes.n * MESSAGE_BYTES, e);
}

static int add_text(json_t *obj, const struct grep_line *l, struct err *e)
{
    int r = jx_add_bytes(obj, l->text, l->len, e);

    if (r == 0 && l->truncated)
        r = json_object_set_new(obj, "truncated", json_true()) < 0 ? err_oom(e) : 0;
    return r;
}

static json_t *new_lines(const struct grep_line *lines, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < n; i++) {
        json_t *one = json_pack("{s:I}", "line", (json_int_t)lines[i].number);

        if (!one || add_text(one, &lines[i], NULL) < 0 || json_array_append(list, one) < 0) {
            json_decref(list);
            list = NULL;
        }
        json_decref(one);
    }
    return list;
}

static json_t *new_spans(const struct match_span *spans, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < n; i++)
        (void)json_array_append_new(
            list, json_pack("[I,I]", (json_int_t)spans[i].start, (json_int_t)spans[i].end));
    return list;
}

/* What a match says besides its path. */
static int add_lines(json_t *obj, const struct grep_result *r, struct err *e)
{
    int ret;

    (void)json_object_set_new(obj, "line", json_integer((json_int_t)r->line.number));
    if (r->n_spans)
        (void)json_object_set_new(obj, "column", json_integer((json_int_t)r->spans[0].start + 1));
    (void)json_object_set_new(obj, "offset", json_integer((json_int_t)r->offset));
    ret = add_text(obj, &r->line, e);
    if (ret < 0)
        return ret;
    if (json_object_set_new(obj, "submatches", new_spans(r->spans, r->n_spans)) < 0 ||
        json_object_set_new(obj, "before", new_lines(r->before, r->n_before)) < 0 ||
        json_object_set_new(obj, "after", new_lines(r->after, r->n_after)) < 0)
        return err_oom(e);
    return 0;
}

static size_t weight_of(const char *path, const struct grep_result *r)
{
    size_t n = strlen(path) + r->line.len + 64 * r->n_spans;

    for (size_t i = 0; i < r->n_before; i++)
        n += r->before[i].len + 64;
    for (size_t i = 0; i < r->n_after; i++)
        n += r->after[i].len + 64;
    return n;
}

static int on_match(void *arg, const char *path, const struct grep_result *res, struct err *e)
{
    struct run *run = arg;
    json_t *obj = json_pack("{s:o}", "path", jx_new_path(path));
    int r = obj ? 0 : err_oom(e);

    if (r == 0 && res->is_binary)
        r = json_object_update_new(
            obj, json_pack("{s:b, s:I}", "binary", 1, "offset", (json_int_t)res->offset));
    else if (r == 0 && run->p->mode == GREP_COUNT)
        r = json_object_set_new(obj, "count", json_integer((json_int_t)res->count));
    else if (r == 0 && run->p->mode == GREP_LINES)
        r = add_lines(obj, res, e);
    if (r < 0) {
        json_decref(obj);
        return err_oom(e);
    }
    return push(run, "match", obj, weight_of(path, res), e);
}

static int on_found(void *arg, const struct tree_entry *entry, struct err *e)
{
    json_t *obj =
        json_pack("{s:o, s:s}", "path", jx_new_path(entry->path), "type", type_names[entry->type]);

    return push(arg, "file", obj, entry->path_len, e);
}

/* --- the work --- */

static int run_glob(struct run *run, int fd, struct err *e)
{
    const struct params *p = run->p;
    const struct glob_options o = {
        .tree = run->tree,
        .pattern = p->pattern,
        .files = !p->type || p->type == TREE_FILE + 1,
        .dirs = !p->type || p->type == TREE_DIR + 1,
        .symlinks = !p->type || p->type == TREE_SYMLINK + 1,
        .others = !p->type || p->type == TREE_OTHER + 1,
        .limit = p->limit,
    };
    const struct glob_sink sink = {.found = on_found, .is_gone = run_is_gone, .arg = run};
    struct glob_result res;
    int r = glob_run(fd, &o, &run->access, &sink, &run->notes, &res, e);

    if (r < 0)
        return r;
    return push_end(
        run,
        json_pack("{s:I, s:I}", "files", (json_int_t)res.n_files, "dirs", (json_int_t)res.n_dirs),
        res.limit_reached, e);
}

static int run_grep(struct run *run, int fd, struct err *e)
{
    const struct params *p = run->p;
    const struct search_options o = {
        .tree = run->tree,
        .match = {.pattern = p->pattern,
                  .len = strlen(p->pattern),
                  .letters = (enum match_case)p->letters,
                  .fixed = p->fixed,
                  .word = p->word,
                  .line = p->line,
                  .multiline = p->multiline,
                  .dotall = p->dotall},
        .grep = {.mode = (enum grep_mode)p->mode,
                 .binary = (enum grep_binary)p->binary,
                 .invert = p->invert,
                 .multiline = p->multiline,
                 .before = p->before,
                 .after = p->after,
                 .max_per_file = p->max_per_file},
        .max_results = p->limit,
    };
    const struct search_sink sink = {.result = on_match, .is_gone = run_is_gone, .arg = run};
    struct search_result res;
    int r = search_run(fd, &o, &run->access, &sink, &run->notes, &res, e);

    if (r < 0)
        return r;
    metrics_searched(res.n_bytes);
    return push_end(run,
                    json_pack("{s:I, s:I, s:I, s:I, s:I}", "matches", (json_int_t)res.n_results,
                              "files_matched", (json_int_t)res.n_files_matched, "files_searched",
                              (json_int_t)res.n_files, "files_binary",
                              (json_int_t)res.n_files_binary, "bytes_searched",
                              (json_int_t)res.n_bytes),
                    res.limit_reached, e);
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
    const struct params *p = arg;
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
    r = fs_actor_enter(&c->actor, e);
    if (r == 0) {
        r = run_as(run, c, e);
        fs_actor_leave(&c->actor);
    }
    notes_done(&run->notes);
    free(run);
    return r;
}

int rpc_search_glob(const struct rpc_call *call, struct source **ret, struct err *e)
{
    struct params *p;
    int r = params_new(call, glob_fields, &p, e);

    return r < 0 ? r : queue_source_new(work, p, params_free, ret, e);
}

int rpc_search_grep(const struct rpc_call *call, struct source **ret, struct err *e)
{
    struct params *p;
    int r = params_new(call, grep_fields, &p, e);

    return r < 0 ? r : queue_source_new(work, p, params_free, ret, e);
}
