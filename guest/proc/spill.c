#include "proc/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/path.h"
#include "proc/chunk.h"

/* The first is for what is large, and on a disk more often. */
static const char *const places[] = {"/var/tmp", "/tmp"};

void spill_init(struct spill *s, uint64_t max)
{
    *s = (struct spill){.max = max, .is_over = max == 0, .fd = -1};
}

void spill_evict(struct spill *s, struct journal_budget *b)
{
    if (s->fd >= 0)
        (void)!ftruncate(s->fd, 0); /* a reader may hold the descriptor: it stays open */
    journal_budget_give(b, (size_t)s->written);
    s->base += s->written;
    s->taken -= s->written;
    s->written = 0;
    s->is_over = true;
}

void spill_done(struct spill *s, struct journal_budget *b)
{
    chunk_free_all(s->first);
    s->first = s->last = NULL;
    if (s->fd < 0)
        return;
    journal_budget_give(b, (size_t)s->written);
    fd_close(s->fd);
    s->fd = -1;
}

/* Bytes there is no memory for can't be skipped: the file has no holes. */
static void end(struct spill *s, int sys)
{
    s->is_over = true;
    s->sys = sys;
}

void spill_append(struct spill *s, uint64_t offset, const void *data, size_t len)
{
    struct chunk *c;

    if (s->is_over || len == 0)
        return;
    if (s->taken == 0)
        s->base = offset;
    if (len >= s->max - s->taken) {
        len = (size_t)(s->max - s->taken);
        s->is_over = true;
    }
    c = chunk_new(data, len);
    if (!c) {
        end(s, ENOMEM);
        return;
    }
    if (s->last)
        s->last->next = c;
    else
        s->first = c;
    s->last = c;
    s->queued += len;
    s->taken += len;
}

bool spill_is_behind(const struct spill *s)
{
    return s->queued >= SPILL_QUEUE_BYTES;
}

struct chunk *spill_take(struct spill *s)
{
    struct chunk *list = s->first;

    s->first = s->last = NULL;
    return list;
}

static int open_unnamed(const char *dir)
{
    _cleanup_free_ char *name = NULL;
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    name = path_join(dir, ".bellhop-spill-XXXXXX");
    if (!name)
        return -1;
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0)
        (void)unlink(name);
    return fd;
}

static int make_file(const char *dir)
{
    int fd = -1;

    if (dir)
        return open_unnamed(dir);
    for (size_t i = 0; fd < 0 && i < sizeof(places) / sizeof(places[0]); i++)
        fd = open_unnamed(places[i]);
    return fd;
}

/* *ret: what has been written; 0 or the errno. */
static int write_chunk(int fd, const struct chunk *c, uint64_t at, size_t *ret)
{
    size_t done = 0;
    int sys = 0;

    while (done < c->len && !sys) {
        ssize_t n = pwrite(fd, c->data + done, c->len - done, (off_t)(at + done));

        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            sys = n == 0 ? ENOSPC : errno;
    }
    *ret = done;
    return sys;
}

int spill_write(struct chunk *take, const char *dir, struct journal_budget *b, int *fd, uint64_t at,
                size_t *ret_written)
{
    size_t total = 0;
    int sys = 0;

    if (*fd < 0 && (*fd = make_file(dir)) < 0)
        sys = errno;
    for (struct chunk *c = take; c && !sys; c = c->next) {
        size_t n = 0;

        if (!journal_budget_take(b, c->len)) {
            sys = ENOSPC;
            break;
        }
        sys = write_chunk(*fd, c, at + total, &n);
        journal_budget_give(b, c->len - n);
        total += n;
    }
    chunk_free_all(take);
    *ret_written = total;
    return sys;
}

void spill_written(struct spill *s, int fd, size_t n, int sys)
{
    s->fd = fd;
    s->written += n;
    s->queued = 0;
    for (const struct chunk *c = s->first; c; c = c->next)
        s->queued += c->len;
    if (!sys)
        return;
    /* What came meanwhile would lie behind a hole. */
    chunk_free_all(spill_take(s));
    s->queued = 0;
    s->taken = s->written;
    end(s, sys);
}

uint64_t spill_end(const struct spill *s)
{
    return s->base + s->taken;
}

size_t spill_held(const struct spill *s, uint64_t offset, size_t max, uint64_t *ret_place)
{
    uint64_t n;

    if (offset < s->base || offset >= s->base + s->written)
        return 0;
    *ret_place = offset - s->base;
    n = s->written - *ret_place;
    return n < max ? (size_t)n : max;
}
