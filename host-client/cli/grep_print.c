#include "cli/grep_print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"

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

void grep_print_match(struct grep_print *g, json_t *m)
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

void grep_print_done(struct grep_print *g)
{
    free(TAKE(g->path));
}
