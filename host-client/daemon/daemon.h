#pragma once
/*
 * daemon: the application context of the routes' handlers. main makes and frees it; the pointers do not change while
 * threads run.
 */
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "lib/util/daemon_lock.h"

struct access;
struct agents;
struct audit;
struct contexts;
struct guests;
struct loop;
struct metrics;
struct pool;
struct repeats;
struct server;
struct stream_hub;
struct webhooks;

struct daemon {
    struct bh_options options; /* of the contexts: every path filled in */
    struct loop *loop;         /* event/loop.h */
    struct pool *pool;         /* event/pool.h: threads for what blocks */
    struct server *server;     /* http/server.h */
    struct contexts *contexts; /* daemon/contexts.h: of libbellhop, one for each job at work */
    struct agents *agents;     /* daemon/agents.h: of the boxes */
    struct stream_hub *hub;    /* daemon/events.h: who follows the events */
    struct repeats *repeats;   /* daemon/repeat.h: answers by Idempotency-Key */
    char *const *domains;      /* PORT-BOX.DOMAIN leads to a port of a box; or NULL */
    struct access *access;     /* daemon/access.h: tokens */
    struct metrics *metrics;   /* daemon/metrics.h */
    struct guests *guests;     /* daemon/guests.h: figures of the boxes' agents */
    struct webhooks *webhooks; /* daemon/webhooks.h; NULL: none */
    struct audit *audit;       /* lib/box/audit.h: the record of calls */
    int64_t started_ms;
    char instance[DAEMON_INSTANCE_BYTES]; /* lib/util/daemon_lock.h */
};
