/* search/ignore and search/types: which paths the rules hide, and which rules win. */
#include "test.h"

#include "common/str.h"
#include "search/ignore.h"
#include "search/types.h"

static enum ignore_verdict verdict(const char *text, const char *path, bool is_dir)
{
    struct rules *r = NULL;
    enum ignore_verdict v;

    T_INT(rules_parse(text, strlen(text), &r, NULL), 0);
    v = rules_match(r, path, strlen(path), is_dir);
    rules_free(r);
    return v;
}

TEST(ignore_a_rule_without_a_slash_matches_in_any_directory)
{
    T_INT(verdict("*.o\n", "a.o", false), IGNORE_HIDE);
    T_INT(verdict("*.o\n", "x/y/a.o", false), IGNORE_HIDE);
    T_INT(verdict("*.o\n", "a.c", false), IGNORE_NONE);
}

TEST(ignore_a_rule_with_a_slash_is_anchored)
{
    T_INT(verdict("/a\n", "a", false), IGNORE_HIDE);
    T_INT(verdict("/a\n", "x/a", false), IGNORE_NONE);
    T_INT(verdict("x/a\n", "x/a", false), IGNORE_HIDE);
    T_INT(verdict("x/a\n", "y/x/a", false), IGNORE_NONE);
    T_INT(verdict("x/**\n", "x/a", false), IGNORE_HIDE);
    T_INT(verdict("x/**\n", "x", true), IGNORE_NONE);
}

TEST(ignore_a_final_slash_is_for_directories_only)
{
    T_INT(verdict("build/\n", "build", true), IGNORE_HIDE);
    T_INT(verdict("build/\n", "build", false), IGNORE_NONE);
    T_INT(verdict("build/\n", "x/build", true), IGNORE_HIDE);
}

TEST(ignore_the_last_rule_that_matches_decides)
{
    T_INT(verdict("*.o\n!a.o\n", "a.o", false), IGNORE_KEEP);
    T_INT(verdict("!a.o\n*.o\n", "a.o", false), IGNORE_HIDE);
}

TEST(ignore_comments_escapes_and_spaces_are_as_git_has_them)
{
    T_INT(verdict("#a\n", "#a", false), IGNORE_NONE);
    T_INT(verdict("\\#a\n", "#a", false), IGNORE_HIDE);
    T_INT(verdict("\\!a\n", "!a", false), IGNORE_HIDE);
    T_INT(verdict("a   \n", "a", false), IGNORE_HIDE);
    T_INT(verdict("a\\ \n", "a ", false), IGNORE_HIDE);
    T_INT(verdict("a\r\n", "a", false), IGNORE_HIDE);
    T_INT(verdict("\xef\xbb\xbf"
                  "a\n",
                  "a", false),
          IGNORE_HIDE);
    T_INT(verdict("a[\nb", "b", false), IGNORE_HIDE); /* a wrong line is no rule */
}

TEST(ignore_too_many_rules_are_refused)
{
    size_t len = (IGNORE_MAX_RULES + 1) * 2;
    char *text = malloc(len);
    struct rules *r = NULL;

    T_OK(text);
    for (size_t i = 0; i < len; i += 2)
        memcpy(text + i, "a\n", 2);
    T_INT(rules_parse(text, len - 2, &r, NULL), 0);
    rules_free(r);
    T_INT(rules_parse(text, len, &r, NULL), -ERR_EXHAUSTED);
    free(text);
}

TEST(ignore_globs_select_or_hide_and_name_the_wrong_one)
{
    char *select[] = {(char[]){"*.c"}, (char[]){"!x.c"}, NULL};
    char *wrong[] = {(char[]){"a"}, (char[]){"b["}, NULL};
    struct rules *r = NULL;
    struct err e = {0};

    T_INT(rules_add_globs(&r, select, RULES_GLOBS, "globs", NULL), 0);
    T_INT(rules_match_globs(r, "a.c", 3, false), IGNORE_KEEP);
    T_INT(rules_match_globs(r, "x.c", 3, false), IGNORE_HIDE);
    T_INT(rules_match_globs(r, "a.h", 3, false), IGNORE_HIDE);
    T_INT(rules_match_globs(r, "dir", 3, true), IGNORE_NONE);
    r = rules_free(r);
    T_INT(rules_add_globs(&r, wrong, RULES_GLOBS, "globs", &e), -ERR_INVALID);
    T_STR(e.field, "globs[1]");
    rules_free(r);
}

