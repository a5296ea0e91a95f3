#include "system/ports.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/str.h"
#include "event/loop.h"

#define LINE_BYTES 512
#define LINK_BYTES 64
#define MAX_FDS_LOOKED_AT 200000 /* of all processes together */
#define STATE_ESTABLISHED 1
#define STATE_UNCONNECTED 7 /* an unconnected UDP socket receives from every peer */
#define STATE_LISTEN 10

/* ---- sockets ---- */

struct table {
    struct ports *ports;
    unsigned *established; /* by port number */
    uint64_t *own;         /* the agent's sockets: inodes, in order */
    size_t n_own, own_cap, ports_cap;
};

static int compare_inodes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static bool is_own(const struct table *t, uint64_t inode)
{
    return t->n_own && bsearch(&inode, t->own, t->n_own, sizeof(inode), compare_inodes);
}

static int add_port_row(struct table *t, const struct port *p, struct err *e)
{
    struct ports *all = t->ports;
    int r;

    all->n_listening++;
    if (all->n == PORTS_MAX)
        return 0;
    r = array_grow(&all->list, &t->ports_cap, all->n + 1, PORTS_MAX, e);
    if (r < 0)
        return r;
    all->list[all->n++] = *p;
    return 0;
}

/* The kernel prints an address as 32-bit words, each in the byte order of the machine. */
static bool parse_address(const char *hex, bool is_v6, struct in6_addr *ret)
{
    size_t n_words = is_v6 ? 4 : 1;

    *ret = (struct in6_addr){0};
    for (size_t i = 0; i < n_words; i++) {
        uint32_t word;

        if (sscanf(hex + 8 * i, "%8" SCNx32, &word) != 1)
            return false;
        memcpy((char *)ret + 4 * i, &word, sizeof(word));
    }
    return true;
}

static void name_address(struct port *p, const struct in6_addr *a)
{
    struct in_addr v4;
    bool is_any;

    memcpy(&v4, a, sizeof(v4));
    if (p->is_v6 && IN6_IS_ADDR_V4MAPPED(a))
        memcpy(&v4, (const char *)a + 12, sizeof(v4));
    (void)inet_ntop(p->is_v6 ? AF_INET6 : AF_INET, a, p->address, sizeof(p->address));
    if (p->is_v6 && !IN6_IS_ADDR_V4MAPPED(a)) {
        is_any = IN6_IS_ADDR_UNSPECIFIED(a);
        p->is_loopback = IN6_IS_ADDR_LOOPBACK(a);
        p->is_reachable = is_any || p->is_loopback;
    } else {
        is_any = v4.s_addr == htonl(INADDR_ANY);
        p->is_loopback = ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
        p->is_reachable = is_any || v4.s_addr == htonl(INADDR_LOOPBACK);
    }
    p->is_reachable = p->is_reachable && !p->is_udp;
}

/* "  0: 0100007F:1F90 00000000:0000 0A tx:rx tr:when retrnsmt uid timeout inode ..." */
static int take_line(struct table *t, const char *line, bool is_udp, bool is_v6, struct err *e)
{
    struct port p = {.is_udp = is_udp, .is_v6 = is_v6};
    char local[40], remote[40];
    struct in6_addr address;
    unsigned number, state;
    unsigned long uid;

    if (sscanf(line, " %*u: %39[0-9A-Fa-f]:%x %39[0-9A-Fa-f]:%*x %x %*s %*s %*s %lu %*d %" SCNu64,
               local, &number, remote, &state, &uid, &p.inode) != 6 ||
        number > UINT16_MAX || strlen(local) != (is_v6 ? 32 : 8))
        return 0;
    /* The agent's own end of a forwarded connection does not count: the server's end does. */
    if (!is_udp && state == STATE_ESTABLISHED && !is_own(t, p.inode))
        t->established[number]++;
    if (state != (is_udp ? STATE_UNCONNECTED : STATE_LISTEN) || !number ||
        !parse_address(local, is_v6, &address))
        return 0;
    p.number = (uint16_t)number;
    p.uid = (uid_t)uid;
    p.is_agent = is_own(t, p.inode);
    name_address(&p, &address);
    return add_port_row(t, &p, e);
}

