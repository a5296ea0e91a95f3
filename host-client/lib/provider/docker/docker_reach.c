/* docker_reach: the way to the guest agent in a container. It is chosen at each start and after a connection that failed,
 * and recorded: a connection then needs the engine only to ask whether the container still runs. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/docker/docker.h"
#include "lib/util/procfs.h"
#include "lib/util/socket_relay.h"
#include "lib/util/socket.h"

#define RECORD_FILE "docker.json"
#define RECORD_BYTES 4096
#define PROC_BYTES ((size_t)1 << 20)
#define TRY_MS 2000
#define TRY_ONCE_MS 50
#define TRY_PAUSE_MS 5
#define FRAME_HEAD 8
#define LOOPBACK "127.0.0.1"
#define DIAL_TCP_MS 5000 /* a bridge's neighbour that is gone costs 3 s */
#define AGENT_MS 15000
#define AGENT_PAUSE_MS 50

static const char *const reach_names[] = {"address", "published", "exec", NULL};

struct reach {
    enum docker_reach way;
    const char *container;
    const char *started; /* docker_container.started */
    const char *address; /* of the first */
    uint32_t port;       /* of the first two */
    uint32_t pid; /* of the container's first process, if it is one of this machine; else 0 */
    uint64_t pid_start;
    json_t *doc; /* owns the strings */
};

static void reach_done(struct reach *w)
{
    json_decref(w->doc);
}
#define _cleanup_reach_ __attribute__((cleanup(reach_done)))

static int reach_save(const struct provider_box *b, const struct reach *w, struct err *e)
{
    _cleanup_free_ char *path = path_join(b->dir, RECORD_FILE);
    _cleanup_json_ json_t *doc =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:I}", "way", reach_names[w->way], "container",
                  w->container, "started", w->started, "address", w->address, "port", (int)w->port,
                  "pid", (int)w->pid, "pid_start", (json_int_t)w->pid_start);
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r = path && doc ? jx_dump(doc, &text, &len, e) : err_oom(e);

    return r < 0 ? r : io_write_file(AT_FDCWD, path, text, len, 0600, true, e);
}

static int reach_load(const struct provider_box *b, struct reach *ret, struct err *e)
{
    static const struct jx_field fields[] = {
        JX_ENUM("way", struct reach, way, reach_names, JX_REQUIRED),
        JX(struct reach, container, jx_str, JX_REQUIRED),
        JX(struct reach, started, jx_str, JX_REQUIRED),
        JX(struct reach, address, jx_str, JX_REQUIRED),
        JX(struct reach, port, jx_u32, JX_REQUIRED),
        JX(struct reach, pid, jx_u32, JX_REQUIRED),
        JX(struct reach, pid_start, jx_u64, JX_REQUIRED),
        {0},
    };
    _cleanup_free_ char *path = path_join(b->dir, RECORD_FILE);
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r = path ? io_read_file(AT_FDCWD, path, RECORD_BYTES, &text, &len, e) : err_oom(e);

    if (r == 0)
        r = jx_parse(text, len, &ret->doc, e);
    if (r == 0)
        r = jx_decode(ret->doc, fields, ret, e);
    return r < 0 ? err_wrap(e, r, "the record of the container") : 0;
}

bool docker_recorded_id(const struct provider_box *b, char ret[DOCKER_ID_BYTES])
{
    _cleanup_reach_ struct reach w = {0};

    if (reach_load(b, &w, NULL) < 0 || !docker_is_id(w.container))
        return false;
    (void)snprintf(ret, DOCKER_ID_BYTES, "%s", w.container);
    return true;
}

int docker_record_container(const struct provider_box *b, const char *id, struct err *e)
{
    const struct reach w = {
        .way = DOCKER_REACH_EXEC, .container = id, .started = "", .address = ""};

    return reach_save(b, &w, e);
}

/* 1, 0, or ERR_DATA_LOSS: runs of a container are told apart by their time alone. */
static int is_run_of(const struct docker_container *c, const struct reach *w, struct err *e)
{
    if (!c->is_running || !str_eq(c->id, w->container))
        return 0;
    return *c->started ? str_eq(c->started, w->started)
                       : docker_answer_is_strange(e, "start time of the container");
}

