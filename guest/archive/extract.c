#include "archive/extract.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/read.h"
#include "archive/stage.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"
#include "fs/walk.h"
#include "fs/place.h"
#include "fs/change.h"
#include "fs/sys.h"
#include "fs/temp.h"
#include "fs/write.h"
#include "fs/copy.h"

static atomic_int n_running;

/* Only one archive at a time is put in place: a rollback assumes that the steps in between are its
 * own. */
static pthread_mutex_t place_lock = PTHREAD_MUTEX_INITIALIZER;

struct archive_extract {
    struct fs_caller *caller;
    char *path; /* as asked */
    struct archive_extract_options o;
    bool is_counted; /* in n_running */

    int parent_fd; /* of the target; -1 when the target is "/" or the root */
    char *name;    /* of the target in it */
    int target_fd; /* O_PATH; -1: there is none yet */
    struct timespec target_mtime;
    int n_made; /* directories above the target that were made */

    int home_fd; /* where the staging directory is: parent_fd or target_fd; borrowed */
    char stage_name[FS_TEMP_NAME_BYTES]; /* "" when there is none */
    int stage_fd;
    char registered[FS_TEMP_NAME_BYTES]; /* its name in the registry, or "" */

    bool is_committed;
    bool is_kept;    /* a rollback was not complete: the staging directory has originals */
    uint64_t packed; /* bytes received */
    uint64_t removed;
    struct stage stage;
    bool has_stage;
    const char *format;
};

/* ---- recovery -------------------------------------------------------------------------------- */

/*
 * An archive whose agent was killed while it put it in place is rolled back. The staging directory holds the list of
 * steps: they are undone, and the directory is removed. One that is still in use (it is locked) or of another user is
 * left alone. It is found when the next archive comes to the same place, and, through a registry (a directory with a
 * file for each staging directory that there is), when an agent starts.
 */
/* In a staging directory, beside the names in place.h: */
#define RECOVER_TIME_NAME FS_TEMP_PREFIX "time"   /* its mtime: what the directory above had */
#define RECOVER_TRASH_NAME FS_TEMP_PREFIX "trash" /* entries that a replace has taken away */
#define RECOVER_KEEP_NAME FS_TEMP_PREFIX "keep"   /* an old tree that could not go back */

/* The directory that the staged tree was put into: beside it, or the one that it is in. -1 with errno. */
static int open_recover_target(int stage, int dirfd)
{
    char name[NAME_MAX + 1];
    ssize_t n = readlinkat(stage, FS_PLACE_TARGET_NAME, name, sizeof(name));

    if (n < 0 && errno == ENOENT)
        return fs_openat_nofollow(dirfd, ".", O_RDONLY | O_DIRECTORY);
    if (n <= 0 || (size_t)n >= sizeof(name))
        return -1;
    name[n] = '\0';
    return strchr(name, '/') || strcmp(name, "..") == 0
               ? -1
               : fs_openat_nofollow(dirfd, name, O_PATH | O_DIRECTORY);
}

/* False: originals are still in the staging directory. */
static bool take_back(int stage, int dirfd)
{
    _cleanup_close_ int trash = -1;
    _cleanup_close_ int target = -1;
    struct fs_records *undo = NULL;
    struct err why = {0};
    int r;

    if (fs_records_open(stage, FS_PLACE_LIST_NAME, &undo, &why) < 0)
        return why.sys == ENOENT; /* nothing was put in place yet */
    trash = fs_openat_nofollow(stage, RECOVER_TRASH_NAME, O_RDONLY | O_DIRECTORY);
    r = trash < 0 && errno != ENOENT ? -1 : 0;
    target = r < 0 ? -1 : open_recover_target(stage, dirfd);
    if (target >= 0)
        r = fs_place_undo(stage, target, trash, undo, NULL);
    fs_records_free(undo);
    return target >= 0 && r == 0;
}

