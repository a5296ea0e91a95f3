#include "fs/lock.h"

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>

static pthread_mutex_t name_slots[FS_LOCK_SLOTS];
static pthread_mutex_t file_slots[FS_LOCK_SLOTS];
static pthread_once_t slots_once = PTHREAD_ONCE_INIT;

static void init_slots(void)
{
    for (unsigned i = 0; i < FS_LOCK_SLOTS; i++) {
        (void)pthread_mutex_init(&name_slots[i], NULL);
        (void)pthread_mutex_init(&file_slots[i], NULL);
    }
}

/* FNV-1a over a name and the identity of its directory. */
static unsigned hash_name(const char *name, const struct stat *st)
{
    uint64_t h = 14695981039346656037ULL;

    for (const char *p = name; *p; p++)
        h = (h ^ (unsigned char)*p) * 1099511628211ULL;
    h = (h ^ (uint64_t)st->st_ino) * 1099511628211ULL;
    h = (h ^ (uint64_t)st->st_dev) * 1099511628211ULL;
    return (unsigned)((h ^ h >> 32) % FS_LOCK_SLOTS);
}

static int slot_of(int dirfd, const char *name, unsigned *ret, struct err *e)
{
    struct stat st;

    if (fstat(dirfd, &st) < 0)
        return err_sys(e, errno, "stat the directory of '%s'", name);
    *ret = hash_name(name, &st);
    return 0;
}

int fs_lock_take(int dirfd, const char *name, struct fs_lock *ret, struct err *e)
{
    int r = slot_of(dirfd, name, &ret->slot, e);

    if (r < 0)
        return r;
    (void)pthread_once(&slots_once, init_slots);
    (void)pthread_mutex_lock(&name_slots[ret->slot]);
    ret->is_held = true;
    return 0;
}

int fs_lock_take_file(int fd, struct fs_lock *ret, struct err *e)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "stat the file to lock");
    (void)pthread_once(&slots_once, init_slots);
    *ret = (struct fs_lock){.slot = hash_name("", &st), .is_held = true, .is_file = true};
    (void)pthread_mutex_lock(&file_slots[ret->slot]);
    return 0;
}

void fs_lock_release(struct fs_lock *l)
{
    if (l->is_held)
        (void)pthread_mutex_unlock(l->is_file ? &file_slots[l->slot] : &name_slots[l->slot]);
    l->is_held = false;
}

int fs_lock_take_two(int dirfd_a, const char *name_a, int dirfd_b, const char *name_b,
                     struct fs_lock ret[2], struct err *e)
{
    unsigned a, b;
    int r;

    r = slot_of(dirfd_a, name_a, &a, e);
    if (r == 0)
        r = slot_of(dirfd_b, name_b, &b, e);
    if (r < 0)
        return r;
    (void)pthread_once(&slots_once, init_slots);
    ret[0] = (struct fs_lock){.slot = a < b ? a : b, .is_held = true};
    ret[1] = (struct fs_lock){.slot = a < b ? b : a, .is_held = a != b};
    (void)pthread_mutex_lock(&name_slots[ret[0].slot]);
    if (ret[1].is_held)
        (void)pthread_mutex_lock(&name_slots[ret[1].slot]);
    return 0;
}

void fs_lock_release_two(struct fs_lock l[2])
{
    fs_lock_release(&l[1]);
    fs_lock_release(&l[0]);
}
