/* cmd_search: grep and glob, with the options and the output of rg and fd. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/grep_print.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"

#define SEARCH_MAX_PATHS 64

struct args {
    char **globs, **iglobs, **exclude, **types, **type_not, **type_add, **patterns, **extensions;
    const char *replace, *color, *sort, *sortr, *cursor, *encoding, *user;
    bool hidden, no_ignore, no_ignore_vcs, no_ignore_parent, follow, one_file_system;
    bool ignore_case, smart_case, case_sensitive, fixed, regex, word, line, invert;
    bool multiline, dotall, crlf, only_matching, files, without, count, count_matches, text, binary;
    bool heading, no_heading, line_number, no_line_number, column, byte_offset;
    bool with_filename, no_filename, null, pcre2, full_path;
    uint32_t context, before, after, max_count, max_depth, min_depth, max_columns, limit;
    uint64_t max_filesize, min_size, max_size;
    int64_t changed_within_ms;
};

#define O(name, letter, type, member, arg, help) \
    { \
        name, letter, type, offsetof(struct args, member), arg, help, NULL \
    }

struct search {
    struct cli *cli;
    const char *list_name; /* with --json: what the list is called */
    bool has_begun;        /* the document */
    json_t *end;
    uint64_t n_found;
    bool is_incomplete;
    char path_end;
    struct grep_print print;
};

/* ---- the request ---- */

static void set(json_t *o, const char *key, json_t *value)
{
    (void)json_object_set_new(o, key, value);
}

static void set_flag(json_t *o, const char *key, bool on)
{
    if (on)
        set(o, key, json_true());
}

static void set_text(json_t *o, const char *key, const char *s)
{
    if (s)
        set(o, key, json_string(s));
}

static void set_count(json_t *o, const char *key, uint64_t n)
{
    if (n)
        set(o, key, json_integer((json_int_t)n));
}

static void set_list(json_t *o, const char *key, char **list)
{
    json_t *a = list ? json_array() : NULL;

    if (!a)
        return;
    for (; *list; list++)
        (void)json_array_append_new(a, json_string(*list));
    set(o, key, a);
}

/* What both searches take. */
static json_t *common_params(const struct args *a)
{
    json_t *p = json_object();

    set_list(p, "globs", a->globs);
    set_list(p, "iglobs", a->iglobs);
    set_list(p, "exclude", a->exclude);
    set_list(p, "types", a->types);
    set_list(p, "type_not", a->type_not);
    set_list(p, "type_add", a->type_add);
    set_flag(p, "hidden", a->hidden);
    set_flag(p, "no_ignore", a->no_ignore);
    set_flag(p, "no_ignore_vcs", a->no_ignore_vcs);
    set_flag(p, "no_ignore_parent", a->no_ignore_parent);
    set_flag(p, "follow", a->follow);
    set_flag(p, "one_file_system", a->one_file_system);
    set_count(p, "max_depth", a->max_depth);
    set_count(p, "max_filesize", a->max_filesize);
    set_text(p, "sort", a->sortr ? a->sortr : a->sort);
    set_flag(p, "reverse", a->sortr != NULL);
    set_text(p, "cursor", a->cursor);
    set_text(p, "user", a->user);
    if (a->case_sensitive)
        set_text(p, "case", "sensitive");
    else if (a->ignore_case)
        set_text(p, "case", "insensitive");
    else if (a->smart_case)
        set_text(p, "case", "smart");
    return p;
}

/* ---- what comes ---- */

/* The document is printed as it comes: there is no bound to what is found. */
static void begin_json(struct search *s)
{
    if (!s->has_begun)
        (void)printf("{\"%s\":[", s->list_name);
    s->has_begun = true;
}

static void put_json(const json_t *v)
{
    char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

    cli_put_json(text ? text : "null");
    free(text);
}

static void put_json_item(struct search *s, const json_t *item)
{
    bool is_first = !s->has_begun;

    begin_json(s);
    if (!is_first)
        (void)putchar(',');
    put_json(item);
}

