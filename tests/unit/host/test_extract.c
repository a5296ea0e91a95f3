#include "test.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "lib/project/extract.h"

/* One entry: a file with `data`, a symlink to or hard link of `target`, or a directory. */
struct item {
    const char *name;
    int type;
    const char *data;
    const char *hardlink;
};

static const struct extract_options into_out = {.dir = "out"};

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

    if (extract_stream(fd, &(struct extract_options){.dir = "out", .prefix = "top"}, &e) < 0)
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

    T_OK(extract_stream(fd, &into_out, &e) < 0);
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
    T_INT(extract_stream(fd, &into_out, &e), 0);
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
    T_INT(extract_stream(fd, &into_out, &e), -ERR_DATA_LOSS);
    fd_close(fd);
}

/* ---- one entry ---- */

static int extract_only_f(int fd, struct err *e)
{
    struct extract_options o = {.dir = "out", .only = "f", .only_type = S_IFREG};
    int r = extract_stream(fd, &o, e);

    fd_close(fd);
    return r;
}

/* out/f keeps what it has, and nothing is beside it. */
static void refused_for_f(const struct item *items, size_t n)
{
    struct err e = {0};
    int fd = make_tar(items, n);

    T_INT(system("echo old >out/f"), 0);
    T_INT(extract_only_f(fd, &e), -ERR_DATA_LOSS);
    T_OK(e.message[0]);
    T_INT(system("test \"$(ls -A out)\" = f && test \"$(cat out/f)\" = old && rm -r out t.tar"), 0);
}

TEST(the_one_entry_that_was_asked_for_is_all_that_may_come)
{
    const struct item whole[] = {{"f", AE_IFREG, "new", NULL}};
    struct err e = {0};
    int fd;

    refused_for_f((const struct item[]){{"g", AE_IFREG, "x", NULL}}, 1);
    refused_for_f((const struct item[]){{"f", AE_IFDIR, NULL, NULL}}, 1);
    refused_for_f((const struct item[]){{"f", AE_IFLNK, "g", NULL}}, 1);
    refused_for_f((const struct item[]){{"f", AE_IFIFO, NULL, NULL}}, 1);
    refused_for_f((const struct item[]){{"f", AE_IFREG, NULL, "f"}}, 1);
    refused_for_f((const struct item[]){{"f", AE_IFREG, "x", NULL}, {"g", AE_IFREG, "y", NULL}}, 2);
    refused_for_f((const struct item[]){{"f", AE_IFREG, "x", NULL}, {"f", AE_IFREG, "y", NULL}}, 2);
    refused_for_f(NULL, 0);
    fd = make_tar(whole, 1);
    T_INT(extract_only_f(fd, &e), 0);
    T_INT(system("test \"$(cat out/f)\" = new"), 0);
}

/* ---- hard links ---- */

TEST(a_hard_link_leads_only_to_what_the_archive_has_brought)
{
    const struct item old[] = {{"new", AE_IFREG, NULL, "old"}};
    const struct item many[] = {{"b", AE_IFREG, "x", NULL},
                                {"b", AE_IFREG, NULL, "b"},
                                {"c", AE_IFREG, NULL, "b"},
                                {"c", AE_IFREG, NULL, "b"},
                                {"d", AE_IFREG, NULL, "c"}};
    struct err e = {0};
    struct stat st;
    int fd = make_tar(old, 1);

    T_INT(system("echo secret >out/old"), 0);
    T_INT(extract_stream(fd, &into_out, &e), -ERR_DATA_LOSS);
    T_INT(stat("out/old", &st), 0);
    T_INT(st.st_nlink, 1);
    fd_close(fd);
    T_INT(system("rm -r out"), 0);
    fd = make_tar(many, 5);
    T_INT(extract_stream(fd, &into_out, &e), 0);
    T_INT(stat("out/d", &st), 0);
    T_INT(st.st_nlink, 3);
    T_INT(system("test \"$(ls -A out | tr '\\n' ' ')\" = 'b c d '"), 0);
    fd_close(fd);
}

