/*
 * Random trees, ignore files, patterns and options: what the search modules find must be what
 * Debian's rg 13 finds (rg -P for lines) and what fdfind 8.6 does. The seed is fixed, so that a
 * failure comes again; SEARCH_DIFF_CASES and SEARCH_DIFF_SEED ask for more or others. Where we
 * differ on purpose the generator stays away; tests/diff/README.md lists those places.
 */
#define T_ALARM_S 600
#include "test.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "search/glob.h"
#include "search/search.h"

#define DEFAULT_CASES 60 /* of each of the four tests */
#define OUT_MAX (16u * 1024 * 1024)
#define MAX_ARGS 32

static uint64_t random_state;
static bool with_nul; /* some files are binary */

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

/* --- trees --- */

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
    struct buf b = {.max = 4096};

    for (unsigned n = 1 + pick(4); n; n--) {
        T_OK(buf_adds(&b, chance(20) ? "!" : "", NULL) == 0);
        T_OK(buf_adds(&b, chance(20) ? "/" : "", NULL) == 0);
        T_OK(buf_adds(&b, ANY(rule_parts), NULL) == 0);
        while (chance(30))
            T_OK(buf_addf(&b, NULL, "/%s", ANY(rule_parts)) == 0);
        T_OK(buf_adds(&b, chance(20) ? "/" : "", NULL) == 0);
        T_OK(buf_adds(&b, chance(5) ? "  \n" : chance(5) ? "\n#x\n\n" : "\n", NULL) == 0);
    }
    write_file(path, b.data, b.len);
    buf_done(&b);
}

static void make_content(const char *path)
{
    struct buf b = {.max = 1024 * 1024};

    for (unsigned n = pick(12); n; n--) {
        for (unsigned k = pick(5); k; k--)
            T_OK(buf_addf(&b, NULL, "%s%s", ANY(words), chance(70) ? " " : "") == 0);
        T_OK(buf_adds(&b, chance(3) ? "\r\n" : "\n", NULL) == 0);
    }
    if (b.len && chance(20))
        b.len--; /* no line feed at the end */
    if (with_nul && b.len && chance(10))
        b.data[pick((unsigned)b.len)] = '\0';
    write_file(path, b.data ? b.data : "", b.len);
    buf_done(&b);
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

static void make_tree(const char *dir, unsigned depth, bool with_rgignore)
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
    if (chance(depth ? 6 : 70))
        make_git(dir);
    for (unsigned n = pick(7); n; n--) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, ANY(file_names));
        make_content(path);
    }
    if (chance(10)) {
        (void)snprintf(path, sizeof(path), "%s/link", dir);
        T_OK(symlink("a", path) == 0 || errno == EEXIST);
    }
    for (unsigned n = depth < 4 ? pick(4) : 0; n; n--) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, ANY(dir_names));
        make_tree(path, depth + 1, with_rgignore);
    }
}

/* --- one case: the same question to both --- */

struct question {
    char *args[MAX_ARGS]; /* of the other program, owned */
    size_t n;
    struct search_options o;
    char **globs;
    char **types;
    char **type_not;
};

static void ask(struct question *q, const char *arg)
{
    T_OK(q->n < MAX_ARGS);
    q->args[q->n++] = strdup(arg);
}

static void question_done(struct question *q)
{
    for (size_t i = 0; i < q->n; i++)
        free(q->args[i]);
    strv_free(q->globs);
    strv_free(q->types);
    strv_free(q->type_not);
}

