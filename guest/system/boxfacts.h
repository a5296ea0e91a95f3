#pragma once
/* boxfacts: how the kernel maps users here, and its clocks: for Ready. Reads small files of /proc. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BOXFACTS_MAX_RANGES 16

struct boxfacts_range {
    uint32_t inside, outside, count;
};

struct boxfacts {
    struct boxfacts_range uids[BOXFACTS_MAX_RANGES], gids[BOXFACTS_MAX_RANGES];
    size_t n_uids, n_gids;             /* 0: can't be read */
    bool is_user_namespace;            /* ids here are not the machine's */
    int64_t real_ms, mono_ms, boot_ms; /* boot_ms also counts while the machine was suspended */
    bool has_openat2;                  /* else paths are resolved step by step */
    bool has_pidfd;
};

void boxfacts_get(struct boxfacts *ret);