/* An incomplete rollback leaves it for the next attempt. */
static void recover_one(int dirfd, const char *name)
{
    _cleanup_close_ int stage = fs_temp_take_dir(dirfd, name);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
    struct stat st;

    if (stage < 0)
        return;
    if (fstatat(stage, RECOVER_KEEP_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return;
    if (fstatat(stage, RECOVER_TIME_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0)
        times[1] = st.st_mtim;
    if (!take_back(stage, dirfd))
        return;
    (void)fs_remove_tree(dirfd, name, true, NULL, NULL);
    (void)futimens(dirfd, times);
}

/* Looks through one directory (O_PATH will do). The identity must have been taken. What can't be
 * rolled back stays where it is. */
static void recover_dir(int dirfd)
{
    _cleanup_close_ int fd = fs_openat_nofollow(dirfd, ".", O_RDONLY | O_DIRECTORY);
    struct fs_names names;

    if (fd < 0 || fs_dir_names(fd, true, &names, NULL) < 0)
        return;
    for (size_t i = 0; i < names.n; i++)
        if (fs_temp_is_name(names.v[i]))
            recover_one(fd, names.v[i]);
    fs_names_done(&names);
}

/* ---- the registry ---------------------------------------------------------------------------- */

/* A file in it has the staging directory's name, and in it "UID PATH": PATH is of the directory
 * that holds the staging directory, UID "-" for the agent itself. */
#define ENTRY_MAX_BYTES (64 + PATH_MAX)

struct stage_registry {
    char *dir; /* set once, before threads start */
    pthread_mutex_t lock;
    int fd; /* guarded by lock until it is set; -1: not there yet */
};

static struct stage_registry staged_dirs = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/* -1: there is none, or it is not ours alone. */
static int open_registry(bool make)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&staged_dirs.lock);

    if (staged_dirs.fd < 0 && staged_dirs.dir &&
        (!make || io_mkdir_p(staged_dirs.dir, 0700, NULL) == 0)) {
        int fd = open(staged_dirs.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd >= 0 && fs_temp_is_ours(fd))
            staged_dirs.fd = fd;
        else
            fd_close(fd);
    }
    return staged_dirs.fd;
}

int archive_use_registry(const char *dir, struct err *e)
{
    staged_dirs.dir = strdup(dir);
    return staged_dirs.dir ? 0 : err_oom(e);
}

/* home_fd: the directory that holds the staging directory. Best effort: where the registry can't be
 * written, the next archive to the same place still finds it. */
static void recover_register(int home_fd, const char *stage_name, const struct fs_actor *actor)
{
    char link[64], home[PATH_MAX], text[ENTRY_MAX_BYTES], uid[32] = "-";
    ssize_t n;
    int len;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", home_fd);
    n = open_registry(true) < 0 ? -1 : readlink(link, home, sizeof(home));
    if (n <= 0 || (size_t)n >= sizeof(home))
        return;
    if (!actor->is_self)
        (void)snprintf(uid, sizeof(uid), "%u", (unsigned)actor->user.uid);
    len = snprintf(text, sizeof(text), "%s %.*s", uid, (int)n, home);
    if (len > 0 && (size_t)len < sizeof(text))
        (void)io_write_file(staged_dirs.fd, stage_name, text, (size_t)len, 0600, false, NULL);
}

/* When the staging directory has gone. */
static void recover_unregister(const char *stage_name)
{
    if (open_registry(false) >= 0)
        (void)unlinkat(staged_dirs.fd, stage_name, 0);
}

/* Whether the staging directory has gone: it was taken back, or was not there any more. */
static bool recover_entry(const char *stage_name, const char *uid, const char *home)
{
    struct fs_actor actor = {0};
    bool is_gone = false;
    struct stat st;
    int fd;

    if (fs_actor_init(&actor, strcmp(uid, "-") == 0 ? NULL : uid, NULL) < 0)
        return false;
    if (fs_actor_enter(&actor, NULL) == 0) {
        fd = open(home, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0)
            recover_dir(fd);
        is_gone = fd < 0 ? errno == ENOENT
                         : fstatat(fd, stage_name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
        fd_close(fd);
        fs_actor_leave(&actor);
    }
    fs_actor_done(&actor);
    return is_gone;
}

static bool recover_registered(const char *stage_name)
{
    _cleanup_free_ char *text = NULL;
    size_t len;
    char *space;

    if (io_read_file(staged_dirs.fd, stage_name, ENTRY_MAX_BYTES, &text, &len, NULL) < 0)
        return false;
    space = strchr(text, ' ');
    if (!space || strlen(text) != len)
        return true; /* cut short by a crash: nothing was put in place yet */
    *space = '\0';
    return recover_entry(stage_name, text, space + 1);
}

unsigned archive_recover_all(void)
{
    struct fs_names names;
    unsigned n = 0;

    if (open_registry(false) < 0 || lseek(staged_dirs.fd, 0, SEEK_SET) < 0 ||
        fs_dir_names(staged_dirs.fd, true, &names, NULL) < 0)
        return 0;
    for (size_t i = 0; i < names.n; i++) {
        if (!fs_temp_is_name(names.v[i]) || !recover_registered(names.v[i]))
            continue;
        recover_unregister(names.v[i]);
        n++;
    }
    fs_names_done(&names);
    return n;
}

/* ---- begin ----------------------------------------------------------------------------------- */

static int count_in(struct archive_extract *x, struct err *e)
{
    if (atomic_fetch_add(&n_running, 1) >= ARCHIVE_MAX_EXTRACTIONS) {
        (void)atomic_fetch_sub(&n_running, 1);
        return err_set(e, ERR_EXHAUSTED, "%d archives are being extracted already",
                       ARCHIVE_MAX_EXTRACTIONS);
    }
    x->is_counted = true;
    return 0;
}

static int open_existing(struct archive_extract *x, struct err *e)
{
    struct stat st;
    int r;

    r = fs_open(x->caller, x->path, O_PATH | O_DIRECTORY, 0, &x->target_fd, e);
    if (r < 0)
        return r;
    if (fstat(x->target_fd, &st) < 0)
        return err_at(e, err_sys(e, errno, "stat '%s'", x->path), "path");
    x->target_mtime = st.st_mtim;
    /* "/" and the root have no parent that we may use. */
    if (fs_open_target(x->caller, x->path, &x->parent_fd, &x->name, NULL) < 0)
        x->parent_fd = -1;
    return 0;
}

static int open_missing(struct archive_extract *x, struct err *e)
{
    _cleanup_free_ char *full = NULL;
    _cleanup_free_ char *dir = NULL;
    int fd, r;

    r = fs_caller_path(x->caller, x->path, &full, e);
    if (r < 0)
        return r;
    dir = path_dir(full);
    if (!dir)
        return err_oom(e);
    r = fs_make_dirs(x->caller, dir, FS_NEW_DIR_MODE, &fd, &x->n_made, e);
    if (r < 0)
        return r;
    fd_close(fd);
    return fs_open_target(x->caller, x->path, &x->parent_fd, &x->name, e);
}

static int open_target(struct archive_extract *x, struct err *e)
{
    struct err inner = {0};
    int r = open_existing(x, &inner);

    if (r < 0 && inner.sys == ENOENT && !x->o.no_parents)
        return open_missing(x, e);
    if (r < 0 && inner.sys == ENOTDIR)
        return err_field(e, ERR_PRECONDITION, "path", "'%s' is not a directory", x->path);
    if (r < 0 && e)
        *e = inner;
    return r;
}

/* True if a directory beside the target can be exchanged with it. */
static bool same_mount(int a, int b)
{
    struct statx x, y;

    if (sys_statx(a, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x) < 0 ||
        sys_statx(b, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &y) < 0)
        return false;
    return x.stx_dev_major == y.stx_dev_major && x.stx_dev_minor == y.stx_dev_minor &&
           !(x.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

static int make_stage_in(struct archive_extract *x, int home)
{
    fs_temp_make_name(x->stage_name);
    x->stage_fd = fs_temp_make_dir(home, x->stage_name);
    if (x->stage_fd < 0) {
        x->stage_name[0] = '\0';
        return -1;
    }
    x->home_fd = home;
    return 0;
}

/* First takes back what a killed agent may have left here. */
static void extract_recover(const struct archive_extract *x)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&place_lock);

    if (x->target_fd >= 0)
        recover_dir(x->target_fd);
    if (x->parent_fd >= 0)
        recover_dir(x->parent_fd);
}

/* Notes the mtime of the directory that holds the staging directory, for a recovery. */
static int keep_time(const struct archive_extract *x, const struct timespec *mtime, struct err *e)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, *mtime};
    _cleanup_close_ int fd =
        openat(x->stage_fd, RECOVER_TIME_NAME, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0 || futimens(fd, times) < 0)
        return err_sys(e, errno, "keep the time of '%s'", x->path);
    return 0;
}

