#include "api/files/resume_store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "fs/walk.h"

#define GONE_AGE_MS 60000           /* a younger note may be of a file that is just being made */
#define NOTE_MAX_BYTES (256 * 1024) /* two paths and two lists of tags, in base64 at worst */

struct resume_store {
    char *dir;
    struct fs_root *root; /* borrowed */
    char *default_user;
    pthread_mutex_t lock;
    int fd; /* guarded by lock until it is set; -1: not there yet */
};

int resume_store_new(const char *dir, struct fs_root *root, const char *default_user,
                     struct resume_store **ret, struct err *e)
{
    struct resume_store *s = calloc(1, sizeof(*s));

    if (!s)
        return err_oom(e);
    s->fd = -1;
    s->root = root;
    (void)pthread_mutex_init(&s->lock, NULL);
    if ((dir && !(s->dir = strdup(dir))) ||
        (default_user && !(s->default_user = strdup(default_user)))) {
        resume_store_free(s);
        return err_oom(e);
    }
    *ret = s;
    return 0;
}

struct resume_store *resume_store_free(struct resume_store *s)
{
    if (!s)
        return NULL;
    fd_close(s->fd);
    (void)pthread_mutex_destroy(&s->lock);
    free(s->dir);
    free(s->default_user);
    free(s);
    return NULL;
}

/* A user who could write there could have files written as any user. */
static int open_own(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & 022))
        return fd;
    fd_close(fd);
    return -1;
}

static int open_dir(struct resume_store *s, bool make)
{
    int fd;

    (void)pthread_mutex_lock(&s->lock);
    if (s->fd < 0 && s->dir && (!make || io_mkdir_p(s->dir, 0700, NULL) == 0))
        s->fd = open_own(s->dir);
    fd = s->fd;
    (void)pthread_mutex_unlock(&s->lock);
    return fd;
}

/* By a descriptor of its own: another thread may be reading the directory. */
static int list_dir(int dir, struct fs_names *ret)
{
    _cleanup_close_ int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? -1 : fs_dir_names(fd, true, ret, NULL);
}

static bool is_id(const char *id)
{
    return strlen(id) == RESUME_ID_BYTES - 1 && strspn(id, "0123456789abcdef") == strlen(id);
}

/* ---- notes ----------------------------------------------------------------------------------- */

struct resume_note *resume_note_free(struct resume_note *n)
{
    if (!n)
        return NULL;
    free(n->asked);
    free(n->user);
    free(n->if_match);
    free(n->if_none_match);
    free(n->kept.path);
    free(n);
    return NULL;
}

static void resume_note_free_p(struct resume_note **n)
{
    resume_note_free(*n);
}
#define _cleanup_note_ _cleanup_(resume_note_free_p)

static int record_add(json_t *obj, const char *name, json_t *value)
{
    return value && json_object_set_new(obj, name, value) == 0 ? 0 : -1;
}

static json_t *new_json(const struct resume_note *n)
{
    const struct fs_write_options *o = &n->options;
    json_t *v = json_pack(
        "{s:o, s:o, s:s, s:I, s:i, s:i, s:b, s:b, s:b, s:b}", "asked", jx_new_path(n->asked),
        "path", jx_new_path(n->kept.path), "temp", n->kept.name, "inode", (json_int_t)n->kept.inode,
        "made", (int)n->kept.n_made, "mode", (int)o->mode, "set_mode", (int)o->set_mode,
        "no_parents", (int)o->no_parents, "sync", (int)o->sync, "in_place", (int)o->in_place);

    if (v &&
        ((n->user && record_add(v, "user", json_string(n->user)) < 0) ||
         (n->if_match && record_add(v, "if_match", jx_new_path(n->if_match)) < 0) ||
         (n->if_none_match && record_add(v, "if_none_match", jx_new_path(n->if_none_match)) < 0) ||
         (o->sha256 &&
          record_add(v, "sha256", jx_new_bytes((const char *)o->sha256, sizeof(n->sha256))) < 0) ||
         (o->fresh && record_add(v, "fresh", json_true()) < 0) ||
         (n->age_ms && record_add(v, "age_ms", json_integer((json_int_t)n->age_ms)) < 0) ||
         (n->has_length && record_add(v, "length", json_integer((json_int_t)n->length)) < 0) ||
         (n->has_floor && record_add(v, "floor", json_integer((json_int_t)n->floor)) < 0))) {
        json_decref(v);
        v = NULL;
    }
    return v;
}

