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

static char *bytes_dup(const char *data, size_t len)
{
    char *copy = malloc(len + 1);

    if (!copy)
        return NULL;
    memcpy(copy, data, len);
    copy[len] = '\0';
    return copy;
}

int proc_spec_copy(const struct proc_spec *s, struct proc_spec *ret, struct err *e)
{
    struct proc_spec c = *s;
    bool is_whole = true;

#define COPY(member, fn, ...) \
    do { \
        c.member = s->member ? fn(s->member, ##__VA_ARGS__) : NULL; \
        is_whole = is_whole && !c.member == !s->member; \
    } while (0)
    COPY(id, strdup);
    COPY(argv, strv_dup);
    COPY(script, bytes_dup, s->script_len);
    COPY(env, strv_dup);
    COPY(cwd, strdup);
    COPY(user, strdup);
    COPY(stdin_data, bytes_dup, s->stdin_len);
    COPY(tag, strdup);
    COPY(note, strdup);
#undef COPY
    if (!is_whole) {
        proc_spec_done(&c);
        return err_oom(e);
    }
    *ret = c;
    return 0;
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
