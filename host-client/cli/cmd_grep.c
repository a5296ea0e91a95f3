#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/search_run.h"
#include "common/cleanup.h"
#include "common/str.h"

/* ---- printing ---- */

/*
 * Matches as ripgrep prints them: with headings and colours on a terminal, PATH:LINE:TEXT in a
 * pipe, lines of context with dashes and `--` between groups.
 */
struct grep_print {
    bool color;
    bool heading;
    bool line_numbers;
    bool column;
    bool byte_offset;
    bool has_context;                /* print `--` between groups */
    char path_end;                   /* after a path on a line of its own: '\n', or '\0' */
    bool with_filename, no_filename; /* neither: unless the search is of one file */
    const char *only;                /* the only path of the search; or NULL */
    /* state: */
    char *path;
    uint64_t next_line; /* the line that continues the last group */
    bool has_printed;
};

#define COLOR_OFF "\033[0m"
#define COLOR_PATH "\033[0m\033[35m"
#define COLOR_LINE "\033[0m\033[32m"
#define COLOR_MATCH "\033[0m\033[1m\033[31m"

static void put_colored(const struct grep_print *g, const char *color, const char *s, size_t len)
{
    if (g->color && color)
        (void)fputs(color, stdout);
    cli_put_content(s, len);
    if (g->color && color)
        (void)fputs(COLOR_OFF, stdout);
}

/* A path that ends with a zero byte is for a program, and is not escaped. */
static void put_path(const struct grep_print *g)
{
    if (g->color)
        (void)fputs(COLOR_PATH, stdout);
    if (g->path_end)
        cli_put_name(g->path, strlen(g->path));
    else
        (void)fputs(g->path, stdout);
    if (g->color)
        (void)fputs(COLOR_OFF, stdout);
}

static void put_number(const struct grep_print *g, const char *color, uint64_t n, char mark)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
    put_colored(g, color, text, strlen(text));
    (void)putchar(mark);
}

/* The agent is not trusted: a negative number counts as 0. */
static uint64_t number_of(json_t *obj, const char *name)
{
    json_int_t n = json_integer_value(json_object_get(obj, name));

    return n > 0 ? (uint64_t)n : 0;
}

static bool says_path(const struct grep_print *g)
{
    if (g->with_filename || g->no_filename)
        return g->with_filename;
    return !g->only || strcmp(g->only, g->path) != 0;
}

/* Prints the separator and the heading when the next file begins. */
static void begin_file(struct grep_print *g, const char *path)
{
    if (g->path && strcmp(g->path, path) == 0)
        return;
    free(g->path);
    g->path = strdup(path);
    g->next_line = 0;
    if (!g->path || !g->heading)
        return;
    if (g->has_printed)
        (void)putchar('\n');
    if (says_path(g)) {
        put_path(g);
        (void)putchar(g->path_end);
    }
    g->has_printed = false;
}

static void begin_group(struct grep_print *g, uint64_t line)
{
    if (g->has_context && g->has_printed && line != g->next_line)
        (void)puts("--");
}

/* The fields before a line's text. */
struct head {
    uint64_t line;
    uint64_t column; /* 0: none */
    uint64_t offset;
    bool has_offset;
    char mark;
};

static void put_head(const struct grep_print *g, const struct head *h)
{
    if (!g->heading && says_path(g)) {
        put_path(g);
        (void)putchar(g->path_end ? h->mark : '\0');
    }
    if (g->line_numbers)
        put_number(g, COLOR_LINE, h->line, h->mark);
    if (g->column && h->column)
        put_number(g, NULL, h->column, h->mark);
    if (g->byte_offset && h->has_offset)
        put_number(g, NULL, h->offset, h->mark);
}

/* Prints text[from, to) with its matches in colour. */
static void put_text(const struct grep_print *g, const char *text, size_t from, size_t to,
                     json_t *spans)
{
    json_t *span;
    size_t i;

    json_array_foreach (spans, i, span) {
        size_t start = (size_t)json_integer_value(json_array_get(span, 0));
        size_t end = (size_t)json_integer_value(json_array_get(span, 1));

        start = start < from ? from : start > to ? to : start;
        end = end < start ? start : end > to ? to : end;
        put_colored(g, NULL, text + from, start - from);
        if (end > start)
            put_colored(g, COLOR_MATCH, text + start, end - start);
        from = end;
    }
    put_colored(g, NULL, text + from, to - from);
    (void)putchar('\n');
}

/* A match may span lines; each is printed as a line. */
static void put_lines(struct grep_print *g, struct head h, const char *text, size_t len,
                      json_t *spans)
{
    uint64_t offset = h.offset;
    size_t at = 0;

    begin_group(g, h.line);
    do {
        const char *end = memchr(text + at, '\n', len - at);
        size_t to = end ? (size_t)(end - text) : len;

        h.offset = offset + at;
        put_head(g, &h);
        put_text(g, text, at, to, spans);
        h.line++;
        at = to + 1;
    } while (at < len);
    g->next_line = h.line;
    g->has_printed = true;
}