/* An error after the document has begun stands in it. */
static void end_json(struct search *s, const struct bh_error *failed)
{
    _cleanup_json_ json_t *error = failed ? cli_error_json(failed) : NULL;

    begin_json(s);
    (void)fputs("],\"end\":", stdout);
    put_json(s->end);
    if (failed) {
        (void)fputs(",\"error\":", stdout);
        put_json(error);
    }
    (void)puts("}");
}

static void take_item(struct search *s, json_t *item, bool is_match)
{
    s->n_found++;
    if (s->cli->json) {
        put_json_item(s, item);
    } else if (s->cli->quiet) {
        return;
    } else if (is_match) {
        grep_print_match(&s->print, item);
    } else {
        size_t len;
        _cleanup_free_ char *path = cli_bytes_of(json_object_get(item, "path"), &len);

        if (path && s->path_end)
            cli_put_name(path, len);
        else if (path)
            (void)fwrite(path, 1, len, stdout);
        (void)putchar(s->path_end);
    }
}

static int on_message(void *arg, const char *text)
{
    struct search *s = arg;
    json_t *msg = json_loads(text, JSON_ALLOW_NUL, NULL);
    json_t *match = json_object_get(msg, "match");
    json_t *file = json_object_get(msg, "file");

    if (match || file)
        take_item(s, match ? match : file, match != NULL);
    if (json_object_get(msg, "end")) {
        json_decref(s->end);
        s->end = json_incref(json_object_get(msg, "end"));
    }
    json_decref(msg);
    return ferror(stdout); /* whoever read has gone */
}

/* What a search could not read is said, not hidden. */
static void warn_incomplete(struct search *s)
{
    json_t *more = json_object_get(s->end, "incomplete_more"), *entry;
    size_t i;

    json_array_foreach (json_object_get(s->end, "incomplete"), i, entry) {
        size_t len;
        _cleanup_free_ char *path = cli_bytes_of(json_object_get(entry, "path"), &len);
        json_t *error = json_object_get(entry, "error");

        s->is_incomplete = true;
        cli_warn(s->cli, "%s: %s", path ? path : "?",
                 json_is_string(error) ? json_string_value(error) : "not searched");
    }
    if (json_integer_value(more) > 0)
        cli_warn(s->cli, "and %lld more", (long long)json_integer_value(more));
    if (json_is_true(json_object_get(s->end, "limit_reached")))
        cli_warn(s->cli, "there is more: the limit was reached");
}

/* One path; NULL: where commands start. */
static int search_path(struct search *s, struct bh_box *box, const char *method, json_t *params,
                       const char *path, bool has_more, struct bh_error *err)
{
    _cleanup_free_ char *text = NULL;
    int r;

    if (path)
        set(params, "path", jx_new_path(path[0] == ':' ? path + 1 : path));
    s->print.only = has_more ? NULL : path && path[0] == ':' ? path + 1 : path;
    text = json_dumps(params, JSON_COMPACT);
    if (!text)
        return cli_fail(err, BH_INVALID_ARGUMENT, "pattern", "the pattern is not valid UTF-8");
    r = bh_call(box, method, text, on_message, s, 0, NULL, err);
    if (r < 0 && ferror(stdout))
        return cli_fail(err, BH_ABORTED, "", "nobody reads the output any more");
    if (r == 0 && !s->cli->json)
        warn_incomplete(s);
    return r;
}

/* 0, 1 or 2 as rg has it; what is wrong with the box has a status of its own. */
static int status_of(struct search *s, int r, struct bh_error *err)
{
    bool is_path = r < 0 && strcmp(err->field, "path") == 0;

    if (r < 0 && s->has_begun) {
        end_json(s, err);
        return is_path ? EXIT_CLI_USAGE : cli_exit_for(err);
    }
    if (is_path) {
        cli_print_error(s->cli, err);
        return EXIT_CLI_USAGE;
    }
    if (r < 0)
        return r;
    if (s->cli->json)
        s->is_incomplete = json_array_size(json_object_get(s->end, "incomplete")) > 0;
    if (s->is_incomplete && !(s->cli->quiet && s->n_found))
        return EXIT_CLI_USAGE;
    return s->n_found ? EXIT_CLI_OK : EXIT_CLI_ERROR;
}

