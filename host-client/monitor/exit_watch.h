#pragma once
/*
 * exit_watch: tells when the box's first process has ended, and with which status. A pidfd watches
 * a process that the provider made a child of the monitor (has_own_children). Any other provider
 * is asked, by find() once in EXIT_WATCH_ASK_MS; if it has watch(), when that descriptor is readable,
 * and else once in EXIT_WATCH_SELDOM_MS. A descriptor that was readable for nothing is opened anew after
 * EXIT_WATCH_ASK_MS. A provider that fails again and again is asked more and more seldom, within EXIT_WATCH_FAULT_MS, and
 * one that takes its time to fail seldom. For the monitor's one thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/box/box.h"

#define EXIT_WATCH_ASK_MS 1000
#define EXIT_WATCH_FAULT_MS 5000
#define EXIT_WATCH_SELDOM_MS 10000

struct exit_watch {
    struct bh_box *box;
    struct provider_run run;
    int fd; /* the pidfd, readable once the process has ended, or the provider's; -1: it has none */
    int64_t next_ms;   /* monotonic: the provider is asked then; INT64_MAX: never */
    bool has_fault;    /* the provider did not answer when it was last asked */
    bool is_slow;      /* it took its time to fail */
    unsigned n_faults; /* in a row */
    bool is_paused;    /* as the provider said when it last answered */
    bool has_status;
    bool is_oom; /* it was killed for want of memory */
    int status;  /* as waitpid() has it */
};

void exit_watch_init(struct exit_watch *w);
void exit_watch_done(struct exit_watch *w); /* accepts one after init */

int exit_watch_begin(struct exit_watch *w, struct bh_box *box, const struct provider_run *run,
                     struct err *e);
/* Waits up to wait_ms. An error of the provider says nothing about the box: false. */
bool exit_watch_has_ended(struct exit_watch *w, int wait_ms);

/* Asks again within EXIT_WATCH_ASK_MS. */
void exit_watch_ask_soon(struct exit_watch *w);

/* Reaps every child of the monitor that has ended, and keeps the status of the box's first
 * process. */
void exit_watch_reap(struct exit_watch *w);
/* The status of the process, which has ended. False: nobody knows it. */
bool exit_watch_status(struct exit_watch *w, int *ret_status);
