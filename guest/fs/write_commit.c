/* write_commit: the end of a write: checks, a part put together with the rest, and the file's place. */
#include "fs/write_own.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "fs/copy.h"
#include "fs/lock.h"
#include "fs/open.h"
#include "fs/sys.h"

#define COMMIT_TRIES 8

/* Results of a step of the commit besides 0 and an error. */
#define COMMIT_IN_PLACE 1 /* a rename is not possible here */
#define COMMIT_AGAIN 2    /* another writer was quicker: look again */

static int check_digest(struct fs_write *w, struct err *e)
{
    uint8_t got[SHA256_DIGEST_SIZE];
    int r;

    if (!w->o.sha256)
        return 0;
    if (w->has_sha) {
        sha256_digest(&w->sha, sizeof(got), got);
        w->has_sha = false;
    } else { /* not all of it was hashed as it came */
        r = fs_hash(w->temp.fd, 0, w->bytes, got, e);
        if (r < 0)
            return err_wrap(e, r, "what goes into '%s'", w->path);
    }
    if (memcmp(got, w->want_sha256, sizeof(got)) != 0)
        return err_field(e, ERR_DATA_LOSS, "digest",
                         "the %llu bytes received do not have the announced SHA-256",
                         (unsigned long long)w->bytes);
    return 0;
}

/* Under the path's lock. */
static int check_condition(struct fs_write *w, bool exists, struct err *e)
{
    _cleanup_close_ int fd = -1;
    struct stat st;
    int r;

    if (!w->if_match && !w->if_none_match)
        return 0;
    w->current[0] = '\0';
    if (exists) {
        fd = fs_openat_nofollow(w->dirfd, w->name, O_RDONLY);
        if (fd < 0)
            return err_at(e, err_sys(e, errno, "open '%s' to compare", w->path), "path");
        r = fs_etag(fd, &st, w->current, e);
        if (r < 0)
            return err_at(e, r, "path");
    }
    return fs_check_tag(&w->o.condition, exists, w->current, e);
}

/* ---- a part of a file ------------------------------------------------------------------------ */

/* Where the part goes and how large the file will be; old_size 0: there is none. */
static int place_part(const struct fs_write *w, uint64_t old_size, struct fs_write_result *res,
                      struct err *e)
{
    const struct fs_part *part = &w->o.part;
    uint64_t at = part->at_end ? old_size : part->offset;
    uint64_t end;

    if (at > old_size || w->bytes > INT64_MAX - at)
        return err_detail_u64(e,
                              err_field(e, ERR_RANGE, "offset",
                                        "'%s' has %llu bytes: nothing can begin at %llu", w->path,
                                        (unsigned long long)old_size, (unsigned long long)at),
                              "size", old_size);
    end = at + w->bytes;
    if (part->has_size && part->size < end)
        return err_field(e, ERR_INVALID, "offset", "the part ends behind the end of the file");
    if (part->has_size && part->size > (end > old_size ? end : old_size))
        return err_detail_u64(e,
                              err_field(e, ERR_RANGE, "offset",
                                        "nobody sent the bytes that would make '%s' %llu", w->path,
                                        (unsigned long long)part->size),
                              "size", old_size);
    res->offset = at;
    res->size = part->has_size ? part->size : end > old_size ? end : old_size;
    return 0;
}

static int copy_exactly(int from, off_t from_at, int to, off_t to_at, uint64_t len, struct err *e)
{
    uint64_t copied;
    int r = fs_copy_bytes(from, from_at, to, to_at, len, &copied, e);

    if (r == 0 && copied < len)
        return err_sys(e, EIO, "copy: the file has become shorter");
    return r;
}

/* Makes temp the whole new file, out of the old one and the data. */
static int write_assemble(struct fs_write *w, int old, const struct fs_write_result *res,
                          struct err *e)
{
    uint64_t end = res->offset + w->bytes;
    int r;

