/* The provider docker against an engine that says what a test wants. */
#include "test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "fake_engine.h"
#include "lib/provider/docker/docker.h"
#include "lib/provider/provider.h"
#include "lib/provider/spec.h"
#include "lib/util/procfs.h"
#include "lib/util/socket.h"

#define MARK "0123456789abcdef0123456789abcdef"
#define BOX "00000000000000aa"
#define ID "1111111111111111111111111111111111111111111111111111111111111111"
#define NEVER "0001-01-01T00:00:00Z" /* began */
#define OTHER_ID "2222222222222222222222222222222222222222222222222222222222222222"
#define LABELS "\"Labels\":{\"dev.bellhop.box\":\"" BOX "\",\"dev.bellhop.store\":\"" MARK "\"}"

/* The engine's document of the box's container. */
#define CONTAINER(status_, started_) \
    "{\"Id\":\"" ID "\",\"Name\":\"/bellhop-" BOX "\",\"Config\":{" LABELS \
    "},\"State\":{\"Status\":\"" status_ "\",\"ExitCode\":0,\"Pid\":0,\"StartedAt\":\"" started_ \
    "\"},\"NetworkSettings\":{}}"

struct stage {
    struct bh_ctx ctx;
    struct spec spec;
    struct provider_box box;
};

/* A box "one" of the engine in this directory, whose rules are given. */
static void stage_init(struct stage *s, struct fake_rule *rules)
{
    static char here[] = ".";
    struct bh_create_options o = {.size = sizeof(o), .name = "one", .provider = "docker"};
    char cwd[512], path[600];

    *s = (struct stage){.ctx = {.cancel_fd = -1, .state_dir = here}};
    T_INT(spec_from_options(&o, &s->spec, NULL), 0);
    T_OK(getcwd(cwd, sizeof(cwd)) != NULL);
    (void)snprintf(path, sizeof(path), "unix://%s/" FAKE_SOCKET, cwd);
    free(s->spec.engine);
    s->spec.engine = strdup(path);
    T_INT(io_write_file(AT_FDCWD, "mark", MARK, strlen(MARK), 0600, false, NULL), 0);
    s->box = (struct provider_box){.ctx = &s->ctx,
                                   .id = BOX,
                                   .name = "one",
                                   .dir = ".",
                                   .spec = &s->spec,
                                   .deadline_mono_ms = clock_mono_ms() + 60000};
    s->ctx.docker_host = s->spec.engine;
    fake_engine(rules);
}

static void stage_done(struct stage *s)
{
    spec_done(&s->spec);
}

static void write_text(const char *path, const char *text)
{
    T_INT(io_write_file(AT_FDCWD, path, text, strlen(text), 0600, false, NULL), 0);
}

static void write_record_at(const char *way, const char *started, const char *address,
                            unsigned port, int pid)
{
    char text[512];

    (void)snprintf(text, sizeof(text),
                   "{\"way\":\"%s\",\"container\":\"" ID "\",\"started\":\"%s\",\"address\":\"%s\","
                   "\"port\":%u,\"pid\":%d,\"pid_start\":%llu}",
                   way, started, address, port, pid,
                   pid ? (unsigned long long)procfs_start_time(pid) : 0ULL);
    write_text("docker.json", text);
}

/* The record of a start. */
static void write_record(const char *way, const char *started, unsigned port, int pid)
{
    write_record_at(way, started, "", port, pid);
}

/* ---- its state ---- */

TEST(a_container_that_is_stopping_has_not_ended)
{
    struct fake_rule rules[] = {
        {"GET /containers/bellhop-" BOX "/json", 200, CONTAINER("stopping", "one"), 0, NULL}, {0}};
    struct provider_run run;
    struct stage s;

    stage_init(&s, rules);
    write_record("exec", "one", 0, 0);
    T_INT(provider_docker.find(&s.box, &run, NULL), 1);
    stage_done(&s);
}

TEST(a_run_that_somebody_else_began_is_none_of_the_box)
{
    struct fake_rule rules[] = {
        {"GET /containers/bellhop-" BOX "/json", 200, CONTAINER("running", "two"), 0, NULL}, {0}};
    struct provider_run run;
    struct stage s;
    char why[100];

    stage_init(&s, rules);
    write_record("exec", "two", 0, 0);
    T_INT(provider_docker.find(&s.box, &run, NULL), 1);
    write_record("exec", "one", 0, 0);
    T_INT(provider_docker.find(&s.box, &run, NULL), 0);
    T_INT(provider_docker.pause(&s.box, PROVIDER_PAUSE_FREEZE, NULL), -ERR_PRECONDITION);
    provider_docker.end_reason(&s.box, why, sizeof(why));
    T_STR(why, "somebody else started its container again");
    stage_done(&s);
}

/* An engine that does not say when a container's run began. */
static void starts_that_are_none(struct stage *s, const char *recorded)
{
    struct provider_run run;
    struct err e = {0};
    char why[100];
    int fd = -1;

    write_record("exec", recorded, 0, 0);
    T_INT(provider_docker.find(&s->box, &run, &e), -ERR_DATA_LOSS);
    T_OK(strstr(e.message, "start time") != NULL);
    T_INT(provider_docker.start(&s->box, &run, NULL), -ERR_DATA_LOSS);
    T_INT(provider_docker.pause(&s->box, PROVIDER_PAUSE_FREEZE, NULL), -ERR_DATA_LOSS);
    write_record("published", recorded, 1, getpid());
    T_OK(provider_docker.dial(&s->box, &fd, NULL) < 0);
    T_INT(fd, -1);
    provider_docker.end_reason(&s->box, why, sizeof(why));
    T_STR(why, "");
    T_INT(unlink("docker.json"), 0);
}

TEST(a_run_of_an_engine_that_does_not_say_when_it_began_is_neither_ours_nor_over)
{
    static const char *const starts[] = {"", ",\"StartedAt\":\"\"", ",\"StartedAt\":null",
                                         ",\"StartedAt\":\"0001-01-01T00:00:00Z\""};

    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
        char body[1024];
        struct fake_rule rules[] = {{"GET /containers/bellhop-" BOX "/json", 200, body, 0, NULL},
                                    {0}};
        struct docker_container c = {0};
        struct engine *d = NULL;
        struct stage s;

        (void)snprintf(body, sizeof(body),
                       "{\"Id\":\"" ID "\",\"Name\":\"/bellhop-" BOX "\",\"Config\":{" LABELS
                       "},\"State\":{\"Status\":\"running\",\"ExitCode\":0,\"Pid\":0%s}}",
                       starts[i]);
        stage_init(&s, rules);
        starts_that_are_none(&s, "one");
        starts_that_are_none(&s, "");
        T_INT(docker_open(&s.box, &d, NULL), 0);
        T_INT(docker_find_container(&s.box, d, &c, NULL), 1); /* it can be removed */
        T_INT(docker_record_reach(&s.box, d, &c, NULL), -ERR_DATA_LOSS);
        T_OK(access("docker.json", F_OK) < 0);
        docker_container_done(&c);
        (void)engine_free(d);
        stage_done(&s);
        T_INT(unlink(FAKE_SOCKET), 0);
    }
}

