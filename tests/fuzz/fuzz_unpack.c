/*
 * Extraction of a tar that a box sends into a directory of this machine: nothing outside the
 * directory changes, even if links in it and in the archive lead out of it; only files, directories
 * and links are made, without set-id bits; if one file was requested, that file changes or nothing;
 * extraction always ends.
 * fuzz-flags: -max_len=8192
 */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/project/extract.h"

static char target[512], outside[512];
static int n_entries;

static void put_file(const char *dir, const char *name)
{
    char path[600];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    CHECK(fd >= 0 && write(fd, "own", 3) == 3);
    close(fd);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)type;
    CHECK(S_ISREG(st->st_mode) || S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode));
    CHECK(!(st->st_mode & (S_ISUID | S_ISGID)) || S_ISLNK(st->st_mode));
    if (ftw->level > 0)
        CHECK(remove(path) == 0);
    return 0;
}

/* The directory has a file, a link to the outside, and nothing else. */
static void make_target(void)
{
    char path[600];

    if (mkdir(target, 0755) < 0)
        CHECK(errno == EEXIST);
    put_file(target, "f");
    (void)snprintf(path, sizeof(path), "%s/up", target);
    CHECK(symlink(outside, path) == 0);
}

static void check_outside(void)
{
    struct stat st;
    char path[600], text[8];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/f", outside);
    fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_nlink == 1 && (st.st_mode & 07777) == 0640);
    CHECK(read(fd, text, sizeof(text)) == 3 && memcmp(text, "own", 3) == 0);
    close(fd);
    CHECK(unlink(path) == 0 && rmdir(outside) == 0);               /* nothing else is there */
    CHECK(rmdir(fuzz_dir()) == 0 && mkdir(fuzz_dir(), 0700) == 0); /* nor beside it */
}

static int count_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)path, (void)st, (void)type;
    n_entries += ftw->level > 0;
    return 0;
}

/* Only the one file has changed, and only after success. */
static void check_only(bool is_new)
{
    char path[600], text[8] = "";
    ssize_t n;
    int fd;

    n_entries = 0;
    CHECK(nftw(target, count_one, 16, FTW_PHYS) == 0);
    CHECK(n_entries == 2);
    if (is_new)
        return;
    (void)snprintf(path, sizeof(path), "%s/f", target);
    fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    CHECK(fd >= 0);
    n = read(fd, text, sizeof(text));
    CHECK(n == 3 && memcmp(text, "own", 3) == 0);
    close(fd);
}

FUZZ(data, size)
{
    unsigned how = size ? data[size - 1] : 0;
    struct extract_options o = {.dir = target,
                                .prefix = how & 1 ? "p/q" : NULL,
                                .is_zstd = how & 2,
                                .only = how & 4 ? "f" : NULL,
                                .only_type = how & 8 ? S_IFLNK : S_IFREG};
    struct err e = {0};
    int fd = memfd_create("tar", MFD_CLOEXEC);
    int r;

    (void)snprintf(target, sizeof(target), "%s/t", fuzz_dir());
    (void)snprintf(outside, sizeof(outside), "%s/o", fuzz_dir());
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    CHECK(mkdir(outside, 0755) == 0);
    put_file(outside, "f");
    make_target();
    r = extract_stream(fd, &o, &e);
    CHECK(r == 0 ? !e.code : e.code == -r && e.message[0]);
    close(fd);
    if (o.only)
        check_only(r == 0);
    CHECK(nftw(target, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0);
    CHECK(rmdir(target) == 0);
    check_outside();
    return 0;
}
