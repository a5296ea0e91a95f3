#include "test.h"

#include <sys/mman.h>

#include "fs_help.h"

#include "common/clock.h"
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
        bool strong, weak;
    } rows[] = {
        {"\"a\"", "a", true, true},
        {"a", "a", true, true},
        {"\"a\", \"b\"", "b", true, true},
        {"\"a\",\"b\"", "c", false, false},
        {"\"a\" ,\t, \"b\"", "b", true, true},
        {"\"x,y\", \"b\"", "b", true, true},
        {"\"x,y\"", "y", false, false},
        {"*", "a", false, false},
        {"W/\"a\"", "a", false, true},
        {"W/\"a\", \"a\"", "a", true, true},
        {"\"b\", W/\"a\"", "a", false, true},
        {"w/\"a\"", "a", false, false},
        {"", "a", false, false},
        {",", "a", false, false},
        {"\"a", "a", false, false},
        {"\"a\" \"b\"", "b", false, false},
        {"\"b\", \"a", "b", true, true},
        {"\"*\"", "*", true, true},
        {"\"\"", "", false, false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (fs_etag_in_list(rows[i].list, rows[i].tag, false) != rows[i].strong ||
            fs_etag_in_list(rows[i].list, rows[i].tag, true) != rows[i].weak)
            t_fail(__FILE__, __LINE__, "'%s' with '%s'", rows[i].list, rows[i].tag);
    T_OK(fs_etag_is_any("*") && fs_etag_is_any(" * "));
    T_OK(!fs_etag_is_any("") && !fs_etag_is_any("\"*\"") && !fs_etag_is_any("*, \"a\""));
}

/* The verdict of If-Match and If-None-Match for a file, no file, and a directory. */
TEST(etag_conditions_hold_or_name_their_field)
{
    static const struct {
        const char *if_match, *if_none_match;
        bool exists;
        const char *tag, *field; /* field NULL: the condition holds */
    } rows[] = {
        {NULL, NULL, true, "a", NULL},
        {"*", NULL, true, "a", NULL},
        {"*", NULL, true, "", NULL},
        {"*", NULL, false, "", "if_match"},
        {"\"a\"", NULL, true, "a", NULL},
        {"W/\"a\"", NULL, true, "a", "if_match"},
        {"\"b\"", NULL, true, "a", "if_match"},
        {"\"b\"", NULL, true, "", "if_match"},
        {"\"b\"", NULL, false, "", "if_match"},
        {NULL, "*", false, "", NULL},
        {NULL, "*", true, "a", "if_none_match"},
        {NULL, "*", true, "", "if_none_match"},
        {NULL, "W/\"a\"", true, "a", "if_none_match"},
        {NULL, "\"b\"", true, "a", NULL},
        {NULL, "\"b\"", false, "", NULL},
        {"\"a\"", "\"a\"", true, "a", "if_none_match"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fs_condition cond = {rows[i].if_match, rows[i].if_none_match};
        int r = fs_check_tag(&cond, rows[i].exists, rows[i].tag, &e);

        if (r != (rows[i].field ? -ERR_ABORTED : 0))
            t_fail(__FILE__, __LINE__, "row %zu gives %d", i, r);
        if (rows[i].field) {
            T_STR(e.field, rows[i].field);
            T_STR(e.detail_name, rows[i].tag[0] ? "etag" : "");
            T_STR(e.detail_name[0] ? e.detail : "", rows[i].tag);
        }
    }
}

TEST(etag_is_not_fooled_by_times_that_are_set_back)
{
    char before[FS_ETAG_BYTES], now[FS_ETAG_BYTES];
    struct stat st;
    int fd;

    h_file("f", "one");
    T_INT(stat("f", &st), 0);
    for (int age_ms = 0; age_ms <= 60; age_ms += 60) { /* young, and old */
        struct timespec times[2] = {st.st_atim, st.st_mtim};

        usleep((useconds_t)age_ms * 1000);
        tag_of("f", before);
        fd = open("f", O_WRONLY);
        T_INT(pwrite(fd, age_ms ? "2nd" : "two", 3, 0), 3);
        T_INT(futimens(fd, times), 0);
        close(fd);
        tag_of("f", now);
        T_OK(strcmp(now, before) != 0);
    }
}

/* False: the file did not stay young to the end. */
static bool write_through_a_mapping(void)
{
    char before[FS_ETAG_BYTES], now[FS_ETAG_BYTES];
    bool is_young = true, has_changed = true;
    struct stat st;
    char *map;
    int fd;

    h_file("f", "one");
    fd = open("f", O_RDWR);
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    T_OK(map != MAP_FAILED);
    for (int i = 0; i < 3 && is_young; i++) {
        tag_of("f", before);
        map[0] = (char)('a' + i);
        tag_of("f", now);
        has_changed = has_changed && strcmp(now, before) != 0;
        T_INT(fstat(fd, &st), 0);
        is_young = clock_real_ns() - (st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec) <
                   FS_ETAG_RACY_NS;
    }
    (void)munmap(map, 4096);
    close(fd);
    T_OK(!is_young || has_changed);
    return is_young;
}

TEST(etag_changes_with_a_write_through_a_shared_mapping)
{
    /*
     * While the file is young, the second store does not change its times. On a busy machine it may
     * grow old meanwhile.
     */
    for (int tries = 0; !write_through_a_mapping(); tries++)
        T_OK(tries < 1000);
}
