#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "test.h"

#include "fs_help.h"

#include "common/clock.h"
#include "fs/change.h"
#include "fs/open.h"
#include "fs/stat.h"

static struct err e;

/*
 * A root "in" with a secret beside it, and every kind of link that leads outside or stays inside.
 */
static struct fs_caller *house(void)
{
    struct fs_caller *c;
    char in[PATH_MAX], target[PATH_MAX + 32];

    T_INT(mkdir("in", 0755), 0);
    T_INT(mkdir("in/d", 0755), 0);
    T_INT(mkdir("in/d/e", 0755), 0);
    h_file("in/d/f", "inside");
    h_file("secret", "outside");
    T_OK(realpath("in", in) != NULL);
    T_INT(symlink("../secret", "in/up"), 0);
    T_INT(symlink("../../secret", "in/d/up"), 0);
    T_INT(symlink("..", "in/parent"), 0);
    T_INT(symlink("/etc", "in/etc"), 0);
    T_INT(symlink("d/f", "in/within"), 0);
    T_INT(symlink("../d/f", "in/d/zigzag"), 0);
    T_INT(symlink("loop", "in/loop"), 0);
    T_INT(symlink("/proc/self/root/etc/passwd", "in/magic"), 0);
    snprintf(target, sizeof(target), "%s/d/f", in);
    T_INT(symlink(target, "in/absolute_within"), 0);
    snprintf(target, sizeof(target), "%s/../secret", in);
    T_INT(symlink(target, "in/absolute_out"), 0);
    T_INT(chdir("in"), 0);
    c = h_caller_in(".", NULL);
    return c;
}

static int open_text(struct fs_caller *c, const char *path, char text[16])
{
    struct fs_file f;
    int r = fs_file_open(c, path, false, &f, &e);
    ssize_t n;

    text[0] = '\0';
    if (r < 0)
        return r;
    n = read(f.fd, text, 15);
    text[n > 0 ? n : 0] = '\0';
    fs_file_done(&f);
    return 0;
}

static void try_all(struct fs_caller *c)
{
    static const struct {
        const char *path;
        int want;
    } rows[] = {
        {"d/f", 0},
        {"./d/./f", 0},
        {"d//f", 0},
        {"d/../d/f", 0},
        {"d/e/../f", 0},
        {"within", 0},
        {"d/zigzag", 0},
        {"absolute_within", 0},
        {"up", -ERR_DENIED},
        {"d/up", -ERR_DENIED},
        {"../secret", -ERR_DENIED},
        {"d/../../secret", -ERR_DENIED},
        {"parent/secret", -ERR_DENIED},
        {"etc/passwd", -ERR_DENIED},
        {"/etc/passwd", -ERR_DENIED},
        {"/", -ERR_DENIED},
        {"absolute_out", -ERR_DENIED},
        {"magic", -ERR_DENIED},
        {"loop", -ERR_PRECONDITION},
        {"missing", -ERR_NOT_FOUND},
        {"d/f/x", -ERR_NOT_FOUND},
        {"d", -ERR_PRECONDITION},
        {"d/f/", -ERR_NOT_FOUND},
    };
    char text[16];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int r = open_text(c, rows[i].path, text);

        if (r != rows[i].want)
            t_fail(__FILE__, __LINE__, "'%s' gives %d (%s), expected %d", rows[i].path, r,
                   e.message, rows[i].want);
        if (r == 0)
            T_STR(text, "inside");
        else
            T_STR(e.field, "path");
    }
}

TEST(root_lets_nothing_out_by_openat2)
{
    struct fs_caller *c = house();

    try_all(c);
    h_drop(c);
}

TEST(root_lets_nothing_out_where_the_kernel_has_no_openat2)
{
    struct fs_caller *c = house();

    fs_root_force_walk(true);
    try_all(c);
    h_drop(c);
}

TEST(root_refuses_writes_moves_and_directories_outside)
{
    for (int walk = 0; walk < 2; walk++) {
        struct fs_caller *c = walk ? h_caller_in(".", NULL) : house();
        struct fs_write_options o = {0};
        struct fs_write_result res;
        static const char *const out[] = {"../new", "up", "parent/new", "/tmp/bellhop-x",
                                          "etc/bellhop-x"};

        fs_root_force_walk(walk);
        for (size_t i = 0; i < 5; i++)
            T_INT(h_write(c, out[i], "x", &o, &res, &e), -ERR_DENIED);
        T_OK(!h_exists("../new"));
        T_STR(h_text("../secret"), "outside");
        h_drop(c);
    }
}

/* A directory that is replaced by a link again and again: a read is inside the root, or refused. */
static atomic_bool racing;

static void *flip(void *arg)
{
    (void)arg;
    while (atomic_load(&racing)) {
        (void)rename("sw", "sw.dir");
        (void)symlink("../outside", "sw");
        (void)unlink("sw");
        (void)rename("sw.dir", "sw");
    }
    return NULL;
}

