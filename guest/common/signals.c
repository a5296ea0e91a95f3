#include "common/signals.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/cleanup.h"
#include "common/str.h"

#define RTMIN 34 /* glibc reserves 32 and 33; musl's own SIGRTMIN is 35 */
#define RTMAX 64

static const struct {
    int sig;
    const char *name;
} signal_names[] = {
    {SIGHUP, "HUP"},   {SIGINT, "INT"},       {SIGQUIT, "QUIT"},     {SIGILL, "ILL"},
    {SIGTRAP, "TRAP"}, {SIGABRT, "ABRT"},     {SIGBUS, "BUS"},       {SIGFPE, "FPE"},
    {SIGKILL, "KILL"}, {SIGUSR1, "USR1"},     {SIGSEGV, "SEGV"},     {SIGUSR2, "USR2"},
    {SIGPIPE, "PIPE"}, {SIGALRM, "ALRM"},     {SIGTERM, "TERM"},     {SIGCHLD, "CHLD"},
    {SIGCONT, "CONT"}, {SIGSTOP, "STOP"},     {SIGTSTP, "TSTP"},     {SIGTTIN, "TTIN"},
    {SIGTTOU, "TTOU"}, {SIGURG, "URG"},       {SIGXCPU, "XCPU"},     {SIGXFSZ, "XFSZ"},
    {SIGPROF, "PROF"}, {SIGVTALRM, "VTALRM"}, {SIGWINCH, "WINCH"},   {SIGIO, "IO"},
    {SIGPWR, "PWR"},   {SIGSYS, "SYS"},       {SIGSTKFLT, "STKFLT"}, {SIGIO, "POLL"},
    {SIGABRT, "IOT"},  {SIGCHLD, "CLD"}, /* other names, parsed only */
};

const char *signal_name(int sig, char out[SIGNAL_NAME_BYTES])
{
    for (size_t i = 0; i < N_ELEMENTS(signal_names); i++) {
        if (signal_names[i].sig != sig)
            continue;
        (void)snprintf(out, SIGNAL_NAME_BYTES, "SIG%s", signal_names[i].name);
        return out;
    }
    if (sig == RTMIN || sig == RTMAX)
        (void)snprintf(out, SIGNAL_NAME_BYTES, "%s", sig == RTMIN ? "SIGRTMIN" : "SIGRTMAX");
    else if (sig > RTMIN && sig < RTMAX)
        (void)snprintf(out, SIGNAL_NAME_BYTES, "SIGRTMIN+%d", sig - RTMIN);
    else
        (void)snprintf(out, SIGNAL_NAME_BYTES, "SIG%d", sig);
    return out;
}

/* "RTMIN", "RTMIN+N", "RTMAX-N"; 0: none of them. */
static int parse_realtime(const char *bare)
{
    bool is_min = strncasecmp(bare, "RTMIN", 5) == 0;
    uint64_t n = 0;

    if (!is_min && strncasecmp(bare, "RTMAX", 5) != 0)
        return 0;
    bare += 5;
    if (*bare &&
        (*bare != (is_min ? '+' : '-') || str_parse_u64(bare + 1, 0, RTMAX - RTMIN, &n, NULL) < 0))
        return 0;
    return is_min ? RTMIN + (int)n : RTMAX - (int)n;
}

int signal_parse(const char *name, int *ret, struct err *e)
{
    const char *bare = strncasecmp(name, "SIG", 3) == 0 ? name + 3 : name;
    int sig = parse_realtime(bare);
    uint64_t n;

    for (size_t i = 0; sig == 0 && i < N_ELEMENTS(signal_names); i++)
        if (strcasecmp(bare, signal_names[i].name) == 0)
            sig = signal_names[i].sig;
    if (sig == 0 && str_parse_u64(bare, 1, RTMAX, &n, NULL) == 0)
        sig = (int)n;
    if (sig == 0)
        return err_set(e, ERR_INVALID, "'%.32s' is not the name of a signal", name);
    *ret = sig;
    return 0;
}

int signal_check(int64_t sig, struct err *e)
{
    if (sig < 1 || sig > RTMAX)
        return err_set(e, ERR_INVALID, "is not the number of a signal");
    return 0;
}