static int make_stage(struct archive_extract *x, struct err *e)
{
    struct stat home;
    bool beside = x->target_fd < 0 || (x->o.mode == ARCHIVE_REPLACE && x->parent_fd >= 0 &&
                                       same_mount(x->target_fd, x->parent_fd));
    int r = -1;

    if (beside && fstat(x->parent_fd, &home) == 0)
        r = make_stage_in(x, x->parent_fd);
    if (r < 0 && x->target_fd >= 0) {
        home.st_mtim = x->target_mtime;
        r = make_stage_in(x, x->target_fd);
    }
    if (r < 0)
        return err_at(e, err_sys(e, errno, "make a directory in '%s'", x->path), "path");
    return keep_time(x, &home.st_mtim, e);
}

static int extract_begin(struct archive_extract *x, struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    int r;

    if (x->o.keep_owner && (!x->caller->actor.is_self || x->caller->actor.user.uid != 0))
        return err_field(e, ERR_DENIED, "owner", "only root can keep the archive's owners");
    if (x->o.removals && x->o.mode == ARCHIVE_REPLACE)
        return err_field(e, ERR_INVALID, "removals", "removals are for mode=merge");
    r = count_in(x, e);
    if (r == 0)
        r = fs_act(&x->caller->actor, &acting, e);
    if (r == 0)
        r = open_target(x, e);
    if (r < 0)
        return r;
    extract_recover(x);
    return make_stage(x, e);
}

