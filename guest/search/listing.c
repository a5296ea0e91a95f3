#include "search/listing.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "search/tree.h"

#define READ_BYTES (32 * 1024)

/* What getdents64(2) writes; not in the C library's headers. */
struct entry64 {
    uint64_t ino;
    int64_t off;
    uint16_t len;
    uint8_t type;
    char name[];
};

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
        free(l->names);
        free(l->at);
        free(l);
        l = up;
    }
    return NULL;
}

static int grow(void **p, size_t *cap, size_t need, size_t size, struct err *e)
{
    size_t n = *cap ? *cap : 64;
    void *grown;

    if (need <= *cap)
        return 0;
    while (n < need)
        n += n / 2;
    grown = realloc(*p, n * size);
    if (!grown)
        return err_oom(e);
    *p = grown;
    *cap = n;
    return 0;
}

static void see_name(struct listing *l, const char *name)
{
    l->has_git = l->has_git || strcmp(name, ".git") == 0;
    l->has_gitignore = l->has_gitignore || strcmp(name, ".gitignore") == 0;
    l->has_ignore = l->has_ignore || strcmp(name, ".ignore") == 0;
    l->has_rgignore = l->has_rgignore || strcmp(name, ".rgignore") == 0;
}

struct room {
    size_t names, at;
};

static int add(struct listing *l, struct room *room, const struct entry64 *d, struct err *e)
{
    size_t len = strlen(d->name);
    int r;

    if (l->names_len + len + 2 > TREE_DIR_MAX_BYTES)
        return err_set(e, ERR_EXHAUSTED, "more than %u bytes of names in one directory",
                       TREE_DIR_MAX_BYTES);
    r = grow((void **)&l->names, &room->names, l->names_len + len + 2, 1, e);
    if (r == 0)
        r = grow((void **)&l->at, &room->at, l->n + 1, sizeof(*l->at), e);
    if (r < 0)
        return r;
    if (d->name[0] == '.')
        see_name(l, d->name);
    l->at[l->n++] = (uint32_t)l->names_len;
    l->names[l->names_len] = (char)d->type;
    memcpy(l->names + l->names_len + 1, d->name, len + 1);
    l->names_len += len + 2;
    return 0;
}

static bool is_seen(const char *name, const char *skip_prefix)
{
    if (name[0] != '.')
        return true;
    if (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'))
        return false;
    return !skip_prefix || strncmp(name, skip_prefix, strlen(skip_prefix)) != 0;
}

int listing_read(struct listing *l, int fd, const char *skip_prefix, struct err *e)
{
    _cleanup_free_ char *buf = malloc(READ_BYTES);
    struct room room = {0, 0};

    if (!buf)
        return err_oom(e);
    for (;;) {
        long n = syscall(SYS_getdents64, fd, buf, READ_BYTES);

        if (n < 0)
            return err_sys(e, errno, "read directory '%s'", l->whole);
        if (n == 0)
            return 0;
        for (long at = 0; at < n;) {
            const struct entry64 *d = (const void *)(buf + at);
            int r = is_seen(d->name, skip_prefix) ? add(l, &room, d, e) : 0;

            if (r < 0)
                return r;
            at += d->len;
        }
    }
}

static int compare(const void *a, const void *b, void *names)
{
    const char *base = (const char *)names + 1;

    return strcmp(base + *(const uint32_t *)a, base + *(const uint32_t *)b);
}

void listing_sort(struct listing *l)
{
    if (l->n)
        qsort_r(l->at, l->n, sizeof(*l->at), compare, l->names);
}
