#include "test.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>

#include "common/user.h"

TEST(user_is_found_by_name_number_and_pair)
{
    struct user u = {0};
    struct err e = {0};

    T_INT(user_find("root", &u, &e), 0);
    T_INT(u.uid, 0);
    T_STR(u.name, "root");
    T_OK(u.n_groups >= 1 && u.groups[0] == 0);
    user_done(&u);
    T_INT(user_find("0", &u, &e), 0);
    T_STR(u.name, "root");
    user_done(&u);
    T_INT(user_find("3999999999:77", &u, &e), 0);
    T_INT(u.uid, 3999999999u);
    T_INT(u.gid, 77);
    T_STR(u.home, "/");
    T_INT(u.n_groups, 1);
    T_INT(u.groups[0], 77);
    user_done(&u);
}

TEST(user_that_is_none_is_refused_by_field)
{
    static const char *const names[] = {"", "nobody-by-this-name", "-1", "4294967295", "0:x", ":0"};
    struct user u = {0};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct err e = {0};

        T_INT(user_find(names[i], &u, &e), -ERR_NOT_FOUND);
        T_STR(e.field, "user");
    }
}

/* Mounts the test's passwd file over the machine's, for this test's process alone. */
static void bind_passwd(const char *path)
{
    if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(path, "/etc/passwd", NULL, MS_BIND, NULL) < 0)
        t_skip("mounts need root");
}

static void write_passwd(const char *path, const char *home, int64_t age_s)
{
    FILE *f = fopen(path, "w");
    struct timespec times[2] = {{.tv_sec = time(NULL) - age_s}, {.tv_sec = time(NULL) - age_s}};

    T_OK(f);
    T_OK(fprintf(f, "root:x:0:0::%s:/bin/sh\nann:x:77:78::/h/ann:/bin/sh\n", home) > 0);
    T_INT(fclose(f), 0);
    T_INT(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void expect_home(struct user_cache *c, const char *who, uid_t uid, const char *home)
{
    struct user u = {0};
    struct err e = {0};

    T_INT(user_cache_find(c, who, uid, &u, &e), 0);
    T_STR(u.home, home);
    T_OK((u.n_groups > 0) == (who != NULL));
    user_done(&u);
}

TEST(user_that_is_remembered_is_read_again_when_the_file_changes)
{
    struct user_cache c;
    struct user u = {0};
    struct err e = {0};

    write_passwd("passwd", "/one", 0);
    bind_passwd("passwd");
    user_cache_init(&c);
    expect_home(&c, "root", 0, "/one");
    T_OK(!c.is_set); /* a young file may change without a change of its times */
    while (!c.is_set) {
        usleep(50000);
        expect_home(&c, "root", 0, "/one");
    }
    expect_home(&c, "ann", 0, "/h/ann");
    expect_home(&c, NULL, 77, "/h/ann");
    expect_home(&c, "root", 0, "/one");
    T_OK(c.is_set);
    write_passwd("passwd", "/two", 100); /* the same size, and older by its mtime */
    expect_home(&c, "root", 0, "/two");
    T_INT(user_cache_find(&c, "nobody-by-this-name", 0, &u, &e), -ERR_NOT_FOUND);
    user_cache_done(&c);
}
