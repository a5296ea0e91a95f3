#pragma once
/*
 * script: a script whose first line is "#!INTERPRETER [ARGUMENT]" runs as the kernel would run such
 * a file: INTERPRETER [ARGUMENT] FILE. The file has a name, because some interpreters (Node.js)
 * refuse a file without one; it belongs to the command's user and is removed when the command has
 * ended.
 */
#include <stddef.h>
#include <sys/types.h>

#include "common/err.h"

/* Longer than the kernel's limit of 255, so that no line is truncated silently. */
#define SCRIPT_LINE_MAX_BYTES 4096

/*
 * Appends the interpreter, and the argument as one word, to *argv. 1: done; 0: the script names no
 * interpreter and is for the shell. Trailing blanks are not part of the argument.
 */
int script_add_interpreter(const char *text, size_t len, char ***argv, struct err *e);

/*
 * Creates a file of this user, mode 0700, with the text. The caller removes it and frees the path.
 */
int script_write(const char *text, size_t len, uid_t uid, gid_t gid, char **ret_path,
                 struct err *e);
