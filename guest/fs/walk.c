#include "fs/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/mem.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "fs/root.h"
#include "fs/temp.h"

#define DENTS_BYTES (32 * 1024)
#define PATH_MAX_BYTES (64 * 1024) /* 256 levels of the longest names */

/* ---- names ----------------------------------------------------------------------------------- */

/* An entry as getdents64(2) writes it. musl has no struct for it. */
struct dent {
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[];
};

static bool is_wanted_name(const char *name, bool with_temps)
{
    if (name[0] != '.')
        return true;
    if (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'))
        return false;
    return with_temps || !fs_temp_is_name(name);
}

/* Appends the type and the name to the block. */
static int add_dent(const struct dent *d, struct buf *block, size_t *n, struct err *e)
{
    size_t len = strlen(d->name) + 1;
    int r = buf_reserve(block, len + 1, e);

    if (r < 0)
        return err_wrap(e, r, "a directory with more than %zu names", *n);
    if (*n == FS_WALK_MAX_NAMES)
        return err_set(e, ERR_EXHAUSTED, "a directory has more than %u names", FS_WALK_MAX_NAMES);
    block->data[block->len] = (char)d->type;
    (void)memcpy(block->data + block->len + 1, d->name, len);
    block->len += len + 1;
    *n += 1;
    return 0;
}

static int read_dents(int fd, bool with_temps, struct buf *block, size_t *n, struct err *e)
{
    _cleanup_free_ char *dents = malloc(DENTS_BYTES);
    int r = 0;

    if (!dents)
        return err_oom(e);
    for (;;) {
        long got = syscall(SYS_getdents64, fd, dents, DENTS_BYTES);

        if (got < 0)
            return err_sys(e, errno, "read a directory");
        if (got == 0)
            return 0;
        for (long at = 0; at < got;) {
            const struct dent *d = (const void *)(dents + at);

            at += d->reclen;
            if (is_wanted_name(d->name, with_temps))
                r = add_dent(d, block, n, e);
            if (r < 0)
                return r;
        }
    }
}

int fs_names_read(int fd, bool with_temps, struct fs_names *ret, struct err *e)
{
    _cleanup_buf_ struct buf block;
    size_t n = 0;
    char *p;
    int r;

    *ret = (struct fs_names){0};
    buf_init(&block, FS_WALK_MAX_NAME_BYTES);
    r = read_dents(fd, with_temps, &block, &n, e);
    if (!n)
        return r;
    ret->v = malloc(n * sizeof(*ret->v));
    if (!ret->v)
        return err_oom(e);
    ret->n = n;
    ret->block = p = buf_take(&block);
    for (size_t i = 0; i < n; i++) {
        ret->v[i] = p + 1;
        p += strlen(p + 1) + 2;
    }
    return r;
}

static int names_by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void fs_names_sort(struct fs_names *n)
{
    if (n->n)
        qsort(n->v, n->n, sizeof(*n->v), names_by_bytes);
}

int fs_dir_names(int fd, bool with_temps, struct fs_names *ret, struct err *e)
{
    int r = fs_names_read(fd, with_temps, ret, e);

    if (r < 0)
        fs_names_done(ret);
    else
        fs_names_sort(ret);
    return r;
}

void fs_names_done(struct fs_names *n)
{
    free(n->block);
    free(n->v);
    *n = (struct fs_names){0};
}

/* ---- walks ----------------------------------------------------------------------------------- */

struct frame {
    int fd;
    struct fs_names names;
    size_t at;
    size_t path_len;    /* of the directory's own path */
    const char *cursor; /* the rest of `after` below this directory, or NULL */
};

enum step {
    STEP_START,
    STEP_RUN,
    STEP_DESCEND, /* the item is a directory that is entered next */
};

struct fs_walk {
    struct fs_walk_options o;
    char *after;
    struct frame *frames;
    unsigned n_frames;
    size_t cap;
    int start_fd;
    dev_t start_dev;
    struct buf path;
    enum step step;
    const char *next_cursor; /* for the directory about to be entered */
    struct fs_walk_item item;
};

int fs_walk_new_take(int dirfd, const struct fs_walk_options *o, struct fs_walk **ret,
                     struct err *e)
{
    struct fs_walk *w = calloc(1, sizeof(*w));

    if (!w) {
        fd_close(dirfd);
        return err_oom(e);
    }
    w->o = *o;
    w->start_fd = dirfd;
    buf_init(&w->path, PATH_MAX_BYTES);
    if (o->after && o->after[0])
        w->after = strdup(o->after);
    if (buf_adds(&w->path, "", e) < 0 || (o->after && o->after[0] && !w->after)) {
        fs_walk_free(w);
        return err_oom(e);
    }
    *ret = w;
    return 0;
}

static void frame_pop(struct fs_walk *w)
{
    struct frame *f = &w->frames[--w->n_frames];

    fd_close(f->fd);
    fs_names_done(&f->names);
}

struct fs_walk *fs_walk_free(struct fs_walk *w)
{
    if (!w)
        return NULL;
    while (w->n_frames)
        frame_pop(w);
    fd_close(w->start_fd);
    free(w->frames);
    free(w->after);
    buf_done(&w->path);
    free(w);
    return NULL;
}

/* Where to begin in a directory that holds the cursor. */
static size_t first_from(const struct fs_names *names, const char *cursor)
{
    size_t n = strcspn(cursor, "/");
    size_t lo = 0, hi = names->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (strncmp(names->v[mid], cursor, n) < 0)
            lo = mid + 1;
        else
            hi = mid; /* equal in n bytes: the name itself or a longer one, both not before */
    }
    return lo;
}

