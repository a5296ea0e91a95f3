/*
 * The work of a walk is a stack of ranges: some entries of one listing. A worker takes the top
 * range, leaves the rest of it on the stack, and puts the entries of a
 * directory it descends into on top. With one worker that is a depth-first walk in order.
 */
#include "search/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/mem.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "fs/root.h"
#include "fs/walk.h"
#include "search/ignore.h"
#include "search/rulefiles.h"
#include "search/types.h"

#define LISTING_KEEP_DEPTH 64  /* deeper directories are opened again for each use */
#define BATCH 32               /* entries that a worker takes at once */
#define ENTRIES_FOR_HELPER 128 /* a second thread costs more than so many entries */
#define HELPER_STACK_BYTES (512 * 1024)
#define PATH_BYTES_MAX (64u * 1024 * 1024)

/* The entries of one directory of a walk, read whole, with the ignore rules that apply to them. Shared by
 * reference count between the workers of a walk. */
struct listing {
    char *whole; /* absolute path, ends in '/' */
    size_t whole_len;
    uint32_t depth;
    struct ignore *ignore; /* a reference; NULL: no rules */
    int fd;                /* -1 when it is not kept open */
    struct fs_names names;
    bool has[IGNORE_N_FILES]; /* such a name is among them */
    bool is_linked;           /* a link was followed on the way from the root to here */
    struct listing *up;       /* a reference, when links are followed: to see loops; else NULL */
    dev_t dev;                /* when links are followed or the file system is minded */
    ino_t ino;
    int refs; /* atomic */
};

struct range {
    struct listing *l; /* a reference */
    size_t from, to;
};

struct worker {
    struct tree *t;
    unsigned number;
    struct buf path;                    /* of the current entry, as shown */
    struct buf whole;                   /* of the current entry */
    size_t dir_path_len, dir_whole_len; /* how much of both is the directory's */
    struct err e;
    int r;
};

struct tree {
    int rootfd;
    struct tree_options o;
    struct tree_access access;
    struct rule_source source; /* with the notes */
    struct rules *globs;
    struct rules *global;
    struct types *types;
    struct listing *root;
    size_t root_len; /* of the root's whole path with '/' */
    dev_t root_dev;  /* with one_file_system */

    const struct tree_visitor *v; /* while tree_walk() runs */
    struct worker workers[TREE_MAX_WORKERS];

    pthread_mutex_t lock;
    pthread_cond_t more;
    struct range *stack; /* guarded by lock, as all below */
    size_t n, cap;
    unsigned n_busy; /* workers that may still push */
    bool stop;
    bool has_helper;
    pthread_t helper;
    size_t n_entries; /* pushed so far */
};

/* --- notes --- */

void notes_init(struct notes *n)
{
    *n = (struct notes){.total = 0};
    (void)pthread_mutex_init(&n->lock, NULL);
}

void notes_done(struct notes *n)
{
    for (size_t i = 0; i < n->n; i++) {
        free(n->list[i].path);
        free(n->list[i].error);
    }
    n->n = 0;
    (void)pthread_mutex_destroy(&n->lock);
}

void notes_add(struct notes *n, const char *path, const char *error)
{
    struct note note = {.path = strdup(path), .error = strdup(error)};

    (void)pthread_mutex_lock(&n->lock);
    n->total++;
    if (n->n < NOTES_MAX && note.path && note.error) {
        n->list[n->n++] = note;
        note = (struct note){NULL, NULL};
    }
    (void)pthread_mutex_unlock(&n->lock);
    free(note.path);
    free(note.error);
}

void notes_add_errno(struct notes *n, const char *path, int sys)
{
    struct err e = {0};
    const char *text = e.message;

    (void)err_sys(&e, sys, "%s", "");
    if (text[0] == ':' && text[1] == ' ')
        text += 2; /* err_sys() writes "subject: reason"; here the path is the subject */
    notes_add(n, path, text);
}

/* --- listings --- */

/* whole: copied; '/' is added. up: the parent's rules; a reference is taken. */
static int listing_new(const char *whole, size_t whole_len, uint32_t depth, struct ignore *up,
                       struct listing **ret, struct err *e)
{
    struct listing *l = calloc(1, sizeof(*l));

