#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/str.h"

#include "common/banned.h"

struct args {
    char **globs, **types;
    bool hidden, no_ignore, ignore_case, fixed, word, files, sort;
    uint32_t context, max_count, max_depth;
    const char *type;
};

#define O(name, letter, type, member, arg, help) \
    { \
        name, letter, type, offsetof(struct args, member), arg, help, NULL \
    }

struct search {
    struct cli *cli;
    json_t *found; /* with --json */
    json_t *end;
    uint64_t n_found;
};

static void set(json_t *o, const char *key, json_t *value)
{
    (void)json_object_set_new(o, key, value);
}

static json_t *strings(char **list)
{
    json_t *a = json_array();

    for (; list && *list; list++)
        (void)json_array_append_new(a, json_string(*list));
    return a;
}

/* What both searches take. */
static json_t *common_params(const struct args *a, char **operands)
{
    json_t *p = json_object();

    set(p, "pattern", json_string(operands[1]));
    if (operands[2])
        set(p, "path", json_string(operands[2]));
    if (a->hidden)
        set(p, "hidden", json_true());
    if (a->no_ignore)
        set(p, "no_ignore", json_true());
    if (a->max_depth)
        set(p, "max_depth", json_integer(a->max_depth));
    if (a->sort)
        set(p, "sort", json_string("path"));
    return p;
}

static void print_line(const struct cli *c, json_t *path, json_int_t line, char mark, json_t *text)
{
    if (c->tty_out)
        (void)fputs("\033[35m", stdout);
    cli_print_bytes(path);
    if (c->tty_out)
        (void)fputs("\033[0m", stdout);
    (void)printf("%c%lld%c", mark, (long long)line, mark);
    cli_print_bytes(text);
    (void)fputc('\n', stdout);
}

static void print_context(const struct cli *c, json_t *path, json_int_t first, json_t *lines)
{
    json_t *text;
    size_t i;

    json_array_foreach (lines, i, text) {
        print_line(c, path, first + (json_int_t)i, '-', text);
    }
}

static void print_match(const struct cli *c, json_t *m)
{
    json_t *path = json_object_get(m, "path");
    json_t *before = json_object_get(m, "before");
    json_int_t line = json_integer_value(json_object_get(m, "line"));

    if (!json_object_get(m, "line")) {
        cli_print_bytes(path);
        (void)fputc('\n', stdout);
        return;
    }
    print_context(c, path, line - (json_int_t)json_array_size(before), before);
    print_line(c, path, line, ':', m);
    print_context(c, path, line + 1, json_object_get(m, "after"));
}

static int on_message(void *arg, const char *text)
{
    struct search *s = arg;
    json_t *msg = json_loads(text, 0, NULL);
    json_t *match = json_object_get(msg, "match");
    json_t *file = json_object_get(msg, "file");
    json_t *item = match ? match : file;

    if (item)
        s->n_found++;
    if (item && s->cli->json) {
        (void)json_array_append(s->found, item);
    } else if (match) {
        print_match(s->cli, match);
    } else if (file) {
        cli_print_bytes(json_object_get(file, "path"));
        (void)fputc('\n', stdout);
    } else if (json_object_get(msg, "end")) {
        s->end = json_incref(json_object_get(msg, "end"));
    }
    json_decref(msg);
    return 0;
}

/* What a search could not read is said, not hidden. */
static void warn_incomplete(const struct cli *c, json_t *end)
{
    json_t *entry;
    size_t i;

    json_array_foreach (json_object_get(end, "incomplete"), i, entry) {
        size_t len;
        _cleanup_free_ char *path = cli_bytes_of(json_object_get(entry, "path"), &len);
        json_t *error = json_object_get(entry, "error");

        if (!json_is_string(error))
            error = json_object_get(error, "message");
        cli_warn(c, "%s: %s", path ? path : "?",
                 json_is_string(error) ? json_string_value(error) : "not searched");
    }
    if (json_is_true(json_object_get(end, "limit_reached")))
        cli_warn(c, "there is more: the limit was reached");
}

static int search(struct cli *c, const char *box_name, const char *method, json_t *params,
                  const char *list_name, struct bh_error *err)
{
    struct search s = {.cli = c, .found = json_array()};
    _cleanup_free_ char *text = json_dumps(params, JSON_COMPACT);
    _cleanup_box_ struct bh_box *box = NULL;
    int r;

    json_decref(params);
    if (!text)
        r = cli_fail(err, BH_INVALID_ARGUMENT, "pattern", "the pattern is not valid UTF-8");
    else
        r = cli_get_box(c, box_name, &box, err);
    if (r == 0)
        r = bh_call(box, method, text, on_message, &s, 0, NULL, err);
    if (r == 0 && c->json)
        r = cli_print_json_take(json_pack("{s:O, s:O?}", list_name, s.found, "end", s.end));
    else if (r == 0)
        warn_incomplete(c, s.end);
    if (r == 0 && !s.n_found)
        r = EXIT_CLI_ERROR;
    json_decref(s.found);
    json_decref(s.end);
    return r;
}

