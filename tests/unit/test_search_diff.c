/*
 * Random trees, ignore files, patterns and options: what the search modules find must be what
 * Debian's rg 13 finds (rg -P for lines) and what fdfind 8.6 does. The seed and the number of cases
 * are fixed, so that every run asks the same; SEARCH_DIFF_CASES (of each test) and SEARCH_DIFF_SEED
 * ask for more or others, SEARCH_DIFF_KEEP for a copy of the trees of wrong answers. Where the
 * answers may differ there is a row in ../diff/excuses.h, as in tests/diff/README.md: nothing else
 * may, and only the lines or files that the row is about.
 *
 * early (it is a long one)
 */
#define T_ALARM_S 1800
#include "test.h"

#include "../diff/excuses.h"
#include "../diff/patterns.h"
#include "../diff/peer.h"
#include "../diff/tree.h"

#define DEFAULT_CASES 300 /* of each test */
#define QUESTIONS 2       /* about one tree */
#define MAX_WRONG 10      /* so many are shown */

static unsigned n_wrong, n_silent;
static unsigned n_seen[N_DIFFERENCES];

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

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The order in which two workers find things is not compared. */
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

/* The command to run by hand, in the tree, to see the peer's answer. */
static void print_command(const struct question *q, unsigned number)
{
    struct buf command = {.max = OUT_MAX};

    for (size_t i = 0; i < q->n; i++)
        quote(&command, q->args[i]);
    (void)fprintf(stderr, "# case %u in %s: HOME=%s XDG_CONFIG_HOME= TZ=UTC %s%s\n", number,
                  getenv("PWD"), getenv("HOME"), q->is_fd ? "fdfind" : "rg", command.data);
    buf_done(&command);
}

/* Shows the lines from the first difference on; they may contain NUL bytes. */
static void print_from(const char *whose, const struct buf *b, size_t at)
{
    const char *text = b->len ? b->data : "", *end;

    while (at && text[at - 1] != '\n')
        at--;
    end = text + at;
    for (unsigned n = 0; n < 5 && end < text + b->len; n++) {
        const char *nl = memchr(end, '\n', b->len - (size_t)(end - text));

        end = nl ? nl + 1 : text + b->len;
    }
    (void)fprintf(stderr, "# %s:\n", whose);
    (void)fwrite(text + at, 1, (size_t)(end - text) - at, stderr);
    (void)fputc('\n', stderr);
}

/* SEARCH_DIFF_KEEP=DIR: the trees of wrong answers are copied there. */
static void keep_tree(unsigned number)
{
    const char *dir = getenv("SEARCH_DIFF_KEEP");
    char command[1024];

    if (!dir)
        return;
    (void)snprintf(command, sizeof(command), "cp -a . '%s/%u'", dir, number);
    T_OK(system(command) == 0);
}

/* From the first line that differs. */
static void print_difference(const struct buf *own, const struct buf *peer)
{
    size_t n = own->len < peer->len ? own->len : peer->len, same = 0;

    while (same < n && own->data[same] == peer->data[same])
        same++;
    print_from("ours", own, same);
    print_from("theirs", peer, same);
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
    q.glob = (struct glob_options){.types = GLOB_FILE, .max_size = UINT64_MAX};
    q.o.grep.max_per_file = UINT64_MAX;
    q.o.grep.max_text = GREP_TEXT_MAX_BYTES;
    fn(&q, number);
    question_done(&q);
}