/* The kernel answers a read of the first bytes of this file with EIO. */
TEST(a_record_that_cannot_be_read_is_an_error_and_one_that_is_absent_or_broken_is_an_end)
{
    struct fake_rule rules[] = {
        {"GET /containers/bellhop-" BOX "/json", 200, CONTAINER("running", "one"), 0, NULL}, {0}};
    struct provider_run run;
    struct err e = {0};
    struct stage s;
    char why[100];

    stage_init(&s, rules);
    T_INT(provider_docker.find(&s.box, &run, NULL), 0);
    write_text("docker.json", "{\"way\":");
    T_INT(provider_docker.find(&s.box, &run, NULL), 0);
    T_INT(unlink("docker.json"), 0);
    T_INT(symlink("/proc/self/mem", "docker.json"), 0);
    T_OK(provider_docker.find(&s.box, &run, &e) < 0);
    T_INT(e.sys, EIO);
    T_OK(strstr(e.message, "the record of the container") != NULL);
    provider_docker.end_reason(&s.box, why, sizeof(why));
    T_STR(why, "");
    stage_done(&s);
}

/* ---- its identity ---- */

#define INFO_OF(id_, root_) \
    "{\"ID\":\"" id_ "\",\"DockerRootDir\":\"" root_ "\",\"NCPU\":2," \
    "\"MemTotal\":1073741824,\"DefaultRuntime\":\"runc\",\"Runtimes\":{\"runc\":{}}}"
#define NO_SUCH "{\"message\":\"no such container\"}"
#define OTHERS \
    "{\"Id\":\"" OTHER_ID "\",\"Name\":\"/bellhop-" BOX \
    "\",\"Config\":{\"Labels\":{}},\"State\":{\"Status\":\"running\",\"ExitCode\":0}}"

TEST(a_container_is_found_by_its_recorded_id_whatever_name_it_has)
{
    char body[1024];
    struct fake_rule rules[] = {{"GET /containers/bellhop-" BOX "/json", 200, OTHERS, 0, NULL},
                                {"GET /containers/" ID "/json", 200, body, 2, NULL},
                                {"GET /containers/" ID "/json", 404, NO_SUCH, 0, NULL},
                                {"GET /info", 200, INFO_OF("one", "/var/lib/docker"), 0, NULL},
                                {"POST /containers/" ID "/stop", 204, "", 0, NULL},
                                {0}};
    struct provider_run run;
    struct err e = {0};
    struct stage s;

    (void)snprintf(body, sizeof(body), "%s", CONTAINER("running", "one"));
    memcpy(strstr(body, "/bellhop-"), "/renamed-", 9);
    stage_init(&s, rules);
    /* Without a record, the name leads to somebody else's. */
    T_INT(provider_docker.find(&s.box, &run, &e), -ERR_EXISTS);
    T_OK(strstr(e.message, "not of this box") != NULL);
    T_INT(provider_docker.destroy(&s.box, NULL), -ERR_EXISTS);
    write_record("exec", "one", 0, 0);
    T_INT(provider_docker.find(&s.box, &run, NULL), 1);
    T_INT(provider_docker.has_disk(&s.box, NULL), 1);
    /* It was removed: the other one is none of ours, and stays. */
    T_INT(provider_docker.has_disk(&s.box, NULL), 0);
    T_INT(provider_docker.stop(&s.box, 0, NULL), 0);
    T_INT(provider_docker.destroy(&s.box, NULL), 0);
    T_INT(fake_count("DELETE "), 0);
    T_INT(fake_count("POST "), 0);
    stage_done(&s);
}

/* ---- its disk ---- */

/* The box as the next command has it. */
static void store_spec(struct stage *s)
{
    json_t *stored = spec_to_json(&s->spec);

    spec_done(&s->spec);
    T_INT(spec_from_json(stored, &s->spec, NULL), 0);
    json_decref(stored);
    s->ctx.docker_host = s->spec.engine;
}

TEST(a_container_that_another_engine_does_not_have_is_not_gone)
{
    struct fake_rule rules[] = {
        {"GET /info", 200, INFO_OF("one", "/var/lib/docker"), 1, NULL}, /* check() */
        {"GET /containers/bellhop-" BOX "/json", 200, CONTAINER("exited", "one"), 1, NULL},
        {"GET /info", 200, INFO_OF("two", "/var/lib/docker"), 2, NULL},
        {"GET /info", 200, INFO_OF("one", "/mnt/docker"), 2, NULL},
        {"GET /info", 200, INFO_OF("one", "/var/lib/docker"), 2, NULL},
        {"GET /info", 503, "{\"message\":\"busy\"}", 1, NULL},
        {0}};
    struct provider_run run;
    struct err e = {0};
    struct stage s;

    stage_init(&s, rules);
    T_INT(provider_docker.check(&s.ctx, &s.spec, NULL), 0);
    store_spec(&s);
    T_INT(provider_docker.has_disk(&s.box, NULL), 1);
    T_INT(fake_count("GET /info"), 1); /* a container that is there proves its engine */
    for (int i = 0; i < 2; i++) {
        T_INT(provider_docker.has_disk(&s.box, &e), -ERR_UNAVAILABLE);
        T_OK(strstr(e.message, "another engine answers at 'unix://") != NULL);
        T_STR(e.field, "engine"); /* not the setting docker-host, which the box does not follow */
        T_INT(provider_docker.find(&s.box, &run, NULL), -ERR_UNAVAILABLE);
    }
    T_INT(provider_docker.has_disk(&s.box, NULL), 0);
    T_INT(provider_docker.find(&s.box, &run, NULL), 0);
    T_INT(provider_docker.has_disk(&s.box, NULL), -ERR_UNAVAILABLE); /* it does not say */
    stage_done(&s);
}

TEST(an_engine_whose_name_is_longer_than_the_record_is_still_known)
{
    char root[600], info[1024]; /* two bytes a character, and the record ends within one */
    struct fake_rule rules[] = {{"GET /info", 200, info, 2, NULL}, {0}};
    struct stage s;

    for (size_t i = 0; i + 2 < sizeof(root); i += 2)
        memcpy(root + i, "\xc3\xa9", 3);
    (void)snprintf(info, sizeof(info), INFO_OF("on", "/%s"), root);
    stage_init(&s, rules);
    T_INT(provider_docker.check(&s.ctx, &s.spec, NULL), 0);
    T_OK(strlen(s.spec.engine_id) < 512);
    T_OK(strstr(s.spec.engine_id, "/\xc3\xa9") != NULL);
    store_spec(&s);
    T_INT(provider_docker.has_disk(&s.box, NULL), 0);
    stage_done(&s);
}

