#pragma once
/*
 * webhooks: posts each event of the boxes to URLs, one after the other as the store has them, so in order for each box.
 * A URL that does not take an event (a status of 2xx) gets it again with back-off; its position is stored after it was
 * taken: at least once. A new URL begins with the events after its first start. Each URL has a thread, which holds one
 * batch of events.
 */
#include "common/err.h"

#define WEBHOOKS_MAX 16

struct daemon;
struct webhooks;

/* urls: NULL-terminated, or NULL: none. secret_file: or NULL: unsigned. Starts the threads. */
int webhooks_new(struct daemon *d, char *const *urls, const char *secret_file,
                 struct webhooks **ret, struct err *e);
void webhooks_look(struct webhooks *w); /* there are new events; from any thread; accepts NULL */
/* Ends the threads; a post that is under way is broken off. Accepts NULL; returns NULL. */
struct webhooks *webhooks_free(struct webhooks *w);
