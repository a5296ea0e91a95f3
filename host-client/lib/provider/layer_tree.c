#include "lib/provider/layer_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"
#include "lib/provider/layer_known.h"
#include "lib/util/beneath.h"

#define ENTRY_COST 4096 /* of the budget, for an entry */
#define OPAQUE_NAME "trusted.overlay.opaque"
#define LINE_MAX_BYTES ((size_t)16 << 20) /* a path, a target, attributes in hex */

/* ---- lines ---- */

static bool is_plain_byte(unsigned char c)
{
    return c > ' ' && c != '\\' && c != 0x7f;
}

int layer_put_text(struct buf *out, const char *s, struct err *e)
{
    int r = 0;

    while (r == 0 && *s) {
        size_t n = 0;

        while (is_plain_byte((unsigned char)s[n]))
            n++;
        if (n)
            r = buf_add(out, s, n, e);
        else
            r = buf_addf(out, e, "\\x%02x", (unsigned char)s[n++]);
        s += n;
    }
    return r;
}

void layer_read_text(char *s)
{
    unsigned byte;
    char *to = s;

    for (; *s; s++) {
        bool is_escaped = sscanf(s, "\\x%2x", &byte) == 1;

        *to++ = is_escaped ? (char)byte : *s;
        s += is_escaped ? 3 : 0;
    }
    *to = '\0';
}

struct tree_entry {
    char type;
    struct stat st;              /* ids as in a layer */
    const char *digest, *target; /* NULL: none */
    const char *path;
    const char *attributes; /* "\tNAME=HEX...", or "" */
};

static int tell_entry(struct layer_walk *w, const struct tree_entry *n, struct buf *line,
                      struct err *e)
{
    bool has_facts = n->type != 'w' && n->type != 'h';
    int r;

    buf_clear(line);
    r = has_facts
            ? buf_addf(line, e, "%c\t%04o\t%u\t%u\t%lld.%09ld\t%lld\t%s\t", n->type,
                       (unsigned)n->st.st_mode & 07777, n->st.st_uid, n->st.st_gid,
                       (long long)n->st.st_mtim.tv_sec, n->st.st_mtim.tv_nsec,
                       n->type == 'f' ? (long long)n->st.st_size : 0LL, n->digest ? n->digest : "-")
            : buf_addf(line, e, "%c\t-\t-\t-\t-\t-\t-\t", n->type);
    if (r == 0)
        r = layer_put_text(line, n->path, e);
    if (r == 0)
        r = buf_adds(line, "\t", e);
    if (r == 0)
        r = n->target ? layer_put_text(line, n->target, e) : buf_adds(line, "-", e);
    if (r == 0)
        r = buf_adds(line, n->attributes, e);
    if (r == 0)
        r = buf_adds(line, "\n", e);
    return r < 0 ? r : w->line(w->arg, line->data, line->len, n->path, e);
}

/* ---- one directory ---- */

/* The working set of a walk. */
struct tree_pass {
    struct layer_walk *w;
    struct layer_known *seen; /* files with several names, by inode */
    char **pending;           /* directories to come, the next one last */
    size_t n_pending, cap_pending;
    struct buf line, attributes;
    /* The directory at hand. */
    const char *dir;
    int from, to;
};

static int pending_add_take(struct tree_pass *p, char *path, struct err *e)
{
    if (p->n_pending == p->cap_pending) {
        size_t cap = p->cap_pending ? p->cap_pending * 2 : 64;
        char **more = reallocarray(p->pending, cap, sizeof(*more));

        if (!more) {
            free(path);
            return err_oom(e);
        }
        p->pending = more;
        p->cap_pending = cap;
    }
    p->pending[p->n_pending++] = path;
    return 0;
}

static char *entry_path(const struct tree_pass *p, const char *name)
{
    char *path;

    return asprintf(&path, "%s%s%s", p->dir, *p->dir ? "/" : "", name) < 0 ? NULL : path;
}

