#include "proc/startfile.h"

#include <fcntl.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"
#include "proc/environ.h"
#include "proc/registry.h"

int startfile_run(struct registry *reg, const char *path, const char *user, const char *workdir,
                  struct err *e)
{
    struct proc_spec spec;
    struct proc *p = NULL;
    bool is_new;
    int r;

    proc_spec_init(&spec);
    spec.default_user = user;
    spec.workdir = workdir;
    r = io_read_file(AT_FDCWD, path, STARTFILE_MAX_BYTES, &spec.script, &spec.script_len, e);
    if (r == 0 && !(spec.id = strdup(STARTFILE_ID)))
        r = err_oom(e);
    if (r < 0) {
        proc_spec_done(&spec);
        return err_wrap(e, r, "the start file '%s'", path);
    }
    r = registry_start(reg, &spec, &p, &is_new, e);
    proc_unref(p);
    return r < 0 ? err_wrap(e, r, "the start file '%s'", path) : 0;
}

int startfile_env(struct registry *reg, const char *path, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_strv_ char **lines = NULL;
    char *save = NULL;
    int r = io_read_file(AT_FDCWD, path, ENVIRON_MAX_BYTES, &text, NULL, e);

    for (char *line = r == 0 ? strtok_r(text, "\n", &save) : NULL; r == 0 && line;
         line = strtok_r(NULL, "\n", &save))
        r = strchr(line, '=') ? strv_push(&lines, line, e)
                              : err_set(e, ERR_INVALID, "'%.64s' is not NAME=VALUE", line);
    if (r == 0)
        r = environ_change(reg, false, NULL, lines, e);
    return r < 0 ? err_wrap(e, r, "the variables in '%s'", path) : 0;
}