static void ask_tree(struct question *q)
{
    static const char *const types[] = {"c", "txt", "py", "md", "make", "h"};
    char number[32];

    if (chance(25)) {
        q->o.tree.hidden = true;
        ask(q, "--hidden");
    }
    if (chance(10)) {
        q->o.tree.no_ignore = true;
        ask(q, "--no-ignore");
    }
    if (chance(15)) {
        q->o.tree.max_depth = pick(4);
        (void)snprintf(number, sizeof(number), "--max-depth=%u", q->o.tree.max_depth);
        ask(q, number);
    }
    if (chance(10)) {
        q->o.tree.max_filesize = pick(100);
        (void)snprintf(number, sizeof(number), "--max-filesize=%" PRIu64, q->o.tree.max_filesize);
        ask(q, number);
    }
    while (chance(20)) {
        char glob[128];

        (void)snprintf(glob, sizeof(glob), "%s%s%s%s", chance(30) ? "!" : "", ANY(rule_parts),
                       chance(30) ? "/" : "", chance(30) ? ANY(rule_parts) : "");
        T_OK(strv_push(&q->globs, glob, NULL) == 0);
        ask(q, "-g");
        ask(q, glob);
    }
    if (chance(10)) {
        const char *t = ANY(types);
        bool not = chance(40);

        T_OK(strv_push(not ? &q->type_not : &q->types, t, NULL) == 0);
        ask(q, not ? "-T" : "-t");
        ask(q, t);
    }
}

static void quote(struct buf *b, const char *s)
{
    T_OK(buf_adds(b, " '", NULL) == 0);
    for (; *s; s++)
        T_OK(*s == '\'' ? buf_adds(b, "'\\''", NULL) == 0 : buf_add(b, s, 1, NULL) == 0);
    T_OK(buf_adds(b, "'", NULL) == 0);
}

/* A line in which rg says that it gives up on a binary file after a match is left out. */
static void run_peer(const struct question *q, const char *program, const char *home,
                     struct buf *out, struct buf *command)
{
    FILE *f;
    char block[4096];
    size_t n;

    T_OK(buf_addf(command, NULL, "HOME='%s' XDG_CONFIG_HOME= %s", home, program) == 0);
    for (size_t i = 0; i < q->n; i++)
        quote(command, q->args[i]);
    T_OK(buf_adds(command, " 2>/dev/null </dev/null | grep -av ' WARNING: stopped searching '",
                  NULL) == 0);
    f = popen(command->data, "r");
    T_OK(f);
    while ((n = fread(block, 1, sizeof(block), f)) > 0)
        T_OK(buf_add(out, block, n, NULL) == 0);
    (void)pclose(f);
}

static int open_plain(void *arg, const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);

    (void)arg;
    return fd < 0 ? -errno : fd;
}

static const struct tree_access plain = {.open = open_plain};

static int take_path(void *arg, const struct tree_entry *entry, struct err *e)
{
    return buf_addf(arg, e, "%s%s\n", entry->path, entry->type == TREE_DIR ? "/" : "");
}

static void add_line(struct buf *out, const char *path, char sep, uint64_t number, const char *text,
                     size_t len)
{
    T_OK(buf_addf(out, NULL, "%s%c%" PRIu64 "%c", path, sep, number, sep) == 0);
    T_OK(buf_add(out, text, len, NULL) == 0);
    T_OK(buf_adds(out, "\n", NULL) == 0);
}

struct taker {
    struct buf *out;
    enum grep_mode mode;
};

static void take_lines(struct buf *out, const char *path, const struct grep_result *r)
{
    const char *text = r->line.text, *end = text + r->line.len;

    for (size_t i = 0; i < r->n_before; i++)
        add_line(out, path, '-', r->before[i].number, r->before[i].text, r->before[i].len);
    for (uint64_t n = r->line.number;; n++) { /* more than one with multiline */
        const char *nl = memchr(text, '\n', (size_t)(end - text));

        add_line(out, path, ':', n, text, (size_t)((nl ? nl : end) - text));
        if (!nl)
            break;
        text = nl + 1;
    }
    for (size_t i = 0; i < r->n_after; i++)
        add_line(out, path, '-', r->after[i].number, r->after[i].text, r->after[i].len);
}

static int take_result(void *arg, const char *path, const struct grep_result *r, struct err *e)
{
    const struct taker *t = arg;

    if (t->mode == GREP_FILES)
        return buf_addf(t->out, e, "%s\n", path);
    if (t->mode == GREP_COUNT)
        return buf_addf(t->out, e, "%s:%" PRIu64 "\n", path, r->count);
    take_lines(t->out, path, r);
    return 0;
}

