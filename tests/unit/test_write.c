#include <pthread.h>
#include <sys/mount.h>
#include <sys/xattr.h>

#include "test.h"

#include "fs_help.h"

#include "fs/etag.h"
#include "fs/lock.h"

static struct fs_write_options plain;
static struct fs_write_result res;
static struct err e;

TEST(write_makes_a_file_and_its_parents)
{
    struct fs_caller *c = h_caller();

    T_INT(h_write(c, "a/b/c.txt", "hello", &plain, &res, &e), 0);
    T_STR(h_text("a/b/c.txt"), "hello");
    T_OK(res.created && !res.in_place);
    T_INT(res.bytes, 5);
    T_INT(h_mode("a/b/c.txt"), 0644);
    T_INT(h_mode("a/b"), 0755);
    T_OK(res.etag[0]);
    h_drop(c);
}

TEST(write_without_parents_says_what_is_missing)
{
    struct fs_caller *c = h_caller();
    struct fs_write_options o = {.no_parents = true};

    T_INT(h_write(c, "a/b/c.txt", "hello", &o, &res, &e), -ERR_NOT_FOUND);
    T_STR(e.field, "path");
    T_OK(!h_exists("a"));
    h_drop(c);
}

TEST(write_that_is_given_up_leaves_nothing)
{
    struct fs_caller *c = h_caller();
    struct fs_write *w = NULL;
    char before[128], after[128];

    h_file("old", "old");
    h_snapshot(".", before);
    T_INT(fs_write_begin(c, "x/y/new", &plain, &w, &e), 0);
    T_INT(fs_write_data(w, "abc", 3, &e), 0);
    T_OK(!fs_write_free(w));
    T_INT(fs_write_begin(c, "old", &plain, &w, &e), 0);
    T_INT(fs_write_data(w, "abc", 3, &e), 0);
    T_OK(!fs_write_free(w));
    h_snapshot(".", after);
    T_STR(after, before);
    h_drop(c);
}

TEST(write_keeps_mode_and_xattrs_of_what_it_replaces)
{
    struct fs_caller *c = h_caller();
    char value[8] = "";

    h_file("f", "one");
    T_INT(chmod("f", 0751), 0);
    if (setxattr("f", "user.tag", "blue", 4, 0) < 0)
        T_SKIP("this disk has no user attributes");
    T_INT(h_write(c, "f", "two", &plain, &res, &e), 0);
    T_STR(h_text("f"), "two");
    T_INT(h_mode("f"), 0751);
    T_INT(getxattr("f", "user.tag", value, sizeof(value)), 4);
    T_STR(value, "blue");
    T_OK(!res.created && !res.in_place);
    h_drop(c);
}

TEST(write_mode_is_exact_when_asked)
{
    struct fs_caller *c = h_caller();
    struct fs_write_options o = {.set_mode = true, .mode = 0666};

    umask(077);
    T_INT(h_write(c, "f", "x", &o, &res, &e), 0);
    T_INT(h_mode("f"), 0666);
    o.mode = 0600;
    T_INT(h_write(c, "f", "y", &o, &res, &e), 0);
    T_INT(h_mode("f"), 0600);
    h_drop(c);
}

TEST(write_through_a_link_replaces_its_target)
{
    struct fs_caller *c = h_caller();

    T_INT(mkdir("d", 0755), 0);
    h_file("d/real", "one");
    T_INT(symlink("d/real", "link"), 0);
    T_INT(symlink("link", "link2"), 0);
    T_INT(h_write(c, "link2", "two", &plain, &res, &e), 0);
    T_STR(h_text("d/real"), "two");
    struct stat st;
    T_OK(lstat("link", &st) == 0 && S_ISLNK(st.st_mode));
    T_INT(symlink("d/fresh", "dangling"), 0);
    T_INT(h_write(c, "dangling", "three", &plain, &res, &e), 0);
    T_STR(h_text("d/fresh"), "three");
    T_INT(symlink("loop", "loop"), 0);
    T_INT(h_write(c, "loop", "x", &plain, &res, &e), -ERR_PRECONDITION);
    h_drop(c);
}