/* As the file has it, before it is checked. */
struct raw_note {
    char *asked, *path, *if_match, *if_none_match;
    const char *temp, *user;
    uint64_t inode, length, floor, age_ms;
    uint32_t made, mode;
    bool set_mode, no_parents, sync, in_place, fresh;
    struct jx_bytes sha256;
};

#define RAW(member, fn, flags) JX(struct raw_note, member, fn, flags)

static const struct jx_field raw_fields[] = {
    RAW(asked, jx_path, JX_REQUIRED),
    RAW(path, jx_path, JX_REQUIRED),
    RAW(temp, jx_str, JX_REQUIRED),
    RAW(inode, jx_u64, JX_REQUIRED),
    RAW(made, jx_u32, JX_REQUIRED),
    RAW(mode, jx_u32, JX_REQUIRED),
    RAW(set_mode, jx_bool, JX_REQUIRED),
    RAW(no_parents, jx_bool, JX_REQUIRED),
    RAW(sync, jx_bool, JX_REQUIRED),
    RAW(in_place, jx_bool, JX_REQUIRED),
    RAW(fresh, jx_bool, 0),
    RAW(user, jx_str, 0),
    RAW(if_match, jx_path, 0),
    RAW(if_none_match, jx_path, 0),
    RAW(sha256, jx_bytes, 0),
    RAW(length, jx_u64, 0),
    RAW(floor, jx_u64, 0),
    RAW(age_ms, jx_u64, 0),
    {0},
};

/* Takes what the raw one owns. */
static int fill_note(struct resume_note *n, struct raw_note *raw, struct err *e)
{
    struct fs_write_options *o = &n->options;

    n->asked = TAKE(raw->asked);
    n->kept.path = TAKE(raw->path);
    n->if_match = TAKE(raw->if_match);
    n->if_none_match = TAKE(raw->if_none_match);
    if (raw->user && !(n->user = strdup(raw->user)))
        return err_oom(e);
    (void)snprintf(n->kept.name, sizeof(n->kept.name), "%s", raw->temp);
    n->kept.inode = raw->inode;
    n->kept.n_made = raw->made;
    *o = (struct fs_write_options){.set_mode = raw->set_mode,
                                   .mode = (mode_t)(raw->mode & 07777),
                                   .no_parents = raw->no_parents,
                                   .sync = raw->sync,
                                   .in_place = raw->in_place,
                                   .fresh = raw->fresh,
                                   .condition = {n->if_match, n->if_none_match}};
    if (raw->sha256.data) {
        if (raw->sha256.len != sizeof(n->sha256))
            return err_set(e, ERR_INVALID, "a digest of %zu bytes", raw->sha256.len);
        (void)memcpy(n->sha256, raw->sha256.data, sizeof(n->sha256));
        o->sha256 = n->sha256;
    }
    n->has_length = raw->length != UINT64_MAX;
    n->length = raw->length;
    n->has_floor = raw->floor != UINT64_MAX;
    n->floor = raw->floor;
    n->age_ms = raw->age_ms > INT64_MAX ? 0 : (int64_t)raw->age_ms;
    return 0;
}

static int parse_note(const char *text, size_t len, struct resume_note *n, struct err *e)
{
    _cleanup_json_ json_t *v = NULL;
    struct raw_note raw = {.length = UINT64_MAX, .floor = UINT64_MAX};
    int r;

    r = jx_parse_object(text, len, &v, e);
    if (r == 0)
        r = jx_decode(v, raw_fields, &raw, e);
    if (r == 0)
        r = fill_note(n, &raw, e);
    free(raw.asked);
    free(raw.path);
    free(raw.if_match);
    free(raw.if_none_match);
    jx_bytes_done(&raw.sha256);
    return r;
}

static int64_t age_of(const struct stat *st)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)(now.tv_sec - st->st_mtim.tv_sec) * 1000 +
           (now.tv_nsec - st->st_mtim.tv_nsec) / 1000000;
}

