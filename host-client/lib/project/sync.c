#include "lib/project/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/beneath.h"
#include "lib/project/project_archive.h"
#include "lib/project/gitfiles.h"
#include "lib/project/sync_list.h"
#include "lib/project/sync_local.h"

#define REMOVALS_NAME ".bellhop-tmp-removals" /* as in guest/archive/extract.h */
/* a file may grow so much between the list and the archive */
#define GROWTH_BYTES (64ull * 1024 * 1024)
#define REMEMBER_BYTES (1024u * 1024)       /* for parent directories, */
#define REMEMBER_NAME_BYTES 256u            /* and for each name */
#define NAMES_MAX_BYTES (64u * 1024 * 1024) /* the agent accepts so much in one list */
#define MODE_TEXT_BYTES 8
#define TIME_TEXT_BYTES 64

struct sync {
    const struct sync_request *req;
    struct sync_list local, remote, base;
    struct gitfiles files; /* `local`'s files on this machine; later the files that are sent */
    struct sync_list *src, *dst;
    struct sync_local here;
    bool is_there;       /* the directory in the box */
    struct buf removals; /* names with a NUL each; a directory's content before the directory */
    uint64_t n_removals;
    struct sync_result done;
};

bool sync_is_excluded(const struct sync_request *req, const char *name)
{
    for (const char *const *p = req->excludes; p && *p; p++) {
        bool is_path = strchr(*p, '/') != NULL;
        /* as in the agent, a leading slash means the root */
        const char *glob = *p + strspn(*p, "/");
        _cleanup_free_ char *copy = strdup(name);
        char *end = copy;

        /* Match the name and each of its parent directories. */
        while (copy && end) {
            end = strchr(end, '/');
            if (end)
                *end = '\0';
            if (fnmatch(glob, is_path ? copy : path_name(copy), is_path ? FNM_PATHNAME : 0) == 0)
                return true;
            if (end)
                *end++ = '/';
        }
    }
    return false;
}

static int report_action(const struct sync *s, const char *what, const char *name, struct err *e)
{
    if (s->req->change && s->req->change(s->req->change_arg, what, name) != 0)
        return err_set(e, ERR_CANCELED, "canceled by the caller");
    return 0;
}

/* ---- what differs ---------------------------------------------------------------------------- */

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static enum sync_action compare_files(const struct sync *s, const struct sync_entry *from,
                                      const struct sync_entry *to)
{
    bool is_same = same_time(&from->mtime, &to->mtime);

    if (from->size != to->size)
        return SYNC_SEND;
    if (!is_same || s->req->checksum)
        return SYNC_MAYBE;
    return from->mode == to->mode ? SYNC_SAME : SYNC_ATTRS;
}

static enum sync_action choose_action(const struct sync *s, const struct sync_entry *from,
                                      const struct sync_entry *to)
{
    if (from->type != to->type)
        return SYNC_SEND;
    if (from->type == SYNC_FILE)
        return compare_files(s, from, to);
    if (from->type == SYNC_LINK && !str_eq(from->target, to->target))
        return SYNC_SEND;
    return SYNC_SAME;
}

static void on_unlisted(struct sync_entry *en, enum sync_verdict verdict)
{
    if (verdict != SYNC_STALE)
        en->action = SYNC_SEND;
    else
        en->action = en->type == SYNC_FILE ? SYNC_MAYBE : SYNC_SAME;
}

/* Records whether the contents are the same. */
static void on_hashed(struct sync_entry *en, enum sync_verdict verdict)
{
    if (verdict != SYNC_STALE)
        en->action = SYNC_SEND;
}

/* Collects pointers to the entries that `wants` selects; the caller frees *ret. */
static int pick_entries(struct sync_list *l, bool (*wants)(const struct sync_entry *),
                        struct sync_entry ***ret, size_t *ret_n, struct err *e)
{
    struct sync_entry **v = malloc((l->n + 1) * sizeof(struct sync_entry *));

