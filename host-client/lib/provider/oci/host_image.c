#include "lib/provider/oci/host_image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/beneath.h"

#define USER_ID 1000
#define FILE_MAX_BYTES ((size_t)4 << 20)
#define ETC_MAX_FILES 20000
#define ETC_MAX_DEPTH 6

/* The box sees these read-only. Only real directories are bound: links among them are made
 * again as links. */
static const char *const shared_dirs[] = {"/usr", "/opt",   "/bin",   "/sbin",
                                          "/lib", "/lib32", "/lib64", "/libx32"};

/* Patterns of names directly below /etc that may be copied: files that programs need to run,
 * and none that says who may log in where. */
static const char *const etc_names[] = {"ImageMagick-*",
                                        "adduser.conf",
                                        "alternatives",
                                        "bash.bashrc",
                                        "bash_completion.d",
                                        "ca-certificates",
                                        "ca-certificates.conf",
                                        "debian_version",
                                        "deluser.conf",
                                        "ethertypes",
                                        "fonts",
                                        "gai.conf",
                                        "host.conf",
                                        "inputrc",
                                        "issue",
                                        "java*",
                                        "ld.so.cache",
                                        "ld.so.conf",
                                        "ld.so.conf.d",
                                        "locale.alias",
                                        "locale.conf",
                                        "localtime",
                                        "login.defs",
                                        "lsb-release",
                                        "magic",
                                        "magic.mime",
                                        "mailcap",
                                        "manpath.config",
                                        "mime.types",
                                        "nanorc",
                                        "networks",
                                        "nsswitch.conf",
                                        "os-release",
                                        "pam.conf",
                                        "pam.d",
                                        "perl",
                                        "profile",
                                        "protocols",
                                        "python3*",
                                        "rpc",
                                        "security",
                                        "services",
                                        "shells",
                                        "skel",
                                        "ssl",
                                        "terminfo",
                                        "timezone",
                                        "vim",
                                        "wgetrc"};

/* Names refused anywhere below, whatever the list above says. */
static const char *const etc_refused[] = {"*shadow*", "*passwd*",     "*secret*", "*private*",
                                          "*.key",    "*.p12",        "*.pfx",    "*.jks",
                                          "*token*",  "*credential*", "id_*",     ".netrc"};

/* The accounts of a plain Debian; the host's own stay private. */
static const char passwd_text[] = "root:x:0:0:root:/root:/bin/bash\n"
                                  "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
                                  "bin:x:2:2:bin:/bin:/usr/sbin/nologin\n"
                                  "sys:x:3:3:sys:/dev:/usr/sbin/nologin\n"
                                  "man:x:6:12:man:/var/cache/man:/usr/sbin/nologin\n"
                                  "mail:x:8:8:mail:/var/mail:/usr/sbin/nologin\n"
                                  "www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n"
                                  "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
                                  "user:x:1000:1000::/home/user:/bin/bash\n";
static const char group_text[] = "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\n"
                                 "disk:x:6:\nmail:x:8:\nman:x:12:\nsudo:x:27:user\n"
                                 "www-data:x:33:\nshadow:x:42:\nutmp:x:43:\nstaff:x:50:\n"
                                 "users:x:100:\nnogroup:x:65534:\nuser:x:1000:\n";
/* Hooks of a repository that comes into the box must not run there. */
static const char gitconfig_text[] = "[core]\n\thooksPath = /dev/null\n[init]\n"
                                     "\tdefaultBranch = main\n[advice]\n\tdetachedHead = false\n";

static const struct {
    const char *path;
    mode_t mode;
    uid_t owner;
} new_directories[] = {
    {"etc", 0755, 0},
    {"etc/ssl", 0755, 0},
    {"root", 0700, 0},
    {"home", 0755, 0},
    {"home/user", 0755, USER_ID},
    {"workspace", 0755, USER_ID},
    {"srv", 0755, 0},
    {"mnt", 0755, 0},
    {"media", 0755, 0},
    {"boot", 0755, 0},
    {"proc", 0755, 0},
    {"sys", 0755, 0},
    {"dev", 0755, 0},
    {"run", 0755, 0},
    {"run/lock", 01777, 0},
    {"tmp", 01777, 0},
    {"var", 0755, 0},
    {"var/cache", 0755, 0},
    {"var/lib", 0755, 0},
    {"var/log", 0755, 0},
    {"var/mail", 0755, 0},
    {"var/spool", 0755, 0},
    {"var/tmp", 01777, 0},
};

