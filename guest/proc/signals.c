#include "proc/signals.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/cleanup.h"
#include "common/str.h"

#include "common/banned.h"

#define REALTIME "RTMIN+"

static const struct {
    int sig;
    const char *name;
} names[] = {
    {SIGHUP, "HUP"},   {SIGINT, "INT"},       {SIGQUIT, "QUIT"},     {SIGILL, "ILL"},
    {SIGTRAP, "TRAP"}, {SIGABRT, "ABRT"},     {SIGBUS, "BUS"},       {SIGFPE, "FPE"},
    {SIGKILL, "KILL"}, {SIGUSR1, "USR1"},     {SIGSEGV, "SEGV"},     {SIGUSR2, "USR2"},
    {SIGPIPE, "PIPE"}, {SIGALRM, "ALRM"},     {SIGTERM, "TERM"},     {SIGCHLD, "CHLD"},
    {SIGCONT, "CONT"}, {SIGSTOP, "STOP"},     {SIGTSTP, "TSTP"},     {SIGTTIN, "TTIN"},
    {SIGTTOU, "TTOU"}, {SIGURG, "URG"},       {SIGXCPU, "XCPU"},     {SIGXFSZ, "XFSZ"},
    {SIGPROF, "PROF"}, {SIGVTALRM, "VTALRM"}, {SIGWINCH, "WINCH"},   {SIGIO, "IO"},
    {SIGPWR, "PWR"},   {SIGSYS, "SYS"},       {SIGSTKFLT, "STKFLT"},
};

const char *signal_name(int sig, char out[SIGNAL_NAME_BYTES])
{
    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        if (names[i].sig != sig)
            continue;
        (void)snprintf(out, SIGNAL_NAME_BYTES, "SIG%s", names[i].name);
        return out;
    }
    if (sig >= SIGRTMIN && sig <= SIGRTMAX)
        (void)snprintf(out, SIGNAL_NAME_BYTES, "SIG" REALTIME "%d", sig - SIGRTMIN);
    else
        (void)snprintf(out, SIGNAL_NAME_BYTES, "SIG%d", sig);
    return out;
}

int signal_parse(const char *name, int *ret, struct err *e)
{
    const char *bare = strncasecmp(name, "SIG", 3) == 0 ? name + 3 : name;
    uint64_t n;

    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        if (strcasecmp(bare, names[i].name) != 0)
            continue;
        *ret = names[i].sig;
        return 0;
    }
    if (strncasecmp(bare, REALTIME, strlen(REALTIME)) == 0 &&
        str_parse_u64(bare + strlen(REALTIME), 0, (uint64_t)(SIGRTMAX - SIGRTMIN), &n, NULL) == 0) {
        *ret = SIGRTMIN + (int)n;
        return 0;
    }
    return err_set(e, ERR_INVALID, "'%.32s' is not the name of a signal", name);
}

int signal_check(int64_t sig, struct err *e)
{
    if (sig < 1 || sig > SIGRTMAX)
        return err_set(e, ERR_INVALID, "is not the number of a signal");
    return 0;
}