    if (w->data.fd < 0) {
        w->data = w->temp;
        w->temp = (struct fs_temp){.fd = -1};
    } else { /* once more: the old file has changed */
        fs_temp_drop(w->dirfd, &w->temp);
    }
    if (fs_temp_open(w->dirfd, &w->temp) < 0)
        return err_sys(e, errno, "make a file in the directory of '%s'", w->path);
    r = copy_exactly(old, 0, w->temp.fd, 0, res->offset, e);
    if (r == 0)
        r = copy_exactly(w->data.fd, 0, w->temp.fd, (off_t)res->offset, w->bytes, e);
    if (r == 0 && res->size > end)
        r = copy_exactly(old, (off_t)end, w->temp.fd, (off_t)end, res->size - end, e);
    return r < 0 ? err_wrap(e, r, "putting '%s' together", w->path) : 0;
}

/* ---- put in place ---------------------------------------------------------------------------- */

/* Gives the temporary the owner, mode and attributes of the file it replaces, unless it is to be
 * fresh. False: not possible here. */
static bool take_over(const struct fs_write *w, const struct stat *st)
{
    _cleanup_close_ int old = fs_openat_nofollow(w->dirfd, w->name, O_RDONLY);
    mode_t mode = w->o.set_mode ? w->o.mode : st->st_mode & 07777;
    struct stat mine;

    if (w->o.fresh)
        return fchmod(w->temp.fd, w->o.mode) == 0;
    if (fstat(w->temp.fd, &mine) < 0)
        return false;
    if ((mine.st_uid != st->st_uid || mine.st_gid != st->st_gid) &&
        fchown(w->temp.fd, st->st_uid, st->st_gid) < 0)
        return false;
    /* As write(2) by a user does, clears the set-id bits. */
    if (!w->o.set_mode && !w->caller->actor.is_self)
        mode &= ~(mode_t)(S_ISUID | S_ISGID);
    if (old >= 0 ? fs_xattr_copy(old, w->temp.fd) < 0 : errno != EACCES)
        return false;
    return fchmod(w->temp.fd, mode) == 0;
}

/* Copies the data into the old file, for which space is reserved first. */
static int write_in_place(struct fs_write *w, const struct stat *st,
                          const struct fs_write_result *res, struct err *e)
{
    _cleanup_close_ int old = fs_openat_nofollow(w->dirfd, w->name, O_WRONLY);
    int from = w->data.fd >= 0 ? w->data.fd : w->temp.fd;
    int r;

    if (old < 0)
        return err_sys(e, errno, "open '%s' for writing", w->path);
    if (res->size > (uint64_t)st->st_size &&
        fallocate(old, FALLOC_FL_KEEP_SIZE, st->st_size, (off_t)res->size - st->st_size) < 0 &&
        (errno == ENOSPC || errno == EDQUOT))
        return err_sys(e, errno, "reserve space for '%s'", w->path);
    r = copy_exactly(from, 0, old, (off_t)res->offset, w->bytes, e);
    if (r < 0)
        return err_wrap(e, r, "'%s' has some of its old bytes and some of its new ones", w->path);
    if (ftruncate(old, (off_t)res->size) < 0)
        return err_sys(e, errno, "'%s' has a rest of its old bytes: truncate", w->path);
    if (w->o.set_mode && fchmod(old, w->o.mode) < 0)
        return err_sys(e, errno, "chmod '%s'", w->path);
    if (w->o.sync && fsync(old) < 0)
        return err_sys(e, errno, "fsync '%s'", w->path);
    return 0;
}

static bool is_overlay(int fd)
{
    struct statfs st;

    return fstatfs(fd, &st) == 0 && (unsigned long)st.f_type == OVERLAYFS_SUPER_MAGIC;
}

/*
 * Puts the temporary over the file whose tag was compared, and looks at what came out: another
 * process may have been quicker. 1: it was, and its file is back in place.
 */
