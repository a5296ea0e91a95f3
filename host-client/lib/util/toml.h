#pragma once
/*
 * toml: parses a settings file into a flat list of values, each with its line. It knows the part
 * of TOML 1.0 that templates need: comments, tables, dotted and quoted keys, the four kinds of
 * strings, integers, booleans, lists of strings. Floats, dates, inline tables and arrays of tables
 * are refused by their line: no field of ours is one. (Debian's TOML libraries are C++ and would
 * make every user of libbellhop depend on the C++ runtime.)
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define TOML_MAX_BYTES (64 * 1024)
#define TOML_MAX_VALUES 256
#define TOML_MAX_KEY_BYTES 128 /* with its tables, dotted */

enum toml_type { TOML_STRING, TOML_INTEGER, TOML_BOOLEAN, TOML_LIST };

struct toml_value {
    char key[TOML_MAX_KEY_BYTES]; /* "bellhop.packages" */
    unsigned line;                /* from 1 */
    enum toml_type type;
    char *text;     /* a string, without NUL */
    int64_t number; /* an integer; a boolean is 0 or 1 */
    char **list;    /* a list, NULL-terminated */
    unsigned *list_lines;
};

struct toml_table {
    char key[TOML_MAX_KEY_BYTES];
    unsigned line;
};

struct toml {
    struct toml_value *values;
    size_t n;
    struct toml_table *tables; /* the names of their headers; none occurs twice */
    size_t n_tables;
};

/* `name` names the file in errors, which are ERR_INVALID and begin "name:LINE: ". */
int toml_parse(const char *name, const char *text, size_t len, struct toml *ret, struct err *e);
void toml_done(struct toml *t); /* accepts zeroed */

/* "a string", "a list of strings": for messages. */
const char *toml_type_name(enum toml_type type);
