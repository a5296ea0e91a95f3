#pragma once
/* fake_engine: a child process that is a container engine on a unix socket: it answers by rules, and logs each request. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FAKE_SOCKET "engine.sock" /* in the test's directory */
#define FAKE_LOG "engine.log"     /* a line "METHOD PATH" for each request, the path without the version */

struct fake_rule {
    const char *request; /* the beginning of such a line */
    int status;          /* 0: never answers */
    const char *body;
    int times;           /* it is used up after so many; 0: never */
    const char *headers; /* "Name: value\r\n" lines, or NULL */
};

static inline struct fake_rule *fake_find_rule(struct fake_rule *rules, const char *line)
{
    for (struct fake_rule *rule = rules; rule->request; rule++) {
        if (strncmp(line, rule->request, strlen(rule->request)) != 0 || rule->times < 0)
            continue;
        if (rule->times && --rule->times == 0)
            rule->times = -1;
        return rule;
    }
    return NULL;
}

/* The head and the body of a request; false: it did not come. */
static inline bool fake_take_request(int fd, char *head, size_t size)
{
    size_t n = 0, body = 0;
    char *end, *length;

    do {
        ssize_t got = read(fd, head + n, size - 1 - n);

        if (got <= 0)
            return false;
        n += (size_t)got;
        head[n] = '\0';
        end = strstr(head, "\r\n\r\n");
    } while (!end && n < size - 1);
    if (!end)
        return false;
    length = strstr(head, "Content-Length: ");
    if (length && length < end)
        body = strtoul(length + strlen("Content-Length: "), NULL, 10);
    for (size_t have = n - (size_t)(end + 4 - head); have < body;) {
        char rest[4096];
        ssize_t got = read(fd, rest, sizeof(rest));

        if (got <= 0)
            return false;
        have += (size_t)got;
    }
    return true;
}

static inline void fake_answer(int fd, struct fake_rule *rules, const char *line)
{
    static struct fake_rule missing = {"", 404, "{\"message\":\"there is no such thing\"}", 0, NULL};
    static struct fake_rule ping = {"", 200, "OK", 0, "Api-Version: 1.41\r\n"};
    struct fake_rule *rule = fake_find_rule(rules, line);
    const char *body;

    if (!rule)
        rule = strncmp(line, "GET /_ping", 10) == 0 ? &ping : &missing;
    if (!rule->status)
        return;
    body = rule->body ? rule->body : "";
    (void)dprintf(fd, "HTTP/1.1 %d Status\r\n%sContent-Length: %zu\r\n%s\r\n%s", rule->status,
                  rule->headers ? rule->headers : "", strlen(body),
                  rule->status == 101 ? "Connection: Upgrade\r\nUpgrade: tcp\r\n"
                                      : "Connection: close\r\n",
                  body);
    if (rule->status != 101)
        (void)close(fd);
}

/* rules end with a zero row; the first that fits answers, and none is 404, or a ping's answer. */
static inline void fake_engine(struct fake_rule *rules)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = FAKE_SOCKET};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    static char head[1 << 16];

    if (bind(fd, (struct sockaddr *)&un, sizeof(un)) < 0 || listen(fd, 64) < 0)
        abort();
    if (fork() != 0) {
        (void)close(fd);
        return;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_IGN);
    for (;;) {
        char method[16] = "", path[512] = "", line[560];
        int c = accept(fd, NULL, NULL);
        FILE *log;

        if (!fake_take_request(c, head, sizeof(head))) {
            (void)close(c);
            continue;
        }
        (void)sscanf(head, "%15s %511s", method, path);
        (void)snprintf(line, sizeof(line), "%s %s", method,
                       strncmp(path, "/v1.", 4) == 0 ? strchr(path + 1, '/') : path);
        log = fopen(FAKE_LOG, "a");
        if (log) {
            (void)fprintf(log, "%s\n", line);
            (void)fclose(log);
        }
        fake_answer(c, rules, line);
    }
}

/* The requests whose line begins so. */
static inline int fake_count(const char *request)
{
    FILE *log = fopen(FAKE_LOG, "r");
    char line[600];
    int n = 0;

    while (log && fgets(line, sizeof(line), log))
        n += strncmp(line, request, strlen(request)) == 0;
    if (log)
        (void)fclose(log);
    return n;
}
