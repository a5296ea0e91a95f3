/*
 * pause: the first process of a pod, and of a node of the test cluster. It holds the namespaces,
 * and reaps what is left to it.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void signal_end(int sig)
{
    (void)sig;
    _exit(0);
}

static void signal_reap(int sig)
{
    (void)sig;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

int main(void)
{
    const struct sigaction end = {.sa_handler = signal_end};
    const struct sigaction reap = {.sa_handler = signal_reap, .sa_flags = SA_NOCLDSTOP};

    (void)sigaction(SIGINT, &end, NULL);
    (void)sigaction(SIGTERM, &end, NULL);
    (void)sigaction(SIGCHLD, &reap, NULL);
    for (;;)
        (void)pause();
}