    if (!v)
        return err_oom(e);
    *ret_n = 0;
    for (size_t i = 0; i < l->n; i++)
        if (wants(&l->v[i]))
            v[(*ret_n)++] = &l->v[i];
    *ret = v;
    return 0;
}

static bool is_unlisted(const struct sync_entry *en)
{
    return en->action == SYNC_SEND && en->type != SYNC_OTHER;
}

static bool is_maybe(const struct sync_entry *en)
{
    return en->action == SYNC_MAYBE;
}

/* An entry that the box's list lacks may be ignored there: ask for it by name. */
static int find_unlisted(struct sync *s, struct err *e)
{
    _cleanup_free_ struct sync_entry **v = NULL;
    size_t n;
    int r = s->is_there ? pick_entries(&s->local, is_unlisted, &v, &n, e) : 1;

    if (r)
        return r < 0 ? r : 0;
    for (size_t i = 0; i < n; i++)
        v[i]->action = SYNC_SAME;
    return sync_ask(s->req, v, n, true, on_unlisted, e);
}

/* Into the box: compares every entry here with the box's list; asks by name for those that it
 * lacks. */
static int classify_up(struct sync *s, struct err *e)
{
    int r;

    for (size_t i = 0; i < s->local.n; i++) {
        struct sync_entry *en = &s->local.v[i];

        en->action = sync_list_find(&s->remote, en->name) ? SYNC_SAME : SYNC_SEND;
    }
    r = find_unlisted(s, e);
    for (size_t i = 0; i < s->local.n && r == 0; i++) {
        struct sync_entry *en = &s->local.v[i];
        const struct sync_entry *to = sync_list_find(&s->remote, en->name);

        if (to)
            en->action = choose_action(s, en, to);
    }
    return r;
}

/* Out of the box: compares every entry of the box's list with the file here, listed or not. */
static int classify_down(struct sync *s, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < s->remote.n && r >= 0; i++) {
        struct sync_entry here = {0};

        r = sync_local_look(&s->here, s->remote.v[i].name, &here, e);
        s->remote.v[i].action = r > 0 ? choose_action(s, &s->remote.v[i], &here) : SYNC_SEND;
        free(here.target);
    }
    return r < 0 ? r : 0;
}

/* Files of the same size but another time: hashes the content here; the agent compares. */
static int compare_contents(struct sync *s, struct err *e)
{
    _cleanup_free_ struct sync_entry **v = NULL;
    size_t n;
    int r = pick_entries(s->src, is_maybe, &v, &n, e);

    for (size_t i = 0; i < n && r == 0; i++) {
        r = sync_local_hash(&s->here, v[i], e);
        v[i]->action = SYNC_ATTRS;
    }
    return r < 0 ? r : sync_ask(s->req, v, n, false, on_hashed, e);
}

/* With `checksum` times were not compared: a file whose time is right needs no touch. */
static int drop_needless(struct sync *s, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < s->src->n && r >= 0; i++) {
        struct sync_entry *en = &s->src->v[i], here = {0};
        const struct sync_entry *to = &here;

        if (en->action != SYNC_ATTRS)
            continue;
        if (s->req->to_local)
            r = sync_local_look(&s->here, en->name, &here, e);
        else
            to = sync_list_find(&s->remote, en->name);
        if (r >= 0 && to && to->mode == en->mode && same_time(&to->mtime, &en->mtime))
            en->action = SYNC_SAME;
        free(here.target);
    }
    return r < 0 ? r : 0;
}

/* ---- what went ------------------------------------------------------------------------------- */

static bool is_known(const struct sync *s, const struct sync_entry *en)
{
    _cleanup_free_ char *as_dir = NULL;

    if (s->req->delete_extra)
        return true;
    if (en->type == SYNC_DIR && asprintf(&as_dir, "%s/", en->name) < 0)
        return false;
    return sync_list_find(&s->base, as_dir ? as_dir : en->name) != NULL;
}