static void put_context(struct grep_print *g, json_t *lines)
{
    json_t *line;
    size_t i;

    json_array_foreach (lines, i, line) {
        size_t len;
        _cleanup_free_ char *text = cli_bytes_of(line, &len);

        if (text)
            put_lines(g, (struct head){.line = number_of(line, "line"), .mark = '-'}, text, len,
                      NULL);
    }
}

static void put_match(struct grep_print *g, json_t *m)
{
    json_t *replaced = json_object_get(m, "replaced");
    json_t *spans = replaced ? NULL : json_object_get(m, "submatches");
    struct head h = {.line = number_of(m, "line"),
                     .column = number_of(m, "column"),
                     .offset = number_of(m, "offset"),
                     .has_offset = true,
                     .mark = ':'};
    size_t len;
    _cleanup_free_ char *text = cli_bytes_of(replaced ? replaced : m, &len);

    if (text)
        put_lines(g, h, text, len, spans);
}

static void put_count(const struct grep_print *g, uint64_t n)
{
    if (says_path(g)) {
        put_path(g);
        (void)putchar(g->path_end ? ':' : '\0');
    }
    (void)printf("%llu\n", (unsigned long long)n);
}

static void grep_print_match(struct grep_print *g, json_t *m)
{
    size_t len;
    _cleanup_free_ char *path = cli_bytes_of(json_object_get(m, "path"), &len);

    if (!path)
        return;
    if (json_object_get(m, "line")) {
        begin_file(g, path);
        put_context(g, json_object_get(m, "before"));
        put_match(g, m);
        put_context(g, json_object_get(m, "after"));
        return;
    }
    free(g->path);
    g->path = TAKE(path);
    if (json_is_true(json_object_get(m, "binary"))) {
        if (says_path(g))
            (void)printf("%s: ", cli_text(g->path));
        (void)printf("binary file matches (found \"\\0\" byte around offset %llu)\n",
                     (unsigned long long)number_of(m, "offset"));
    } else if (json_object_get(m, "count")) {
        put_count(g, number_of(m, "count"));
    } else {
        put_path(g);
        (void)putchar(g->path_end);
    }
}

static void grep_print_done(struct grep_print *g)
{
    free(TAKE(g->path));
}

/* ---- the command ---- */

struct args {
    struct search_args common;
    char **patterns;
    const char *replace, *color, *encoding;
    bool fixed, word, line, invert, multiline, dotall, crlf, pcre2, only_matching;
    bool files, without, count, count_matches, text, binary;
    bool heading, no_heading, line_number, no_line_number, column, byte_offset;
    bool with_filename, no_filename;
    uint32_t context, before, after, max_count, max_columns;
};

static const char *const sort_keys[] = {"path", "modified", "accessed", "changed", "none", NULL};
static const char *const color_words[] = {"auto", "always", "never", NULL};