static int search(struct search *s, const char *box_name, const char *method, json_t *params,
                  const char *list_name, char **paths, struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    bool is_text = json_object_get(params, "pattern") || json_object_get(params, "patterns");
    int r = is_text
                ? cli_get_box(s->cli, box_name, &box, err)
                : cli_fail(err, BH_INVALID_ARGUMENT, "pattern", "the pattern is not valid UTF-8");

    s->list_name = list_name;
    if (r == 0)
        r = search_path(s, box, method, params, *paths, *paths && paths[1], err);
    for (char **p = paths; r == 0 && *p && p[1]; p++)
        r = search_path(s, box, method, params, p[1], true, err);
    if (r == 0 && s->cli->json)
        end_json(s, NULL);
    r = status_of(s, r, err);
    (void)fflush(stdout);
    json_decref(params);
    json_decref(s->end);
    grep_print_done(&s->print);
    return r;
}

/* ---- grep ---- */

static const char *const sorts[] = {"path", "modified", "accessed", "changed", "none", NULL};
static const char *const colors[] = {"auto", "always", "never", NULL};

static const struct cli_option grep_options[] = {
    O("regexp", 'e', CLI_LIST, patterns, "PATTERN", "search for this; may be given several times"),
    O("ignore-case", 'i', CLI_FLAG, ignore_case, NULL, "upper and lower case are the same"),
    O("smart-case", 'S', CLI_FLAG, smart_case, NULL, "... unless the pattern has upper case"),
    O("case-sensitive", 's', CLI_FLAG, case_sensitive, NULL, "upper and lower case differ"),
    O("fixed-strings", 'F', CLI_FLAG, fixed, NULL, "the pattern is text, not an expression"),
    O("word-regexp", 'w', CLI_FLAG, word, NULL, "only whole words"),
    O("line-regexp", 'x', CLI_FLAG, line, NULL, "only whole lines"),
    O("invert-match", 'v', CLI_FLAG, invert, NULL, "lines that do not match"),
    O("multiline", 'U', CLI_FLAG, multiline, NULL, "a match may span lines"),
    O("multiline-dotall", 0, CLI_FLAG, dotall, NULL, "with -U: . matches a line feed"),
    O("crlf", 0, CLI_FLAG, crlf, NULL, "a line may end with CR LF"),
    O("pcre2", 'P', CLI_FLAG, pcre2, NULL, "always so"),
    O("after-context", 'A', CLI_U32, after, "N", "N lines after each match"),
    O("before-context", 'B', CLI_U32, before, "N", "N lines before"),
    O("context", 'C', CLI_U32, context, "N", "N lines around"),
    O("max-count", 'm', CLI_U32, max_count, "N", "at most N matching lines of each file"),
    O("limit", 0, CLI_U32, limit, "N", "at most N matches in all"),
    O("only-matching", 'o', CLI_FLAG, only_matching, NULL, "only what matched of each line"),
    O("replace", 'r', CLI_STR, replace, "TEXT",
      "show matches as this ($1, ${name}); writes nothing"),
    O("files-with-matches", 'l', CLI_FLAG, files, NULL, "only the names of files that match"),
    O("files-without-match", 0, CLI_FLAG, without, NULL, "only the names of those that do not"),
    O("count", 'c', CLI_FLAG, count, NULL, "how many lines of each file match"),
    O("count-matches", 0, CLI_FLAG, count_matches, NULL, "how many matches each file has"),
    O("glob", 'g', CLI_LIST, globs, "GLOB", "only files that match (! in front: only others)"),
    O("iglob", 0, CLI_LIST, iglobs, "GLOB", "the same, in any case"),
    O("type", 't', CLI_LIST, types, "TYPE", "only files of this type, such as c, py, js"),
    O("type-not", 'T', CLI_LIST, type_not, "TYPE", "only files of other types"),
    O("type-add", 0, CLI_LIST, type_add, "T:GLOB", "a type of your own: web:*.{html,css}"),
    O("hidden", '.', CLI_FLAG, hidden, NULL, "hidden files too"),
    O("no-ignore", 0, CLI_FLAG, no_ignore, NULL, "ignored files too"),
    O("no-ignore-vcs", 0, CLI_FLAG, no_ignore_vcs, NULL, "what only git ignores too"),
    O("no-ignore-parent", 0, CLI_FLAG, no_ignore_parent, NULL,
      "without the ignore files of directories above"),
    O("follow", 'L', CLI_FLAG, follow, NULL, "follow symbolic links"),
    O("one-file-system", 0, CLI_FLAG, one_file_system, NULL, "stay on the file system"),
    O("max-depth", 'd', CLI_U32, max_depth, "N", "at most N directories deep"),
    O("max-filesize", 0, CLI_SIZE, max_filesize, "SIZE", "no larger files"),
    O("text", 'a', CLI_FLAG, text, NULL, "binary files as if they were text"),
    O("binary", 0, CLI_FLAG, binary, NULL, "say which binary files match"),
    O("encoding", 'E', CLI_STR, encoding, "E", "auto, none, utf-16le, utf-16be or latin1"),
    O("max-columns", 'M', CLI_U32, max_columns, "N", "cut lines after N bytes"),
    O("with-filename", 'H', CLI_FLAG, with_filename, NULL, "say the path, of a single file too"),
    O("no-filename", 'I', CLI_FLAG, no_filename, NULL, "say no path"),
    O("line-number", 'n', CLI_FLAG, line_number, NULL, "number the lines (always, but with -N)"),
    O("no-line-number", 'N', CLI_FLAG, no_line_number, NULL, "no line numbers"),
    O("column", 0, CLI_FLAG, column, NULL, "the column of the first match"),
    O("byte-offset", 'b', CLI_FLAG, byte_offset, NULL, "the offset of the line in its file"),
    O("heading", 0, CLI_FLAG, heading, NULL, "the path above its matches (default on a terminal)"),
    O("no-heading", 0, CLI_FLAG, no_heading, NULL, "the path before each match"),
    {"color", 0, CLI_STR, offsetof(struct args, color), "WHEN",
     "auto (default: on a terminal, unless NO_COLOR is set), always, never", colors},
    O("null", '0', CLI_FLAG, null, NULL, "a zero byte after each path"),
    {"sort", 0, CLI_STR, offsetof(struct args, sort), "KEY",
     "path (default on a terminal), modified, accessed, changed, none", sorts},
    {"sortr", 0, CLI_STR, offsetof(struct args, sortr), "KEY", "the same, backwards", sorts},
    O("cursor", 0, CLI_STR, cursor, "C", "go on after a --limit, from end.cursor of --json"),
    O("user", 'u', CLI_STR, user, "USER", "with the rights of this user of the box"),
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

static void set_mode(json_t *p, const struct args *a)
{
    const char *mode = a->files           ? "files"
                       : a->without       ? "files_without_match"
                       : a->count_matches ? "count_matches"
                       : a->count         ? a->only_matching ? "count_matches" : "count"
                                          : NULL;

    set_text(p, "mode", mode);
    if (!mode) {
        set_flag(p, "only_matching", a->only_matching);
        set_text(p, "replace", a->replace);
    }
}

static json_t *grep_params(const struct cli *c, const struct args *a)
{
    json_t *p = common_params(a);

    set_flag(p, "fixed", a->fixed);
    set_flag(p, "word", a->word);
    set_flag(p, "line", a->line);
    set_flag(p, "invert", a->invert);
    set_flag(p, "multiline", a->multiline || a->dotall);
    set_flag(p, "dotall", a->dotall);
    set_flag(p, "crlf", a->crlf);
    set_count(p, "context", a->context);
    set_count(p, "before", a->before);
    set_count(p, "after", a->after);
    set_count(p, "max_per_file", a->max_count);
    set_count(p, "max_count", c->quiet && !c->json ? 1 : a->limit);
    set_count(p, "max_columns", a->max_columns);
    set_text(p, "encoding", a->encoding);
    if (a->text || a->binary)
        set_text(p, "binary", a->text ? "text" : "report");
    set_mode(p, a);
    return p;
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
        .path_end = a->null ? '\0' : '\n',
        .with_filename = a->with_filename,
        .no_filename = a->no_filename,
    };
}

