#include "monitor/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"

#define FIRST_PAUSE_MS 100 /* doubled with each early death */
#define MOST_PAUSE_MS 30000
#define SOON_MS 60000

static const char monitor_word[] = "monitor";
static const char guard_word[] = "guard";
_Static_assert(sizeof(guard_word) <= sizeof(monitor_word), "it is written in the other's place");

/* Changes the program's name at the end of its path, as ps shows it: two processes with the
 * same name and options would look like two monitors of one box. */
static void set_title(char *argv0, const char *word)
{
    size_t len = strlen(argv0);
    size_t at = len >= sizeof(monitor_word) - 1 ? len - (sizeof(monitor_word) - 1) : len;

    if (strcmp(argv0 + at, monitor_word) != 0)
        return;
    memset(argv0 + at, 0, sizeof(monitor_word));
    memcpy(argv0 + at, word, strlen(word));
}

static void pause_ms(int64_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

/* Waits for the monitor; exits with it unless a signal killed it. */
static void wait_for_death(pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            _exit(1);
    if (!WIFSIGNALED(status))
        _exit(WEXITSTATUS(status));
    (void)fprintf(stderr, "bellhop-monitor: killed by signal %d, started again\n",
                  WTERMSIG(status));
}

bool guard_begin(char *argv0, int ready_fd)
{
    char *title = strdup(argv0);
    int64_t pause = 0;
    bool is_again = false;

    if (!title)
        _exit(1);

    (void)signal(SIGHUP, SIG_IGN); /* as in the monitor */
    for (;; is_again = true) {
        int64_t begun_ms = clock_mono_ms();
        pid_t pid = fork();

        if (pid == 0) {
            if (is_again) {
                memcpy(argv0, title, strlen(title) + 1);
                (void)prctl(PR_SET_NAME, "bellhop-monitor");
            }
            free(title);
            return is_again;
        }
        if (!is_again) {
            fd_close(ready_fd);
            if (pid < 0)
                _exit(1); /* the command sees that no monitor answers */
            set_title(argv0, guard_word);
            (void)prctl(PR_SET_NAME, "bellhop-guard");
        }
        if (pid > 0)
            wait_for_death(pid);
        if (pid > 0 && clock_mono_ms() - begun_ms > SOON_MS)
            pause = 0;
        pause_ms(pause);
        pause = pause ? pause * 2 : FIRST_PAUSE_MS;
        if (pause > MOST_PAUSE_MS)
            pause = MOST_PAUSE_MS;
    }
}
