/* sandboxd_files: the entries of a directory, in the forms of both runtimes; existence; downloads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/files/files.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "dialect/sandboxd/sandboxd.h"
#include "fs/stat.h"
#include "http/respond.h"

/* ---- the entries of a directory ---- */

typedef json_t *(*entry_fn)(const struct fs_info *i, const char *name, const char *type);

/* "2026-11-22T01:35:00Z": a client's parser may know no nanoseconds. */
static json_t *new_entry(const struct fs_info *i, const char *name, const char *type)
{
    char mode[8], mtime[FS_JSON_TIME_BYTES];
    struct timespec whole = {.tv_sec = i->st.st_mtim.tv_sec};

    fs_json_time(&whole, mtime);
    (void)memcpy(strchr(mtime, '.'), "Z", 2);
    (void)snprintf(mode, sizeof(mode), "%04o", (unsigned)(i->st.st_mode & 0777));
    return json_pack("{s:s, s:I, s:s, s:s, s:s}", "name", name, "size", (json_int_t)i->st.st_size,
                     "type", type, "modified_at", mtime, "mode", mode);
}

static json_t *new_legacy_entry(const struct fs_info *i, const char *name, const char *type)
{
    return json_pack("{s:s, s:I, s:s, s:f}", "name", name, "size", (json_int_t)i->st.st_size,
                     "type", type, "mod_time",
                     (double)i->st.st_mtim.tv_sec + (double)i->st.st_mtim.tv_nsec / 1e9);
}

/* A link counts as what it leads to; one that leads nowhere, or out, is left out. */
static int add_entry(struct fs_caller *c, const struct fs_info *entry, entry_fn make, json_t *list,
                     struct err *e)
{
    const struct fs_stat_options follow = {.follow = true};
    _cleanup_(fs_info_done) struct fs_info target = {0};
    _cleanup_free_ char *name = strdup(path_name(entry->path));
    const struct fs_info *i = entry;

    if (!name)
        return err_oom(e);
    if (entry->error.code)
        return 0;
    if (S_ISLNK(entry->st.st_mode)) {
        if (fs_stat(c, entry->path, &follow, &target, NULL) < 0)
            return 0;
        i = &target;
    }
    str_make_utf8(name);
    return json_array_append_new(list,
                                 make(i, name, S_ISDIR(i->st.st_mode) ? "directory" : "file")) < 0
               ? err_oom(e)
               : 0;
}

static int new_entries(struct fs_caller *c, const char *path, entry_fn make, json_t **ret,
                       struct err *e)
{
    const struct fs_list_options o = {.depth = 1, .limit = FS_LIST_MAX};
    _cleanup_(fs_listing_done) struct fs_listing listing = {0};
    _cleanup_json_ json_t *list = json_array();
    int r = list ? fs_list(c, path, &o, &listing, e) : err_oom(e);

    if (r == 0 && listing.next)
        r = err_set(e, ERR_EXHAUSTED, "a directory of more than %d entries: Fs/List has pages",
                    FS_LIST_MAX);
    for (size_t i = 0; r == 0 && i < listing.n_entries; i++)
        r = add_entry(c, &listing.entries[i], make, list, e);
    if (r == 0)
        *ret = json_incref(list);
    return r;
}

int sandboxd_list_directory(struct fs_caller *c, const char *path, json_t **ret, struct err *e)
{
    json_t *entries = NULL;
    _cleanup_free_ char *text = NULL;
    int r = new_entries(c, path, new_entry, &entries, e);

    if (r < 0)
        return r;
    path = strcmp(path, ".") == 0 ? "" : path;
    if (asprintf(&text, "%s%s", path[0] == '/' ? "" : "/", path) < 0) {
        json_decref(entries);
        text = NULL;
        return err_oom(e);
    }
    str_make_utf8(text);
    return rpc_reply_take(json_pack("{s:s, s:o}", "path", text, "entries", entries), ret, e);
}

/* ---- GET /list/{path}, /exists/{path} ---- */

struct look {
    struct ask ask;
    const char *path; /* in the request's */
    json_t *reply;
};

static void free_look(void *state)
{
    struct look *l = state;

    json_decref(l->reply);
    free(l);
}

static int look_begin(struct request *q, struct err *e)
{
    struct look *l = calloc(1, sizeof(*l));

    if (!l)
        return err_oom(e);
    q->state = l;
    q->free_state = free_look;
    return sandboxd_path(q->rest, &l->path, e);
}

static int look_list(struct request *q, struct look *l, struct err *e)
{
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    int r = files_caller_new(q, NULL, NULL, &c, e);

    return r < 0 ? r : new_entries(c, l->path, new_legacy_entry, &l->reply, e);
}

static int look_exists(struct request *q, struct look *l, struct err *e)
{
    const struct fs_stat_options follow = {.follow = true};
    _cleanup_(fs_info_done) struct fs_info info = {0};
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    _cleanup_free_ char *text = strdup(q->rest);
    struct err why = {0};
    int r = text ? files_caller_new(q, NULL, NULL, &c, e) : err_oom(e);

    if (r < 0)
        return r;
    r = fs_stat(c, l->path, &follow, &info, &why);
    if (r < 0 && r != -ERR_NOT_FOUND && r != -ERR_DENIED) {
        if (e)
            *e = why;
        return r;
    }
    str_make_utf8(text);
    return rpc_reply_take(json_pack("{s:s, s:b}", "path", text, "exists", r == 0), &l->reply, e);
}

static void list_job(struct request *q)
{
    struct look *l = q->state;

    l->ask.r = look_list(q, l, &l->ask.error);
    request_answer(q, &l->ask);
}

static void exists_job(struct request *q)
{
    struct look *l = q->state;

    l->ask.r = look_exists(q, l, &l->ask.error);
    request_answer(q, &l->ask);
}

static int look_reply(struct request *q, int r, struct err *e)
{
    const struct look *l = q->state;

    if (r != 0)
        return r == REQUEST_PARKED ? 0 : r;
    return respond_json(q, HTTP_OK, l->reply, e);
}

static int list_finish(struct request *q, struct err *e)
{
    struct look *l = q->state;

    return look_reply(q, request_ask(q, &l->ask, list_job, e), e);
}

static int exists_finish(struct request *q, struct err *e)
{
    struct look *l = q->state;

    return look_reply(q, request_ask(q, &l->ask, exists_job, e), e);
}

const struct request_ops sandboxd_list_ops = {.begin = look_begin, .finish = list_finish};
const struct request_ops sandboxd_exists_ops = {.begin = look_begin, .finish = exists_finish};

/* ---- GET /download/{path}: as the native route has it, from below the workdir ---- */

static int download_begin(struct request *q, struct err *e)
{
    const char *path;
    int r = sandboxd_path(q->rest, &path, e);

    if (r < 0)
        return r;
    if (strcmp(path, ".") != 0)
        (void)memmove(q->rest, path, strlen(path) + 1);
    return file_get_ops.begin(q, e);
}

static int download_finish(struct request *q, struct err *e)
{
    return file_get_ops.finish(q, e);
}

const struct request_ops sandboxd_download_ops = {.begin = download_begin,
                                                  .finish = download_finish};
