#include "fs/etag.h"

#include <ctype.h>
#include <errno.h>
#include <nettle/sha2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"

#define READ_BYTES (128 * 1024)
#define BASE_BYTES 112
#define HASH_BYTES 16 /* of SHA-256's 32: enough to tell two versions of one file apart */
#define MAX_TRIES 3
#define MAX_DEVICES 64
#define PROBES 4

int fs_hash(int fd, uint64_t first, uint64_t len, uint8_t out[FS_SHA256_BYTES], struct err *e)
{
    _cleanup_free_ uint8_t *data = malloc(READ_BYTES);
    struct sha256_ctx sha;

    if (!data)
        return err_oom(e);
    sha256_init(&sha);
    while (len) {
        ssize_t n = pread(fd, data, len < READ_BYTES ? (size_t)len : READ_BYTES, (off_t)first);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "read to hash");
        if (n == 0 && len == UINT64_MAX)
            break;
        if (n == 0)
            return err_set(e, ERR_DATA_LOSS, "the file has become shorter");
        sha256_update(&sha, (size_t)n, data);
        first += (uint64_t)n;
        len -= len == UINT64_MAX ? 0 : (uint64_t)n;
    }
    sha256_digest(&sha, FS_SHA256_BYTES, out);
    return 0;
}

/* ---- tags ------------------------------------------------------------------------------------ */

/*
 * The tags that were handed out for young files. A lost entry makes a tag differ though the file
 * does not; it never makes tags equal though the file differs.
 */
struct entry {
    char base[BASE_BYTES];
    char hash[2 * HASH_BYTES + 1]; /* "": none needed */
    bool is_settled; /* the hash was taken, or seen again, when the file was not young */
};

struct etag_cache {
    pthread_mutex_t lock;
    struct entry entries[FS_ETAG_CACHE]; /* guarded by lock */
    dev_t devices[MAX_DEVICES];          /* guarded by lock: their ctime is fine */
    size_t n_devices;
};

static struct etag_cache young_tags = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct entry *tag_slot(const char *base)
{
    uint64_t h = 14695981039346656037ULL;

    for (; *base; base++)
        h = (h ^ (unsigned char)*base) * 1099511628211ULL;
    return &young_tags.entries[(h ^ h >> 29) % FS_ETAG_CACHE];
}

static bool cache_get(const char *base, struct entry *ret)
{
    struct entry *s;
    bool found;

    (void)pthread_mutex_lock(&young_tags.lock);
    s = tag_slot(base);
    found = strcmp(s->base, base) == 0;
    if (found)
        *ret = *s;
    (void)pthread_mutex_unlock(&young_tags.lock);
    return found;
}

static void cache_put(const struct entry *en)
{
    (void)pthread_mutex_lock(&young_tags.lock);
    *tag_slot(en->base) = *en;
    (void)pthread_mutex_unlock(&young_tags.lock);
}

