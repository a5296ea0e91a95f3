#pragma once
/*
 * ignore: decides which paths are hidden by .gitignore, .git/info/exclude, the user's global excludes,
 * .ignore and .rgignore, with ripgrep's precedence. A struct rules is one file's rules; a struct ignore is a
 * directory's view of all files that apply in it: its own, then its parents'. Both are immutable; struct
 * ignore has a refcount and may be shared between threads. No disk access: rulefiles reads the files.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

#define IGNORE_FILE_MAX_BYTES (1024 * 1024)
#define IGNORE_MAX_RULES 20000 /* of one file */

enum ignore_verdict {
    IGNORE_NONE, /* no rule matches */
    IGNORE_HIDE,
    IGNORE_KEEP, /* a '!' rule: shown, even if the name begins with a dot */
};

struct rules;

/* Parses the text of an ignore file. Like git and rg, skips a line that is not a valid glob. */
int rules_parse(const char *text, size_t len, struct rules **ret, struct err *e);

enum rules_kind {
    RULES_GLOBS,    /* ripgrep's -g: without a '!' a line selects, with one it hides */
    RULES_IGLOBS,   /* its --iglob: the same, ASCII letters in either case */
    RULES_EXCLUDES, /* fd's -E: as a glob with a '!' */
};

/* Appends globs to the rules of *r, which is created if it is NULL and there are any. Each glob must be
 * valid: else -ERR_INVALID with the field "field[i]"; *r stays the caller's. */
int rules_add_globs(struct rules **r, char *const *globs, enum rules_kind kind, const char *field,
                    struct err *e);
struct rules *rules_free(struct rules *r); /* accepts NULL; returns NULL */

/* path: relative to the rules' directory. The last rule that matches decides. NULL: no rules. */
enum ignore_verdict rules_match(const struct rules *r, const char *path, size_t len, bool is_dir);
/* The same for rules of rules_add_globs(): hidden also if there are rules that select, and none matches. */
enum ignore_verdict rules_match_globs(const struct rules *r, const char *path, size_t len,
                                      bool is_dir);

struct ignore;

/* The files that a directory may have, in order of precedence. */
enum ignore_file {
    IGNORE_FILE_RG, /* .rgignore */
    IGNORE_FILE_PLAIN,
    IGNORE_FILE_GIT,
    IGNORE_FILE_EXCLUDE,
    IGNORE_N_FILES,
};

struct ignore_dir {
    struct rules *files[IGNORE_N_FILES]; /* each may be NULL; taken */
    bool has_git;                        /* it has a .git */
    size_t skip; /* offset in a whole path of the part relative to this directory */
};

/* The view from a directory below `up` (NULL: the first). Takes the content of d, also on failure. */
int ignore_new_take(struct ignore *up, struct ignore_dir *d, struct ignore **ret, struct err *e);
struct ignore *ignore_ref(struct ignore *ig);   /* accepts NULL */
struct ignore *ignore_unref(struct ignore *ig); /* accepts NULL; returns NULL */

/*
 * path: the whole path of an entry of the directory that ig is the view from. `global`: the user's
 * excludes (may be NULL), matched from global_skip on.
 */
enum ignore_verdict ignore_match(const struct ignore *ig, const struct rules *global,
                                 size_t global_skip, const char *path, size_t len, bool is_dir);

/* The value of "excludesFile" in a git configuration, with "~" replaced by home; owned by the caller. NULL:
 * there is none, or no memory. */
char *ignore_excludes_file(const char *config, const char *home);