static int run_grep(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    struct args *a = args;
    char **paths = operands + (a->patterns ? 1 : 2);
    struct search s = {.cli = c, .print = print_options(c, a)};
    json_t *p;
    int r = one_of(a->color, colors, "color", err);

    if (r == 0 && !a->patterns && !operands[1])
        r = cli_fail(err, BH_INVALID_ARGUMENT, "operands", "too few arguments: bellhop grep %s",
                     cmd_grep.operands);
    if (r < 0)
        return r;
    /* The files of a tree are searched at once, and their matches come mixed. */
    if (s.print.heading && !a->sort && !a->sortr)
        a->sort = "path";
    p = grep_params(c, a);
    if (a->patterns)
        set_list(p, "patterns", a->patterns);
    else
        set(p, "pattern", json_string(operands[1]));
    return search(&s, operands[0], "Search/Grep", p, "matches", paths, err);
}

const struct cli_command cmd_grep = {
    .name = "grep",
    .group = "Files",
    .operands = "NAME PATTERN [PATH...]",
    .summary = "search the content of files in a box",
    .details =
        "By ripgrep's rules, with its options: what .gitignore names, hidden and binary files\n"
        "are left out. Patterns are Perl's (rg -P). In a pipe, lines are PATH:LINE:TEXT.\n"
        "Ends with 0 when something matched, 1 when nothing did, 2 when something could not\n"
        "be read or the pattern is wrong. With -q nothing is printed.",
    .examples = "  bellhop grep api TODO\n"
                "  bellhop grep api -t c -C 2 'struct \\w+ \\{' src\n"
                "  bellhop grep api -e FIXME -e XXX -g '!vendor/' --sort path\n"
                "  bellhop grep api -l --null -F 'old name' | xargs -0 -n1 echo\n"
                "  bellhop grep api 'foo(\\w+)' -r 'bar$1'      # a preview: nothing is changed\n",
    .options = grep_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 2 + SEARCH_MAX_PATHS,
    .flags = CLI_TAKES_BOX,
    .run = run_grep,
};

