#pragma once
/*
 * cleanup: guards for locals that own something, and TAKE to hand it over. The guard runs when
 * the variable leaves its scope.
 */
#include <dirent.h>
#include <errno.h>
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

#define _cleanup_(fn) __attribute__((cleanup(fn)))
#define _cleanup_free_ _cleanup_(cleanup_free_p)
#define _cleanup_close_ _cleanup_(cleanup_close_p)
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