static int frame_push_take(struct fs_walk *w, int fd, struct err *e)
{
    struct frame f = {.fd = fd, .path_len = w->path.len, .cursor = w->next_cursor};
    int r;

    w->next_cursor = NULL;
    r = array_grow(&w->frames, &w->cap, w->n_frames + 1, SIZE_MAX / sizeof(*w->frames), e);
    if (r == 0)
        r = fs_dir_names(fd, w->o.with_temps, &f.names, e);
    if (r < 0) {
        fd_close(fd);
        return r;
    }
    if (f.cursor)
        f.at = first_from(&f.names, f.cursor);
    w->frames[w->n_frames++] = f;
    return 0;
}

static int item_give(struct fs_walk *w, enum fs_walk_kind kind, const struct fs_walk_item **ret)
{
    w->item.kind = kind;
    *ret = &w->item;
    return 1;
}

/* The item's directory can't be entered: say so, go on behind it. */
static int item_give_error(struct fs_walk *w, const struct err *why,
                           const struct fs_walk_item **ret)
{
    w->item.error = *why;
    w->step = STEP_RUN;
    return item_give(w, FS_WALK_ERROR, ret);
}

static int walk_start(struct fs_walk *w, const struct fs_walk_item **ret, struct err *e)
{
    if (fstat(w->start_fd, &w->item.st) < 0)
        return err_sys(e, errno, "stat");
    w->start_dev = w->item.st.st_dev;
    w->item.path = "";
    w->item.name = ".";
    w->item.dirfd = w->start_fd;
    w->next_cursor = w->after;
    w->step = STEP_DESCEND;
    return item_give(w, FS_WALK_ENTRY, ret);
}

/* 1: an error to hand out; 0: entered, or not to be entered. */
static int frame_descend(struct fs_walk *w, const struct fs_walk_item **ret, struct err *e)
{
    struct err why = {0};
    int fd;

    w->step = STEP_RUN;
    if (w->n_frames >= w->o.max_depth) {
        if (!w->o.deep_is_error)
            return 0;
        (void)err_set(&why, ERR_EXHAUSTED, "deeper than %u directories", w->o.max_depth);
        return item_give_error(w, &why, ret);
    }
    if (w->o.one_mount && w->item.st.st_dev != w->start_dev)
        return 0;
    if (!w->n_frames) {
        fd = TAKE_FD(w->start_fd);
        return frame_push_take(w, fd, e);
    }
    fd = fs_openat_nofollow(w->item.dirfd, w->item.name, O_RDONLY | O_DIRECTORY);
    if (fd < 0) {
        (void)err_sys(&why, errno, "open '%s'", w->item.path);
        return item_give_error(w, &why, ret);
    }
    if (frame_push_take(w, fd, &why) < 0)
        return item_give_error(w, &why, ret);
    return 0;
}

