#pragma once
/*
 * metrics: counters of the daemon, and its answer for Prometheus. The events of boxes count whoever caused them: a
 * command, a monitor, or this daemon.
 */
#include <stdint.h>

#include "common/err.h"

struct bh_event;
struct job;
struct metrics;
struct request;

int metrics_new(struct metrics **ret, struct err *e);
struct metrics *metrics_free(struct metrics *m); /* accepts NULL; returns NULL */

/* On the thread that reads new events. */
void metrics_count_event(struct metrics *m, const struct bh_event *event);
/* A request is over. */
void metrics_count_request(struct metrics *m, const struct request *q);
void metrics_count_relayed(struct metrics *m, uint64_t bytes_in, uint64_t bytes_out);
void metrics_count_followers(struct metrics *m, int change); /* streams of events */
void metrics_count_webhook(struct metrics *m, bool is_taken);

int answer_prometheus(struct job *j, struct err *e);
