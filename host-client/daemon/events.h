#pragma once
/*
 * events: the events of the boxes as server-sent events (WHATWG HTML, section 9.2). A client gets first the state of each box
 * (event "box"), then each event as it is stored (event: its kind), with the event's position as the id. One that gives
 * Last-Event-ID gets the events since then in place of the states.
 *
 * The hub watches the store's files: whoever writes an event (a command, a monitor, this daemon) changes them. A worker
 * reads the new events once for all clients and keeps the last ones as text. A client whose position is older
 * than those reads the store through a worker of its own; so a slow client holds nothing but its position.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define EVENTS_KEPT 1024 /* of all boxes, as text */
#define EVENTS_KEPT_BYTES (1024 * 1024)

struct daemon;
struct stream_hub;

extern const struct request_ops events_ops;

/* On the loop's thread, or before it runs. */
/* keep_ms: as of attention_new(). */
int hub_new(struct daemon *d, int64_t keep_ms, struct stream_hub **ret, struct err *e);
/* Is there a change of the store that was not read yet? From any thread. */
bool hub_has_news(struct stream_hub *h);
void hub_quiesce(struct stream_hub *h); /* ends all streams; accepts NULL */
/* After it, when no worker is left. Returns NULL. */
struct stream_hub *hub_free(struct stream_hub *h);
