#include "common/path.h"

#include "test.h"

static void check_clean(const char *in, const char *want)
{
    char *got = path_clean(in);

    T_STR(got, want);
    free(got);
}

TEST(path_clean_drops_what_means_nothing)
{
    check_clean("/a//b/./c/", "/a/b/c");
    check_clean("/a/../b", "/b");
    check_clean("/..", "/");
    check_clean("/../../a", "/a");
    check_clean("a/..", ".");
    check_clean("../a", "../a");
    check_clean("a/../../b", "../b");
    check_clean("", ".");
    check_clean("/", "/");
    check_clean(".", ".");
    check_clean("..a/b", "..a/b");
}

TEST(path_squeeze_leaves_dotdot_to_the_kernel)
{
    static const char *const cases[][2] = {
        {"/a/../b", "/a/../b"},
        {"//a/./..//b/", "/a/../b"},
        {"/..", "/.."},
        {"a/..", "a/.."},
        {"../a/.", "../a"},
        {"/", "/"},
        {"", "."},
        {"/./", "/"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *got = path_squeeze(cases[i][0]);

        T_STR(got, cases[i][1]);
        free(got);
    }
}

static void check_join(const char *a, const char *b, const char *want)
{
    char *got = path_join(a, b);

    T_STR(got, want);
    free(got);
}

TEST(path_join_and_its_parts)
{
    char *dir;

    check_join("/a", "b", "/a/b");
    check_join("/a/", "b", "/a/b");
    check_join("/a", "/b", "/b");
    check_join("", "b", "b");
    T_STR(path_name("/a/b"), "b");
    T_STR(path_name("b"), "b");
    dir = path_dir("/a/b");
    T_STR(dir, "/a");
    free(dir);
    dir = path_dir("/a");
    T_STR(dir, "/");
    free(dir);
    dir = path_dir("a");
    T_STR(dir, ".");
    free(dir);
}

TEST(path_within_is_by_components)
{
    T_OK(path_is_within("/a/b", "/a"));
    T_OK(path_is_within("/a", "/a"));
    T_OK(!path_is_within("/ab", "/a"));
    T_OK(path_is_within("/x", "/"));
}
