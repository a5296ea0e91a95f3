/* search/grep, window, search and tree: files of all kinds, context, limits, trees. */
#include "test.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "common/buf.h"
#include "search/glob.h"
#include "search/search.h"

static void put(const char *path, const void *data, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    T_OK(fd >= 0);
    for (size_t n = 0; n < len;) {
        ssize_t w = write(fd, (const char *)data + n, len - n);

        T_OK(w > 0);
        n += (size_t)w;
    }
    (void)close(fd);
}

static void puts_to(const char *path, const char *text)
{
    put(path, text, strlen(text));
}

static int open_plain(void *arg, const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);

    (void)arg;
    return fd < 0 ? -errno : fd;
}

static const struct tree_access plain = {.open = open_plain};

/* The results of a search as text: "path:line:text|...", with '-' for context. */
struct told {
    struct buf text;
    uint64_t n;
    uint64_t columns; /* of all files, added up */
    bool gone;        /* the sink has ended the search */
    struct search_result result;
    struct notes notes;
    struct err e;
    int r;
};

static void tell_line(struct buf *b, const char *path, char sep, const struct grep_line *l)
{
    T_OK(buf_addf(b, NULL, "%s%c%" PRIu64 "%c%.*s%s|", path, sep, l->number, sep, (int)l->len,
                  l->text, l->truncated ? "~" : "") == 0);
}

static int on_result(void *arg, const char *path, const struct grep_result *r, struct err *e)
{
    struct told *t = arg;

    (void)e;
    t->n++;
    t->columns += r->column;
    if (r->is_binary) {
        T_OK(buf_addf(&t->text, NULL, "%s:binary|", path) == 0);
        return 0;
    }
    for (size_t i = 0; i < r->n_before; i++)
        tell_line(&t->text, path, '-', &r->before[i]);
    if (r->line.text)
        tell_line(&t->text, path, ':', &r->line);
    else
        T_OK(buf_addf(&t->text, NULL, "%s=%" PRIu64 "|", path, r->count) == 0);
    for (size_t i = 0; i < r->n_after; i++)
        tell_line(&t->text, path, '-', &r->after[i]);
    return 0;
}

static bool is_gone(void *arg)
{
    return ((const struct told *)arg)->gone;
}

static struct told *search(const char *path, const char *pattern, struct search_options o)
{
    static struct told t;
    const struct search_sink sink = {.result = on_result, .is_gone = is_gone, .arg = &t};
    bool gone = t.gone;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char whole[4096];

    T_OK(fd >= 0 && getcwd(whole, sizeof(whole)));
    buf_done(&t.text);
    notes_done(&t.notes);
    t = (struct told){.text = {.max = 64u * 1024 * 1024}, .gone = gone};
    notes_init(&t.notes);
    o.match.pattern = pattern;
    o.match.len = strlen(pattern);
    o.tree.shown = strcmp(path, ".") == 0 ? "" : path;
    o.tree.whole = whole;
    o.tree.max_depth = UINT32_MAX;
    o.tree.max_filesize = o.tree.max_filesize ? o.tree.max_filesize : UINT64_MAX;
    o.tree.n_workers = o.tree.n_workers ? o.tree.n_workers : 1;
    o.grep.multiline = o.match.multiline;
    o.grep.max_per_file = o.grep.max_per_file ? o.grep.max_per_file : UINT64_MAX;
    t.r = search_run(fd, &o, &plain, &sink, &t.notes, &t.result, &t.e);
    (void)close(fd);
    return &t;
}

static const char *found(const char *path, const char *pattern, struct search_options o)
{
    const struct told *t = search(path, pattern, o);

    T_INT(t->r, 0);
    return t->text.len ? t->text.data : "";
}

static const struct search_options none;

TEST(grep_tells_context_once)
{
    const struct search_options o = {.grep = {.before = 1, .after = 2}};

    puts_to("f", "1\n2x\n3\n4x\n5\n6\n7\n8x\n");
    T_STR(found("f", "x", o), "f-1-1|f:2:2x|f-3-3|f:4:4x|f-5-5|f-6-6|f-7-7|f:8:8x|");
}

