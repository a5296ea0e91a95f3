#include "system/boot/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/input.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"
#include "common/user.h"
#include "event/loop.h"
#include "system/boot/cmdline.h"
#include "system/log.h"

#define MODULES_DIR "/modules"
#define MODULES_MAX_BYTES (64 * 1024) /* of the list */
#define TOKEN_SOURCE "/sys/firmware/qemu_fw_cfg/by_name/opt/org.bellhop/token/raw"
#define TOKEN_MAX_BYTES 4096
#define TOKEN_DIR "/run/bellhop"
#define TOKEN_PATH TOKEN_DIR "/token"
#define START_FILE "/etc/bellhop/start"
#define ENV_FILE "/etc/bellhop/env"
#define USER_FILE "/etc/bellhop/user"
#define WORKDIR_FILE "/etc/bellhop/workdir"
#define LINE_MAX_BYTES 4096
#define PROGRAM "/usr/local/bin/bellhopd"
#define REMOUNT_WAIT_MS 3000
#define POLL_MS 10
#define BITS_BYTES (KEY_MAX / 8 + 1)

static bool is_machine; /* set once, before there are threads */

struct mount_row {
    const char *source, *target, *type, *data;
    unsigned long flags;
    bool is_optional;
};

static const struct mount_row first_mounts[] = {
    {"proc", "/proc", "proc", NULL, MS_NOSUID | MS_NOEXEC | MS_NODEV, false},
    {"sysfs", "/sys", "sysfs", NULL, MS_NOSUID | MS_NOEXEC | MS_NODEV, true},
    {"devtmpfs", "/dev", "devtmpfs", "mode=0755", MS_NOSUID, true},
};

static const struct mount_row later_mounts[] = {
    {"devpts", "/dev/pts", "devpts", "mode=0620,gid=5,ptmxmode=0666", MS_NOSUID | MS_NOEXEC, true},
    {"tmpfs", "/dev/shm", "tmpfs", "mode=1777", MS_NOSUID | MS_NODEV, true},
    {"tmpfs", "/run", "tmpfs", "mode=0755", MS_NOSUID | MS_NODEV, true},
    {"cgroup2", "/sys/fs/cgroup", "cgroup2", NULL, MS_NOSUID | MS_NOEXEC | MS_NODEV, true},
};

/* Only for a root in memory: on a disk, /tmp stays on the disk, which has more room. */
static const struct mount_row tmp_mount[] = {
    {"tmpfs", "/tmp", "tmpfs", "mode=1777", MS_NOSUID | MS_NODEV, true},
};

static int mount_all(const struct mount_row *rows, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        const struct mount_row *m = &rows[i];

        (void)mkdir(m->target, 0755);
        if (mount(m->source, m->target, m->type, m->flags, m->data) == 0 || errno == EBUSY)
            continue;
        if (!m->is_optional)
            return err_sys(e, errno, "mount '%s'", m->target);
        log_info("mount '%s': %m", m->target);
    }
    return 0;
}

static int link_descriptors(struct err *e)
{
    static const char *const links[][2] = {{"/proc/self/fd", "/dev/fd"},
                                           {"/proc/self/fd/0", "/dev/stdin"},
                                           {"/proc/self/fd/1", "/dev/stdout"},
                                           {"/proc/self/fd/2", "/dev/stderr"}};

    for (size_t i = 0; i < N_ELEMENTS(links); i++)
        if (symlink(links[i][0], links[i][1]) < 0 && errno != EEXIST)
            return err_sys(e, errno, "link '%s'", links[i][1]);
    return 0;
}

/* A kernel without a console gives its first process no descriptors. Opens 0 to 2, so that no other file gets
 * these numbers. */
static void open_standard(void)
{
    int fd;

    do
        fd = open("/dev/console", O_RDWR | O_NOCTTY);
    while (fd >= 0 && fd < 2);
    if (fd > 2)
        (void)close(fd);
}

static bool is_in_initramfs(void)
{
    struct statfs fs;

    return statfs("/", &fs) == 0 && (fs.f_type == RAMFS_MAGIC || fs.f_type == TMPFS_MAGIC);
}

static void load_module(int dir, const char *name)
{
    _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST && errno != ENODEV))
        log_info("kernel module '%.80s': %m", name);
    (void)unlinkat(dir, name, 0);
}