static int write_exchange(struct fs_write *w, const struct stat *expected)
{
    struct stat out;

    if (sys_renameat2(w->dirfd, w->temp.name, w->dirfd, w->name, RENAME_EXCHANGE) < 0)
        return -1;
    /* An overlay may have copied the file to exchange it, and numbered it anew. */
    if (fstatat(w->dirfd, w->temp.name, &out, AT_SYMLINK_NOFOLLOW) == 0 &&
        (out.st_ino == expected->st_ino || is_overlay(w->dirfd)) &&
        out.st_size == expected->st_size && out.st_mtim.tv_sec == expected->st_mtim.tv_sec &&
        out.st_mtim.tv_nsec == expected->st_mtim.tv_nsec) {
        (void)unlinkat(w->dirfd, w->temp.name, 0);
        w->temp.name[0] = '\0';
        return 0;
    }
    (void)sys_renameat2(w->dirfd, w->temp.name, w->dirfd, w->name, RENAME_EXCHANGE);
    return 1;
}

static int lost_race(struct err *e, const char *field)
{
    return err_field(e, ERR_ABORTED, field, "the file was changed by another writer just now");
}

/* May return COMMIT_IN_PLACE or COMMIT_AGAIN. */
static int replace_old(struct fs_write *w, const struct stat *st, struct err *e)
{
    int r;

    if (fs_temp_name(w->dirfd, &w->temp) < 0)
        return err_at(e, err_sys(e, errno, "name the new '%s'", w->path), "path");
    if (w->if_match || w->o.part.is_part) {
        r = write_exchange(w, st);
        if (r > 0)
            return w->if_match ? lost_race(e, "if_match") : COMMIT_AGAIN;
        if (r == 0 || errno != EINVAL)
            goto done;
    }
    r = renameat(w->dirfd, w->temp.name, w->dirfd, w->name);
    if (r == 0)
        w->temp.name[0] = '\0';
done:
    if (r == 0)
        return 0;
    if (errno == EBUSY || errno == EXDEV)
        return COMMIT_IN_PLACE;
    return err_at(e, err_sys(e, errno, "replace '%s'", w->path), "path");
}

static int put_new(struct fs_write *w, struct err *e)
{
    if (fchmod(w->temp.fd, w->o.mode) < 0)
        return err_sys(e, errno, "chmod '%s'", w->path);
    if (fs_temp_publish_new(w->dirfd, &w->temp, w->name) == 0)
        return 0;
    if (errno != EEXIST)
        return err_at(e, err_sys(e, errno, "create '%s'", w->path), "path");
    /* Another process has made it meanwhile: without a condition, look again. */
    return w->if_none_match ? lost_race(e, "if_none_match") : COMMIT_AGAIN;
}

static int sync_temp(const struct fs_write *w, struct err *e)
{
    if (w->o.sync && fsync(w->temp.fd) < 0)
        return err_sys(e, errno, "fsync '%s'", w->path);
    return 0;
}

