/*
 * archive_get: a tree as an archive, made while it is sent; by POST only what the body names. What
 * could not be read is counted and named in trailers, since it is known only at the end.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "archive/create.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "http/body.h"
#include "api/files/files.h"
#include "api/dialect.h"
#include "http/respond.h"
#include "http/route.h"

#define MAX_EXCLUDES 1000
#define MAX_LIST_BYTES (64 * 1024 * 1024) /* of the names in a POST: a million of 64 bytes */
#define MAX_NAMES_BYTES 4096              /* of what was left out, in a trailer */

struct archive_get {
    struct ask ask;
    _Atomic int refs; /* the request's and the feed's */
    char *path;
    char *user;
    char *cwd;
    char **excludes;
    struct buf only; /* a POST's body: names, each with a NUL */
    struct archive_create_options options;
    struct archive_create *create;
    struct fs_caller *caller;
};

static void get_unref(void *state)
{
    struct archive_get *g = state;

    if (--g->refs > 0)
        return;
    archive_create_free(g->create);
    fs_caller_unref(g->caller);
    free(g->path);
    free(g->user);
    free(g->cwd);
    strv_free(g->excludes);
    buf_done(&g->only);
    free(g);
}

static int get_format(struct request *q, const struct archive_format **ret, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    int r;

    r = request_query(q, "format", &text, e);
    if (r < 0)
        return r;
    return archive_format_parse(text ? text : "tar", ret, e);
}

static int get_options(struct request *q, struct archive_get *g, struct err *e)
{
    /* A POST names what it wants. */
    static const char *const named[] = {"path",         "user", "cwd", "format",
                                        "reproducible", "pad",  NULL};
    static const char *const filtered[] = {"path",   "user",         "cwd", "format", "exclude",
                                           "ignore", "reproducible", "pad", NULL};
    int r;

    if ((r = files_check_query(q, q->verb == VERB_POST ? named : filtered, e)) < 0 ||
        (r = request_query(q, "path", &g->path, e)) < 0 ||
        (r = request_query(q, "user", &g->user, e)) < 0 ||
        (r = request_query(q, "cwd", &g->cwd, e)) < 0 ||
        (r = get_format(q, &g->options.format, e)) < 0 ||
        (r = request_query_bool(q, "reproducible", &g->options.reproducible, e)) < 0 ||
        (r = request_query_bool(q, "ignore", &g->options.filter.ignore, e)) < 0 ||
        (r = request_query_bool(q, "pad", &g->options.pad, e)) < 0 ||
        (r = uri_query_all(q->query, "exclude", MAX_EXCLUDES, &g->excludes, e)) < 0)
        return r;
    g->options.filter.excludes = g->excludes;
    if (!g->path || !*g->path)
        return err_field(e, ERR_INVALID, "path", "parameter 'path' is required");
    return 0;
}

static int get_begin(struct request *q, struct err *e)
{
    struct archive_get *g = calloc(1, sizeof(*g));

    if (!g)
        return err_oom(e);
    g->refs = 1;
    buf_init(&g->only, MAX_LIST_BYTES);
    q->state = g;
    q->free_state = get_unref;
    return get_options(q, g, e);
}

/* The names that a POST asks for. */
static int get_body(struct request *q, const char *data, size_t *len, struct err *e)
{
    struct archive_get *g = q->state;
    int r;

    if (q->verb != VERB_POST)
        return err_set(e, ERR_INVALID, "a GET takes no body");
    r = buf_add(&g->only, data, *len, e);
    *len = 0;
    return r < 0 ? err_sys(e, EFBIG, "the list of names has more than %d bytes", MAX_LIST_BYTES)
                 : 0;
}

/* Relative, and without "..". */
static bool is_below(const char *name)
{
    const char *at = name;

    while (at && (strncmp(at, "..", 2) != 0 || (at[2] && at[2] != '/'))) {
        at = strchr(at, '/');
        at += at != NULL;
    }
    return !at && name[0] != '/';
}