static void run_cases(bool with_rgignore, case_fn fn)
{
    uint64_t n_cases = from_env("SEARCH_DIFF_CASES", DEFAULT_CASES);
    char top[256], home[512], whole[1024];
    unsigned n = 0;

    (void)setenv("XDG_CONFIG_HOME", "", 1);
    (void)setenv("TZ", "UTC", 1);
    random_state = from_env("SEARCH_DIFF_SEED", 20261122);
    T_OK(getcwd(top, sizeof(top)));
    for (; n < n_cases; n++) {
        if (n % QUESTIONS == 0) {
            T_OK(chdir(top) == 0);
            (void)snprintf(whole, sizeof(whole), "%u", n / QUESTIONS - (n > 0));
            if (!n_wrong) /* else it stays for inspection */
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
    T_INT(n_wrong, 0);
    (void)fprintf(stderr, "# %u cases;", n);
    for (unsigned i = 0; i < N_DIFFERENCES; i++)
        if (n_seen[i])
            (void)fprintf(stderr, " D%u %u times", i + 1, n_seen[i]);
    (void)fprintf(stderr, " no answer %u times\n", n_silent);
}

/* Bellhop reports invalid UTF-8 as it is; rg -P reports the replacement. */
static void replace_bad_text(struct buf *b)
{
    struct lossy l;

    if (str_is_utf8(b->data ? b->data : "", b->len))
        return;
    lossy_init(&l, OUT_MAX);
    T_OK(lossy_convert(&l, b->data, b->len, NULL) == 0);
    buf_done(b);
    *b = l.text;
    l.text = (struct buf){0};
    lossy_done(&l);
}

struct answers {
    struct buf own, peer;
    bool has_peer; /* it gave one */
};

static void answers_done(struct answers *a)
{
    buf_done(&a->own);
    buf_done(&a->peer);
}

/* Converts one answer into the form in which they are compared. */
static void normalise(const struct question *q, struct buf *b)
{
    if (!q->is_fd)
        clean_answer(q, b);
    if (q->pcre)
        replace_bad_text(b); /* rg reports parts of characters between empty matches */
    if (q->o.order.by == ORDER_NONE)
        sort_lines(b);
}

static void ask_own(struct question *q, bool grep, struct buf *out)
{
    *out = (struct buf){.max = OUT_MAX};
    run_own(q, grep, out);
    normalise(q, out);
}

static void ask_both(struct question *q, bool grep, struct answers *a)
{
    enum grep_mode mode = q->o.grep.mode;
    int fd;
    pid_t pid = start_peer(q, q->is_fd ? "fdfind" : "rg", &fd);

    *a = (struct answers){.peer = {.max = OUT_MAX}};
    ask_own(q, grep, &a->own);
    a->has_peer = read_peer(pid, fd, &a->peer);
    T_OK(a->has_peer || q->o.grep.multiline || q->o.grep.crlf);
    for (size_t i = 0; i < a->peer.len && (mode == GREP_FILES || mode == GREP_FILES_WITHOUT); i++)
        if (!a->peer.data[i])
            a->peer.data[i] = '\n'; /* with -0 nothing else ends a path in a list */
    normalise(q, &a->peer);
}

/* Are the answers equal, except for excused differences? Counts the rows that excuse something. */
static bool agree(struct question *q, const struct answers *a)
{
    struct excuses x = {0};
    struct buf by_line;
    bool ok;

    if (is_same(&a->own, &a->peer) || !q->o.match.pattern)
        return is_same(&a->own, &a->peer);
    ok = parts_agree(q, &a->own, &a->peer, &x);
    if (!ok && counts_lines(q)) { /* D6: rg's answer equals Bellhop's without -U */
        struct question lines = *q;

        lines.by_line_for_rg = true;
        lines.o.grep.multiline = lines.o.match.multiline = lines.o.match.dotall = false;
        ask_own(&lines, true, &by_line);
        x = (struct excuses){.used = {[D6] = true}};
        ok = is_same(&by_line, &a->peer) || parts_agree(&lines, &by_line, &a->peer, &x);
        buf_done(&by_line);
    }
    for (size_t i = 0; ok && i < N_DIFFERENCES; i++)
        n_seen[i] += x.used[i];
    if (ok && (x.used[D8] || x.used[D9] || x.used[D10])) {
        /* Even where rg 13 is wrong, the lines themselves are the same. */
        struct question plain_q;
        struct answers plain_a;

        question_without_extras(q, &plain_q);
        ask_both(&plain_q, true, &plain_a);
        ok = !plain_a.has_peer || agree(&plain_q, &plain_a);
        if (!ok)
            (void)fprintf(stderr, "# it is the lines themselves that differ:\n");
        answers_done(&plain_a);
        question_args_done(&plain_q);
    }
    return ok;
}

/* Asks both and compares the answers, sorted unless the order is part of the question. */
static void answer(struct question *q, bool grep, unsigned number)
{
    struct answers a;

    ask_both(q, grep, &a);
    if (!a.has_peer) {
        n_silent++;
    } else if (!agree(q, &a)) {
        print_command(q, number);
        print_difference(&a.own, &a.peer);
        keep_tree(number);
        T_OK(++n_wrong < MAX_WRONG);
    }
    answers_done(&a);
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
    static const unsigned types[] = {GLOB_FILE, GLOB_DIR, GLOB_SYMLINK, GLOB_EXECUTABLE,
                                     GLOB_EMPTY};
    struct glob_options *g = &q->glob;
    unsigned type = pick(10);

    g->types = 0;
    if (type >= N_ELEMENTS(names))
        return;
    ask(q, "--type");
    ask(q, names[type]);
    g->types = types[type];
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

        g->min_size = least ? 20 : 0;
        g->max_size = least ? UINT64_MAX : 20;
        ask(q, "--size");
        ask(q, least ? "+20b" : "-20b");
    }
    if (chance(10)) {
        bool before = chance(50);

        *(before ? &g->changed_before_ms : &g->changed_after_ms) = 1577836800000;
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

static void ask_count(struct question *q, const char *option, unsigned n)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%u", n);
    ask(q, option);
    ask(q, text);
}

static void ask_match(struct question *q)
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
    if (chance(15)) {
        ask(q, "-w");
        m->word = true;
    } else if (chance(10)) {
        ask(q, "-x");
        m->line = true;
    }
    if (chance(10)) {
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
    }
    if (chance(20)) {
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
        if (mode != 4) {
            q->o.grep.replace = chance(50) ? "<$0>" : chance(50) ? "[${1}x]" : "$$-$2$";
            ask(q, "-r");
            ask(q, q->o.grep.replace);
        }
    }
    if (chance(30)) {
        q->o.grep.before = pick(4);
        q->o.grep.after = pick(4);
        ask_count(q, "-B", q->o.grep.before);
        ask_count(q, "-A", q->o.grep.after);
    }
    if (chance(15)) {
        q->o.grep.max_per_file = 1 + pick(3);
        ask_count(q, "-m", (unsigned)q->o.grep.max_per_file);
    }
    if (chance(15)) {
        q->o.grep.binary = GREP_BINARY_TEXT;
        ask(q, "-a");
    }
}

static void ask_lines(struct question *q, const char *pattern)
{
    static const char *const fixed[] = {
        "-n", "-0", "--no-heading", "--sort", "path", "--no-context-separator", "--no-messages"};

    for (size_t i = 0; i < N_ELEMENTS(fixed); i++)
        ask(q, fixed[i]);
    q->o.order.by = ORDER_PATH;
    ask_tree(q);
    ask_match(q);
    ask_output(q);
    ask(q, "-e");
    ask(q, pattern);
    if (chance(10)) {
        q->more[0] = chance(40) ? "bar" : chance(50) ? "(x)" : "(?i)K|^t";
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
    ask_lines(q, ANY(patterns));
    answer(q, true, number);
}

TEST(search_finds_the_lines_that_rg_finds_with_pcre2)
{
    require("rg", "ripgrep 13");
    run_cases(true, pcre_case);
}

static void common_case(struct question *q, unsigned number)
{
    ask_lines(q, ANY(common_patterns));
    answer(q, true, number);
}

TEST(search_finds_the_lines_that_rg_finds)
{
    require("rg", "ripgrep 13");
    run_cases(true, common_case);
}
