#include "test.h"

#include <signal.h>

#include "proc/signals.h"

TEST(signals_have_names_both_ways)
{
    static const struct {
        const char *text;
        int sig;
    } rows[] = {{"SIGKILL", SIGKILL}, {"term", SIGTERM}, {"sigint", SIGINT}, {"SIGRTMIN+3", 0}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int want = rows[i].sig ? rows[i].sig : SIGRTMIN + 3;
        char name[SIGNAL_NAME_BYTES];
        int sig = 0, again = 0;

        T_INT(signal_parse(rows[i].text, &sig, NULL), 0);
        T_INT(sig, want);
        T_INT(signal_parse(signal_name(sig, name), &again, NULL), 0);
        T_INT(again, want);
    }
}

TEST(signals_that_are_none_are_refused)
{
    static const char *const names[] = {"", "SIG", "SIGNOPE", "9", "SIGRTMIN+99", "SIGRTMIN+-1"};
    struct err e = {0};
    int sig;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        T_INT(signal_parse(names[i], &sig, &e), -ERR_INVALID);
    T_INT(signal_check(0, &e), -ERR_INVALID);
    T_INT(signal_check(65, &e), -ERR_INVALID);
    T_INT(signal_check(-1, &e), -ERR_INVALID);
    T_INT(signal_check(15, &e), 0);
}
