#include "system/ports.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/mem.h"
#include "common/str.h"

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
