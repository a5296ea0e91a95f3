#pragma once
/*
 * types: file types by name, as ripgrep's -t and -T have them ("py" is *.py, "make" is Makefile
 * and *.mk, ...). The table is that of ripgrep 13. A struct types is a choice of some of them; it
 * does not change once made.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"
#include "search/ignore.h"

struct types;

/*
 * Names to select and names to leave out; "all" is every type. add: more types and globs for them,
 * "name:glob" or "name:include:type,...", as ripgrep's --type-add. Each may be NULL or empty; when
 * the first two are, *ret is NULL. An unknown name is -ERR_INVALID with field "types", "type_not"
 * or "type_add".
 */
int types_new(char *const *select, char *const *leave_out, char *const *add, struct types **ret,
              struct err *e);
struct types *types_free(struct types *t); /* accepts NULL; returns NULL */

/* Of a file's name (not a directory's). IGNORE_HIDE when types are selected and it has none. */
enum ignore_verdict types_match(const struct types *t, const char *name, size_t len);

/* Row i of the table: the globs are separated by spaces; NULL past the last row. */
const char *types_at(size_t i, const char **ret_globs);