static const struct cli_option grep_options[] = {
    O("ignore-case", 'i', CLI_FLAG, ignore_case, NULL, "upper and lower case are the same"),
    O("fixed-strings", 'F', CLI_FLAG, fixed, NULL, "the pattern is text, not an expression"),
    O("word", 'w', CLI_FLAG, word, NULL, "only whole words"),
    O("files-with-matches", 0, CLI_FLAG, files, NULL, "only the names of files that match"),
    O("context", 'C', CLI_U32, context, "N", "show N lines around each match"),
    O("max-count", 'm', CLI_U32, max_count, "N", "stop after N matches"),
    O("glob", 'g', CLI_LIST, globs, "GLOB", "only files that match (! in front: only others)"),
    O("type", 't', CLI_LIST, types, "TYPE", "only files of this type, such as c, py, js"),
    O("hidden", 0, CLI_FLAG, hidden, NULL, "hidden files too"),
    O("no-ignore", 0, CLI_FLAG, no_ignore, NULL, "ignored files too"),
    O("max-depth", 0, CLI_U32, max_depth, "N", "at most N directories deep"),
    O("sort", 0, CLI_FLAG, sort, NULL, "by path"),
    {0},
};

static int run_grep(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    json_t *p = common_params(a, operands);

    if (a->globs)
        set(p, "globs", strings(a->globs));
    if (a->types)
        set(p, "types", strings(a->types));
    if (a->ignore_case)
        set(p, "case", json_string("insensitive"));
    if (a->fixed)
        set(p, "fixed", json_true());
    if (a->word)
        set(p, "word", json_true());
    if (a->files)
        set(p, "mode", json_string("files"));
    if (a->context)
        set(p, "context", json_integer(a->context));
    if (a->max_count)
        set(p, "max_count", json_integer(a->max_count));
    return search(c, operands[0], "Search/Grep", p, "matches", err);
}

const struct cli_command cmd_grep = {
    .name = "grep",
    .group = "Files",
    .operands = "NAME PATTERN [PATH]",
    .summary = "search the content of files in a box",
    .details = "By ripgrep's rules: what .gitignore names, hidden and binary files are left out.\n"
               "Ends with 1 when nothing matched. What could not be read is reported.",
    .examples = "  bellhop grep api TODO\n"
                "  bellhop grep api -t c -C 2 'struct \\w+ \\{' src\n",
    .options = grep_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 2,
    .max_operands = 3,
    .flags = CLI_TAKES_BOX,
    .run = run_grep,
};

static const char *const kinds[] = {"file", "directory", "symlink", NULL};

static const struct cli_option glob_options[] = {
    {"type", 't', CLI_STR, offsetof(struct args, type), "TYPE", "file, directory or symlink",
     kinds},
    O("hidden", 0, CLI_FLAG, hidden, NULL, "hidden files too"),
    O("no-ignore", 0, CLI_FLAG, no_ignore, NULL, "ignored files too"),
    O("max-depth", 0, CLI_U32, max_depth, "N", "at most N directories deep"),
    O("max-count", 'm', CLI_U32, max_count, "N", "stop after N paths"),
    O("sort", 0, CLI_FLAG, sort, NULL, "by path"),
    {0},
};

static int run_glob(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    json_t *p = common_params(a, operands);

    if (a->type)
        set(p, "type", json_string(a->type));
    if (a->max_count)
        set(p, "limit", json_integer(a->max_count));
    return search(c, operands[0], "Search/Glob", p, "files", err);
}

const struct cli_command cmd_glob = {
    .name = "glob",
    .group = "Files",
    .operands = "NAME PATTERN [PATH]",
    .summary = "find files in a box by name",
    .details = "** crosses directories. What .gitignore names and hidden files are left out.\n"
               "Ends with 1 when nothing matched.",
    .examples = "  bellhop glob api '**/*.c'\n"
                "  bellhop glob api --hidden --no-ignore '.env*' /workspace\n",
    .options = glob_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 2,
    .max_operands = 3,
    .flags = CLI_TAKES_BOX,
    .run = run_glob,
};
