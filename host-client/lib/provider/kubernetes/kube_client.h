#pragma once
/*
 * kube_client: the API of a Kubernetes cluster, in one namespace: over TLS as a kubeconfig or a pod's service account
 * says, or through `kubectl proxy` on a unix socket. Answers are bounded and decoded as hostile input. One thread at a
 * time.
 *
 * Source: the Kubernetes API reference (v1.37) and the wire as it was measured.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/util/context.h"

#define KUBE_FIELD "kubeconfig" /* of errors that are about the way to the cluster */
#define KUBE_POD_BYTES 254      /* an object's name */
#define KUBE_CALL_BYTES 1024    /* of kube_websocket() */

struct kube;

/* The namespaced resources that boxes are made of. */
enum kube_kind {
    KUBE_PODS,
    KUBE_SECRETS,
    KUBE_CLAIMS,
    KUBE_POLICIES,
    KUBE_EVENTS,
    KUBE_LEASES, /* of the daemon's leader: kube_lease.h */
    /* Of agent-sandbox, where it is installed. */
    KUBE_SANDBOX_CLAIMS,
    KUBE_SANDBOXES,
    KUBE_WARM_POOLS,
};

/* How the guest agent is reached, when the address of the cluster says so; else the provider chooses. */
enum kube_reach {
    KUBE_REACH_ANY,
    KUBE_REACH_ADDRESS, /* the pod's own address */
    KUBE_REACH_EXEC,    /* `bellhopd dial` in the pod */
    KUBE_REACH_FORWARD, /* port-forward */
};
extern const char *const kube_reach_names[]; /* "any", ...; ends with NULL */

/*
 * The cluster that a new box is made in, from ctx->kubeconfig, kube_context, kube_namespace and kube_registry, as
 * "kubeconfig:PATH", "proxy:SOCKET" or "incluster:HOST:PORT" with "?context=C&namespace=N&registry=R&reach=W". free() it.
 */
int kube_choose(const struct bh_ctx *ctx, char **ret, struct err *e);
/* Connects to nothing yet. ERR_UNIMPLEMENTED: the kubeconfig wants what we lack; it names `kubectl proxy`. */
int kube_open(struct bh_ctx *ctx, const char *engine, int64_t deadline_mono_ms, struct kube **ret,
              struct err *e);
struct kube *kube_free(struct kube *k); /* accepts NULL; returns NULL */

static inline void kube_free_p(struct kube **k)
{
    (void)kube_free(*k);
}
#define _cleanup_kube_ __attribute__((cleanup(kube_free_p)))

const char *kube_engine(const struct kube *k); /* as kube_open() got it */
/*
 * The same with the context and the namespace of the kubeconfig by name: another current context leads no box to another
 * cluster. free() it.
 */
int kube_pin(const struct kube *k, char **ret, struct err *e);
const char *kube_namespace(const struct kube *k);
const char *kube_registry(const struct kube *k); /* the prefix of our images' names */
enum kube_reach kube_reach(const struct kube *k);
bool kube_is_inside(const struct kube *k); /* the addresses of pods are this machine's network */
int kube_cancel_fd(const struct kube *k);
int64_t kube_deadline(const struct kube *k);
void kube_set_deadline(struct kube *k, int64_t deadline_mono_ms);
/*
 * Repeats each call for so long that fails for a reason that passes: no connection, an answer that was cut, 429 (after
 * its Retry-After), 502, 503, 504, and a 500 that says that it passes; any other 500 three times. A creation whose answer
 * was lost finds its own object. 0, the default: not.
 */
void kube_set_patience(struct kube *k, int ms);
int kube_patience(const struct kube *k);

/*
 * Calls. A refusal has Kubernetes' own reason and message: 404 is ERR_NOT_FOUND, AlreadyExists ERR_EXISTS, Conflict
 * ERR_ABORTED, a quota ERR_EXHAUSTED, Pod Security ERR_PRECONDITION, other 401 and 403 ERR_DENIED, 400 and 422
 * ERR_INVALID, 410 ERR_RANGE. Without an answer of the API server itself, or with one about another object:
 * ERR_UNAVAILABLE.
 */
int kube_get(struct kube *k, enum kube_kind kind, const char *name, json_t **ret, struct err *e);
/* query: percent-encoded, "labelSelector=..." */
int kube_list(struct kube *k, enum kube_kind kind, const char *query, json_t **ret, struct err *e);
/*
 * By a list, of which an empty one proves that there is no such object: 1, 0, or an error, which is never ERR_NOT_FOUND.
 * Labels are the caller's to compare.
 */
int kube_find_listed(struct kube *k, enum kube_kind kind, const char *name, json_t **ret,
                     struct err *e);
/* is_trial: admission and quota decide, and nothing is made. *ret (or NULL): the object. */
int kube_create(struct kube *k, enum kube_kind kind, const json_t *body, bool is_trial,
                json_t **ret, struct err *e);
/* The body names the version that it replaces: ERR_ABORTED if there is another one. */
int kube_replace(struct kube *k, enum kube_kind kind, const char *name, const json_t *body,
                 json_t **ret, struct err *e);
/*
 * One that is gone, as the list says, or has another uid by now, is no error; a 404 of an object that is listed is
 * ERR_UNAVAILABLE. grace_s -1: the object's own.
 */
int kube_delete(struct kube *k, enum kube_kind kind, const char *name, const char *uid, int grace_s,
                struct err *e);
/* The same with all that the object owns: it stays until that is gone. */
int kube_delete_tree(struct kube *k, enum kube_kind kind, const char *name, const char *uid,
                     struct err *e);
/* The same of a merge patch, which has metadata.uid. */
int kube_patch(struct kube *k, enum kube_kind kind, const char *name, const char *uid,
               const json_t *body, struct err *e);
/* Does the API server know the kind? 1, 0 or an error: a 404 below /apis/ alone does not tell. */
int kube_serves(struct kube *k, enum kube_kind kind, struct err *e);
/* The last bytes of a pod's output. free() it. */
int kube_logs(struct kube *k, const char *pod, const char *container, char **ret, size_t *ret_len,
              struct err *e);
int kube_version(struct kube *k, json_t **ret, struct err *e);

/*
 * A WebSocket with the changes of the object with that name after `version` (its resourceVersion), and with bookmarks,
 * for half an hour at most. kube_watch() in kube_watch.h reads it. *ret_status (or NULL): of the answer; 0: none came.
 */
int kube_watch_socket(struct kube *k, enum kube_kind kind, const char *name, const char *version,
                      int *ret_status, int *ret_fd, struct err *e);
/* A WebSocket to a subresource of a pod: "exec?command=..."; raw frames. */
int kube_websocket(struct kube *k, const char *pod, const char *call, const char *protocol,
                   int *ret_fd, struct err *e);

/* The text at a path of keys and indices: kube_text(pod, "status", "phase", NULL). "": there is none. */
const char *kube_text_at(const json_t *obj, ...) __attribute__((sentinel));
#define kube_text(...) kube_text_at(__VA_ARGS__, (const char *)NULL)
