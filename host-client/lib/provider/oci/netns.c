#include "lib/provider/oci/netns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/str.h"

#define LISTEN_BACKLOG 64

static int open_netns(pid_t pid, int *ret_fd, struct err *e)
{
    char path[48];
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", path);
    *ret_fd = fd;
    return 0;
}

int oci_netns_enter(pid_t pid, int *ret_back, struct err *e)
{
    _cleanup_close_ int there = -1;
    _cleanup_close_ int back = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    int r;

    if (back < 0)
        return err_sys(e, errno, "open the own network namespace");
    r = open_netns(pid, &there, e);
    if (r < 0)
        return r;
    if (setns(there, CLONE_NEWNET) < 0)
        return err_sys(e, errno, "enter the network namespace of process %d", (int)pid);
    *ret_back = TAKE_FD(back);
    return 0;
}

void oci_netns_leave(int back)
{
    if (setns(back, CLONE_NEWNET) < 0)
        abort(); /* every later socket of this thread would be in the box */
    fd_close(back);
}

int oci_netns_setup(void *arg, struct err *e)
{
    _cleanup_close_ int there = -1;
    int r;

    r = open_netns(*(const pid_t *)arg, &there, e);
    if (r < 0)
        return r;
    if (setns(there, CLONE_NEWNET) < 0)
        return err_sys(e, errno, "enter the box's network namespace");
    return 0;
}

static int loopback_up(struct err *e)
{
    _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq req = {.ifr_name = "lo"};

    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &req) < 0)
        return err_sys(e, errno, "read the loopback device");
    req.ifr_flags = (short)(req.ifr_flags | IFF_UP);
    if (ioctl(fd, SIOCSIFFLAGS, &req) < 0)
        return err_sys(e, errno, "bring the loopback device up");
    return 0;
}

int oci_netns_loopback_up(pid_t pid, struct err *e)
{
    int back, r;

    r = oci_netns_enter(pid, &back, e);
    if (r < 0)
        return r;
    r = loopback_up(e);
    oci_netns_leave(back);
    return r;
}

int oci_netns_listen(pid_t pid, const struct sockaddr *addr, socklen_t addr_len, int *ret_fd,
                     struct err *e)
{
    _cleanup_close_ int fd = -1;
    const int one = 1;
    int back, r;

    r = oci_netns_enter(pid, &back, e);
    if (r < 0)
        return r;
    fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    oci_netns_leave(back); /* a socket keeps the namespace that it was made in */
    if (fd < 0)
        return err_sys(e, errno, "make a socket in the box");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, addr, addr_len) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
        return err_sys(e, errno, "listen in the box for the host's proxy");
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* ---- the host's addresses ---- */

void oci_addresses_done(struct oci_addresses *a)
{
    a->v4 = strv_free(a->v4);
    a->v6 = strv_free(a->v6);
}

static int add_address(struct oci_addresses *a, const struct sockaddr *sa, struct err *e)
{
    char text[INET6_ADDRSTRLEN];

    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)sa;

        if ((ntohl(in->sin_addr.s_addr) >> 24) == 127)
            return 0;
        return inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text)) ? strv_push(&a->v4, text, e)
                                                                     : 0;
    }
    if (sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)sa;

        if (IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) || IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
            return 0;
        return inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text)) ? strv_push(&a->v6, text, e)
                                                                        : 0;
    }
    return 0;
}

int oci_addresses_read(struct oci_addresses *ret, struct err *e)
{
    struct oci_addresses a = {NULL, NULL};
    struct ifaddrs *list;
    int r = 0;

    if (getifaddrs(&list) < 0)
        return err_sys(e, errno, "list the host's addresses");
    for (struct ifaddrs *i = list; r == 0 && i; i = i->ifa_next)
        if (i->ifa_addr)
            r = add_address(&a, i->ifa_addr, e);
    freeifaddrs(list);
    if (r < 0) {
        oci_addresses_done(&a);
        return r;
    }
    *ret = a;
    return 0;
}

static int add_rules(struct buf *out, const char *family, char *const *list, const char *verdict,
                     struct err *e)
{
    int r = 0;

    for (size_t i = 0; r == 0 && list && list[i]; i++)
        r = buf_addf(out, e, "  %s daddr %s %s\n", family, list[i], verdict);
    return r;
}

int oci_netns_rules(const struct oci_addresses *a, const char *gateway, const char *verdict,
                    struct buf *out, struct err *e)
{
    int r;

    r = buf_addf(out, e,
                 "table inet bellhop {\n chain output {\n"
                 "  type filter hook output priority 0; policy accept;\n"
                 "  oifname \"lo\" accept\n"
                 "  ip daddr { 169.254.0.0/16%s%s } %s\n"
                 "  ip6 daddr fe80::/10 %s\n",
                 gateway ? ", " : "", gateway ? gateway : "", verdict, "drop");
    if (r == 0)
        r = add_rules(out, "ip", a->v4, verdict, e);
    if (r == 0)
        r = add_rules(out, "ip6", a->v6, verdict, e);
    if (r == 0)
        r = buf_adds(out, " }\n}\n", e);
    return r;
}
