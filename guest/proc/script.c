#include "proc/script.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"

#define NAME_RANDOM_BYTES 12

static const char *const script_dirs[] = {"/tmp", "/var/tmp", "/dev/shm"};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static int add_word(const char *from, size_t len, char ***argv, struct err *e)
{
    _cleanup_free_ char *word = strndup(from, len);

    return word ? strv_push(argv, word, e) : err_oom(e);
}

int script_add_interpreter(const char *text, size_t len, char ***argv, struct err *e)
{
    const char *at = text + 2, *end, *word;
    int r;

    if (len < 2 || text[0] != '#' || text[1] != '!')
        return 0;
    end = memchr(text, '\n', len);
    end = end ? end : text + len;
    while (end > at && is_blank(end[-1]))
        end--;
    while (at < end && is_blank(*at))
        at++;
    if (at == end)
        return 0;
    if (end - text > SCRIPT_LINE_MAX_BYTES || memchr(at, '\0', (size_t)(end - at)))
        return err_field(e, ERR_INVALID, "shell",
                         "the script's first line has a zero byte, or more than %d bytes",
                         SCRIPT_LINE_MAX_BYTES);
    for (word = at; at < end && !is_blank(*at); at++)
        ;
    r = add_word(word, (size_t)(at - word), argv, e);
    while (at < end && is_blank(*at))
        at++;
    if (r == 0 && at < end)
        r = add_word(at, (size_t)(end - at), argv, e);
    return r < 0 ? r : 1;
}

static int create_script_file(char **ret_path, int *ret_fd, struct err *e)
{
    char random[NAME_RANDOM_BYTES * 2 + 1];
    int r = io_random_hex(NAME_RANDOM_BYTES, random, e);
    int sys = 0;

    if (r < 0)
        return r;
    for (size_t i = 0; i < N_ELEMENTS(script_dirs); i++) {
        _cleanup_free_ char *path = NULL;
        int fd;

        if (asprintf(&path, "%s/bellhop-script-%s", script_dirs[i], random) < 0)
            return err_oom(e);
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0700);
        if (fd < 0) {
            sys = sys ? sys : errno; /* of the first directory, which should have worked */
            continue;
        }
        *ret_path = TAKE(path);
        *ret_fd = fd;
        return 0;
    }
    return err_at(e, err_sys(e, sys, "making a file for the script in '%s'", script_dirs[0]),
                  "shell");
}

int script_write(const char *text, size_t len, uid_t uid, gid_t gid, char **ret_path, struct err *e)
{
    _cleanup_free_ char *path = NULL;
    _cleanup_close_ int fd = -1;
    int r = create_script_file(&path, &fd, e);

    if (r < 0)
        return r;
    r = io_write_all(fd, text, len, e);
    if (r == 0 && (fchmod(fd, 0700) < 0 || (uid != geteuid() && fchown(fd, uid, gid) < 0)))
        r = err_sys(e, errno, "giving '%s' to its user", path);
    if (r < 0) {
        (void)unlink(path);
        return err_at(e, r, "shell");
    }
    *ret_path = TAKE(path);
    return 0;
}
