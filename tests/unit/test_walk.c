#include "test.h"

#include "fs_help.h"

#include "fs/change.h"
#include "fs/stat.h"
#include "fs/walk.h"

static struct err e;

static void tree(void)
{
    T_INT(mkdir("t", 0755), 0);
    T_INT(mkdir("t/a", 0755), 0);
    T_INT(mkdir("t/a/x", 0755), 0);
    T_INT(mkdir("t/b", 0755), 0);
    h_file("t/a.txt", "");
    h_file("t/a/1", "");
    h_file("t/a/x/2", "");
    h_file("t/b/3", "");
    h_file("t/.hidden", "");
    h_file("t/" FS_TEMP_PREFIX "0123", "");
    T_INT(symlink("a", "t/link"), 0);
}

static void walk_text(const struct fs_walk_options *o, char *out, size_t size)
{
    const struct fs_walk_item *it;
    struct fs_walk *w = NULL;
    size_t n = 0;
    int r;

    T_INT(fs_walk_new_take(open("t", O_RDONLY | O_DIRECTORY), o, &w, &e), 0);
    while ((r = fs_walk_next(w, &it, &e)) > 0)
        n += (size_t)snprintf(out + n, size - n, "%s%s ",
                              it->kind == FS_WALK_LEAVE   ? "-"
                              : it->kind == FS_WALK_ERROR ? "!"
                                                          : "",
                              it->path);
    T_INT(r, 0);
    fs_walk_free(w);
}

TEST(walk_is_sorted_and_gives_parents_first)
{
    char out[512] = "";

    tree();
    walk_text(&(struct fs_walk_options){.max_depth = 10}, out, sizeof(out));
    T_STR(out, " .hidden a a/1 a/x a/x/2 -a/x -a a.txt b b/3 -b link - ");
    walk_text(&(struct fs_walk_options){.max_depth = 1}, out, sizeof(out));
    T_STR(out, " .hidden a a.txt b link - ");
    walk_text(&(struct fs_walk_options){.max_depth = 1, .deep_is_error = true}, out, sizeof(out));
    T_STR(out, " .hidden a !a a.txt b !b link - ");
}

TEST(walk_goes_on_behind_a_cursor)
{
    static const char *const after[] = {"a", "a/x", "a/1", "a/x/2", "zzz", "a/y", ".hidden"};
    static const char *const want[] = {
        " a/1 a/x a/x/2 -a/x -a a.txt b b/3 -b link - ",
        " a/x/2 -a/x -a a.txt b b/3 -b link - ",
        " a/x a/x/2 -a/x -a a.txt b b/3 -b link - ",
        " -a/x -a a.txt b b/3 -b link - ",
        " - ",
        " -a a.txt b b/3 -b link - ",
        " a a/1 a/x a/x/2 -a/x -a a.txt b b/3 -b link - ",
    };
    char out[512];

    tree();
    for (size_t i = 0; i < 7; i++) {
        walk_text(&(struct fs_walk_options){.max_depth = 10, .after = after[i]}, out, sizeof(out));
        T_STR(out, want[i]);
    }
}

TEST(list_pages_give_every_entry_once)
{
    struct fs_caller *c = h_caller();
    struct fs_list_options o = {.depth = 5, .limit = 3};
    struct fs_listing l;
    char all[512] = "", *cursor = NULL;
    int pages = 0;

    tree();
    do {
        T_INT(fs_list(c, "t", &o, &l, &e), 0);
        for (size_t i = 0; i < l.n_entries; i++) {
            strncat(all, l.entries[i].path, sizeof(all) - strlen(all) - 1);
            strncat(all, " ", sizeof(all) - strlen(all) - 1);
        }
        free(cursor);
        cursor = l.next ? strdup(l.next) : NULL;
        o.after = cursor;
        fs_listing_done(&l);
        T_OK(++pages < 10);
    } while (cursor);
    T_STR(all, "t/.hidden t/a t/a/1 t/a/x t/a/x/2 t/a.txt t/b t/b/3 t/link ");
    T_INT(pages, 3);
    o = (struct fs_list_options){.depth = 0, .limit = 1};
    T_INT(fs_list(c, "t", &o, &l, &e), -ERR_INVALID);
    T_STR(e.field, "depth");
    h_drop(c);
}

static void list_pages(struct fs_caller *c, struct fs_list_options o, char all[512])
{
    struct fs_listing l;
    char *cursor = NULL;

    all[0] = '\0';
    do {
        o.after = cursor;
        T_INT(fs_list(c, "t", &o, &l, &e), 0);
        for (size_t i = 0; i < l.n_entries; i++)
            snprintf(all + strlen(all), 512 - strlen(all), "%s ", l.entries[i].path + 2);
        free(cursor);
        cursor = l.next ? strdup(l.next) : NULL;
        T_OK(cursor || l.n_entries <= o.limit);
        fs_listing_done(&l);
    } while (cursor);
}

