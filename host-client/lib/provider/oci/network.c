#include "lib/provider/oci/network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/provider/oci/keeper.h"
#include "lib/provider/oci/runtime_exec.h"

#define ETC_MAX_BYTES ((size_t)1 << 20)
#define RULES_MAX_BYTES 32768
#define PROC_WAIT_MS 3000

/* ---- the namespace ---- */

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

/* Moves the calling thread into the namespace of `pid`; *ret_back leads back. */
static int oci_netns_enter(pid_t pid, int *ret_back, struct err *e)
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

/* Moves the thread back and closes the descriptor. Aborts the process on failure. */
static void oci_netns_leave(int back)
{
    if (setns(back, CLONE_NEWNET) < 0)
        abort(); /* every later socket of this thread would be in the box */
    fd_close(back);
}

/* oci_cmd.setup: enters for good; arg is a pid_t *. */
static int oci_netns_setup(void *arg, struct err *e)
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

static int oci_netns_loopback_up(pid_t pid, struct err *e)
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

static void oci_addresses_done(struct oci_addresses *a)
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

static int oci_addresses_read(struct oci_addresses *ret, struct err *e)
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

/* ---- the choice of a subnet ---- */

/* Candidates for slirp4netns's /24; one without an address of the host is taken. Gateway .2,
 * name server .3. */
static const char *const helper_subnets[] = {"10.0.2.", "10.41.2.", "172.29.41.", "192.168.241."};

static bool has_prefix(char *const *list, const char *prefix)
{
    for (; list && *list; list++)
        if (str_has_prefix(*list, prefix))
            return true;
    return false;
}

static const char *choose_subnet(const struct oci_addresses *a)
{
    for (size_t i = 0; i < N_ELEMENTS(helper_subnets); i++)
        if (!has_prefix(a->v4, helper_subnets[i]))
            return helper_subnets[i];
    return helper_subnets[0];
}

static char *find_helper(void)
{
    char *path = oci_find_program("slirp4netns");

    return path ? path : oci_find_program("pasta");
}

static bool is_slirp(const char *path)
{
    return str_has_suffix(path, "slirp4netns");
}

int oci_network_check(const struct spec *spec, struct err *e)
{
    _cleanup_free_ char *helper = NULL;
    _cleanup_free_ char *nft = NULL;

    if (!str_eq(spec->network, "user"))
        return 0;
    helper = find_helper();
    if (!helper)
        return err_field(e, ERR_PRECONDITION, "network",
                         "network 'user' needs slirp4netns or pasta: neither is installed");
    nft = oci_find_program("nft");
    return nft ? 0 : oci_missing(spec, "network_filter", "nft is not installed", e);
}

/* ---- hosts and resolv.conf ---- */

/* Copies the lines of a host's file that keep() accepts. */
static int copy_lines(const char *path, bool (*keep)(const char *line), struct buf *out,
                      struct err *e)
{
    _cleanup_free_ char *text = NULL;
    char *save = NULL;
    int r = 0;

    if (io_read_file(AT_FDCWD, path, ETC_MAX_BYTES, &text, NULL, NULL) < 0)
        return 0;
    for (char *line = strtok_r(text, "\n", &save); r == 0 && line;
         line = strtok_r(NULL, "\n", &save))
        if (keep(line))
            r = buf_addf(out, e, "%s\n", line);
    return r;
}

static bool is_not_loopback_entry(const char *line)
{
    return line[0] != '#' && line[0] != ' ' && line[0] != '\t' && !str_has_prefix(line, "127.") &&
           !str_has_prefix(line, "::1") && !str_has_prefix(line, "fe00:") &&
           !str_has_prefix(line, "ff0");
}

static bool is_resolver_option(const char *line)
{
    return str_has_prefix(line, "search ") || str_has_prefix(line, "options ") ||
           str_has_prefix(line, "domain ");
}

static bool is_reachable_server(const char *line)
{
    return str_has_prefix(line, "nameserver ") && !str_has_prefix(line, "nameserver 127.") &&
           !str_has_prefix(line, "nameserver ::1");
}

static bool is_any(const char *line)
{
    (void)line;
    return true;
}

static int make_hosts(const struct provider_box *b, struct buf *out, struct err *e)
{
    int r;

    r = buf_addf(out, e,
                 "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 %s\n",
                 b->name);
    if (r == 0 && !str_eq(b->spec->network, "none"))
        r = copy_lines("/etc/hosts", is_not_loopback_entry, out, e);
    return r;
}