static int read_table(struct table *t, const char *path, bool is_udp, bool is_v6, struct err *e)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    char line[LINE_BYTES];
    int r = 0;

    if (!f) {
        t->ports->is_unreadable = t->ports->is_unreadable || (!is_udp && !is_v6);
        return 0;
    }
    while (r == 0 && fgets(line, sizeof(line), f))
        r = take_line(t, line, is_udp, is_v6, e);
    return r;
}

static int compare_ports(const void *a, const void *b)
{
    const struct port *x = a, *y = b;

    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    if (x->is_udp != y->is_udp)
        return x->is_udp ? 1 : -1;
    return strcmp(x->address, y->address);
}

/* ---- processes ---- */

/* "socket:[12345]" -> 12345; 0: not a socket. */
static uint64_t socket_inode(int dir, const char *name)
{
    char text[LINK_BYTES];
    ssize_t n = readlinkat(dir, name, text, sizeof(text) - 1);
    uint64_t inode;

    if (n <= 0)
        return 0;
    text[n] = '\0';
    return sscanf(text, "socket:[%" SCNu64 "]", &inode) == 1 ? inode : 0;
}

static int read_own(struct table *t, struct err *e)
{
    _cleanup_closedir_ DIR *d = opendir("/proc/self/fd");
    struct dirent *entry;

    while (d && (entry = readdir(d))) {
        uint64_t inode = socket_inode(dirfd(d), entry->d_name);
        int r;

        if (!inode)
            continue;
        r = array_grow(&t->own, &t->own_cap, t->n_own + 1, MAX_FDS_LOOKED_AT, e);
        if (r < 0)
            return r;
        t->own[t->n_own++] = inode;
    }
    if (t->n_own)
        qsort(t->own, t->n_own, sizeof(*t->own), compare_inodes);
    return 0;
}

static struct port *find_inode(struct ports *all, uint64_t inode)
{
    for (size_t i = 0; inode && i < all->n; i++)
        if (all->list[i].inode == inode)
            return &all->list[i];
    return NULL;
}

/* Changes the file system ids of this thread only; libc's functions would change every thread's. */
static void take_ids(uid_t uid, gid_t gid)
{
    (void)syscall(SYS_setfsgid, gid);
    (void)syscall(SYS_setfsuid, uid);
}

/* Root without CAP_SYS_PTRACE may list a user's descriptors, but not read their links. */
static bool is_closed_to_us(int process)
{
    char c;

    return readlinkat(process, "exe", &c, sizeof(c)) < 0 && errno == EACCES;
}

