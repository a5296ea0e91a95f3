#pragma once
/*
 * types: file types by name, as in ripgrep's -t and -T ("py" is *.py, "make" is Makefile and *.mk, ...). The
 * table is that of ripgrep 13. A struct types is a selection of types; it is immutable.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"
#include "search/ignore.h"

struct types;

/*
 * select, leave_out: names of types; "all" is every type. add: additional types and globs, "name:glob" or
 * "name:include:type,...", as in ripgrep's --type-add. Each may be NULL or empty; if the first two are,
 * *ret is NULL. An unknown name is -ERR_INVALID with the field "types", "type_not" or "type_add".
 */
int types_new(char *const *select, char *const *leave_out, char *const *add, struct types **ret,
              struct err *e);
struct types *types_free(struct types *t); /* accepts NULL; returns NULL */

/* name: a file's (not a directory's). IGNORE_HIDE if types are selected and the name has none of them. */
enum ignore_verdict types_match(const struct types *t, const char *name, size_t len);

/* Row i of the table: the globs are separated by spaces; NULL past the last row. */
const char *types_at(size_t i, const char **ret_globs);