/* *ret_used_ms: how long ago the note was written or touched; below 0 if the clock was set back. */
static int read_note(struct resume_store *s, const char *id, struct resume_note **ret,
                     int64_t *ret_used_ms, struct err *e)
{
    _cleanup_note_ struct resume_note *n = calloc(1, sizeof(*n));
    _cleanup_free_ char *text = NULL;
    int dir = open_dir(s, false);
    struct stat st;
    size_t len;
    int r;

    if (!n)
        return err_oom(e);
    if (dir < 0 || !is_id(id) || fstatat(dir, id, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISREG(st.st_mode))
        return err_set(e, ERR_NOT_FOUND, "no note of '%.40s'", id);
    r = io_read_file(dir, id, NOTE_MAX_BYTES, &text, &len, e);
    if (r == 0)
        r = parse_note(text, len, n, e);
    if (r < 0)
        return r;
    (void)snprintf(n->id, sizeof(n->id), "%s", id);
    *ret_used_ms = age_of(&st);
    *ret = TAKE(n);
    return 0;
}

/* errno-style: the file that the note describes. */
static int stat_kept(const struct resume_note *n, struct stat *ret)
{
    _cleanup_free_ char *dir = path_dir(n->kept.path);
    _cleanup_free_ char *temp = dir ? path_join(dir, n->kept.name) : NULL;

    errno = ENOMEM;
    return temp ? lstat(temp, ret) : -1;
}

/*
 * How long the upload may still wait, 0 or less: it is too old. A request may have written for hours
 * since the note was touched: the file's time counts too, unless it is in the future.
 */
static int64_t note_left_ms(const struct resume_note *n, int64_t used_ms, int64_t age_ms)
{
    struct stat st;
    int64_t written_ms = stat_kept(n, &st) == 0 && S_ISREG(st.st_mode) ? age_of(&st) : -1;

    if (written_ms >= 0 && written_ms < used_ms)
        used_ms = written_ms;
    if (n->age_ms > 0 && n->age_ms < age_ms)
        age_ms = n->age_ms;
    return age_ms - used_ms;
}

int resume_store_put(struct resume_store *s, const struct resume_note *n, struct err *e)
{
    _cleanup_json_ json_t *v = new_json(n);
    _cleanup_free_ char *text = NULL;
    int dir = open_dir(s, true);
    size_t len;
    int r;

    if (dir < 0)
        return err_set(e, ERR_UNIMPLEMENTED, "there is no place for notes");
    if (!v)
        return err_oom(e);
    r = jx_dump(v, &text, &len, e);
    return r < 0 ? r : io_write_file(dir, n->id, text, len, 0600, false, e);
}

/* ---- by the agent that has the upload
 * --------------------------------------------------------- */

static int new_note(const char *id, const char *asked, const char *user, const struct fs_write *w,
                    struct resume_note **ret, struct err *e)
{
    const struct fs_write_options *o = fs_write_options_of(w);
    _cleanup_note_ struct resume_note *n = calloc(1, sizeof(*n));
    const struct fs_condition *c = &o->condition;
    int r;

    if (!n)
        return err_oom(e);
    (void)snprintf(n->id, sizeof(n->id), "%s", id);
    n->options = *o;
    n->asked = strdup(asked);
    if (!n->asked || (user && !(n->user = strdup(user))) ||
        (c->if_match && !(n->if_match = strdup(c->if_match))) ||
        (c->if_none_match && !(n->if_none_match = strdup(c->if_none_match))))
        return err_oom(e);
    n->options.condition = (struct fs_condition){n->if_match, n->if_none_match};
    if (o->sha256) {
        (void)memcpy(n->sha256, o->sha256, sizeof(n->sha256));
        n->options.sha256 = n->sha256;
    }
    r = fs_write_plan(w, &n->kept, e);
    if (r < 0)
        return r;
    *ret = TAKE(n);
    return 0;
}

void resume_store_touch(struct resume_store *s, const char *id)
{
    int dir = open_dir(s, false);

    if (dir >= 0)
        (void)utimensat(dir, id, NULL, AT_SYMLINK_NOFOLLOW);
}

void resume_store_remove(struct resume_store *s, const char *id)
{
    int dir = open_dir(s, false);

    if (dir >= 0)
        (void)unlinkat(dir, id, 0);
}

/* ---- by the next one
 * -------------------------------------------------------------------------- */

static int open_noted(struct resume_store *s, const struct resume_note *n,
                      struct fs_caller **ret_caller, struct fs_write **ret_write, struct err *e)
{
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    int r;

    r = fs_caller_new(s->root, n->user ? n->user : s->default_user, NULL, &c, e);
    if (r == 0)
        r = fs_write_again(c, &n->kept, &n->options, ret_write, e);
    if (r < 0)
        return r;
    *ret_caller = TAKE(c);
    return 0;
}

int resume_store_take(struct resume_store *s, const char *id, int64_t age_ms,
                      struct resume_note **ret, struct fs_caller **ret_caller,
                      struct fs_write **ret_write, struct err *e)
{
    _cleanup_note_ struct resume_note *n = NULL;
    struct fs_write *w = NULL;
    struct fs_caller *c = NULL;
    int64_t used_ms;
    int r;

    r = read_note(s, id, &n, &used_ms, e);
    if (r == 0 && note_left_ms(n, used_ms, age_ms) <= 0)
        r = err_set(e, ERR_NOT_FOUND, "the upload '%s' is too old", id);
    if (r == 0)
        r = open_noted(s, n, &c, &w, e);
    if (r == 0 && n->has_floor) {
        n->has_floor = false;
        r = fs_write_cut(w, n->floor, e);
        if (r == 0)
            r = resume_store_put(s, n, e);
    }
    if (r < 0) {
        fs_write_leave(w);
        fs_caller_unref(c);
        return r;
    }
    *ret = TAKE(n);
    *ret_caller = c;
    *ret_write = w;
    return 0;
}

/* Removes the note and its file, unless its upload is in use or a resource is short just now. */
static void remove_noted(struct resume_store *s, const struct resume_note *n)
{
    struct fs_caller *c = NULL;
    struct fs_write *w = NULL;
    int r = open_noted(s, n, &c, &w, NULL);

    fs_write_free(w);
    fs_caller_unref(c);
    if (r != -ERR_UNAVAILABLE && r != -ERR_EXHAUSTED)
        resume_store_remove(s, n->id);
}

/* Returns the milliseconds until the note can be too old, INT64_MAX: it is gone, in use, or none. */
static int64_t sweep_note(struct resume_store *s, int dir, const char *id, int64_t age_ms)
{
    _cleanup_note_ struct resume_note *n = NULL;
    int64_t used_ms, left_ms;
    struct stat st;
    int r = read_note(s, id, &n, &used_ms, NULL);

    if (r < 0) {
        /* Half a note, of an agent that ended while it wrote. */
        if (r != -ERR_EXHAUSTED && fstatat(dir, id, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            age_of(&st) >= age_ms)
            (void)unlinkat(dir, id, 0);
        return INT64_MAX;
    }
    left_ms = note_left_ms(n, used_ms, age_ms);
    if (left_ms <= 0) {
        remove_noted(s, n);
        return INT64_MAX;
    }
    /* The bytes that the note describes are gone. */
    if (used_ms >= GONE_AGE_MS && stat_kept(n, &st) < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        resume_store_remove(s, id);
        return INT64_MAX;
    }
    return left_ms;
}

int64_t resume_store_sweep(struct resume_store *s, int64_t age_ms)
{
    int dir = open_dir(s, false);
    int64_t next_ms = INT64_MAX;
    struct fs_names names;

    if (dir < 0 || list_dir(dir, &names) < 0)
        return next_ms;
    for (size_t i = 0; i < names.n; i++) {
        int64_t left_ms = sweep_note(s, dir, names.v[i], age_ms);

        if (left_ms < next_ms)
            next_ms = left_ms;
    }
    fs_names_done(&names);
    return next_ms;
}

static bool is_full(int dir)
{
    struct fs_names names;
    bool is;

    if (list_dir(dir, &names) < 0)
        return true;
    is = names.n >= RESUME_STORE_MAX;
    fs_names_done(&names);
    return is;
}

int resume_store_keep(struct resume_store *s, const char *id, const char *asked, const char *user,
                      struct fs_write *w, struct resume_note **ret, struct err *e)
{
    _cleanup_note_ struct resume_note *n = NULL;
    int dir = open_dir(s, true);
    int r;

    if (dir < 0 || is_full(dir))
        return err_set(e, ERR_UNIMPLEMENTED, "there is no place for notes");
    r = new_note(id, asked, user, w, &n, e);
    if (r < 0)
        return r;
    /* Writes the note first: a temporary file without a note would stay for ever. */
    r = resume_store_put(s, n, e);
    if (r == 0)
        r = fs_write_keep(w, &n->kept, e);
    if (r < 0) {
        resume_store_remove(s, id);
        return r;
    }
    *ret = TAKE(n);
    return 0;
}
