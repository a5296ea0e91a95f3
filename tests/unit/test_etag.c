#include "test.h"

#include "fs_help.h"

#include "fs/etag.h"

static struct err e;

static void tag_of(const char *path, char out[FS_ETAG_BYTES])
{
    struct stat st;
    int fd = open(path, O_RDONLY);

    T_INT(fs_etag(fd, &st, out, &e), 0);
    close(fd);
}

TEST(etag_changes_with_every_rewrite_of_the_same_size)
{
    char before[FS_ETAG_BYTES] = "", now[FS_ETAG_BYTES];
    int fd = open("f", O_RDWR | O_CREAT, 0644);

    for (int i = 0; i < 2000; i++) {
        char text[16];

        snprintf(text, sizeof(text), "%06d", i);
        T_INT(pwrite(fd, text, 6, 0), 6);
        tag_of("f", now);
        T_OK(strcmp(now, before) != 0);
        memcpy(before, now, sizeof(before));
    }
    close(fd);
}

TEST(etag_changes_with_every_replacement_of_the_same_size)
{
    char before[FS_ETAG_BYTES] = "", now[FS_ETAG_BYTES];

    for (int i = 0; i < 500; i++) {
        char text[16];

        snprintf(text, sizeof(text), "%06d", i);
        h_file("f", text);
        tag_of("f", now);
        T_OK(strcmp(now, before) != 0);
        memcpy(before, now, sizeof(before));
    }
}

TEST(etag_stays_while_the_file_does)
{
    char first[FS_ETAG_BYTES], again[FS_ETAG_BYTES];
    struct fs_write_options o = {0};
    struct fs_write_result res;
    struct fs_caller *c = h_caller();

    h_file("f", "text");
    tag_of("f", first);
    tag_of("f", again);
    T_STR(again, first);
    usleep(60 * 1000);
    tag_of("f", again);
    T_STR(again, first);
    T_INT(h_write(c, "g", "text", &o, &res, &e), 0);
    tag_of("g", again);
    T_STR(again, res.etag);
    usleep(60 * 1000);
    tag_of("g", again);
    T_STR(again, res.etag);
    h_drop(c);
}

TEST(etag_of_a_file_with_old_times_has_no_hash_to_be_paid_for)
{
    char tag[FS_ETAG_BYTES];
    const char *p;
    int n = 0;

    h_file("f", "text");
    usleep(60 * 1000);
    tag_of("f", tag);
    for (p = tag; *p; p++)
        n += *p == '-';
    T_INT(n, 3);
}

TEST(etag_lists_are_read_as_http_has_them)
{
    static const struct {
        const char *list, *tag;
        bool want;
    } rows[] = {
        {"\"a\"", "a", true},
        {"a", "a", true},
        {"\"a\", \"b\"", "b", true},
        {"\"a\",\"b\"", "c", false},
        {"*", "a", true},
        {"*", "", false},
        {"W/\"a\"", "a", false},
        {"W/\"a\", \"a\"", "a", true},
        {"", "a", false},
        {"\"a", "a", true},
        {"\"*\"", "a", false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (fs_etag_in_list(rows[i].list, rows[i].tag) != rows[i].want)
            t_fail(__FILE__, __LINE__, "'%s' with '%s'", rows[i].list, rows[i].tag);
}