/* *ret_failed: the question was refused (a glob that is not valid, say). */
static void run_own(struct question *q, bool grep, const char *pattern, bool all, struct buf *out,
                    bool *ret_failed)
{
    static struct notes notes;
    _cleanup_close_ int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct taker taker = {out, q->o.grep.mode};
    struct err e = {0};
    int r;

    T_OK(fd >= 0);
    notes_init(&notes);
    q->o.tree.globs = q->globs;
    q->o.tree.types = q->types;
    q->o.tree.type_not = q->type_not;
    if (grep) {
        const struct search_sink sink = {.result = take_result, .arg = &taker};
        struct search_result res;

        r = search_run(fd, &q->o, &plain, &sink, &notes, &res, &e);
    } else {
        const struct glob_options o = {.tree = q->o.tree,
                                       .pattern = pattern,
                                       .files = true,
                                       .dirs = all,
                                       .symlinks = all,
                                       .others = all};
        const struct glob_sink sink = {.found = take_path, .arg = out};
        struct glob_result res;

        r = glob_run(fd, &o, &plain, &sink, &notes, &res, &e);
    }
    T_INT(notes.total, 0);
    notes_done(&notes);
    *ret_failed = r < 0;
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The order in which two workers find things is not ours to compare. */
static void sort_lines(struct buf *b)
{
    struct buf sorted = {.max = OUT_MAX};
    char **lines = calloc(b->len + 1, sizeof(char *));
    size_t n = 0;

    for (char *p = b->data; p && *p; n++) {
        lines[n] = p;
        p += strcspn(p, "\n");
        if (*p)
            *p++ = '\0';
    }
    qsort(lines, n, sizeof(char *), compare_lines);
    for (size_t i = 0; i < n; i++)
        T_OK(buf_addf(&sorted, NULL, "%s\n", lines[i]) == 0);
    free(lines);
    buf_done(b);
    *b = sorted;
}

static void compare(const struct buf *own, const struct buf *peer, const struct buf *command,
                    unsigned number)
{
    const char *a = own->len ? own->data : "", *b = peer->len ? peer->data : "";

    if (own->len == peer->len && memcmp(a, b, own->len) == 0)
        return;
    (void)fprintf(stderr, "# case %u in %s: %s\n# ours:\n%s\n# theirs:\n%s\n", number,
                  getenv("PWD"), command->data, a, b);
    T_OK(false);
}

static void require(const char *program, const char *version)
{
    char command[64], line[64] = "";
    FILE *f;

    (void)snprintf(command, sizeof(command), "%s --version 2>/dev/null", program);
    f = popen(command, "r");
    T_OK(f);
    (void)fgets(line, sizeof(line), f);
    (void)pclose(f);
    if (!strstr(line, version))
        T_SKIP("the peer is not installed in the version that it is compared with");
}

static unsigned n_cases(void)
{
    const char *s = getenv("SEARCH_DIFF_CASES"), *seed = getenv("SEARCH_DIFF_SEED");
    uint64_t n = DEFAULT_CASES;

    random_state = 20261122;
    if (seed)
        T_OK(str_parse_u64(seed, 1, UINT64_MAX, &random_state, NULL) == 0);
    if (s)
        T_OK(str_parse_u64(s, 1, 1000000, &n, NULL) == 0);
    return (unsigned)n;
}

/* A new tree, and the working directory somewhere in it. */
static void enter_tree(const char *top, unsigned number, bool with_rgignore)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%u", top, number);
    (void)mkdir(path, 0755);
    T_OK(chdir(path) == 0);
    (void)mkdir("home", 0755);
    (void)mkdir("home/.config", 0755);
    (void)mkdir("home/.config/git", 0755);
    if (chance(30))
        make_rules("home/.config/git/ignore");
    make_tree("tree", 0, with_rgignore);
    T_OK(chdir("tree") == 0);
    if (chance(25))
        (void)chdir(ANY(dir_names));
}

typedef void (*case_fn)(struct question *q, const char *home, unsigned number);

