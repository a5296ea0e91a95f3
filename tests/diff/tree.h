#pragma once
/* tree: random trees with ignore files and texts of all kinds, the same for the same seed. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/buf.h"
#include "test.h"

static uint64_t random_state;

static unsigned pick(unsigned n) /* 0..n-1 */
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state >> 20) % n;
}

static bool chance(unsigned percent)
{
    return pick(100) < percent;
}

#define ANY(list) list[pick(N_ELEMENTS(list))]

static const char *const dir_names[] = {"a", "b", "src", "build", ".hid", "foo", "x y", "a.d"};
static const char *const file_names[] = {"a",        "b.c",   "foo",   "foo.txt",      "x.log",
                                         ".dot",     "m.md",  "b.h",   "a.py",         "build",
                                         "Makefile", "[x].c", "{y}",   "\xc3\xa9.txt", "z.tar.gz",
                                         ".env.c",   "a,b",   "bar.c", "test_a.c"};
static const char *const rule_parts[] = {
    "a",       "b",     "foo",   "*",      "*.c",    "*.txt",   "**",         "src",  "?",
    "x*",      "build", "[ab]",  "[!a]*",  "*.[ch]", "f?o",     ".*",         "m.md", "{a,b}",
    "*.{c,h}", "bar*",  "x.log", "test_*", "a.d",    "\\[x].c", "{foo,src}/*"};
static const char *const words[] = {
    "alpha",        "beta",      "TODO",  "foo",    "Foo",
    "foobar",       "bar_baz",   "x",     "42",     "-1",
    "a.b",          "(x)",       "if",    "return", "\xc3\xa9t\xc3\xa9",
    "\xe2\x82\xac", "the",       "FIXME", "\t",     "  ",
    "aaa",          "s\xc5\xbf", "K"};

static void write_file(const char *path, const char *data, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (fd < 0) /* there is a directory of that name */
        return;
    T_OK(write(fd, data, len) == (ssize_t)len);
    (void)close(fd);
}

static void make_rules(const char *path)
{
    struct buf b = {.max = 65536};

    for (unsigned n = 1 + (chance(15) ? 8 + pick(12) : pick(4)); n;
         n--) { /* also enough for an index */
        T_OK(buf_adds(&b, chance(20) ? "!" : "", NULL) == 0);
        T_OK(buf_adds(&b, chance(20) ? "/" : "", NULL) == 0);
        T_OK(buf_adds(&b, ANY(rule_parts), NULL) == 0);
        while (chance(30))
            T_OK(buf_addf(&b, NULL, "/%s", ANY(rule_parts)) == 0);
        T_OK(buf_adds(&b, chance(20) ? "/" : "", NULL) == 0);
        T_OK(buf_adds(&b, chance(5) ? "  \n" : chance(5) ? "\n#x\n\n" : "\n", NULL) == 0);
        if (pick(200) == 0)
            T_OK(buf_adds(&b, "\xff*\n", NULL) == 0);
    }
    write_file(path, b.data, b.len);
    buf_done(&b);
}

/* ASCII text as UTF-16 with a byte order mark; other bytes become letters of their own. */
static void widen(struct buf *b, bool big)
{
    struct buf wide = {.max = 1024 * 1024};

    T_OK(buf_add(&wide, big ? "\xfe\xff" : "\xff\xfe", 2, NULL) == 0);
    for (size_t i = 0; i < b->len; i++) {
        char unit[2] = {big ? 0 : b->data[i], big ? b->data[i] : 0};

        T_OK(buf_add(&wide, unit, 2, NULL) == 0);
    }
    buf_done(b);
    *b = wide;
}

static void make_lines(struct buf *b, const char *eol, unsigned n)
{
    for (; n; n--) {
        for (unsigned k = pick(5); k; k--)
            T_OK(buf_addf(b, NULL, "%s%s", ANY(words), chance(70) ? " " : "") == 0);
        T_OK(buf_adds(b, chance(3) ? "\r\n" : eol, NULL) == 0);
    }
}

/* Most are small; some are of several of the pieces in which rg reads, and have a line as long. */
static void make_text(struct buf *b)
{
    const char *eol = chance(5) ? "\r\n" : "\n";

    if (!chance(3)) {
        make_lines(b, eol, pick(12));
        return;
    }
    make_lines(b, eol, 200 + pick(1500));
    if (chance(20))
        for (unsigned n = pick(2000); n; n--)
            T_OK(buf_adds(b, ANY(words), NULL) == 0);
    make_lines(b, eol, pick(1500));
}

static void spoil(struct buf *b)
{
    static const char *const bad[] = {"\xff",         "\xc3", "\xe2\x82", "\xed\xa0\x80",
                                      "\xf0\x9f\x98", "\x80", "\xc0\xaf"};

    for (unsigned n = 1 + pick(3); n; n--) {
        const char *bytes = ANY(bad);
        size_t at = pick((unsigned)b->len), len = strlen(bytes);

        if (len > b->len - at)
            len = b->len - at;
        memcpy(b->data + at, bytes, len);
    }
}

static void make_content(const char *path)
{
    struct buf b = {.max = 1024 * 1024};

    make_text(&b);
    if (b.len && chance(20))
        b.len--; /* no line feed at the end */
    if (b.len && chance(2))
        b.data[pick((unsigned)b.len)] = '\0';
    else if (b.len && chance(2))
        spoil(&b);
    else if (chance(3))
        widen(&b, chance(50));
    write_file(path, b.data ? b.data : "", b.len);
    buf_done(&b);
    if (chance(10))
        (void)chmod(path, 0755);
    if (chance(30)) { /* long ago */
        const struct timespec then[2] = {{.tv_sec = 1500000000}, {.tv_sec = 1500000000}};

        (void)utimensat(AT_FDCWD, path, then, 0);
    }
}

static void make_git(const char *dir)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/.git", dir);
    (void)mkdir(path, 0755);
    (void)snprintf(path, sizeof(path), "%s/.git/info", dir);
    (void)mkdir(path, 0755);
    (void)snprintf(path, sizeof(path), "%s/.git/info/exclude", dir);
    if (chance(40))
        make_rules(path);
}

static void make_tree(const char *dir, unsigned depth, unsigned max_depth, bool with_rgignore)
{
    static const struct {
        const char *name;
        unsigned percent;
    } rules[] = {{".gitignore", 35}, {".ignore", 15}, {".rgignore", 8}};
    char path[512];
    struct stat st;

    (void)mkdir(dir, 0755);
    if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode)) /* a file has that name */
        return;
    for (unsigned i = 0; i < N_ELEMENTS(rules); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, rules[i].name);
        if (chance(rules[i].percent) && (i < 2 || with_rgignore))
            make_rules(path);
    }
    (void)snprintf(path, sizeof(path), "%s/.fdignore", dir);
    if (with_rgignore && chance(2))
        make_rules(path); /* rg does not read it */
    (void)snprintf(path, sizeof(path), "%s/.gitignore", dir);
    if (chance(2))
        (void)symlink(chance(50) ? "m.md" : chance(50) ? ".ignore" : "nowhere", path);
    if (chance(depth ? 6 : 70))
        make_git(dir);
    for (unsigned n = pick(7); n; n--) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, ANY(file_names));
        make_content(path);
    }
    if (chance(10)) {
        (void)snprintf(path, sizeof(path), "%s/link", dir);
        T_OK(symlink(chance(80) ? "a" : "..", path) == 0 || errno == EEXIST);
    }
    for (unsigned n = depth < max_depth ? pick(4) : 0; n; n--) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, ANY(dir_names));
        make_tree(path, depth + 1, max_depth, with_rgignore);
    }
}