/* Opens the list of a process's descriptors, with our ids, else with those of its user. */
static DIR *open_fds(int process, bool *ret_is_other)
{
    struct stat st;
    int fd;
    DIR *d;

    *ret_is_other =
        geteuid() == 0 && is_closed_to_us(process) && fstat(process, &st) == 0 && st.st_uid;
    if (*ret_is_other)
        take_ids(st.st_uid, st.st_gid);
    fd = openat(process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        fd_close(fd);
    return d;
}

static void name_process(int process, pid_t pid, struct port *p)
{
    _cleanup_close_ int fd = openat(process, "comm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, p->name, sizeof(p->name) - 1);

    p->pid = pid;
    p->name[n > 0 ? n : 0] = '\0';
    p->name[strcspn(p->name, "\n")] = '\0';
    str_make_utf8(p->name);
    n = readlinkat(process, "exe", p->exe, sizeof(p->exe) - 1);
    p->exe[n > 0 ? n : 0] = '\0';
}

/* The first process found that holds a socket counts as its owner. */
static void match_sockets(struct ports *all, int process, pid_t pid, unsigned *n_fds,
                          size_t *n_unknown)
{
    bool is_other;
    _cleanup_closedir_ DIR *d = open_fds(process, &is_other);
    struct dirent *entry;

    while (d && *n_unknown && (entry = readdir(d)) && ++*n_fds < MAX_FDS_LOOKED_AT) {
        struct port *p = find_inode(all, socket_inode(dirfd(d), entry->d_name));

        if (!p || p->pid)
            continue;
        name_process(process, pid, p);
        --*n_unknown;
    }
    if (is_other)
        take_ids(geteuid(), getegid());
}

static void find_processes(struct ports *all)
{
    _cleanup_closedir_ DIR *d = opendir("/proc");
    size_t n_unknown = all->n;
    struct dirent *entry;
    unsigned n_fds = 0;

    while (d && n_unknown && n_fds < MAX_FDS_LOOKED_AT && (entry = readdir(d))) {
        _cleanup_close_ int process = -1;
        uint64_t pid;

        if (str_parse_u64(entry->d_name, 1, INT32_MAX, &pid, NULL) < 0)
            continue;
        process = openat(dirfd(d), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (process >= 0)
            match_sockets(all, process, (pid_t)pid, &n_fds, &n_unknown);
    }
}

/* ---- the list ---- */

static int read_tables(struct table *t, struct err *e)
{
    static const struct {
        const char *path;
        bool is_udp, is_v6;
    } files[] = {{"/proc/net/tcp", false, false},
                 {"/proc/net/tcp6", false, true},
                 {"/proc/net/udp", true, false},
                 {"/proc/net/udp6", true, true}};
    int r = 0;

    for (size_t i = 0; i < N_ELEMENTS(files) && r == 0; i++)
        r = read_table(t, files[i].path, files[i].is_udp, files[i].is_v6, e);
    for (size_t i = 0; i < t->ports->n; i++)
        if (!t->ports->list[i].is_udp)
            t->ports->list[i].connections = t->established[t->ports->list[i].number];
    return r;
}

int ports_read(unsigned flags, struct ports *ret, struct err *e)
{
    struct ports all = {0};
    struct table t = {.ports = &all, .established = calloc(UINT16_MAX + 1, sizeof(unsigned))};
    int r;

    r = t.established ? read_own(&t, e) : err_oom(e);
    if (r == 0)
        r = read_tables(&t, e);
    free(t.established);
    free(t.own);
    if (r < 0) {
        ports_done(&all);
        return r;
    }
    if (all.n)
        qsort(all.list, all.n, sizeof(*all.list), compare_ports);
    if (flags & PORTS_PROCESSES)
        find_processes(&all);
    *ret = all;
    return 0;
}

void ports_done(struct ports *p)
{
    if (!p)
        return;
    free(p->list);
    *p = (struct ports){0};
}

unsigned ports_connections(const struct ports *p)
{
    unsigned n = 0;
    uint16_t counted = 0;

    for (size_t i = 0; i < p->n; i++) {
        const struct port *port = &p->list[i];

        /* Sorted: several listeners of one number, on different addresses, share its count. */
        if (port->is_udp || port->is_agent || port->number == counted)
            continue;
        counted = port->number;
        n += port->connections;
    }
    return n;
}

/* ---- connections ---- */

struct dial {
    struct loop *loop;
    uint16_t port;
    dial_fn fn;
    void *arg;
    int fd;
    struct sockaddr_storage to[2];
    size_t n_to, n_tried;
    int sys; /* of the last try */
    struct loop_watch *watch;
    struct loop_timer *timer; /* the deadline, or the delivery of an immediate result */
};

static void on_dial_timer(struct loop *l, void *arg);

static void drop_socket(struct dial *d)
{
    d->watch = loop_watch_del(d->watch);
    fd_close(TAKE_FD(d->fd));
}

static void dial_finish(struct dial *d, int fd)
{
    struct err error = {0};
    dial_fn fn = d->fn;
    void *arg = d->arg;

    if (fd < 0)
        (void)err_field(&error, ERR_UNAVAILABLE, "port",
                        d->sys == ETIMEDOUT ? "port %d in the box does not answer"
                                            : "nothing listens on port %d in the box",
                        (int)d->port);
    d->watch = loop_watch_del(d->watch);
    d->fd = -1;
    dial_free(d);
    fn(arg, fd, &error);
}

static bool add_address(struct dial *d, const char *text, uint16_t port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        memcpy(&d->to[d->n_to++], &v4, sizeof(v4));
    else if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1)
        memcpy(&d->to[d->n_to++], &v6, sizeof(v6));
    else
        return false;
    return true;
}

/* Returns 0: connected. EINPROGRESS: not yet. Else the errno. */
static int try_connect(struct dial *d)
{
    const struct sockaddr_storage *to = &d->to[d->n_tried++];
    int on = 1;

    d->fd = socket(to->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (d->fd < 0)
        return errno;
    (void)setsockopt(d->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return connect(d->fd, (const struct sockaddr *)to,
                   to->ss_family == AF_INET ? sizeof(struct sockaddr_in)
                                            : sizeof(struct sockaddr_in6)) < 0
               ? errno
               : 0;
}

/*
 * If nobody listens on an ephemeral port, the kernel may assign that very port to the client: the socket is
 * then connected to itself.
 */
static bool is_self_connected(int fd)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_len = sizeof(own), peer_len = sizeof(peer);

    return getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 && own_len == peer_len &&
           memcmp(&own, &peer, own_len) == 0;
}

static void on_writable(struct loop *l, uint32_t events, void *arg);

/* Tries addresses until one connects, one must be waited for, or none is left. True: done. */
static bool dial_advance(struct dial *d)
{
    for (;;) {
        d->sys = try_connect(d);
        if (d->sys == 0 && is_self_connected(d->fd))
            d->sys = ECONNREFUSED;
        if (d->sys == 0)
            return true;
        if (d->sys == EINPROGRESS &&
            loop_watch_add(d->loop, d->fd, EPOLLOUT, on_writable, d, &d->watch, NULL) == 0)
            return false;
        drop_socket(d);
        if (d->n_tried == d->n_to)
            return true;
    }
}

static void on_writable(struct loop *l, uint32_t events, void *arg)
{
    struct dial *d = arg;
    socklen_t len = sizeof(d->sys);

    (void)l;
    (void)events;
    if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &d->sys, &len) == 0 && d->sys == 0 &&
        !is_self_connected(d->fd)) {
        dial_finish(d, d->fd);
        return;
    }
    drop_socket(d);
    if (d->n_tried == d->n_to) {
        dial_finish(d, -1);
        return;
    }
    if (dial_advance(d))
        dial_finish(d, d->fd);
}

static void on_dial_timer(struct loop *l, void *arg)
{
    struct dial *d = arg;

    (void)l;
    d->timer = NULL;
    if (d->sys == EINPROGRESS) {
        d->sys = ETIMEDOUT;
        drop_socket(d);
    }
    dial_finish(d, d->fd);
}

int dial_new(struct loop *l, const char *host, uint16_t port, dial_fn fn, void *arg,
             struct dial **ret, struct err *e)
{
    struct dial *d = calloc(1, sizeof(*d));
    int64_t at_ms = clock_mono_ms();
    int r;

    if (!d)
        return err_oom(e);
    *d = (struct dial){.loop = l, .port = port, .fn = fn, .arg = arg, .fd = -1};
    if (!add_address(d, host ? host : "127.0.0.1", port)) {
        free(d);
        return dial_check_host(host, e);
    }
    if (!host)
        (void)add_address(d, "::1", port);
    if (!dial_advance(d))
        at_ms += DIAL_TIMEOUT_MS;
    r = loop_timer_add(l, at_ms, on_dial_timer, d, &d->timer, e);
    if (r < 0) {
        dial_free(d);
        return r;
    }
    *ret = d;
    return 0;
}

int dial_check_host(const char *host, struct err *e)
{
    struct dial none = {0};

    if (add_address(&none, host, 0))
        return 0;
    return err_field(e, ERR_INVALID, "host", "'%.64s' is not an IP address", host);
}

struct dial *dial_free(struct dial *d)
{
    if (!d)
        return NULL;
    drop_socket(d);
    loop_timer_del(d->timer);
    free(d);
    return NULL;
}

int dial_parse_port(const char *text, uint16_t *ret, const char **ret_end, struct err *e)
{
    size_t len = strspn(text, "0123456789");
    char digits[8] = "";
    uint64_t port = 0;

    if (len && len < sizeof(digits) && (!text[len] || strchr("/?", text[len])))
        memcpy(digits, text, len);
    if (str_parse_u64(digits, 1, 65535, &port, NULL) < 0)
        return err_field(e, ERR_INVALID, "port", "a port from 1 to 65535 is needed in the path");
    *ret = (uint16_t)port;
    *ret_end = text + len;
    return 0;
}
