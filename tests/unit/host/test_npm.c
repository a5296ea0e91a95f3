#include "test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"
#include "lib/util/context.h"
#include "lib/recipe/npm.h"

/* The sha512 of "hello\n" as npm writes it. */
#define HELLO \
    "sha512-58IrmUxZ2c8rSOVJseJGZmNgRZMNPafBrLKZ0cO3+TH5Sq5B7dosKyB6NuEPi8uNRSI+" \
    "VIePWzFufOO2vAGWKQ" \
    "=="

static char base_url[64];
static int server_fd = -1;

/* A registry of one answer a request, in a child: `answer` gets the path. */
static pid_t serve(void (*answer)(int fd, const char *path))
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    pid_t pid;

    server_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    T_OK(server_fd >= 0);
    T_INT(bind(server_fd, (struct sockaddr *)&a, sizeof(a)), 0);
    T_INT(listen(server_fd, 8), 0);
    T_INT(getsockname(server_fd, (struct sockaddr *)&a, &len), 0);
    (void)snprintf(base_url, sizeof(base_url), "http://127.0.0.1:%d", ntohs(a.sin_port));
    pid = fork();
    T_OK(pid >= 0);
    if (pid)
        return pid;
    for (;;) {
        int fd = accept4(server_fd, NULL, NULL, SOCK_CLOEXEC);
        char req[4096], path[1024];
        ssize_t n = read(fd, req, sizeof(req) - 1);

        if (n <= 0 || sscanf(req, "GET %1023s", path) != 1)
            _exit(1);
        answer(fd, path);
        (void)close(fd);
    }
}

/* Nobody listens there any more. */
static void end_server(pid_t pid)
{
    T_INT(kill(pid, SIGKILL), 0);
    T_OK(waitpid(pid, NULL, 0) == pid);
    T_INT(close(server_fd), 0);
}

static void reply(int fd, int status, const char *body)
{
    (void)dprintf(fd, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s", status,
                  strlen(body), body);
}

static struct bh_ctx *context(const char *registry)
{
    static struct bh_ctx ctx;

    ctx = (struct bh_ctx){
        .cache_dir = (char *)"cache", .npm_registry = (char *)registry, .cancel_fd = -1};
    return &ctx;
}

static struct npm *open_npm(const char *registry)
{
    struct npm *n = NULL;

    T_INT(npm_new(context(registry), clock_mono_ms() + 60000, &n, NULL), 0);
    return n;
}

TEST(npm_settings_are_read_as_npm_reads_them)
{
    const char *text = "; registry=https://no\n# registry=https://no\nproxy=x\n"
                       "  registry = \"https://r.test/npm/\" \r\n@s:registry=https://s.test\n";
    _cleanup_free_ char *registry = npm_read_setting(text, "registry");
    _cleanup_free_ char *scoped = npm_read_setting(text, "@s:registry");

    T_STR(registry, "https://r.test/npm/");
    T_STR(scoped, "https://s.test");
    T_OK(!npm_read_setting(text, "missing"));
}

TEST(npm_registry_of_the_options_comes_first)
{
    struct npm *n = open_npm("https://r.test/npm//");
    _cleanup_free_ char *url = NULL;

    T_INT(npm_registry(n, "left-pad", &url, NULL), 0);
    T_STR(url, "https://r.test/npm");
    npm_free(n);
}

TEST(npm_registry_that_is_no_url_is_refused)
{
    struct npm *n = open_npm("ftp://r.test");
    _cleanup_free_ char *url = NULL;
    struct err e = {0};

    T_INT(npm_registry(n, "x", &url, &e), -ERR_INVALID);
    T_STR(e.field, "npm_registry");
    npm_free(n);
}

static void answer_hello(int fd, const char *path)
{
    reply(fd, strcmp(path, "/@a/b/-/b-1.0.0.tgz") == 0 ? 200 : 404, "hello\n");
}

