#include "search/rulefiles.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "fs/root.h"

#define GITFILE_PREFIX "gitdir: "

/* In the order of enum ignore_file. */
static const char *const rule_names[] = {".rgignore", ".ignore", ".gitignore", ".git/info/exclude"};

void rulefiles_see_name(const char *name, bool has[IGNORE_N_FILES])
{
    for (size_t i = 0; i < IGNORE_N_FILES; i++) {
        size_t len = strcspn(rule_names[i], "/");

        has[i] |= strncmp(name, rule_names[i], len) == 0 && !name[len];
    }
}

/* Reads a regular file of bounded size; the text is NUL-terminated. -errno on failure. */
static int read_text(int fd, char **ret, size_t *ret_len)
{
    struct stat st;
    char *text;
    size_t len;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -ENOENT;
    if (st.st_size > IGNORE_FILE_MAX_BYTES)
        return -EFBIG;
    text = malloc((size_t)st.st_size + 1);
    if (!text)
        return -ENOMEM;
    if (io_read_full(fd, text, (size_t)st.st_size, &len, NULL) < 0) {
        free(text);
        return -EIO;
    }
    text[len] = '\0';
    *ret = text;
    *ret_len = len;
    return 0;
}

/* The length of the text that counts: like rg, it ends before a line that is not UTF-8. */
static size_t readable_len(const char *text, size_t len)
{
    size_t from = 0;

    if (str_is_utf8(text, len))
        return len;
    for (;;) {
        const char *nl = memchr(text + from, '\n', len - from);
        size_t n = (nl ? (size_t)(nl - text) : len) - from;

        if (!str_is_utf8(text + from, n))
            return from;
        from += n + 1;
    }
}

/* Takes fd, which may be -errno. `shown` names the file in a note. */
static int rules_take_fd(const struct rule_source *s, int fd, const char *shown, struct rules **ret,
                         struct err *e)
{
    _cleanup_close_ int held = fd;
    _cleanup_free_ char *text = NULL;
    struct err own = {0};
    size_t len = 0, n;
    int r = fd;

    if (fd >= 0)
        r = read_text(held, &text, &len);
    if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP)
        return 0;
    if (r < 0) {
        notes_add_errno(s->notes, shown, -r);
        return 0;
    }
    n = readable_len(text, len);
    if (n < len)
        notes_add(s->notes, shown,
                  "has a line that is not UTF-8: the rules from there on do not count");
    r = rules_parse(text, n, ret, &own);
    if (r == -ERR_EXHAUSTED) {
        notes_add(s->notes, shown, own.message);
        return 0;
    }
    if (r < 0 && e)
        *e = own;
    return r;
}

/* Like rg, and unlike git, follows a symbolic link, as far as `access` may reach. */
static int read_rules(const struct rule_source *s, int dirfd, const char *dir, const char *name,
                      struct rules **ret, struct err *e)
{
    _cleanup_free_ char *path = path_join(dir, name);
    int fd = fs_openat_below(dirfd, name, O_RDONLY);

    if (!path) {
        fd_close(fd);
        return err_oom(e);
    }
    if (fd == -ELOOP)
        fd = s->access->open(s->access->arg, path, O_RDONLY | O_NONBLOCK);
    return rules_take_fd(s, fd, path, ret, e);
}

/* The first line of a small file; NULL: it can't be read. */
static char *first_line(int fd)
{
    _cleanup_close_ int held = fd;
    char *text = NULL;
    size_t len = 0;

    if (held < 0 || read_text(held, &text, &len) < 0)
        return NULL;
    text[strcspn(text, "\r\n")] = '\0';
    return text;
}

/*
 * In a linked work tree .git is a file. It names the work tree's git directory, whose "commondir" names the
 * repository's, which has the excludes.
 */
static int read_worktree_exclude(const struct rule_source *s, int dirfd, const char *dir,
                                 struct rules **ret, struct err *e)
{
    _cleanup_free_ char *line = first_line(fs_openat_below(dirfd, ".git", O_RDONLY));
    _cleanup_free_ char *gitdir = NULL, *commondir_file = NULL, *common = NULL, *commondir = NULL,
                        *exclude = NULL;

    if (!line || !str_has_prefix(line, GITFILE_PREFIX))
        return 0;
    gitdir = path_join(dir, line + strlen(GITFILE_PREFIX));
    commondir_file = gitdir ? path_join(gitdir, "commondir") : NULL;
    if (!commondir_file)
        return err_oom(e);
    common = first_line(s->access->open(s->access->arg, commondir_file, O_RDONLY));
    if (!common)
        return 0;
    commondir = path_join(gitdir, common);
    exclude = commondir ? path_join(commondir, "info/exclude") : NULL;
    if (!exclude)
        return err_oom(e);
    return rules_take_fd(s, s->access->open(s->access->arg, exclude, O_RDONLY), exclude, ret, e);
}

