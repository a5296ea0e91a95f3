/* netup: the network and the name of a machine. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/route.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "system/boot/cmdline.h"
#include "system/boot/machine.h"
#include "system/log.h"

#define POLL_MS 5
#define HOSTS_MAX_BYTES (256 * 1024)
#define HOSTNAME_DEFAULT "bellhop"

static void set_interface_name(struct ifreq *ifr, const char *name)
{
    *ifr = (struct ifreq){0};
    (void)snprintf(ifr->ifr_name, sizeof(ifr->ifr_name), "%s", name);
}

static int bring_up(int fd, const char *name, struct err *e)
{
    struct ifreq ifr;

    set_interface_name(&ifr, name);
    if (ioctl(fd, SIOCGIFFLAGS, &ifr) < 0)
        return err_sys(e, errno, "the network interface '%s'", name);
    ifr.ifr_flags |= IFF_UP;
    if (ioctl(fd, SIOCSIFFLAGS, &ifr) < 0)
        return err_sys(e, errno, "bring up '%s'", name);
    return 0;
}

static void put_address(struct sockaddr *out, struct in_addr address)
{
    const struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = address};

    memcpy(out, &in, sizeof(in));
}

static int set_interface_address(int fd, const char *name, unsigned long request,
                                 struct in_addr address, struct err *e)
{
    struct ifreq ifr;

    set_interface_name(&ifr, name);
    put_address(&ifr.ifr_addr, address);
    if (ioctl(fd, (int)request, &ifr) < 0)
        return err_sys(e, errno, "the address of '%s'", name);
    return 0;
}

static int add_route(int fd, struct in_addr gateway, struct err *e)
{
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};

    put_address(&route.rt_dst, (struct in_addr){0});
    put_address(&route.rt_genmask, (struct in_addr){0});
    put_address(&route.rt_gateway, gateway);
    if (ioctl(fd, SIOCADDRT, &route) < 0 && errno != EEXIST)
        return err_sys(e, errno, "the route to the gateway");
    return 0;
}

/* The first interface, by name, that has a device; lo, tunnels and the like have none. */
static bool find_interface(char out[IFNAMSIZ])
{
    _cleanup_closedir_ DIR *dir = opendir("/sys/class/net");
    struct dirent *d;
    bool is_found = false;

    while (dir && (d = readdir(dir))) {
        char path[320];

        (void)snprintf(path, sizeof(path), "/sys/class/net/%s/device", d->d_name);
        if (d->d_name[0] == '.' || strlen(d->d_name) >= IFNAMSIZ || access(path, F_OK) < 0 ||
            (is_found && strcmp(d->d_name, out) > 0))
            continue;
        memcpy(out, d->d_name, strlen(d->d_name) + 1);
        is_found = true;
    }
    return is_found;
}

static bool wait_for_interface(char out[IFNAMSIZ], int64_t wait_ms)
{
    int64_t deadline = clock_mono_ms() + wait_ms;

    while (!find_interface(out)) {
        if (clock_mono_ms() >= deadline)
            return false;
        (void)poll(NULL, 0, POLL_MS);
    }
    return true;
}

static int write_resolv(const struct cmdline_net *n, struct err *e)
{
    char text[128] = "";
    size_t len = 0;
    int r;

    for (size_t i = 0; i < CMDLINE_N_DNS; i++) {
        char address[INET_ADDRSTRLEN];

        if (n->dns[i].s_addr && inet_ntop(AF_INET, &n->dns[i], address, sizeof(address)))
            len += (size_t)snprintf(text + len, sizeof(text) - len, "nameserver %s\n", address);
    }
    if (!len)
        return 0;
    r = io_write_file(AT_FDCWD, "/etc/resolv.conf", text, len, 0644, false, e);
    return r < 0 ? err_wrap(e, r, "/etc/resolv.conf") : 0;
}

int netup(const struct cmdline_net *n, struct err *e)
{
    _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char name[IFNAMSIZ] = "";
    int r;

    if (fd < 0)
        return err_sys(e, errno, "the network");
    r = bring_up(fd, "lo", e);
    if (r < 0 || n->is_off)
        return r;
    if (n->device[0])
        (void)snprintf(name, sizeof(name), "%s", n->device);
    else if (!wait_for_interface(name, n->is_asked ? NETUP_WAIT_MS : 0))
        return n->is_asked ? err_set(e, ERR_NOT_FOUND, "'ip=' is given, and no interface is there")
                           : 0;
    if ((r = bring_up(fd, name, e)) < 0 ||
        (r = set_interface_address(fd, name, SIOCSIFADDR, n->client, e)) < 0 ||
        (r = set_interface_address(fd, name, SIOCSIFNETMASK, n->netmask, e)) < 0)
        return r;
    if (n->gateway.s_addr && (r = add_route(fd, n->gateway, e)) < 0)
        return r;
    return write_resolv(n, e);
}

/* Programs resolve their own host name (sudo prints an error if it can't). */
static void add_to_hosts(const char *name)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_close_ int fd = -1;
    char line[128];
    int len = snprintf(line, sizeof(line), "127.0.1.1 %s\n", name);

    if (io_read_file(AT_FDCWD, "/etc/hosts", HOSTS_MAX_BYTES, &text, NULL, NULL) == 0 &&
        strstr(text, line))
        return;
    fd = open("/etc/hosts", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0 || io_write_all(fd, line, (size_t)len, NULL) < 0)
        log_info("/etc/hosts: %m");
}

int netup_hostname(const char *name, struct err *e)
{
    _cleanup_free_ char *text = NULL;

    if (!*name &&
        io_read_file(AT_FDCWD, "/etc/hostname", CMDLINE_NAME_BYTES, &text, NULL, NULL) == 0)
        text[strcspn(text, " \t\r\n")] = '\0';
    if (!*name)
        name = text && *text ? text : HOSTNAME_DEFAULT;
    if (sethostname(name, strlen(name)) < 0)
        return err_sys(e, errno, "the host name '%s'", name);
    add_to_hosts(name);
    return 0;
}
