#include "proc/words.h"

#include <stdlib.h>
#include <string.h>

#include "common/str.h"

static int take_argv(struct words *w, char *const *argv, struct err *e)
{
    size_t bytes = 0, len;
    int r = 0;

    w->argv = calloc(1, sizeof(*w->argv));
    if (!w->argv)
        return err_oom(e);
    for (; r == 0 && *argv; argv++) {
        len = strlen(*argv);
        if (w->n_omitted == 0 && bytes + len < WORDS_ARGV_BYTES) {
            bytes += len + 1;
            r = strv_push(&w->argv, *argv, e);
        } else {
            w->n_omitted++;
            w->omitted_bytes += len;
        }
    }
    return r;
}

/* A character of UTF-8 has at most three bytes after its first. */
static size_t cut_at_character(const char *text, size_t len, size_t max)
{
    size_t at = max;

    if (len <= max)
        return len;
    while (at > 0 && max - at < 3 && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    return ((unsigned char)text[at] & 0xc0) == 0x80 ? max : at;
}

static int take_script(struct words *w, const struct proc_spec *s, struct err *e)
{
    w->script_bytes = s->script_len;
    w->script_len = cut_at_character(s->script, s->script_len, WORDS_SCRIPT_BYTES);
    w->script = malloc(w->script_len + 1);
    if (!w->script)
        return err_oom(e);
    memcpy(w->script, s->script, w->script_len);
    w->script[w->script_len] = '\0';
    return 0;
}

int words_init(struct words *w, const struct proc_spec *s, struct err *e)
{
    int r;

    *w = (struct words){0};
    r = s->script ? take_script(w, s, e) : take_argv(w, s->argv, e);
    if (r < 0)
        words_done(w);
    return r;
}

void words_done(struct words *w)
{
    strv_free(w->argv);
    free(w->script);
    *w = (struct words){0};
}