static void run_cases(bool with_rgignore, case_fn fn)
{
    unsigned n = n_cases();
    char top[256], home[512], whole[1024];

    T_OK(getcwd(top, sizeof(top)));
    for (unsigned i = 0; i < n; i++) {
        struct question q = {0};

        enter_tree(top, i, with_rgignore);
        T_OK(getcwd(whole, sizeof(whole)));
        (void)setenv("PWD", whole, 1);
        (void)snprintf(home, sizeof(home), "%s/%u/home", top, i);
        q.o.tree = (struct tree_options){.shown = "",
                                         .whole = whole,
                                         .home = home,
                                         .max_depth = UINT32_MAX,
                                         .max_filesize = UINT64_MAX,
                                         .n_workers = TREE_MAX_WORKERS};
        q.o.grep.max_per_file = UINT64_MAX;
        fn(&q, home, i);
        question_done(&q);
        T_OK(chdir(top) == 0);
    }
}

/* Asks both and compares; sorted unless the order is part of the question. */
static void answer(struct question *q, const char *program, const char *home, bool grep,
                   const char *pattern, bool all, unsigned number)
{
    struct buf own = {.max = OUT_MAX}, peer = {.max = OUT_MAX}, command = {.max = OUT_MAX};
    bool failed;

    run_peer(q, program, home, &peer, &command);
    run_own(q, grep, pattern, all, &own, &failed);
    if (q->o.order.by == ORDER_NONE) {
        sort_lines(&own);
        sort_lines(&peer);
    }
    compare(&own, &peer, &command, number);
    buf_done(&own);
    buf_done(&peer);
    buf_done(&command);
}

static void files_case(struct question *q, const char *home, unsigned number)
{
    ask(q, "--files");
    ask_tree(q);
    answer(q, "rg", home, false, NULL, false, number);
}

TEST(search_finds_the_files_that_rg_finds)
{
    require("rg", "ripgrep 13");
    run_cases(true, files_case);
}

static void fd_case(struct question *q, const char *home, unsigned number)
{
    static const char *const globs[] = {"*", "*.c", "a*",  "[ab]*", "*.{c,h}", "foo",
                                        "?", "**",  "*o*", "b*",    "{a,b}",   "*.txt"};
    const char *glob = ANY(globs);

    ask(q, "--glob");
    ask(q, "--case-sensitive");
    ask(q, "--strip-cwd-prefix");
    if (chance(30)) {
        q->o.tree.hidden = true;
        ask(q, "--hidden");
    }
    if (chance(15)) {
        q->o.tree.no_ignore = true;
        ask(q, "--no-ignore");
    }
    ask(q, glob);
    answer(q, "fdfind", home, false, glob, true, number);
}

TEST(search_finds_the_paths_that_fd_finds)
{
    require("fdfind", "8.6");
    run_cases(false, fd_case);
}

static const char *const patterns[] = {"foo",
                                       "TODO|FIXME",
                                       "^\\s*$",
                                       "\\bfoo\\b",
                                       "a",
                                       "[^a]",
                                       "^",
                                       "$",
                                       "x*",
                                       "\\w+_\\w+",
                                       "\\s+$",
                                       "(?i)foo",
                                       "foo(?=bar)",
                                       "(?<!x)foo",
                                       "\\d+",
                                       ".",
                                       "^.{3,6}$",
                                       "(a|b)c?",
                                       "f(oo)+",
                                       "(.)\\1",
                                       "\xc3\xa9",
                                       "\\x{e9}",
                                       "[\xc3\xa0-\xc3\xbf]",
                                       "\\W",
                                       "[[:upper:]]+",
                                       "\\S\\s\\S",
                                       "beta\\s*$",
                                       "foo.*bar",
                                       "(?:foo|bar)_",
                                       "\\Aalpha",
                                       "x\\z",
                                       "^(?!.*foo)",
                                       "[\\s,]x",
                                       "k",
                                       "s+",
                                       "\\(x\\)",
                                       "a{2,}",
                                       "\\D\\d",
                                       "\\Bar",
                                       "(?s)a.b",
                                       "a\\nb",
                                       "\\R",
                                       "the|\xe2\x82\xac",
                                       "\\pL+",
                                       "$^",
                                       "-1"};

static void ask_count(struct question *q, const char *option, unsigned n)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%u", n);
    ask(q, option);
    ask(q, text);
}

/*
 * rg's own -w finds the next match a byte later than its -P does, and its own -U is no multiline
 * at all for a pattern that can't match a line feed: both are compared with -P only.
 */