/* This thread has the agent's identity, which alone may write to the registry. */
static int begin_registered(struct archive_extract *x, struct err *e)
{
    int r = extract_begin(x, e);

    if (r == 0) {
        recover_register(x->home_fd, x->stage_name, &x->caller->actor);
        (void)memcpy(x->registered, x->stage_name, sizeof(x->registered));
    }
    return r;
}

/* "dir/" is "dir": the target's name is needed for a rename. */
static char *path_without_slashes(const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    return strndup(path, n);
}

int archive_extract_begin(struct fs_caller *c, const char *path,
                          const struct archive_extract_options *o, struct archive_extract **ret,
                          struct err *e)
{
    struct archive_extract *x = calloc(1, sizeof(*x));
    int r;

    if (!x)
        return err_oom(e);
    x->caller = fs_caller_ref(c);
    x->o = *o;
    x->parent_fd = x->target_fd = x->stage_fd = x->home_fd = -1;
    x->path = path_without_slashes(path);
    r = x->path ? begin_registered(x, e) : err_oom(e);
    if (r < 0) {
        archive_extract_free(x);
        return r;
    }
    *ret = x;
    return 0;
}

/* ---- read ------------------------------------------------------------------------------------ */

int archive_extract_read(struct archive_extract *x, struct pump *in, struct pool *pool,
                         struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    struct stage_limits limits = {
        .max_entries = x->o.max_entries ? x->o.max_entries : ARCHIVE_MAX_ENTRIES,
        .max_bytes = x->o.max_bytes ? x->o.max_bytes : ARCHIVE_MAX_BYTES,
        .packed = x->o.any_ratio ? NULL : in,
    };
    int r;

    r = fs_act(&x->caller->actor, &acting, e);
    if (r < 0)
        return r;
    r = stage_init(&x->stage, x->stage_fd, &limits, &x->o, e);
    if (r < 0)
        return r;
    x->has_stage = true;
    r = archive_read_stream(in, pool, &x->stage, &x->format, e);
    x->packed = pump_received(in);
    return r;
}