static const struct {
    const char *path;
    const char *text;
    mode_t mode;
} etc_files[] = {
    {"etc/passwd", passwd_text, 0644},       {"etc/group", group_text, 0644},
    {"etc/gitconfig", gitconfig_text, 0644}, {"etc/hosts", "", 0644},
    {"etc/resolv.conf", "", 0644},
};

static bool matches_any(const char *const *patterns, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (fnmatch(patterns[i], name, FNM_CASEFOLD) == 0)
            return true;
    return false;
}

bool host_image_etc_allows(const char *name)
{
    _cleanup_free_ char *first = strndup(name, strcspn(name, "/"));
    const char *last = path_name(name);

    if (!first || !matches_any(etc_names, N_ELEMENTS(etc_names), first))
        return false;
    /* pam.d/passwd and the like are configuration, not accounts */
    if (matches_any(etc_refused, N_ELEMENTS(etc_refused), last) && !str_eq(first, "pam.d"))
        return false;
    /* only the public half of ssl */
    return !str_eq(first, "ssl") || str_eq(name, "ssl") || str_has_prefix(name, "ssl/certs") ||
           str_eq(name, "ssl/openssl.cnf");
}

int host_image_check(const char *state_dir, struct err *e)
{
    for (size_t i = 0; i < N_ELEMENTS(shared_dirs); i++)
        if (path_is_within(state_dir, shared_dirs[i]))
            return err_field(e, ERR_PRECONDITION, "image",
                             "image 'host' would show the state directory '%s' to the box",
                             state_dir);
    return 0;
}

/* ---- the copy of /etc ---- */

struct copier {
    int from; /* /etc */
    int to;
    unsigned n_files;
};

static bool holds_key(const char *data, size_t len)
{
    static const char mark[] = "PRIVATE KEY";

    return memmem(data, len, mark, sizeof(mark) - 1) != NULL;
}

/* Owned by root and readable by everybody. Other files are left out silently, on purpose. */
static bool is_public(const struct stat *st)
{
    return st->st_uid == 0 && (st->st_mode & 0004) && !(st->st_mode & 06000);
}

static int copy_file(struct copier *c, const char *name, const struct stat *st, struct err *e)
{
    _cleanup_free_ char *data = NULL;
    size_t len;

    if (!is_public(st) || st->st_size > (off_t)FILE_MAX_BYTES ||
        io_read_file(c->from, name, FILE_MAX_BYTES, &data, &len, NULL) < 0 || holds_key(data, len))
        return 0;
    return io_write_file(c->to, name, data, len, st->st_mode & 0755, false, e);
}

static int copy_link(struct copier *c, const char *name, struct err *e)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(c->from, name, target, sizeof(target) - 1);

    if (n < 0)
        return 0;
    target[n] = '\0';
    if (symlinkat(target, c->to, name) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make the link 'etc/%s'", name);
    return 0;
}

static int copy_entry(struct copier *c, const char *name, int depth, struct err *e);

