#include "system/boot/modules.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "system/log.h"

static void load_module(int dir, const char *name)
{
    _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST && errno != ENODEV))
        log_info("kernel module '%.80s': %m", name);
    (void)unlinkat(dir, name, 0);
}

int modules_load(const char *dir, struct err *e)
{
    _cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_free_ char *list = NULL;
    char *at, *name;
    int r;

    if (fd < 0 || faccessat(fd, "order", F_OK, 0) < 0)
        return 0;
    r = io_read_file(fd, "order", MODULES_MAX_BYTES, &list, NULL, e);
    if (r < 0)
        return err_wrap(e, r, "'%s/order'", dir);
    at = list;
    while ((name = strsep(&at, "\n")))
        if (*name)
            load_module(fd, name);
    return 0;
}

void modules_unload(const char *name)
{
    (void)syscall(SYS_delete_module, name, O_NONBLOCK);
}