TEST(write_of_a_file_with_two_names_is_in_place_and_says_so)
{
    struct fs_caller *c = h_caller();

    h_file("a", "a long old text");
    T_INT(link("a", "b"), 0);
    T_INT(h_write(c, "a", "new", &plain, &res, &e), 0);
    T_OK(res.in_place);
    T_STR(h_text("b"), "new");
    T_OK(res.etag[0]);
    h_drop(c);
}

TEST(write_of_a_bind_mounted_file_is_in_place)
{
    struct fs_caller *c = h_caller();

    h_file("a", "one");
    h_file("b", "two");
    if (mount("a", "b", NULL, MS_BIND, NULL) < 0)
        T_SKIP("can't bind-mount here");
    int r = h_write(c, "b", "three", &plain, &res, &e);
    const char *text = strdup(h_text("a"));
    T_INT(umount("b"), 0);
    T_INT(r, 0);
    T_OK(res.in_place);
    T_STR(text, "three");
    T_STR(h_text("b"), "two");
    free((char *)text);
    h_drop(c);
}

TEST(write_refuses_what_is_not_a_file)
{
    struct fs_caller *c = h_caller();
    static const char *const bad[] = {"dir", "fifo", "/dev/null"};

    T_INT(mkdir("dir", 0755), 0);
    T_INT(mkfifo("fifo", 0666), 0);
    for (size_t i = 0; i < 3; i++) {
        T_INT(h_write(c, bad[i], "x", &plain, &res, &e), -ERR_PRECONDITION);
        T_STR(e.field, "path");
    }
    T_INT(h_write(c, "dir/", "x", &plain, &res, &e), -ERR_INVALID);
    T_INT(h_write(c, "", "x", &plain, &res, &e), -ERR_INVALID);
    h_drop(c);
}

TEST(write_over_the_limit_is_refused_as_too_large)
{
    struct fs_caller *c = h_caller();
    struct fs_write_options o = {.max_bytes = 4};

    h_file("f", "old");
    T_INT(h_write(c, "f", "12345", &o, &res, &e), -ERR_EXHAUSTED);
    T_INT(e.sys, EFBIG);
    T_STR(h_text("f"), "old");
    o.expected = 5;
    T_INT(h_write(c, "f", "1", &o, &res, &e), -ERR_EXHAUSTED);
    T_INT(e.sys, EFBIG);
    o.expected = 0;
    T_INT(h_write(c, "f", "1234", &o, &res, &e), 0);
    h_drop(c);
}

TEST(write_checks_the_announced_digest)
{
    struct fs_caller *c = h_caller();
    /* of "abc" */
    static const uint8_t sha[32] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea,
                                    0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
                                    0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c,
                                    0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
    struct fs_write_options o = {.sha256 = sha};

    T_INT(h_write(c, "f", "abd", &o, &res, &e), -ERR_DATA_LOSS);
    T_STR(e.field, "digest");
    T_OK(!h_exists("f"));
    T_INT(h_write(c, "f", "abc", &o, &res, &e), 0);
    h_drop(c);
}