/* ---- commit ---------------------------------------------------------------------------------- */

/* The staged directory gets what a directory at the target's name should have. */
static int dress_stage(struct archive_extract *x, struct err *e)
{
    struct stat st, mine;
    mode_t mode = FS_NEW_DIR_MODE;

    if (x->target_fd >= 0 && fstat(x->target_fd, &st) == 0 && fstat(x->stage_fd, &mine) == 0) {
        _cleanup_close_ int old = openat(x->target_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        mode = st.st_mode & 07777;
        if ((st.st_uid != mine.st_uid || st.st_gid != mine.st_gid) &&
            fchown(x->stage_fd, st.st_uid, st.st_gid) < 0)
            return err_sys(e, errno, "give the new '%s' the old one's owner", x->path);
        if (old >= 0 && fs_xattr_copy(old, x->stage_fd) < 0)
            return err_sys(e, errno, "give the new '%s' the old one's attributes", x->path);
    }
    if (fchmod(x->stage_fd, mode) < 0)
        return err_sys(e, errno, "chmod '%s'", x->path);
    return 0;
}

/* Before the staging directory becomes the target. */
static int drop_time(const struct archive_extract *x, struct err *e)
{
    if (unlinkat(x->stage_fd, RECOVER_TIME_NAME, 0) < 0 && errno != ENOENT)
        return err_sys(e, errno, "clean up before '%s' is put in place", x->path);
    return 0;
}

static int commit_new(struct archive_extract *x, struct err *e)
{
    int r = dress_stage(x, e);

    if (r == 0)
        r = drop_time(x, e);
    if (r == 0)
        r = fs_place_dir_attrs(x->stage_fd, true, x->stage.dirs, NULL, e);
    if (r < 0)
        return r;
    if (sys_renameat2(x->parent_fd, x->stage_name, x->parent_fd, x->name, RENAME_NOREPLACE) < 0) {
        if (errno == EEXIST)
            return err_field(e, ERR_ABORTED, "path", "'%s' was made by another meanwhile", x->path);
        /* A disk without the flag: rename replaces at most an empty directory. */
        if (errno != EINVAL || renameat(x->parent_fd, x->stage_name, x->parent_fd, x->name) < 0)
            return err_at(e, err_sys(e, errno, "put '%s' in place", x->path), "path");
    }
    x->stage_name[0] = '\0';
    return 0;
}

static int extract_exchange(const struct archive_extract *x)
{
    return sys_renameat2(x->parent_fd, x->stage_name, x->parent_fd, x->name, RENAME_EXCHANGE);
}

/* The old tree has the staging directory's name, and could not go back. The mark keeps a recovery from
 * removing it. */
static int keep_old_tree(struct archive_extract *x, int r, struct err *e)
{
    struct err why = {0};
    int fd;

    (void)err_sys(&why, errno, "put '%s' back", x->path);
    x->is_kept = true;
    fd = openat(x->target_fd, RECOVER_KEEP_NAME, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    fd_close(fd);
    return fs_place_say_kept(x->home_fd, x->stage_name, &why, r, e);
}

/*
 * Exchanges the two directories: the old one then has the staging directory's name, and is removed
 * with it. 1: this disk can't do that; nothing has changed. The directories' attributes come after,
 * because going entry by entry needs them unused.
 */
static int commit_exchange(struct archive_extract *x, struct err *e)
{
    int r = dress_stage(x, e);

    if (r == 0)
        r = drop_time(x, e);
    if (r < 0)
        return r;
    if (extract_exchange(x) < 0) {
        if (errno == EXDEV || errno == EBUSY || errno == EINVAL)
            return 1;
        return err_at(e, err_sys(e, errno, "replace '%s'", x->path), "path");
    }
    r = fs_place_dir_attrs(x->stage_fd, true, x->stage.dirs, NULL, e);
    return r < 0 && extract_exchange(x) < 0 ? keep_old_tree(x, r, e) : r;
}

/* The staging directory stays beside the target. Its name there leads a recovery to the target. */
static int note_target(const struct archive_extract *x, struct err *e)
{
    if (x->home_fd != x->target_fd && symlinkat(x->name, x->stage_fd, FS_PLACE_TARGET_NAME) < 0)
        return err_at(e, err_sys(e, errno, "note the target '%s'", x->path), "path");
    return fs_place_claim(x->stage_fd,
                          e); /* an exchange that was tried has given it the target's mode */
}

static int open_trash(const struct archive_extract *x, int *ret_fd, struct err *e)
{
    if (mkdirat(x->stage_fd, RECOVER_TRASH_NAME, 0700) < 0)
        return err_sys(e, errno, "make a directory for what is replaced");
    *ret_fd = openat(x->stage_fd, RECOVER_TRASH_NAME, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return *ret_fd < 0 ? err_sys(e, errno, "open the directory for what is replaced") : 0;
}

/* Removes the entries that the archive's list names. */
static int remove_listed(struct archive_extract *x, int trash_fd, struct fs_records *undo,
                         struct err *e)
{
    _cleanup_free_ char *path = NULL;
    struct stage_removals list;
    int r = stage_removals_open(&x->stage, &list, e);

    while (r == 0) {
        r = stage_removals_next(&list, &path, e);
        if (r <= 0)
            break;
        r = fs_place_remove(x->target_fd, trash_fd, path, undo, e);
        x->removed += r > 0;
        r = r < 0 ? r : 0;
        free(TAKE(path));
    }
    stage_removals_done(&list);
    return r;
}

static int apply_steps(struct archive_extract *x, int trash_fd, struct fs_records *undo,
                       struct err *e)
{
    int r = 0;

    if (x->o.mode == ARCHIVE_REPLACE)
        r = fs_place_prune(x->stage_fd, x->target_fd, trash_fd, undo, e);
    else if (x->stage.removals_fd >= 0)
        r = remove_listed(x, trash_fd, undo, e);
    if (r == 0)
        r = fs_place_merge(x->stage_fd, x->target_fd, undo, e);
    if (r == 0)
        r = fs_place_dir_attrs(x->target_fd, false, x->stage.dirs, undo, e);
    return r;
}

/* The commit is done once the list of steps is empty: until then a crash or an error rolls back. */
static int extract_apply(struct archive_extract *x, int trash_fd, struct fs_records *undo,
                         struct err *e)
{
    struct err why = {0};
    int r = apply_steps(x, trash_fd, undo, e);

    if (r == 0)
        r = fs_records_clear(undo, e);
    if (r < 0 && fs_place_undo(x->stage_fd, x->target_fd, trash_fd, undo, &why) < 0) {
        x->is_kept = true;
        return fs_place_say_kept(x->home_fd, x->stage_name, &why, r, e);
    }
    return r;
}

static int commit_by_entry(struct archive_extract *x, struct err *e)
{
    struct fs_records *undo = NULL;
    _cleanup_close_ int trash_fd = -1;
    int r;

    r = note_target(x, e);
    if (r == 0 && (x->o.mode == ARCHIVE_REPLACE || x->stage.removals_fd >= 0))
        r = open_trash(x, &trash_fd, e);
    if (r == 0)
        r = fs_records_new(x->stage_fd, FS_PLACE_LIST_NAME, &undo, e);
    if (r == 0)
        r = extract_apply(x, trash_fd, undo, e);
    fs_records_free(undo);
    return r;
}

static int commit_placed(struct archive_extract *x, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&place_lock);
    int r = 1;

    if (x->target_fd < 0)
        return commit_new(x, e);
    if (x->o.mode == ARCHIVE_REPLACE && x->home_fd == x->parent_fd)
        r = commit_exchange(x, e);
    return r > 0 ? commit_by_entry(x, e) : r;
}

static void remove_stage(struct archive_extract *x)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, x->target_mtime};
    bool in_target = x->home_fd >= 0 && x->home_fd == x->target_fd;

    if (!x->stage_name[0] || x->is_kept)
        return;
    (void)fs_remove_tree(x->home_fd, x->stage_name, true, NULL, NULL);
    x->stage_name[0] = '\0';
    /* After a failure the target has its old mtime, too. */
    if (in_target && !x->is_committed) {
        _cleanup_close_ int fd = openat(x->target_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd >= 0)
            (void)futimens(fd, times);
    }
}