static int sync_directory(const struct fs_write *w, struct err *e)
{
    _cleanup_close_ int fd = -1;

    if (!w->o.sync)
        return 0;
    fd = openat(w->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* A directory that may be written but not read has to be taken on trust. */
    if (fd >= 0 && fsync(fd) < 0 && errno != EINVAL)
        return err_sys(e, errno, "fsync the directory of '%s'", w->path);
    return 0;
}

/* By rename, if that is possible here and loses nothing. */
static int commit_by_rename(struct fs_write *w, const struct stat *st, struct fs_write_result *res,
                            struct err *e)
{
    struct stat written;
    bool is_fine;
    int r;

    if (w->o.part.is_part) {
        _cleanup_close_ int whole = fs_openat_nofollow(w->dirfd, w->name, O_RDONLY);

        if (whole < 0)
            return errno == EACCES ? COMMIT_IN_PLACE
                                   : err_sys(e, errno, "open '%s' to copy", w->path);
        r = write_assemble(w, whole, res, e);
        if (r < 0)
            return r;
    }
    if (!take_over(w, st))
        return COMMIT_IN_PLACE;
    r = sync_temp(w, e);
    is_fine = fs_ctime_is_fine(w->temp.fd);
    if (r == 0)
        r = replace_old(w, st, e);
    return r ? r : fs_etag_written(w->temp.fd, is_fine, &written, res->etag, e);
}

static int commit_over(struct fs_write *w, const struct stat *st, struct fs_write_result *res,
                       struct err *e)
{
    struct stat written;
    int r = COMMIT_IN_PLACE;

    if (w->o.part.is_part) {
        r = place_part(w, (uint64_t)st->st_size, res, e);
        if (r < 0)
            return r;
        r = COMMIT_IN_PLACE;
    }
    if (!w->o.in_place && !w->spooled_elsewhere && (st->st_nlink == 1 || w->o.fresh))
        r = commit_by_rename(w, st, res, e);
    if (r != COMMIT_IN_PLACE)
        return r < 0 ? err_at(e, r, "path") : r;
    res->in_place = true;
    r = write_in_place(w, st, res, e);
    if (r < 0)
        return err_at(e, r, "path");
    _cleanup_close_ int again = fs_openat_nofollow(w->dirfd, w->name, O_RDONLY);
    /* A file that may be written but not read gets no tag. */
    return again < 0 ? 0 : fs_etag(again, &written, res->etag, e);
}

/* COMMIT_AGAIN: the file is there now. */
static int commit_new(struct fs_write *w, struct fs_write_result *res, struct err *e)
{
    bool is_fine = fs_ctime_is_fine(w->temp.fd);
    struct stat written;
    int r = 0;

    if (w->spooled_elsewhere)
        return err_field(e, ERR_ABORTED, "path", "'%s' was removed meanwhile", w->path);
    if (w->o.part.is_part)
        r = place_part(w, 0, res, e);
    if (r == 0)
        r = sync_temp(w, e);
    if (r == 0)
        r = put_new(w, e);
    if (r != 0)
        return r;
    res->created = true;
    return fs_etag_written(w->temp.fd, is_fine, &written, res->etag, e);
}

/* COMMIT_AGAIN: the file at the name appeared or vanished meanwhile. */
static int commit_once(struct fs_write *w, struct fs_write_result *res, struct err *e)
{
    _cleanup_fs_lock_ struct fs_lock lock = {0};
    _cleanup_close_ int old = -1;
    struct stat st;
    int r;

    *res = (struct fs_write_result){.bytes = w->bytes, .size = w->bytes};
    r = fs_write_open_old(w, &old, &st, e);
    if (r == 0 && old >= 0)
        r = fs_lock_take_file(old, &lock, e);
    if (r == 0 && old >= 0 && fstat(old, &st) < 0) /* as it is now, under the lock */
        r = err_sys(e, errno, "stat '%s'", w->path);
    if (r == 0)
        r = check_condition(w, old >= 0, e);
    if (r < 0)
        return r;
    return old >= 0 ? commit_over(w, &st, res, e) : commit_new(w, res, e);
}

static int commit_locked(struct fs_write *w, struct fs_write_result *res, struct err *e)
{
    int r = COMMIT_AGAIN;

    for (int i = 0; r > 0 && i < COMMIT_TRIES; i++)
        r = commit_once(w, res, e);
    if (r > 0)
        return err_field(e, ERR_ABORTED, "path", "'%s' comes and goes by other writers", w->path);
    if (r < 0)
        return r;
    w->is_committed = true;
    return sync_directory(w, e);
}

int fs_write_commit(struct fs_write *w, struct fs_write_result *ret, struct err *e)
{
    _fs_acting_ const struct fs_actor *acting = NULL;
    _cleanup_fs_lock_ struct fs_lock lock = {0};
    struct fs_write_result res;
    int r;

    r = check_digest(w, e);
    if (r == 0)
        r = fs_act(&w->caller->actor, &acting, e);
    if (r == 0)
        r = fs_lock_take(w->dirfd, w->name, &lock, e);
    if (r == 0)
        r = commit_locked(w, &res, e);
    if (r < 0)
        return r;
    *ret = res;
    return 0;
}

const char *fs_write_current(const struct fs_write *w)
{
    return w->current;
}