static int copy_dir(struct copier *c, const char *name, int depth, struct err *e)
{
    int fd = openat(c->from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
    int r = 0;

    if (!d || depth >= ETC_MAX_DEPTH)
        return 0;
    if (mkdirat(c->to, name, 0755) < 0 && errno != EEXIST)
        return err_sys(e, errno, "mkdir 'etc/%s'", name);
    for (struct dirent *de; r == 0 && (de = readdir(d));) {
        _cleanup_free_ char *sub = NULL;

        if (str_eq(de->d_name, ".") || str_eq(de->d_name, ".."))
            continue;
        if (asprintf(&sub, "%s/%s", name, de->d_name) < 0)
            return err_oom(e);
        r = copy_entry(c, sub, depth + 1, e);
    }
    return r;
}

static int copy_entry(struct copier *c, const char *name, int depth, struct err *e)
{
    struct stat st;

    if (!host_image_etc_allows(name) || fstatat(c->from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    if (++c->n_files > ETC_MAX_FILES)
        return err_set(e, ERR_EXHAUSTED, "/etc has more than %d files to copy", ETC_MAX_FILES);
    if (S_ISDIR(st.st_mode))
        return (st.st_mode & 0005) == 0005 ? copy_dir(c, name, depth, e) : 0;
    if (S_ISLNK(st.st_mode))
        return copy_link(c, name, e);
    return S_ISREG(st.st_mode) ? copy_file(c, name, &st, e) : 0;
}

static int copy_etc(int root, struct err *e)
{
    _cleanup_close_ int from = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int to = openat(root, "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_closedir_ DIR *d = opendir("/etc");
    struct copier c = {.from = from, .to = to};
    int r = 0;

    if (from < 0 || to < 0 || !d)
        return err_sys(e, errno, "open '/etc'");
    for (struct dirent *de; r == 0 && (de = readdir(d));)
        if (de->d_name[0] != '.')
            r = copy_entry(&c, de->d_name, 0, e);
    return r;
}

/* ---- the tree ---- */

static int make_directories(int root, struct err *e)
{
    for (size_t i = 0; i < N_ELEMENTS(new_directories); i++) {
        const char *path = new_directories[i].path;

        if (mkdirat(root, path, 0755) < 0 ||
            fchownat(root, path, new_directories[i].owner, new_directories[i].owner, 0) < 0 ||
            fchmodat(root, path, new_directories[i].mode, 0) < 0)
            return err_sys(e, errno, "make '%s'", path);
    }
    return 0;
}

static int make_files(int root, struct err *e)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(etc_files); i++)
        r = io_write_file(root, etc_files[i].path, etc_files[i].text, strlen(etc_files[i].text),
                          etc_files[i].mode, false, e);
    if (r == 0 && symlinkat("/proc/self/mounts", root, "etc/mtab") < 0)
        r = err_sys(e, errno, "make 'etc/mtab'");
    if (r == 0 && symlinkat("/run", root, "var/run") < 0)
        r = err_sys(e, errno, "make 'var/run'");
    return r;
}

/* Makes a directory to mount on, or the same link as on the host. */
static int make_shared(int root, struct err *e)
{
    for (size_t i = 0; i < N_ELEMENTS(shared_dirs); i++) {
        const char *name = shared_dirs[i] + 1;
        char target[PATH_MAX];
        ssize_t n = readlink(shared_dirs[i], target, sizeof(target) - 1);
        struct stat st;

        if (n >= 0) {
            target[n] = '\0';
            if (symlinkat(target, root, name) < 0)
                return err_sys(e, errno, "make the link '%s'", name);
        } else if (lstat(shared_dirs[i], &st) == 0 && S_ISDIR(st.st_mode) &&
                   mkdirat(root, name, 0755) < 0) {
            return err_sys(e, errno, "mkdir '%s'", name);
        }
    }
    return 0;
}

int host_image_make(const char *dir, struct err *e)
{
    _cleanup_close_ int root = -1;
    int r;

    r = dirtree_remove(dir, e);
    if (r < 0)
        return r;
    if (mkdir(dir, 0755) < 0 || chmod(dir, 0755) < 0)
        return err_sys(e, errno, "mkdir '%s'", dir);
    root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_sys(e, errno, "open '%s'", dir);
    r = make_directories(root, e);
    if (r == 0)
        r = make_shared(root, e);
    if (r == 0)
        r = copy_etc(root, e);
    return r < 0 ? r : make_files(root, e);
}

/* ---- mounts ---- */

static bool is_shared_dir(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int host_image_stage(struct oci_stage *s, struct err *e)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(shared_dirs); i++) {
        const struct oci_bind bind = {
            .source = shared_dirs[i], .name = shared_dirs[i] + 1, .is_dir = true, .readonly = true};

        if (is_shared_dir(shared_dirs[i]))
            r = oci_stage_bind(s, &bind, e);
    }
    return r;
}

int host_image_mounts(json_t *mounts, const struct oci_stage *s)
{
    int r = 0;

    for (size_t i = 0; i < N_ELEMENTS(shared_dirs); i++)
        if (is_shared_dir(shared_dirs[i]))
            r |= json_array_append_new(mounts,
                                       json_pack("{s:s, s:s, s:o, s:[s, s, s, s]}", "destination",
                                                 shared_dirs[i], "type", "bind", "source",
                                                 json_sprintf("%s%s", s->root, shared_dirs[i]),
                                                 "options", "bind", "ro", "nodev", "nosuid"));
    return r;
}
