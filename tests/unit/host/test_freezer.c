/* The freezer on the layouts of control groups v1, v2 and both, as files of the test's directory. A file that the
 * kernel would change is written beforehand as the kernel would leave it. */
#define FREEZER_ROOT "cgroup"
#define GUARD_THAW_MS 1
#include "lib/provider/freezer.c"

#include "test.h"

#include "lib/util/beneath.h"

#define NAME "/bellhop-01234567-b35f83b20e6c181c"
#define V1 "cgroup/freezer" NAME
#define V2 "cgroup" NAME
#define UNIFIED "cgroup/unified" NAME

static void make_dir(const char *path)
{
    struct err e = {0};

    T_INT(io_mkdir_p(path, 0755, &e), 0);
}

static void put(const char *dir, const char *file, const char *text)
{
    char path[256];
    struct err e = {0};

    (void)snprintf(path, sizeof(path), "%s/%s", dir, file);
    T_INT(io_write_file(AT_FDCWD, path, text, strlen(text), 0644, false, &e), 0);
}

static bool has(const char *dir, const char *file, const char *text)
{
    _cleanup_free_ char *found = NULL;
    char path[256];
    size_t len = 0;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, file);
    return io_read_file(AT_FDCWD, path, 4096, &found, &len, NULL) == 0 && str_eq(found, text);
}

/* A write replaces the word and leaves the line feed, which the kernel adds. */
static void make_v1(void)
{
    make_dir(V1);
    put(V1, "freezer.state", "??????\n");
    put(V1, "cgroup.procs", "");
}

static void make_v2(const char *dir, const char *events)
{
    make_dir(dir);
    put(dir, "cgroup.freeze", "?\n");
    put(dir, "cgroup.events", events);
    put(dir, "cgroup.procs", "");
}

TEST(a_group_of_v1_is_frozen_and_thawed_by_its_state)
{
    struct err e = {0};

    make_v1();
    T_INT(freezer_freeze(NAME, 1000, &e), 0);
    T_OK(has(V1, "freezer.state", "FROZEN\n"));
    T_INT(freezer_thaw(NAME, 1000, &e), 0);
    T_OK(has(V1, "freezer.state", "THAWED\n"));
}

TEST(a_group_of_v2_is_frozen_and_thawed_and_its_events_tell_when)
{
    const char *const dirs[] = {V2, UNIFIED};
    struct err e = {0};

    for (size_t i = 0; i < N_ELEMENTS(dirs); i++) {
        make_v2(dirs[i], "populated 1\nfrozen 1\n");
        T_INT(freezer_freeze(NAME, 1000, &e), 0);
        T_OK(has(dirs[i], "cgroup.freeze", "1\n"));
        put(dirs[i], "cgroup.events", "populated 1\nfrozen 0\n");
        T_INT(freezer_thaw(NAME, 1000, &e), 0);
        T_OK(has(dirs[i], "cgroup.freeze", "0\n"));
        T_INT(dirtree_remove("cgroup", &e), 0);
    }
}

/* systemd's hybrid layout: both are mounted, and the processes are in the groups of v1. */
TEST(where_both_are_mounted_v1_is_taken)
{
    struct err e = {0};
    int fd = -1;

    make_v1();
    make_v2(UNIFIED, "populated 1\nfrozen 0\n");
    T_INT(freezer_freeze(NAME, 1000, &e), 0);
    T_OK(has(V1, "freezer.state", "FROZEN\n"));
    T_OK(has(UNIFIED, "cgroup.freeze", "?\n"));
    T_INT(freezer_make(NAME, &fd, &e), 0);
    T_INT(write(fd, "7\n", 2), 2);
    fd_close(fd);
    T_OK(has(V1, "cgroup.procs", "7\n"));
}

TEST(a_group_that_does_not_freeze_in_time_is_thawed_again)
{
    struct err e = {0};

    make_dir(V1);
    put(V1, "freezer.state", "FREEZING\n"); /* longer than the word that is written */
    T_INT(freezer_freeze(NAME, 1, &e), -ERR_DEADLINE);
    T_STR(e.message, "a process of the box does not stand still");
    T_OK(has(V1, "freezer.state", "THAWEDNG\n"));
    T_INT(dirtree_remove("cgroup", &e), 0);
    make_v2(V2, "populated 1\nfrozen 0\n");
    T_INT(freezer_freeze(NAME, 1, &e), -ERR_DEADLINE);
    T_OK(has(V2, "cgroup.freeze", "0\n"));
    put(V2, "cgroup.events", "populated 1\nfrozen 1\n");
    T_INT(freezer_thaw(NAME, 1, &e), -ERR_DEADLINE);
}

