#include "lib/image/template_words.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "common/str.h"

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

/* min to max bytes; the first is in `first`, the others in `first` or `rest`. */
static bool is_made_of(const char *word, size_t len, size_t max, const char *first,
                       const char *rest)
{
    if (!len || len > max || !strchr(first, word[0]))
        return false;
    for (size_t i = 1; i < len; i++)
        if (!strchr(first, word[i]) && !strchr(rest, word[i]))
            return false;
    return true;
}

static bool is_word(const char *word, size_t max, const char *first, const char *rest)
{
    return is_made_of(word, strlen(word), max, first, rest);
}

const char *word_text(const char *word)
{
    size_t n = strlen(word);

    for (size_t i = 0; i < n; i++)
        if (((unsigned char)word[i] < ' ' && !strchr("\t\n", word[i])) || word[i] == 0x7f)
            return "a text without control characters";
    return n && n < 4096 ? NULL : "a text of 1 to 4095 bytes";
}

const char *word_name(const char *word)
{
    return is_word(word, 63, LOWER DIGITS, "._-")
               ? NULL
               : "a name of a-z, 0-9, '.', '_' and '-', up to 63";
}

const char *word_version(const char *word)
{
    return is_word(word, 63, LOWER UPPER DIGITS, "._-+") ? NULL : "a version such as 1.0.0";
}

const char *word_suite(const char *word)
{
    return is_word(word, 31, LOWER, "-") ? NULL : "a suite of Debian";
}

const char *word_user(const char *word)
{
    return is_word(word, 31, LOWER "_", DIGITS "-") && strcmp(word, "root") != 0
               ? NULL
               : "a user's name (and not root)";
}

static bool is_path(const char *word)
{
    return word[0] == '/' && strlen(word) < 1024 && !strstr(word, "/../") &&
           !str_has_suffix(word, "/..") && !strpbrk(word, " \t\r\n\"'\\");
}

const char *word_dir(const char *word)
{
    return is_path(word) && word[1] && !strpbrk(word, "*?[") ? NULL
                                                             : "an absolute directory without '..'";
}

const char *word_glob(const char *word)
{
    return is_path(word) && word[1] ? NULL : "an absolute path or pattern";
}

/* NAME or NAME=VERSION */
const char *word_package(const char *word)
{
    size_t n = strcspn(word, "=");

    if (!is_made_of(word, n, 100, LOWER DIGITS, "+.-") || n < 2 ||
        (word[n] && !is_word(word + n + 1, 100, LOWER UPPER DIGITS, "+.:~-")))
        return "a package's name";
    return NULL;
}

/* [@SCOPE/]NAME[@VERSION] */
const char *word_npm(const char *word)
{
    const char *name = word;
    size_t n;

    if (*name == '@') {
        n = strcspn(++name, "/");
        if (!name[n] || !is_made_of(name, n, 100, LOWER UPPER DIGITS, "._-~"))
            return "a package of npm";
        name += n + 1;
    }
    n = strcspn(name, "@");
    if (!is_made_of(name, n, 200, LOWER UPPER DIGITS, "._-~") ||
        (name[n] && !is_word(name + n + 1, 60, LOWER UPPER DIGITS "^~", "._-+")))
        return "a package of npm";
    return NULL;
}

/* NAME[EXTRAS]==VERSION, with any comparisons. */
const char *word_pip(const char *word)
{
    return is_word(word, 200, LOWER UPPER DIGITS, "._-[],=<>!~*+") ? NULL : "a package of pip";
}

const char *word_agent(const char *word)
{
    return is_word(word, 100, LOWER UPPER DIGITS, "._-@+") ? NULL : "a coding agent's name";
}

const char *word_env(const char *word)
{
    size_t n = strcspn(word, "=");

    if (!word[n] || !is_made_of(word, n, 255, LOWER UPPER "_", DIGITS))
        return "NAME=VALUE";
    return strpbrk(word, "\r\n") ? "NAME=VALUE on one line" : NULL;
}
