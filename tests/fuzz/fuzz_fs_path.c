/*
 * fuzz-flags: -max_len=1024
 * Paths as they come in a URL or in JSON: what is opened lies inside the root, by the kernel's
 * resolution and by the walk, and both give the same answer; {"b64"} and back is the same path.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "fs/root.h"
#include "http/route.h"

static struct fs_root *root;
static struct fs_caller *caller;
static char inside[PATH_MAX];

static int here; /* fuzz_dir(): libFuzzer's own paths are relative, so no chdir() */

static void make(const char *path, bool is_dir)
{
    if (is_dir) {
        CHECK(mkdirat(here, path, 0755) == 0);
    } else {
        int fd = openat(here, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

        CHECK(fd >= 0);
        (void)close(fd);
    }
}

/* in/ is the root. It has short names, which inputs can hit, and links of every kind. */
static void once(void)
{
    static const char *const links[][2] = {
        {"..", "in/u"}, {"a/b", "in/l"},           {"/", "in/r"},
        {"p", "in/p"},  {"../../out/s", "in/a/o"}, {"../u/in/a", "in/a/z"},
    };
    _cleanup_free_ char *path = NULL;

    if (root)
        return;
    here = open(fuzz_dir(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(here >= 0);
    make("out", true);
    make("out/s", false);
    make("in", true);
    make("in/a", true);
    make("in/a/b", true);
    make("in/a/f", false);
    CHECK(asprintf(&path, "%s/in", fuzz_dir()) > 0 && realpath(path, inside));
    for (size_t i = 0; i < N_ELEMENTS(links); i++)
        CHECK(symlinkat(links[i][0], here, links[i][1]) == 0);
    CHECK(symlinkat(inside, here, "in/t") == 0);
    CHECK(fs_root_new(inside, &root, NULL) == 0);
    CHECK(fs_caller_new(root, NULL, inside, &caller, NULL) == 0);
}

/* The inode; 0: none. Aborts if it is outside the root. */
static ino_t resolve(const char *path, bool by_walk, struct err *e)
{
    char self[40], real[PATH_MAX];
    struct stat st;
    ssize_t n;
    int fd;

    fs_root_force_walk(by_walk);
    if (fs_open(caller, path, O_PATH, 0, &fd, e) < 0)
        return 0;
    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    n = readlink(self, real, sizeof(real) - 1);
    CHECK(n > 0 && fstat(fd, &st) == 0);
    real[n] = '\0';
    CHECK(strncmp(real, inside, strlen(inside)) == 0);
    CHECK(real[strlen(inside)] == '/' || real[strlen(inside)] == '\0');
    (void)close(fd);
    return st.st_ino;
}

static void check_path(const char *path)
{
    struct err by_kernel = {0}, by_walk = {0};
    ino_t a = resolve(path, false, &by_kernel);
    ino_t b = resolve(path, true, &by_walk);

    CHECK(a == b);
    CHECK(a || strcmp(by_kernel.field, "path") == 0);
    CHECK((by_kernel.code == ERR_DENIED) == (by_walk.code == ERR_DENIED));
}

static void check_json(const char *path)
{
    _cleanup_json_ json_t *v = jx_new_path(path);
    char *back = NULL;

    CHECK(v);
    CHECK(json_is_string(v) == str_is_utf8(path, strlen(path)));
    if (*path) {
        CHECK(jx_path(v, &back, NULL) == 0);
        CHECK(strcmp(back, path) == 0);
    }
    free(back);
}

FUZZ(data, size)
{
    struct fuzz_in in = {data, size};
    char *raw = fuzz_str(&in, 1000, NULL), *path = NULL;

    once();
    check_json(raw);
    if (*raw)
        check_path(raw);
    if (uri_decode(raw, strlen(raw), &path, NULL) == 0 && *path)
        check_path(path);
    free(path);
    free(raw);
    return 0;
}