TEST(a_box_of_an_earlier_version_is_gone_by_the_word_of_any_engine)
{
    struct fake_rule rules[] = {{0}};
    struct provider_run run;
    struct stage s;

    stage_init(&s, rules);
    store_spec(&s);
    T_INT(provider_docker.has_disk(&s.box, NULL), 0);
    T_INT(provider_docker.find(&s.box, &run, NULL), 0);
    T_INT(fake_count("GET /info"), 0);
    stage_done(&s);
}

#define PING(headers_) \
    { \
        "GET /_ping", 200, "OK", 0, headers_ \
    }
#define PODMAN_OF(host_, root_) \
    "{\"host\":{\"cpus\":2,\"hostname\":\"" host_ "\",\"ociRuntime\":{\"name\":\"runc\"}}," \
    "\"store\":{\"graphRoot\":\"" root_ "\"}}"

TEST(podman_is_another_engine_on_another_machine_or_with_other_storage)
{
    struct fake_rule rules[] = {
        PING("Api-Version: 1.41\r\nLibpod-Api-Version: 4.3.1\r\n"),
        {"GET /libpod/info", 200, PODMAN_OF("a", "/var/lib/containers"), 1, NULL}, /* check() */
        {"GET /libpod/info", 200, PODMAN_OF("b", "/var/lib/containers"), 1, NULL},
        {"GET /libpod/info", 200, PODMAN_OF("a", "/mnt/containers"), 1, NULL},
        {"GET /libpod/info", 200, PODMAN_OF("a", "/var/lib/containers"), 1, NULL},
        {0}};
    struct stage s;

    stage_init(&s, rules);
    T_INT(provider_docker.check(&s.ctx, &s.spec, NULL), 0);
    store_spec(&s);
    T_INT(provider_docker.has_disk(&s.box, NULL), -ERR_UNAVAILABLE);
    T_INT(provider_docker.has_disk(&s.box, NULL), -ERR_UNAVAILABLE);
    T_INT(provider_docker.has_disk(&s.box, NULL), 0);
    stage_done(&s);
}

/* ---- its first process ---- */

static void container_of(pid_t pid, char *out, size_t size)
{
    (void)snprintf(out, size,
                   "{\"Id\":\"" ID "\",\"Name\":\"/bellhop-" BOX "\",\"Config\":{" LABELS
                   "},\"State\":{\"Status\":\"running\",\"ExitCode\":0,\"Pid\":%d,"
                   "\"StartedAt\":\"one\"}}",
                   (int)pid);
}

static void unshare_mounts(void)
{
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        t_skip("mounts need root");
}

TEST(a_process_that_only_sees_the_mounts_of_a_container_is_not_its_first)
{
    char body[1024];
    struct fake_rule rules[] = {{"GET /containers/bellhop-" BOX "/json", 200, body, 0, NULL}, {0}};
    struct provider_run run;
    struct stage s;

    unshare_mounts();
    container_of(getpid(), body, sizeof(body));
    stage_init(&s, rules);
    write_record("exec", "one", 0, 0);
    T_INT(mkdir(ID, 0700), 0);
    T_INT(mount(ID, ID, NULL, MS_BIND, NULL), 0);
    T_INT(provider_docker.find(&s.box, &run, NULL), 1);
    T_INT(run.pid, 0);
    write_text(ID "/hosts", "");
    T_INT(mount(ID "/hosts", "/etc/hosts", NULL, MS_BIND, NULL), 0);
    T_INT(provider_docker.find(&s.box, &run, NULL), 1);
    T_INT(run.pid, getpid());
    T_INT(run.pid_start, procfs_start_time(getpid()));
    stage_done(&s);
}

#define PID_TEXT "4242"
#define PID_NUMBER 4242

/* The kernel's words on this process, which was started at that time. */
static void write_stat(const char *start)
{
    char text[256];

    (void)snprintf(text, sizeof(text),
                   PID_TEXT " (sleep) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %s 0 0 0 0 0 0\n",
                   start);
    write_text("/proc/" PID_TEXT "/stat", text);
}

/* In a /proc of its own, where the control group is read from a fifo: when that is open, another process has the pid. */
TEST(a_pid_that_is_another_processs_by_the_time_it_is_proved_is_none)
{
    char body[1024];
    struct fake_rule rules[] = {{"GET /containers/bellhop-" BOX "/json", 200, body, 0, NULL}, {0}};
    const char *const later_starts[] = {"100", "200"};
    struct stage s;

    unshare_mounts();
    container_of(PID_NUMBER, body, sizeof(body));
    stage_init(&s, rules);
    write_record("exec", "one", 0, 0);
    T_INT(mount("tmpfs", "/proc", "tmpfs", 0, NULL), 0);
    T_INT(mkdir("/proc/" PID_TEXT, 0755), 0);
    T_INT(mkfifo("/proc/" PID_TEXT "/cgroup", 0600), 0);
    for (size_t i = 0; i < 2; i++) {
        struct provider_run run;

        write_stat("100");
        if (fork() == 0) {
            int fd = open("/proc/" PID_TEXT "/cgroup", O_WRONLY | O_CLOEXEC);

            write_stat(later_starts[i]);
            _exit(write(fd, ID, strlen(ID)) == (ssize_t)strlen(ID) ? 0 : 1);
        }
        T_INT(provider_docker.find(&s.box, &run, NULL), 1);
        T_INT(run.pid, i == 0 ? PID_NUMBER : 0);
        T_INT(run.pid_start, i == 0 ? 100 : 0);
    }
    T_INT(umount2("/proc", MNT_DETACH), 0); /* the sanitizers read it */
    stage_done(&s);
}

/* ---- a published port ---- */

static int listen_as(uid_t uid, uint16_t *ret_port)
{
    int fds[2], fd = -1;

    T_INT(pipe(fds), 0);
    if (fork() == 0) {
        if (setuid(uid) < 0 || socket_listen_tcp(0, &fd, ret_port, NULL) < 0)
            _exit(1);
        (void)!write(fds[1], ret_port, sizeof(*ret_port));
        for (;;)
            (void)pause();
    }
    (void)close(fds[1]);
    T_INT(read(fds[0], ret_port, sizeof(*ret_port)), sizeof(*ret_port));
    (void)close(fds[0]);
    return 0;
}

/* A container of Docker Desktop: of no process here, and with this port. */
static void published_container(char *out, size_t size, unsigned port)
{
    (void)snprintf(out, size,
                   "{\"Id\":\"" ID "\",\"Name\":\"/bellhop-" BOX "\",\"Config\":{" LABELS
                   "},\"State\":{"
                   "\"Status\":\"running\",\"ExitCode\":0,\"Pid\":0,\"StartedAt\":\"one\"},"
                   "\"NetworkSettings\":{\"Ports\":{\"4711/tcp\":[{\"HostIp\":\"127.0.0.1\","
                   "\"HostPort\":\"%u\"}]}}}",
                   port);
}

