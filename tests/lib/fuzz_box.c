/*
 * fuzz_box: all programs of the disposable machine that tests/fuzz/agent.py makes, selected by argv[0].
 *
 *   keeper      the first process, or with `first` a child of it: keeps the canaries. The agent becomes the
 *               first process then, else the keeper starts it. keeper SHARED CONTROL REPORT READY N_NUMBERS
 *               first|child LAST CGROUPS AGENT [OPTION...]: descriptors; N_NUMBERS: start the process numbers again
 *               after so many (0: the kernel does so by itself), by LAST, which is ns_last_pid; CGROUPS: procs files
 *   any other   a command that the agent was asked to run. Its words (of a script, or of the command line) do
 *               harmless things to itself only: none signals or moves another process. Unknown words are
 *               skipped, so that a script of mutated bytes is a script. All end within LIFE_S.
 *
 * A canary counts in shared memory and records each signal that it gets. Transient canaries come and go all the
 * time, so that a number which was a command's is soon theirs.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N_CANARIES 10
#define N_TRANSIENT 40
#define TICK_MS 5
#define LIFE_S 5
#define SCRIPT_MAX_BYTES 65536

/* As agent.py reads it. */
struct shared {
    struct slot {
        uint64_t ticks;
        int32_t pid, signal, code, sender;
    } slots[N_CANARIES + 1]; /* the last: all transient ones, and the keeper */
    uint64_t n_transient;
};
static struct shared *shared;
static struct slot *own;
static int report_fd;

static void sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    (void)nanosleep(&t, NULL);
}

__attribute__((format(printf, 1, 2))) static void report(const char *format, ...)
{
    char line[256];
    va_list ap;

    va_start(ap, format);
    (void)vsnprintf(line, sizeof(line), format, ap);
    va_end(ap);
    (void)!write(report_fd, line, strlen(line));
}

/* fds: of cgroup.procs files, between commas. */
static void enter_cgroups(const char *fds)
{
    for (; *fds; fds += strcspn(fds, ","), fds += *fds == ',')
        if (write(atoi(fds), "0", 1) < 0)
            report("error: entering a cgroup: %s\n", strerror(errno));
}

/* ---- canaries ---- */

static void on_signal(int sig, siginfo_t *info, void *context)
{
    (void)context;
    own->signal = sig;
    own->code = info->si_code;
    own->sender = info->si_pid;
    own->pid = getpid();
}

static void record_signals(void)
{
    for (int i = 1; i < 65; i++)
        if (i != SIGKILL && i != SIGSTOP && i != SIGCHLD) {
            struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};

            (void)sigaction(i, &sa, NULL);
        }
}

static void be_canary(struct slot *slot)
{
    own = slot;
    (void)close(STDIN_FILENO);
    for (;;) {
        sleep_ms(TICK_MS);
        slot->ticks++;
    }
}

static pid_t fork_canary(int i, const char *cgroups)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    if (i % 3 == 0)
        (void)setsid();
    if (i % 3 == 1)
        (void)setpgid(0, 0);
    if (i % 2) /* half of them where the agent is */
        enter_cgroups(cgroups);
    if (i == 7 && setgid(1000) == 0) /* the user that commands have as well */
        (void)!setuid(1000);
    be_canary(&shared->slots[i]);
    _exit(1);
}

static pid_t fork_transient(unsigned *random)
{
    pid_t pid;
    unsigned ms;

    *random = *random * 1103515245 + 12345;
    ms = *random >> 16 & 511;
    pid = fork();
    if (pid != 0)
        return pid;
    if (ms & 1)
        (void)setsid();
    sleep_ms(ms);
    _exit(0);
}

/* Drops the capabilities that reach the machine outside: devices, modules, mounts, clocks, network set-up. */
static void drop_capabilities(void)
{
    static const int names[] = {12, 16, 17, 18, 21, 22, 25, 27, 34, 38, 39};
    /* NET_ADMIN SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_ADMIN SYS_BOOT SYS_TIME MKNOD SYSLOG PERFMON BPF */

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        (void)prctl(PR_CAPBSET_DROP, names[i], 0, 0, 0);
}

