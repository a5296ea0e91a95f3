/*
 * Random trees, ignore files, patterns and options: what the search modules find must be what
 * Debian's rg 13 finds (rg -P for lines) and what fdfind 8.6 does. The seed and the number of cases
 * are fixed, so that every run asks the same; SEARCH_DIFF_CASES (of each test), SEARCH_DIFF_SECONDS
 * (and more until so much time has passed) and SEARCH_DIFF_SEED ask for more or others. Where we differ on purpose there is a row in the table
 * below, as in tests/diff/README.md: nothing else may differ, and a row only where it holds.
 */
#define T_ALARM_S 600
#include "test.h"

#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "search/glob.h"
#include "search/search.h"

#define DEFAULT_CASES 400 /* of each test */
#define QUESTIONS 3       /* about one tree */
#define OUT_MAX (16u * 1024 * 1024)
#define MAX_ARGS 48

static uint64_t random_state;

/* What is odd about the tree of the moment: some differences are allowed only then. */
static struct oddities {
    bool nul, bad_text, fdignore, linked_rules, bad_rule;
} odd;

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
        if (pick(400) == 0) {
            T_OK(buf_adds(&b, "\xff*\n", NULL) == 0);
            odd.bad_rule = true;
        }
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

static void make_content(const char *path)
{
    struct buf b = {.max = 1024 * 1024};
    const char *eol = chance(5) ? "\r\n" : "\n";

    for (unsigned n = pick(12); n; n--) {
        for (unsigned k = pick(5); k; k--)
            T_OK(buf_addf(&b, NULL, "%s%s", ANY(words), chance(70) ? " " : "") == 0);
        T_OK(buf_adds(&b, chance(3) ? "\r\n" : eol, NULL) == 0);
    }
    if (b.len && chance(20))
        b.len--; /* no line feed at the end */
    if (b.len && chance(1)) {
        b.data[pick((unsigned)b.len)] = '\0';
        odd.nul = true;
    } else if (b.len && chance(1)) {
        b.data[pick((unsigned)b.len)] = '\xff';
        odd.bad_text = true;
    } else if (chance(3)) {
        widen(&b, chance(50));
    }
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
    if (pick(150) == 0) {
        make_rules(path);
        odd.fdignore = true;
    }
    (void)snprintf(path, sizeof(path), "%s/.gitignore", dir);
    if (pick(150) == 0 && symlink("m.md", path) == 0)
        odd.linked_rules = true;
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

/* --- one case: the same question to both --- */

struct question {
    char *args[MAX_ARGS]; /* of the other program, owned */
    size_t n;
    bool is_fd, pcre;
    struct search_options o;
    struct glob_options glob;
    const char *more[4]; /* patterns */
    char **globs;
    char **iglobs;
    char **exclude;
    char **extensions;
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
    strv_free(q->iglobs);
    strv_free(q->exclude);
    strv_free(q->extensions);
    strv_free(q->types);
    strv_free(q->type_not);
}

/* --- where the answers may differ --- */

static bool is_bad_text(const struct question *q)
{
    return odd.bad_text && q->pcre;
}

static bool is_limit_with_after(const struct question *q)
{
    return q->o.grep.max_per_file != UINT64_MAX && q->o.grep.after;
}

/* Where rg runs the pattern in the middle of its buffer. */
static bool is_within_buffer(const struct question *q)
{
    const char *p = q->o.match.pattern;

    return p && ((q->o.grep.multiline && (strchr(p, '^') || q->o.grep.crlf)) ||
                 (q->o.grep.replace && (strstr(p, "\\A") || strstr(p, "\\z"))));
}

/* Whether the pattern matches nothing at all. */
static bool matches_empty(const struct question *q)
{
    struct match_span ignored;
    struct match *m = NULL;
    struct matcher *w = NULL;
    bool found;

    T_OK(match_new(&q->o.match, &m, NULL) == 0 && matcher_new(m, &w, NULL) == 0);
    matcher_set_text(w, "", 0);
    found = matcher_find(w, "", 0, 0, &ignored, NULL) > 0;
    matcher_free(w);
    match_free(m);
    return found;
}

/* Counted or shown alone, matches of nothing are each program's own affair. */
static bool is_empty_counted(const struct question *q)
{
    bool counts = q->o.grep.mode == GREP_COUNT_MATCHES ||
                  (q->o.grep.mode == GREP_COUNT && q->o.grep.multiline);
    bool shows = q->o.grep.replace || (q->o.grep.only_matching && (!q->pcre || q->o.grep.crlf));

    return (counts || shows) && matches_empty(q);
}

static bool is_nul_in_pieces(const struct question *q)
{
    return odd.nul && (q->pcre || q->o.grep.multiline);
}

static bool is_under_a_path(const struct question *q)
{
    return q->o.tree.shown[0] && strcmp(q->o.tree.shown, ".") != 0;
}

static bool is_linked_rules(const struct question *q)
{
    (void)q;
    return odd.linked_rules;
}

static bool is_fdignore(const struct question *q)
{
    return q->is_fd && odd.fdignore;
}

static bool is_smart_class(const struct question *q)
{
    return !q->pcre && !q->is_fd && q->o.match.letters == MATCH_SMART;
}

static bool is_bad_rule(const struct question *q)
{
    (void)q;
    return odd.bad_rule;
}

static struct {
    const char *id;
    bool (*may_differ)(const struct question *q);
    unsigned n_seen;
} differences[] = {
    {"D1", is_bad_text, 0},      {"D2", is_limit_with_after, 0}, {"D3", is_within_buffer, 0},
    {"D4", is_empty_counted, 0}, {"D5", is_nul_in_pieces, 0},    {"D6", is_under_a_path, 0},
    {"D7", is_linked_rules, 0},  {"D8", is_fdignore, 0},         {"D9", is_smart_class, 0},
    {"D10", is_bad_rule, 0},
};
_Static_assert(N_ELEMENTS(differences) <= 10, "no more differences than that");

static bool may_differ(const struct question *q)
{
    for (size_t i = 0; i < N_ELEMENTS(differences); i++) {
        if (differences[i].may_differ(q)) {
            differences[i].n_seen++;
            return true;
        }
    }
    return false;
}

/* --- questions --- */

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
    if (chance(5)) {
        q->o.tree.no_ignore_vcs = true;
        ask(q, "--no-ignore-vcs");
    }
    if (chance(5)) {
        q->o.tree.no_ignore_parent = true;
        ask(q, "--no-ignore-parent");
    }
    if (chance(10)) {
        q->o.tree.follow = true;
        ask(q, "--follow");
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
        const char *glob = chance(50) ? "*.C" : chance(50) ? "!FOO*" : "[A-B]*";

        T_OK(strv_push(&q->iglobs, glob, NULL) == 0);
        ask(q, "--iglob");
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

/* Whether a line is one that we leave out: where rg says that it gives up on a binary file, or that a
 * file whose lines matched by their ends has no matches. */
static bool is_left_out(const struct question *q, const char *line, size_t len)
{
    return memmem(line, len, " WARNING: stopped searching ", 28) ||
           (q->o.grep.mode == GREP_COUNT_MATCHES && len > 2 &&
            memcmp(line + len - 2, ":0", 2) == 0);
}

/* Takes out such lines, and with --crlf what is left of lines' ends. */
static void clean_answer(const struct question *q, struct buf *out)
{
    struct buf clean = {.max = OUT_MAX};
    const char *p = out->data, *end = p + out->len;

    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl ? nl : end) - p), len = n;

        if (q->o.grep.crlf && n && p[n - 1] == '\r')
            len--;
        if (!is_left_out(q, p, len)) {
            T_OK(buf_add(&clean, p, len, NULL) == 0);
            T_OK(buf_adds(&clean, "\n", NULL) == 0);
        }
        p += n + 1;
    }
    buf_done(out);
    *out = clean;
}