/* has[]: the files that may exist and count. */
static int read_dir_rules(const struct rule_source *s, int dirfd, const char *dir,
                          const bool has[IGNORE_N_FILES], bool may_have_git, struct ignore_dir *d,
                          struct err *e)
{
    struct stat st;
    int r = 0;

    for (size_t i = 0; r == 0 && i < IGNORE_N_FILES; i++)
        r = has[i] ? read_rules(s, dirfd, dir, rule_names[i], &d->files[i], e) : 0;
    if (r < 0)
        return r;
    d->has_git = may_have_git && fstatat(dirfd, ".git", &st, 0) == 0;
    if (d->has_git && has[IGNORE_FILE_EXCLUDE] && S_ISREG(st.st_mode))
        return read_worktree_exclude(s, dirfd, dir, &d->files[IGNORE_FILE_EXCLUDE], e);
    return 0;
}

/* Puts a view of d before *ig, unless d is empty. Takes the content of d. */
static int push_take(struct ignore_dir *d, struct ignore **ig, struct err *e)
{
    struct ignore *view;
    bool has_any = d->has_git;
    int r;

    for (size_t i = 0; i < IGNORE_N_FILES; i++)
        has_any = has_any || d->files[i];
    if (!has_any)
        return 0;
    r = ignore_new_take(*ig, d, &view, e);
    if (r < 0)
        return r;
    ignore_unref(*ig);
    *ig = view;
    return 0;
}

int rulefiles_add_own(const struct rule_source *s, int fd, const char *dir,
                      const bool has[IGNORE_N_FILES], struct ignore **ig, struct err *e)
{
    const bool has_git = s->vcs && has[IGNORE_FILE_EXCLUDE];
    const bool wanted[] = {has[IGNORE_FILE_RG], has[IGNORE_FILE_PLAIN],
                           s->vcs && has[IGNORE_FILE_GIT], has_git};
    struct ignore_dir d = {.skip = strlen(dir)};
    int r = read_dir_rules(s, fd, dir, wanted, has_git, &d, e);

    return r < 0 ? r : push_take(&d, ig, e);
}

int rulefiles_above(const struct rule_source *s, const char *whole, bool only_git,
                    struct ignore **ret, struct err *e)
{
    const bool all[] = {!only_git, !only_git, s->vcs && !only_git, s->vcs && !only_git};
    _cleanup_free_ char *dir = strdup(whole);
    struct ignore *ig = NULL;
    int r = 0;

    if (!dir)
        return err_oom(e);
    for (const char *slash = strchr(whole, '/'); r == 0 && slash; slash = strchr(slash + 1, '/')) {
        struct ignore_dir d = {.skip = (size_t)(slash - whole) + 1};
        _cleanup_close_ int fd = -1;

        if (!slash[1])
            break; /* the walk's own root: it ends in '/', or is "/" */
        memcpy(dir, whole, d.skip);
        dir[d.skip] = '\0';
        fd = s->access->open(s->access->arg, dir, O_RDONLY | O_DIRECTORY);
        if (fd < 0)
            continue; /* above --root, or not readable: like rg, no rules from there */
        r = read_dir_rules(s, fd, dir, all, s->vcs, &d, e);
        if (r == 0)
            r = push_take(&d, &ig, e);
    }
    if (r < 0) {
        ignore_unref(ig);
        return r;
    }
    *ret = ig;
    return 0;
}

/* core.excludesFile of a git configuration in home; *ret NULL: it has none. */
static int read_excludes_setting(const struct rule_source *s, const char *home, const char *name,
                                 char **ret, struct err *e)
{
    _cleanup_free_ char *path = path_join(home, name), *text = NULL;
    _cleanup_close_ int fd = -1;
    size_t len;

    if (!path)
        return err_oom(e);
    fd = s->access->open(s->access->arg, path, O_RDONLY);
    if (fd >= 0 && read_text(fd, &text, &len) == 0)
        *ret = ignore_excludes_file(text, home);
    return 0;
}

int rulefiles_global(const struct rule_source *s, const char *home, struct rules **ret,
                     struct err *e)
{
    _cleanup_free_ char *path = NULL;
    int r, fd;

    if (!home || !path_is_absolute(home))
        return 0;
    r = read_excludes_setting(s, home, ".gitconfig", &path, e);
    if (r == 0 && !path)
        r = read_excludes_setting(s, home, ".config/git/config", &path, e);
    if (r < 0)
        return r;
    if (!path && !(path = path_join(home, ".config/git/ignore")))
        return err_oom(e);
    if (!path_is_absolute(path))
        return 0;
    fd = s->access->open(s->access->arg, path, O_RDONLY);
    return fd == -EACCES ? 0 : rules_take_fd(s, fd, path, ret, e); /* outside --root, say */
}
