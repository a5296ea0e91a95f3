/*
 * exec_bench MODE PORT TOKEN ARGUMENT...: the measurements of tests/bench/exec.sh, ours and the peer's
 * alternating in one process.
 *
 *   run PORT TOKEN PEER_PORT ROUNDS    /bin/true through Exec/Run and through sandbox-agent, each on a
 *                                      kept connection, and by posix_spawn and wait
 *   output PORT TOKEN FILE ROUNDS      FILE through `cat`: a lossless stream, and a bare pipe
 *   idle PORT TOKEN PID N              resident memory of PID for each of N silent streams
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_ROUNDS 5000
#define MAX_STREAMS 4000
#define REPLY_BYTES 8192
#define PIECE_BYTES (256 * 1024)

extern char **environ;

__attribute__((noreturn)) static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now_ms(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), compare);
    return v[n / 2];
}

static int connect_to(unsigned port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        die("connect");
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

static void post(int fd, const char *path, const char *token, const char *body)
{
    char text[4096];
    int len = snprintf(text, sizeof(text),
                       "POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                       "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                       path, token, strlen(body), body);

    if (len >= (int)sizeof(text) || write(fd, text, (size_t)len) != len)
        die("write");
}

/* One complete reply with a length; anything except success ends the program. */
static void take_reply(int fd)
{
    char reply[REPLY_BYTES];
    size_t used = 0;

    for (;;) {
        ssize_t n = read(fd, reply + used, sizeof(reply) - 1 - used);
        const char *body, *length;

        if (n <= 0)
            die("read");
        used += (size_t)n;
        reply[used] = '\0';
        body = strstr(reply, "\r\n\r\n");
        length = strcasestr(reply, "\r\ncontent-length:");
        if (body && length && strlen(body + 4) >= strtoul(length + 17, NULL, 10))
            break;
    }
    if (strncmp(reply, "HTTP/1.1 200 ", 13) != 0) {
        (void)fprintf(stderr, "not a 200: %s\n", reply);
        exit(1);
    }
}

static double run_ours(int fd, const char *token)
{
    double start = now_ms();

    post(fd, "/bellhop.v1.Exec/Run", token, "{\"argv\":[\"/bin/true\"]}");
    take_reply(fd);
    return now_ms() - start;
}

static double run_peers(int fd, const char *token)
{
    double start = now_ms();

    post(fd, "/v1/processes/run", token, "{\"command\":\"/bin/true\",\"args\":[]}");
    take_reply(fd);
    return now_ms() - start;
}

static double run_bare(void)
{
    const char *argv[] = {"/bin/true", NULL};
    double start = now_ms();
    pid_t pid;

    errno = posix_spawn(&pid, argv[0], NULL, NULL, (char *const *)argv, environ);
    if (errno != 0 || waitpid(pid, NULL, 0) < 0)
        die(argv[0]);
    return now_ms() - start;
}

static int mode_run(unsigned port, const char *token, char **args)
{
    static double ours[MAX_ROUNDS], peers[MAX_ROUNDS], bare[MAX_ROUNDS];
    size_t n = strtoul(args[1], NULL, 10);
    int fd = connect_to(port), peer_fd = connect_to((unsigned)strtoul(args[0], NULL, 10));
    double o, p, b;

    n = n < 1 || n > MAX_ROUNDS ? MAX_ROUNDS : n;
    for (size_t i = 0; i < n; i++) {
        bare[i] = run_bare();
        ours[i] = run_ours(fd, token);
        peers[i] = run_peers(peer_fd, token);
    }
    o = median(ours, n);
    p = median(peers, n);
    b = median(bare, n);
    printf("%-44s %8.3f ms  spawn+wait %8.3f ms  ratio %.2f\n", "exec /bin/true", o, b, o / b);
    printf("%-44s %8.3f ms  sandbox-agent %8.3f ms  ratio %.2f\n", "exec /bin/true", o, p, o / p);
    return 0;
}

