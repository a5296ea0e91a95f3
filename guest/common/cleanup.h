#pragma once
/*
 * cleanup: guards for locals that own something, and TAKE to hand it over. The guard runs when
 * the variable leaves its scope.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free_p(void *p)
{
    free(*(void **)p);
}

/* Called once, never retried (Linux closes the descriptor even on EINTR); errno stays. */
static inline void fd_close(int fd)
{
    int saved = errno;

    if (fd >= 0)
        (void)close(fd);
    errno = saved;
}

static inline void cleanup_close_p(const int *fd)
{
    fd_close(*fd);
}

static inline void cleanup_fclose_p(FILE **f)
{
    if (*f)
        (void)fclose(*f);
}

static inline void cleanup_closedir_p(DIR **d)
{
    if (*d)
        (void)closedir(*d);
}

/* Locks m and returns it, for a local that unlocks it when it leaves its scope:
 *     _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&x->lock); */
static inline pthread_mutex_t *mutex_lock(pthread_mutex_t *m)
{
    (void)pthread_mutex_lock(m);
    return m;
}

static inline void cleanup_unlock_p(pthread_mutex_t **m)
{
    if (*m)
        (void)pthread_mutex_unlock(*m);
}

/*
 * WITH_LOCK (&x->lock) { ... }: holds the lock for one statement or block, whichever way it is left; `break` leaves
 * the block.
 */
#define WITH_LOCK(m) WITH_LOCK_AS_(m, __COUNTER__)
#define WITH_LOCK_AS_(m, n) WITH_LOCK_NAMED_(m, n)
#define WITH_LOCK_NAMED_(m, n) \
    for (pthread_mutex_t *locked_##n _cleanup_unlock_ = mutex_lock(m), *once_##n = locked_##n; \
         once_##n; once_##n = NULL)

#define _cleanup_(fn) __attribute__((cleanup(fn)))
#define _cleanup_free_ _cleanup_(cleanup_free_p)
#define _cleanup_close_ _cleanup_(cleanup_close_p)
#define _cleanup_unlock_ _cleanup_(cleanup_unlock_p)
#define _cleanup_fclose_ _cleanup_(cleanup_fclose_p)
#define _cleanup_closedir_ _cleanup_(cleanup_closedir_p)

#define TAKE(p) \
    __extension__({ \
        __typeof__(p) take_tmp_ = (p); \
        (p) = NULL; \
        take_tmp_; \
    })

#define TAKE_FD(fd) \
    __extension__({ \
        int take_fd_ = (fd); \
        (fd) = -1; \
        take_fd_; \
    })

#define N_ELEMENTS(a) (sizeof(a) / sizeof((a)[0]))