    if (!l)
        return err_oom(e);
    l->whole = malloc(whole_len + 2);
    if (!l->whole) {
        free(l);
        return err_oom(e);
    }
    memcpy(l->whole, whole, whole_len);
    if (!whole_len || whole[whole_len - 1] != '/')
        l->whole[whole_len++] = '/';
    l->whole[whole_len] = '\0';
    l->whole_len = whole_len;
    l->depth = depth;
    l->ignore = ignore_ref(up);
    l->fd = -1;
    l->refs = 1;
    *ret = l;
    return 0;
}

static struct listing *listing_ref(struct listing *l)
{
    (void)__atomic_add_fetch(&l->refs, 1, __ATOMIC_RELAXED);
    return l;
}

static struct listing *listing_unref(struct listing *l)
{
    while (l && __atomic_sub_fetch(&l->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        struct listing *up = l->up;

        fd_close(l->fd);
        ignore_unref(l->ignore);
        free(l->whole);
        fs_names_done(&l->names);
        free(l);
        l = up;
    }
    return NULL;
}

/* Reads the entries of fd, once. If that fails half-way, the entries read until then are there. */
static int listing_read(struct listing *l, int fd, bool sorted, struct err *e)
{
    int r = fs_names_read(fd, false, &l->names, e);

    for (size_t i = 0; i < l->names.n; i++)
        if (l->names.v[i][0] == '.')
            rulefiles_see_name(l->names.v[i], l->has);
    if (sorted)
        fs_names_sort(&l->names);
    return r;
}

/* --- the stack --- */

static void *helper_main(void *arg);

static void start_helper(struct tree *t)
{
    pthread_attr_t attr;

    if (pthread_attr_init(&attr) != 0)
        return;
    (void)pthread_attr_setstacksize(&attr, HELPER_STACK_BYTES);
    t->has_helper = pthread_create(&t->helper, &attr, helper_main, &t->workers[1]) == 0;
    t->n_busy += t->has_helper;
    (void)pthread_attr_destroy(&attr);
}

static int tree_push(struct tree *t, struct listing *l, size_t from, size_t to, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&t->lock);
    int r;

    if (from == to)
        return 0;
    r = array_grow(&t->stack, &t->cap, t->n + 1, SIZE_MAX / sizeof(*t->stack), e);
    if (r < 0)
        return r;
    t->stack[t->n++] = (struct range){listing_ref(l), from, to};
    t->n_entries += to - from;
    if (t->has_helper)
        (void)pthread_cond_signal(&t->more);
    else if (t->o.n_workers > 1 && t->n_entries > ENTRIES_FOR_HELPER)
        start_helper(t);
    return 0;
}

/* The next at most BATCH entries; waits while another worker may push some. */
static bool tree_pop(struct tree *t, struct range *ret)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&t->lock);
    struct range *top;

    t->n_busy--;
    while (!t->stop && !t->n && t->n_busy)
        (void)pthread_cond_wait(&t->more, &t->lock);
    if (t->stop || !t->n) {
        (void)pthread_cond_broadcast(&t->more); /* it is over for the others too */
        return false;
    }
    t->n_busy++;
    top = &t->stack[t->n - 1];
    *ret = *top;
    if (top->to - top->from > BATCH) {
        top->from += BATCH;
        ret->to = top->from;
        (void)listing_ref(ret->l);
    } else {
        t->n--;
    }
    return true;
}

static void tree_stop(struct tree *t)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&t->lock);

    t->stop = true;
    (void)pthread_cond_broadcast(&t->more);
}

/* --- one directory --- */

/* Joins the name of the root, as the user gave it, with `below`. */
static int add_shown(const struct tree *t, const char *below, size_t len, struct buf *out,
                     struct err *e)
{
    size_t n = strlen(t->o.shown);
    int r = buf_add(out, t->o.shown, n, e);

    if (r == 0 && n && len && t->o.shown[n - 1] != '/')
        r = buf_add(out, "/", 1, e);
    return r < 0 ? r : buf_add(out, below, len, e);
}

