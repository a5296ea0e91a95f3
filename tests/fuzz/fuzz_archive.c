/*
 * Archives, tar and zip, packed and plain, into a directory that has something in it: when one is
 * refused, the directory is as it was, to the byte, the mode and the time; whatever happens,
 * nothing beside it changes and nothing of ours is left.
 *
 * fuzz-flags: -max_len=8192
 */
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit/archive_help.h"
#include "fs/root.h"
#include "fs/change.h"
#include "fs/walk.h"

static struct fs_root *root;
static struct fs_caller *caller;
static int dir = -1;

static void put_file(int at, const char *name, const char *text)
{
    int fd = openat(at, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);

    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void make_target(void)
{
    static const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    int t, sub;

    CHECK(mkdirat(dir, "t", 0755) == 0);
    t = openat(dir, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(t >= 0 && mkdirat(t, "d", 0750) == 0);
    sub = openat(t, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(sub >= 0);
    put_file(sub, "a", "own a");
    put_file(t, "f", "own f");
    CHECK(symlinkat("..", t, "up") == 0);
    CHECK(futimens(sub, times) == 0 && futimens(t, times) == 0);
    close(sub);
    close(t);
}

/* FNV-1a. */
static uint64_t mix(uint64_t h, const void *data, size_t n)
{
    const uint8_t *p = data;

    while (n--)
        h = (h ^ *p++) * 0x100000001b3ULL;
    return h;
}

static uint64_t mix_entry(uint64_t h, const struct fs_walk_item *it)
{
    char text[64];
    ssize_t n = 0;
    int fd;

    h = mix(h, it->path, strlen(it->path) + 1);
    h = mix(h, &it->st.st_mode, sizeof(it->st.st_mode));
    h = mix(h, &it->st.st_ino, sizeof(it->st.st_ino));
    h = mix(h, &it->st.st_mtim, sizeof(it->st.st_mtim));
    if (S_ISLNK(it->st.st_mode))
        n = readlinkat(it->dirfd, it->name, text, sizeof(text));
    if (S_ISREG(it->st.st_mode)) {
        fd = fs_openat_nofollow(it->dirfd, it->name, O_RDONLY);
        n = read(fd, text, sizeof(text));
        close(fd);
    }
    return n > 0 ? mix(h, text, (size_t)n) : h;
}

/* Of the target, or of the whole directory. */
static uint64_t digest_of(const char *name)
{
    struct fs_walk_options o = {.max_depth = 300, .with_temps = true};
    const struct fs_walk_item *it;
    uint64_t h = 0xcbf29ce484222325ULL;
    struct fs_walk *w = NULL;
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    CHECK(fd >= 0 && fs_walk_new_take(fd, &o, &w, NULL) == 0);
    while (fs_walk_next(w, &it, NULL) > 0)
        if (it->kind == FS_WALK_ENTRY)
            h = mix_entry(h, it);
    fs_walk_free(w);
    return h;
}

/* The target and the file beside it, and nothing else. */
static void check_around(void)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct fs_names names;
    char text[16] = "";
    int f;

    CHECK(fd >= 0 && fs_dir_names(fd, true, &names, NULL) == 0);
    CHECK(names.n == 2 && strcmp(names.v[0], "outside") == 0 && strcmp(names.v[1], "t") == 0);
    fs_names_done(&names);
    close(fd);
    f = openat(dir, "outside", O_RDONLY | O_CLOEXEC);
    CHECK(f >= 0 && read(f, text, sizeof(text) - 1) == 4 && strcmp(text, "safe") == 0);
    close(f);
}

static void once(void)
{
    const char *path = fuzz_dir();

    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(dir >= 0 && fs_root_new("/", &root, NULL) == 0);
    CHECK(fs_caller_new(root, NULL, path, &caller, NULL) == 0);
    put_file(dir, "outside", "safe");
    make_target();
}

static int extract(const struct archive_extract_options *o, const uint8_t *data, size_t size,
                   struct err *e)
{
    struct archive_extract_result res;
    struct archive_extract *x = NULL;
    int r = archive_extract_begin(caller, "t", o, &x, e);

    CHECK(r == 0);
    r = h_archive_bytes(x, data, size, e);
    if (r == 0)
        r = archive_extract_commit(x, &res, e);
    archive_extract_free(x);
    return r;
}

FUZZ(data, size)
{
    struct fuzz_in in = {data, size};
    struct archive_extract_options o = {.max_entries = 100, .max_bytes = 1 << 20};
    struct err e = {0};
    uint8_t how = fuzz_byte(&in);
    uint64_t before;
    int r;

    if (dir < 0)
        once();
    o.mode = how & 1 ? ARCHIVE_REPLACE : ARCHIVE_MERGE;
    o.removals = how & 2 && o.mode == ARCHIVE_MERGE;
    before = digest_of("t");
    r = extract(&o, in.data, in.len, &e);
    check_around();
    CHECK((r < 0) == (e.code != 0));
    if (r < 0) {
        CHECK(digest_of("t") == before);
        return 0;
    }
    CHECK(fs_remove_tree(dir, "t", true, NULL, NULL) == 0);
    make_target();
    return 0;
}
