#include "proc/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/path.h"

#define FIRST_BYTES 4096

void journal_init(struct journal *j, struct journal_budget *b, size_t head_max, size_t tail_max)
{
    *j = (struct journal){
        .budget = b, .head_max = head_max, .tail_max = tail_max, .head_closed = head_max == 0};
}

/* May exceed the budget. */
static void budget_force(struct journal_budget *b, size_t n)
{
    (void)atomic_fetch_add(&b->used, n);
}

/* False: less than n is left. */
static bool budget_take(struct journal_budget *b, size_t n)
{
    size_t used = atomic_load(&b->used);

    do {
        if (n > b->max || used > b->max - n)
            return false;
    } while (!atomic_compare_exchange_weak(&b->used, &used, used + n));
    return true;
}

static void budget_give(struct journal_budget *b, size_t n)
{
    (void)atomic_fetch_sub(&b->used, n);
}

void journal_evict(struct journal *j)
{
    budget_give(j->budget, j->head_cap + j->tail_cap);
    free(j->head);
    free(j->tail);
    j->head = j->tail = NULL;
    j->head_len = j->head_cap = j->tail_len = j->tail_cap = j->tail_at = 0;
    j->head_closed = true;
}

void journal_done(struct journal *j)
{
    if (!j || !j->budget)
        return;
    journal_evict(j);
    j->budget = NULL;
}

/* Doubles the capacity, up to max. */
static size_t next_cap(size_t cap, size_t need, size_t max)
{
    if (cap < FIRST_BYTES)
        cap = FIRST_BYTES;
    while (cap < need)
        cap *= 2;
    return cap < max ? cap : max;
}

/* Makes room in the head; returns how many of len bytes fit. */
static size_t head_room(struct journal *j, size_t len)
{
    size_t need = j->head_len + len < j->head_max ? j->head_len + len : j->head_max;
    size_t cap;
    char *head;

    if (need <= j->head_cap)
        return need - j->head_len;
    cap = next_cap(j->head_cap, need, j->head_max);
    if (!budget_take(j->budget, cap - j->head_cap))
        return j->head_cap - j->head_len;
    head = realloc(j->head, cap);
    if (!head) {
        budget_give(j->budget, cap - j->head_cap);
        return j->head_cap - j->head_len;
    }
    j->head = head;
    j->head_cap = cap;
    return need - j->head_len;
}

static size_t append_head(struct journal *j, const char *data, size_t len)
{
    size_t n;

    if (j->head_closed)
        return 0;
    n = head_room(j, len);
    if (n)
        memcpy(j->head + j->head_len, data, n);
    j->head_len += n;
    /* The head ends at its first missing byte, also if that one was dropped for want of memory. */
    if (n < len || j->head_len == j->head_max)
        j->head_closed = true;
    return n;
}

/* Copies from the ring, beginning `at` bytes after its oldest. */
static void ring_copy(const struct journal *j, size_t at, char *out, size_t len)
{
    size_t from = (j->tail_at + at) % j->tail_cap;
    size_t first = j->tail_cap - from < len ? j->tail_cap - from : len;

    memcpy(out, j->tail + from, first);
    memcpy(out + first, j->tail, len - first);
}

static void tail_grow(struct journal *j, size_t len)
{
    size_t need = j->tail_len + len < j->tail_max ? j->tail_len + len : j->tail_max;
    size_t cap;
    char *tail;

    if (need <= j->tail_cap)
        return;
    cap = next_cap(j->tail_cap, need, j->tail_max);
    if (!budget_take(j->budget, cap - j->tail_cap)) {
        if (j->tail_cap >= j->tail_min)
            return;
        cap = j->tail_min;
        budget_force(j->budget, cap - j->tail_cap);
    }
    tail = malloc(cap);
    if (!tail) {
        budget_give(j->budget, cap - j->tail_cap);
        return;
    }
    if (j->tail_len)
        ring_copy(j, 0, tail, j->tail_len);
    free(j->tail);
    j->tail = tail;
    j->tail_cap = cap;
    j->tail_at = 0;
}

static void append_tail(struct journal *j, const char *data, size_t len)
{
    size_t to, first;

    tail_grow(j, len);
    if (j->tail_cap == 0)
        return;
    if (len > j->tail_cap) {
        data += len - j->tail_cap;
        len = j->tail_cap;
    }
    to = (j->tail_at + j->tail_len) % j->tail_cap;
    first = j->tail_cap - to < len ? j->tail_cap - to : len;
    memcpy(j->tail + to, data, first);
    memcpy(j->tail, data + first, len - first);
    j->tail_len += len;
    if (j->tail_len > j->tail_cap) {
        j->tail_at = (j->tail_at + j->tail_len - j->tail_cap) % j->tail_cap;
        j->tail_len = j->tail_cap;
    }
}

void journal_append(struct journal *j, const void *data, size_t len)
{
    const char *p = data;
    size_t n = append_head(j, p, len);

    j->total += len;
    if (n < len)
        append_tail(j, p + n, len - n);
}

uint64_t journal_dropped(const struct journal *j)
{
    return j->total - j->head_len - j->tail_len;
}

uint64_t journal_tail_offset(const struct journal *j)
{
    return j->total - j->tail_len;
}

int journal_read(const struct journal *j, uint64_t offset, void *out, size_t max, size_t *ret_len,
                 uint64_t *ret_first_held, struct err *e)
{
    uint64_t tail_offset = journal_tail_offset(j);
    char *to = out;
    size_t n = 0;

    if (offset > j->total)
        return err_field(e, ERR_RANGE, "offset", "offset %" PRIu64 " is past the end, %" PRIu64,
                         offset, j->total);
    if (offset < j->head_len) {
        n = j->head_len - offset < max ? (size_t)(j->head_len - offset) : max;
        memcpy(to, j->head + offset, n);
        offset += n;
    } else if (offset < tail_offset) {
        *ret_first_held = tail_offset;
        return err_field(e, ERR_DATA_LOSS, "offset",
                         "bytes %" PRIu64 " to %" PRIu64
                         " are no longer held; the first held is %" PRIu64,
                         offset, tail_offset - 1, tail_offset);
    }
    if (offset >= tail_offset && n < max && offset < j->total) {
        size_t k = j->total - offset < max - n ? (size_t)(j->total - offset) : max - n;

        ring_copy(j, (size_t)(offset - tail_offset), to + n, k);
        n += k;
    }
    *ret_len = n;
    return 0;
}

/* ---- the file ---- */

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
    budget_give(b, (size_t)s->written);
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
    budget_give(b, (size_t)s->written);
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

        if (!budget_take(b, c->len)) {
            sys = ENOSPC;
            break;
        }
        sys = write_chunk(*fd, c, at + total, &n);
        budget_give(b, c->len - n);
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