static int extract_commit(struct archive_extract *x, struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    int r;

    r = fs_act(&x->caller->actor, &acting, e);
    if (r < 0)
        return r;
    if (x->o.sync && syncfs(x->stage_fd) < 0)
        return err_sys(e, errno, "sync '%s'", x->path);
    r = commit_placed(x, e);
    if (r < 0)
        return r;
    x->is_committed = true;
    remove_stage(x);
    if (x->o.sync && syncfs(x->stage_fd) < 0)
        return err_sys(e, errno, "sync '%s'", x->path);
    return 0;
}

int archive_extract_commit(struct archive_extract *x, struct archive_extract_result *ret,
                           struct err *e)
{
    int r = extract_commit(x, e);

    if (r < 0)
        return r;
    *ret = (struct archive_extract_result){
        .entries = x->stage.entries,
        .bytes = x->stage.bytes,
        .packed_bytes = x->packed,
        .removed = x->removed,
        .lost_xattrs = x->stage.lost_xattrs,
        .format = x->format,
    };
    return 0;
}

/* ---- free ------------------------------------------------------------------------------------ */

static void unmake_parents(struct archive_extract *x)
{
    _cleanup_free_ char *at = strdup(x->path);

    while (at && x->n_made-- > 0) {
        _cleanup_close_ int dirfd = -1;
        _cleanup_free_ char *name = NULL;
        char *up = path_dir(at);

        free(at);
        at = up;
        if (!at || fs_open_parent(x->caller, at, &dirfd, &name, NULL) < 0 ||
            unlinkat(dirfd, name, AT_REMOVEDIR) < 0)
            return;
    }
}

static void undo_begin(struct archive_extract *x)
{
    _fs_acting_ const struct fs_actor *acting = NULL;

    if (fs_act(&x->caller->actor, &acting, NULL) < 0)
        return;
    remove_stage(x);
    if (!x->is_committed)
        unmake_parents(x);
}

struct archive_extract *archive_extract_free(struct archive_extract *x)
{
    if (!x)
        return NULL;
    undo_begin(x);
    if (x->registered[0] && !x->is_kept)
        recover_unregister(x->registered);
    if (x->has_stage)
        stage_done(&x->stage);
    fd_close(x->stage_fd);
    fd_close(x->target_fd);
    fd_close(x->parent_fd);
    if (x->is_counted)
        (void)atomic_fetch_sub(&n_running, 1);
    fs_caller_unref(x->caller);
    free(x->path);
    free(x->name);
    free(x);
    return NULL;
}