/* ---- glob ---- */

static const char *const kinds[] = {"file", "directory", "symlink", "executable", "empty", NULL};
static const char *const glob_sorts[] = {"path", "modified", "accessed", "changed",
                                         "size", "none",     NULL};

static const struct cli_option glob_options[] = {
    {"type", 't', CLI_LIST, offsetof(struct args, types), "TYPE",
     "file, directory, symlink, executable or empty (or f, d, l, x, e)", kinds},
    O("extension", 'e', CLI_LIST, extensions, "EXT", "only names that end so"),
    O("exclude", 'E', CLI_LIST, exclude, "GLOB", "leave these out"),
    O("glob", 'g', CLI_LIST, globs, "GLOB", "as grep -g: only those (! in front: only others)"),
    O("regex", 0, CLI_FLAG, regex, NULL, "the pattern is an expression"),
    O("fixed-strings", 'F', CLI_FLAG, fixed, NULL, "the pattern is text, anywhere in the name"),
    O("full-path", 'p', CLI_FLAG, full_path, NULL, "the pattern is for the whole path"),
    O("ignore-case", 'i', CLI_FLAG, ignore_case, NULL, "upper and lower case are the same"),
    O("smart-case", 'S', CLI_FLAG, smart_case, NULL, "... unless the pattern has upper case"),
    O("case-sensitive", 's', CLI_FLAG, case_sensitive, NULL, "upper and lower case differ"),
    O("hidden", 'H', CLI_FLAG, hidden, NULL, "hidden files too"),
    O("no-ignore", 'I', CLI_FLAG, no_ignore, NULL, "ignored files too"),
    O("no-ignore-vcs", 0, CLI_FLAG, no_ignore_vcs, NULL, "what only git ignores too"),
    O("no-ignore-parent", 0, CLI_FLAG, no_ignore_parent, NULL,
      "without the ignore files of directories above"),
    O("follow", 'L', CLI_FLAG, follow, NULL, "follow symbolic links"),
    O("one-file-system", 0, CLI_FLAG, one_file_system, NULL, "stay on the file system"),
    O("max-depth", 'd', CLI_U32, max_depth, "N", "at most N directories deep"),
    O("min-depth", 0, CLI_U32, min_depth, "N", "at least N"),
    O("min-size", 0, CLI_SIZE, min_size, "SIZE", "no smaller files"),
    O("max-size", 0, CLI_SIZE, max_size, "SIZE", "no larger files"),
    O("changed-within", 0, CLI_DURATION, changed_within_ms, "TIME", "changed in this time"),
    O("max-count", 'm', CLI_U32, limit, "N", "stop after N paths"),
    O("null", '0', CLI_FLAG, null, NULL, "a zero byte after each path"),
    {"sort", 0, CLI_STR, offsetof(struct args, sort), "KEY",
     "path, modified, accessed, changed, size or none", glob_sorts},
    {"sortr", 0, CLI_STR, offsetof(struct args, sortr), "KEY", "the same, backwards", glob_sorts},
    O("cursor", 0, CLI_STR, cursor, "C", "go on after -m, from end.cursor of --json"),
    O("user", 'u', CLI_STR, user, "USER", "with the rights of this user of the box"),
    {0},
};

