/* env: variables for boxes and commands, from options and files. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"

#define ENV_FILE_MAX_BYTES (256 * 1024)

/* "K" becomes "K=value of K here"; with must_be_bare, "K=V" is refused (it would be in argv). */
int cli_expand_env(char **list, const char *field, bool must_be_bare, char ***ret, struct err *e)
{
    int r = 0;

    for (; r == 0 && list && *list; list++) {
        _cleanup_free_ char *pair = NULL;
        const char *value;

        if (strchr(*list, '=') && must_be_bare)
            return err_field(e, ERR_INVALID, field,
                             "--%s takes a name only: a value would stand in the process list",
                             field);
        if (strchr(*list, '=')) {
            r = strv_push(ret, *list, e);
            continue;
        }
        value = getenv(*list);
        if (!value)
            return err_field(e, ERR_NOT_FOUND, field, "--%s: the variable '%.100s' is not set",
                             field, *list);
        if (asprintf(&pair, "%s=%s", *list, value) < 0)
            return err_oom(e);
        r = strv_push(ret, pair, e);
    }
    return r;
}

/* Lines "K=V"; empty lines and lines that start with # are skipped; values are taken as they are. */
int cli_read_env_file(const char *path, char ***ret, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    unsigned number = 0;
    int r = io_read_file(AT_FDCWD, path, ENV_FILE_MAX_BYTES, &text, NULL, e);

    if (r < 0)
        return err_at(e, r, "env-file");
    for (char *line = text, *next; r == 0 && line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        number++;
        if (!*line || *line == '#')
            continue;
        if (!strchr(line, '=') || *line == '=')
            return err_field(e, ERR_INVALID, "env-file", "'%s' line %u is not K=V", path, number);
        r = strv_push(ret, line, e);
    }
    return r;
}
