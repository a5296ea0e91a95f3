#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/search_run.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"

struct args {
    struct search_args common;
    char **extensions;
    bool regex, fixed, full_path;
    uint32_t min_depth;
    uint64_t min_size, max_size;
    int64_t changed_within_ms;
};

static const char *const type_names[] = {"file",       "directory", "symlink",
                                         "executable", "empty",     NULL};
static const char *const sort_names[] = {"path", "modified", "accessed", "changed",
                                         "size", "none",     NULL};

static const struct cli_option glob_options[] = {
    CLI_OPT_VALUES("type", 't', CLI_LIST, common.types, "TYPE",
                   "file, directory, symlink, executable or empty (or f, d, l, x, e)", type_names),
    CLI_OPT("extension", 'e', CLI_LIST, extensions, "EXT", "match only names with this extension"),
    CLI_OPT("exclude", 'E', CLI_LIST, common.exclude, "GLOB", "exclude paths that match GLOB"),
    CLI_OPT("glob", 'g', CLI_LIST, common.globs, "GLOB",
            "list only paths that match GLOB (!GLOB: that do not)"),
    CLI_OPT("regex", 0, CLI_FLAG, regex, NULL, "take PATTERN as a regular expression"),
    CLI_OPT("fixed-strings", 'F', CLI_FLAG, fixed, NULL,
            "take PATTERN as literal text, found anywhere in the name"),
    CLI_OPT("full-path", 'p', CLI_FLAG, full_path, NULL, "match PATTERN against the whole path"),
    SEARCH_CASE_OPTIONS,
    CLI_OPT("hidden", 'H', CLI_FLAG, common.hidden, NULL, "include hidden files"),
    CLI_OPT("no-ignore", 'I', CLI_FLAG, common.no_ignore, NULL, "include ignored files"),
    SEARCH_WALK_OPTIONS,
    CLI_OPT("min-depth", 0, CLI_U32, min_depth, "N",
            "list only entries at least N directories deep"),
    CLI_OPT("min-size", 0, CLI_SIZE, min_size, "SIZE", "list only files of at least SIZE"),
    CLI_OPT("max-size", 0, CLI_SIZE, max_size, "SIZE", "list only files of at most SIZE"),
    CLI_OPT("changed-within", 0, CLI_DURATION, changed_within_ms, "TIME",
            "list only entries changed within TIME"),
    CLI_OPT("max-count", 'm', CLI_U32, common.limit, "N", "stop after N paths"),
    CLI_OPT("null", '0', CLI_FLAG, common.null, NULL, "write a NUL byte after each path"),
    CLI_OPT_VALUES("sort", 0, CLI_STR, common.sort, "KEY",
                   "path, modified, accessed, changed, size or none", sort_names),
    CLI_OPT_VALUES("sortr", 0, CLI_STR, common.sortr, "KEY", "sort in descending order",
                   sort_names),
    CLI_OPT("cursor", 0, CLI_STR, common.cursor, "C",
            "resume after -m, with end.cursor of the --json output"),
    CLI_OPT("user", 'u', CLI_STR, common.user, "USER",
            "search with the permissions of this user of the box"),
    {0},
};

/* fd's letters for types: "f" is "file". */
static const char *type_name(const char *word)
{
    static const struct {
        const char *letter, *type;
    } letters[] = {{"f", "file"},    {"d", "directory"},  {"dir", "directory"},
                   {"l", "symlink"}, {"x", "executable"}, {"e", "empty"}};

    for (size_t i = 0; i < N_ELEMENTS(letters); i++)
        if (str_eq(word, letters[i].letter))
            return letters[i].type;
    return word;
}

static int on_path(void *arg, const char *path, const char *type)
{
    struct search_run *s = arg;

    s->n_found++;
    if (s->cli->json) {
        _cleanup_json_ json_t *item =
            json_pack("{s:o, s:s}", "path", jx_new_path(path), "type", type);
        _cleanup_free_ char *text = item ? json_dumps(item, JSON_COMPACT) : NULL;

        search_put_item(s, text ? text : "null");
    } else if (!s->cli->quiet) {
        if (s->path_end)
            cli_put_name(path, strlen(path));
        else
            (void)fputs(path, stdout);
        (void)putchar(s->path_end);
    }
    return search_output_failed(s);
}

static int glob_path(struct search_run *s, struct bh_box *box, const struct bh_search_options *o,
                     bool is_only, struct bh_search_result *ret, struct bh_error *err)
{
    (void)is_only;
    return bh_glob(box, o, on_path, s, ret, err);
}

static int run_glob(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    struct search_run s = {.cli = c,
                           .list_name = "files",
                           .search_path = glob_path,
                           .path_end = a->common.null ? '\0' : '\n'};
    const char **types = NULL;
    struct bh_search_options o;
    size_t n = strv_len(a->common.types);
    int r;

    search_set_options(&a->common, &o);
    if (n) {
        types = calloc(n + 1, sizeof(*types));
        if (!types)
            return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
        for (size_t i = 0; i < n; i++)
            types[i] = type_name(a->common.types[i]);
        o.types = types;
    }
    o.pattern = operands[1];
    o.regex = a->regex;
    o.fixed = a->fixed;
    o.extensions = (const char *const *)a->extensions;
    o.full_path = a->full_path;
    o.min_depth = a->min_depth;
    o.min_size = a->min_size;
    o.max_size = a->max_size;
    o.changed_within_ms = a->changed_within_ms;
    o.limit = a->common.limit;
    r = search_run(&s, operands[0], &o, operands + 2, err);
    free(types);
    return r;
}

const struct cli_command cmd_glob = {
    .name = "glob",
    .group = "Files",
    .operands = "NAME PATTERN [PATH...]",
    .summary = "find files in a box by name",
    .details =
        "** matches across directories. Ignored files (.gitignore) and hidden files are skipped.\n"
        "The options are fd's. The exit status is 1 if nothing matched.",
    .examples = "  bellhop glob api '**/*.c'\n"
                "  bellhop glob api -HI '.env*' /workspace\n"
                "  bellhop glob api -t f --changed-within 10m --sortr modified '*'\n"
                "  bellhop glob api --regex '^test_.*\\.py$' -0 | xargs -0 echo\n",
    .options = glob_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 2,
    .max_operands = 2 + SEARCH_MAX_PATHS,
    .flags = CLI_TAKES_BOX | CLI_AT_DAEMON,
    .run = run_glob,
};