static void recorded_way_is(const char *want)
{
    char *text = NULL, part[40];

    T_INT(io_read_file(AT_FDCWD, "docker.json", 4096, &text, NULL, NULL), 0);
    (void)snprintf(part, sizeof(part), "\"way\":\"%s\"", want);
    T_OK(strstr(text, part) != NULL);
    free(text);
}

static void way_is(struct stage *s, const char *want)
{
    struct docker_container c = {0};
    struct engine *d = NULL;

    T_INT(docker_open(&s->box, &d, NULL), 0);
    T_INT(docker_find_container(&s->box, d, &c, NULL), 1);
    T_INT(docker_record_reach(&s->box, d, &c, NULL), 0);
    docker_container_done(&c);
    (void)engine_free(d);
    recorded_way_is(want);
}

static uint16_t peer_port(int fd)
{
    struct sockaddr_in in = {0};
    socklen_t len = sizeof(in);

    T_INT(getpeername(fd, (struct sockaddr *)&in, &len), 0);
    return ntohs(in.sin_port);
}

#define DESKTOP \
    "{\"NCPU\":2,\"MemTotal\":1073741824,\"OperatingSystem\":\"Docker " \
    "Desktop\",\"DefaultRuntime\":\"runc\"}"

TEST(a_published_port_that_the_engine_does_not_name_gets_no_token)
{
    char body[1024];
    struct fake_rule rules[] = {{"GET /info", 200, DESKTOP, 0, NULL},
                                {"GET /containers/bellhop-" BOX "/json", 200, body, 0, NULL},
                                {0}};
    uint16_t ours = 0, other = 0;
    struct stage s;
    int fd = -1;

    listen_as(geteuid(), &ours);
    listen_as(geteuid(), &other);
    published_container(body, sizeof(body), ours);
    stage_init(&s, rules);
    way_is(&s, "published");
    T_INT(provider_docker.dial(&s.box, &fd, NULL), 0);
    (void)close(fd);
    /* The container's process lives, and the port is that of something else: the way is chosen anew. */
    write_record("published", "one", other, getpid());
    T_INT(provider_docker.dial(&s.box, &fd, NULL), 0);
    T_INT(peer_port(fd), ours);
    (void)close(fd);
    stage_done(&s);
}

TEST(a_published_port_where_another_user_listens_gets_no_token)
{
    char body[1024];
    struct fake_rule rules[] = {{"GET /info", 200, DESKTOP, 0, NULL},
                                {"GET /containers/bellhop-" BOX "/json", 200, body, 0, NULL},
                                {0}};
    uint16_t port = 0;
    struct stage s;
    struct err e = {0};
    int fd = -1;

    if (geteuid() != 0)
        return; /* it cannot be another user */
    listen_as(65534, &port);
    published_container(body, sizeof(body), port);
    stage_init(&s, rules);
    way_is(&s, "exec");
    write_record("published", "one", port, getpid());
    T_OK(provider_docker.dial(&s.box, &fd, &e) < 0); /* the engine starts no command */
    T_OK(strstr(e.message, "the guest agent of 'one' cannot be reached: ") != NULL);
    T_INT(fd, -1);
    recorded_way_is("exec");
    T_INT(fake_count("POST /containers/" ID "/exec"), 1);
    stage_done(&s);
}

/* ---- an address ---- */

/* A process of a network namespace of its own, where no interface is up. */
static pid_t start_elsewhere(void)
{
    int fds[2];
    char done = 0;
    pid_t pid;

    T_INT(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNET) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
            _exit(1);
        (void)!write(fds[1], "x", 1);
        for (;;)
            (void)pause();
    }
    (void)close(fds[1]);
    if (read(fds[0], &done, 1) != 1)
        t_skip("network namespaces are refused here");
    (void)close(fds[0]);
    return pid;
}

static void addressed_container(char *out, size_t size, const char *address)
{
    (void)snprintf(out, size,
                   "{\"Id\":\"" ID "\",\"Name\":\"/bellhop-" BOX "\",\"Config\":{" LABELS
                   "},\"State\":{\"Status\":\"running\",\"ExitCode\":0,\"Pid\":0,"
                   "\"StartedAt\":\"one\"},\"NetworkSettings\":{\"IPAddress\":\"%s\"}}",
                   address);
}

/* Somebody may have disconnected the container's network: another container gets the address. */
TEST(an_address_that_the_container_has_no_more_gets_no_token)
{
    char body[1024], same[1024];
    struct fake_rule rules[] = {{"GET /containers/bellhop-" BOX "/json", 200, body, 1, NULL},
                                {"GET /containers/bellhop-" BOX "/json", 200, same, 0, NULL},
                                {0}};
    uint16_t port = 0;
    struct stage s;
    struct err e = {0};
    pid_t elsewhere;
    int fd = -1;

    listen_as(geteuid(), &port);
    addressed_container(body, sizeof(body), "");
    addressed_container(same, sizeof(same), "127.0.0.1");
    stage_init(&s, rules);
    write_record_at("address", "one", "127.0.0.1", port, getpid()); /* the kernel says so */
    T_INT(provider_docker.dial(&s.box, &fd, NULL), 0);
    (void)close(fd);
    T_INT(fake_count("GET /containers/"), 0);
    elsewhere = start_elsewhere();
    write_record_at("address", "one", "127.0.0.1", port, elsewhere);
    fd = -1;
    T_OK(provider_docker.dial(&s.box, &fd, &e) < 0);
    T_INT(fd, -1);
    recorded_way_is("exec");
    T_INT(fake_count("POST /containers/" ID "/exec"), 1);
    write_record_at("address", "one", "127.0.0.1", port, elsewhere);
    /* In gVisor the kernel does not know the address, and the engine does. */
    T_INT(provider_docker.dial(&s.box, &fd, NULL), 0);
    (void)close(fd);
    (void)kill(elsewhere, SIGKILL);
    stage_done(&s);
}

/* ---- creation ---- */

#define INFO \
    "{\"NCPU\":2,\"MemTotal\":1073741824,\"DefaultRuntime\":\"runc\",\"Runtimes\":{\"runc\":{}," \
    "\"runsc\":{}}}"

static int create(struct stage *s, struct err *e)
{
    char id[DOCKER_ID_BYTES];
    struct engine *d = NULL;
    int r = docker_open(&s->box, &d, e);

    (void)mkdir("image", 0700);
    write_text("image/manifest.json", "{\"user\":{\"name\":\"user\",\"uid\":1000,\"gid\":1000}}");
    free(s->spec.image_dir);
    s->spec.image_dir = strdup("image");
    if (r == 0)
        r = docker_create_container(&s->box, d, "bellhop-" BOX, "sha256:" ID, NULL, id, e);
    (void)engine_free(d);
    return r;
}

