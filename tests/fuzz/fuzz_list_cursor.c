/*
 * fuzz-flags: -max_len=600
 * List with any cursor: it is refused by name, or the entries are behind it, in order, within the
 * limit and below the directory; and all pages together have every entry once.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/root.h"
#include "fs/stat.h"

#define N_ENTRIES 9

static struct fs_root *root;
static struct fs_caller *caller;

static void once(void)
{
    static const char *const files[] = {"t/a/x", "t/a.b", "t/a/y", "t/n\n", "t/\xff"};
    static const char *const dirs[] = {"t", "t/a", "t/a/d", "t/.h", "t/b"};

    int here; /* libFuzzer's own paths are relative, so no chdir() */

    if (root)
        return;
    here = open(fuzz_dir(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(here >= 0);
    for (size_t i = 0; i < 5; i++)
        CHECK(mkdirat(here, dirs[i], 0755) == 0);
    for (size_t i = 0; i < 5; i++) {
        int fd = openat(here, files[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

        CHECK(f && fprintf(f, "%*d", (int)i / 2 * 7 + 1, 0) > 0 && fclose(f) == 0);
    }
    (void)close(here);
    CHECK(fs_root_new("/", &root, NULL) == 0);
    CHECK(fs_caller_new(root, NULL, fuzz_dir(), &caller, NULL) == 0);
}

static void check_order(const struct fs_list_options *o, const struct fs_listing *l)
{
    CHECK(l->n_entries <= o->limit);
    for (size_t i = 0; i < l->n_entries; i++)
        CHECK(strncmp(l->entries[i].path, "t/", 2) == 0 && !strstr(l->entries[i].path, ".."));
    for (size_t i = 1; i < l->n_entries; i++)
        CHECK(fs_list_compare(o, strlen("t/"), &l->entries[i - 1], &l->entries[i]) < 0);
}

/* The cursor of the next page, or NULL. */
static char *page(const struct fs_list_options *o, size_t *n)
{
    struct fs_listing l = {0};
    struct err e = {0};
    char *next;
    int r = fs_list(caller, "t", o, &l, &e);

    if (r < 0) {
        CHECK(e.code == ERR_INVALID && strcmp(e.field, "cursor") == 0);
        CHECK(o->after);
        return NULL;
    }
    check_order(o, &l);
    *n += l.n_entries;
    CHECK(!l.next || l.n_entries == o->limit);
    next = l.next ? strdup(l.next) : NULL;
    fs_listing_done(&l);
    return next;
}

FUZZ(data, size)
{
    struct fuzz_in in = {data, size};
    uint8_t how = fuzz_byte(&in);
    struct fs_list_options o = {
        .depth = 3,
        .limit = 1 + (how >> 6),
        .sort = (enum fs_list_sort)(how & 3),
        .reverse = how & 4,
        .directories_first = how & 8,
    };
    char *cursor = fuzz_str(&in, 512, NULL);
    size_t n = 0;

    once();
    o.after = *cursor ? cursor : NULL;
    free(page(&o, &n));
    free(cursor);
    cursor = NULL;
    n = 0;
    do {
        char *next;

        o.after = cursor;
        next = page(&o, &n);
        free(cursor);
        cursor = next;
    } while (cursor);
    CHECK(n == N_ENTRIES);
    return 0;
}