TEST(grep_inverts_and_limits_and_counts)
{
    puts_to("f", "a\nb\na\nb\na");
    T_STR(found("f", "a", (struct search_options){.grep = {.invert = true}}), "f:2:b|f:4:b|");
    T_STR(found("f", "a", (struct search_options){.grep = {.max_per_file = 2}}), "f:1:a|f:3:a|");
    T_STR(found("f", "a", (struct search_options){.grep = {.mode = GREP_COUNT}}), "f=3|");
    T_STR(found("f", "a", (struct search_options){.grep = {.mode = GREP_FILES}}), "f=1|");
    T_STR(found("f", "a", (struct search_options){.max_results = 1}), "f:1:a|");
}

TEST(grep_reports_that_it_stopped_at_the_limit)
{
    puts_to("f", "a\na\n");
    T_OK(search("f", "a", (struct search_options){.max_results = 2})->result.limit_reached);
    T_OK(!search("f", "a", (struct search_options){.max_results = 3})->result.limit_reached);
}

TEST(grep_multiline_joins_lines_that_touch)
{
    const struct search_options o = {.match = {.multiline = true}, .grep = {.after = 1}};

    puts_to("f", "a\nb\nc\nx\na\nb\n");
    T_STR(found("f", "a\\nb", o), "f:1:a\nb|f-3-c|f:5:a\nb|");
    T_STR(found("f", "\\w\\n", o), "f:1:a\nb\nc\nx\na\nb|");
}

/*
 * A line like those of a bundled program. Searching its ends at each match exceeds the time limit.
 */
TEST(grep_multiline_takes_a_long_line_with_very_many_matches)
{
    const struct search_options count = {.match = {.multiline = true},
                                         .grep = {.mode = GREP_COUNT_MATCHES}};
    const struct search_options only = {.match = {.multiline = true},
                                        .grep = {.only_matching = true}};
    const uint64_t n = 500000;
    struct buf b = {.max = 8u * 1024 * 1024};
    const struct told *t;

    T_OK(buf_adds(&b, "a-\n-\n", NULL) == 0);
    for (uint64_t i = 0; i < n; i++)
        T_OK(buf_adds(&b, "a...", NULL) == 0);
    T_OK(buf_adds(&b, "\n.a\n", NULL) == 0);
    put("f", b.data, b.len);
    T_STR(found("f", "a", count), "f=500002|");
    t = search("f", "a", only);
    T_INT(t->r, 0);
    T_INT(t->n, n + 2);
    T_INT(t->columns, 1 + (n + 4 * (n * (n - 1) / 2)) + 2);
    T_OK(strncmp(t->text.data, "f:1:a|f:3:a|f:3:a|", 18) == 0);
    T_STR(t->text.data + t->text.len - 12, "f:3:a|f:4:a|");
    buf_done(&b);
}

/* Lines and matches at every place relative to the pieces in which a file is read. */
TEST(grep_finds_everything_in_files_larger_than_a_window)
{
    const struct search_options o = {.grep = {.before = 2, .after = 2}};
    struct buf b = {.max = 8u * 1024 * 1024};
    struct buf want = {.max = 8u * 1024 * 1024};

    for (unsigned i = 1; i <= 60000; i++) {
        T_OK(buf_addf(&b, NULL, "line %u of the large file, with some more text%s\n", i,
                      i % 997 == 0 ? " NEEDLE" : "") == 0);
    }
    for (unsigned i = 997; i <= 60000; i += 997)
        for (unsigned k = i - 2; k <= i + 2 && k <= 60000; k++)
            T_OK(buf_addf(&want, NULL, "f%c%u%cline %u of the large file, with some more text%s|",
                          k == i ? ':' : '-', k, k == i ? ':' : '-', k,
                          k == i ? " NEEDLE" : "") == 0);
    put("f", b.data, b.len);
    T_OK(b.len > 2u * 1024 * 1024);
    T_STR(found("f", "NEEDLE", o), want.data);
    T_STR(found("f", "N\\w+$", o), want.data);
    T_STR(found("f", "^.* NE(?!x)", o), want.data);
    buf_done(&b);
    buf_done(&want);
}

TEST(grep_cuts_a_long_line_and_says_so)
{
    size_t len = 3u * 1024 * 1024;
    char *data = malloc(len);
    const struct told *t;

    T_OK(data);
    memset(data, 'a', len);
    memcpy(data + len - 5, "zzzz\n", 5);
    put("f", data, len);
    t = search("f", "zzzz", none);
    T_INT(t->r, 0);
    T_INT(t->n, 1);
    T_INT(t->text.len, strlen("f:1:~|") + GREP_TEXT_BYTES);
    free(data);
}