TEST(list_in_each_order_gives_every_entry_once_in_pages_of_any_size)
{
    static const struct {
        struct fs_list_options o;
        const char *want;
    } rows[] = {
        {{.sort = FS_LIST_BY_NAME}, ".hidden a/1 a/x/2 b/3 a a.txt b link a/x "},
        {{.sort = FS_LIST_BY_NAME, .reverse = true}, "a/x link b a.txt a b/3 a/x/2 a/1 .hidden "},
        {{.directories_first = true}, "a a/x b .hidden a/1 a/x/2 a.txt b/3 link "},
        {{.directories_first = true, .no_hidden = true}, "a a/x b a/1 a/x/2 a.txt b/3 link "},
        {{.sort = FS_LIST_BY_PATH, .reverse = true}, "link b/3 b a.txt a/x/2 a/x a/1 a .hidden "},
        {{.sort = FS_LIST_BY_SIZE, .reverse = true, .directories_first = true},
         "a a/x b a/x/2 a.txt link .hidden a/1 b/3 "},
        {{.sort = FS_LIST_BY_MTIME}, "b/3 a/1 a a/x a/x/2 a.txt b link .hidden "},
    };
    struct fs_caller *c = h_caller();
    struct fs_listing l;
    char all[512];

    tree();
    T_INT(truncate("t/a/x/2", 5000), 0);
    T_INT(truncate("t/a.txt", 300), 0);
    T_INT(truncate("t/.hidden", 0), 0);
    T_INT(truncate("t/a/1", 0), 0);
    T_INT(truncate("t/b/3", 0), 0);
    T_INT(
        system(
            "cd t && rm link && ln -s xx link && find . | xargs touch -h -d @1000.000000005 && "
            "touch -h -d @-7 b/3 && touch -d @1000.000000004 a/1 && touch -d @1000000000 .hidden"),
        0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (unsigned limit = 1; limit < 12; limit++) {
            struct fs_list_options o = rows[i].o;

            o.depth = 5;
            o.limit = limit;
            list_pages(c, o, all);
            T_STR(all, rows[i].want);
        }
    }
    T_INT(fs_list(c, "t",
                  &(struct fs_list_options){
                      .depth = 1, .limit = 1, .sort = FS_LIST_BY_SIZE, .after = "d1.5/x"},
                  &l, &e),
          -ERR_INVALID);
    T_STR(e.field, "cursor");
    T_INT(fs_list(c, "t", &(struct fs_list_options){.depth = 1, .limit = FS_LIST_MAX + 1}, &l, &e),
          -ERR_INVALID);
    T_STR(e.field, "limit");
    h_drop(c);
}

TEST(list_pages_are_right_while_the_directory_changes)
{
    struct fs_caller *c = h_caller();
    struct fs_list_options o = {.depth = 1, .limit = 2};
    char seen[64] = "", *cursor = NULL, name[8];
    struct fs_listing l;

    T_INT(mkdir("t", 0755), 0);
    for (char k = 'a'; k <= 'j'; k++) {
        snprintf(name, sizeof(name), "t/%c", k);
        h_file(name, "");
    }
    for (int page = 0;; page++) {
        o.after = cursor;
        T_INT(fs_list(c, "t", &o, &l, &e), 0);
        for (size_t i = 0; i < l.n_entries; i++)
            strcat(seen, l.entries[i].path + 2);
        free(cursor);
        cursor = l.next ? strdup(l.next) : NULL;
        fs_listing_done(&l);
        if (!cursor)
            break;
        snprintf(name, sizeof(name), "t/%s", cursor); /* the entry at the cursor is removed */
        T_INT(unlink(name), 0);
        h_file("t/0", "");
        if (page == 1)
            h_file("t/zz", "");
    }
    T_STR(seen, "abcdefghijzz");
    h_drop(c);
}

TEST(list_shows_a_directory_it_can_not_read_with_its_error)
{
    struct fs_caller *c;
    struct fs_list_options o = {.depth = 3, .limit = 100};
    struct fs_listing l;

    if (geteuid() != 0)
        T_SKIP("only root can act as another");
    T_INT(chmod(".", 0755), 0);
    tree();
    T_INT(chmod("t/a", 0700), 0);
    c = h_caller_in("/", "12345");
    T_INT(fs_list(c, "t", &o, &l, &e), 0);
    T_INT(l.n_entries, 6);
    T_STR(l.entries[1].path, "t/a");
    T_INT(l.entries[1].error.code, ERR_DENIED);
    fs_listing_done(&l);
    h_drop(c);
}

TEST(remove_takes_a_deep_tree_and_never_follows_a_link)
{
    struct fs_caller *c = h_caller();
    struct fs_remove_options o = {.recursive = true};
    uint64_t removed = 0;
    int here = open(".", O_RDONLY);

    tree();
    T_INT(mkdir("keep", 0755), 0);
    h_file("keep/f", "kept");
    T_INT(symlink("../keep", "t/out"), 0);
    T_INT(chdir("t"), 0);
    for (int i = 0; i < 300; i++) {
        T_INT(mkdir("d", 0755), 0);
        T_INT(chdir("d"), 0);
    }
    T_INT(fchdir(here), 0);
    close(here);
    T_INT(fs_remove(c, "t", &o, &removed, &e), 0);
    T_INT(removed, 312);
    T_OK(!h_exists("t"));
    T_STR(h_text("keep/f"), "kept");
    h_drop(c);
}

