/*
 * agent_bench BELLHOPD [N]: sizes and latencies of the agent. Starts it N times and
 * measures exec to ready line and to the first 200; its idle memory; then, over one kept
 * connection, POST Exec/Run of /bin/true against a bare posix_spawn of it. Prints one line a
 * number, p50 and p95 where there is a distribution.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N_DEFAULT 50
#define N_MAX 4000
#define REPLY_MAX_BYTES 65536
#define TOKEN "bench-token-bench-token-bench-token"
#define READY_FD 3

extern char **environ;

struct agent {
    pid_t pid;
    uint16_t port;
    double ready_ms;
};

static double now_ms(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

__attribute__((noreturn)) static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_spread(const char *what, double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_doubles);
    printf("%-44s p50 %8.3f ms   p95 %8.3f ms   (%zu runs)\n", what, values[n / 2],
           values[n * 95 / 100], n);
}

/* The port in {"tcp":["127.0.0.1:4711"],...}. */
static uint16_t port_of_ready_line(const char *line)
{
    const char *p = strstr(line, "127.0.0.1:");
    unsigned port = 0;

    if (!p || sscanf(p, "127.0.0.1:%5u", &port) != 1 || port == 0 || port > UINT16_MAX) {
        (void)fprintf(stderr, "no address in the ready line: %s\n", line);
        exit(1);
    }
    return (uint16_t)port;
}

static struct agent start_agent(char *program, char *token_file)
{
    const char *argv[] = {program,    "--listen", "127.0.0.1:0", "--token-file",
                          token_file, "--root",   "/",           "--ready-fd",
                          "3",        NULL};
    posix_spawn_file_actions_t actions;
    struct agent a = {0};
    char line[1024];
    size_t used = 0;
    double start;
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        die("pipe");
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, fds[1], READY_FD);
    (void)posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);

    start = now_ms();
    errno = posix_spawn(&a.pid, program, &actions, NULL, (char *const *)argv, environ);
    if (errno != 0)
        die(program);
    (void)close(fds[1]);
    while (used < sizeof line - 1 && !memchr(line, '\n', used)) {
        ssize_t n = read(fds[0], line + used, sizeof line - 1 - used);

        if (n <= 0)
            die("the ready line");
        used += (size_t)n;
    }
    a.ready_ms = now_ms() - start;
    line[used] = '\0';
    a.port = port_of_ready_line(line);

    (void)close(fds[0]);
    (void)posix_spawn_file_actions_destroy(&actions);
    return a;
}

static void stop_agent(const struct agent *a)
{
    (void)kill(a->pid, SIGTERM);
    (void)waitpid(a->pid, NULL, 0);
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
        die("connect");
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static bool is_complete(const char *reply)
{
    const char *body = strstr(reply, "\r\n\r\n");
    const char *length = strcasestr(reply, "\r\ncontent-length:");

    return body && length && strlen(body + 4) >= strtoul(length + 17, NULL, 10);
}

/* One request, one complete reply; any status except 200 ends the program. */
static void ask(int fd, const char *request)
{
    static char reply[REPLY_MAX_BYTES];
    size_t used = 0;

    if (write(fd, request, strlen(request)) != (ssize_t)strlen(request))
        die("write");
    do {
        ssize_t n = read(fd, reply + used, sizeof reply - 1 - used);

        if (n <= 0)
            die("read");
        used += (size_t)n;
        reply[used] = '\0';
    } while (!is_complete(reply));
    if (strncmp(reply, "HTTP/1.1 200 ", 13) != 0) {
        (void)fprintf(stderr, "not a 200: %s\n", reply);
        exit(1);
    }
}

static void print_memory(pid_t pid)
{
    char path[64];
    char line[256];
    FILE *f;

    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    f = fopen(path, "re");
    if (!f)
        die(path);
    while (fgets(line, sizeof line, f)) {
        unsigned long kib;

        if (sscanf(line, "VmRSS: %lu", &kib) == 1)
            printf("%-44s %lu KiB\n", "resident when idle", kib);
    }
    (void)fclose(f);
}

static void measure_start(char *program, char *token_file, size_t n)
{
    static double ready[N_MAX];
    static double answered[N_MAX];

    for (size_t i = 0; i < n; i++) {
        double start = now_ms();
        struct agent a = start_agent(program, token_file);
        int fd = connect_to(a.port);

        ask(fd, "GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n");
        answered[i] = now_ms() - start;
        ready[i] = a.ready_ms;
        if (i + 1 == n)
            print_memory(a.pid);
        (void)close(fd);
        stop_agent(&a);
    }
    print_spread("exec to the ready line", ready, n);
    print_spread("exec to the first 200", answered, n);
}

static void measure_spawn(size_t n)
{
    static double took[N_MAX];
    const char *argv[] = {"/bin/true", NULL};

    for (size_t i = 0; i < n; i++) {
        double start = now_ms();
        pid_t pid;

        errno = posix_spawn(&pid, argv[0], NULL, NULL, (char *const *)argv, environ);
        if (errno != 0 || waitpid(pid, NULL, 0) < 0)
            die(argv[0]);
        took[i] = now_ms() - start;
    }
    print_spread("posix_spawn and wait of /bin/true", took, n);
}

static void measure_run(char *program, char *token_file, size_t n)
{
    static double took[N_MAX];
    static const char request[] = "POST /bellhop.v1.Exec/Run HTTP/1.1\r\nHost: localhost\r\n"
                                  "Authorization: Bearer " TOKEN "\r\n"
                                  "Content-Type: application/json\r\nContent-Length: 24\r\n\r\n"
                                  "{\"argv\":[\"/bin/true\"]}  ";
    struct agent a = start_agent(program, token_file);
    int fd = connect_to(a.port);

    for (size_t i = 0; i < n; i++) {
        double start = now_ms();

        ask(fd, request);
        took[i] = now_ms() - start;
    }
    print_spread("Exec/Run of /bin/true, kept connection", took, n);
    (void)close(fd);
    stop_agent(&a);
}

static void write_token(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0 || write(fd, TOKEN "\n", sizeof TOKEN) != (ssize_t)sizeof TOKEN)
        die(path);
    (void)close(fd);
}

int main(int argc, char **argv)
{
    char dir[] = "/tmp/bellhop-bench-XXXXXX";
    char token_file[sizeof dir + 8];
    unsigned long n = argc > 2 ? strtoul(argv[2], NULL, 10) : N_DEFAULT;

    if (argc < 2 || n < 1 || n > N_MAX / 4) {
        (void)fprintf(stderr, "usage: agent_bench BELLHOPD [N]\n");
        return 2;
    }
    if (!mkdtemp(dir))
        die(dir);
    (void)snprintf(token_file, sizeof token_file, "%s/token", dir);
    write_token(token_file);

    measure_start(argv[1], token_file, n);
    measure_spawn(n * 4);
    measure_run(argv[1], token_file, n * 4);

    (void)unlink(token_file);
    (void)rmdir(dir);
    return 0;
}