static const struct cli_option grep_options[] = {
    CLI_OPT("regexp", 'e', CLI_LIST, patterns, "PATTERN", "search for this pattern; repeatable"),
    SEARCH_CASE_OPTIONS,
    CLI_OPT("fixed-strings", 'F', CLI_FLAG, fixed, NULL, "take the pattern as literal text"),
    CLI_OPT("word-regexp", 'w', CLI_FLAG, word, NULL, "match whole words only"),
    CLI_OPT("line-regexp", 'x', CLI_FLAG, line, NULL, "match whole lines only"),
    CLI_OPT("invert-match", 'v', CLI_FLAG, invert, NULL, "select lines that do not match"),
    CLI_OPT("multiline", 'U', CLI_FLAG, multiline, NULL, "a match may span lines"),
    CLI_OPT("multiline-dotall", 0, CLI_FLAG, dotall, NULL, "with -U: let . match a line feed"),
    CLI_OPT("crlf", 0, CLI_FLAG, crlf, NULL, "accept CR LF as a line end"),
    CLI_OPT("pcre2", 'P', CLI_FLAG, pcre2, NULL, "no effect: patterns are always PCRE2"),
    CLI_OPT("after-context", 'A', CLI_U32, after, "N", "show N lines after each match"),
    CLI_OPT("before-context", 'B', CLI_U32, before, "N", "show N lines before each match"),
    CLI_OPT("context", 'C', CLI_U32, context, "N", "show N lines before and after each match"),
    CLI_OPT("max-count", 'm', CLI_U32, max_count, "N", "stop after N matching lines in each file"),
    CLI_OPT("limit", 0, CLI_U32, common.limit, "N", "stop after N matches in total"),
    CLI_OPT("only-matching", 'o', CLI_FLAG, only_matching, NULL,
            "print only the matching part of each line"),
    CLI_OPT("replace", 'r', CLI_STR, replace, "TEXT",
            "print TEXT in place of each match ($1, ${name}); files stay unchanged"),
    CLI_OPT("files-with-matches", 'l', CLI_FLAG, files, NULL,
            "print only the paths of files with a match"),
    CLI_OPT("files-without-match", 0, CLI_FLAG, without, NULL,
            "print only the paths of files without a match"),
    CLI_OPT("count", 'c', CLI_FLAG, count, NULL, "print the number of matching lines of each file"),
    CLI_OPT("count-matches", 0, CLI_FLAG, count_matches, NULL,
            "print the number of matches in each file"),
    CLI_OPT("glob", 'g', CLI_LIST, common.globs, "GLOB",
            "search only files that match GLOB (!GLOB: that do not)"),
    CLI_OPT("iglob", 0, CLI_LIST, common.iglobs, "GLOB", "like --glob, ignoring case"),
    CLI_OPT("type", 't', CLI_LIST, common.types, "TYPE",
            "search only files of this type, such as c, py, js"),
    CLI_OPT("type-not", 'T', CLI_LIST, common.type_not, "TYPE", "skip files of this type"),
    CLI_OPT("type-add", 0, CLI_LIST, common.type_add, "T:GLOB", "define a type: web:*.{html,css}"),
    CLI_OPT("hidden", '.', CLI_FLAG, common.hidden, NULL, "include hidden files"),
    CLI_OPT("no-ignore", 0, CLI_FLAG, common.no_ignore, NULL, "include ignored files"),
    SEARCH_WALK_OPTIONS,
    CLI_OPT("max-filesize", 0, CLI_SIZE, common.max_filesize, "SIZE",
            "skip files larger than SIZE"),
    CLI_OPT("text", 'a', CLI_FLAG, text, NULL, "search binary files as text"),
    CLI_OPT("binary", 0, CLI_FLAG, binary, NULL, "report binary files that match"),
    CLI_OPT("encoding", 'E', CLI_STR, encoding, "E",
            "encoding of the files: auto, none, utf-16le, utf-16be or latin1"),
    CLI_OPT("max-columns", 'M', CLI_U32, max_columns, "N", "truncate lines after N bytes"),
    CLI_OPT("with-filename", 'H', CLI_FLAG, with_filename, NULL,
            "print paths, even if only one file is searched"),
    CLI_OPT("no-filename", 'I', CLI_FLAG, no_filename, NULL, "do not print paths"),
    CLI_OPT("line-number", 'n', CLI_FLAG, line_number, NULL, "print line numbers (default)"),
    CLI_OPT("no-line-number", 'N', CLI_FLAG, no_line_number, NULL, "do not print line numbers"),
    CLI_OPT("column", 0, CLI_FLAG, column, NULL, "print the column of the first match"),
    CLI_OPT("byte-offset", 'b', CLI_FLAG, byte_offset, NULL,
            "print the byte offset of each line in its file"),
    CLI_OPT("heading", 0, CLI_FLAG, heading, NULL,
            "print the path once above its matches (default on a terminal)"),
    CLI_OPT("no-heading", 0, CLI_FLAG, no_heading, NULL, "print the path before each match"),
    CLI_OPT_VALUES("color", 0, CLI_STR, color, "WHEN",
                   "auto (default: on a terminal, unless NO_COLOR is set), always, never",
                   color_words),
    CLI_OPT("null", '0', CLI_FLAG, common.null, NULL, "write a NUL byte after each path"),
    CLI_OPT_VALUES("sort", 0, CLI_STR, common.sort, "KEY",
                   "path (default on a terminal), modified, accessed, changed, none", sort_keys),
    CLI_OPT_VALUES("sortr", 0, CLI_STR, common.sortr, "KEY", "sort in descending order", sort_keys),
    CLI_OPT("cursor", 0, CLI_STR, common.cursor, "C",
            "resume after --limit, with end.cursor of the --json output"),
    CLI_OPT("user", 'u', CLI_STR, common.user, "USER",
            "search with the permissions of this user of the box"),
    {0},
};

static int one_of(const char *value, const char *const *values, const char *field,
                  struct bh_error *err)
{
    for (size_t i = 0; value && values[i]; i++)
        if (strcmp(value, values[i]) == 0)
            return 0;
    return value ? cli_fail(err, BH_INVALID_ARGUMENT, field,
                            "--%s: '%.60s' is not one of its values", field, value)
                 : 0;
}