/* Notes a directory, without the '/' at the end. */
static void note_dir(struct tree *t, const struct listing *l, int sys)
{
    struct buf shown;

    buf_init(&shown, PATH_BYTES_MAX);
    if (add_shown(t, l->whole + t->root_len, l->whole_len - t->root_len, &shown, NULL) == 0) {
        while (shown.len > 1 && shown.data[shown.len - 1] == '/')
            shown.data[--shown.len] = '\0';
        notes_add_errno(t->source.notes, shown.len ? shown.data : ".", sys);
    }
    buf_done(&shown);
}

static int open_dir(const struct tree *t, const struct listing *l)
{
    _cleanup_free_ char *below = NULL;

    if (l->whole_len <= t->root_len)
        return fs_openat_below(t->rootfd, ".", O_RDONLY | O_DIRECTORY);
    if (l->is_linked)
        return t->access.open(t->access.arg, l->whole, O_RDONLY | O_DIRECTORY);
    below = strndup(l->whole + t->root_len, l->whole_len - t->root_len - 1);
    return below ? fs_openat_below(t->rootfd, below, O_RDONLY | O_DIRECTORY) : -ENOMEM;
}

/* The first entry of a sorted listing that is not wholly before t->o.after. */
static size_t first_entry(const struct tree *t, const struct listing *l)
{
    const char *below = l->whole + t->root_len, *part;
    size_t below_len = l->whole_len - t->root_len, len, i = 0;

    if (!t->o.after || strncmp(t->o.after, below, below_len) != 0)
        return 0;
    part = t->o.after + below_len;
    len = strcspn(part, "/");
    while (i < l->names.n && strncmp(l->names.v[i], part, len) < 0)
        i++;
    return i;
}

/* True if an earlier page has shown this entry (a directory may have more in it). */
static bool was_shown(const struct tree *t, const struct tree_entry *entry)
{
    const char *after = t->o.after;

    if (!after || strncmp(after, entry->below, entry->below_len) != 0)
        return false;
    return after[entry->below_len] == '/' || (!after[entry->below_len] && !t->o.with_after);
}

/* Notes the identity of the directory; false if it must not be entered. */
static bool see_dir(struct tree *t, struct listing *l, int fd)
{
    struct stat st;

    if (!t->o.follow && !t->o.one_file_system)
        return true;
    if (fstat(fd, &st) < 0)
        return true;
    l->dev = st.st_dev;
    l->ino = st.st_ino;
    if (l->depth == 0)
        t->root_dev = st.st_dev;
    return !t->o.one_file_system || st.st_dev == t->root_dev;
}

/* Reads a listing's directory and rules, and pushes its entries. Notes a directory that can't be
 * read. */
static int tree_fill(struct tree *t, struct listing *l, struct err *e)
{
    _cleanup_close_ int fd = open_dir(t, l);
    struct err why = {0};
    int r;

    if (fd < 0) {
        note_dir(t, l, -fd);
        return 0;
    }
    if (!see_dir(t, l, fd))
        return 0;
    r = listing_read(l, fd, t->o.sort, &why);
    if (r < 0)
        note_dir(t, l, why.sys ? why.sys : ENOMEM); /* the entries read until then are walked */
    if (!t->o.no_ignore) {
        r = rulefiles_add_own(&t->source, fd, l->whole, l->has, &l->ignore, e);
        if (r < 0)
            return r;
    }
    if (l->depth < LISTING_KEEP_DEPTH)
        l->fd = TAKE_FD(fd);
    return tree_push(t, l, first_entry(t, l), l->names.n, e);
}

/* --- one entry --- */

static enum tree_type type_of(unsigned char d_type)
{
    switch (d_type) {
    case DT_REG:
        return TREE_FILE;
    case DT_DIR:
        return TREE_DIR;
    case DT_LNK:
        return TREE_SYMLINK;
    default:
        return TREE_OTHER;
    }
}

static enum tree_type type_of_mode(mode_t mode)
{
    return S_ISREG(mode)   ? TREE_FILE
           : S_ISDIR(mode) ? TREE_DIR
           : S_ISLNK(mode) ? TREE_SYMLINK
                           : TREE_OTHER;
}

