#pragma once
/*
 * kube_lease: one leader among processes of a cluster, by a Lease of coordination.k8s.io. One thread at a time.
 *
 * Clocks of machines are never compared. A candidate takes a Lease that nobody has changed for its duration, counted by
 * the candidate's own monotonic clock since it first saw the last change. The leader counts from before the request of
 * its last renewal, and its deadline is shorter than the duration: it has ended before anybody may take the Lease.
 * Every write names the version that was read, so that of two writers one is refused. A Lease that is not there is made
 * when it has been missing for the duration: a leader whose Lease was deleted has made it again, or has ended.
 *
 * Source: the Kubernetes API reference (v1.37); the times are those of client-go's leaderelection.
 */
#include <stdint.h>

#include "lib/provider/kubernetes/kube_client.h"

#define KUBE_LEASE_DURATION_MS 15000
#define KUBE_LEASE_DEADLINE_MS 10000 /* of a leader that cannot renew */
#define KUBE_LEASE_RENEW_MS 5000
#define KUBE_LEASE_RETRY_MS 2000
#define KUBE_LEASE_NAME_BYTES 64
#define KUBE_LEASE_HOLDER_BYTES 128

enum kube_lease_state {
    KUBE_LEASE_WAITING, /* another has it, or nobody knows */
    KUBE_LEASE_HELD,
    KUBE_LEASE_LOST, /* it was held; for ever */
};

struct kube_lease;

/* A name that can stand in a path: lower case, digits, '-' and '.'. ERR_INVALID. */
int kube_lease_check_name(const char *name, struct err *e);
/*
 * holder: no other process has it, ever. ctx is kept by the caller; its cancel_fd ends a call. engine as kube_open()
 * takes it. Asks nothing yet.
 */
int kube_lease_new(struct bh_ctx *ctx, const char *engine, const char *name, const char *holder,
                   struct kube_lease **ret, struct err *e);
struct kube_lease *kube_lease_free(struct kube_lease *l); /* accepts NULL; returns NULL */

/*
 * Does what is due, and returns the state. The calls of a leader end by its deadline. *why is filled if something has
 * failed, also if the state stays; its code is 0 else.
 */
enum kube_lease_state kube_lease_step(struct kube_lease *l, struct err *why);
int64_t kube_lease_next_ms(const struct kube_lease *l); /* of the next step, by clock_mono_ms() */
/* The holder that was seen last: "" if there is none. */
const char *kube_lease_seen_holder(const struct kube_lease *l);
/* Gives a held Lease up, so that another can take it at once. Nothing that needs it may run any more. */
int kube_lease_release(struct kube_lease *l, struct err *e);
