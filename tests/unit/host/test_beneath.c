#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "lib/util/beneath.h"
#include "lib/project/sync_local.h"

static mode_t mode_of(const char *path)
{
    struct stat st;

    T_INT(stat(path, &st), 0);
    return st.st_mode & 07777;
}

static void put(const char *path, const char *text, mode_t mode)
{
    T_INT(io_write_file(AT_FDCWD, path, text, strlen(text), mode, false, NULL), 0);
}

/* root/d/f, root/link -> ../outside, root/d/up -> .., outside/f. */
static int make_tree(void)
{
    int root;

    T_INT(system("mkdir -p root/d outside; ln -s ../outside root/link; ln -s .. root/d/up; "
                 "ln -s d/f root/file-link; mkfifo root/pipe"),
          0);
    put("root/d/f", "inside", 0644);
    put("outside/f", "outside", 0600);
    root = open("root", O_PATH | O_DIRECTORY | O_CLOEXEC);
    T_OK(root >= 0);
    return root;
}

static void opens(int root, const char *name, int flags)
{
    int fd = beneath_open(root, name, flags);

    if (fd < 0)
        t_fail(__FILE__, __LINE__, "%s: %s", name, strerror(errno));
    fd_close(fd);
}

/* ELOOP or ENOTDIR: a link; it depends on who resolves. */
static void refuses(int root, const char *name, int flags, int sys)
{
    int fd = beneath_open(root, name, flags);

    if (fd >= 0)
        t_fail(__FILE__, __LINE__, "'%s' was opened", name);
    if (errno != sys && !(sys == ELOOP && errno == ENOTDIR))
        t_fail(__FILE__, __LINE__, "'%s': %s", name, strerror(errno));
}

static void check_opening(void)
{
    int root = make_tree();

    opens(root, "d/f", O_RDONLY);
    opens(root, "./d//f", O_RDONLY);
    opens(root, "d/", O_RDONLY);
    opens(root, "", O_RDONLY | O_DIRECTORY);
    opens(root, ".", O_PATH);
    opens(root, "link", O_PATH); /* the link itself */
    opens(root, "pipe", O_RDONLY);
    refuses(root, "link", O_RDONLY, ELOOP);
    refuses(root, "file-link", O_RDONLY, ELOOP);
    refuses(root, "link/f", O_RDONLY, ELOOP);
    refuses(root, "link/f", O_PATH, ELOOP);
    refuses(root, "link/", O_RDONLY | O_DIRECTORY, ELOOP);
    refuses(root, "d/up/d/f", O_RDONLY, ELOOP);
    refuses(root, "../outside/f", O_RDONLY, EXDEV);
    refuses(root, "d/../d/f", O_RDONLY, EXDEV);
    refuses(root, "..", O_PATH, EXDEV);
    refuses(root, "/etc/passwd", O_RDONLY, EXDEV);
    refuses(root, "/", O_PATH, EXDEV);
    refuses(root, "nothing", O_RDONLY, ENOENT);
    refuses(root, "nothing/f", O_RDONLY, ENOENT);
    refuses(root, "d/f/x", O_RDONLY, ENOTDIR);
    refuses(root, "d/f/", O_RDONLY, ENOTDIR);
    fd_close(root);
}

TEST(no_name_leads_through_a_link_or_outside)
{
    check_opening();
}

TEST(no_name_leads_through_a_link_or_outside_without_openat2)
{
    beneath_force_walk(true);
    check_opening();
}

TEST(a_name_that_is_longer_than_the_kernel_takes_is_walked)
{
    int root = make_tree(), fd;
    char name[9001];

    memset(name, '/', sizeof(name));
    memcpy(name, "d", 1);
    memcpy(name + sizeof(name) - 2, "f", 2);
    opens(root, name, O_RDONLY);
    memcpy(name, "link", 4);
    refuses(root, name, O_RDONLY, ELOOP);
    memset(name, 'n', 300);
    fd = beneath_open(root, name, O_RDONLY);
    T_OK(fd < 0);
    T_INT(errno, ENAMETOOLONG);
    fd_close(root);
}

TEST(files_links_and_attributes_are_read_beneath)
{
    char text[16];
    _cleanup_free_ char *data = NULL;
    int root = make_tree();
    struct err e = {0};
    struct stat st;
    size_t len = 0;

    T_INT(beneath_read_file(root, "d/f", 6, &data, &len, &e), 0);
    T_STR(data, "inside");
    T_INT(len, 6);
    T_INT(beneath_read_file(root, "d/f", 5, &data, NULL, &e), -ERR_EXHAUSTED);
    T_OK(beneath_read_file(root, "link/f", 100, &data, NULL, &e) < 0);
    T_INT(beneath_read_file(root, "pipe", 100, &data, NULL, &e), -ERR_INVALID);
    T_INT(beneath_readlink(root, "link", text, sizeof(text)), 10);
    T_STR(text, "../outside");
    T_INT(beneath_readlink(root, "link", text, 4), 3);
    T_STR(text, "../");
    T_INT(beneath_readlink(root, "d/f", text, sizeof(text)), -1);
    T_INT(errno, EINVAL);
    T_INT(beneath_stat(root, "link", &st), 0);
    T_OK(S_ISLNK(st.st_mode));
    T_INT(beneath_stat(root, "link/f", &st), -1);
    fd_close(root);
}