TEST(files_that_were_made_are_known_however_many_they_are)
{
    static char names[3000][8];
    static struct item items[6000];
    struct err e = {0};
    int fd;

    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        (void)snprintf(names[i], sizeof(names[i]), "%zu", i);
        items[i] = (struct item){names[i], AE_IFREG, "x", NULL};
        items[3000 + i] = (struct item){"h", AE_IFREG, NULL, names[i]};
    }
    fd = make_tar(items, N_ELEMENTS(items));
    if (extract_stream(fd, &into_out, &e) < 0)
        t_fail(__FILE__, __LINE__, "%s", e.message);
    fd_close(fd);
}

/* ---- what else may come ---- */

static int accept_f(void *arg, const char *name, mode_t type, uint64_t size, struct err *e)
{
    (void)size;
    (void)arg;
    return strcmp(name, "f") == 0 && S_ISREG(type) ? 0 : err_set(e, ERR_ABORTED, "no");
}

TEST(the_receiver_may_refuse_an_entry_before_it_is_made)
{
    const struct item items[] = {{"f", AE_IFREG, "x", NULL}, {"a/g", AE_IFREG, "x", NULL}};
    struct extract_options o = {.dir = "out", .accept = accept_f};
    struct err e = {0};
    int fd = make_tar(items, 2);

    T_INT(extract_stream(fd, &o, &e), -ERR_ABORTED);
    T_INT(access("out/f", F_OK), 0);
    T_INT(access("out/a", F_OK), -1);
    fd_close(fd);
}

TEST(a_compression_that_was_not_asked_for_is_not_understood)
{
    const struct item items[] = {{"f", AE_IFREG, "x", NULL}};
    struct extract_options zstd = {.dir = "out", .is_zstd = true};
    struct err e = {0};
    int fd = make_tar(items, 1);

    fd_close(fd);
    T_INT(system("gzip -k t.tar; zstd -q t.tar"), 0);
    T_OK((fd = open("t.tar.gz", O_RDONLY | O_CLOEXEC)) >= 0);
    T_INT(extract_stream(fd, &into_out, &e), -ERR_DATA_LOSS);
    fd_close(fd);
    T_OK((fd = open("t.tar.gz", O_RDONLY | O_CLOEXEC)) >= 0);
    T_INT(extract_stream(fd, &zstd, &e), -ERR_DATA_LOSS);
    fd_close(fd);
    T_OK((fd = open("t.tar.zst", O_RDONLY | O_CLOEXEC)) >= 0);
    T_INT(extract_stream(fd, &into_out, &e), -ERR_DATA_LOSS);
    fd_close(fd);
    T_OK((fd = open("t.tar.zst", O_RDONLY | O_CLOEXEC)) >= 0);
    T_INT(extract_stream(fd, &zstd, &e), 0);
    T_INT(access("out/f", F_OK), 0);
    fd_close(fd);
}

TEST(holes_stay_holes)
{
    struct err e = {0};
    struct stat st;
    int fd;

    T_INT(system("mkdir out; truncate -s 1T f; printf x | dd of=f bs=1 seek=1M conv=notrunc "
                 "status=none; "
                 "tar -cSf t.tar f"),
          0);
    T_OK((fd = open("t.tar", O_RDONLY | O_CLOEXEC)) >= 0);
    if (extract_stream(fd, &into_out, &e) < 0)
        t_fail(__FILE__, __LINE__, "%s", e.message);
    fd_close(fd);
    T_INT(stat("out/f", &st), 0);
    T_INT(st.st_size, 1ll << 40);
    T_OK(st.st_blocks < 10000);
    T_INT(system("test \"$(dd if=out/f bs=1 skip=1M count=1 status=none)\" = x"), 0);
}

TEST(a_directory_that_was_here_keeps_its_mode)
{
    const struct item items[] = {{"d", AE_IFDIR, NULL, NULL}, {"n", AE_IFDIR, NULL, NULL}};
    struct err e = {0};
    struct stat st;
    int fd = make_tar(items, 2);

    T_INT(mkdir("out/d", 0700), 0);
    T_INT(extract_stream(fd, &into_out, &e), 0);
    T_INT(stat("out/d", &st), 0);
    T_INT(st.st_mode & 07777, 0700);
    T_INT(stat("out/n", &st), 0);
    T_INT(st.st_mode & 07777, 0755);
    fd_close(fd);
}