/* A record that is absent or broken is of no run. Without descriptors or memory, or with an error of the disk, nothing
 * is known. */
static bool is_unread(int r, const struct err *why)
{
    return r == -ERR_EXHAUSTED ||
           (why->sys && why->sys != ENOENT && why->sys != ENOTDIR && why->sys != EISDIR);
}

int docker_is_own_run(const struct provider_box *b, const struct docker_container *c, struct err *e)
{
    _cleanup_reach_ struct reach w = {0};
    struct err why = {0};
    int r;

    if (!c->is_running)
        return 0;
    r = reach_load(b, &w, &why);
    if (r == 0)
        return is_run_of(c, &w, e);
    if (!is_unread(r, &why))
        return 0;
    if (e)
        *e = why;
    return r;
}

/* Of the process that the engine tells. NULL: there is none, or it is somebody's who hides it. free() it. */
static char *read_proc(const struct docker_container *c, const char *file)
{
    char path[48], *text = NULL;

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)c->pid, file);
    return io_read_file(AT_FDCWD, path, PROC_BYTES, &text, NULL, NULL) == 0 ? text : NULL;
}

bool docker_has_own_cgroup(const struct docker_container *c)
{
    _cleanup_free_ char *text = c->pid > 1 ? read_proc(c, "cgroup") : NULL;

    return text && strstr(text, c->id);
}

/* Engines mount a file of the container there. That a mount point names the container proves nothing: other processes
 * of the machine see Docker's. */
static bool has_own_hosts(const struct docker_container *c)
{
    _cleanup_free_ char *text = read_proc(c, "mountinfo");

    for (const char *at = text; at && (at = strstr(at, " /etc/hosts ")); at++) {
        const char *line = at;

        while (line > text && line[-1] != '\n')
            line--;
        if (memmem(line, (size_t)(at - line), c->id, strlen(c->id)))
            return true;
    }
    return false;
}

/*
 * If the pid that the engine tells is one of this machine, the process is in the container's control group. Rootless
 * engines have none with cgroup v1. The kernel may give the pid to another process at any time: the start time is read
 * before the proof, and is the same after it.
 */
struct docker_process docker_own_process(const struct docker_container *c)
{
    struct docker_process p = {.pid = c->pid, .start = c->pid > 1 ? procfs_start_time(c->pid) : 0};

    return p.start && (docker_has_own_cgroup(c) || has_own_hosts(c)) &&
                   procfs_is_alive(p.pid, p.start)
               ? p
               : (struct docker_process){0};
}

/* ---- choosing ---- */

/*
 * The agent listens a moment after the container has started. The first packet to a bridge's new port may be lost, and
 * the kernel repeats it after a second: a new connection is faster.
 */
static bool answers_at(const struct provider_box *b, const char *host, uint16_t port)
{
    int64_t deadline = clock_mono_ms() + TRY_MS;

    while (clock_until_ms(deadline) > 0) {
        struct err why = {0};
        int fd = -1;
        int r = socket_connect_tcp(host, port, b->ctx->cancel_fd, clock_mono_ms() + TRY_ONCE_MS,
                                   &fd, &why);

        fd_close(fd);
        if (r == 0)
            return true;
        if (r == -ERR_CANCELED ||
            (r == -ERR_UNAVAILABLE && socket_wait_canceled(b->ctx->cancel_fd, TRY_PAUSE_MS)))
            return false;
    }
    return false;
}

/*
 * A socket of this machine may lead to an engine of another one (ssh -L), whose addresses and ports are those of
 * somebody else here. A process of the container on this machine proves the engine; that of Docker Desktop is in its
 * virtual machine, and its ports are here.
 */
static int is_engine_here(struct engine *d, const struct docker_container *c, pid_t pid,
                          struct err *e)
{
    struct docker_facts facts = {0};
    int r;

    if (pid || !c->published || !engine_is_local(d))
        return pid != 0;
    r = docker_read_facts(d, &facts, e);
    if (r == 0)
        r = facts.is_desktop;
    docker_facts_done(&facts);
    return r;
}

