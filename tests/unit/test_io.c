#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

#include "common/io.h"

/* The linker puts these in the place of the system's (see the Makefile). They note their order. */
static char log_text[4096];
static bool dir_fails;

static void note(const char *what, const char *name)
{
    size_t n = strlen(log_text);

    snprintf(log_text + n, sizeof(log_text) - n, "%s %s;", what, name);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    struct stat st;

    T_INT(fstat(fd, &st), 0);
    note("fsync", S_ISDIR(st.st_mode) ? "dir" : "file");
    if (S_ISDIR(st.st_mode) && dir_fails) {
        errno = EIO;
        return -1;
    }
    return __real_fsync(fd);
}

int __real_renameat(int a, const char *from, int b, const char *to);
int __wrap_renameat(int a, const char *from, int b, const char *to);
int __wrap_renameat(int a, const char *from, int b, const char *to)
{
    note("rename", to);
    return __real_renameat(a, from, b, to);
}

TEST(a_synced_write_syncs_the_file_and_then_the_directory)
{
    struct err e = {0};

    T_INT(mkdir("d", 0700), 0);
    T_INT(io_write_file(AT_FDCWD, "d/f", "x", 1, 0600, true, &e), 0);
    T_STR(log_text, "fsync file;rename d/f;fsync dir;");
    log_text[0] = '\0';
    T_INT(io_write_file(AT_FDCWD, "f", "x", 1, 0600, true, &e), 0);
    T_STR(log_text, "fsync file;rename f;fsync dir;");
    log_text[0] = '\0';
    T_INT(io_write_file(AT_FDCWD, "f", "x", 1, 0600, false, &e), 0);
    T_STR(log_text, "rename f;");
}

TEST(a_directory_that_can_not_be_synced_fails_the_write)
{
    struct err e = {0};

    T_INT(mkdir("d", 0700), 0);
    dir_fails = true;
    T_OK(io_write_file(AT_FDCWD, "d/f", "x", 1, 0600, true, &e) < 0);
    T_INT(e.sys, EIO);
    T_OK(strstr(e.message, "fsync 'd'"));
}