static int add_removal(struct sync *s, const struct sync_entry *en, struct err *e)
{
    int r = buf_adds(&s->removals, en->name, e);

    if (r == 0)
        r = buf_add(&s->removals, "/", en->type == SYNC_DIR ? 1 : 0, e);
    if (r == 0)
        r = buf_add(&s->removals, "", 1, e);
    s->n_removals++;
    return r < 0 ? r : report_action(s, "remove", en->name, e);
}

static void on_gone(struct sync_entry *en, enum sync_verdict verdict)
{
    if (verdict == SYNC_MISSING)
        en->action = SYNC_SEND; /* here it does not exist */
}

/* Marks entries that only the other side has and that may be removed: SYNC_MAYBE. */
static int mark_candidates(struct sync *s, struct err *e)
{
    for (size_t i = 0; i < s->dst->n; i++) {
        struct sync_entry *en = &s->dst->v[i];
        const struct sync_entry *from = sync_list_find(s->src, en->name);
        struct sync_entry here = {0};
        int r = 0;

        en->action = SYNC_SAME;
        if (from) { /* only if an entry of another kind replaces it */
            if (from->type == SYNC_DIR && en->type != SYNC_DIR)
                en->action = SYNC_SEND;
            else if (from->type != SYNC_DIR && en->type == SYNC_DIR)
                en->action = SYNC_SEND;
            continue;
        }
        if (!s->req->to_local)
            r = sync_local_look(&s->here, en->name, &here, e);
        free(here.target);
        if (r < 0)
            return r;
        if (r > 0) /* ignored here, or kept back as a secret: it still exists */
            continue;
        if (is_known(s, en))
            en->action = SYNC_MAYBE;
        else if (en->type != SYNC_DIR)
            s->done.kept++;
    }
    return 0;
}

static int plan_removals(struct sync *s, struct err *e)
{
    _cleanup_free_ struct sync_entry **v = NULL;
    size_t n;
    int r = mark_candidates(s, e);

    if (r == 0)
        r = pick_entries(s->dst, is_maybe, &v, &n, e);
    if (r == 0)
        for (size_t i = 0; i < n; i++)
            v[i]->action = s->req->to_local ? SYNC_SAME : SYNC_SEND;
    /* The box's list lacks the files that are ignored there. */
    if (r == 0 && s->req->to_local)
        r = sync_ask(s->req, v, n, true, on_gone, e);
    for (size_t i = s->dst->n; i-- && r == 0;)
        if (s->dst->v[i].action == SYNC_SEND)
            r = add_removal(s, &s->dst->v[i], e);
    return r;
}

/* ---- into the box ---------------------------------------------------------------------------- */

/* Lists the archive's content: the list of removals, then the files. */
static int list_sent(struct sync *s, const char *removals, struct err *e)
{
    struct gitfiles_entry gone = {.name = REMOVALS_NAME, .path = removals};
    int r = gitfiles_restart(&s->files, s->req->ctx, e);

    if (r == 0 && removals)
        r = gitfiles_add_root(&s->files, s->req->ctx->cache_dir, &gone.root, e);
    if (r == 0 && removals)
        r = gitfiles_put(&s->files, &gone, e);
    for (size_t i = 0; i < s->local.n && r == 0; i++) {
        const struct sync_entry *en = &s->local.v[i];
        struct gitfiles_entry at = {
            .name = en->name, .root = en->root, .path = en->path ? en->path : en->name};

        if (en->action != SYNC_SEND || en->type == SYNC_OTHER)
            continue;
        s->files.files++;
        s->files.bytes += en->size;
        r = gitfiles_put(&s->files, &at, e);
    }
    return r < 0 ? r : gitfiles_rewind(&s->files, e);
}