/* Of the entry of a socket in /proc/net/tcp: does it listen at this port of the loopback? */
static bool is_listener(const char *line, uint16_t port, uid_t *ret_uid)
{
    unsigned address = 0, at = 0, state = 0, uid = 0;

    if (sscanf(line, " %*u: %8x:%4x %*8x:%*4x %2x %*s %*s %*s %u", &address, &at, &state, &uid) !=
            4 ||
        state != TCP_LISTEN || at != port ||
        (address != htonl(INADDR_LOOPBACK) && address != htonl(INADDR_ANY)))
        return false;
    *ret_uid = uid;
    return true;
}

/* Does the user of the engine, or root, listen there, and nobody else? */
static bool is_engines_port(struct engine *d, uint16_t port)
{
    FILE *f = fopen("/proc/net/tcp", "re");
    bool is_found = false, is_ours = true;
    char line[256];
    uid_t owner, uid;

    if (!f)
        return false;
    is_ours = engine_owner(d, &owner, NULL) == 0;
    while (is_ours && fgets(line, sizeof(line), f))
        if (is_listener(line, port, &uid)) {
            is_found = true;
            is_ours = uid == owner || uid == 0;
        }
    (void)fclose(f);
    return is_found && is_ours;
}

int docker_record_reach(const struct provider_box *b, struct engine *d,
                        const struct docker_container *c, struct err *e)
{
    struct docker_process p = {0};
    struct reach w = {
        .way = DOCKER_REACH_EXEC, .container = c->id, .started = c->started, .address = ""};
    int is_here;

    if (!*c->started)
        return docker_answer_is_strange(e, "start time of the container");
    if (engine_is_local(d))
        p = docker_own_process(c);
    w.pid = (uint32_t)p.pid;
    w.pid_start = p.start;
    is_here = is_engine_here(d, c, p.pid, e);
    if (is_here < 0)
        return is_here;
    if (is_here && c->published && answers_at(b, LOOPBACK, c->published) &&
        is_engines_port(d, c->published)) {
        w.way = DOCKER_REACH_PUBLISHED;
        w.port = c->published;
    } else if (is_here && str_eq(b->spec->network, "user") && !c->published && *c->address &&
               answers_at(b, c->address, DOCKER_AGENT_PORT)) {
        w.way = DOCKER_REACH_ADDRESS;
        w.address = c->address;
        w.port = DOCKER_AGENT_PORT;
    }
    return reach_save(b, &w, e);
}

/* ---- connecting ---- */

/*
 * Does the kernel have the address as a local one of the process's network? That it does not proves nothing: its table
 * is of IPv4 alone, and a sandbox with a network of its own (gVisor) takes the address from the kernel.
 */
static bool has_local_address(pid_t pid, const char *address)
{
    _cleanup_free_ char *text = NULL;
    char path[48], leaf[80];

    (void)snprintf(path, sizeof(path), "/proc/%d/net/fib_trie", (int)pid);
    (void)snprintf(leaf, sizeof(leaf), "|-- %.64s\n", address);
    if (io_read_file(AT_FDCWD, path, PROC_BYTES, &text, NULL, NULL) < 0)
        return false;
    for (const char *at = strstr(text, leaf); at; at = strstr(at, leaf)) {
        at += strlen(leaf);
        while (at[strspn(at, " ")] == '/') { /* a line for each route of the address */
            const char *end = strchr(at, '\n');

            if (str_has_prefix(at + strspn(at, " "), "/32 host LOCAL"))
                return true;
            if (!end)
                return false;
            at = end + 1;
        }
    }
    return false;
}

/* Does the engine have the run, with this address or port? */
static int ask_engine(struct provider_box *b, const struct reach *w, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container c = {0};
    bool has_address, has_port;
    int r = docker_open_container(b, &d, &c, e);

    if (r == 1)
        r = is_run_of(&c, w, e);
    has_address = w->way != DOCKER_REACH_ADDRESS || str_eq(c.address, w->address);
    has_port = w->way != DOCKER_REACH_PUBLISHED || c.published == w->port;
    docker_container_done(&c);
    if (r < 0)
        return r;
    if (r == 0)
        return err_set(e, ERR_UNAVAILABLE, "the container has ended");
    if (!has_address)
        return err_set(e, ERR_UNAVAILABLE, "the container does not have the address %s any more",
                       w->address);
    if (!has_port)
        return err_set(e, ERR_UNAVAILABLE, "the container does not have the port %u any more",
                       w->port);
    if (w->way == DOCKER_REACH_PUBLISHED && !is_engines_port(d, (uint16_t)w->port))
        return err_set(e, ERR_UNAVAILABLE, "the port %u is not the engine's", w->port);
    return 0;
}