/* Reads a stream until `"end":` has come; the total of its bytes is in there. */
static double stream_ours(unsigned port, const char *token, const char *file)
{
    static char buf[PIECE_BYTES + 1];
    char body[1024], last[512] = "";
    double start = now_ms();
    int fd = connect_to(port);
    ssize_t n;

    (void)snprintf(body, sizeof(body), "{\"argv\":[\"cat\",\"%s\"],\"lossless\":true}", file);
    post(fd, "/bellhop.v1.Exec/Start", token, body);
    while (!strstr(last, "\"end\":{")) {
        size_t keep;

        n = read(fd, buf, PIECE_BYTES);
        if (n <= 0)
            die("read");
        keep = (size_t)n < sizeof(last) - 1 ? (size_t)n : sizeof(last) - 1;
        memcpy(last, buf + n - keep, keep);
        last[keep] = '\0';
    }
    (void)close(fd);
    return now_ms() - start;
}

static double stream_bare(const char *file)
{
    static char buf[64 * 1024];
    const char *argv[] = {"cat", file, NULL};
    posix_spawn_file_actions_t actions;
    double start = now_ms();
    pid_t pid;
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        die("pipe");
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    errno = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv, environ);
    if (errno != 0)
        die(argv[0]);
    (void)close(fds[1]);
    while (read(fds[0], buf, sizeof(buf)) > 0)
        ;
    (void)close(fds[0]);
    (void)waitpid(pid, NULL, 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    return now_ms() - start;
}

static int mode_output(unsigned port, const char *token, char **args)
{
    static double ours[MAX_ROUNDS], bare[MAX_ROUNDS];
    size_t n = strtoul(args[1], NULL, 10);
    double o, b;

    n = n < 1 || n > 100 ? 5 : n;
    for (size_t i = 0; i < n; i++) {
        ours[i] = stream_ours(port, token, args[0]);
        bare[i] = stream_bare(args[0]);
    }
    o = median(ours, n);
    b = median(bare, n);
    printf("%-44s %8.1f ms  bare pipe %8.1f ms  ratio %.2f\n", "100 MB of output streamed", o, b,
           o / b);
    return 0;
}

static unsigned long resident_kib(const char *pid)
{
    char path[64], line[256];
    unsigned long kib = 0;
    FILE *f;

    (void)snprintf(path, sizeof(path), "/proc/%s/status", pid);
    f = fopen(path, "re");
    if (!f)
        die(path);
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "VmRSS: %lu", &kib) == 1)
            break;
    (void)fclose(f);
    return kib;
}

static int open_stream(unsigned port, const char *token)
{
    struct pollfd pfd = {.fd = connect_to(port), .events = POLLIN};
    char buf[4096];

    post(pfd.fd, "/bellhop.v1.Exec/Start", token,
         "{\"argv\":[\"sleep\",\"600\"],\"kill_grace_ms\":0}");
    if (poll(&pfd, 1, 10000) != 1 || read(pfd.fd, buf, sizeof(buf)) <= 0)
        die("a stream's start");
    return pfd.fd;
}

static int mode_idle(unsigned port, const char *token, char **args)
{
    static int fds[MAX_STREAMS];
    size_t n = strtoul(args[1], NULL, 10);
    unsigned long before, after;

    n = n < 1 || n > MAX_STREAMS ? 1000 : n;
    (void)close(open_stream(port, token)); /* allocates what every stream shares */
    before = resident_kib(args[0]);
    for (size_t i = 0; i < n; i++)
        fds[i] = open_stream(port, token);
    after = resident_kib(args[0]);
    printf("%-44s %8.1f KiB each (%zu streams, each of a command of its own)\n",
           "idle streams, resident memory", (double)(after - before) / (double)n, n);
    for (size_t i = 0; i < n; i++)
        (void)close(fds[i]);
    return 0;
}

int main(int argc, char **argv)
{
    struct rlimit files;

    if (argc != 6) {
        (void)fprintf(stderr, "usage: exec_bench run|output|idle PORT TOKEN A B\n");
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    if (strcmp(argv[1], "run") == 0)
        return mode_run((unsigned)strtoul(argv[2], NULL, 10), argv[3], argv + 4);
    if (strcmp(argv[1], "output") == 0)
        return mode_output((unsigned)strtoul(argv[2], NULL, 10), argv[3], argv + 4);
    return mode_idle((unsigned)strtoul(argv[2], NULL, 10), argv[3], argv + 4);
}