/* Whether the rules hide it; ripgrep's order: globs, ignore files, types, the dot. */
static bool is_hidden(const struct tree *t, const struct worker *w, const struct listing *l,
                      const struct tree_entry *entry)
{
    bool is_dir = entry->type == TREE_DIR;
    enum ignore_verdict v = rules_match_globs(t->globs, entry->below, entry->below_len, is_dir);
    enum ignore_verdict by_type;

    if (v != IGNORE_NONE)
        return v == IGNORE_HIDE;
    if (!t->o.no_ignore)
        v = ignore_match(l->ignore, t->global, t->root_len, w->whole.data, w->whole.len, is_dir);
    if (v == IGNORE_HIDE)
        return true;
    by_type = is_dir ? IGNORE_NONE : types_match(t->types, entry->name, strlen(entry->name));
    if (by_type == IGNORE_HIDE)
        return true;
    return v == IGNORE_NONE && by_type == IGNORE_NONE && !t->o.hidden && entry->name[0] == '.';
}

/* Begins the paths of a listing's entries. */
static int set_dir(struct worker *w, const struct listing *l, struct err *e)
{
    const struct tree *t = w->t;
    int r;

    buf_clear(&w->whole);
    buf_clear(&w->path);
    r = buf_add(&w->whole, l->whole, l->whole_len, e);
    if (r == 0)
        r = add_shown(t, l->whole + t->root_len, l->whole_len - t->root_len, &w->path, e);
    if (r == 0 && l->whole_len == t->root_len && w->path.len && t->o.shown[w->path.len - 1] != '/')
        r = buf_add(&w->path, "/", 1, e);
    w->dir_whole_len = w->whole.len;
    w->dir_path_len = w->path.len;
    return r;
}

/* Puts the entry's paths together. */
static int set_paths(struct worker *w, const struct listing *l, size_t i, struct tree_entry *entry,
                     struct err *e)
{
    const char *name = l->names.v[i];
    size_t len = strlen(name);
    int r;

    w->whole.len = w->dir_whole_len;
    w->path.len = w->dir_path_len;
    r = buf_add(&w->whole, name, len, e);
    if (r == 0)
        r = buf_add(&w->path, name, len, e);
    if (r < 0)
        return r;
    entry->path = w->path.data;
    entry->path_len = w->path.len;
    entry->whole = w->whole.data;
    entry->below = w->whole.data + w->t->root_len;
    entry->below_len = w->whole.len - w->t->root_len;
    entry->name = name;
    return 0;
}

static bool is_loop(const struct listing *l, const struct stat *st)
{
    for (; l; l = l->up)
        if (l->dev == st->st_dev && l->ino == st->st_ino)
            return true;
    return false;
}

/* Replaces a link by its target; false if that is a directory above it. A link that can't be
 * followed stays a link. */
static bool follow_link(struct tree *t, const struct listing *l, struct tree_entry *entry)
{
    const struct tree_access *a = &t->access;
    _cleanup_close_ int fd = a->open(a->arg, entry->whole, O_PATH);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        entry->to_nowhere = fd == -ENOENT;
        notes_add_errno(t->source.notes, entry->path, fd < 0 ? -fd : errno);
        return true;
    }
    if (S_ISDIR(st.st_mode) && is_loop(l, &st)) {
        notes_add(t->source.notes, entry->path,
                  "a link to a directory above it, which is not followed");
        return false;
    }
    entry->type = type_of_mode(st.st_mode);
    entry->via_link = true;
    return true;
}