/* The helper's forwarder asks the host's name servers, wherever they are. pasta has none by
 * default: the box asks the host's servers directly. */
static int make_resolv(const struct provider_box *b, struct buf *out, struct err *e)
{
    _cleanup_(oci_addresses_done) struct oci_addresses a = {NULL, NULL};
    _cleanup_free_ char *helper = NULL;
    int r;

    if (str_eq(b->spec->network, "none"))
        return buf_adds(out, "# no network\n", e);
    if (str_eq(b->spec->network, "host"))
        return copy_lines("/etc/resolv.conf", is_any, out, e);
    helper = find_helper();
    r = oci_addresses_read(&a, e);
    if (r == 0 && helper && is_slirp(helper))
        r = buf_addf(out, e, "nameserver %s3\n", choose_subnet(&a));
    else if (r == 0)
        r = copy_lines("/etc/resolv.conf", is_reachable_server, out, e);
    if (r == 0)
        r = copy_lines("/etc/resolv.conf", is_resolver_option, out, e);
    return r;
}

static int write_etc(const struct provider_box *b, const char *name, uint32_t owner,
                     int (*make)(const struct provider_box *b, struct buf *out, struct err *e),
                     struct err *e)
{
    _cleanup_free_ char *path = oci_path(b, name);
    _cleanup_buf_ struct buf text;
    int r;

    buf_init(&text, ETC_MAX_BYTES);
    if (!path)
        return err_oom(e);
    r = make(b, &text, e);
    if (r == 0)
        r = io_write_file(AT_FDCWD, path, text.len ? text.data : "", text.len, 0644, false, e);
    if (r == 0 && chown(path, owner, owner) < 0)
        r = err_sys(e, errno, "own '%s'", path);
    return r;
}

int oci_network_files(const struct provider_box *b, struct err *e)
{
    _cleanup_free_ char *dir = oci_path(b, "oci/etc");
    struct oci_disk disk;
    int r;

    if (!dir)
        return err_oom(e);
    r = oci_disk_load(b, &disk, e);
    if (r == 0)
        r = io_mkdir_p(dir, 0755, e);
    if (r == 0)
        r = write_etc(b, "oci/etc/hosts", disk.base, make_hosts, e);
    if (r == 0)
        r = write_etc(b, "oci/etc/resolv.conf", disk.base, make_resolv, e);
    return r;
}

/* ---- the filter ---- */

static int load_rules(const char *nft, pid_t pid, const struct oci_addresses *a,
                      const char *gateway, const char *verdict, struct err *e)
{
    const char *const argv[] = {nft, "-f", "-", NULL};
    _cleanup_buf_ struct buf rules;
    struct oci_output out;
    struct oci_cmd cmd = {.argv = argv,
                          .stdio_fd = -1,
                          .setup = oci_netns_setup,
                          .setup_arg = &pid,
                          .timeout_ms = OCI_COMMAND_TIMEOUT_MS};
    int r;

    buf_init(&rules, RULES_MAX_BYTES);
    r = oci_netns_rules(a, gateway, verdict, &rules, e);
    if (r < 0)
        return r;
    cmd.input = rules.data;
    return oci_exec_ok(&cmd, &out, e);
}

/* Rejects packets, or drops them where the kernel cannot reject. */
static int add_filter(const struct provider_box *b, const struct oci_run *run,
                      const struct oci_addresses *a, const char *gateway, struct err *e)
{
    _cleanup_free_ char *nft = oci_find_program("nft");
    struct err why = {0};

    if (!nft)
        return oci_missing(b->spec, "network_filter", "nft is not installed", e);
    if (load_rules(nft, run->init.pid, a, gateway, "reject", &why) == 0 ||
        load_rules(nft, run->init.pid, a, gateway, "drop", &why) == 0)
        return 1;
    return oci_missing(b->spec, "network_filter", why.message, e);
}

/* ---- the helper ---- */

static int start_slirp(const char *path, const char *subnet, struct oci_keeper *k,
                       struct oci_run *run, struct err *e)
{
    char pid[16], cidr[40];
    const char *const argv[] = {path,
                                "--configure",
                                "--mtu=65520",
                                "--disable-host-loopback",
                                "--enable-sandbox",
                                "--enable-seccomp",
                                "--ready-fd=3", /* OCI_READY_FD */
                                "--exit-fd=4",  /* OCI_EXIT_FD */
                                cidr,
                                pid,
                                "tap0",
                                NULL};