TEST(names_of_git_are_known_in_every_spelling)
{
    static const char *const git[] = {".git",     ".GIT",      "a/.gIt/b", ".git/config", ".git.",
                                      ".git . .", "a//.git//", "./.git",   ".git /x"};
    static const char *const others[] = {"",       "git", ".gitignore", ".github/x",
                                         "a.git",  ".gi", ".git.a/x",   ".git~1",
                                         "x .git", "...", ".gitx.",     ". git"};

    for (size_t i = 0; i < N_ELEMENTS(git); i++)
        if (!beneath_names_git(git[i]))
            t_fail(__FILE__, __LINE__, "'%s' is not seen", git[i]);
    for (size_t i = 0; i < N_ELEMENTS(others); i++)
        if (beneath_names_git(others[i]))
            t_fail(__FILE__, __LINE__, "'%s' is taken for one", others[i]);
}

TEST(a_mode_is_never_set_through_a_link)
{
    int root = make_tree();
    int dir = open("root/d", O_PATH | O_DIRECTORY | O_CLOEXEC);

    T_INT(symlink("../../outside/f", "root/d/l"), 0);
    T_INT(beneath_chmod(dir, "l", 0777), -1);
    T_INT(errno, ELOOP);
    T_INT(mode_of("outside/f"), 0600);
    T_INT(beneath_chmod(dir, "f", 0200), 0);
    T_INT(beneath_chmod(dir, "f", 0400), 0); /* one that can't be read or written */
    T_INT(mode_of("root/d/f"), 0400);
    fd_close(dir);
    fd_close(root);
}

/* A sync handles an entry after a link has come in its place or on the way to it. */
TEST(a_sync_touches_nothing_behind_a_link)
{
    char leaf_name[] = "l", below_name[] = "link/f", dir_name[] = "link/new", pipe_name[] = "pipe";
    struct sync_entry leaf = {.name = leaf_name, .mode = 0777, .mtime = {.tv_sec = 1}};
    struct sync_entry below = {.name = below_name, .mode = 0777, .mtime = {.tv_sec = 1}};
    struct sync_entry dir = {.name = dir_name, .type = SYNC_DIR, .mode = 0777};
    struct sync_entry pipe = {.name = pipe_name}, seen = {0};
    struct sync_local l = {0}, stage = {0};
    struct err e = {0};
    struct stat was, st;
    int root = make_tree();

    T_INT(symlink("../outside/f", "root/l"), 0);
    T_INT(stat("outside/f", &was), 0);
    T_INT(sync_local_open("root", false, &l, &e), 0);
    T_OK(sync_local_touch(&l, &leaf, &e) < 0);
    T_STR(e.field, "l");
    T_INT(sync_local_touch(&l, &below, &e), 0); /* it is not there */
    T_INT(sync_local_look(&l, "link/f", &seen, &e), 0);
    T_INT(sync_local_remove(&l, "link/f", false, &e), 0);
    T_OK(sync_local_make_dir(&l, &dir, &e) < 0);
    T_INT(sync_local_hash(&l, &below, &e), -ERR_ABORTED);
    T_INT(sync_local_hash(&l, &leaf, &e), -ERR_ABORTED);
    T_INT(sync_local_hash(&l, &pipe, &e), -ERR_ABORTED);
    T_INT(system("mkdir -p stage/link; echo evil >stage/link/f"), 0);
    T_INT(sync_local_open("stage", false, &stage, &e), 0);
    T_OK(sync_local_place(&stage, &l, "link/f", &e) < 0);
    T_INT(stat("outside/f", &st), 0);
    T_INT(st.st_mode, was.st_mode);
    T_INT(st.st_mtim.tv_sec, was.st_mtim.tv_sec);
    T_INT(st.st_size, was.st_size);
    T_INT(access("outside/new", F_OK), -1);
    sync_local_done(&stage);
    sync_local_done(&l);
    fd_close(root);
}

/* A link in a directory that keeps it (sticky, another's) can't be removed; where it leads must not
 * be made ready for removal either. */
TEST(removing_a_tree_changes_no_mode_behind_a_link_that_stays)
{
    struct err e = {0};

    if (geteuid() != 0)
        T_SKIP("only root can act as another");
    put("file", "own", 0644);
    T_INT(system("mkdir -p tree/kept; ln -s ../../file tree/kept/link; chmod 1777 tree/kept; chmod "
                 "755 .; "
                 "chown 65534 file tree; chmod 777 tree"),
          0);
    T_INT(seteuid(65534), 0);
    T_OK(dirtree_remove("tree", &e) < 0);
    T_INT(seteuid(0), 0);
    T_INT(mode_of("file"), 0644);
}
