#define T_ALARM_S 120
#include "test.h"

#include "fs_help.h"

#include "fs/edit.h"

static struct err e;
static struct fs_edit_result res;

#define EDIT(o, n) \
    { \
        .old_data = (o), .old_len = strlen(o), .new_data = (n), .new_len = strlen(n) \
    }

static int edit(struct fs_caller *c, const char *path, const struct fs_edit *edits, size_t n)
{
    struct fs_edit_options o = {.edits = edits, .n_edits = n};

    e = (struct err){0};
    return fs_edit_file(c, path, &o, &res, &e);
}

TEST(edit_replaces_and_answers_with_a_diff)
{
    struct fs_caller *c = h_caller();
    struct fs_edit one[] = {EDIT("two\n", "2\n")};

    h_file("f", "one\ntwo\nthree\n");
    T_INT(edit(c, "f", one, 1), 0);
    T_STR(h_text("f"), "one\n2\nthree\n");
    T_STR(res.diff, "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n");
    T_INT(res.replaced, 1);
    T_INT(res.bytes, 12);
    T_OK(res.etag[0]);
    free(res.diff);
    h_drop(c);
}

TEST(edit_applies_all_or_none)
{
    struct fs_caller *c = h_caller();
    struct fs_edit some[] = {EDIT("a", "A"), EDIT("b", "B"), EDIT("missing", "x")};

    h_file("f", "a b c");
    T_INT(edit(c, "f", some, 3), -ERR_NOT_FOUND);
    T_STR(e.field, "edits[2].old");
    T_STR(h_text("f"), "a b c");
    T_INT(edit(c, "f", some, 2), 0);
    free(res.diff);
    T_STR(h_text("f"), "A B c");
    h_drop(c);
}

TEST(edit_checks_the_count)
{
    struct fs_caller *c = h_caller();
    struct fs_edit ed[] = {EDIT("x", "y")};

    h_file("f", "x x x");
    T_INT(edit(c, "f", ed, 1), -ERR_PRECONDITION);
    T_STR(e.field, "edits[0].old");
    T_STR(e.message, "edits[0].old: this text is in the file 3 times, not 1");
    ed[0].count = 2;
    T_INT(edit(c, "f", ed, 1), -ERR_PRECONDITION);
    ed[0].all = true;
    T_INT(edit(c, "f", ed, 1), -ERR_PRECONDITION);
    ed[0].count = 3;
    T_INT(edit(c, "f", ed, 1), 0);
    free(res.diff);
    T_STR(h_text("f"), "y y y");
    T_INT(res.replaced, 3);
    h_drop(c);
}

TEST(edit_makes_a_file_only_when_asked)
{
    struct fs_caller *c = h_caller();
    struct fs_edit ed[] = {EDIT("", "new\n")};
    struct fs_edit_options o = {.edits = ed, .n_edits = 1};

    T_INT(fs_edit_file(c, "f", &o, &res, &e), -ERR_NOT_FOUND);
    o.create = true;
    o.dry_run = true;
    T_INT(fs_edit_file(c, "f", &o, &res, &e), 0);
    T_OK(!h_exists("f"));
    free(res.diff);
    o.dry_run = false;
    T_INT(fs_edit_file(c, "f", &o, &res, &e), 0);
    T_OK(res.created);
    T_STR(res.diff, "--- a/f\n+++ b/f\n@@ -0,0 +1,1 @@\n+new\n");
    free(res.diff);
    T_INT(fs_edit_file(c, "f", &o, &res, &e), -ERR_INVALID);
    h_drop(c);
}

TEST(edit_under_a_condition_that_fails_changes_nothing)
{
    struct fs_caller *c = h_caller();
    struct fs_edit ed[] = {EDIT("a", "b")};
    struct fs_edit_options o = {.edits = ed, .n_edits = 1, .condition = {.if_match = "\"x\""}};

    h_file("f", "a");
    T_INT(fs_edit_file(c, "f", &o, &res, &e), -ERR_ABORTED);
    T_STR(e.field, "if_match");
    T_STR(h_text("f"), "a");
    h_drop(c);
}

/* Random texts of few different lines: patch turns the diff into the new text. */
/* Line ends and binary bytes on both sides of the edit stay unchanged. */
TEST(edit_leaves_line_ends_and_bytes_that_are_no_text_alone)
{
    struct fs_caller *c = h_caller();
    const struct fs_edit edit = {
        .old_data = "b\r\n", .old_len = 3, .new_data = "B\xfe\r\n", .new_len = 4};
    struct fs_edit_options o = {.edits = &edit, .n_edits = 1};
    struct fs_edit_result r;

    h_file("f", "a\xff\r\nb\r\nc\n\xe9");
    T_INT(fs_edit_file(c, "f", &o, &r, &e), 0);
    T_STR(h_text("f"), "a\xff\r\nB\xfe\r\nc\n\xe9");
    T_OK(memmem(r.diff, r.diff_len, "-b\r\n+B\xfe\r\n", 9));
    T_OK(memmem(r.diff, r.diff_len, " a\xff\r\n", 5));
    free(r.diff);
    h_drop(c);
}

TEST(diff_is_what_patch_applies)
{
    unsigned seed = 1;

    if (system("command -v patch >/dev/null") != 0)
        T_SKIP("no patch");
    for (int round = 0; round < 150; round++) {
        char a[4096] = "", b[4096] = "", *diff = NULL;
        int lines = rand_r(&seed) % 40;
        size_t n;

        for (int i = 0; i < lines; i++) {
            char line[8];
            int what = rand_r(&seed) % 12;

            snprintf(line, sizeof(line), "%c%s", 'a' + rand_r(&seed) % 5,
                     i == lines - 1 && what % 2 ? "" : "\n");
            if (what != 0)
                strcat(a, line);
            if (what != 1)
                strcat(b, what == 2 ? "changed\n" : line);
        }
        h_file("a", a);
        h_file("b", b);
        T_INT(fs_diff("a", a, strlen(a), b, strlen(b), 1 << 20, &diff, &n, &e), 0);
        T_OK((n == 0) == (strcmp(a, b) == 0));
        h_file("d", diff);
        free(diff);
        if (n && system("patch -s -o out a d >/dev/null && cmp -s out b") != 0)
            t_fail(__FILE__, __LINE__, "round %d: %s", round, h_text("d"));
    }
}

TEST(diff_of_large_files_with_little_in_common_is_bounded)
{
    size_t size = 4 << 20, n = 0;
    char *a = malloc(size), *b = malloc(size), *diff = NULL;

    for (size_t i = 0; i < size; i++) {
        a[i] = i % 16 == 15 ? '\n' : (char)('a' + i * 7 % 23);
        b[i] = i % 16 == 15 ? '\n' : (char)('A' + i * 5 % 23);
    }
    T_INT(fs_diff("f", a, size, b, size, 16 << 20, &diff, &n, &e), 0);
    T_OK(n > 2 * size);
    free(diff);
    T_INT(fs_diff("f", a, size, b, size, 1 << 20, &diff, &n, &e), -ERR_EXHAUSTED);
    free(a);
    free(b);
}