TEST(a_name_that_is_free_again_is_taken_and_one_that_never_is_has_an_end)
{
    struct fake_rule rules[] = {
        {"GET /info", 200, INFO, 0, NULL},
        {"POST /containers/create", 409, "{\"message\":\"the name is in use\"}", 2, NULL},
        {"GET /containers/bellhop-" BOX "/json", 404, "{}", 1, NULL},
        {"GET /containers/bellhop-" BOX "/json", 200, CONTAINER("removing", "one"), 1, NULL},
        {"POST /containers/create", 201, "{\"Id\":\"" ID "\"}", 1, NULL},
        {"PUT /containers/bellhop-" BOX "/archive", 200, "", 0, NULL},
        {"POST /containers/create", 409, "{\"message\":\"the name is in use\"}", 0, NULL},
        {0}};
    struct err e = {0};
    struct stage s;

    stage_init(&s, rules);
    T_INT(create(&s, &e), 0);
    T_INT(fake_count("POST /containers/create"), 3);
    T_INT(create(&s, &e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "is taken") != NULL);
    stage_done(&s);
}

#define RESTORED(name_) \
    "{\"Id\":\"2222222222222222222222222222222222222222222222222222222222222222\",\"Name\":" \
    "\"/" name_ "\",\"Config\":{\"Labels\":{\"dev.bellhop.box\":\"" BOX \
    "\",\"dev.bellhop.store\":\"" MARK \
    "\",\"dev.bellhop.restored\":\"tag\"}},\"State\":{\"Status\":\"created\",\"ExitCode\":0," \
    "\"Pid\":0,\"StartedAt\":\"\"},\"NetworkSettings\":{}}"

/* The new disk is the only one then. */
TEST(a_restore_that_died_while_the_old_container_was_being_removed_is_finished)
{
    struct fake_rule rules[] = {
        {"GET /containers/bellhop-" BOX "/json", 200, CONTAINER("removing", "one"), 2, NULL},
        {"GET /containers/bellhop-" BOX "-new/json", 200, RESTORED("bellhop-" BOX "-new"), 0, NULL},
        {"DELETE /containers/" ID, 404, "{}", 0, NULL},
        {"POST /containers/bellhop-" BOX "-new/rename", 204, "", 0, NULL},
        {"GET /containers/bellhop-" BOX "/json", 200, RESTORED("bellhop-" BOX), 0, NULL},
        {0}};
    struct err e = {0};
    struct stage s;

    stage_init(&s, rules);
    T_INT(docker_has_restored(&s.box, "tag", &e), 1);
    T_INT(fake_count("DELETE /containers/2222"), 0);
    T_INT(fake_count("POST /containers/bellhop-" BOX "-new/rename"), 1);
    stage_done(&s);
}

/* An answer was lost: the container of the first request is there when the request is sent again. */
TEST(a_container_of_the_box_itself_that_has_its_name_is_adopted_and_anothers_is_refused)
{
    struct fake_rule rules[] = {
        {"GET /info", 200, INFO, 0, NULL},
        {"POST /containers/create", 409, "{\"message\":\"the name is in use\"}", 0, NULL},
        {"GET /containers/bellhop-" BOX "/json", 200, CONTAINER("created", NEVER), 1, NULL},
        {"GET /containers/bellhop-" BOX "/json", 200,
         "{\"Id\":\"" ID "\",\"Name\":\"/bellhop-" BOX "\",\"Config\":{\"Labels\":{}},"
         "\"State\":{\"Status\":\"created\"}}",
         0, NULL},
        {"PUT /containers/bellhop-" BOX "/archive", 200, "", 0, NULL},
        {0}};
    struct err e = {0};
    struct stage s;

    stage_init(&s, rules);
    T_INT(create(&s, &e), 0);
    T_INT(fake_count("POST /containers/create"), 1);
    T_INT(fake_count("PUT /containers/bellhop-" BOX "/archive"), 1);
    T_INT(create(&s, &e), -ERR_EXISTS);
    T_OK(strstr(e.message, "not of this box") != NULL);
    T_INT(fake_count("POST /containers/create"), 2);
    T_INT(fake_count("PUT /containers/bellhop-" BOX "/archive"), 1);
    T_INT(fake_count("DELETE "), 0);
    stage_done(&s);
}

static int restore(struct stage *s, struct err *e)
{
    _cleanup_json_ json_t *disk = json_pack("{s:s}", "image", "sha256:" ID);
    const struct provider_source source = {.disk = disk, .tag = "tag"};

    return provider_docker.restore(&s->box, &source, e);
}

/* `up --from` makes the container with the first function, `restore` with the other. */
static int create_from(struct stage *s, struct err *e)
{
    _cleanup_json_ json_t *disk = json_pack("{s:s}", "image", "sha256:" ID);
    const struct provider_source source = {.disk = disk};
    int r;

    s->box.source = &source;
    r = create(s, e);
    s->box.source = NULL;
    return r;
}

TEST(the_directory_of_the_project_in_a_snapshot_stays_as_it_is)
{
    struct fake_rule rules[] = {
        {"GET /info", 200, INFO, 0, NULL},
        {"POST /containers/create", 201, "{\"Id\":\"" ID "\"}", 0, NULL},
        {"HEAD /containers/bellhop-" BOX "/archive?path=%2Fworkspace", 200, "", 1, NULL},
        {"HEAD /containers/bellhop-" BOX "-new/archive?path=%2Fworkspace", 200, "", 1, NULL},
        {"HEAD /containers/bellhop-" BOX "/archive?path=%2Fworkspace", 404, "", 1, NULL},
        {"HEAD /containers/bellhop-" BOX "/archive?path=%2Fworkspace", 500, "", 0, NULL},
        {"PUT /containers/bellhop-" BOX "/archive", 200, "", 0, NULL},
        {"GET /images/sha256:" ID "/json", 200, "{}", 0, NULL},
        {"POST /containers/bellhop-" BOX "-new/rename", 204, NULL, 0, NULL},
        {0}};
    struct stage s;

    stage_init(&s, rules);
    T_INT(create_from(&s, NULL), 0);
    T_INT(restore(&s, NULL), 0);
    T_INT(fake_count("HEAD /"), 2);
    T_INT(fake_count("PUT /"), 0);
    T_INT(create_from(&s, NULL), 0); /* a snapshot without it */
    T_INT(fake_count("PUT /"), 1);
    T_INT(create_from(&s, NULL), -ERR_UNAVAILABLE);
    T_INT(create(&s, NULL), 0); /* an image's */
    T_INT(fake_count("HEAD /"), 4);
    T_INT(fake_count("PUT /"), 2);
    stage_done(&s);
}

/* ---- what is left ---- */

#define ROW(id_, names_) "{\"Id\":\"" id_ "\",\"Names\":[" names_ "]," LABELS "}"

static bool keeps_none(void *arg, const char *id, bool has_disk)
{
    (void)arg;
    (void)id;
    (void)has_disk;
    return false;
}

static bool keeps_all(void *arg, const char *id, bool has_disk)
{
    (void)arg;
    (void)id;
    (void)has_disk;
    return true;
}