static int send_archive(struct sync *s, struct err *e)
{
    struct upload_stream *stream = NULL;
    int r = upload_stream_new(s->req->ctx, &s->files, &stream, e);

    if (r == 0)
        r = client_put_archive(s->req->client, s->req->remote,
                               "mode=merge&any_ratio=true&removals=true", upload_stream_read,
                               stream, 0, NULL, e);
    upload_stream_free(stream);
    return r;
}

/* The caller frees *ret_path (or NULL) and removes the file, also after an error. */
static int write_removals(struct sync *s, char **ret_path, struct err *e)
{
    _cleanup_free_ char *path = path_join(s->req->ctx->cache_dir, "sync-XXXXXX");
    _cleanup_close_ int fd = path ? mkostemp(path, O_CLOEXEC) : -1;

    if (!path)
        return err_oom(e);
    if (fd < 0)
        return err_sys(e, errno, "the list of what to remove");
    *ret_path = TAKE(path);
    return io_write_all(fd, s->removals.data, s->removals.len, e);
}

static int send_changes(struct sync *s, struct err *e)
{
    _cleanup_free_ char *removals = NULL;
    int r = s->n_removals ? write_removals(s, &removals, e) : 0;

    if (r == 0)
        r = list_sent(s, removals ? path_name(removals) : NULL, e);
    if (r == 0)
        r = send_archive(s, e);
    if (removals)
        (void)unlink(removals);
    return r;
}

/* Sets mode and time of a file of the box whose content is right. */
static int touch_remote(struct sync *s, const struct sync_entry *en, struct err *e)
{
    _cleanup_free_ char *path = path_join(s->req->remote, en->name);
    _cleanup_json_ json_t *params = NULL, *reply = NULL;
    char mode[MODE_TEXT_BYTES], mtime[TIME_TEXT_BYTES];

    if (!path)
        return err_oom(e);
    (void)snprintf(mode, sizeof(mode), "%04o", en->mode);
    sync_time_format(&en->mtime, mtime, sizeof(mtime));
    params = json_pack("{s:o, s:s, s:s}", "path", jx_new_path(path), "mode", mode, "mtime", mtime);
    return params ? client_call(s->req->client, RPC_fs_set_attr, params, 0, &reply, e) : err_oom(e);
}

/* ---- out of the box -------------------------------------------------------------------------- */

static int name_fetched(struct sync *s, struct buf *names, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < s->remote.n && r == 0; i++) {
        const struct sync_entry *en = &s->remote.v[i];

        if (en->action == SYNC_SEND && (en->type == SYNC_FILE || en->type == SYNC_LINK))
            r = buf_add(names, en->name, strlen(en->name) + 1, e);
    }
    return r;
}

static int remove_here(struct sync *s, struct err *e)
{
    int r = 0;

    for (size_t at = 0; at < s->removals.len && r >= 0; at += strlen(s->removals.data + at) + 1) {
        _cleanup_free_ char *name = strdup(s->removals.data + at);
        bool is_dir = name && str_has_suffix(name, "/");

        if (!name)
            return err_oom(e);
        if (is_dir)
            name[strlen(name) - 1] = '\0';
        r = sync_local_remove(&s->here, name, is_dir, e);
    }
    return r < 0 ? r : 0;
}

/* git lists no directories: removes those that became empty and that the box does not have. */
static int remove_emptied(struct sync *s, struct err *e)
{
    int r = 0;

    for (size_t at = 0; at < s->removals.len && r >= 0; at += strlen(s->removals.data + at) + 1) {
        _cleanup_free_ char *dir = strdup(s->removals.data + at);
        char *slash;

        r = 1;
        while (dir && r > 0 && (slash = strrchr(dir, '/'))) {
            *slash = '\0';
            r = sync_list_find(&s->remote, dir) ? 0 : sync_local_remove(&s->here, dir, true, e);
        }
    }
    return r < 0 ? r : 0;
}