static void become_agent(char **argv, int ready_fd)
{
    (void)close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
    (void)fcntl(ready_fd, F_SETFD, 0);
    for (int i = 1; i < 65; i++)
        (void)signal(i, SIG_DFL);
    drop_capabilities();
    (void)execv(argv[0], argv);
    report("error: %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* A kernel without a pid_max for each namespace (before 6.14) is told where to go on from. */
static void wrap_numbers(int last_fd, int n_numbers)
{
    char text[32];
    ssize_t n;

    if (last_fd < 0 || (n = pread(last_fd, text, sizeof(text) - 1, 0)) <= 0)
        return;
    text[n] = '\0';
    if (atoi(text) > n_numbers && pwrite(last_fd, "30", 2, 0) < 0)
        report("error: writing ns_last_pid: %s\n", strerror(errno));
}

struct keeper {
    pid_t canaries[N_CANARIES], transient[N_TRANSIENT], agent;
    int n_canaries;
};

static void on_child(struct keeper *k, pid_t pid, int status)
{
    if (pid == k->agent) {
        report("agent %d\n", status);
        if (WIFEXITED(status) || WIFSIGNALED(status))
            k->agent = -1;
        return;
    }
    for (int i = 0; i < k->n_canaries; i++)
        if (k->canaries[i] == pid)
            report("canary %d: process %d has status %#x\n", i, pid, (unsigned)status);
    for (int i = 0; i < N_TRANSIENT; i++)
        if (k->transient[i] == pid) {
            if (status != 0)
                report("transient canary: process %d has status %#x\n", pid, (unsigned)status);
            if (WIFEXITED(status) || WIFSIGNALED(status))
                k->transient[i] = -1;
        }
}

static void keep(struct keeper *k, int control_fd, int last_fd, int n_numbers)
{
    unsigned random = 1;

    for (;;) {
        struct pollfd p = {.fd = control_fd, .events = POLLIN};
        char order[32] = "";
        int status;
        pid_t pid;

        if (poll(&p, 1, TICK_MS) > 0 && read(control_fd, order, sizeof(order) - 1) <= 0)
            _exit(0);
        if (order[0] == 'T') /* the agent ends */
            (void)kill(k->agent > 0 ? k->agent : 1, SIGTERM);
        if (order[0] == 'K' &&
            atoi(order + 1) > 1) /* a process that a command has left behind, stopped */
            (void)kill(atoi(order + 1), SIGKILL);
        while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0)
            on_child(k, pid, status);
        for (int i = 0; i < N_TRANSIENT; i++)
            if (k->transient[i] <= 0 && (k->transient[i] = fork_transient(&random)) > 0)
                shared->n_transient++;
        own->ticks++;
        if (n_numbers)
            wrap_numbers(last_fd, n_numbers);
    }
}

static int run_keeper(char **argv)
{
    struct keeper k = {.agent = -1};
    int control_fd = atoi(argv[2]), n_numbers = atoi(argv[5]), last_fd = atoi(argv[7]);
    bool is_first = !strcmp(argv[6], "first");
    int ready_fd = atoi(argv[4]);

    report_fd = atoi(argv[3]);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[1]), 0);
    if (shared == MAP_FAILED)
        return 1;
    own = &shared->slots[N_CANARIES];
    if (is_first) {
        pid_t pid = fork();

        if (pid < 0)
            return 1;
        if (pid > 0) {
            enter_cgroups(argv[8]);
            become_agent(argv + 9, ready_fd);
        }
    }
    (void)prctl(PR_SET_NAME, "keeper");
    record_signals();
    for (int i = 0; i < N_CANARIES; i++) {
        if (i == N_CANARIES / 2 && !is_first) { /* half of them are younger than the agent */
            k.agent = fork();
            if (k.agent == 0) {
                (void)setsid();
                enter_cgroups(argv[8]);
                become_agent(argv + 9, ready_fd);
            }
        }
        k.canaries[k.n_canaries++] = shared->slots[i].pid = fork_canary(i, argv[8]);
    }
    (void)close(ready_fd);
    report("kept %d %d\n", getpid(), is_first ? 1 : k.agent);
    keep(&k, control_fd, last_fd, n_numbers);
    return 0;
}

/* ---- what commands do ---- */

static int n_forks;

static void do_spew(void)
{
    char block[4096];

    memset(block, 'x', sizeof(block));
    for (int i = 0; i < 64; i++)
        if (write(STDOUT_FILENO, block, sizeof(block)) < 0)
            return;
}