/* A root whose directory "sw" is, at every other moment, a link to the outside. */
static struct fs_caller *racing_house(bool walk)
{
    struct fs_caller *c;

    T_INT(mkdir("outside", 0755), 0);
    T_INT(mkdir("outside/d", 0755), 0);
    h_file("outside/f", "outside");
    h_file("outside/d/g", "outside");
    T_INT(mkdir("in", 0755), 0);
    T_INT(mkdir("in/sw", 0755), 0);
    T_INT(mkdir("in/sw/d", 0755), 0);
    h_file("in/sw/f", "inside");
    T_INT(chdir("in"), 0);
    c = h_caller_in(".", NULL);
    fs_root_force_walk(walk);
    return c;
}

static void race(bool walk)
{
    struct fs_caller *c = racing_house(walk);
    pthread_t t;
    char text[16];
    int64_t deadline = clock_mono_ms() + 60000;
    int seen = 0;

    atomic_store(&racing, true);
    T_INT(pthread_create(&t, NULL, flip, NULL), 0);
    /* On a busy machine the other thread may sleep at the wrong moment all the time. */
    for (int i = 0; i < 20000 || (seen == 0 && clock_mono_ms() < deadline); i++) {
        if (open_text(c, "sw/f", text) == 0) {
            T_STR(text, "inside");
            seen++;
        }
    }
    atomic_store(&racing, false);
    pthread_join(t, NULL);
    T_OK(seen > 0);
    h_drop(c);
}

TEST(root_holds_against_a_racing_link_by_openat2)
{
    race(false);
}

TEST(root_holds_against_a_racing_link_by_the_walk)
{
    race(true);
}

/*
 * ---- every other call under the same race ------------------------------------------------------
 */

static int try_write(struct fs_caller *c)
{
    struct fs_write_options o = {0};
    struct fs_write_result res;

    return h_write(c, "sw/f", "inside", &o, &res, &e);
}

static int try_list(struct fs_caller *c)
{
    struct fs_list_options o = {.depth = 3, .limit = 100};
    struct fs_listing l;
    int r = fs_list(c, "sw", &o, &l, &e);

    for (size_t i = 0; r == 0 && i < l.n_entries; i++)
        T_OK(!strstr(l.entries[i].path, "d/g"));
    if (r == 0)
        fs_listing_done(&l);
    return r;
}

static int try_move(struct fs_caller *c)
{
    struct fs_move_options o = {.overwrite = true};
    int r;

    h_file("new", "inside");
    r = fs_move(c, "new", "sw/moved", &o, &e);
    (void)fs_move(c, "sw/f", "sw/f2", &o, NULL);
    (void)fs_move(c, "sw/f2", "sw/f", &o, NULL);
    return r;
}

static int try_copy(struct fs_caller *c)
{
    struct fs_copy_options o = {.recursive = true, .overwrite = true};
    struct fs_copy_result res;
    int r = fs_copy(c, "sw", "copy", &o, &res, &e);
    struct stat st;

    if (r == 0 && lstat("copy", &st) == 0 && S_ISDIR(st.st_mode)) { /* else: of the link itself */
        T_OK(!h_exists("copy/d/g"));
        if (h_exists("copy/f"))
            T_STR(h_text("copy/f"), "inside");
    }
    (void)fs_remove(c, "copy", &(struct fs_remove_options){.recursive = true}, &res.bytes, NULL);
    return fs_copy(c, "sw/f", "sw/f3", &o, &res, &e);
}

static int try_make(struct fs_caller *c)
{
    bool made;

    return fs_make_dir(c, "sw/x/y", 0755, true, &made, &e);
}

static int try_remove(struct fs_caller *c)
{
    struct fs_remove_options o = {.recursive = true, .missing_ok = true};
    uint64_t n;

    return fs_remove(c, "sw/d", &o, &n, &e);
}

static int try_set_attr(struct fs_caller *c)
{
    struct fs_attrs a = {.mode = {true, 0600}, .follow = true};

    return fs_set_attr(c, "sw/f", &a, &e);
}

static void race_all(bool walk)
{
    static int (*const tries[])(struct fs_caller *) = {
        try_write, try_list, try_move, try_copy, try_make, try_remove, try_set_attr,
    };
    struct fs_caller *c = racing_house(walk);
    char before[128], after[128];
    int done[sizeof(tries) / sizeof(tries[0])] = {0};
    int64_t end_ms = clock_mono_ms() + 1500;
    size_t n_done = 0;
    pthread_t t;

    h_snapshot("../outside", before);
    atomic_store(&racing, true);
    T_INT(pthread_create(&t, NULL, flip, NULL), 0);
    /* Runs longer if the other thread gets so little time that one of the two never succeeds. */
    while (clock_mono_ms() < end_ms ||
           (n_done < sizeof(tries) / sizeof(tries[0]) && clock_mono_ms() < end_ms + 60000))
        for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++)
            n_done += tries[i](c) == 0 && !done[i]++;
    atomic_store(&racing, false);
    pthread_join(t, NULL);
    h_snapshot("../outside", after);
    T_STR(after, before);
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++)
        if (!done[i])
            t_fail(__FILE__, __LINE__, "try %zu never came through", i);
    h_drop(c);
}