/*
 * Loads the files that MODULES_DIR/order names, in that order, and removes each, to free its memory. A module that
 * the kernel refuses (it is built in, the machine has no such device) is logged; the step that needs it fails
 * later.
 */
static int load_modules(struct err *e)
{
    _cleanup_close_ int fd = open(MODULES_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_free_ char *list = NULL;
    char *at, *name;
    int r;

    if (fd < 0 || faccessat(fd, "order", F_OK, 0) < 0)
        return 0;
    r = io_read_file(fd, "order", MODULES_MAX_BYTES, &list, NULL, e);
    if (r < 0)
        return err_wrap(e, r, "'" MODULES_DIR "/order'");
    at = list;
    while ((name = strsep(&at, "\n")))
        if (*name)
            load_module(fd, name);
    return 0;
}

/* Makes `bellhopd hold` in the box this agent's program; skipped if the root has no place for it. */
static void show_program(void)
{
    if (mount("/init", "/newroot" PROGRAM, NULL, MS_BIND, NULL) < 0)
        log_info("'%s' is the disk's own: %m", PROGRAM);
}

static int enter_root(const struct cmdline *c, bool *ret_is_in_memory, struct err *e)
{
    int r;

    r = load_modules(e);
    if (r == 0)
        r = rootdisk_mount(c->root, ret_is_in_memory, e);
    if (r < 0)
        return r;
    show_program();
    return rootdisk_enter(e);
}

/* Writes the token to a file that --init reads and removes. Without the item there is no token. */
static int take_token(bool *ret_is_there, struct err *e)
{
    _cleanup_free_ char *token = NULL;
    size_t len = 0;
    int r = 0;

    *ret_is_there = io_read_file(AT_FDCWD, TOKEN_SOURCE, TOKEN_MAX_BYTES, &token, &len, NULL) == 0;
    if (*ret_is_there) {
        (void)mkdir(TOKEN_DIR, 0755);
        r = io_write_file(AT_FDCWD, TOKEN_PATH, token, len, 0600, false, e);
        explicit_bzero(token, len);
    }
    (void)syscall(SYS_delete_module, "qemu_fw_cfg", O_NONBLOCK);
    return r;
}

static bool has_option(char *const *options, const char *name)
{
    for (; options && *options; options++)
        if (str_has_prefix(*options, "--") && str_has_prefix(*options + 2, name))
            return true;
    return false;
}

/* The first line of a template's file; NULL: the disk has no such file. */
static char *read_line(const char *path)
{
    char *line = NULL;

    if (io_read_file(AT_FDCWD, path, LINE_MAX_BYTES, &line, NULL, NULL) == 0)
        line[strcspn(line, "\n")] = '\0';
    if (line && !*line)
        free(TAKE(line));
    return line;
}

/* The user and the directory of commands, as in a box: as the template says; else the user `user` if the disk has
 * one, and the user's home. NULL: the agent's own. */
struct defaults {
    char *user, *workdir;
};

static void defaults_done(struct defaults *d)
{
    free(d->user);
    free(d->workdir);
}

static int read_defaults(struct defaults *ret, struct err *e)
{
    _cleanup_free_ char *named = read_line(USER_FILE);
    _cleanup_free_ char *workdir = read_line(WORKDIR_FILE);
    _cleanup_user_ struct user user = {0};
    int r = user_find(named ? named : "user", &user, e);

    if (r == -ERR_NOT_FOUND && !named)
        return 0;
    if (r < 0)
        return err_wrap(e, r, "the template's user");
    if (workdir && !str_eq(workdir, user.home))
        ret->workdir = TAKE(workdir);
    ret->user = named ? TAKE(named) : strdup("user");
    return ret->user ? 0 : err_oom(e);
}

static int make_argv(const struct cmdline *c, bool has_token, const struct defaults *d, char ***ret,
                     struct err *e)
{
    const struct {
        bool is_wanted;
        const char *option, *value;
    } defaults[] = {
        {has_token && !has_option(c->options, "token-") && !has_option(c->options, "auth"),
         "--token-file", TOKEN_PATH},
        {!has_option(c->options, "listen") && !has_option(c->options, "unix"), "--listen",
         "0.0.0.0:4711"},
        {!has_option(c->options, "user") && d->user, "--user", d->user},
        {!has_option(c->options, "workdir") && d->workdir, "--workdir", d->workdir},
        {!has_option(c->options, "start-file") && access(START_FILE, R_OK) == 0, "--start-file",
         START_FILE},
        {!has_option(c->options, "env-file") && access(ENV_FILE, R_OK) == 0, "--env-file",
         ENV_FILE},
    };
    int r;

    if ((r = strv_push(ret, "bellhopd", e)) < 0 || (r = strv_push(ret, "--init", e)) < 0)
        return r;
    for (char **o = c->options; r == 0 && o && *o; o++)
        r = strv_push(ret, *o, e);
    for (size_t i = 0; r == 0 && i < N_ELEMENTS(defaults); i++)
        if (defaults[i].is_wanted && (r = strv_push(ret, defaults[i].option, e)) == 0)
            r = strv_push(ret, defaults[i].value, e);
    return r;
}

bool machine_is_starting(void)
{
    return getpid() == 1 && access("/proc/self/stat", F_OK) < 0;
}

static int read_cmdline(struct cmdline *ret, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    int r = io_read_file(AT_FDCWD, "/proc/cmdline", CMDLINE_MAX_BYTES, &text, NULL, e);

    return r < 0 ? err_wrap(e, r, "the kernel's command line") : cmdline_parse(text, ret, e);
}

static int set_up(const struct cmdline *c, char ***ret_argv, struct err *e)
{
    struct defaults d = {0};
    bool is_in_memory = false, has_token = false;
    int r;

    if (is_in_initramfs() && (r = enter_root(c, &is_in_memory, e)) < 0)
        return r;
    if ((r = mount_all(later_mounts, N_ELEMENTS(later_mounts), e)) < 0 ||
        (is_in_memory && (r = mount_all(tmp_mount, N_ELEMENTS(tmp_mount), e)) < 0) ||
        (r = link_descriptors(e)) < 0 || (r = take_token(&has_token, e)) < 0 ||
        (r = netup_hostname(c->hostname, e)) < 0 || (r = netup(&c->net, e)) < 0 ||
        (r = read_defaults(&d, e)) < 0)
        return r;
    r = make_argv(c, has_token, &d, ret_argv, e);
    defaults_done(&d);
    return r;
}

int machine_start(int *argc, char ***argv, struct err *e)
{
    struct cmdline c = {0};
    char **made = NULL;
    int r;

    is_machine = true;
    (void)umask(022);
    (void)prctl(PR_SET_NAME, "bellhopd"); /* the kernel named us after our file, init */
    (void)reboot(RB_DISABLE_CAD);         /* Ctrl-Alt-Del becomes a signal to us, like SIGTERM */
    r = mount_all(first_mounts, N_ELEMENTS(first_mounts), e);
    if (r < 0)
        return r;
    open_standard();
    if ((r = read_cmdline(&c, e)) == 0)
        r = set_up(&c, &made, e);
    cmdline_done(&c);
    if (r < 0) {
        strv_free(made);
        return r;
    }
    *argc = (int)strv_len(made);
    *argv = made;
    return 0;
}

/* ---- power ---- */

static bool is_root_read_only(void)
{
    struct statfs fs;

    return statfs("/", &fs) == 0 && fs.f_flags & ST_RDONLY;
}

/* A file that is still open for writing prevents a normal remount; SysRq forces it. */
static void close_root(void)
{
    int64_t deadline = clock_mono_ms() + REMOUNT_WAIT_MS;
    int fd;

    if (mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0)
        return;
    log_info("the root file system is in use: %m");
    fd = open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "u", 1) != 1)
        return;
    while (!is_root_read_only() && clock_mono_ms() < deadline)
        (void)poll(NULL, 0, POLL_MS);
}

void machine_power_off(void)
{
    if (!is_machine)
        return;
    (void)kill(-1, SIGKILL);
    sync();
    close_root();
    sync();
    (void)reboot(RB_POWER_OFF);
}

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
        loop_watch_del(b->buttons[i].watch);
        fd_close(b->buttons[i].fd);
    }
    free(b);
    return NULL;
}