TEST(write_conditions_are_a_matrix)
{
    struct fs_caller *c = h_caller();
    static const struct {
        bool exists;
        const char *if_match, *if_none_match; /* "@": the present tag */
        int want;
        const char *field;
    } rows[] = {
        {false, NULL, "*", 0, ""},
        {true, NULL, "*", -ERR_ABORTED, "if_none_match"},
        {false, "*", NULL, -ERR_ABORTED, "if_match"},
        {true, "*", NULL, 0, ""},
        {true, "@", NULL, 0, ""},
        {true, "\"nope\", \"@\"", NULL, 0, ""},
        {true, "W/\"@\"", NULL, -ERR_ABORTED, "if_match"},
        {true, "\"nope\"", NULL, -ERR_ABORTED, "if_match"},
        {true, NULL, "\"@\"", -ERR_ABORTED, "if_none_match"},
        {true, NULL, "\"nope\"", 0, ""},
        {false, "\"nope\"", NULL, -ERR_ABORTED, "if_match"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char tag[FS_ETAG_BYTES] = "", list[2 * FS_ETAG_BYTES] = "";
        const char *given = rows[i].if_match ? rows[i].if_match : rows[i].if_none_match;
        const char *at = strchr(given, '@');
        struct fs_write_options o = {0};

        unlink("f");
        if (rows[i].exists) {
            T_INT(h_write(c, "f", "old", &plain, &res, &e), 0);
            memcpy(tag, res.etag, sizeof(tag));
        }
        snprintf(list, sizeof(list), "%.*s%s%s", at ? (int)(at - given) : 1000, given,
                 at ? tag : "", at ? at + 1 : "");
        if (rows[i].if_match)
            o.condition.if_match = list;
        else
            o.condition.if_none_match = list;
        e = (struct err){0};
        T_INT(h_write(c, "f", "new", &o, &res, &e), rows[i].want);
        T_STR(e.field, rows[i].field);
        T_STR(h_text("f"), rows[i].want == 0 ? "new" : rows[i].exists ? "old" : "(none)");
    }
    h_drop(c);
}

/* Sixteen writers increment a number by If-Match: no increment may be lost. */
#define ADDERS 16
#define ADDITIONS 10

struct adder {
    struct fs_caller *caller;
    char name[16];
};

static void *adder(void *arg)
{
    const struct adder *a = arg;
    struct fs_caller *c = a->caller;

    for (int done = 0; done < ADDITIONS;) {
        struct fs_write_options o = {0};
        struct fs_write_result mine;
        char tag[FS_ETAG_BYTES], next[32], text[32] = "";
        struct stat st;
        int fd = open(a->name, O_RDONLY), r;

        r = fd < 0 ? -1 : fs_etag(fd, &st, tag, NULL);
        if (r == 0 && read(fd, text, sizeof(text) - 1) < 0)
            r = -1;
        close(fd);
        if (r < 0)
            continue;
        snprintf(next, sizeof(next), "%ld", strtol(text, NULL, 10) + 1);
        o.condition.if_match = tag;
        r = h_write(c, a->name, next, &o, &mine, NULL);
        if (r == 0)
            done++;
        else if (r != -ERR_ABORTED)
            return (void *)1;
    }
    return NULL;
}

/* All by one name of the file, or each by its own. */
static void add_all(struct fs_caller *c, bool linked)
{
    struct adder adders[ADDERS];
    pthread_t threads[ADDERS];
    char want[16];

    for (int i = 0; i < ADDERS; i++) {
        adders[i].caller = c;
        snprintf(adders[i].name, sizeof(adders[i].name), "n%d", linked ? i : 0);
        if (linked && i)
            T_INT(link("n0", adders[i].name), 0);
    }
    for (int i = 0; i < ADDERS; i++)
        T_INT(pthread_create(&threads[i], NULL, adder, &adders[i]), 0);
    for (int i = 0; i < ADDERS; i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        T_OK(!failed);
    }
    snprintf(want, sizeof(want), "%d", ADDERS * ADDITIONS);
    T_STR(h_text("n0"), want);
}

TEST(write_with_if_match_loses_no_update)
{
    struct fs_caller *c = h_caller();

    T_INT(h_write(c, "n0", "0", &plain, &res, &e), 0);
    add_all(c, false);
    h_drop(c);
}

/* Two names of one file are one file: of two writers with the same tag only one may succeed. */
TEST(write_with_if_match_loses_no_update_across_hard_links)
{
    struct fs_caller *c = h_caller();

    T_INT(h_write(c, "n0", "0", &plain, &res, &e), 0);
    add_all(c, true);
    h_drop(c);
}

TEST(write_on_a_full_disk_keeps_the_old_file_and_leaves_nothing)
{
    struct fs_caller *c = h_caller();
    struct fs_write *w = NULL;
    struct fs_write_options o = {.expected = 8 << 20};
    static char data[64 * 1024];
    char before[128], after[128];
    int r;

    T_INT(mkdir("full", 0755), 0);
    if (mount("t", "full", "tmpfs", 0, "size=1m") < 0)
        T_SKIP("can't mount a tmpfs");
    h_file("full/f", "old");
    h_snapshot("full", before);
    T_INT(fs_write_begin(c, "full/f", &plain, &w, &e), 0);
    do
        r = fs_write_data(w, data, sizeof(data), &e);
    while (r == 0);
    int sys = e.sys;
    fs_write_free(w);
    w = NULL;
    int early = fs_write_begin(c, "full/f", &o, &w, &e);
    fs_write_free(w);
    h_snapshot("full", after);
    T_INT(umount("full"), 0);
    T_INT(r, -ERR_EXHAUSTED);
    T_INT(sys, ENOSPC);
    T_INT(early, -ERR_EXHAUSTED);
    T_INT(e.sys, ENOSPC);
    T_STR(after, before);
    h_drop(c);
}

TEST(write_as_a_user_belongs_to_him_and_has_his_rights)
{
    struct fs_caller *c;
    struct stat st;

    if (geteuid() != 0)
        T_SKIP("only root can act as another");
    T_INT(mkdir("his", 0755), 0);
    T_INT(mkdir("ours", 0755), 0);
    h_file("ours/secret", "x");
    h_file("ours/shared", "x");
    T_INT(chmod("ours/secret", 0600), 0);
    T_INT(chmod("ours/shared", 0666), 0);
    T_INT(chown("his", 12345, 12345), 0);
    T_INT(chmod(".", 0755), 0);
    c = h_caller_in("/", "12345");
    T_INT(h_write(c, "his/sub/f", "x", &plain, &res, &e), 0);
    T_OK(stat("his/sub/f", &st) == 0 && st.st_uid == 12345 && st.st_gid == 12345);
    T_INT(h_write(c, "ours/f", "x", &plain, &res, &e), -ERR_DENIED);
    T_INT(h_write(c, "ours/secret", "x", &plain, &res, &e), -ERR_DENIED);
    T_INT(h_write(c, "ours/shared", "mine", &plain, &res, &e), 0);
    T_OK(res.in_place);
    T_OK(stat("ours/shared", &st) == 0 && st.st_uid == 0);
    T_STR(h_text("ours/shared"), "mine");
    T_OK(!h_exists("ours/f"));
    /* The thread has got its own identity back. */
    h_file("ours/after", "x");
    T_OK(stat("ours/after", &st) == 0 && st.st_uid == 0);
    h_drop(c);
}

TEST(write_names_an_unknown_user)
{
    struct fs_root *root = NULL;
    struct fs_caller *c = NULL;

    T_INT(fs_root_new("/", &root, &e), 0);
    T_INT(fs_caller_new(root, "nobody-of-this-name", NULL, &c, &e), -ERR_NOT_FOUND);
    T_STR(e.field, "user");
    fs_root_free(root);
}

/* The parts: the old bytes, the data, its offset, and the result. */
TEST(write_of_a_part_leaves_the_rest_as_it_was)
{
    static const struct {
        const char *old; /* NULL: no file */
        const char *data;
        struct fs_part part;
        int r;
        const char *want;
    } rows[] = {
        {"0123456789", "ab", {.is_part = true, .offset = 3}, 0, "012ab56789"},
        {"0123456789", "ab", {.is_part = true, .offset = 9}, 0, "012345678ab"},
        {"0123456789", "ab", {.is_part = true, .offset = 10}, 0, "0123456789ab"},
        {"0123456789", "ab", {.is_part = true, .at_end = true}, 0, "0123456789ab"},
        {"0123456789", "", {.is_part = true, .offset = 4}, 0, "0123456789"},
        {"0123456789", "ab", {.is_part = true, .offset = 11}, -ERR_RANGE, "0123456789"},
        {"0123456789",
         "ab",
         {.is_part = true, .offset = 3, .has_size = true, .size = 5},
         0,
         "012ab"},
        {"0123456789",
         "ab",
         {.is_part = true, .offset = 3, .has_size = true, .size = 10},
         0,
         "012ab56789"},
        {"0123456789",
         "ab",
         {.is_part = true, .offset = 3, .has_size = true, .size = 11},
         -ERR_RANGE,
         "0123456789"},
        {"0123456789",
         "ab",
         {.is_part = true, .offset = 3, .has_size = true, .size = 4},
         -ERR_INVALID,
         "0123456789"},
        {NULL, "ab", {.is_part = true, .offset = 0}, 0, "ab"},
        {NULL, "ab", {.is_part = true, .at_end = true}, 0, "ab"},
        {NULL, "ab", {.is_part = true, .offset = 1}, -ERR_RANGE, "(none)"},
    };
    struct fs_caller *c = h_caller();

    for (int in_place = 0; in_place < 2; in_place++)
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            struct fs_write_options o = {.part = rows[i].part, .in_place = in_place};
            int r;

            (void)unlink("f");
            if (rows[i].old)
                h_file("f", rows[i].old);
            r = h_write(c, "f", rows[i].data, &o, &res, &e);
            if (r != rows[i].r || strcmp(h_text("f"), rows[i].want) != 0)
                t_fail(__FILE__, __LINE__, "row %zu: %d, '%s'", i, r, h_text("f"));
            if (r == -ERR_RANGE)
                T_STR(e.detail, rows[i].old ? "10" : "0");
            if (r < 0)
                continue;
            T_INT(res.size, strlen(rows[i].want));
            T_INT(res.in_place, in_place && rows[i].old);
        }
    h_drop(c);
}

