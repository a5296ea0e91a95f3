#include "search/listing.h"

#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"

int listing_new(const char *whole, size_t whole_len, uint32_t depth, struct ignore *up,
                struct listing **ret, struct err *e)
{
    struct listing *l = calloc(1, sizeof(*l));

    if (!l)
        return err_oom(e);
    l->whole = malloc(whole_len + 2);
    if (!l->whole) {
        free(l);
        return err_oom(e);
    }
    memcpy(l->whole, whole, whole_len);
    if (!whole_len || whole[whole_len - 1] != '/')
        l->whole[whole_len++] = '/';
    l->whole[whole_len] = '\0';
    l->whole_len = whole_len;
    l->depth = depth;
    l->ignore = ignore_ref(up);
    l->fd = -1;
    l->refs = 1;
    *ret = l;
    return 0;
}

struct listing *listing_ref(struct listing *l)
{
    (void)__atomic_add_fetch(&l->refs, 1, __ATOMIC_RELAXED);
    return l;
}

struct listing *listing_unref(struct listing *l)
{
    while (l && __atomic_sub_fetch(&l->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        struct listing *up = l->up;

        fd_close(l->fd);
        ignore_unref(l->ignore);
        free(l->whole);
        fs_names_done(&l->names);
        free(l);
        l = up;
    }
    return NULL;
}

/* Notes which ignore files are there, so that only these are opened. */
static void listing_note_name(struct listing *l, const char *name)
{
    l->has_git = l->has_git || strcmp(name, ".git") == 0;
    l->has_gitignore = l->has_gitignore || strcmp(name, ".gitignore") == 0;
    l->has_ignore = l->has_ignore || strcmp(name, ".ignore") == 0;
    l->has_rgignore = l->has_rgignore || strcmp(name, ".rgignore") == 0;
}

int listing_read(struct listing *l, int fd, bool sorted, struct err *e)
{
    int r = fs_names_read(fd, false, &l->names, e);

    for (size_t i = 0; i < l->names.n; i++)
        if (l->names.v[i][0] == '.')
            listing_note_name(l, l->names.v[i]);
    if (sorted)
        fs_names_sort(&l->names);
    return r;
}