TEST(nothing_outside_the_root_is_changed_while_a_link_races_by_openat2)
{
    race_all(false);
}

TEST(nothing_outside_the_root_is_changed_while_a_link_races_by_the_walk)
{
    race_all(true);
}

TEST(root_opens_paths_longer_than_the_kernel_takes)
{
    struct fs_caller *c = h_caller();
    char name[201], text[16];
    char path[FS_PATH_MAX] = "";
    int here = open(".", O_RDONLY | O_DIRECTORY);

    memset(name, 'n', 200);
    name[200] = '\0';
    for (int i = 0; i < 40; i++) {
        T_INT(mkdir(name, 0755), 0);
        T_INT(chdir(name), 0);
        strncat(path, name, sizeof(path) - strlen(path) - 1);
        strncat(path, "/", sizeof(path) - strlen(path) - 1);
    }
    h_file("f", "deep");
    T_INT(fchdir(here), 0);
    close(here);
    strncat(path, "f", sizeof(path) - strlen(path) - 1);
    T_OK(strlen(path) > PATH_MAX);
    T_INT(open_text(c, path, text), 0);
    T_STR(text, "deep");
    /* The test runner removes by path, which is too long here. */
    T_INT(system("rm -rf n*"), 0);
    h_drop(c);
}

TEST(open_never_waits_and_refuses_what_is_not_a_file)
{
    struct fs_caller *c = h_caller();
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "sock"};
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    static const char *const bad[] = {"fifo", "sock", "/dev/zero", "/dev/tty", "."};
    char text[16];

    T_INT(mkfifo("fifo", 0666), 0);
    T_INT(bind(s, (struct sockaddr *)&a, sizeof(a)), 0);
    for (size_t i = 0; i < 5; i++) {
        int r = open_text(c, bad[i], text);

        T_OK(r == -ERR_PRECONDITION || (i == 3 && r == -ERR_NOT_FOUND));
    }
    close(s);
    h_drop(c);
}

TEST(open_gives_the_content_of_proc_and_sys)
{
    struct fs_caller *c = h_caller();
    struct fs_file f;
    char text[64] = "";

    T_INT(fs_file_open(c, "/proc/self/status", true, &f, &e), 0);
    T_OK(!f.is_sized && !f.etag[0]);
    T_OK(read(f.fd, text, 5) == 5 && strncmp(text, "Name:", 5) == 0);
    fs_file_done(&f);
    T_INT(fs_file_open(c, "/proc/version", true, &f, &e), 0);
    T_OK(!f.is_sized);
    fs_file_done(&f);
    h_drop(c);
}

TEST(paths_start_at_the_base_and_at_home)
{
    struct fs_caller *c = h_caller();
    char *p = NULL, want[PATH_MAX + 8], here[PATH_MAX];

    T_OK(getcwd(here, sizeof(here)) != NULL);
    T_INT(fs_caller_path(c, "a/b", &p, &e), 0);
    snprintf(want, sizeof(want), "%s/a/b", here);
    T_STR(p, want);
    free(p);
    T_INT(fs_caller_path(c, "~/x", &p, &e), 0);
    snprintf(want, sizeof(want), "%s%sx", c->actor.user.home,
             strcmp(c->actor.user.home, "/") ? "/" : "");
    T_STR(p, want);
    free(p);
    T_INT(fs_caller_path(c, "~x", &p, &e), 0);
    snprintf(want, sizeof(want), "%s/~x", here);
    T_STR(p, want);
    free(p);
    h_drop(c);
}

TEST(stat_tells_links_from_what_they_point_to)
{
    struct fs_caller *c = h_caller();
    struct fs_info i;

    h_file("f", "12345");
    T_INT(symlink("f", "l"), 0);
    T_INT(fs_stat(c, "l", &(struct fs_stat_options){0}, &i, &e), 0);
    T_STR(fs_type_name(i.st.st_mode), "symlink");
    T_STR(i.target, "f");
    fs_info_done(&i);
    T_INT(fs_stat(c, "l", &(struct fs_stat_options){.follow = true, .etag = true}, &i, &e), 0);
    T_STR(fs_type_name(i.st.st_mode), "file");
    T_INT(i.st.st_size, 5);
    T_OK(i.etag[0] && !i.target);
    fs_info_done(&i);
    h_drop(c);
}
