#pragma once
/*
 * script: a script whose first line is "#!INTERPRETER [ARGUMENT]" runs as the kernel would run a file
 * that holds it: INTERPRETER [ARGUMENT] FILE. The file has a name, since some interpreters (Node.js)
 * refuse one without; it belongs to the command's user and is removed when the command has ended.
 */
#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"

/* Longer than the kernel's own limit (255): nothing is cut without a word. */
#define SCRIPT_LINE_MAX_BYTES 4096

/*
 * Appends the interpreter, and the argument as one word, to *argv. 1: done; 0: the script names none, and is
 * the shell's. Trailing blanks are no part of the argument.
 */
int script_add_interpreter(const char *text, size_t len, char ***argv, struct err *e);

/* A file 0700 of this user with the text. The caller removes it and frees the path. */
int script_write(const char *text, size_t len, uid_t uid, gid_t gid, char **ret_path,
                 struct err *e);
