#include "system/info.h"

#include <archive.h>
#include "common/jsonx.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "version.h"

/* Compiled in is not enough: a kernel or sandbox may refuse memory that is executable. */
static bool probe_jit(void)
{
    uint32_t compiled_in = 0;
    pcre2_code *code;
    PCRE2_SIZE at;
    int error;
    bool works;

    if (pcre2_config(PCRE2_CONFIG_JIT, &compiled_in) < 0 || !compiled_in)
        return false;
    code = pcre2_compile((PCRE2_SPTR) "a", 1, 0, &error, &at, NULL);
    if (!code)
        return false;
    works = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
    pcre2_code_free(code);
    return works;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static const char *cgroup_kind(void)
{
    if (exists("/sys/fs/cgroup/cgroup.controllers"))
        return "v2";
    if (exists("/sys/fs/cgroup/unified/cgroup.controllers"))
        return "hybrid";
    return exists("/sys/fs/cgroup/memory") || exists("/sys/fs/cgroup/pids") ? "v1" : "none";
}

void info_get(struct info *ret)
{
    *ret = (struct info){
        .version = BELLHOP_VERSION,
        .commit = BELLHOP_COMMIT,
        .cgroup = cgroup_kind(),
        .has_jit = probe_jit(),
        .cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN),
        .memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE),
    };
    (void)uname(&ret->kernel);
}

const char *info_libraries(const char *http, char *out, size_t size)
{
    char pcre2[64] = "";

    (void)pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    pcre2[strcspn(pcre2, " ")] = '\0';
    (void)snprintf(out, size, "libmicrohttpd %s, jansson %s, %s, PCRE2 %s", http,
                   jansson_version_str(), archive_version_string(), pcre2);
    return out;
}
