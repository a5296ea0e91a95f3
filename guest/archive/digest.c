#include "archive/digest.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "fs/etag.h"

#define CACHE_FIRST 1024u
#define PROBES 8 /* slots that a file may be in */

struct known {
    uint64_t dev, ino, size;
    int64_t ctime_ns; /* 0: a free slot */
    uint8_t digest[DIGEST_BYTES];
};

struct digest_cache {
    pthread_mutex_t lock;
    struct known *slots; /* guarded by lock, as the rest */
    uint32_t cap;        /* a power of two */
    uint32_t n;
};

static struct digest_cache known_digests = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t ctime_ns(const struct stat *st)
{
    return (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
}

static uint32_t first_slot(uint64_t dev, uint64_t ino, uint32_t cap)
{
    uint64_t h = (ino ^ dev << 40) * 0x9e3779b97f4a7c15ULL;

    return (uint32_t)(h >> 32) & (cap - 1);
}

static bool is_same_file(const struct known *k, const struct stat *st)
{
    return k->ctime_ns && k->dev == (uint64_t)st->st_dev && k->ino == (uint64_t)st->st_ino;
}

bool digest_known(const struct stat *st, uint8_t out[DIGEST_BYTES])
{
    bool found = false;

    (void)pthread_mutex_lock(&known_digests.lock);
    for (uint32_t i = 0; known_digests.cap && i < PROBES && !found; i++) {
        uint32_t at =
            (first_slot(st->st_dev, st->st_ino, known_digests.cap) + i) & (known_digests.cap - 1);
        const struct known *k = &known_digests.slots[at];

        found =
            is_same_file(k, st) && k->size == (uint64_t)st->st_size && k->ctime_ns == ctime_ns(st);
        if (found)
            (void)memcpy(out, k->digest, DIGEST_BYTES);
    }
    (void)pthread_mutex_unlock(&known_digests.lock);
    return found;
}

/* A free slot, the same file's older one, or, when all are taken, the first. The lock is held. */
static struct known *slot_for(struct known *slots, uint32_t cap, uint64_t dev, uint64_t ino)
{
    uint32_t first = first_slot(dev, ino, cap);

    for (uint32_t i = 0; i < PROBES; i++) {
        struct known *k = &slots[(first + i) & (cap - 1)];

        if (!k->ctime_ns || (k->dev == dev && k->ino == ino))
            return k;
    }
    return &slots[first];
}

/* Out of memory: it stays as large as it is. The lock is held. */
static void digest_grow_table(void)
{
    uint32_t cap = known_digests.cap ? known_digests.cap * 2 : CACHE_FIRST;
    struct known *slots = cap <= DIGEST_CACHE_MAX ? calloc(cap, sizeof(*slots)) : NULL;

    if (!slots)
        return;
    for (uint32_t i = 0; i < known_digests.cap; i++)
        if (known_digests.slots[i].ctime_ns)
            *slot_for(slots, cap, known_digests.slots[i].dev, known_digests.slots[i].ino) =
                known_digests.slots[i];
    free(known_digests.slots);
    known_digests.slots = slots;
    known_digests.cap = cap;
}

static void digest_remember(const struct stat *st, const uint8_t digest[DIGEST_BYTES])
{
    struct known *k;

    (void)pthread_mutex_lock(&known_digests.lock);
    if (known_digests.n >= known_digests.cap / 4 * 3)
        digest_grow_table();
    if (known_digests.cap) {
        k = slot_for(known_digests.slots, known_digests.cap, st->st_dev, st->st_ino);
        known_digests.n += !k->ctime_ns;
        k->dev = st->st_dev;
        k->ino = st->st_ino;
        k->size = (uint64_t)st->st_size;
        k->ctime_ns = ctime_ns(st);
        (void)memcpy(k->digest, digest, DIGEST_BYTES);
    }
    (void)pthread_mutex_unlock(&known_digests.lock);
}

int digest_file(int fd, uint8_t out[DIGEST_BYTES], uint64_t *ret_bytes, struct err *e)
{
    struct stat before, after;
    bool is_young;
    int r;

    if (fstat(fd, &before) < 0)
        return err_sys(e, errno, "stat");
    *ret_bytes = 0;
    if (digest_known(&before, out))
        return 0;
    is_young = clock_real_ns() - ctime_ns(&before) < FS_ETAG_RACY_NS;
    r = fs_hash(fd, 0, UINT64_MAX, out, e);
    if (r < 0)
        return r;
    if (fstat(fd, &after) < 0)
        return err_sys(e, errno, "stat");
    if (ctime_ns(&after) != ctime_ns(&before) || after.st_size != before.st_size)
        return err_set(e, ERR_ABORTED, "it was being written while it was read");
    *ret_bytes = (uint64_t)after.st_size;
    if (!is_young)
        digest_remember(&after, out);
    return 0;
}

void digest_to_hex(const uint8_t digest[DIGEST_BYTES], char out[2 * DIGEST_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[2 * DIGEST_BYTES] = '\0';
}