static int place_all(struct sync *s, struct sync_local *stage, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < s->remote.n && r >= 0; i++) {
        const struct sync_entry *en = &s->remote.v[i];

        if (en->action != SYNC_SEND)
            continue;
        if (en->type == SYNC_DIR)
            r = sync_local_make_dir(&s->here, en, e);
        else if (en->type != SYNC_OTHER)
            r = sync_local_place(stage, &s->here, en->name, e);
    }
    return r < 0 ? r : 0;
}

static enum sync_type type_of(mode_t mode)
{
    return S_ISREG(mode) ? SYNC_FILE : S_ISLNK(mode) ? SYNC_LINK : SYNC_OTHER;
}

/* Accepts only entries that were asked for, of the type that the list had. */
static int accept_entry(void *arg, const char *name, mode_t type, uint64_t size, struct err *e)
{
    const struct sync *s = arg;
    _cleanup_free_ char *clean = path_clean(name);
    const struct sync_entry *en;

    if (!clean)
        return err_oom(e);
    en = sync_list_find(&s->remote, clean);
    if (!en || en->action != SYNC_SEND || (en->type != SYNC_FILE && en->type != SYNC_LINK))
        return err_field(e, ERR_DATA_LOSS, name, "the box sent '%.200s', which was not asked for",
                         name);
    if (en->type != type_of(type))
        return err_field(e, ERR_ABORTED, name,
                         "'%.200s' in the box became something else meanwhile", name);
    if (size > 2 * en->size + GROWTH_BYTES)
        return err_field(e, ERR_ABORTED, name, "'%.200s' in the box became larger meanwhile", name);
    return 0;
}

