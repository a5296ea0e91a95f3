#include "test.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "lib/extract.h"

/* One entry: a file with `data`, a symlink to or hard link of `target`, or a directory. */
struct item {
    const char *name;
    int type;
    const char *data;
    const char *hardlink;
};

static int make_tar(const struct item *items, size_t n)
{
    struct archive *a = archive_write_new();
    int fd;

    T_INT(mkdir("out", 0755), 0);
    T_INT(archive_write_set_format_pax_restricted(a), ARCHIVE_OK);
    T_INT(archive_write_open_filename(a, "t.tar"), ARCHIVE_OK);
    for (size_t i = 0; i < n; i++) {
        struct archive_entry *e = archive_entry_new();

        archive_entry_set_pathname(e, items[i].name);
        archive_entry_set_perm(e, 06755);
        archive_entry_set_filetype(e, (unsigned)items[i].type);
        if (items[i].hardlink)
            archive_entry_set_hardlink(e, items[i].hardlink);
        else if (items[i].type == AE_IFLNK)
            archive_entry_set_symlink(e, items[i].data);
        else if (items[i].data)
            archive_entry_set_size(e, (la_int64_t)strlen(items[i].data));
        T_INT(archive_write_header(a, e), ARCHIVE_OK);
        if (items[i].type == AE_IFREG && items[i].data)
            T_OK(archive_write_data(a, items[i].data, strlen(items[i].data)) >= 0);
        archive_entry_free(e);
    }
    T_INT(archive_write_free(a), ARCHIVE_OK);
    fd = open("t.tar", O_RDONLY | O_CLOEXEC);
    T_OK(fd >= 0);
    return fd;
}

TEST(files_directories_and_links_arrive_below_the_prefix)
{
    const struct item items[] = {
        {"d", AE_IFDIR, NULL, NULL},          {"d/f", AE_IFREG, "hello", NULL},
        {"d/l", AE_IFLNK, "f", NULL},         {"d/h", AE_IFREG, NULL, "d/f"},
        {"./x//y/z", AE_IFREG, "deep", NULL},
    };
    struct err e = {0};
    struct stat st;
    char text[32] = "";
    int fd = make_tar(items, 5);
    int f;

    if (extract_stream(fd, "out", "top", &e) < 0)
        t_fail(__FILE__, __LINE__, "%s", e.message);
    f = open("out/top/d/l", O_RDONLY);
    T_INT(read(f, text, sizeof(text) - 1), 5);
    T_STR(text, "hello");
    fd_close(f);
    T_INT(stat("out/top/d/h", &st), 0);
    T_INT(st.st_nlink, 2);
    T_INT(st.st_mode & 07777, 0755); /* set-id bits of a box mean nothing here */
    T_INT(stat("out/top/x/y/z", &st), 0);
    fd_close(fd);
}

static void refused(const struct item *items, size_t n, const char *outside)
{
    struct err e = {0};
    int fd = make_tar(items, n);

    T_OK(extract_stream(fd, "out", NULL, &e) < 0);
    T_OK(e.message[0]);
    T_OK(access(outside, F_OK) < 0);
    fd_close(fd);
}

TEST(a_name_with_dot_dot_is_refused)
{
    const struct item items[] = {{"a/../../evil", AE_IFREG, "x", NULL}};

    refused(items, 1, "evil");
}

TEST(an_absolute_name_is_refused)
{
    const struct item items[] = {{"/tmp/bellhop-test-evil", AE_IFREG, "x", NULL}};

    refused(items, 1, "/tmp/bellhop-test-evil");
}

TEST(nothing_is_written_through_a_link_of_the_archive)
{
    const struct item items[] = {{"link", AE_IFLNK, "..", NULL},
                                 {"link/evil", AE_IFREG, "x", NULL}};

    refused(items, 2, "evil");
}

TEST(a_hard_link_to_something_outside_is_refused)
{
    const struct item items[] = {{"l", AE_IFLNK, "..", NULL}, {"evil", AE_IFREG, NULL, "l/t.tar"}};

    refused(items, 2, "out/evil");
}

TEST(a_link_that_is_there_is_replaced_and_not_written_into)
{
    const struct item items[] = {{"f", AE_IFREG, "new", NULL}};
    struct err e = {0};
    char text[8] = "";
    int fd = make_tar(items, 1);
    int old = open("old", O_WRONLY | O_CREAT, 0600);

    T_INT(write(old, "old", 3), 3);
    fd_close(old);
    T_INT(symlink("../old", "out/f"), 0);
    T_INT(extract_stream(fd, "out", NULL, &e), 0);
    fd_close(fd);
    old = open("old", O_RDONLY);
    T_INT(read(old, text, 3), 3);
    T_STR(text, "old");
    fd_close(old);
}

TEST(an_archive_that_breaks_off_is_an_error)
{
    const struct item items[] = {{"f", AE_IFREG, "0123456789", NULL}};
    struct err e = {0};
    int fd = make_tar(items, 1);

    T_INT(truncate("t.tar", 516), 0);
    T_INT(extract_stream(fd, "out", NULL, &e), -ERR_DATA_LOSS);
    fd_close(fd);
}