    (void)snprintf(pid, sizeof(pid), "%d", (int)run->init.pid);
    (void)snprintf(cidr, sizeof(cidr), "--cidr=%s0/24", subnet);
    k->argv = argv;
    k->says_ready = true;
    return oci_keeper_start(k, &run->keeper, &run->helper, e);
}

/* Publishes no port of the box, reaches none of the host, and makes the gateway no alias of the
 * host. pasta would become "nobody", which may not enter the box's namespaces; it confines
 * itself all the same. */
static int start_pasta(const char *path, struct oci_keeper *k, struct oci_run *run, struct err *e)
{
    const char *const argv[] = {path,
                                "--config-net",
                                "--quiet",
                                "--foreground",
                                "--no-map-gw",
                                "--tcp-ports=none",
                                "--udp-ports=none",
                                "--tcp-ns=none",
                                "--udp-ns=none",
                                "--runas=0:0",
                                "--netns-only",
                                "--netns=/proc/self/fd/5", /* OCI_NETNS_FD */
                                NULL};

    k->argv = argv;
    return oci_keeper_start(k, &run->keeper, &run->helper, e);
}

/* Collects the host's proxy settings that box_environment kept, then --env. */
static int find_proxies(const struct provider_box *b, struct oci_keeper *k, struct err *e)
{
    _cleanup_free_ char *path = oci_path(b, "env.json");
    _cleanup_json_ json_t *obj = NULL;
    _cleanup_free_ char *text = NULL;
    _cleanup_strv_ char **env = NULL;
    size_t i, len;
    json_t *entry;
    int r = 0;

    if (!path)
        return err_oom(e);
    if (io_read_file(AT_FDCWD, path, ETC_MAX_BYTES, &text, &len, NULL) == 0)
        (void)jx_parse(text, len, &obj, NULL);
    json_array_foreach (json_object_get(obj, "env"), i, entry)
        if (r == 0 && json_is_string(entry))
            r = strv_push(&env, json_string_value(entry), e);
    for (char **p = b->spec->env; r == 0 && p && *p; p++)
        r = strv_push(&env, *p, e);
    k->n_proxies = oci_proxies_parse(env, k->proxies);
    return r;
}

static int attach_user(const struct provider_box *b, struct oci_run *run, struct err *e)
{
    _cleanup_(oci_addresses_done) struct oci_addresses a = {NULL, NULL};
    _cleanup_free_ char *helper = find_helper();
    _cleanup_free_ char *log = oci_path(b, "oci/network.log");
    struct oci_keeper k = {.box = run->init, .log_path = log};
    char gateway[32];
    int r;

    if (!helper || !log)
        return err_set(e, ERR_PRECONDITION, "slirp4netns is not there any more");
    r = oci_addresses_read(&a, e);
    if (r < 0)
        return r;
    (void)snprintf(gateway, sizeof(gateway), "%s2", choose_subnet(&a));
    r = add_filter(b, run, &a, is_slirp(helper) ? gateway : NULL, e);
    if (r < 0)
        return r;
    run->network_filtered = r > 0;
    r = find_proxies(b, &k, e);
    if (r < 0)
        return r;
    (void)snprintf(run->network_program, sizeof(run->network_program), "%s",
                   is_slirp(helper) ? "slirp4netns" : "pasta");
    return is_slirp(helper) ? start_slirp(helper, choose_subnet(&a), &k, run, e)
                            : start_pasta(helper, &k, run, e);
}

int oci_network_attach(const struct provider_box *b, struct oci_run *run, struct err *e)
{
    int r;

    if (str_eq(run->network, "host"))
        return 0;
    r = oci_netns_loopback_up(run->init.pid, e);
    if (r == 0 && str_eq(run->network, "user"))
        r = attach_user(b, run, e);
    return r < 0 ? r : oci_run_save(b, run, e);
}

/* The keeper ends by itself after the box, together with the helper. */
void oci_network_end(const struct oci_run *run)
{
    if (!oci_proc_wait(&run->keeper, PROC_WAIT_MS))
        oci_proc_signal(&run->keeper, SIGKILL);
    oci_proc_signal(&run->helper, SIGKILL);
    (void)oci_proc_wait(&run->helper, PROC_WAIT_MS);
}