/*
 * The engine gives the address of a container that has ended, or was disconnected from the network, to the next one,
 * which would get the token. So the container is seen to run and to have the address after the connection was made: by
 * its first process, or by asking the engine. The process lives after its network was read, so that it was its own. A
 * published port is another process's, which may end before the container: the process proves nothing of it.
 */
static int check_runs(struct provider_box *b, const struct reach *w, struct err *e)
{
    bool has_address =
        w->pid && w->way == DOCKER_REACH_ADDRESS && has_local_address((pid_t)w->pid, w->address);

    if (w->pid && !procfs_is_alive((pid_t)w->pid, w->pid_start))
        return err_set(e, ERR_UNAVAILABLE, "the container has ended");
    return has_address ? 0 : ask_engine(b, w, e);
}

static int dial_tcp(struct provider_box *b, const struct reach *w, int *ret_fd, struct err *e)
{
    const char *host = w->way == DOCKER_REACH_PUBLISHED ? LOOPBACK : w->address;
    int64_t most_ms = provider_deadline(b), ms = clock_mono_ms() + DIAL_TCP_MS;
    _cleanup_close_ int fd = -1;
    int r = socket_connect_tcp(host, (uint16_t)w->port, b->ctx->cancel_fd,
                               ms < most_ms ? ms : most_ms, &fd, e);

    if (r == 0)
        r = check_runs(b, w, e);
    if (r == 0)
        *ret_fd = TAKE_FD(fd);
    return r;
}

int docker_strip_frames(void *arg, struct buf *in, struct buf *out, bool is_eof)
{
    (void)arg;
    (void)is_eof;
    while (in->len >= FRAME_HEAD) {
        const unsigned char *h = (const unsigned char *)in->data;
        size_t n = (size_t)h[4] << 24 | (size_t)h[5] << 16 | (size_t)h[6] << 8 | h[7];

        if (n > DOCKER_FRAME_BYTES || h[0] > 2)
            return -1;
        if (in->len < FRAME_HEAD + n || out->len + n > out->max)
            return 0;
        if (h[0] == 1 && buf_add(out, in->data + FRAME_HEAD, n, NULL) < 0)
            return -1;
        buf_consume(in, FRAME_HEAD + n);
    }
    return 0;
}

static int start_dialer(struct engine *d, const char *container, const char *socket, int *ret_fd,
                        struct err *e)
{
    _cleanup_json_ json_t *command =
        json_pack("{s:b, s:b, s:b, s:b, s:[s, s, s]}", "AttachStdin", 1, "AttachStdout", 1,
                  "AttachStderr", 0, "Tty", 0, "Cmd", DOCKER_AGENT, "dial", socket);
    _cleanup_json_ json_t *start = json_pack("{s:b, s:b}", "Detach", 0, "Tty", 0);
    _cleanup_json_ json_t *made = NULL;
    const char *id;
    char path[160];
    int r;

    if (!command || !start)
        return err_oom(e);
    (void)snprintf(path, sizeof(path), "/containers/%.72s/exec", container);
    r = engine_call(d, "POST", path, command, &made, e);
    if (r < 0)
        return r;
    id = json_string_value(json_object_get(made, "Id"));
    if (!docker_is_id(id))
        return docker_answer_is_strange(e, "id of the command");
    (void)snprintf(path, sizeof(path), "/exec/%.72s/start", id);
    return engine_hijack(d, path, start, ret_fd, e);
}