static int fetch_changes(struct sync *s, struct err *e)
{
    _cleanup_free_ char *stage_path = NULL;
    _cleanup_buf_ struct buf names;
    struct sync_local stage = {0};
    struct fetch f = {.path = s->req->remote,
                      .to = {.is_zstd = true, .accept = accept_entry, .arg = s}};
    int r;

    buf_init(&names, NAMES_MAX_BYTES);
    r = name_fetched(s, &names, e);
    if (r == 0)
        r = sync_local_stage(&s->here, s->req->local, &stage_path, &stage, e);
    if (r < 0)
        return r;
    f.names = names.data;
    f.names_bytes = names.len;
    f.to.dir = stage_path;
    if (names.len)
        r = fetch_run(s->req->client, &f, e);
    if (r == 0)
        r = remove_here(s, e);
    if (r == 0)
        r = place_all(s, &stage, e);
    if (r == 0)
        r = remove_emptied(s, e);
    sync_local_done(&stage);
    (void)dirtree_remove(stage_path, NULL);
    return r;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int load_lists(struct sync *s, struct err *e)
{
    int r = sync_local_open(s->req->local, s->req->to_local && !s->req->dry_run, &s->here, e);

    if (r == 0)
        r = sync_list_local(&s->local, s->req, &s->files, e);
    if (r == 0)
        r = sync_list_remote(&s->remote, s->req, s->local.n, &s->is_there, e);
    if (r == 0 && s->req->to_local && !s->is_there)
        r = err_field(e, ERR_NOT_FOUND, "remote", "'%.300s' is not in the box", s->req->remote);
    return r < 0 ? r : sync_base_load(&s->base, s->req, e);
}

static int make_plan(struct sync *s, struct err *e)
{
    int r = s->req->to_local ? classify_down(s, e) : classify_up(s, e);

    if (r == 0)
        r = compare_contents(s, e);
    if (r == 0)
        r = drop_needless(s, e);
    for (size_t i = 0; i < s->src->n && r == 0; i++) {
        const struct sync_entry *en = &s->src->v[i];

        if (en->type == SYNC_OTHER)
            continue;
        if (en->action == SYNC_SEND) {
            s->done.sent += en->type != SYNC_DIR;
            s->done.sent_bytes += en->size;
            r = report_action(s, "send", en->name, e);
        } else if (en->action == SYNC_ATTRS) {
            s->done.touched++;
            r = report_action(s, "touch", en->name, e);
        } else {
            s->done.unchanged += en->type != SYNC_DIR;
        }
    }
    if (r == 0)
        r = plan_removals(s, e);
    s->done.removed = s->n_removals;
    return r;
}

static bool has_changes(const struct sync *s)
{
    for (size_t i = 0; i < s->src->n; i++)
        if (s->src->v[i].action == SYNC_SEND && s->src->v[i].type != SYNC_OTHER)
            return true;
    return s->n_removals > 0;
}

static int apply_plan(struct sync *s, struct err *e)
{
    int r = 0;

    if (has_changes(s))
        r = s->req->to_local ? fetch_changes(s, e) : send_changes(s, e);
    for (size_t i = 0; i < s->src->n && r == 0; i++)
        if (s->src->v[i].action == SYNC_ATTRS)
            r = s->req->to_local ? sync_local_touch(&s->here, &s->src->v[i], e)
                                 : touch_remote(s, &s->src->v[i], e);
    return r;
}

/* Adds the parent directories of a name (`dir`, with a slash at its end; it is cut) that the
 * previous name does not share. */
static int remember_above(struct sync_list *now, char *dir, const char *last, uint64_t *bytes_left,
                          struct err *e)
{
    struct sync_entry *en;
    int r = 0;

    for (char *slash = strrchr(dir, '/'); slash && r == 0; slash = strrchr(dir, '/')) {
        size_t bytes = sizeof(*en) + strlen(dir);

        slash[1] = '\0';
        if (str_has_prefix(last, dir))
            break;
        if (bytes > *bytes_left)
            return err_set(e, ERR_EXHAUSTED, "too many directories");
        *bytes_left -= bytes;
        r = sync_list_add(now, dir, &en, e);
        *slash = '\0';
    }
    return r;
}

/* Remembers the names that both sides have now, with their parent directories. If a box returns
 * more of them than files can have, nothing is remembered, and so nothing is removed later. */
static int remember_names(struct sync *s, struct err *e)
{
    uint64_t bytes_left = REMEMBER_BYTES + s->src->n * REMEMBER_NAME_BYTES;
    struct sync_list now = {0};
    struct sync_entry *en;
    const char *last = "";
    int r = 0;

    for (size_t i = 0; i < s->src->n && r == 0; i++) {
        const char *name = s->src->v[i].name;
        _cleanup_free_ char *dir = NULL;

        if (s->src->v[i].type == SYNC_OTHER)
            continue;
        if (asprintf(&dir, "%s/", name) < 0)
            r = err_oom(e);
        if (r == 0)
            r = sync_list_add(&now, s->src->v[i].type == SYNC_DIR ? dir : name, &en, e);
        if (r < 0)
            break;
        dir[strlen(name)] = '\0';
        r = remember_above(&now, dir, last, &bytes_left, NULL);
        last = name;
    }
    if (r == -ERR_EXHAUSTED) {
        sync_list_done(&now);
        r = 0;
    }
    (void)sync_list_sort(&now);
    if (r == 0)
        r = sync_base_store(&now, s->req, e);
    sync_list_done(&now);
    return r;
}

int sync_run(const struct sync_request *req, struct sync_result *ret, struct err *e)
{
    struct sync s = {.req = req};
    int r;

    s.src = req->to_local ? &s.remote : &s.local;
    s.dst = req->to_local ? &s.local : &s.remote;
    buf_init(&s.removals, NAMES_MAX_BYTES);
    r = load_lists(&s, e);
    if (r == 0)
        r = make_plan(&s, e);
    if (r == 0 && !req->dry_run)
        r = apply_plan(&s, e);
    if (r == 0 && !req->dry_run)
        r = remember_names(&s, e);
    if (r == 0)
        *ret = s.done;
    sync_local_done(&s.here);
    gitfiles_done(&s.files);
    sync_list_done(&s.local);
    sync_list_done(&s.remote);
    sync_list_done(&s.base);
    buf_done(&s.removals);
    return r;
}