int tree_entry_open(const struct tree_entry *entry, const struct tree_access *access, int flags)
{
    int fd;

    if (entry->via_link)
        return access->open(access->arg, entry->whole, flags | O_CLOEXEC);
    if (strchr(entry->name, '/'))
        return fs_openat_below(entry->dirfd, entry->name, flags | O_NOFOLLOW);
    fd = openat(entry->dirfd, entry->name, flags | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

int tree_entry_stat(const struct tree_entry *entry, const struct tree_access *access,
                    struct stat *ret)
{
    _cleanup_close_ int fd = -1;

    if (!entry->via_link)
        return fstatat(entry->dirfd, entry->name, ret, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
    fd = access->open(access->arg, entry->whole, O_PATH);
    if (fd < 0)
        return fd;
    return fstat(fd, ret) < 0 ? -errno : 0;
}

/* True if a rule that needs stat(2) hides the entry. Sets a type that is still unknown. */
static bool is_out_by_stat(struct tree *t, const struct listing *l, unsigned char d_type,
                           struct tree_entry *entry)
{
    bool has_limit = t->o.max_filesize != UINT64_MAX && entry->type != TREE_DIR;
    struct stat st;
    int r;

    if (d_type != DT_UNKNOWN && !has_limit)
        return false;
    r = tree_entry_stat(entry, &t->access, &st);
    if (r < 0) {
        notes_add_errno(t->source.notes, entry->path, -r);
        return true;
    }
    if (d_type == DT_UNKNOWN) {
        entry->type = type_of_mode(st.st_mode);
        if (entry->type == TREE_SYMLINK && t->o.follow)
            return !follow_link(t, l, entry) || is_out_by_stat(t, l, DT_LNK, entry);
    }
    return entry->type != TREE_DIR && (uint64_t)st.st_size > t->o.max_filesize;
}

static int tree_descend(struct worker *w, struct listing *l, bool is_linked, struct err *e)
{
    struct listing *child;
    int r;

    if (l->depth + 1 >= w->t->o.max_depth)
        return 0;
    r = listing_new(w->whole.data, w->whole.len, l->depth + 1, l->ignore, &child, e);
    if (r < 0)
        return r;
    child->is_linked = is_linked;
    if (w->t->o.follow)
        child->up = listing_ref(l);
    r = tree_fill(w->t, child, e);
    listing_unref(child);
    return r;
}

/* True if the entry is hidden. Sets the fields that getdents64(2) did not tell. */
static bool is_out(struct worker *w, const struct listing *l, size_t i, struct tree_entry *entry)
{
    struct tree *t = w->t;
    unsigned char d_type = fs_names_type(&l->names, i);

    if (d_type == DT_LNK && t->o.follow && !follow_link(t, l, entry))
        return true;
    if (d_type == DT_UNKNOWN && is_out_by_stat(t, l, DT_UNKNOWN, entry))
        return true;
    /* As fd has it: no rule hides a link to nowhere when links are followed, and it has no
     * depth. */
    if (entry->to_nowhere)
        return t->o.min_depth > 1;
    return is_hidden(t, w, l, entry) || is_out_by_stat(t, l, DT_REG, entry);
}

/* *ret_descend: it is a directory to go into (w->whole is its path). */
static int do_entry(struct worker *w, const struct listing *l, size_t i, int dirfd,
                    struct tree_entry *entry, bool *ret_descend, struct err *e)
{
    struct tree *t = w->t;
    int r;

    *entry = (struct tree_entry){.dirfd = dirfd,
                                 .type = type_of(fs_names_type(&l->names, i)),
                                 .via_link = l->is_linked,
                                 .depth = l->depth + 1};
    *ret_descend = false;
    r = set_paths(w, l, i, entry, e);
    if (r < 0)
        return r;
    if (is_out(w, l, i, entry))
        return 0;
    if (entry->depth >= t->o.min_depth && !was_shown(t, entry))
        r = t->v->visit(t->v->arg, w->number, entry, e);
    *ret_descend = r == 0 && entry->type == TREE_DIR;
    return r;
}

static int do_range(struct worker *w, const struct range *range, struct err *e)
{
    struct tree *t = w->t;
    struct listing *l = range->l;
    _cleanup_close_ int own = l->fd < 0 ? open_dir(t, l) : -1;
    int dirfd = l->fd < 0 ? own : l->fd;
    int r;

    if (dirfd < 0) {
        note_dir(t, l, -dirfd);
        own = -1;
        return 0;
    }
    r = set_dir(w, l, e);
    for (size_t i = range->from; r == 0 && i < range->to; i++) {
        struct tree_entry entry;
        bool is_dir;

        if (t->v->is_gone && t->v->is_gone(t->v->arg))
            return err_set(e, ERR_CANCELED, "the search was canceled");
        r = do_entry(w, l, i, dirfd, &entry, &is_dir, e);
        if (r == 0 && is_dir) {
            r = tree_push(t, l, i + 1, range->to, e);
            return r < 0 ? r : tree_descend(w, l, entry.via_link, e);
        }
    }
    return r;
}

/* --- the walk --- */

static void worker_run(struct worker *w)
{
    struct range range;

    while (w->r == 0 && tree_pop(w->t, &range)) {
        w->r = do_range(w, &range, &w->e);
        listing_unref(range.l);
    }
    if (w->r < 0)
        tree_stop(w->t);
}

static void *helper_main(void *arg)
{
    struct worker *w = arg;
    const struct tree_access *a = &w->t->access;

    if (a->enter) {
        w->r = a->enter(a->arg, &w->e);
        if (w->r < 0) {
            tree_stop(w->t);
            return NULL;
        }
    }
    worker_run(w);
    if (a->leave)
        a->leave(a->arg);
    return NULL;
}

static int load_rules(struct tree *t, struct err *e)
{
    struct ignore *above = NULL;
    int r;

    if (!t->o.no_ignore) {
        r = rulefiles_above(&t->source, t->o.whole, t->o.no_ignore_parent, &above, e);
        if (r == 0 && !t->o.no_ignore_vcs)
            r = rulefiles_global(&t->source, t->o.home, &t->global, e);
        if (r < 0) {
            ignore_unref(above);
            return r;
        }
    }
    r = listing_new(t->o.whole, strlen(t->o.whole), 0, above, &t->root, e);
    ignore_unref(above);
    if (r == 0)
        t->root_len = t->root->whole_len;
    return r;
}

int tree_new(int rootfd, const struct tree_options *o, const struct tree_access *access,
             struct notes *notes, struct tree **ret, struct err *e)
{
    struct tree *t = calloc(1, sizeof(*t));
    int r;

    if (!t)
        return err_oom(e);
    t->rootfd = rootfd;
    t->o = *o;
    t->access = *access;
    t->source = (struct rule_source){&t->access, notes, !o->no_ignore_vcs};
    if (o->sort)
        t->o.n_workers = 1;
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->more, NULL);
    for (unsigned i = 0; i < TREE_MAX_WORKERS; i++) {
        t->workers[i] = (struct worker){.t = t, .number = i};
        buf_init(&t->workers[i].path, PATH_BYTES_MAX);
        buf_init(&t->workers[i].whole, PATH_BYTES_MAX);
    }
    r = rules_add_globs(&t->globs, o->globs, RULES_GLOBS, "globs", e);
    if (r == 0)
        r = rules_add_globs(&t->globs, o->iglobs, RULES_IGLOBS, "iglobs", e);
    if (r == 0)
        r = rules_add_globs(&t->globs, o->exclude, RULES_EXCLUDES, "exclude", e);
    if (r == 0)
        r = types_new(o->types, o->type_not, o->type_add, &t->types, e);
    if (r == 0)
        r = load_rules(t, e);
    if (r < 0) {
        tree_free(t);
        return r;
    }
    *ret = t;
    return 0;
}

struct tree *tree_free(struct tree *t)
{
    if (!t)
        return NULL;
    while (t->n)
        listing_unref(t->stack[--t->n].l);
    free(t->stack);
    listing_unref(t->root);
    rules_free(t->globs);
    rules_free(t->global);
    types_free(t->types);
    for (unsigned i = 0; i < TREE_MAX_WORKERS; i++) {
        buf_done(&t->workers[i].path);
        buf_done(&t->workers[i].whole);
    }
    (void)pthread_mutex_destroy(&t->lock);
    (void)pthread_cond_destroy(&t->more);
    free(t);
    return NULL;
}

int tree_walk(struct tree *t, const struct tree_visitor *v, struct err *e)
{
    int r = 0;

    t->v = v;
    t->n_busy = 1;
    if (t->o.max_depth > 0)
        r = tree_fill(t, t->root, e);
    if (r < 0)
        return r;
    worker_run(&t->workers[0]);
    if (t->has_helper)
        (void)pthread_join(t->helper, NULL);
    for (unsigned i = 0; i < TREE_MAX_WORKERS; i++) {
        const struct worker *w = &t->workers[i];

        if (w->r < 0) {
            if (e)
                *e = w->e;
            return w->r;
        }
    }
    return 0;
}