static int dial_exec(struct provider_box *b, const struct reach *w, int *ret_fd, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL, *own = NULL;
    struct socket_relay relay = {.to_left = docker_strip_frames, .stop_fd = -1};
    const char *socket = docker_agent_socket(b->spec);
    struct docker_container c = {0};
    int pair[2];
    int r = docker_open(b, &d, e);

    if (r == 0)
        r = start_dialer(d, w->container, socket, &relay.right, e);
    /* Another engine answers at the address by now, and the box's own is the one in force? */
    if (r == -ERR_NOT_FOUND && docker_open_container(b, &own, &c, NULL) == 1 &&
        !str_eq(engine_url(own), engine_url(d)))
        r = start_dialer(own, w->container, socket, &relay.right, e);
    docker_container_done(&c);
    if (r < 0)
        return r;
    r = socket_pair(pair, e);
    if (r < 0) {
        fd_close(relay.right);
        return r;
    }
    relay.left = pair[1];
    r = socket_relay_start(&relay, e);
    if (r < 0)
        fd_close(pair[0]);
    else
        *ret_fd = pair[0];
    return r;
}

static int dial_recorded(struct provider_box *b, int *ret_fd, enum docker_reach *ret_way,
                         struct err *e)
{
    _cleanup_reach_ struct reach w = {0};
    int r = reach_load(b, &w, e);

    if (r < 0)
        return r;
    *ret_way = w.way;
    return w.way == DOCKER_REACH_EXEC ? dial_exec(b, &w, ret_fd, e) : dial_tcp(b, &w, ret_fd, e);
}

/* The container's network is another one by now, or none: `exec` needs none. */
static int record_reach_anew(struct provider_box *b, struct err *e)
{
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_container c = {0};
    int r = docker_open_container(b, &d, &c, e);

    if (r == 1)
        r = docker_is_own_run(b, &c, e);
    if (r == 0)
        r = err_set(e, ERR_UNAVAILABLE, "the container has ended");
    else if (r == 1)
        r = docker_record_reach(b, d, &c, e);
    docker_container_done(&c);
    return r;
}

int docker_dial(struct provider_box *b, int *ret_fd, struct err *e)
{
    enum docker_reach way = DOCKER_REACH_EXEC;
    int r = dial_recorded(b, ret_fd, &way, e);

    if (r < 0 && r != -ERR_CANCELED && way != DOCKER_REACH_EXEC) {
        r = record_reach_anew(b, e);
        if (r == 0)
            r = dial_recorded(b, ret_fd, &way, e);
    }
    return r < 0 && r != -ERR_CANCELED
               ? err_wrap(e, r, "the guest agent of '%.64s' cannot be reached", b->name)
               : r;
}

/* ---- waiting ---- */

/* Any answer, also a refusal, shows that it has read its token. */
static bool agent_answers(const struct provider_box *b, int fd, int64_t deadline_mono_ms)
{
    static const char request[] =
        "GET /v1/health HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n";
    char text[8] = "";

    return send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) == (ssize_t)sizeof(request) - 1 &&
           socket_wait(fd, false, b->ctx->cancel_fd, deadline_mono_ms, NULL) == 0 &&
           recv(fd, text, sizeof(text) - 1, 0) > 0 && str_has_prefix(text, "HTTP/1");
}

int docker_await_agent(struct provider_box *b, struct engine *d, struct err *e)
{
    int64_t deadline = clock_mono_ms() + AGENT_MS;

    if (deadline > provider_deadline(b))
        deadline = provider_deadline(b);
    while (clock_until_ms(deadline) > 0) {
        struct docker_container c = {0};
        _cleanup_close_ int fd = -1;
        bool runs;
        int r = docker_dial(b, &fd, e);

        if (r == 0 && agent_answers(b, fd, deadline))
            return 0;
        if (r == -ERR_CANCELED)
            return r;
        r = docker_find_container(b, d, &c, e);
        runs = r == 1 && c.is_running;
        docker_container_done(&c);
        if (r < 0)
            return r;
        if (!runs)
            return err_set(e, ERR_UNAVAILABLE, "the container ended at once");
        if (socket_wait_canceled(b->ctx->cancel_fd, AGENT_PAUSE_MS))
            return err_set(e, ERR_CANCELED, "canceled");
    }
    return err_set(e, ERR_UNAVAILABLE, "the guest agent does not answer");
}