#define LINES 50

static void *add_lines(void *arg)
{
    struct fs_write_options o = {.part = {.is_part = true, .at_end = true}};
    struct fs_write_result mine;

    for (int i = 0; i < LINES; i++)
        if (h_write(arg, "log", "line\n", &o, &mine, NULL) < 0)
            return (void *)1;
    return NULL;
}

TEST(write_of_parts_by_many_loses_none)
{
    struct fs_caller *c = h_caller();
    pthread_t threads[ADDERS];
    struct stat st;

    for (int i = 0; i < ADDERS; i++)
        T_INT(pthread_create(&threads[i], NULL, add_lines, c), 0);
    for (int i = 0; i < ADDERS; i++) {
        void *failed;

        T_INT(pthread_join(threads[i], &failed), 0);
        T_OK(!failed);
    }
    T_INT(stat("log", &st), 0);
    T_INT(st.st_size, ADDERS * LINES * 5);
    h_drop(c);
}

TEST(write_can_take_back_what_came_last)
{
    static const uint8_t abc[] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
                                  0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
                                  0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
    struct fs_caller *c = h_caller();
    struct fs_write *w = NULL;

    T_INT(fs_write_begin(c, "f", &plain, &w, &e), 0);
    T_INT(fs_write_data(w, "abxyz", 5, &e), 0);
    T_INT(fs_write_cut(w, 2, &e), 0);
    T_INT(fs_write_offset(w), 2);
    T_INT(fs_write_data(w, "c", 1, &e), 0);
    fs_write_expect(w, abc);
    T_INT(fs_write_commit(w, &res, &e), 0);
    fs_write_free(w);
    T_STR(h_text("f"), "abc");
    h_drop(c);
}
