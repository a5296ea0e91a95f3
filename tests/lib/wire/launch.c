/*
 * launch: stands in the tests' PATH under the names of clients and runs the real one with wire/record.c
 * preloaded; `launch PROGRAM ARG...` does so with any. By exec, so that the process is the client's.
 * Without WIRE_DIR it runs the client as it is.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct stat self;

static bool is_program(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0 &&
           (st.st_dev != self.st_dev || st.st_ino != self.st_ino);
}

/* The first in DIRS (between colons) that is not this program. */
static bool find(const char *dirs, const char *name, char out[PATH_MAX])
{
    for (const char *d = dirs; d && *d; d = strchr(d, ':') ? strchr(d, ':') + 1 : NULL) {
        (void)snprintf(out, PATH_MAX, "%.*s/%s", (int)strcspn(d, ":"), d, name);
        if (is_program(out))
            return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    const char *dir = getenv("WIRE_DIR");
    char path[PATH_MAX];
    char record[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", record, sizeof record - 16);

    if (n < 0 || stat("/proc/self/exe", &self) < 0)
        return 127;
    record[n] = '\0';
    if (strcmp(name, "launch") == 0) {
        if (argc < 2)
            return 127;
        argv++;
        name = argv[0];
    }
    if (strchr(name, '/'))
        (void)snprintf(path, sizeof path, "%s", name);
    else if (!(strcmp(name, "bellhop") == 0 && find(getenv("BELLHOP_BUILD"), name, path)) &&
             !find(getenv("PATH"), name, path) &&
             !find("/usr/local/bin:/usr/bin:/bin", name, path)) {
        (void)fprintf(stderr, "%s: not found\n", name);
        return 127;
    }
    strcpy(strrchr(record, '/') + 1, "record.so");
    if (dir && access(record, R_OK) == 0 && access(dir, W_OK) == 0)
        (void)setenv("LD_PRELOAD", record, 1);
    argv[0] = path;
    (void)execv(path, argv);
    (void)fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return 127;
}
