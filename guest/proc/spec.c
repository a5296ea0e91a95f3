#include "proc/spec.h"

#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "proc/journal.h"

#define ID_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-"

void proc_spec_init(struct proc_spec *s)
{
    *s = (struct proc_spec){
        .kill_grace_ms = SPEC_KILL_GRACE_MS,
        .umask = -1,
        .cols = 80,
        .rows = 24,
        .head_bytes = JOURNAL_HEAD_BYTES,
        .tail_bytes = JOURNAL_TAIL_BYTES,
    };
}

void proc_spec_used(struct proc_spec *s)
{
    s->argv = strv_free(s->argv);
    s->env = strv_free(s->env);
    free(TAKE(s->script));
    free(TAKE(s->stdin_data));
}

void proc_spec_done(struct proc_spec *s)
{
    proc_spec_used(s);
    free(s->id);
    free(s->cwd);
    free(s->user);
    free(s->tag);
    free(s->note);
    *s = (struct proc_spec){0};
}

int proc_spec_check_id(const char *id, struct err *e)
{
    size_t len = strlen(id);

    if (len == 0 || len > SPEC_ID_MAX_BYTES || strspn(id, ID_CHARACTERS) != len)
        return err_field(e, ERR_INVALID, "id",
                         "an id is 1 to %d letters, digits and '._:-' characters",
                         SPEC_ID_MAX_BYTES);
    return 0;
}
