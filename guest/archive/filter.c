#include "archive/filter.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"
#include "search/rulefiles.h"

#define WHOLE_MAX_BYTES (128 * 1024) /* the start's path and a walk's longest */

struct filter {
    char **excludes;
    locale_t bytes; /* for matching the globs, independent of the caller's */
    bool ignore;
    bool no_require_git;
    struct tree_access access;
    struct notes notes;
    struct rule_source source; /* the two above */
    struct fs_caller *caller;
    struct rules *global;
    struct buf whole; /* the start's absolute path with '/', then the entry's */
    size_t start_len; /* with the '/' */

    /* view[d]: of the directory at depth d on the way to the walk's place; a reference each. */
    struct ignore **view;
    unsigned n_views;
};

/* ---- the disk, for the rules ----------------------------------------------------------------- */

static int open_rules(void *arg, const char *path, int flags)
{
    struct err e = {0};
    int fd;

    if (fs_open(arg, path, flags, 0, &fd, &e) < 0)
        return e.sys ? -e.sys : -EACCES;
    return fd;
}

/* The start's absolute path; without /proc the path as it was asked for has to do. */
static int find_whole(struct filter *f, const char *path, int fd, struct err *e)
{
    _cleanup_free_ char *joined = NULL, *clean = NULL;
    char link[64], target[PATH_MAX];
    ssize_t n;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, target, sizeof(target));
    if (n > 0 && (size_t)n < sizeof(target) && target[0] == '/') {
        clean = strndup(target, (size_t)n);
    } else {
        int r = fs_caller_path(f->caller, path, &joined, e);

        if (r < 0)
            return r;
        clean = path_clean(joined);
    }
    if (!clean)
        return err_oom(e);
    n = buf_addf(&f->whole, e, "%s%s", clean, str_has_suffix(clean, "/") ? "" : "/");
    f->start_len = f->whole.len;
    return (int)n;
}

/* ---- views ----------------------------------------------------------------------------------- */

static int set_view(struct filter *f, unsigned depth, struct ignore *view_taken, struct err *e)
{
    while (f->n_views > depth)
        (void)ignore_unref(f->view[--f->n_views]);
    if ((f->n_views & (f->n_views - 1)) == 0) {
        size_t cap = f->n_views ? f->n_views * 2 : 1;
        struct ignore **grown = realloc(f->view, cap * sizeof(struct ignore *));

        if (!grown) {
            (void)ignore_unref(view_taken);
            return err_oom(e);
        }
        f->view = grown;
    }
    f->view[f->n_views++] = view_taken;
    return 0;
}

/* The rules in a directory that the walk is about to enter; f->whole is its path with '/'. */
static int filter_enter_dir(struct filter *f, const struct fs_walk_item *it, struct ignore *up,
                            struct err *e)
{
    _cleanup_close_ int fd = fs_openat_nofollow(it->dirfd, it->name, O_RDONLY | O_DIRECTORY);
    const bool all[IGNORE_N_FILES] = {true, true, true, true};
    struct ignore *view = ignore_ref(up);
    int r = 0;

    if (fd >= 0)
        r = rulefiles_add_own(&f->source, fd, f->whole.data, all, &view, e);
    if (r < 0) {
        (void)ignore_unref(view);
        return r;
    }
    return set_view(f, it->depth, view, e);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int init_ignore(struct filter *f, const char *path, int start_fd, struct err *e)
{
    const char *home = f->caller->actor.user.home;
    struct ignore *above = NULL;
    int r;

    r = find_whole(f, path, start_fd, e);
    if (r == 0)
        r = rulefiles_above(&f->source, f->whole.data, false, &above, e);
    if (r == 0)
        r = set_view(f, 0, above, e); /* until the start itself is seen */
    if (r == 0 && home && strcmp(home, "/") != 0)
        r = rulefiles_global(&f->source, home, &f->global, e);
    return r;
}

int filter_new(struct fs_caller *c, const char *path, int start_fd, const struct filter_options *o,
               struct filter **ret, struct err *e)
{
    struct filter *f = calloc(1, sizeof(*f));
    int r = 0;

