#include "proc/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "common/cleanup.h"

#define SLAVE_MODE 0620

int pty_resize(int master, unsigned cols, unsigned rows, struct err *e)
{
    struct winsize size = {.ws_col = (unsigned short)cols, .ws_row = (unsigned short)rows};

    if (cols == 0 || rows == 0 || cols > PTY_MAX_SIDE || rows > PTY_MAX_SIDE)
        return err_field(e, ERR_INVALID, cols == 0 || cols > PTY_MAX_SIDE ? "cols" : "rows",
                         "a terminal has 1 to %d columns and rows", PTY_MAX_SIDE);
    if (ioctl(master, TIOCSWINSZ, &size) < 0)
        return err_sys(e, errno, "setting the terminal's size");
    return 0;
}

/* TIOCGPTPEER works whatever is mounted at /dev/pts; older kernels need the path. */
static int open_slave(int master)
{
    char path[64];
    unsigned n;
    int fd = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);

    if (fd >= 0 || ioctl(master, TIOCGPTN, &n) < 0)
        return fd;
    (void)snprintf(path, sizeof(path), "/dev/pts/%u", n);
    return open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

static int set_raw(int slave, struct err *e)
{
    struct termios t;

    if (tcgetattr(slave, &t) < 0)
        return err_sys(e, errno, "setting the terminal's mode");
    cfmakeraw(&t);
    if (tcsetattr(slave, TCSANOW, &t) < 0)
        return err_sys(e, errno, "setting the terminal's mode");
    return 0;
}

int pty_open(const struct pty_options *o, int *ret_master, int *ret_slave, struct err *e)
{
    _cleanup_close_ int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    _cleanup_close_ int slave = -1;
    int unlock = 0, r;

    if (master < 0)
        return err_at(e, err_sys(e, errno, "opening a terminal"), "pty");
    if (ioctl(master, TIOCSPTLCK, &unlock) < 0)
        return err_at(e, err_sys(e, errno, "unlocking a terminal"), "pty");
    slave = open_slave(master);
    if (slave < 0)
        return err_at(e, err_sys(e, errno, "opening a terminal"), "pty");
    r = pty_resize(master, o->cols, o->rows, e);
    if (r == 0 && o->is_raw)
        r = set_raw(slave, e);
    if (r < 0)
        return r;
    if (o->owner != (uid_t)-1) {
        /* lets the user open it by name; without the capability it stays as it is */
        (void)!fchown(slave, o->owner, (gid_t)-1);
        (void)fchmod(slave, SLAVE_MODE);
    }
    *ret_master = TAKE_FD(master);
    *ret_slave = TAKE_FD(slave);
    return 0;
}