static void ask_match(struct question *q, bool pcre)
{
    struct match_options *m = &q->o.match;
    unsigned letters = pick(6);

    if (letters < 2) {
        ask(q, letters ? "-i" : "-S");
        m->letters = letters ? MATCH_INSENSITIVE : MATCH_SMART;
    }
    if (chance(10)) {
        ask(q, "-F");
        m->fixed = true;
    }
    if (pcre && chance(15)) {
        ask(q, "-w");
        m->word = true;
    } else if (chance(10)) {
        ask(q, "-x");
        m->line = true;
    }
    if (chance(10)) {
        ask(q, "-v");
        q->o.grep.invert = true;
    } else if (pcre && chance(20)) {
        ask(q, "-U");
        q->o.grep.multiline = m->multiline = true;
        if (chance(30)) {
            ask(q, "--multiline-dotall");
            m->dotall = true;
        }
    }
}

static void ask_output(struct question *q)
{
    unsigned mode = pick(8);

    if (mode < 2) {
        ask(q, mode ? "-l" : "-c");
        q->o.grep.mode = mode ? GREP_FILES : GREP_COUNT;
    } else if (chance(40)) {
        q->o.grep.before = pick(4);
        q->o.grep.after = pick(4);
        ask_count(q, "-B", q->o.grep.before);
        ask_count(q, "-A", q->o.grep.after);
    }
    if (!q->o.grep.after && !q->o.grep.multiline && chance(15)) {
        q->o.grep.max_per_file = 1 + pick(3);
        ask_count(q, "-m", (unsigned)q->o.grep.max_per_file);
    }
    if (chance(15)) {
        q->o.grep.binary = GREP_BINARY_TEXT;
        ask(q, "-a");
    }
}

static void ask_lines(struct question *q, const char *pattern, bool pcre)
{
    static const char *const fixed[] = {"-n",   "--no-heading",           "--sort",
                                        "path", "--no-context-separator", "--no-messages"};

    for (size_t i = 0; i < N_ELEMENTS(fixed); i++)
        ask(q, fixed[i]);
    q->o.order.by = ORDER_PATH;
    ask_tree(q);
    ask_match(q, pcre);
    ask_output(q);
    ask(q, "-e");
    ask(q, pattern);
    ask(q, ".");
    q->o.tree.shown = ".";
    q->o.match.pattern = pattern;
    q->o.match.len = strlen(pattern);
}

static void pcre_case(struct question *q, const char *home, unsigned number)
{
    ask(q, "-P");
    ask_lines(q, ANY(patterns), true);
    if (q->o.grep.multiline && q->o.grep.mode == GREP_COUNT)
        return; /* rg also counts empty matches within a character; test_grep.c has ours */
    if (q->o.grep.multiline && q->o.match.pattern[0] == '^')
        return; /* rg takes the end of a match for the start of a line */
    answer(q, "rg", home, true, NULL, false, number);
}

TEST(search_finds_the_lines_that_rg_finds_with_pcre2)
{
    require("rg", "ripgrep 13");
    run_cases(true, pcre_case);
}

/* What both syntaxes have, with the same meaning. */
static const char *const common_patterns[] = {"foo",
                                              "TODO|FIXME",
                                              "\\bfoo\\b",
                                              "a",
                                              "\\w+_\\w+",
                                              "(?i)foo",
                                              "\\d+",
                                              ".",
                                              "^.{3,6}$",
                                              "(a|b)c?",
                                              "f(oo)+",
                                              "\xc3\xa9",
                                              "foo.*bar",
                                              "(?:foo|bar)_",
                                              "k",
                                              "s+",
                                              "\\(x\\)",
                                              "a{2,}",
                                              "the|\xe2\x82\xac",
                                              "\\pL+",
                                              "-1",
                                              "^",
                                              "$",
                                              "x*",
                                              "^$",
                                              "[^a]"};

static void common_case(struct question *q, const char *home, unsigned number)
{
    ask_lines(q, ANY(common_patterns), false);
    answer(q, "rg", home, true, NULL, false, number);
}

TEST(search_finds_the_lines_that_rg_finds)
{
    require("rg", "ripgrep 13");
    with_nul = true;
    run_cases(true, common_case);
}