    if (!f)
        return err_oom(e);
    notes_init(&f->notes);
    buf_init(&f->whole, WHOLE_MAX_BYTES);
    f->caller = fs_caller_ref(c);
    f->access = (struct tree_access){.open = open_rules, .arg = c};
    f->source = (struct rule_source){&f->access, &f->notes, true};
    f->ignore = o->ignore;
    f->no_require_git = o->no_require_git;
    if (o->excludes && (!(f->excludes = strv_dup(o->excludes)) ||
                        !(f->bytes = newlocale(LC_CTYPE_MASK, "C", (locale_t)0))))
        r = err_oom(e);
    if (r == 0 && o->ignore)
        r = init_ignore(f, path, start_fd, e);
    if (r < 0) {
        filter_free(f);
        return r;
    }
    *ret = f;
    return 0;
}

struct filter *filter_free(struct filter *f)
{
    if (!f)
        return NULL;
    while (f->n_views)
        (void)ignore_unref(f->view[--f->n_views]);
    free(f->view);
    rules_free(f->global);
    notes_done(&f->notes);
    buf_done(&f->whole);
    strv_free(f->excludes);
    if (f->bytes)
        freelocale(f->bytes);
    fs_caller_unref(f->caller);
    free(f);
    return NULL;
}

/* ---- each entry ------------------------------------------------------------------------------ */

static bool matches_one(char *const *globs, const struct fs_walk_item *it)
{
    for (char *const *p = globs; *p; p++) {
        bool whole = strchr(*p, '/') != NULL;
        const char *glob = *p + strspn(*p, "/"); /* the start is the root */

        if (fnmatch(glob, whole ? it->path : it->name, whole ? FNM_PATHNAME : 0) == 0)
            return true;
    }
    return false;
}

/* Byte by byte, as rg and sync's own side do: to musl a byte that is no UTF-8 is a name's end. */
static bool is_excluded(const struct filter *f, const struct fs_walk_item *it)
{
    locale_t before;
    bool is;

    if (!f->excludes)
        return false;
    before = uselocale(f->bytes);
    is = matches_one(f->excludes, it);
    (void)uselocale(before);
    return is;
}

static int set_whole(struct filter *f, const char *path, struct err *e)
{
    f->whole.len = f->start_len;
    return buf_adds(&f->whole, path, e);
}

/* A view as if the start were a repository. */
static int pretend_git(const struct filter *f, struct ignore **above, struct err *e)
{
    struct ignore_dir d = {.has_git = true, .skip = f->start_len};
    struct ignore *view = NULL;
    int r = ignore_new_take(*above, &d, &view, e);

    if (r < 0)
        return r;
    (void)ignore_unref(*above);
    *above = view;
    return 0;
}

/* The entry's own path is not hidden: as the start of a search, the start of a tree is shown. */
static int see_start(struct filter *f, const struct fs_walk_item *it, struct err *e)
{
    struct ignore *above = ignore_ref(f->view[0]);
    int r = set_whole(f, "", e);

    if (r == 0 && f->no_require_git)
        r = pretend_git(f, &above, e);
    if (r == 0)
        r = filter_enter_dir(f, it, above, e);
    (void)ignore_unref(above);
    return r;
}

static int see_rules(struct filter *f, const struct fs_walk_item *it, bool *ret_hidden,
                     struct err *e)
{
    struct ignore *up = f->view[it->depth - 1];
    bool is_dir = S_ISDIR(it->st.st_mode);
    int r = set_whole(f, it->path, e);

    if (r < 0)
        return r;
    if (ignore_match(up, f->global, f->start_len, f->whole.data, f->whole.len, is_dir) ==
        IGNORE_HIDE) {
        *ret_hidden = true;
        return 0;
    }
    if (!is_dir)
        return 0;
    r = buf_adds(&f->whole, "/", e);
    return r < 0 ? r : filter_enter_dir(f, it, up, e);
}

int filter_see(struct filter *f, const struct fs_walk_item *it, bool *ret_hidden, struct err *e)
{
    *ret_hidden = it->depth && is_excluded(f, it);
    if (*ret_hidden || !f->ignore)
        return 0;
    return it->depth ? see_rules(f, it, ret_hidden, e) : see_start(f, it, e);
}

const struct notes *filter_notes(const struct filter *f)
{
    return &f->notes;
}