TEST(npm_pinned_package_is_fetched_once_and_kept)
{
    pid_t pid = serve(answer_hello);
    struct npm *n = open_npm(base_url);
    _cleanup_free_ char *path = NULL, *again = NULL;
    struct err e = {0};

    T_INT(npm_fetch(n, "@a/b", "1.0.0", HELLO, &path, &e), 0);
    T_STR(path, "cache/npm/@a+b-1.0.0.tgz");
    T_INT(npm_check_file(path, HELLO, &e), 1);
    end_server(pid);
    T_INT(npm_fetch(n, "@a/b", "1.0.0", HELLO, &again, &e), 0);
    npm_free(n);
}

TEST(npm_cached_package_that_was_changed_is_fetched_again)
{
    _cleanup_free_ char *path = NULL;
    struct err e = {0};
    struct npm *n;

    (void)serve(answer_hello);
    n = open_npm(base_url);
    T_INT(io_write_file(AT_FDCWD, "cache/npm/@a+b-1.0.0.tgz", "evil", 4, 0600, false, NULL), 0);
    T_INT(npm_fetch(n, "@a/b", "1.0.0", HELLO, &path, &e), 0);
    T_INT(npm_check_file(path, HELLO, &e), 1);
    npm_free(n);
}

static void answer_evil(int fd, const char *path)
{
    (void)path;
    reply(fd, 200, "evil\n");
}

TEST(npm_package_with_other_bytes_is_refused_and_not_kept)
{
    _cleanup_free_ char *path = NULL;
    struct err e = {0};
    struct npm *n;

    (void)serve(answer_evil);
    n = open_npm(base_url);
    T_INT(npm_fetch(n, "b", "1.0.0", HELLO, &path, &e), -ERR_DATA_LOSS);
    T_OK(strstr(e.message, "b 1.0.0"));
    T_OK(!path);
    T_OK(access("cache/npm/b-1.0.0.tgz", F_OK) < 0);
    npm_free(n);
}

static void answer_listed(int fd, const char *path)
{
    char body[512];

    if (strcmp(path, "/@a%2fb/2.0.0") == 0) {
        (void)snprintf(body, sizeof(body),
                       "{\"dist\":{\"tarball\":\"%s/elsewhere\",\"integrity\":\"%s\"}}", base_url,
                       HELLO);
        reply(fd, 200, body);
    } else if (strcmp(path, "/elsewhere") == 0) {
        (void)dprintf(fd,
                      "HTTP/1.1 302 F\r\nLocation: %s/final\r\nContent-Length: 0\r\n"
                      "Connection: close\r\n\r\n",
                      base_url);
    } else {
        reply(fd, strcmp(path, "/final") == 0 ? 200 : 404, "hello\n");
    }
}

TEST(npm_unpinned_package_is_checked_by_the_registrys_digest)
{
    _cleanup_free_ char *path = NULL, *none = NULL;
    struct err e = {0};
    struct npm *n;

    (void)serve(answer_listed);
    n = open_npm(base_url);
    T_INT(npm_fetch(n, "@a/b", "2.0.0", NULL, &path, &e), 0);
    T_INT(npm_check_file(path, HELLO, &e), 1);
    T_INT(npm_fetch(n, "@a/b", "3.0.0", NULL, &none, &e), -ERR_NOT_FOUND);
    T_OK(strstr(e.message, "@a/b 3.0.0"));
    npm_free(n);
}

TEST(npm_registry_that_does_not_answer_is_unavailable_and_names_the_package)
{
    pid_t pid = serve(answer_hello);
    struct npm *n = open_npm(base_url);
    _cleanup_free_ char *path = NULL;
    struct err e = {0};

    end_server(pid);
    T_INT(npm_fetch(n, "opencode-linux-x64", "1.0.0", HELLO, &path, &e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "opencode-linux-x64 1.0.0"));
    T_STR(e.field, "npm_registry");
    npm_free(n);
}
