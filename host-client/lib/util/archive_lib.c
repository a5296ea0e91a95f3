#define ARCHIVE_LIB_LOADS /* the names are those of the header here */
#include "lib/util/archive_lib.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#define ARCHIVE_LIBRARY "libarchive.so.13"

static struct archive_lib archive_calls;
static pthread_once_t archive_once = PTHREAD_ONCE_INIT;
static bool archive_is_loaded; /* read after archive_once */

static void load_archive_calls(void)
{
    void *lib = dlopen(ARCHIVE_LIBRARY, RTLD_LAZY | RTLD_LOCAL);

    archive_is_loaded = lib != NULL;
#define LOAD_CALL(name) \
    *(void **)&archive_calls.name = lib ? dlsym(lib, #name) : NULL; \
    archive_is_loaded = archive_is_loaded && archive_calls.name;
    ARCHIVE_LIB_CALLS(LOAD_CALL)
}

int archive_lib_load(struct err *e)
{
    (void)pthread_once(&archive_once, load_archive_calls);
    return archive_is_loaded
               ? 0
               : err_set(e, ERR_PRECONDITION, "'%s' cannot be loaded", ARCHIVE_LIBRARY);
}

const struct archive_lib *archive_lib(void)
{
    return &archive_calls;
}