/* Starts it with its output into a new pipe, whose other end is *ret_fd. */
static pid_t start_peer(struct question *q, const char *program, int *ret_fd)
{
    char *argv[MAX_ARGS + 2] = {(char *)(uintptr_t)program};
    posix_spawn_file_actions_t actions;
    int pipes[2];
    pid_t pid;

    memcpy(argv + 1, q->args, q->n * sizeof(*argv));
    T_OK(pipe2(pipes, O_CLOEXEC) == 0);
    T_OK(posix_spawn_file_actions_init(&actions) == 0);
    T_OK(posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) == 0);
    T_OK(posix_spawn_file_actions_adddup2(&actions, pipes[1], 1) == 0);
    T_OK(posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0) == 0);
    T_INT(posix_spawnp(&pid, program, &actions, NULL, argv, environ), 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(pipes[1]);
    *ret_fd = pipes[0];
    return pid;
}

static void run_peer(struct question *q, struct buf *out)
{
    char block[4096];
    ssize_t n;
    int fd, status;
    pid_t pid = start_peer(q, q->is_fd ? "fdfind" : "rg", &fd);

    while ((n = read(fd, block, sizeof(block))) > 0)
        T_OK(buf_add(out, block, (size_t)n, NULL) == 0);
    (void)close(fd);
    T_OK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    if (!q->is_fd)
        clean_answer(q, out);
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
    bool alone; /* each match is a result */
    bool multiline;
};