TEST(a_container_that_inherited_its_labels_from_a_snapshot_is_nobodys)
{
    struct fake_rule rules[] = {
        {"GET /containers/json", 200,
         "[" ROW(ID, "\"/bellhop-" BOX "\"") "," ROW(OTHER_ID, "\"/someones\", \"/bellhop-" BOX
                                                               "-newer\"") "]",
         1, NULL},
        {"GET /containers/json", 200, "[" ROW(ID, "\"/bellhop-" BOX "-new\"") "]", 0, NULL},
        {"DELETE /containers/", 204, NULL, 0, NULL},
        {0}};
    struct stage s;

    stage_init(&s, rules);
    T_INT(provider_docker.sweep(&s.ctx, keeps_none, NULL, NULL, NULL, NULL), 0);
    T_INT(fake_count("DELETE /containers/" ID), 1);
    T_INT(fake_count("DELETE /containers/"), 1);
    T_INT(provider_docker.sweep(&s.ctx, keeps_none, NULL, NULL, NULL, NULL), 0);
    T_INT(fake_count("DELETE /containers/" ID), 2);
    stage_done(&s);
}

TEST(a_container_that_cannot_be_removed_keeps_no_other_one)
{
    struct fake_rule rules[] = {
        {"GET /containers/json", 200,
         "[" ROW(ID, "\"/bellhop-" BOX "\"") "," ROW(OTHER_ID, "\"/bellhop-" BOX "-new\"") "]", 0,
         NULL},
        {"DELETE /containers/" ID, 500, "{\"message\":\"device is busy\"}", 1, NULL},
        {"DELETE /containers/" ID, 409, "{\"message\":\"in progress\"}", 0, NULL},
        {"DELETE /containers/" OTHER_ID, 204, NULL, 0, NULL},
        {0}};
    const struct docker_sweep_limits limits = {10000, 300}, short_limits = {1000, 5000};
    struct err e = {0};
    struct stage s;

    stage_init(&s, rules);
    T_INT(provider_docker.sweep(&s.ctx, keeps_none, NULL, NULL, NULL, &e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "device is busy") != NULL);
    T_INT(fake_count("DELETE /containers/" OTHER_ID), 1);
    /* One whose removal never ends. */
    T_INT(docker_sweep_within(&s.ctx, &limits, keeps_none, NULL, NULL, NULL, &e), -ERR_DEADLINE);
    T_OK(strstr(e.message, "the container of '" BOX "'") != NULL);
    T_INT(fake_count("DELETE /containers/" OTHER_ID), 2);
    /* The time of the whole ends it. */
    T_INT(docker_sweep_within(&s.ctx, &short_limits, keeps_none, NULL, NULL, NULL, &e),
          -ERR_DEADLINE);
    T_INT(fake_count("DELETE /containers/" OTHER_ID), 2);
    stage_done(&s);
}

static void note_gone(const char *name, const char *url)
{
    char path[200];

    (void)mkdir("docker-gone", 0700);
    (void)snprintf(path, sizeof(path), "docker-gone/%s", name);
    write_text(path, url);
}

static bool is_bb_lost(void *arg, const char *box, const char *snapshot)
{
    T_STR(box, BOX);
    return *(bool *)arg && strcmp(snapshot, "00000000000000bb") == 0;
}

static void say_nothing(void *arg, const char *line)
{
    (void)arg;
    (void)line;
}

/* is_bb_lost: the store has no such snapshot. */
static void forget_rest(struct stage *s, bool is_lost)
{
    provider_docker.forget_rest(&s->ctx,
                                &(struct provider_lost){is_bb_lost, say_nothing, &is_lost});
}

TEST(a_sweep_removes_no_image_and_gc_removes_those_that_are_noted)
{
    struct fake_rule rules[] = {{"GET /containers/json", 200, "[]", 0, NULL},
                                {"DELETE /images/sha256:" ID, 200, "[]", 0, NULL},
                                {0}};
    struct stage s;

    stage_init(&s, rules);
    note_gone(ID, s.spec.engine);
    T_INT(provider_docker.sweep(&s.ctx, keeps_all, NULL, NULL, NULL, NULL), 0);
    T_INT(fake_count("DELETE /"), 0);
    forget_rest(&s, false);
    T_INT(fake_count("DELETE /images/sha256:" ID), 1);
    T_OK(access("docker-gone/" ID, F_OK) < 0);
    stage_done(&s);
}

TEST(an_image_of_a_commit_that_comes_late_is_removed_later)
{
    struct fake_rule rules[] = {
        {"DELETE /images/bellhop-snapshot:00000000000000bb", 404, "{}", 2, NULL},
        {"DELETE /images/bellhop-snapshot:00000000000000bb", 200, "[]", 1, NULL},
        {0}};
    struct stage s;

    stage_init(&s, rules);
    T_INT(provider_docker.drop_capture(&s.box, "00000000000000bb", NULL), 0);
    forget_rest(&s, false);
    T_OK(access("docker-gone/00000000000000bb", F_OK) == 0);
    forget_rest(&s, false);
    T_INT(fake_count("DELETE /images/"), 3);
    T_OK(access("docker-gone/00000000000000bb", F_OK) < 0);
    stage_done(&s);
}

#define IMAGE(tag_) "{\"Id\":\"sha256:" ID "\",\"RepoTags\":[\"" tag_ "\"]," LABELS "}"

/* Its command was killed before it noted anything. */
TEST(the_image_of_a_snapshot_that_the_store_had_is_removed_by_its_name)
{
    struct fake_rule rules[] = {
        {"GET /images/json", 200,
         "[" IMAGE("localhost/bellhop-snapshot:00000000000000bb") "," IMAGE(
             "bellhop-"
             "snapshot:"
             "00000000000000c"
             "c") "," IMAGE("mine:00000000000000bb") "," IMAGE("other/"
                                                               "bellhop-snapshot:"
                                                               "00000000000000bb") "]",
         0, NULL},
        {"DELETE /images/", 200, "[]", 0, NULL},
        {0}};
    struct stage s;

    stage_init(&s, rules);
    forget_rest(&s, false);
    T_INT(fake_count("DELETE "), 0);
    forget_rest(&s, true);
    T_INT(fake_count("DELETE /images/bellhop-snapshot:00000000000000bb"), 1);
    T_INT(fake_count("DELETE "), 1);
    stage_done(&s);
}

/* The alarm of a test is shorter than a provider's deadline. */
TEST(a_removal_does_not_wait_for_an_engine_that_is_silent)
{
    struct fake_rule rules[] = {
        {"GET /containers/bellhop-" BOX "/json", 200, CONTAINER("exited", "one"), 1, NULL},
        {"DELETE /containers/", 204, NULL, 0, NULL},
        {"DELETE /images/sha256:" ID, 200, "[]", 0, NULL},
        {0}};
    char silent[600];
    struct stage s;
    int fd;

    stage_init(&s, rules);
    T_INT(socket_listen("silent.sock", &fd, NULL), 0);
    (void)snprintf(silent, sizeof(silent), "%.*ssilent.sock",
                   (int)(strlen(s.spec.engine) - strlen(FAKE_SOCKET)), s.spec.engine);
    note_gone(OTHER_ID, silent);
    note_gone(ID, s.spec.engine);
    T_INT(provider_docker.destroy(&s.box, NULL), 0);
    T_OK(access("docker-gone/" ID, F_OK) < 0);
    T_OK(access("docker-gone/" OTHER_ID, F_OK) == 0);
    (void)close(fd);
    stage_done(&s);
}

