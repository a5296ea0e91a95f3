/*
 * Settings files: an accepted file is within its bounds, with the lines in order; written again in
 * the plainest form it reads as the same; an error names the file and one of its lines.
 * fuzz-flags: -max_len=2048
 */
#include "fuzz.h"

#include <inttypes.h>

#include "common/buf.h"
#include "lib/util/toml.h"

#define NAME "x.toml"

static void add(struct buf *b, const char *text)
{
    CHECK(buf_add(b, text, strlen(text), NULL) == 0);
}

static void add_string(struct buf *b, const char *text)
{
    char escape[8];

    add(b, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c < ' ' || c == 127 || c == '"' || c == '\\') {
            (void)snprintf(escape, sizeof(escape), "\\u%04X", c);
            add(b, escape);
        } else {
            CHECK(buf_add(b, text, 1, NULL) == 0);
        }
    }
    add(b, "\"");
}

static void write_value(struct buf *b, const struct toml_value *v)
{
    char number[32];

    /* Each part in quotes: a part may have any character but a dot. */
    for (const char *p = v->key; *p; p += strcspn(p, "."), p += *p == '.') {
        char part[TOML_MAX_KEY_BYTES];

        (void)snprintf(part, sizeof(part), "%.*s", (int)strcspn(p, "."), p);
        if (p != v->key)
            add(b, ".");
        add_string(b, part);
    }
    add(b, " = ");
    switch (v->type) {
    case TOML_STRING:
        add_string(b, v->text);
        break;
    case TOML_INTEGER:
        (void)snprintf(number, sizeof(number), "%" PRId64, v->number);
        add(b, number);
        break;
    case TOML_BOOLEAN:
        add(b, v->number ? "true" : "false");
        break;
    case TOML_LIST:
        add(b, "[");
        for (char **s = v->list; *s; s++) {
            add_string(b, *s);
            add(b, ",");
        }
        add(b, "]");
        break;
    }
    add(b, "\n");
}

static void check_same(const struct toml_value *a, const struct toml_value *b)
{
    CHECK(strcmp(a->key, b->key) == 0 && a->type == b->type);
    if (a->type == TOML_STRING)
        CHECK(strcmp(a->text, b->text) == 0);
    else if (a->type != TOML_LIST)
        CHECK(a->number == b->number);
    for (size_t i = 0; a->type == TOML_LIST && (a->list[i] || b->list[i]); i++)
        CHECK(a->list[i] && b->list[i] && strcmp(a->list[i], b->list[i]) == 0);
}

static void check_taken(const struct toml *t, size_t n_lines)
{
    struct buf b;
    struct toml again = {0};
    unsigned last = 0;

    buf_init(&b, 16 * TOML_MAX_BYTES);
    CHECK(t->n <= TOML_MAX_VALUES);
    for (size_t i = 0; i < t->n; i++) {
        const struct toml_value *v = &t->values[i];

        CHECK(v->key[0] && strnlen(v->key, sizeof(v->key)) < sizeof(v->key));
        CHECK(v->line >= 1 && v->line >= last && v->line <= n_lines);
        last = v->line;
        write_value(&b, v);
    }
    if (b.len > TOML_MAX_BYTES) {
        buf_done(&b);
        return;
    }
    CHECK(toml_parse(NAME, b.len ? b.data : "", b.len, &again, NULL) == 0 && again.n == t->n);
    for (size_t i = 0; i < t->n; i++)
        check_same(&t->values[i], &again.values[i]);
    toml_done(&again);
    buf_done(&b);
}

FUZZ(data, size)
{
    struct toml t = {0};
    struct err e = {0};
    size_t n_lines = 1;
    unsigned line = 0;
    int r = toml_parse(NAME, (const char *)data, size, &t, &e);

    for (size_t i = 0; i < size; i++)
        n_lines += data[i] == '\n';
    if (r == 0) {
        check_taken(&t, n_lines);
    } else {
        CHECK(r == -ERR_INVALID && e.code == ERR_INVALID && !t.n && !t.values);
        CHECK(sscanf(e.message, NAME ":%u: ", &line) == 1 && line >= 1 && line <= n_lines);
    }
    toml_done(&t);
    return 0;
}
