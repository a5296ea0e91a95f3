#pragma once
/* info: what the agent is, and what it runs on. Strings live as long as the program. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/utsname.h>

struct info {
    const char *version;
    const char *commit;
    struct utsname kernel;
    const char *cgroup; /* "v2", "v1", "hybrid", "none" */
    bool has_jit;       /* PCRE2 may compile here */
    unsigned cpus;
    uint64_t memory_bytes;
};

void info_get(struct info *ret);

/* One line for --version and Info: "jansson 2.14, libarchive 3.7.4, ...". http: its version. */
const char *info_libraries(const char *http, char *out, size_t size);