static int n_noted(const char *const names[], size_t n)
{
    char path[200];
    int there = 0;

    for (size_t i = 0; i < n; i++) {
        (void)snprintf(path, sizeof(path), "docker-gone/%s", names[i]);
        there += access(path, F_OK) == 0;
    }
    return there;
}

/* Podman says so of an image to which somebody gave a second name. */
TEST(an_image_that_the_engine_fails_to_remove_keeps_no_other_one)
{
    struct fake_rule rules[] = {
        {"DELETE /images/", 500, "{\"message\":\"it has more than one tag\"}", 1, NULL},
        {"DELETE /images/", 200, "[]", 0, NULL},
        {0}};
    static const char *const names[] = {ID, OTHER_ID, "00000000000000bb"};
    struct stage s;

    stage_init(&s, rules);
    for (size_t i = 0; i < 3; i++)
        note_gone(names[i], s.spec.engine);
    forget_rest(&s, false);
    T_INT(fake_count("DELETE /images/"), 3);
    T_INT(n_noted(names, 3), 1); /* whichever came first */
    stage_done(&s);
}

/* As above. */
TEST(a_removal_does_not_wait_for_the_image_of_another_one)
{
    struct fake_rule rules[] = {
        {"GET /containers/bellhop-" BOX "/json", 200, CONTAINER("exited", "one"), 1, NULL},
        {"DELETE /containers/", 204, NULL, 0, NULL},
        {"DELETE /images/", 0, NULL, 0, NULL},
        {0}};
    struct stage s;

    stage_init(&s, rules);
    s.box.deadline_mono_ms = clock_mono_ms() + (int64_t)3600 * 1000;
    note_gone(ID, s.spec.engine);
    T_INT(provider_docker.destroy(&s.box, NULL), 0);
    T_INT(fake_count("DELETE /images/"), 1);
    T_OK(access("docker-gone/" ID, F_OK) == 0);
    stage_done(&s);
}

/* ---- snapshots ---- */

TEST(a_snapshot_that_is_on_another_engine_is_not_there_in_words_that_say_so)
{
    struct fake_rule rules[] = {{0}};
    struct engine *d = NULL;
    struct err e = {0};
    struct stage s;

    stage_init(&s, rules);
    T_INT(docker_open(&s.box, &d, NULL), 0);
    T_INT(docker_check_image(d, "sha256:" ID, &e), -ERR_NOT_FOUND);
    T_STR(e.field, "snapshot");
    T_OK(strstr(e.message, "another engine") != NULL);
    (void)engine_free(d);
    stage_done(&s);
}

/* Somebody may have let the container run on since. Engines leave one that is paused as it is. */
TEST(a_snapshot_of_a_paused_box_is_made_with_its_container_paused_whatever_its_row_says)
{
    struct fake_rule rules[] = {
        {"GET /containers/bellhop-" BOX "/json", 200, CONTAINER("running", "one"), 0, NULL},
        {"POST /commit?", 201, "{\"Id\":\"sha256:" ID "\"}", 0, NULL},
        {0}};
    struct provider_capture c = {.id = "00000000000000bb", .is_paused = true};
    struct stage s;

    stage_init(&s, rules);
    T_INT(provider_docker.capture(&s.box, &c, NULL), 0);
    T_INT(fake_count("POST /commit?container=" ID
                     "&repo=bellhop-snapshot&tag=00000000000000bb&pause=1"),
          1);
    json_decref(c.disk);
    free(c.layers);
    stage_done(&s);
}

/* An ordinary user's engine with the first version of control groups. */
TEST(a_snapshot_of_a_running_box_that_cannot_be_paused_is_refused_and_that_of_a_stopped_one_is_not)
{
    struct fake_rule rules[] = {
        {"GET /info", 200, "{\"NCPU\":2,\"CgroupDriver\":\"none\"}", 0, NULL},
        {"GET /containers/bellhop-" BOX "/json", 200, CONTAINER("running", "one"), 1, NULL},
        {"GET /containers/bellhop-" BOX "/json", 200, CONTAINER("exited", "one"), 0, NULL},
        {0}};
    struct err e = {0};
    struct stage s;

    stage_init(&s, rules);
    T_INT(provider_docker.check_capture(&s.box, &e), -ERR_UNIMPLEMENTED);
    T_STR(e.field, "snapshot");
    T_OK(strstr(e.message, "stop the box") != NULL);
    T_INT(provider_docker.check_capture(&s.box, NULL), 0);
    stage_done(&s);
}

/* ---- the engine ---- */