/* With -U -o rg prints nothing for the part of a match that is nothing or only a line's end. */
static void take_lines(const struct taker *t, const char *path, const struct grep_result *r)
{
    struct buf *out = t->out;
    const struct grep_line *line = r->replaced ? r->replaced : &r->line;
    const char *text = line->text, *end = text + line->len;

    if (t->alone && end > text &&
        end[-1] == '\n') /* of the match: the line that is printed ends so */
        end--;
    for (size_t i = 0; i < r->n_before; i++)
        add_line(out, path, '-', r->before[i].number, r->before[i].text, r->before[i].len);
    for (uint64_t n = r->line.number;; n++) { /* more than one with multiline */
        const char *nl = memchr(text, '\n', (size_t)(end - text));

        if (!(t->alone && t->multiline && text == (nl ? nl : end)))
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

    if (t->mode == GREP_FILES || t->mode == GREP_FILES_WITHOUT)
        return buf_addf(t->out, e, "%s\n", path);
    if (t->mode != GREP_LINES)
        return buf_addf(t->out, e, "%s:%" PRIu64 "\n", path, r->count);
    take_lines(t, path, r);
    return 0;
}

static int run_files(struct question *q, int fd, struct notes *notes, struct buf *out,
                     struct err *e)
{
    const struct glob_sink sink = {.found = take_path, .arg = out};
    struct glob_result res;
    int r;

    q->glob.tree = q->o.tree;
    q->glob.order = q->o.order;
    q->glob.extensions = q->extensions;
    r = glob_run(fd, &q->glob, &plain, &sink, notes, &res, e);
    free(res.last.below);
    return r;
}

static int run_lines(struct question *q, int fd, struct notes *notes, struct buf *out,
                     struct err *e)
{
    struct taker taker = {out, q->o.grep.mode, q->o.grep.only_matching, q->o.grep.multiline};
    const struct search_sink sink = {.result = take_result, .arg = &taker};
    struct search_result res;
    int r;

    q->o.match.more = (char *const *)(uintptr_t)q->more;
    q->o.match.groups = q->o.grep.replace;
    r = search_run(fd, &q->o, &plain, &sink, notes, &res, e);
    free(res.last.below);
    return r;
}

static void run_own(struct question *q, bool grep, struct buf *out)
{
    static struct notes notes;
    _cleanup_close_ int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err e = {0};

    T_OK(fd >= 0);
    notes_init(&notes);
    q->o.tree.globs = q->globs;
    q->o.tree.iglobs = q->iglobs;
    q->o.tree.exclude = q->exclude;
    q->o.tree.types = q->types;
    q->o.tree.type_not = q->type_not;
    if (grep)
        (void)run_lines(q, fd, &notes, out, &e); /* a glob that is not valid is refused by both */
    else
        (void)run_files(q, fd, &notes, out, &e);
    T_OK(notes.total == 0 || q->o.tree.follow); /* links to nowhere, and loops */
    notes_done(&notes);
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

static void quote(struct buf *b, const char *s)
{
    T_OK(buf_adds(b, " '", NULL) == 0);
    for (; *s; s++)
        T_OK(*s == '\'' ? buf_adds(b, "'\\''", NULL) == 0 : buf_add(b, s, 1, NULL) == 0);
    T_OK(buf_adds(b, "'", NULL) == 0);
}

/* What to run by hand, in the tree, to see the peer's answer. */
static void print_command(const struct question *q, unsigned number)
{
    struct buf command = {.max = OUT_MAX};

    for (size_t i = 0; i < q->n; i++)
        quote(&command, q->args[i]);
    (void)fprintf(stderr, "# case %u in %s: HOME=%s XDG_CONFIG_HOME= TZ=UTC %s%s\n", number,
                  getenv("PWD"), getenv("HOME"), q->is_fd ? "fdfind" : "rg", command.data);
    buf_done(&command);
}

static void compare(const struct question *q, const struct buf *own, const struct buf *peer,
                    unsigned number)
{
    const char *a = own->len ? own->data : "", *b = peer->len ? peer->data : "";

    if ((own->len == peer->len && memcmp(a, b, own->len) == 0) || may_differ(q))
        return;
    print_command(q, number);
    (void)fprintf(stderr, "# ours:\n%s\n# theirs:\n%s\n", a, b);
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

static uint64_t from_env(const char *name, uint64_t or_else)
{
    const char *s = getenv(name);
    uint64_t n = or_else;

    if (s)
        T_OK(str_parse_u64(s, 0, UINT64_MAX, &n, NULL) == 0);
    return n;
}

/* A new tree, and the working directory somewhere in it. */
static void enter_tree(const char *top, unsigned number, bool with_rgignore)
{
    char path[512];

    odd = (struct oddities){0};
    (void)snprintf(path, sizeof(path), "%s/%u", top, number);
    (void)mkdir(path, 0755);
    T_OK(chdir(path) == 0);
    (void)mkdir("home", 0755);
    (void)mkdir("home/.config", 0755);
    (void)mkdir("home/.config/git", 0755);
    if (chance(30))
        make_rules("home/.config/git/ignore");
    make_tree("tree", 0, chance(25) ? 4 : 2, with_rgignore);
    T_OK(chdir("tree") == 0);
    if (chance(25))
        (void)chdir(ANY(dir_names));
}

typedef void (*case_fn)(struct question *q, unsigned number);

static void run_case(const char *home, const char *whole, case_fn fn, unsigned number)
{
    struct question q = {0};

    q.o.tree = (struct tree_options){.shown = "",
                                     .whole = whole,
                                     .home = home,
                                     .max_depth = UINT32_MAX,
                                     .max_filesize = UINT64_MAX,
                                     .n_workers = TREE_MAX_WORKERS};
    q.glob = (struct glob_options){.files = true, .max_size = UINT64_MAX};
    q.o.grep.max_per_file = UINT64_MAX;
    fn(&q, number);
    question_done(&q);
}

static void run_cases(bool with_rgignore, case_fn fn)
{
    uint64_t least = from_env("SEARCH_DIFF_CASES", DEFAULT_CASES);
    int64_t until = clock_mono_ms() + 1000 * (int64_t)from_env("SEARCH_DIFF_SECONDS", 0);
    char top[256], home[512], whole[1024];
    unsigned n = 0;

    (void)setenv("XDG_CONFIG_HOME", "", 1);
    (void)setenv("TZ", "UTC", 1);
    random_state = from_env("SEARCH_DIFF_SEED", 20261122);
    T_OK(getcwd(top, sizeof(top)));
    for (; n < least || clock_mono_ms() < until; n++) {
        if (n % QUESTIONS == 0) {
            T_OK(chdir(top) == 0);
            (void)snprintf(whole, sizeof(whole), "%u", n / QUESTIONS - (n > 0));
            (void)nftw(whole, t_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
            enter_tree(top, n / QUESTIONS, with_rgignore);
            T_OK(getcwd(whole, sizeof(whole)));
            (void)setenv("PWD", whole, 1);
            (void)snprintf(home, sizeof(home), "%s/%u/home", top, n / QUESTIONS);
            (void)setenv("HOME", home, 1);
        }
        run_case(home, whole, fn, n);
    }
    T_OK(chdir(top) == 0);
    (void)fprintf(stderr, "# %u cases;", n);
    for (size_t i = 0; i < N_ELEMENTS(differences); i++)
        if (differences[i].n_seen)
            (void)fprintf(stderr, " %s %u times", differences[i].id, differences[i].n_seen);
    (void)fprintf(stderr, "\n");
}

/* Asks both and compares; sorted unless the order is part of the question. */
static void answer(struct question *q, bool grep, unsigned number)
{
    struct buf own = {.max = OUT_MAX}, peer = {.max = OUT_MAX};

    run_peer(q, &peer);
    run_own(q, grep, &own);
    if (q->o.order.by == ORDER_NONE) {
        sort_lines(&own);
        sort_lines(&peer);
    }
    compare(q, &own, &peer, number);
    buf_done(&own);
    buf_done(&peer);
}

static void files_case(struct question *q, unsigned number)
{
    ask(q, "--files");
    ask_tree(q);
    answer(q, false, number);
}

TEST(search_finds_the_files_that_rg_finds)
{
    require("rg", "ripgrep 13");
    run_cases(true, files_case);
}

static void ask_fd_pattern(struct question *q)
{
    static const char *const globs[] = {"*", "*.c", "a*",  "[ab]*", "*.{c,h}", "foo",
                                        "?", "**",  "*o*", "b*",    "{a,b}",   "*.txt"};
    static const char *const regexes[] = {"^a", "o+", "\\.c$", "b|x", "[a-f]{2}", "^\\.?e", "oo"};
    unsigned kind = pick(3);

    q->glob.kind = kind == 0 ? GLOB_GLOB : kind == 1 ? GLOB_REGEX : GLOB_FIXED;
    q->glob.pattern = kind == 0 ? ANY(globs) : kind == 1 ? ANY(regexes) : chance(50) ? "o" : ".c";
    ask(q, kind == 0 ? "--glob" : kind == 1 ? "--regex" : "--fixed-strings");
    if (chance(30)) {
        q->glob.letters = MATCH_INSENSITIVE;
        ask(q, "--ignore-case");
    } else {
        ask(q, "--case-sensitive");
    }
    if (chance(10)) {
        q->glob.full_path = true;
        ask(q, "--full-path");
    }
}

static void ask_fd_types(struct question *q)
{
    static const char *const names[] = {"f", "d", "l", "x", "e"};
    struct glob_options *g = &q->glob;
    unsigned type = pick(10);

    g->dirs = g->symlinks = g->others = true;
    if (type >= N_ELEMENTS(names))
        return;
    ask(q, "--type");
    ask(q, names[type]);
    g->files = type != 1 && type != 2;
    g->dirs = type == 1 || type == 4;
    g->symlinks = type == 2;
    g->others = false;
    g->executable = type == 3;
    g->empty = type == 4;
}

static void ask_fd_filters(struct question *q)
{
    static const char *const excludes[] = {"*.c", "a", "src/**", "build", "foo*"};
    struct glob_options *g = &q->glob;

    if (chance(15)) {
        const char *ext = chance(50) ? "c" : chance(50) ? "tar.gz" : "TXT";

        T_OK(strv_push(&q->extensions, ext, NULL) == 0);
        ask(q, "--extension");
        ask(q, ext);
    }
    if (chance(15)) {
        const char *glob = ANY(excludes);

        T_OK(strv_push(&q->exclude, glob, NULL) == 0);
        ask(q, "--exclude");
        ask(q, glob);
    }
    if (chance(10)) {
        bool least = chance(50);

        g->has_size = true;
        g->min_size = least ? 20 : 0;
        g->max_size = least ? UINT64_MAX : 20;
        ask(q, "--size");
        ask(q, least ? "+20b" : "-20b");
    }
    if (chance(10)) {
        bool before = chance(50);

        *(before ? &g->changed_before_ns : &g->changed_after_ns) = 1577836800000000000;
        ask(q, before ? "--changed-before" : "--changed-within");
        ask(q, "2020-01-01 00:00:00");
    }
    if (chance(15)) {
        q->o.tree.max_depth = 1 + pick(3);
        ask(q, "--max-depth");
        ask(q, q->o.tree.max_depth == 1 ? "1" : q->o.tree.max_depth == 2 ? "2" : "3");
    }
    if (chance(15)) {
        q->o.tree.min_depth = 2;
        ask(q, "--min-depth");
        ask(q, "2");
    }
}

static void fd_case(struct question *q, unsigned number)
{
    q->is_fd = true;
    ask(q, "--strip-cwd-prefix");
    if (chance(30)) {
        q->o.tree.hidden = true;
        ask(q, "--hidden");
    }
    if (chance(15)) {
        q->o.tree.no_ignore = true;
        ask(q, "--no-ignore");
    }
    if (chance(10)) {
        q->o.tree.follow = true;
        ask(q, "--follow");
    }
    ask_fd_types(q);
    ask_fd_filters(q);
    ask_fd_pattern(q);
    ask(q, "--");
    ask(q, q->glob.pattern);
    answer(q, false, number);
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

/* rg's own engine joins patterns by '|' as they are: a flag of one counts in those behind it. */
static bool may_have_more(const struct question *q, const char *pattern)
{
    return q->pcre || q->o.match.fixed || strncmp(pattern, "(?i)", 4) != 0;
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
    if (pcre && chance(10)) {
        ask(q, "--crlf");
        m->crlf = q->o.grep.crlf = true;
    }
    if (chance(3)) {
        ask(q, "-E");
        ask(q, "latin1");
        q->o.grep.encoding = WINDOW_LATIN1;
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
    static const struct {
        const char *option;
        enum grep_mode mode;
    } modes[] = {{"-c", GREP_COUNT},
                 {"-l", GREP_FILES},
                 {"--count-matches", GREP_COUNT_MATCHES},
                 {"--files-without-match", GREP_FILES_WITHOUT}};
    unsigned mode = pick(14);

    if (mode < N_ELEMENTS(modes)) {
        ask(q, modes[mode].option);
        q->o.grep.mode = modes[mode].mode;
    } else if (mode < 7 && !q->o.grep.invert) {
        if (mode != 5) {
            ask(q, "-o");
            q->o.grep.only_matching = true;
        }
        if (mode != 4 && !q->o.grep.multiline) {
            q->o.grep.replace = chance(50) ? "<$0>" : chance(50) ? "[${1}x]" : "$$-$2$";
            ask(q, "-r");
            ask(q, q->o.grep.replace);
        }
    } else if (chance(40)) {
        q->o.grep.before = pick(4);
        q->o.grep.after = pick(4);
        ask_count(q, "-B", q->o.grep.before);
        ask_count(q, "-A", q->o.grep.after);
    }
    if (!q->o.grep.multiline && chance(15)) {
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
    if (chance(10) && may_have_more(q, pattern)) {
        q->more[0] = chance(50) ? "bar" : "(x)";
        ask(q, "-e");
        ask(q, q->more[0]);
    }
    ask(q, ".");
    q->o.tree.shown = ".";
    q->o.match.pattern = pattern;
    q->o.match.len = strlen(pattern);
}

static void pcre_case(struct question *q, unsigned number)
{
    ask(q, "-P");
    q->pcre = true;
    ask_lines(q, ANY(patterns), true);
    answer(q, true, number);
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

static void common_case(struct question *q, unsigned number)
{
    ask_lines(q, ANY(common_patterns), false);
    answer(q, true, number);
}

TEST(search_finds_the_lines_that_rg_finds)
{
    require("rg", "ripgrep 13");
    run_cases(true, common_case);
}
