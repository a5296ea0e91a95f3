#include "cli/search_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"

void search_set_options(const struct search_args *a, struct bh_search_options *o)
{
    *o = (struct bh_search_options){
        .size = sizeof(*o),
        .globs = (const char *const *)a->globs,
        .iglobs = (const char *const *)a->iglobs,
        .excludes = (const char *const *)a->exclude,
        .types = (const char *const *)a->types,
        .types_not = (const char *const *)a->type_not,
        .types_add = (const char *const *)a->type_add,
        .hidden = a->hidden,
        .no_ignore = a->no_ignore,
        .no_ignore_vcs = a->no_ignore_vcs,
        .no_ignore_parent = a->no_ignore_parent,
        .follow = a->follow,
        .one_file_system = a->one_file_system,
        .max_depth = a->max_depth,
        .max_filesize = a->max_filesize,
        .sort = a->sortr ? a->sortr : a->sort,
        .reverse = a->sortr != NULL,
        .cursor = a->cursor,
        .user = a->user,
        .letters = a->case_sensitive ? "sensitive"
                   : a->ignore_case  ? "insensitive"
                   : a->smart_case   ? "smart"
                                     : NULL,
        .keep_relative = true,
    };
}

/* ---- the document ---- */

/* The document is printed as results come, since their number is not bounded. */
static void begin_document(struct search_run *s)
{
    if (!s->has_begun)
        (void)printf("{\"%s\":[", s->list_name);
    s->has_begun = true;
}

void search_put_item(struct search_run *s, const char *json)
{
    if (s->has_begun)
        (void)putchar(',');
    begin_document(s);
    cli_put_json(json);
}

/* If the document has begun, an error becomes part of it. */
static void end_document(struct search_run *s, const struct bh_error *failed)
{
    _cleanup_json_ json_t *error = failed ? cli_error_json(failed) : NULL;
    _cleanup_free_ char *text = error ? json_dumps(error, JSON_COMPACT) : NULL;

    begin_document(s);
    (void)fputs("],\"end\":", stdout);
    cli_put_json(s->end ? s->end : "null");
    if (failed) {
        (void)fputs(",\"error\":", stdout);
        cli_put_json(text ? text : "null");
    }
    (void)puts("}");
}

/* ---- the search ---- */

/* Names each path that could not be read. */
static void warn_incomplete(const struct search_run *s)
{
    _cleanup_json_ json_t *end = json_loads(s->end, JSON_ALLOW_NUL, NULL);
    json_t *more = json_object_get(end, "incomplete_more"), *entry;
    size_t i;

    json_array_foreach (json_object_get(end, "incomplete"), i, entry) {
        size_t len;
        _cleanup_free_ char *path = cli_bytes_of(json_object_get(entry, "path"), &len);
        json_t *error = json_object_get(entry, "error");

        cli_warn(s->cli, "%s: %s", path ? path : "?",
                 json_is_string(error) ? json_string_value(error) : "not searched");
    }
    if (json_integer_value(more) > 0)
        cli_warn(s->cli, "and %lld more", (long long)json_integer_value(more));
    if (json_is_true(json_object_get(end, "limit_reached")))
        cli_warn(s->cli, "the limit was reached; there are more results");
}

static int search_one(struct search_run *s, struct bh_box *box, struct bh_search_options *o,
                      const char *path, bool is_only, struct bh_error *err)
{
    struct bh_search_result result = {.size = sizeof(result)};
    int r;

    o->path = path && path[0] == ':' ? path + 1 : path;
    r = s->search_path(s, box, o, is_only, &result, err);
    if (s->sys)
        r = cli_fail(err, BH_ABORTED, "", "standard output was closed");
    free(result.cursor);
    if (!result.json)
        return r;
    free(s->end);
    s->end = result.json;
    s->is_incomplete |= result.incomplete > 0;
    if (r == 0 && !s->cli->json)
        warn_incomplete(s);
    return r;
}

/* 0, 1 or 2 as rg's; an error of the box has its own status. */
static int search_status(struct search_run *s, int r, struct bh_error *err)
{
    bool is_path = r < 0 && strcmp(err->field, "path") == 0;

    if (r < 0 && s->has_begun) {
        end_document(s, err);
        return is_path ? EXIT_CLI_USAGE : cli_exit_for(err);
    }
    if (is_path) {
        cli_print_error(s->cli, err);
        return EXIT_CLI_USAGE;
    }
    if (r < 0)
        return r;
    if (s->is_incomplete && !(s->cli->quiet && s->n_found))
        return EXIT_CLI_USAGE;
    return s->n_found ? EXIT_CLI_OK : EXIT_CLI_ERROR;
}

bool search_output_failed(struct search_run *s)
{
    if (ferror(stdout) && !s->sys)
        s->sys = errno;
    return s->sys != 0;
}

/* The status for output that was lost: never 0 or 1, which tell whether something was found. */
static int search_end_output(struct search_run *s, int status, struct bh_error *err)
{
    if (fflush(stdout) != 0 && !s->sys)
        s->sys = errno;
    if (!s->sys)
        return status;
    if (s->sys == EPIPE) {
        (void)cli_fail(err, BH_ABORTED, "", "standard output was closed");
    } else {
        errno = s->sys;
        (void)cli_fail(err, BH_UNKNOWN, "", "writing standard output: %m");
    }
    cli_warn(s->cli, "%s", err->message);
    return s->sys == EPIPE ? cli_exit_for(err) : EXIT_CLI_USAGE;
}

int search_run(struct search_run *s, const char *box_name, struct bh_search_options *o,
               char **paths, struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    int r = 0;

    if (o->pattern && !str_is_utf8(o->pattern, strlen(o->pattern)))
        r = cli_fail(err, BH_INVALID_ARGUMENT, "pattern", "the pattern is not valid UTF-8");
    if (r == 0)
        r = bh_get(s->cli->ctx, box_name, &box, err);
    if (r == 0)
        r = search_one(s, box, o, *paths, !*paths || !paths[1], err);
    for (char **p = paths; r == 0 && *p && p[1]; p++)
        r = search_one(s, box, o, p[1], false, err);
    if (r == 0 && s->cli->json)
        end_document(s, NULL);
    r = search_status(s, r, err);
    free(s->end);
    return search_end_output(s, r, err);
}