/* One view on top of another; `file` has the rules. */
static struct ignore *view(struct ignore *up, enum ignore_file file, const char *text, bool has_git,
                           size_t skip)
{
    struct ignore_dir d = {.has_git = has_git, .skip = skip};
    struct ignore *ig = NULL;

    if (text)
        T_INT(rules_parse(text, strlen(text), &d.files[file], NULL), 0);
    T_INT(ignore_new_take(up, &d, &ig, NULL), 0);
    ignore_unref(up);
    return ig;
}

static enum ignore_verdict seen(const struct ignore *ig, const char *path)
{
    return ignore_match(ig, NULL, 1, path, strlen(path), false);
}

TEST(ignore_gitignore_counts_only_in_a_repository)
{
    struct ignore *out = view(NULL, IGNORE_FILE_GIT, "a\n", false, 1);
    struct ignore *in = view(NULL, IGNORE_FILE_GIT, "a\n", true, 1);

    T_INT(seen(out, "/a"), IGNORE_NONE);
    T_INT(seen(in, "/a"), IGNORE_HIDE);
    ignore_unref(out);
    ignore_unref(in);
}

TEST(ignore_gitignore_does_not_reach_into_a_nested_repository)
{
    struct ignore *ig = view(NULL, IGNORE_FILE_GIT, "a\n", true, 1);

    ig = view(ig, IGNORE_FILE_GIT, NULL, true, 3);
    T_INT(seen(ig, "/r/a"), IGNORE_NONE);
    ignore_unref(ig);
    ig = view(NULL, IGNORE_FILE_PLAIN, "a\n", true, 1);
    ig = view(ig, IGNORE_FILE_GIT, NULL, true, 3);
    T_INT(seen(ig, "/r/a"), IGNORE_HIDE); /* .ignore does */
    ignore_unref(ig);
}

TEST(ignore_the_kind_of_file_beats_the_nearer_directory)
{
    struct ignore *ig = view(NULL, IGNORE_FILE_PLAIN, "!a\n", true, 1);

    ig = view(ig, IGNORE_FILE_GIT, "a\n", false, 3);
    T_INT(seen(ig, "/d/a"), IGNORE_KEEP);
    ig = view(ig, IGNORE_FILE_RG, "a\n", false, 3);
    T_INT(seen(ig, "/d/a"), IGNORE_HIDE);
    ignore_unref(ig);
}

TEST(ignore_rules_are_relative_to_their_own_directory)
{
    struct ignore *ig = view(NULL, IGNORE_FILE_GIT, "/d/a\n", true, 1);

    ig = view(ig, IGNORE_FILE_GIT, "/b\n", false, 3);
    T_INT(seen(ig, "/d/a"), IGNORE_HIDE);
    T_INT(seen(ig, "/d/b"), IGNORE_HIDE);
    T_INT(seen(ig, "/d/c"), IGNORE_NONE);
    ignore_unref(ig);
}

TEST(ignore_the_excludes_file_is_read_from_git_configuration)
{
    char *path = ignore_excludes_file("[core]\n\texcludesFile = ~/x y\n", "/home/u");

    T_STR(path, "/home/u/x y");
    free(path);
    path = ignore_excludes_file("[core]\nEXCLUDESFILE=\"/etc/ig\"\n", "/home/u");
    T_STR(path, "/etc/ig");
    free(path);
    T_OK(!ignore_excludes_file("[core]\nexcludesfiles = x\n", "/home/u"));
}

TEST(types_select_and_leave_out_by_name)
{
    char *c[] = {(char[]){"c"}, NULL}, *all[] = {(char[]){"all"}, NULL};
    char *wrong[] = {(char[]){"nosuch"}, NULL};
    struct types *t = NULL;
    struct err e = {0};

    T_INT(types_new(c, NULL, NULL, &t, NULL), 0);
    T_INT(types_match(t, "a.c", 3), IGNORE_KEEP);
    T_INT(types_match(t, "a.py", 4), IGNORE_HIDE);
    types_free(t);
    T_INT(types_new(all, c, NULL, &t, NULL), 0);
    T_INT(types_match(t, "a.c", 3), IGNORE_HIDE);
    T_INT(types_match(t, "a.py", 4), IGNORE_KEEP);
    T_INT(types_match(t, "a.unknown", 9), IGNORE_HIDE);
    types_free(t);
    T_INT(types_new(NULL, wrong, NULL, &t, &e), -ERR_INVALID);
    T_STR(e.field, "type_not");
}

TEST(types_table_is_sorted_and_its_globs_are_valid)
{
    char *all[] = {(char[]){"all"}, NULL};
    struct types *t = NULL;
    const char *globs, *name, *last = "";

    for (size_t i = 0; (name = types_at(i, &globs)); i++) {
        T_OK(strcmp(last, name) < 0);
        last = name;
    }
    T_INT(types_new(all, NULL, NULL, &t, NULL), 0);
    types_free(t);
}