TEST(grep_skips_a_file_with_a_line_too_long_and_says_so)
{
    const struct told *t;

    (void)mkdir("d", 0755);
    puts_to("d/ok", "x\n");
    puts_to("d/huge", "");
    T_OK(truncate("d/huge", (off_t)GREP_LINE_MAX_BYTES + 4096) == 0);
    t = search("d", "x", (struct search_options){.grep = {.binary = GREP_BINARY_TEXT}});
    T_INT(t->r, 0);
    T_INT(t->n, 1);
    T_INT(t->notes.total, 1);
    T_STR(t->notes.list[0].path, "d/huge");
    T_OK(strstr(t->notes.list[0].error, "line of more than"));
}

TEST(grep_leaves_binary_files_alone_unless_they_are_named)
{
    static char data[200 * 1024];

    (void)mkdir("d", 0755);
    put("d/early", "x\ny\0x\n", 6);
    T_STR(found("d", "x", none), "d/early:1:x|"); /* rg checks the first three bytes */
    put("d/early", "not x\n\0x\n", 9);
    T_STR(found("d", "x", none), "");
    T_INT(search("d", "x", none)->result.n_files_binary, 1);
    T_STR(found("d/early", "x", none), "d/early:binary|");
    T_STR(found("d", "x", (struct search_options){.grep = {.binary = GREP_BINARY_TEXT}}),
          "d/early:1:not x|d/early:2:|"); /* the C string ends at the NUL */
    memset(data, '\n', sizeof(data));
    memcpy(data + 1, "x", 1);
    data[sizeof(data) - 9] = '\0';
    put("d/early", data, sizeof(data)); /* lines before the piece with the NUL are found */
    T_STR(found("d", "x", none), "d/early:2:x|");
}

TEST(grep_reads_utf16_and_skips_the_utf8_mark)
{
    put("le",
        "\xff\xfe"
        "a\0\n\0x\0\xe9\0\n\0",
        12);
    put("be",
        "\xfe\xff"
        "\0a\0\n\0x\0\xe9\0\n",
        12);
    put("pair",
        "\xff\xfe"
        "\x3d\xd8\x00\xde"
        "x\0\n\0",
        10);
    puts_to("mark", "\xef\xbb\xbf"
                    "x\n");
    T_STR(found("le", "x.", none), "le:2:x\xc3\xa9|");
    T_STR(found("be", "x.", none), "be:2:x\xc3\xa9|");
    T_STR(found("pair", "^.x", none), "pair:1:\xf0\x9f\x98\x80x|");
    T_STR(found("mark", "^x", none), "mark:1:x|");
}

TEST(grep_searches_bytes_that_are_not_utf8)
{
    put("f", "caf\xe9 x\n\xff\n", 9);
    T_STR(found("f", "x", none), "f:1:caf\xe9 x|");
    T_STR(found("f", "^caf", none), "f:1:caf\xe9 x|");
}

TEST(search_notes_what_it_can_not_read_and_goes_on)
{
    const struct told *t;

    (void)mkdir("d", 0755);
    puts_to("d/a", "x\n");
    puts_to("d/b", "x\n");
    T_OK(chmod("d/a", 0) == 0 && chmod(".", 0755) == 0);
    if (geteuid() == 0) /* root could read it */
        T_OK(seteuid(65534) == 0);
    t = search("d", "x", none);
    T_INT(t->r, 0);
    T_STR(t->text.data, "d/b:1:x|");
    T_STR(t->notes.list[0].path, "d/a");
    (void)seteuid(0);
    (void)prctl(PR_SET_DUMPABLE, 1); /* for the leak check */
}

TEST(search_stops_soon_when_its_client_has_gone)
{
    char *data = malloc(32u * 1024 * 1024);
    struct told *t;

    T_OK(data);
    for (size_t i = 0; i < 32u * 1024 * 1024; i++)
        data[i] = i % 64 ? 'a' : '\n';
    put("f", data, 32u * 1024 * 1024);
    free(data);
    t = search("f", "nothing", none);
    T_INT(t->result.n_bytes, 32u * 1024 * 1024);
    t->gone = true;
    t = search("f", "(a|b)+c", none);
    T_INT(t->r, -ERR_CANCELED);
    T_OK(t->result.n_bytes <= WINDOW_BYTES); /* it stopped reading */
}