static int check_list(struct request *q, struct archive_get *g, struct err *e)
{
    if (q->verb != VERB_POST)
        return 0;
    if (!g->only.len || g->only.data[g->only.len - 1])
        return err_set(e, ERR_INVALID, "the body must be names, each ended by a NUL");
    /* Now, while it can still be said: the walk meets the name when the answer has begun. */
    for (const char *p = g->only.data; p < g->only.data + g->only.len; p += strlen(p) + 1)
        if (!is_below(p))
            return err_set(e, ERR_INVALID, "'%.200s' is not below the directory", p);
    g->options.only = g->only.data;
    g->options.only_bytes = g->only.len;
    return 0;
}

static void open_tree(struct request *q)
{
    struct archive_get *g = q->state;

    g->ask.r = files_caller_new(q, g->user, g->cwd, &g->caller, &g->ask.error);
    if (g->ask.r == 0)
        g->ask.r = archive_create_new(g->caller, g->path, &g->options, &g->create, &g->ask.error);
    request_answer(q, &g->ask);
}

static int read_archive(void *from, void *data, size_t size, size_t *ret_len, struct err *e)
{
    struct archive_get *g = from;

    return archive_create_read(g->create, data, size, ret_len, e);
}

/* "dir/x: permission denied; y: ..." in printable ASCII, as a header's value has to be. */
static void add_names(const struct notes *n, struct reply *response)
{
    _cleanup_buf_ struct buf text;

    buf_init(&text, MAX_NAMES_BYTES);
    for (size_t i = 0; i < n->n; i++)
        if (buf_addf(&text, NULL, "%s%s: %s", i ? "; " : "", n->list[i].path, n->list[i].error) < 0)
            break;
    for (size_t i = 0; i < text.len; i++)
        if (text.data[i] < ' ' || text.data[i] > '~')
            text.data[i] = '?';
    if (text.len)
        reply_add_trailer(response, "Bellhop-Left-Out-Names", text.data);
}

static void add_counts(void *from, struct reply *response)
{
    const struct archive_get *g = from;
    struct archive_create_counts counts;
    char text[32];

    archive_create_counts(g->create, &counts);
    (void)snprintf(text, sizeof(text), "%" PRIu64, counts.entries);
    reply_add_trailer(response, "Bellhop-Entries", text);
    (void)snprintf(text, sizeof(text), "%" PRIu64, counts.left_out);
    reply_add_trailer(response, "Bellhop-Left-Out", text);
    add_names(archive_create_left_out(g->create), response);
    (void)snprintf(text, sizeof(text), "%" PRIu64, counts.changed);
    reply_add_trailer(response, "Bellhop-Changed", text);
}

static const struct feed_ops archive_feed = {.pump = {.read = read_archive, .close = get_unref},
                                             .ended = add_counts};

static int get_reply(struct request *q, struct archive_get *g, struct err *e)
{
    struct reply *response = NULL;
    int r;

    g->refs++; /* the feed's */
    r = feed_response_take(q, REPLY_SIZE_UNKNOWN, &archive_feed, g, &response, e);
    if (r < 0)
        return r;
    reply_add_header(response, "Content-Type", g->options.format->media_type);
    reply_add_header(response, "Trailer",
                     "Bellhop-Entries, Bellhop-Left-Out, Bellhop-Left-Out-Names, Bellhop-Changed");
    return respond_queue(q, HTTP_OK, response, e);
}

static int get_finish(struct request *q, struct err *e)
{
    struct archive_get *g = q->state;
    int r = g->ask.is_asked ? 0 : check_list(q, g, e);

    if (r == 0)
        r = request_ask(q, &g->ask, open_tree, e);
    if (r == REQUEST_PARKED)
        return 0;
    return r < 0 ? r : get_reply(q, g, e);
}

const struct request_ops archive_get_ops = {
    .begin = get_begin, .body = get_body, .finish = get_finish};
