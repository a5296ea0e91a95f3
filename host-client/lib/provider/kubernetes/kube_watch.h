#pragma once
/*
 * kube_watch: tells that an object has changed. A thread of its own reads the events: a bookmark only moves the place from
 * which a watch that was cut, or has ended, is resumed.
 */
#include "lib/provider/kubernetes/kube_client.h"

/*
 * A descriptor that becomes readable when the object with that name changes after `version` (its resourceVersion), when
 * the API server does not know that version any more, and when the watch cannot be resumed. It tells nothing else: the
 * object is read anew, and the descriptor is closed.
 */
int kube_watch(struct kube *k, enum kube_kind kind, const char *name, const char *version,
               int *ret_fd, struct err *e);