TEST(search_with_two_workers_finds_what_one_finds)
{
    struct search_options o = {.tree = {.n_workers = 2}};
    char path[64];

    for (unsigned d = 0; d < 40; d++) {
        (void)snprintf(path, sizeof(path), "d%u", d);
        T_OK(mkdir(path, 0755) == 0);
        for (unsigned f = 0; f < 20; f++) {
            (void)snprintf(path, sizeof(path), "d%u/f%u", d, f);
            puts_to(path, "x\ny\nx\n");
        }
    }
    T_INT(search(".", "x", o)->n, 1600);
    T_INT(search(".", "x", none)->n, 1600);
    o.max_results = 7;
    T_INT(search(".", "x", o)->n, 7);
}

/* Deeper than the limit of descriptors, and longer than PATH_MAX. */
TEST(search_goes_as_deep_as_the_tree)
{
    const struct rlimit few = {64 + 128, 64 + 128};
    const struct told *t;
    char name[] = "a-directory-with-a-name-that-is-rather-long";
    int top = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    T_OK(top >= 0 && setrlimit(RLIMIT_NOFILE, &few) == 0);
    for (unsigned i = 0; i < 300; i++) {
        T_OK(mkdir(name, 0755) == 0);
        T_OK(chdir(name) == 0);
    }
    puts_to("f", "x\n");
    T_OK(fchdir(top) == 0);
    t = search(".", "x", none);
    T_INT(t->r, 0);
    T_STR(t->notes.list[0].error, NULL);
    T_INT(t->n, 1);
    T_INT(t->text.len, 300 * sizeof(name) + strlen("f:1:x|"));
}

TEST(search_does_not_follow_links)
{
    (void)mkdir("out", 0755);
    (void)mkdir("in", 0755);
    puts_to("out/f", "x\n");
    T_OK(symlink("../out", "in/dir") == 0);
    T_OK(symlink("../out/f", "in/file") == 0);
    T_STR(found("in", "x", none), "");
}

TEST(search_leaves_out_files_that_are_too_large)
{
    (void)mkdir("d", 0755);
    puts_to("d/small", "x\n");
    puts_to("d/large", "x and more\n");
    T_STR(found("d", "x", (struct search_options){.tree = {.max_filesize = 5}}), "d/small:1:x|");
}

static int count_path(void *arg, const struct tree_entry *entry, struct err *e)
{
    (void)entry;
    (void)e;
    ++*(unsigned *)arg;
    return 0;
}

static unsigned glob(const char *pattern, uint64_t limit, struct glob_result *ret, struct err *e)
{
    const struct glob_options o = {.tree = {.shown = "",
                                            .whole = "/nowhere",
                                            .max_depth = UINT32_MAX,
                                            .max_filesize = UINT64_MAX,
                                            .n_workers = 1},
                                   .pattern = pattern,
                                   .types = GLOB_FILE | GLOB_DIR,
                                   .max_size = UINT64_MAX,
                                   .limit = limit};
    unsigned n = 0;
    const struct glob_sink sink = {.found = count_path, .arg = &n};
    static struct notes notes;
    int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    notes_init(&notes);
    (void)glob_run(fd, &o, &plain, &sink, &notes, ret, e);
    notes_done(&notes);
    (void)close(fd);
    return n;
}

TEST(glob_finds_names_and_paths_and_stops_at_its_limit)
{
    struct glob_result res = {0};
    struct err e = {0};

    (void)mkdir("a", 0755);
    (void)mkdir("a/b", 0755);
    puts_to("a/b/f.c", "");
    puts_to("f.c", "");
    T_INT(glob("*.c", 0, &res, &e), 2);
    T_INT(glob("a/*", 0, &res, &e), 1);
    T_INT(glob("/f.c", 0, &res, &e), 1);
    T_INT(glob("**/b", 0, &res, &e), 1);
    T_INT(glob(NULL, 0, &res, &e), 4);
    T_INT(glob(NULL, 3, &res, &e), 3);
    T_OK(res.limit_reached);
    T_INT(glob("a[", 0, &res, &e), 0);
    T_STR(e.field, "pattern");
}