static void do_cat(void)
{
    char block[4096];
    ssize_t n;
    size_t total = 0;

    while (total < 1u << 20 && (n = read(STDIN_FILENO, block, sizeof(block))) > 0) {
        total += (size_t)n;
        (void)!write(STDOUT_FILENO, block, (size_t)n);
    }
}

/* The child goes on with the words, and the parent does so too. */
static pid_t do_fork(void)
{
    pid_t pid = n_forks++ < 3 ? fork() : -1;

    if (pid == 0)
        (void)alarm(LIFE_S); /* alarms are not inherited */
    return pid;
}

static void do_listen(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd >= 0)
        (void)listen(fd, 1);
}

static void do_eat(void)
{
    volatile char *bytes = malloc(4 << 20);

    for (int i = 0; bytes && i < 4 << 20; i += 4096)
        bytes[i] = 1;
}

static void do_spin(void)
{
    struct timespec t;

    do
        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    while (t.tv_sec == 0 && t.tv_nsec < 30000000);
}

static void do_word(const char *word, const char *next)
{
    double n = next ? strtod(next, NULL) : 0;

    if (!strcmp(word, "sleep"))
        sleep_ms(n > 0 && n < 3 ? (long)(n * 1000) : 1000);
    else if (!strcmp(word, "echo"))
        (void)!write(STDOUT_FILENO, next ? next : "", next ? strlen(next) : 0);
    else if (!strcmp(word, "warn"))
        (void)!write(STDERR_FILENO, "warning\n", 8);
    else if (!strcmp(word, "cat"))
        do_cat();
    else if (!strcmp(word, "spew"))
        do_spew();
    else if (!strcmp(word, "exit"))
        _exit((int)n & 255);
    else if (!strcmp(word, "false"))
        _exit(1);
    else if (!strcmp(word, "fork"))
        (void)do_fork();
    else if (!strcmp(word, "orphan")) { /* the parent ends, what is left has a new session */
        if (do_fork() > 0)
            _exit(0);
        (void)setsid();
    } else if (!strcmp(word, "setsid"))
        (void)setsid();
    else if (!strcmp(word, "setpgid"))
        (void)setpgid(0, 0);
    else if (!strcmp(word, "trap")) {
        (void)signal(SIGTERM, SIG_IGN);
        (void)signal(SIGHUP, SIG_IGN);
        (void)signal(SIGINT, SIG_IGN);
    } else if (!strcmp(word, "wait"))
        while (waitpid(-1, NULL, 0) > 0)
            ;
    else if (!strcmp(word, "stop"))
        (void)raise(SIGSTOP);
    else if (!strcmp(word, "die"))
        (void)raise(SIGKILL);
    else if (!strcmp(word, "fault"))
        (void)raise(SIGSEGV);
    else if (!strcmp(word, "close")) {
        (void)close(STDOUT_FILENO);
        (void)close(STDERR_FILENO);
    } else if (!strcmp(word, "listen"))
        do_listen();
    else if (!strcmp(word, "eat"))
        do_eat();
    else if (!strcmp(word, "spin"))
        do_spin();
}

static void run_words(char *script)
{
    static const char between[] = " \t\n;&|(){}\"'\\";
    char *words[256], *rest = NULL;
    int n = 0;

    for (char *w = strtok_r(script, between, &rest); w && n < 256;
         w = strtok_r(NULL, between, &rest))
        words[n++] = w;
    for (int i = 0; i < n; i++)
        do_word(words[i], i + 1 < n ? words[i + 1] : NULL);
}

/* The agent gives a shell a file with the script, E2B's clients give one after -c. */
static int run_command(int argc, char **argv)
{
    static char script[SCRIPT_MAX_BYTES];
    size_t len = 0;

    (void)alarm(LIFE_S);
    for (int i = 1; i < argc; i++) {
        int fd = argv[i][0] == '/' ? open(argv[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
        ssize_t n = fd < 0 ? -1 : read(fd, script + len, sizeof(script) - len - 2);

        if (n > 0)
            len += (size_t)n;
        if (fd >= 0)
            (void)close(fd);
    }
    script[len++] = ' ';
    for (int i = 0; i < argc && len < sizeof(script); i++)
        len += (size_t)snprintf(script + len, sizeof(script) - len, "%s ", argv[i]);
    run_words(script);
    return 0;
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/');

    name = name ? name + 1 : argv[0];
    if (!strcmp(name, "keeper") && argc > 9 && getpid() == 1)
        return run_keeper(argv);
    return run_command(argc, argv);
}