/* "f" is "file", as fd has it. */
static json_t *kind_list(char **types)
{
    static const struct {
        const char *letter, *name;
    } letters[] = {{"f", "file"},    {"d", "directory"},  {"dir", "directory"},
                   {"l", "symlink"}, {"x", "executable"}, {"e", "empty"}};
    json_t *a = json_array();

    for (; *types; types++) {
        const char *name = *types;

        for (size_t i = 0; i < N_ELEMENTS(letters); i++)
            if (strcmp(*types, letters[i].letter) == 0)
                name = letters[i].name;
        (void)json_array_append_new(a, json_string(name));
    }
    return a;
}

static int run_glob(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    struct args *a = args;
    struct search s = {.cli = c, .path_end = a->null ? '\0' : '\n'};
    char **types = TAKE(a->types);
    json_t *p = common_params(a);

    if (types)
        set(p, "type", kind_list(types));
    strv_free(types);
    set(p, "pattern", json_string(operands[1]));
    if (a->regex || a->fixed)
        set_text(p, "kind", a->regex ? "regex" : "fixed");
    set_list(p, "extensions", a->extensions);
    set_flag(p, "full_path", a->full_path);
    set_count(p, "min_depth", a->min_depth);
    set_count(p, "min_size", a->min_size);
    set_count(p, "max_size", a->max_size);
    set_count(p, "changed_within_ms", (uint64_t)a->changed_within_ms);
    set_count(p, "limit", a->limit);
    return search(&s, operands[0], "Search/Glob", p, "files", operands + 2, err);
}

const struct cli_command cmd_glob = {
    .name = "glob",
    .group = "Files",
    .operands = "NAME PATTERN [PATH...]",
    .summary = "find files in a box by name",
    .details = "** crosses directories. What .gitignore names and hidden files are left out. The\n"
               "options are fd's. Ends with 1 when nothing matched.",
    .examples = "  bellhop glob api '**/*.c'\n"
                "  bellhop glob api -HI '.env*' /workspace\n"
                "  bellhop glob api -t f --changed-within 10m --sortr modified '*'\n"
                "  bellhop glob api --regex '^test_.*\\.py$' -0 | xargs -0 echo\n",
    .options = glob_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 2,
    .max_operands = 2 + SEARCH_MAX_PATHS,
    .flags = CLI_TAKES_BOX,
    .run = run_glob,
};