static int64_t ns_of(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static void format_base(const struct stat *st, char out[BASE_BYTES])
{
    (void)snprintf(out, BASE_BYTES, "%llx.%llx-%llx-%llx-%llx", (unsigned long long)st->st_dev,
                   (unsigned long long)st->st_ino, (unsigned long long)st->st_size,
                   (unsigned long long)ns_of(&st->st_mtim),
                   (unsigned long long)ns_of(&st->st_ctim));
}

static bool is_young(const struct stat *st)
{
    return clock_real_ns() - ns_of(&st->st_ctim) < FS_ETAG_RACY_NS;
}

static int hash_content(int fd, char out[2 * HASH_BYTES + 1], struct err *e)
{
    uint8_t digest[FS_SHA256_BYTES];
    int r = fs_hash(fd, 0, UINT64_MAX, digest, e);

    if (r < 0)
        return r;
    for (size_t i = 0; i < HASH_BYTES; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return 0;
}

static void etag_compose(const struct entry *en, char out[FS_ETAG_BYTES])
{
    (void)snprintf(out, FS_ETAG_BYTES, "%s%s%s", en->base, en->hash[0] ? "-" : "", en->hash);
}

static void wait_until_old(void)
{
    struct timespec ts = {.tv_nsec = FS_ETAG_RACY_NS + FS_ETAG_RACY_NS / 4};

    while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
        continue;
}

/* 1: *en is the file's; 0: it changed meanwhile, try again. */
static int try_tag(int fd, struct stat *st, struct entry *en, struct err *e)
{
    struct entry known = {0};
    bool was_young, is_known;
    struct stat after;
    int r;

    if (fstat(fd, st) < 0)
        return err_sys(e, errno, "stat for the tag");
    *en = (struct entry){0};
    format_base(st, en->base);
    was_young = is_young(st);
    is_known = cache_get(en->base, &known);
    if (is_known && known.is_settled) {
        *en = known;
        return 1;
    }
    if (!was_young && !is_known)
        return 1;
    if (was_young && st->st_size > FS_ETAG_HASH_MAX) {
        wait_until_old();
        return 0;
    }
    r = hash_content(fd, en->hash, e);
    if (r < 0)
        return r;
    if (fstat(fd, &after) < 0)
        return err_sys(e, errno, "stat for the tag");
    if (ns_of(&after.st_ctim) != ns_of(&st->st_ctim) || after.st_size != st->st_size)
        return 0;
    en->is_settled = !was_young;
    cache_put(en);
    return 1;
}

int fs_etag(int fd, struct stat *st, char out[FS_ETAG_BYTES], struct err *e)
{
    struct entry en;
    int r;

    for (int i = 0; i < MAX_TRIES; i++) {
        r = try_tag(fd, st, &en, e);
        if (r < 0)
            return r;
        if (r > 0) {
            etag_compose(&en, out);
            return 0;
        }
    }
    r = io_random_hex(HASH_BYTES, en.hash, e);
    if (r < 0)
        return r;
    en.hash[0] = 'x'; /* no hash has this value */
    etag_compose(&en, out);
    return 0;
}

int fs_etag_written(int fd, bool is_fine, struct stat *st, char out[FS_ETAG_BYTES], struct err *e)
{
    struct entry en = {.is_settled = true};

    if (!is_fine)
        return fs_etag(fd, st, out, e);
    if (fstat(fd, st) < 0)
        return err_sys(e, errno, "stat for the tag");
    format_base(st, en.base);
    cache_put(&en);
    etag_compose(&en, out);
    return 0;
}

static bool device_is_fine(dev_t dev)
{
    bool found = false;

    (void)pthread_mutex_lock(&young_tags.lock);
    for (size_t i = 0; i < young_tags.n_devices; i++)
        found |= young_tags.devices[i] == dev;
    (void)pthread_mutex_unlock(&young_tags.lock);
    return found;
}

static void device_set_fine(dev_t dev)
{
    (void)pthread_mutex_lock(&young_tags.lock);
    if (young_tags.n_devices < MAX_DEVICES)
        young_tags.devices[young_tags.n_devices++] = dev;
    (void)pthread_mutex_unlock(&young_tags.lock);
}

bool fs_ctime_is_fine(int fd)
{
    struct stat before, after;

    if (fstat(fd, &before) < 0)
        return false;
    if (device_is_fine(before.st_dev))
        return true;
    for (int i = 0; i < PROBES; i++) {
        if (fchmod(fd, before.st_mode & 07777) < 0 || fstat(fd, &after) < 0)
            return false;
        if (ns_of(&after.st_ctim) == ns_of(&before.st_ctim))
            return false;
        before = after;
    }
    device_set_fine(before.st_dev);
    return true;
}

/* One element of a list: W/"...", "..." or a bare word (JSON has tags without quotes). */
struct list_item {
    const char *p;
    size_t len;
    bool is_weak;
};

/* Returns NULL at the end and at a syntax error: the rest of the list is ignored. */
static const char *next_item(const char *p, struct list_item *ret)
{
    bool is_quoted;

    p += strspn(p, " \t,");
    if (!*p)
        return NULL;
    ret->is_weak = p[0] == 'W' && p[1] == '/' && p[2] == '"';
    p += ret->is_weak ? 2 : 0;
    is_quoted = *p == '"';
    p += is_quoted;
    ret->p = p;
    ret->len = strcspn(p, is_quoted ? "\"" : " \t,");
    p += ret->len;
    if (is_quoted && !*p)
        return NULL;
    p += is_quoted;
    p += strspn(p, " \t");
    return *p == ',' || !*p ? p : NULL;
}

bool fs_etag_in_list(const char *list, const char *tag, bool weak)
{
    struct list_item it;

    if (!tag[0])
        return false;
    while ((list = next_item(list, &it)))
        if ((weak || !it.is_weak) && it.len == strlen(tag) && memcmp(it.p, tag, it.len) == 0)
            return true;
    return false;
}

static bool is_list(const char *list)
{
    struct list_item it;
    const char *next;

    while ((next = next_item(list, &it)))
        list = next;
    return !list[strspn(list, " \t,")];
}

bool fs_etag_is_any(const char *list)
{
    list += strspn(list, " \t");
    return list[0] == '*' && !list[1 + strspn(list + 1, " \t")];
}

static int etag_mismatch(struct err *e, const char *field, const char *what, const char *current)
{
    int r;

    if (!current[0])
        return err_field(e, ERR_ABORTED, field, "%s", what);
    r = err_field(e, ERR_ABORTED, field, "%s, its tag is %s", what, current);
    return err_detail(e, r, "etag", current);
}

int fs_check_tag(const struct fs_condition *cond, bool exists, const char *current, struct err *e)
{
    if (cond->if_match && !exists)
        return etag_mismatch(e, "if_match", "there is no file to match", "");
    if (cond->if_match && !fs_etag_is_any(cond->if_match) &&
        !fs_etag_in_list(cond->if_match, current, false))
        return etag_mismatch(e, "if_match", "the file is not the expected one", current);
    /* A file that can't be read has no tag that could match, so the write is refused. */
    if (cond->if_none_match && !is_list(cond->if_none_match))
        return err_field(e, ERR_INVALID, "if_none_match", "this is no list of tags");
    if (cond->if_none_match && exists &&
        (fs_etag_is_any(cond->if_none_match) ||
         fs_etag_in_list(cond->if_none_match, current, true)))
        return etag_mismatch(e, "if_none_match", "the file is there", current);
    return 0;
}
