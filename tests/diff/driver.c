/*
 * driver: the search modules behind a command line, for tests that compare with rg and fd. It
 * prints what those print: one path a line, or path:line:text.
 *
 *     driver files [OPTION...] [GLOB]
 *     driver grep [OPTION...] PATTERN
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/str.h"
#include "search/glob.h"
#include "search/search.h"

static int open_path(void *arg, const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK);

    (void)arg;
    return fd < 0 ? -errno : fd;
}

static const struct tree_access access_plain = {.open = open_path};

static int print_path(void *arg, const struct tree_entry *entry, struct err *e)
{
    (void)arg;
    (void)e;
    (void)puts(entry->path);
    return 0;
}

static void print_notes(struct notes *n)
{
    for (size_t i = 0; i < n->n; i++)
        (void)fprintf(stderr, "%s: %s\n", n->list[i].path, n->list[i].error);
}

static void die(const struct err *e)
{
    (void)fprintf(stderr, "driver: %s: %s (%s)\n", err_wire_name(e->code), e->message, e->field);
    exit(2);
}

static int run_files(int rootfd, const struct glob_options *o, struct notes *notes)
{
    const struct glob_sink sink = {.found = print_path};
    struct glob_result result;
    struct err e = {0};

    if (glob_run(rootfd, o, &access_plain, &sink, notes, &result, &e) < 0)
        die(&e);
    return result.n_files + result.n_dirs ? 0 : 1;
}

static void print_line(const char *path, char sep, const struct grep_line *l)
{
    (void)printf("%s%c%" PRIu64 "%c", path, sep, l->number, sep);
    (void)fwrite(l->text, 1, l->len, stdout);
    (void)putchar('\n');
}

/* The lines of a block, each with its number, as rg prints them. */
static void print_block(const char *path, const struct grep_line *l)
{
    struct grep_line one = {.text = l->text, .number = l->number};
    const char *end = l->text + l->len;

    for (;;) {
        const char *nl = memchr(one.text, '\n', (size_t)(end - one.text));

        one.len = (size_t)((nl ? nl : end) - one.text);
        print_line(path, ':', &one);
        if (!nl)
            return;
        one.text = nl + 1;
        one.number++;
    }
}

static void print_spans(const char *path, const struct grep_result *r)
{
    (void)printf("%s:%" PRIu64 ":%" PRIu64 ":", path, r->line.number, r->offset);
    for (size_t i = 0; i < r->n_spans; i++)
        (void)printf(" %zu-%zu", r->spans[i].start, r->spans[i].end);
    (void)putchar('\n');
}

struct printer {
    enum grep_mode mode;
    bool spans;
};

static int print_result(void *arg, const char *path, const struct grep_result *r, struct err *e)
{
    const struct printer *p = arg;

    (void)e;
    if (r->is_binary) {
        (void)printf("%s: binary\n", path);
    } else if (p->mode == GREP_FILES) {
        (void)puts(path);
    } else if (p->mode == GREP_COUNT) {
        (void)printf("%s:%" PRIu64 "\n", path, r->count);
    } else if (p->spans) {
        print_spans(path, r);
    } else {
        for (size_t i = 0; i < r->n_before; i++)
            print_line(path, '-', &r->before[i]);
        print_block(path, &r->line);
        for (size_t i = 0; i < r->n_after; i++)
            print_line(path, '-', &r->after[i]);
    }
    return 0;
}

static int run_grep(int rootfd, const struct search_options *o, bool spans, struct notes *notes)
{
    struct printer p = {.mode = o->grep.mode, .spans = spans};
    const struct search_sink sink = {.result = print_result, .arg = &p};
    struct search_result result;
    struct err e = {0};

    if (search_run(rootfd, o, &access_plain, &sink, notes, &result, &e) < 0)
        die(&e);
    return result.n_results ? 0 : 1;
}

static uint64_t number(const char *s)
{
    uint64_t n;

    if (str_parse_u64(s, 0, UINT64_MAX, &n, NULL) < 0)
        exit(2);
    return n;
}

