#include "test.h"

#include "common/signals.h"

TEST(signals_have_names_both_ways)
{
    static const struct {
        const char *text, *name;
        int sig;
    } rows[] = {{"SIGKILL", "SIGKILL", 9},
                {"term", "SIGTERM", 15},
                {"sigint", "SIGINT", 2},
                {"15", "SIGTERM", 15},
                {"SIG9", "SIGKILL", 9},
                {"stkflt", "SIGSTKFLT", 16},
                {"POLL", "SIGIO", 29},
                {"IO", "SIGIO", 29},
                {"33", "SIG33", 33},
                {"rtmin", "SIGRTMIN", 34},
                {"34", "SIGRTMIN", 34},
                {"SIGRTMIN+1", "SIGRTMIN+1", 35},
                {"RTMAX-1", "SIGRTMIN+29", 63},
                {"SIGRTMAX", "SIGRTMAX", 64}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char name[SIGNAL_NAME_BYTES];
        int sig = 0;

        T_INT(signal_parse(rows[i].text, &sig, NULL), 0);
        T_INT(sig, rows[i].sig);
        T_STR(signal_name(sig, name), rows[i].name);
    }
}

TEST(signals_each_number_has_one_name)
{
    for (int sig = 1; sig <= 64; sig++) {
        char name[SIGNAL_NAME_BYTES];
        int again = 0;

        T_INT(signal_parse(signal_name(sig, name), &again, NULL), 0);
        T_INT(again, sig);
    }
}

TEST(signals_that_are_none_are_refused)
{
    static const char *const names[] = {"",        "SIG",   "SIGNOPE",     "0",           "65",
                                        "-1",      "9x",    "SIGRTMIN+31", "SIGRTMIN+-1", "RTMIN-1",
                                        "RTMAX+1", "RTMINX"};
    struct err e = {0};
    int sig;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        T_INT(signal_parse(names[i], &sig, &e), -ERR_INVALID);
    T_INT(signal_check(0, &e), -ERR_INVALID);
    T_INT(signal_check(65, &e), -ERR_INVALID);
    T_INT(signal_check(-1, &e), -ERR_INVALID);
    T_INT(signal_check(15, &e), 0);
}