TEST(a_guard_whose_group_is_not_thawed_tries_again_and_says_so)
{
    struct freezer_guard g = {0};
    struct err e = {0};
    char written[8] = "";
    int fd;

    make_v2(V2, "populated 1\nfrozen 1\n"); /* forever */
    T_INT(unlink(V2 "/cgroup.freeze"), 0);
    T_INT(mkfifo(V2 "/cgroup.freeze", 0600), 0); /* keeps what is written */
    fd = open(V2 "/cgroup.freeze", O_RDWR | O_CLOEXEC);
    T_INT(freezer_guard_begin(&g, NAME, 1, &e), 0);
    T_INT(freezer_guard_end(&g, 1, &e), -ERR_DEADLINE);
    T_OK(strstr(e.message, "the box stays frozen"));
    T_OK(read(fd, written, sizeof(written) - 1) >= 3);
    T_INT(strncmp(written, "100", 3), 0);
    fd_close(fd);
}

TEST(a_machine_without_a_freezer_says_so_and_keeps_no_directories)
{
    struct err e = {0};
    int fd = -1;

    make_dir("cgroup/freezer");
    make_dir("cgroup/unified");
    T_INT(freezer_make(NAME, &fd, &e), -ERR_DENIED);
    T_OK(access(V1, F_OK) < 0 && access(V2, F_OK) < 0 && access(UNIFIED, F_OK) < 0);
    T_INT(freezer_freeze(NAME, 1, &e), -ERR_NOT_FOUND);
    T_INT(freezer_thaw(NAME, 1, &e), 0);
    T_INT(freezer_check(NAME, getpid(), &e), -ERR_UNIMPLEMENTED);
    T_STR(e.field, "level");
    T_STR(e.message, "freeze: the box has no control group with a freezer on this machine");
    make_v1();
    T_INT(freezer_check(NAME, getpid(), &e), -ERR_UNIMPLEMENTED);
    T_STR(e.message, "freeze: the box's processes are not in a control group of their own");
}

TEST(no_other_group_than_that_of_a_box_is_touched)
{
    const char *const others[] = {"",          "/",    "/bellhop-", "/system.slice", "/bellhop-a/b",
                                  "bellhop-a", "/../x"};
    struct err e = {0};
    int fd = -1;

    make_dir("cgroup/freezer/system.slice");
    make_dir("cgroup/freezer/bellhop-a/b");
    put("cgroup/freezer", "freezer.state", "??????\n");
    put("cgroup/freezer/system.slice", "freezer.state", "??????\n");
    put("cgroup/freezer/bellhop-a/b", "freezer.state", "??????\n");
    for (size_t i = 0; i < N_ELEMENTS(others); i++) {
        T_INT(freezer_freeze(others[i], 1, &e), -ERR_NOT_FOUND);
        T_INT(freezer_thaw(others[i], 1, &e), 0);
        T_OK(freezer_make(others[i], &fd, &e) < 0);
        freezer_remove(others[i]);
    }
    T_OK(has("cgroup/freezer", "freezer.state", "??????\n"));
    T_OK(has("cgroup/freezer/system.slice", "freezer.state", "??????\n"));
    T_OK(has("cgroup/freezer/bellhop-a/b", "freezer.state", "??????\n"));
}

TEST(every_box_has_its_group_listed_once_of_whatever_store_and_hierarchy)
{
    static const char *const others[] = {"cgroup/bellhop-0123456-b35f83b20e6c181c",
                                         "cgroup/bellhop-01234567-b35f83b20e6c181",
                                         "cgroup/bellhop-01234567-b35f83b20e6c181cc",
                                         "cgroup/bellhop-0123456x-b35f83b20e6c181c",
                                         "cgroup/bellhop-",
                                         "cgroup/system.slice/x/bellhop-01234567-b35f83b20e6c1810"};
    char **names = NULL;
    char id[17] = "";
    struct err e = {0};

    T_INT(freezer_list(&names, &e), 0);
    T_OK(!names);
    make_dir(V1);
    make_dir("cgroup/memory" NAME);
    make_dir("cgroup/memory/bellhop-89abcdef-0000000000000001");
    for (size_t i = 0; i < N_ELEMENTS(others); i++)
        make_dir(others[i]);
    T_INT(freezer_list(&names, &e), 0);
    T_INT(strv_len(names), 2);
    T_OK(is_listed(names, NAME));
    T_OK(is_listed(names, "/bellhop-89abcdef-0000000000000001"));
    T_OK(freezer_group_id(NAME, id));
    T_STR(id, "b35f83b20e6c181c");
    T_OK(!freezer_group_id("/", id) && !freezer_group_id("", id) &&
         !freezer_group_id("/bellhop-", id));
    (void)strv_free(names);
}