static void shift_ids(const struct layer_walk *w, struct stat *st)
{
    st->st_uid = layer_file_id(w->base, st->st_uid);
    st->st_gid = layer_file_id(w->base, st->st_gid);
}

/* The owner first: a change of it clears setuid and capabilities. */
static int copy_facts(int to, const struct stat *st, struct err *e)
{
    if (fchown(to, st->st_uid, st->st_gid) < 0)
        return err_sys(e, errno, "set the owner");
    return fchmod(to, st->st_mode & 07777) < 0 ? err_sys(e, errno, "set the mode") : 0;
}

static int copy_mtime(int to, const struct stat *st, struct err *e)
{
    const struct timespec times[2] = {st->st_mtim, st->st_mtim};

    return futimens(to, times) < 0 ? err_sys(e, errno, "set the time") : 0;
}

/* The same for what cannot be opened: links, FIFOs, sockets. `to` is a directory of ours. */
static int copy_facts_at(int to, const char *name, const struct stat *st, struct err *e)
{
    const struct timespec times[2] = {st->st_mtim, st->st_mtim};

    if (fchownat(to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        (!S_ISLNK(st->st_mode) && beneath_chmod(to, name, st->st_mode & 07777) < 0) ||
        utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "set the owner, mode and time");
    return 0;
}

/* ---- files ---- */

static bool same_change(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* An update makes each entry anew that is not as it was. */
static int clear_place(const struct tree_pass *p, const char *name, struct err *e)
{
    _cleanup_free_ char *path = NULL;

    if (p->to < 0 || !p->w->is_update || unlinkat(p->to, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (asprintf(&path, "/proc/self/fd/%d/%s", p->to, name) < 0)
        return err_oom(e);
    return dirtree_remove(path, e);
}

static int copy_file(struct tree_pass *p, const char *name, int from, struct tree_entry *n,
                     char hex[LAYER_HEX_BYTES], struct err *e)
{
    _cleanup_close_ int to = -1;
    int r = clear_place(p, name, e);

    if (r == 0 && p->to >= 0) {
        to = openat(p->to, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (to < 0)
            r = err_sys(e, errno, "create");
    }
    if (r == 0)
        r = layer_file_digest(from, to, &p->w->budget, hex, e);
    if (r == 0 && to >= 0)
        r = copy_facts(to, &n->st, e);
    if (r == 0)
        r = layer_file_attributes(from, to, p->w->base, &p->attributes, e);
    if (r == 0 && to >= 0)
        r = copy_mtime(to, &n->st, e);
    if (r < 0 && to >= 0)
        (void)unlinkat(p->to, name, 0);
    return r;
}

static bool is_same_inode(int a, const char *a_name, int b, const char *b_name)
{
    struct stat one, two;

    return fstatat(a, a_name, &one, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(b, b_name, &two, AT_SYMLINK_NOFOLLOW) == 0 && one.st_ino == two.st_ino &&
           one.st_dev == two.st_dev;
}

static int link_place(const struct tree_pass *p, const char *name, int tree, const char *path,
                      struct err *e)
{
    int r;

    if (p->to < 0 || (p->w->is_update && is_same_inode(tree, path, p->to, name)))
        return 0;
    r = clear_place(p, name, e);
    return r == 0 && linkat(tree, path, p->to, name, 0) < 0 ? err_sys(e, errno, "link") : r;
}

/* A second name of a file. *ret: it was one. */
static int take_second_name(struct tree_pass *p, const char *name, struct tree_entry *n, bool *ret,
                            struct err *e)
{
    const struct known_file *first = n->st.st_nlink > 1 ? known_find(p->seen, n->st.st_ino) : NULL;
    int r;

    *ret = first != NULL;
    if (!first)
        return 0;
    n->type = 'h';
    n->target = first->path;
    r = link_place(p, name, p->w->to, first->path, e);
    return r < 0 ? r : tell_entry(p->w, n, &p->line, e);
}

static int note_file(struct tree_pass *p, const struct stat *raw, const struct tree_entry *n,
                     struct err *e)
{
    int r = 0;

    if (raw->st_nlink > 1)
        r = known_add(p->seen, raw, n->digest, n->path, NULL, e);
    if (r == 0 && p->w->learnt)
        r = known_add(p->w->learnt, raw, n->digest, n->path, n->attributes, e);
    p->w->bytes += (uint64_t)raw->st_size;
    return r < 0 ? r : tell_entry(p->w, n, &p->line, e);
}

/* A file that the earlier copy has: the two share it. *ret: it was one. */
static int take_known(struct tree_pass *p, const char *name, struct tree_entry *n,
                      const struct stat *raw, bool *ret, struct err *e)
{
    const struct known_file *known = known_unchanged(p->w->known, raw);
    char hex[LAYER_HEX_BYTES];

    /* An update may have replaced the file at another path already. */
    *ret =
        known && (p->w->is_update ? str_eq(known->path, n->path)
                                  : link_place(p, name, p->w->known_tree, known->path, NULL) == 0);
    if (!*ret)
        return 0;
    str_hex(known->digest, sizeof(known->digest), hex);
    n->digest = hex;
    n->attributes = known->attributes ? known->attributes : "";
    return note_file(p, raw, n, e);
}

static int take_file(struct tree_pass *p, const char *name, struct tree_entry *n,
                     const struct stat *raw, struct err *e)
{
    _cleanup_close_ int from = -1;
    char hex[LAYER_HEX_BYTES];
    struct stat before, after;
    bool is_done;
    int r = take_second_name(p, name, n, &is_done, e);

    if (r == 0 && !is_done)
        r = take_known(p, name, n, raw, &is_done, e);
    if (r < 0 || is_done)
        return r;
    from = openat(p->from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (from < 0 && (errno == ELOOP || errno == ENXIO)) /* a link, a socket */
        return err_set(e, ERR_ABORTED, "it was replaced on the way");
    if (from < 0 || fstat(from, &before) < 0)
        return err_sys(e, errno, "open");
    if (!S_ISREG(before.st_mode) || before.st_ino != raw->st_ino)
        return err_set(e, ERR_ABORTED, "it was replaced on the way");
    n->st = before;
    shift_ids(p->w, &n->st);
    r = copy_file(p, name, from, n, hex, e);
    if (r < 0)
        return r;
    if (fstat(from, &after) < 0 || !same_change(&before, &after)) {
        if (p->to >= 0)
            (void)unlinkat(p->to, name, 0);
        return err_set(e, ERR_ABORTED, "it changed while it was copied");
    }
    n->digest = hex;
    n->attributes = p->attributes.len ? p->attributes.data : "";
    return note_file(p, &before, n, e);
}

/* ---- the other types ---- */

static int take_symlink(struct tree_pass *p, const char *name, struct tree_entry *n, struct err *e)
{
    char target[PATH_MAX + 1];
    ssize_t len = readlinkat(p->from, name, target, sizeof(target) - 1);

    if (len < 0 && errno == EINVAL)
        return err_set(e, ERR_ABORTED, "it was replaced on the way");
    if (len < 0)
        return err_sys(e, errno, "read the link");
    target[len] = '\0';
    n->target = target;
    if (p->to >= 0) {
        int r = clear_place(p, name, e);

        if (r == 0 && symlinkat(target, p->to, name) < 0)
            r = err_sys(e, errno, "make the link");
        if (r == 0)
            r = copy_facts_at(p->to, name, &n->st, e);
        if (r < 0)
            return r;
    }
    return tell_entry(p->w, n, &p->line, e);
}

static int make_node(const struct tree_pass *p, const char *name, mode_t type, struct err *e)
{
    int r = p->to >= 0 ? clear_place(p, name, e) : 0;

    return r == 0 && p->to >= 0 && mknodat(p->to, name, type | 0600, makedev(0, 0)) < 0
               ? err_sys(e, errno, "make it")
               : r;
}

static int take_whiteout(struct tree_pass *p, const char *name, struct tree_entry *n, struct err *e)
{
    int r = make_node(p, name, S_IFCHR, e);

    n->type = 'w';
    return r < 0 ? r : tell_entry(p->w, n, &p->line, e);
}

/* A FIFO or a socket: its inode is opened, and nothing of what it stands for. */
static int take_node(struct tree_pass *p, const char *name, struct tree_entry *n, struct err *e)
{
    const int flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    _cleanup_close_ int from = openat(p->from, name, flags), to = -1;
    struct stat st;
    int r;

    if (from < 0 || fstat(from, &st) < 0)
        return err_sys(e, errno, "open");
    if (st.st_ino != n->st.st_ino || (st.st_mode & S_IFMT) != (n->st.st_mode & S_IFMT))
        return err_set(e, ERR_ABORTED, "it was replaced on the way");
    r = make_node(p, name, st.st_mode & S_IFMT, e);
    if (r == 0 && p->to >= 0)
        r = copy_facts_at(p->to, name, &n->st, e);
    if (r == 0 && p->to >= 0 && (to = openat(p->to, name, flags)) < 0)
        r = err_sys(e, errno, "open the copy");
    if (r == 0)
        r = layer_file_attributes(from, to, p->w->base, &p->attributes, e);
    if (r < 0)
        return r;
    n->attributes = p->attributes.len ? p->attributes.data : "";
    return tell_entry(p->w, n, &p->line, e);
}

/* Is what lies below the directory hidden? */
static int read_opaque(int fd, bool *ret, struct err *e)
{
    static const char *const moved[] = {"trusted.overlay.redirect", "trusted.overlay.metacopy"};
    char value[4];
    ssize_t n = fgetxattr(fd, OPAQUE_NAME, value, sizeof(value));

    *ret = n == 1 && value[0] == 'y';
    for (size_t i = 0; i < N_ELEMENTS(moved); i++)
        if (fgetxattr(fd, moved[i], NULL, 0) >= 0)
            return err_set(e, ERR_UNIMPLEMENTED,
                           "its content is elsewhere (overlayfs's redirect_dir or metacopy)");
    return 0;
}

/* Also the root. */
static int open_dir_at(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int make_directory(const struct tree_pass *p, const char *name, struct err *e)
{
    struct stat st;
    int r;

    if (p->to < 0 || (p->w->is_update && fstatat(p->to, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                      S_ISDIR(st.st_mode)))
        return 0;
    r = clear_place(p, name, e);
    return r == 0 && mkdirat(p->to, name, 0700) < 0 ? err_sys(e, errno, "make the directory") : r;
}

static int take_directory(struct tree_pass *p, const char *name, struct tree_entry *n,
                          struct err *e)
{
    _cleanup_close_ int from = open_dir_at(p->from, name);
    bool is_opaque = false;
    char *path;
    int r;

    if (from < 0 || fstat(from, &n->st) < 0)
        return err_sys(e, errno, "open");
    shift_ids(p->w, &n->st);
    if (strlen(n->path) > LAYER_MAX_PATH_BYTES)
        return err_set(e, ERR_EXHAUSTED, "a path has at most %d bytes", LAYER_MAX_PATH_BYTES);
    r = read_opaque(from, &is_opaque, e);
    if (r == 0)
        r = layer_file_attributes(from, -1, p->w->base, &p->attributes, e);
    if (r < 0)
        return r;
    n->type = is_opaque ? 'o' : 'd';
    n->attributes = p->attributes.len ? p->attributes.data : "";
    r = make_directory(p, name, e);
    if (r == 0)
        r = tell_entry(p->w, n, &p->line, e);
    if (r < 0)
        return r;
    path = strdup(n->path);
    return path ? pending_add_take(p, path, e) : err_oom(e);
}

/* ---- the walk ---- */

static int take_by_type(struct tree_pass *p, const char *name, struct tree_entry *n,
                        const struct stat *raw, struct err *e)
{
    switch (n->st.st_mode & S_IFMT) {
    case S_IFDIR:
        return take_directory(p, name, n, e);
    case S_IFREG:
        n->type = 'f';
        return take_file(p, name, n, raw, e);
    case S_IFLNK:
        n->type = 'l';
        return take_symlink(p, name, n, e);
    case S_IFIFO:
        n->type = 'p';
        return take_node(p, name, n, e);
    case S_IFSOCK:
        n->type = 's';
        return take_node(p, name, n, e);
    case S_IFCHR:
        if (n->st.st_rdev == makedev(0, 0))
            return take_whiteout(p, name, n, e);
        break;
    default:
        break;
    }
    p->w->n_devices++;
    return 0;
}

static uint64_t max_entries(const struct layer_walk *w)
{
    return w->max_entries ? w->max_entries : LAYER_MAX_ENTRIES;
}

static int take_entry(struct tree_pass *p, const char *name, struct err *e)
{
    _cleanup_free_ char *path = entry_path(p, name);
    struct tree_entry n = {.path = path, .attributes = ""};
    struct stat raw;
    int r;

    if (!path)
        return err_oom(e);
    if (++p->w->n_entries > max_entries(p->w))
        return err_set(e, ERR_EXHAUSTED, "a layer has at most %" PRIu64 " entries",
                       max_entries(p->w));
    r = layer_budget_spend(&p->w->budget, p->w->to, ENTRY_COST, e);
    if (r < 0)
        return r;
    buf_clear(&p->attributes);
    if (fstatat(p->from, name, &n.st, AT_SYMLINK_NOFOLLOW) < 0) {
        r = err_sys(e, errno, "stat");
    } else {
        raw = n.st;
        shift_ids(p->w, &n.st);
        r = take_by_type(p, name, &n, &raw, e);
    }
    if (p->w->is_live && (r == -ERR_NOT_FOUND || r == -ERR_ABORTED))
        return 0;
    return r < 0 && r != -ERR_DATA_LOSS ? err_wrap(e, r, "'%.300s'", path) : r;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int read_names(int fd, uint64_t max, struct strv_list *names, struct err *e)
{
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_closedir_ DIR *d = own < 0 ? NULL : fdopendir(own);
    int r = 0;

    if (!d) {
        fd_close(own);
        return err_sys(e, errno, "read the directory");
    }
    errno = 0;
    for (struct dirent *de; r == 0 && (de = readdir(d)); errno = 0) {
        if (str_eq(de->d_name, ".") || str_eq(de->d_name, ".."))
            continue;
        if (names->n >= max)
            return err_set(e, ERR_EXHAUSTED, "a layer has at most %" PRIu64 " entries", max);
        r = strv_list_add(names, de->d_name, e);
    }
    if (r == 0 && errno)
        return err_sys(e, errno, "read the directory");
    if (names->n)
        qsort(names->v, names->n, sizeof(*names->v), compare_names);
    return r;
}

/* Entries of the copy that the directory has no more. */
static int remove_others(const struct tree_pass *p, const struct strv_list *names, struct err *e)
{
    struct strv_list have = {0};
    int r = read_names(p->to, max_entries(p->w), &have, e);

    for (size_t i = 0; r == 0 && i < have.n; i++)
        if (!names->n || !bsearch(&have.v[i], names->v, names->n, sizeof(*names->v), compare_names))
            r = clear_place(p, have.v[i], e);
    (void)strv_free(have.v);
    return r;
}

/* The entries of the directory at hand; then the directory itself gets its facts, which its
 * entries would have changed. */
static int fill_directory(struct tree_pass *p, struct err *e)
{
    size_t first = p->n_pending;
    struct strv_list names = {0};
    bool is_opaque = false;
    struct stat st;
    int r = fstat(p->from, &st) < 0 ? err_sys(e, errno, "stat")
                                    : read_names(p->from, max_entries(p->w), &names, e);

    if (r == 0 && p->to >= 0 && p->w->is_update) /* new entries would inherit a default ACL */
        r = layer_file_clear_attributes(p->to, e);
    for (size_t i = 0; r == 0 && i < names.n; i++)
        r = take_entry(p, names.v[i], e);
    for (size_t a = first, b = p->n_pending; r == 0 && a + 1 < b; a++, b--) {
        char *swap = p->pending[a];

        p->pending[a] = p->pending[b - 1];
        p->pending[b - 1] = swap;
    }
    if (r == 0 && p->to >= 0 && p->w->is_update)
        r = remove_others(p, &names, e);
    (void)strv_free(names.v);
    if (r < 0 || p->to < 0)
        return r;
    shift_ids(p->w, &st);
    buf_clear(&p->attributes);
    r = read_opaque(p->from, &is_opaque, e);
    if (r == 0)
        r = copy_facts(p->to, &st, e);
    if (r == 0 && is_opaque && fsetxattr(p->to, OPAQUE_NAME, "y", 1, 0) < 0)
        r = err_sys(e, errno, "set '" OPAQUE_NAME "'");
    if (r == 0)
        r = layer_file_attributes(p->from, p->to, p->w->base, &p->attributes, e);
    return r < 0 ? r : copy_mtime(p->to, &st, e);
}

static int walk_directory(struct tree_pass *p, const char *path, struct err *e)
{
    const int flags = O_RDONLY | O_DIRECTORY;
    _cleanup_close_ int from = beneath_open(p->w->from, path, flags);
    _cleanup_close_ int to = -1;
    int r;

    p->dir = path;
    if (from < 0 && p->w->is_live && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return 0;
    if (from < 0)
        return err_sys(e, errno, "open '%.300s'", path);
    if (p->w->to >= 0) {
        to = beneath_open(p->w->to, path, flags);
        if (to < 0)
            return err_sys(e, errno, "open the copy of '%.300s'", path);
    }
    p->from = from;
    p->to = to;
    r = fill_directory(p, e);
    return r < 0 && e && !strchr(e->message, '\'') ? err_wrap(e, r, "'%.300s'", path) : r;
}

/* The line of the root, which is an entry of no directory. */
static int tell_root(struct tree_pass *p, struct err *e)
{
    struct tree_entry n = {.path = ".", .attributes = ""};
    bool is_opaque = false;
    int r = fstat(p->w->from, &n.st) < 0 ? err_sys(e, errno, "stat the root")
                                         : read_opaque(p->w->from, &is_opaque, e);

    if (r == 0)
        r = layer_file_attributes(p->w->from, -1, p->w->base, &p->attributes, e);
    if (r < 0)
        return r;
    shift_ids(p->w, &n.st);
    n.type = is_opaque ? 'o' : 'd';
    n.attributes = p->attributes.len ? p->attributes.data : "";
    return tell_entry(p->w, &n, &p->line, e);
}

int layer_walk_run(struct layer_walk *w, struct err *e)
{
    struct tree_pass p = {.w = w, .from = -1, .to = -1, .seen = layer_known_new()};
    char *root = strdup("");
    int r;

    buf_init(&p.line, LINE_MAX_BYTES);
    buf_init(&p.attributes, LINE_MAX_BYTES);
    r = p.seen && root ? pending_add_take(&p, TAKE(root), e) : err_oom(e);
    free(root);
    if (r == 0)
        r = w->line(w->arg, LAYER_FORMAT "\n", strlen(LAYER_FORMAT) + 1, "", e);
    if (r == 0)
        r = tell_root(&p, e);
    while (r == 0 && p.n_pending) {
        _cleanup_free_ char *path = p.pending[--p.n_pending];

        r = walk_directory(&p, path, e);
    }
    while (p.n_pending)
        free(p.pending[--p.n_pending]);
    free(p.pending);
    buf_done(&p.line);
    buf_done(&p.attributes);
    (void)layer_known_free(p.seen);
    return r;
}
