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

/* ---- summary ---- */

static int summary_take_argv(struct proc_summary *s, char *const *argv, struct err *e)
{
    size_t bytes = 0, len;
    int r = 0;

    s->argv = calloc(1, sizeof(*s->argv));
    if (!s->argv)
        return err_oom(e);
    for (; r == 0 && *argv; argv++) {
        len = strlen(*argv);
        if (s->n_omitted == 0 && bytes + len < SUMMARY_ARGV_BYTES) {
            bytes += len + 1;
            r = strv_push(&s->argv, *argv, e);
        } else {
            s->n_omitted++;
            s->omitted_bytes += len;
        }
    }
    return r;
}

/* A UTF-8 character has at most three bytes after its first. */
static size_t cut_at_character(const char *text, size_t len, size_t max)
{
    size_t at = max;

    if (len <= max)
        return len;
    while (at > 0 && max - at < 3 && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    return ((unsigned char)text[at] & 0xc0) == 0x80 ? max : at;
}

static int summary_take_script(struct proc_summary *s, const struct proc_spec *spec, struct err *e)
{
    s->script_bytes = spec->script_len;
    s->script_len = cut_at_character(spec->script, spec->script_len, SUMMARY_SCRIPT_BYTES);
    s->script = bytes_dup(spec->script, s->script_len);
    return s->script ? 0 : err_oom(e);
}

int proc_summary_init(struct proc_summary *s, const struct proc_spec *spec, struct err *e)
{
    int r;

    *s = (struct proc_summary){0};
    r = spec->script ? summary_take_script(s, spec, e) : summary_take_argv(s, spec->argv, e);
    if (r < 0)
        proc_summary_done(s);
    return r;
}

void proc_summary_done(struct proc_summary *s)
{
    strv_free(s->argv);
    free(s->script);
    *s = (struct proc_summary){0};
}
