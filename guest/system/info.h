#pragma once
/*
 * info: facts about the agent, its kernel and its box. Reads small files of /proc and /sys, and the size of
 * a disk. Strings live as long as the program. Thread-safe.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/utsname.h>

#include "common/err.h"

struct info {
    const char *version;
    const char *commit;
    struct utsname kernel;
    const char *cgroup; /* "v2", "v1", "hybrid", "none" */
    bool has_jit;       /* the kernel lets PCRE2's JIT make code */
    unsigned cpus;
    uint64_t memory_bytes;
};

void info_get(struct info *ret);

/* One line for --version and Info: "jansson 2.14, libarchive 3.7.4, ...". http: its version. */
const char *info_libraries(const char *http, char *out, size_t size);

#define INFO_MAX_ID_RANGES 16

/* One line of /proc/self/uid_map. */
struct info_id_range {
    uint32_t inside, outside, count;
};

struct info_box {
    struct info_id_range uids[INFO_MAX_ID_RANGES], gids[INFO_MAX_ID_RANGES];
    size_t n_uids, n_gids;             /* 0: can't be read */
    bool is_user_namespace;            /* ids here are not the machine's */
    int64_t real_ms, mono_ms, boot_ms; /* boot_ms also counts while the machine was suspended */
    bool has_openat2;                  /* else paths are resolved step by step */
    bool has_pidfd;
};

void info_get_box(struct info_box *ret);

struct info_disk {
    bool is_read_only;
    uint64_t free_bytes, total_bytes;
    uint64_t free_inodes, total_inodes;
};

/* The file system of `path`. False, with errno: it can't be read. */
bool info_get_disk(const char *path, struct info_disk *ret);

/* Processor, memory and disk in use. */
struct usage {
    unsigned n_cpus;
    double cpu_percent; /* of all processors, since the previous call; 0 in the first */
    uint64_t mem_total, mem_used, mem_cache;
    uint64_t disk_total, disk_used; /* of the file system of "/" */
};

struct usage_clock; /* counters of the previous call */

int usage_clock_new(struct usage_clock **ret, struct err *e);
struct usage_clock *usage_clock_free(struct usage_clock *c); /* accepts NULL; returns NULL */
/* Reads /proc and the disk's size: may block. */
int usage_get(struct usage_clock *c, struct usage *ret, struct err *e);