static bool wants_color(const struct cli *c, const struct args *a)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    if (a->color && strcmp(a->color, "auto") != 0)
        return strcmp(a->color, "always") == 0;
    return c->tty_out && !(no && *no) && !(term && strcmp(term, "dumb") == 0);
}

static struct grep_print print_options(const struct cli *c, const struct args *a)
{
    return (struct grep_print){
        .color = wants_color(c, a),
        .heading = a->heading || (c->tty_out && !a->no_heading),
        .line_numbers = a->line_number || !a->no_line_number,
        .column = a->column,
        .byte_offset = a->byte_offset,
        .has_context = a->context || a->before || a->after,
        .path_end = a->common.null ? '\0' : '\n',
        .with_filename = a->with_filename,
        .no_filename = a->no_filename,
    };
}

static int on_match(void *arg, const struct bh_match *match)
{
    struct search_run *s = arg;
    json_t *m;

    s->n_found++;
    if (s->cli->json) {
        search_put_item(s, match->json);
    } else if (!s->cli->quiet) {
        m = json_loads(match->json, JSON_ALLOW_NUL, NULL);
        grep_print_match(s->print, m);
        json_decref(m);
    }
    return search_output_failed(s);
}

static int grep_path(struct search_run *s, struct bh_box *box, const struct bh_search_options *o,
                     bool is_only, struct bh_search_result *ret, struct bh_error *err)
{
    s->print->only = is_only ? o->path : NULL;
    return bh_grep(box, o, on_match, s, ret, err);
}

static void set_grep_options(const struct cli *c, const struct args *a, struct bh_search_options *o)
{
    o->mode = a->files           ? "files"
              : a->without       ? "files_without_match"
              : a->count_matches ? "count_matches"
              : a->count         ? a->only_matching ? "count_matches" : "count"
                                 : NULL;
    o->only_matching = a->only_matching && !o->mode;
    o->replace = o->mode ? NULL : a->replace;
    o->patterns = (const char *const *)a->patterns;
    o->fixed = a->fixed;
    o->word = a->word;
    o->line = a->line;
    o->invert = a->invert;
    o->multiline = a->multiline || a->dotall;
    o->dotall = a->dotall;
    o->crlf = a->crlf;
    o->context = a->context;
    o->before = a->before;
    o->after = a->after;
    o->max_per_file = a->max_count;
    o->limit = c->quiet && !c->json ? 1 : a->common.limit;
    o->max_columns = a->max_columns;
    o->encoding = a->encoding;
    o->binary = a->text ? "text" : a->binary ? "report" : NULL;
}

static int run_grep(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    struct args *a = args;
    char **paths = operands + (a->patterns ? 1 : 2);
    struct grep_print print = print_options(c, a);
    struct search_run s = {
        .cli = c, .list_name = "matches", .search_path = grep_path, .print = &print};
    struct bh_search_options o;
    int r = one_of(a->color, color_words, "color", err);

    if (r == 0 && !a->patterns && !operands[1])
        r = cli_fail(err, BH_INVALID_ARGUMENT, "operands", "too few arguments: bellhop grep %s",
                     cmd_grep.operands);
    if (r < 0)
        return r;
    /* The agent searches the files of a tree in parallel: without an order, their matches
     * interleave. */
    if (print.heading && !a->common.sort && !a->common.sortr)
        a->common.sort = "path";
    search_set_options(&a->common, &o);
    set_grep_options(c, a, &o);
    o.pattern = a->patterns ? NULL : operands[1];
    r = search_run(&s, operands[0], &o, paths, err);
    grep_print_done(&print);
    return r;
}

const struct cli_command cmd_grep = {
    .name = "grep",
    .group = "Files",
    .operands = "NAME PATTERN [PATH...]",
    .summary = "search the content of files in a box",
    .details =
        "The rules and options are ripgrep's. Ignored files (.gitignore), hidden files and binary\n"
        "files are skipped. Patterns are Perl-compatible (rg -P). In a pipe, each match is a line\n"
        "PATH:LINE:TEXT. The exit status is 0 if something matched, 1 if nothing did, and 2 if "
        "the\n"
        "pattern is invalid or something could not be read. With -q nothing is printed.",
    .examples = "  bellhop grep api TODO\n"
                "  bellhop grep api -t c -C 2 'struct \\w+ \\{' src\n"
                "  bellhop grep api -e FIXME -e XXX -g '!vendor/' --sort path\n"
                "  bellhop grep api -l --null -F 'old name' | xargs -0 -n1 echo\n"
                "  bellhop grep api 'foo(\\w+)' -r 'bar$1'      # a preview: nothing is changed\n",
    .options = grep_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 2 + SEARCH_MAX_PATHS,
    .flags = CLI_TAKES_BOX | CLI_AT_DAEMON,
    .run = run_grep,
};
