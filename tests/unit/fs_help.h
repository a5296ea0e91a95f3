#pragma once
/* fs_help: helpers for the tests of guest/fs and guest/archive, in the test's own directory. */
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "common/io.h"
#include "fs/root.h"
#include "fs/write.h"

/*
 * A caller with the agent's own identity and the whole tree; relative paths start in the working
 * directory.
 */
static inline struct fs_caller *h_caller_in(const char *root_dir, const char *user)
{
    static struct fs_root *root;
    char here[PATH_MAX];
    struct fs_caller *c = NULL;
    struct err e = {0};

    if (!getcwd(here, sizeof(here)) || fs_root_new(root_dir, &root, &e) < 0 ||
        fs_caller_new(root, user, here, &c, &e) < 0)
        t_fail(__FILE__, __LINE__, "no caller: %s", e.message);
    return c;
}

static inline struct fs_caller *h_caller(void)
{
    return h_caller_in("/", NULL);
}

static inline void h_drop(struct fs_caller *c)
{
    struct fs_root *root = c->root;

    fs_caller_unref(c);
    fs_root_free(root);
}

static inline void h_file(const char *path, const char *text)
{
    struct err e = {0};

    if (io_write_file(AT_FDCWD, path, text, strlen(text), 0644, false, &e) < 0)
        t_fail(__FILE__, __LINE__, "%s", e.message);
}

/* The file's text in a buffer that the next call reuses; "(none)": the file does not exist. */
static inline const char *h_text(const char *path)
{
    static char text[65536];
    char *data = NULL;
    size_t n = 0;

    if (io_read_file(AT_FDCWD, path, sizeof(text) - 1, &data, &n, NULL) < 0)
        return "(none)";
    memcpy(text, data, n + 1);
    free(data);
    return text;
}

static inline bool h_exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

static inline mode_t h_mode(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 ? st.st_mode & 07777 : 0;
}

/* Everything below a directory (names, modes, links, contents) as one digest. */
static inline void h_snapshot(const char *dir, char out[128])
{
    char command[512];
    FILE *f;

    snprintf(command, sizeof(command),
             "cd '%s' && { find . -type d -printf '%%p %%m\\n' -o -printf '%%p %%y %%m %%l %%n\\n' "
             "| sort; "
             "find . -type f -print0 | sort -z | xargs -0 -r sha256sum; } | sha256sum",
             dir);
    f = popen(command, "r");
    if (!f || !fgets(out, 128, f))
        t_fail(__FILE__, __LINE__, "no snapshot");
    pclose(f);
}

static inline int h_write(struct fs_caller *c, const char *path, const char *text,
                          const struct fs_write_options *o, struct fs_write_result *res,
                          struct err *e)
{
    struct fs_write *w = NULL;
    int r = fs_write_begin(c, path, o, &w, e);

    if (r == 0)
        r = fs_write_data(w, text, strlen(text), e);
    if (r == 0)
        r = fs_write_commit(w, res, e);
    fs_write_free(w);
    return r;
}
