#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"
#include "lib/util/debug.h"

#define LOG_MAX_BYTES (10 << 20) /* then it becomes FILE.1 */

static const char *const debug_parts[] = {"provider", "state", "http", "host"};

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *w = list; *w; w += strcspn(w, ",") + (w[strcspn(w, ",")] == ',')) {
        if (strcspn(w, ",") == n && strncmp(w, word, n) == 0)
            return true;
    }
    return false;
}

/* Are all words of "http,host" parts? */
static bool is_part_list(const char *list)
{
    size_t n = 0;

    for (size_t i = 0; i < N_ELEMENTS(debug_parts); i++)
        n += has_word(list, debug_parts[i]) ? strlen(debug_parts[i]) + 1 : 0;
    return n == strlen(list) + 1;
}

static int open_log(const char *path, int *ret, struct err *e)
{
    _cleanup_close_ int fd = open(
        path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    struct stat st;

    if (fd < 0)
        return err_at(e, err_sys(e, errno, "the debug log '%s'", path), "debug-log");
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        st.st_mode & (S_IWGRP | S_IWOTH | S_IRGRP | S_IROTH))
        return err_field(e, ERR_DENIED, "debug-log",
                         "the debug log '%s' must be a file of yours with the mode 0600", path);
    *ret = TAKE_FD(fd);
    return 0;
}

/* Renames a full log, unless another command has done so, and opens it anew. */
static void rotate_log(struct cli *c)
{
    _cleanup_free_ char *old = NULL;
    struct stat mine, there;
    int fd = -1;

    if (fstat(c->debug_fd, &mine) < 0 || mine.st_size < LOG_MAX_BYTES ||
        asprintf(&old, "%s.1", c->debug_path) < 0)
        return;
    if (flock(c->debug_fd, LOCK_EX) == 0 && lstat(c->debug_path, &there) == 0 &&
        there.st_ino == mine.st_ino && there.st_dev == mine.st_dev)
        (void)rename(c->debug_path, old);
    if (open_log(c->debug_path, &fd, NULL) < 0)
        return;
    fd_close(c->debug_fd);
    c->debug_fd = fd;
}

/* One write() a line, so that the lines of several threads and commands do not mix. */
static void take_line(void *arg, const char *part, const char *text)
{
    struct cli *c = arg;
    _cleanup_free_ char *line = NULL;

    if (c->debug_parts && !has_word(c->debug_parts, part))
        return;
    line = debug_format(part, text);
    if (!line)
        return;
    if (c->debug_path)
        rotate_log(c);
    (void)io_write_all(c->debug_fd, line, strlen(line), NULL);
}

int cli_debug_start(struct cli *c, struct err *e)
{
    const char *set = c->settings.debug_log;
    int r = 0;

    c->debug_fd = STDERR_FILENO;
    if (set && *set == '/') {
        r = open_log(set, &c->debug_fd, e);
        c->debug_path = set;
    } else if (set && strcmp(set, "1") != 0) {
        if (!is_part_list(set))
            return err_field(
                e, ERR_INVALID, "debug-log",
                "'%.60s' is neither 1, an absolute path nor a list of provider, state, "
                "http and host",
                set);
        c->debug_parts = set;
    }
    if (r < 0 || (!set && !c->debug))
        return r;
    c->opts.debug = take_line;
    c->opts.debug_arg = c;
    return 0;
}