/* One option; false when it is not known. */
static bool set_tree_option(int c, struct tree_options *t)
{
    switch (c) {
    case 'H':
        t->hidden = true;
        return true;
    case 'I':
        t->no_ignore = true;
        return true;
    case 'd':
        t->max_depth = (uint32_t)number(optarg);
        return true;
    case 'z':
        t->max_filesize = number(optarg);
        return true;
    default:
        return false;
    }
}

static bool set_match_option(int c, struct match_options *m)
{
    switch (c) {
    case 'i':
        m->letters = MATCH_INSENSITIVE;
        return true;
    case 'S':
        m->letters = MATCH_SMART;
        return true;
    case 'F':
        m->fixed = true;
        return true;
    case 'w':
        m->word = true;
        return true;
    case 'x':
        m->line = true;
        return true;
    case 'D':
        m->dotall = true;
        return true;
    default:
        return false;
    }
}

static bool set_grep_option(int c, struct grep_options *g)
{
    switch (c) {
    case 'v':
        g->invert = true;
        return true;
    case 'U':
        g->multiline = true;
        return true;
    case 'l':
        g->mode = GREP_FILES;
        return true;
    case 'c':
        g->mode = GREP_COUNT;
        return true;
    case 'b':
        g->binary = GREP_BINARY_TEXT;
        return true;
    case 'r':
        g->binary = GREP_BINARY_REPORT;
        return true;
    case 'm':
        g->max_per_file = number(optarg);
        return true;
    case 'B':
        g->before = (uint32_t)number(optarg);
        return true;
    case 'A':
        g->after = (uint32_t)number(optarg);
        return true;
    default:
        return false;
    }
}

int main(int argc, char **argv)
{
    static struct notes notes;
    char whole[4096], **globs = NULL, **types = NULL, **not = NULL;
    struct search_options o = {
        .grep = {.max_per_file = UINT64_MAX, .max_text = GREP_TEXT_MAX_BYTES}};
    struct glob_options glob = {.types = GLOB_FILE};
    const char *path = ".";
    bool spans = false;
    int c, fd, status = 2;

    if (argc < 2 || !getcwd(whole, sizeof(whole)))
        return 2;
    o.tree = (struct tree_options){.shown = "",
                                   .whole = whole,
                                   .home = getenv("HOME"),
                                   .max_depth = UINT32_MAX,
                                   .max_filesize = UINT64_MAX,
                                   .n_workers = TREE_MAX_WORKERS};
    optind = 2;
    while ((c = getopt(argc, argv, "HIsg:t:T:d:z:iSFwxDvUlcbrm:B:A:aof:")) != -1) {
        if (c == 's')
            o.order.by = glob.order.by = ORDER_PATH;
        else if (c == 'a')
            glob.types = 0; /* all */
        else if (c == 'o')
            spans = true;
        else if (c == 'f')
            o.tree.shown = path = optarg;
        else if (c == 'g')
            (void)strv_push(&globs, optarg, NULL);
        else if (c == 't')
            (void)strv_push(&types, optarg, NULL);
        else if (c == 'T')
            (void)strv_push(&not, optarg, NULL);
        else if (!set_tree_option(c, &o.tree) && !set_match_option(c, &o.match) &&
                 !set_grep_option(c, &o.grep))
            return 2;
    }
    o.tree.globs = globs;
    o.tree.types = types;
    o.tree.type_not = not ;
    o.match.multiline = o.grep.multiline;
    glob.tree = o.tree;
    glob.pattern = argv[optind];
    o.match.pattern = argv[optind];
    o.match.len = argv[optind] ? strlen(argv[optind]) : 0;
    notes_init(&notes);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 2;
    if (strcmp(argv[1], "files") == 0)
        status = run_files(fd, &glob, &notes);
    else if (o.match.pattern)
        status = run_grep(fd, &o, spans, &notes);
    print_notes(&notes);
    notes_done(&notes);
    strv_free(globs);
    strv_free(types);
    strv_free(not );
    (void)close(fd);
    return status;
}