static int set_path(struct fs_walk *w, const struct frame *f, const char *name, struct err *e)
{
    size_t extra = w->path.len - f->path_len;
    int r = 0;

    w->path.len -= extra;
    w->path.data[w->path.len] = '\0';
    if (f->path_len)
        r = buf_adds(&w->path, "/", e);
    if (r == 0)
        r = buf_adds(&w->path, name, e);
    w->item.path = w->path.data;
    w->item.name = name;
    w->item.dirfd = f->fd;
    w->item.depth = w->n_frames;
    return r;
}

static int frame_leave(struct fs_walk *w, const struct fs_walk_item **ret)
{
    const struct frame *f = &w->frames[w->n_frames - 1];
    const struct frame *up = w->n_frames > 1 ? f - 1 : NULL;

    w->path.len = f->path_len;
    w->path.data[w->path.len] = '\0';
    w->item.path = w->path.data;
    w->item.depth = w->n_frames - 1;
    if (fstat(f->fd, &w->item.st) < 0)
        w->item.st = (struct stat){0};
    w->item.name = up ? up->names.v[up->at - 1] : ".";
    if (!up) { /* the start: its descriptor stays until the walk is freed */
        w->start_fd = f->fd;
        w->frames[0].fd = -1;
    }
    w->item.dirfd = up ? up->fd : w->start_fd;
    frame_pop(w);
    return item_give(w, FS_WALK_LEAVE, ret);
}

/* The next name of the deepest directory. 0: not for the caller (before the cursor), go on. */
static int frame_visit(struct fs_walk *w, const struct fs_walk_item **ret, struct err *e)
{
    struct frame *f = &w->frames[w->n_frames - 1];
    const char *name = f->names.v[f->at++];
    const char *cursor = f->cursor;
    struct err why = {0};
    size_t n;
    int r;

    f->cursor = NULL;
    r = set_path(w, f, name, e);
    if (r < 0)
        return r;
    if (fstatat(f->fd, name, &w->item.st, AT_SYMLINK_NOFOLLOW) < 0) {
        w->item.st = (struct stat){0};
        (void)err_sys(&why, errno, "stat '%s'", w->item.path);
        return item_give_error(w, &why, ret);
    }
    w->step = S_ISDIR(w->item.st.st_mode) ? STEP_DESCEND : STEP_RUN;
    n = cursor ? strcspn(cursor, "/") : 0;
    if (cursor && strlen(name) == n && strncmp(name, cursor, n) == 0) {
        w->next_cursor = cursor[n] ? cursor + n + 1 : NULL;
        return 0; /* given before the cursor; entries below may not have been */
    }
    return item_give(w, FS_WALK_ENTRY, ret);
}

int fs_walk_next(struct fs_walk *w, const struct fs_walk_item **ret_item, struct err *e)
{
    int r = 0;

    w->item.error = (struct err){0};
    if (w->step == STEP_START)
        return walk_start(w, ret_item, e);
    while (r == 0) {
        if (w->step == STEP_DESCEND)
            r = frame_descend(w, ret_item, e);
        else if (!w->n_frames)
            return 0;
        else if (w->frames[w->n_frames - 1].at < w->frames[w->n_frames - 1].names.n)
            r = frame_visit(w, ret_item, e);
        else
            r = frame_leave(w, ret_item);
    }
    return r;
}

void fs_walk_skip(struct fs_walk *w)
{
    if (w->step == STEP_DESCEND)
        w->step = STEP_RUN;
    w->next_cursor = NULL;
}
