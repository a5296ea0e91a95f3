#include "proc/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/path.h"

/* /var/tmp is meant for large files, and is on a disk more often. */
static const char *const spill_dirs[] = {"/var/tmp", "/tmp"};

void spill_init(struct spill *s, uint64_t max)
{
    *s = (struct spill){.max = max, .is_over = max == 0, .fd = -1};
}

void spill_evict(struct spill *s, struct journal_budget *b)
{
    if (s->fd >= 0)
        (void)!ftruncate(s->fd, 0); /* stays open: a reader may be using the descriptor */
    journal_budget_give(b, (size_t)s->written);
    s->base += s->written;
    s->taken -= s->written;
    s->written = 0;
    s->is_over = true;
}

void spill_done(struct spill *s, struct journal_budget *b)
{
    chunk_queue_clear(&s->queue);
    if (s->fd < 0)
        return;
    journal_budget_give(b, (size_t)s->written);
    fd_close(s->fd);
    s->fd = -1;
}

static void spill_fail(struct spill *s, int sys)
{
    s->is_over = true;
    s->sys = sys;
}

void spill_append(struct spill *s, uint64_t offset, const void *data, size_t len)
{
    if (s->is_over || len == 0)
        return;
    if (s->taken == 0)
        s->base = offset;
    if (len >= s->max - s->taken) {
        len = (size_t)(s->max - s->taken);
        s->is_over = true;
    }
    if (!chunk_queue_add(&s->queue, data, len)) {
        spill_fail(s, ENOMEM); /* skipping the bytes would leave a hole */
        return;
    }
    s->taken += len;
}

bool spill_is_behind(const struct spill *s)
{
    return s->in_flight + s->queue.bytes >= SPILL_QUEUE_BYTES;
}

struct chunk *spill_take(struct spill *s)
{
    s->in_flight = s->queue.bytes;
    return chunk_queue_take(&s->queue);
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

static int open_spill_file(const char *dir)
{
    int fd = -1;

    if (dir)
        return open_unnamed(dir);
    for (size_t i = 0; fd < 0 && i < N_ELEMENTS(spill_dirs); i++)
        fd = open_unnamed(spill_dirs[i]);
    return fd;
}

/* Returns 0 or the errno; *ret: the bytes written. */
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

    if (*fd < 0 && (*fd = open_spill_file(dir)) < 0)
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
    s->in_flight = 0;
    if (!sys)
        return;
    /* Bytes that were queued meanwhile would lie behind a hole. */
    chunk_queue_clear(&s->queue);
    s->taken = s->written;
    spill_fail(s, sys);
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