TEST(an_engine_that_is_too_old_or_too_new_is_refused_and_the_versions_are_named)
{
    const struct {
        const char *headers, *version;
        int r;
        const char *message;
    } rows[] = {
        {"Api-Version: 1.39\r\n", NULL, -ERR_UNIMPLEMENTED,
         "the engine has the API 1.39: 1.40 to 1.47 is needed"},
        {"Api-Version: 1.40\r\n", NULL, 0, NULL},
        {"Api-Version: 1.47\r\n", NULL, 0, NULL},
        {"Api-Version: 1.60\r\n", "{\"MinAPIVersion\":\"1.47\"}", 0, NULL},
        {"Api-Version: 1.60\r\n", "{\"MinAPIVersion\":\"1.48\"}", -ERR_UNIMPLEMENTED,
         "the engine has the API 1.48 to 1.60: 1.40 to 1.47 is needed"},
        {"", NULL, -ERR_UNAVAILABLE,
         FAKE_SOCKET "' answers with status 200: it is no engine of Docker or Podman"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct fake_rule rules[] = {
            PING(rows[i].headers), {"GET /version", 200, rows[i].version, 0, NULL}, {0}};
        struct engine *d = NULL;
        struct err e = {0};
        struct stage s;

        (void)unlink(FAKE_SOCKET);
        stage_init(&s, rules);
        T_INT(docker_open(&s.box, &d, &e), rows[i].r);
        if (rows[i].message)
            T_OK(strstr(e.message, rows[i].message) != NULL);
        (void)engine_free(d);
        stage_done(&s);
    }
}

TEST(an_engine_that_wants_tls_is_named_with_the_setting)
{
    struct fake_rule rules[] = {
        {"GET /_ping", 400, "Client sent an HTTP request to an HTTPS server.\n", 0, NULL}, {0}};
    struct engine *d = NULL;
    struct err e = {0};
    struct stage s;

    stage_init(&s, rules);
    T_INT(docker_open(&s.box, &d, &e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "wants TLS") && strstr(e.message, "DOCKER_CERT_PATH"));
    stage_done(&s);
}

TEST(a_refused_attach_is_permission_denied_in_the_engines_words)
{
    struct fake_rule rules[] = {
        {"POST /containers/" ID "/attach", 403, "{\"message\":\"not for you\"}", 0, NULL}, {0}};
    struct engine *d = NULL;
    struct err e = {0};
    struct stage s;
    int fd = -1;

    stage_init(&s, rules);
    T_INT(docker_open(&s.box, &d, NULL), 0);
    T_INT(engine_hijack(d, "/containers/" ID "/attach", NULL, &fd, &e), -ERR_DENIED);
    T_OK(strstr(e.message, "not for you") != NULL);
    (void)engine_free(d);
    stage_done(&s);
}

/* Memory would take the place of the image's directory; without --read-only it is the image's own. */
TEST(a_read_only_box_has_no_project_in_place_of_the_system)
{
    struct fake_rule rules[] = {PING("Api-Version: 1.41\r\nLibpod-Api-Version: 4.3.1\r\n"),
                                {"GET /libpod/info", 200,
                                 "{\"host\":{\"cpus\":2,\"ociRuntime\":{\"name\":\"runc\"}}}", 0,
                                 NULL},
                                {0}};
    static const char *const dests[] = {"/usr", "/etc", "/bin", "/lib64", "/proc", "/dev"};
    struct err e = {0};
    struct stage s;

    stage_init(&s, rules);
    s.spec.read_only = true;
    for (size_t i = 0; i < sizeof(dests) / sizeof(*dests); i++) {
        free(s.spec.dest);
        s.spec.dest = strdup(dests[i]);
        T_INT(provider_docker.check(&s.ctx, &s.spec, &e), -ERR_INVALID);
        T_STR(e.field, "dest");
    }
    s.spec.read_only = false;
    T_INT(provider_docker.check(&s.ctx, &s.spec, &e),
          -ERR_INVALID); /* /dev is the engine's in any box */
    T_OK(strstr(e.message, "is on no disk") != NULL);
    free(s.spec.dest);
    s.spec.dest = strdup("/etc");
    T_INT(provider_docker.check(&s.ctx, &s.spec, &e), 0);
    free(s.spec.dest);
    s.spec.dest = strdup("/usr/src/app");
    s.spec.read_only = true;
    T_INT(provider_docker.check(&s.ctx, &s.spec, &e), 0);
    stage_done(&s);
}

static int check_runtime(struct stage *s, const char *runtime, struct err *e)
{
    free(s->spec.runtime);
    s->spec.runtime = strdup(runtime);
    return provider_docker.check(&s->ctx, &s->spec, e);
}

TEST(a_runtime_of_podman_is_its_own_and_no_other)
{
    struct fake_rule rules[] = {PING("Api-Version: 1.41\r\nLibpod-Api-Version: 4.3.1\r\n"),
                                {"GET /libpod/info", 200,
                                 "{\"host\":{\"cpus\":2,\"ociRuntime\":{\"name\":\"runc\"}}}", 0,
                                 NULL},
                                {0}};
    struct err e = {0};
    struct stage s;

    stage_init(&s, rules);
    T_INT(check_runtime(&s, "runsc", &e), -ERR_PRECONDITION);
    T_STR(e.field, "runtime");
    T_OK(strstr(e.message, "Podman runs every container by the runtime") != NULL);
    T_INT(check_runtime(&s, "auto", &e), 0);
    T_STR(s.spec.runtime, "runc");
    T_INT(check_runtime(&s, "runc", &e), 0);
    stage_done(&s);
}

/* An ordinary user's Podman, with the first version of control groups and with the second. */
TEST(podman_is_asked_in_its_own_words_alone_and_limits_of_an_ordinary_user_are_its_controllers)
{
#define PODMAN_INFO(version, controllers) \
    "{\"version\":{\"Version\":\"4.3.1\"},\"host\":{\"cpus\":2,\"memTotal\":4096," \
    "\"cgroupVersion\":\"" version "\",\"cgroupControllers\":[" controllers \
    "],\"ociRuntime\":{\"name\":\"crun\"}," \
    "\"security\":{\"rootless\":true,\"seccompEnabled\":true}}}"
    struct fake_rule rules[] = {
        PING("Api-Version: 1.41\r\nLibpod-Api-Version: 4.3.1\r\n"),
        {"GET /libpod/info", 200, PODMAN_INFO("v1", ""), 1, NULL},
        {"GET /libpod/info", 200, PODMAN_INFO("v2", "\"memory\",\"pids\""), 1, NULL},
        {"GET /libpod/info", 200, "{\"host\":{\"cpus\":2,\"cgroupControllers\":[]}}", 1, NULL},
        {"GET /libpod/info", 200, "{\"host\":{\"cpus\":2}}", 1, NULL}, /* before 3.2 */
        {"GET /libpod/info", 200, "{\"host\":{}}", 0, NULL},
        {0}};
    struct docker_facts f = {0};
    struct engine *d = NULL;
    struct err e = {0};
    struct stage s;

    stage_init(&s, rules);
    T_INT(docker_open(&s.box, &d, &e), 0);
    T_INT(docker_read_facts(d, &f, &e), 0);
    T_OK(f.is_podman && f.is_rootless && f.has_seccomp && !f.has_freezer);
    T_OK(!f.limits_memory && !f.limits_cpu && !f.limits_pids);
    T_STR(f.default_runtime, "crun");
    T_STR(f.version, "4.3.1");
    docker_facts_done(&f);
    T_INT(docker_read_facts(d, &f, &e), 0);
    T_OK(f.has_freezer && f.limits_memory && !f.limits_cpu && f.limits_pids);
    docker_facts_done(&f);
    T_INT(docker_read_facts(d, &f, &e), 0);
    T_OK(!f.limits_memory && !f.limits_cpu && !f.limits_pids);
    docker_facts_done(&f);
    T_INT(docker_read_facts(d, &f, &e), 0);
    T_OK(f.limits_memory && f.limits_cpu && f.limits_pids);
    docker_facts_done(&f);
    T_INT(docker_read_facts(d, &f, &e), -ERR_DATA_LOSS);
    (void)engine_free(d);
    stage_done(&s);
}

TEST(the_facts_of_an_engine_are_asked_for_once_in_a_creation)
{
    struct fake_rule rules[] = {{"GET /info", 200, INFO, 0, NULL},
                                {"POST /containers/create", 201, "{\"Id\":\"" ID "\"}", 0, NULL},
                                {"PUT /containers/bellhop-" BOX "/archive", 200, "", 0, NULL},
                                {0}};
    struct stage s;

    stage_init(&s, rules);
    T_INT(check_runtime(&s, "", NULL), 0);
    T_INT(create(&s, NULL), 0);
    T_INT(fake_count("GET /info"), 1);
    stage_done(&s);
}
