#include "system/boot/powerbutton.h"

#include <fcntl.h>
#include <linux/input.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "event/loop.h"

#define BITS_BYTES (KEY_MAX / 8 + 1)

struct powerbutton {
    void (*on_press)(void *arg);
    void *arg;
    size_t n;
    struct button {
        struct powerbutton *all;
        int fd;
        struct loop_watch *watch;
    } buttons[POWERBUTTON_MAX_DEVICES];
};

static bool has_power_key(int fd)
{
    unsigned char bits[BITS_BYTES] = {0};

    return ioctl(fd, (int)EVIOCGBIT(EV_KEY, sizeof(bits)), bits) >= 0 &&
           bits[KEY_POWER / 8] & 1 << KEY_POWER % 8;
}

static void on_button_input(struct loop *l, uint32_t events, void *arg)
{
    struct button *b = arg;
    struct input_event in;

    (void)l;
    if (events & (EPOLLHUP | EPOLLERR)) {
        b->watch = loop_watch_del(b->watch);
        return;
    }
    while (read(b->fd, &in, sizeof(in)) == (ssize_t)sizeof(in))
        if (in.type == EV_KEY && in.code == KEY_POWER && in.value == 1)
            b->all->on_press(b->all->arg);
}

static int add_button(struct powerbutton *all, struct loop *l, const char *path, struct err *e)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    struct button *b = &all->buttons[all->n];
    int r;

    if (fd < 0 || !has_power_key(fd))
        return 0;
    r = loop_watch_add(l, fd, EPOLLIN, on_button_input, b, &b->watch, e);
    if (r < 0)
        return r;
    b->all = all;
    b->fd = TAKE_FD(fd);
    all->n++;
    return 0;
}

int powerbutton_new(struct loop *l, void (*on_press)(void *arg), void *arg,
                    struct powerbutton **ret, struct err *e)
{
    struct powerbutton *b = calloc(1, sizeof(*b));
    int r = 0;

    if (!b)
        return err_oom(e);
    b->on_press = on_press;
    b->arg = arg;
    for (int i = 0; r == 0 && i < POWERBUTTON_MAX_DEVICES; i++) {
        char path[32];

        (void)snprintf(path, sizeof(path), "/dev/input/event%d", i);
        r = add_button(b, l, path, e);
    }
    if (r < 0) {
        powerbutton_free(b);
        return r;
    }
    *ret = b;
    return 0;
}

struct powerbutton *powerbutton_free(struct powerbutton *b)
{
    for (size_t i = 0; b && i < b->n; i++) {
        if (b->buttons[i].watch)
            loop_watch_del(b->buttons[i].watch);
        fd_close(b->buttons[i].fd);
    }
    free(b);
    return NULL;
}