TEST(remove_refuses_the_root_and_what_is_not_empty)
{
    struct fs_caller *c = h_caller();
    struct fs_remove_options o = {0};
    uint64_t removed = 7;
    char here[PATH_MAX];

    tree();
    T_INT(fs_remove(c, "t", &o, &removed, &e), -ERR_PRECONDITION);
    T_INT(fs_remove(c, "/", &o, &removed, &e), -ERR_INVALID);
    T_INT(fs_remove(c, "t/..", &o, &removed, &e), -ERR_INVALID);
    T_INT(fs_remove(c, "none", &o, &removed, &e), -ERR_NOT_FOUND);
    o.missing_ok = true;
    T_INT(fs_remove(c, "none/x", &o, &removed, &e), 0);
    T_INT(removed, 0);
    h_drop(c);
    o.recursive = true;
    T_OK(realpath("t", here) != NULL);
    c = h_caller_in("t", NULL);
    T_INT(fs_remove(c, here, &o, &removed, &e), -ERR_INVALID);
    T_INT(fs_remove(c, "/proc", &o, &removed, &e), -ERR_DENIED);
    T_OK(h_exists("t/a/x/2"));
    h_drop(c);
}

TEST(copy_keeps_modes_links_and_holes)
{
    struct fs_caller *c = h_caller();
    struct fs_copy_result res;
    struct fs_copy_options o = {.recursive = true};
    struct stat st;
    char a[128], b[128];
    int fd;

    tree();
    unlink("t/" FS_TEMP_PREFIX "0123");
    T_INT(chmod("t/a", 0500), 0);
    fd = open("t/sparse", O_WRONLY | O_CREAT, 0640);
    T_INT(pwrite(fd, "end", 3, 8 << 20), 3);
    close(fd);
    T_INT(link("t/a/1", "t/b/again"), 0);
    T_INT(link("t/a/1", "t/z"), 0);
    T_INT(fs_copy(c, "t", "u", &(struct fs_copy_options){0}, &res, &e), -ERR_PRECONDITION);
    T_STR(e.field, "recursive");
    T_INT(fs_copy(c, "t", "u", &o, &res, &e), 0);
    h_snapshot("t", a);
    h_snapshot("u", b);
    T_STR(b, a);
    T_OK(stat("u/z", &st) == 0 && st.st_nlink == 3); /* the same file under three names */
    T_OK(stat("u/sparse", &st) == 0 && st.st_blocks * 512 < 1 << 20);
    T_INT(fs_copy(c, "t", "u", &o, &res, &e), -ERR_EXISTS);
    h_file("u/own", "stays");
    h_file("t/b/3", "newer");
    o.overwrite = true;
    T_INT(fs_copy(c, "t", "u", &o, &res, &e), 0);
    T_STR(h_text("u/own"), "stays");
    T_STR(h_text("u/b/3"), "newer");
    h_drop(c);
}

TEST(move_does_not_overwrite_unasked)
{
    struct fs_caller *c = h_caller();
    struct fs_move_options o = {0};

    tree();
    h_file("f", "f");
    h_file("g", "g");
    T_INT(fs_move(c, "f", "g", &o, &e), -ERR_EXISTS);
    T_STR(e.field, "to");
    T_INT(fs_move(c, "none", "g", &o, &e), -ERR_NOT_FOUND);
    T_STR(e.field, "from");
    T_INT(fs_move(c, "t", "t/a/t", &o, &e), -ERR_INVALID);
    T_INT(fs_move(c, "f", "n/e/w", &o, &e), -ERR_NOT_FOUND);
    o.make_parents = true;
    T_INT(fs_move(c, "f", "n/e/w", &o, &e), 0);
    T_STR(h_text("n/e/w"), "f");
    o.overwrite = true;
    T_INT(fs_move(c, "n/e/w", "g", &o, &e), 0);
    T_STR(h_text("g"), "f");
    o.condition.if_match = "\"other\"";
    T_INT(fs_move(c, "g", "h", &o, &e), -ERR_ABORTED);
    T_STR(e.field, "if_match");
    T_STR(h_text("g"), "f");
    h_drop(c);
}

TEST(set_attr_changes_what_is_asked_and_nothing_else)
{
    struct fs_caller *c = h_caller();
    struct fs_attrs a = {.mode = {true, 0600}, .follow = true};
    struct stat st;

    h_file("f", "x");
    T_INT(symlink("f", "l"), 0);
    T_INT(fs_set_attr(c, "l", &a, &e), 0);
    T_INT(h_mode("f"), 0600);
    a.follow = false;
    T_INT(fs_set_attr(c, "l", &a, &e), -ERR_PRECONDITION);
    a = (struct fs_attrs){.mtime = {true, {1234567890, 987654321}}};
    T_INT(fs_set_attr(c, "l", &a, &e), 0);
    T_OK(lstat("l", &st) == 0 && st.st_mtim.tv_nsec == 987654321);
    T_OK(stat("f", &st) == 0 && st.st_mtim.tv_sec != 1234567890);
    h_drop(c);
}
