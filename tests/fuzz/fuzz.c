/* fuzz: the working directory of the targets. */
#include "fuzz.h"

#include <ftw.h>
#include <limits.h>
#include <unistd.h>

static char dir[PATH_MAX];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void remove_dir(void)
{
    (void)nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *fuzz_dir(void)
{
    const char *base = getenv("FUZZ_DIR");

    if (dir[0])
        return dir;
    (void)snprintf(dir, sizeof(dir), "%s/bellhop-fuzz-XXXXXX", base ? base : "/tmp");
    CHECK(mkdtemp(dir));
    (void)atexit(remove_dir);
    return dir;
}
