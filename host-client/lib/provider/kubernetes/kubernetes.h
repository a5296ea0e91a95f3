#pragma once
/*
 * kubernetes: parts of the provider that its files share. A box is one Pod, found by its name and proved by its labels
 * at each call, with a Secret (the token), a PersistentVolumeClaim (the disk: home and project) and, without a
 * network, a NetworkPolicy of the same name. `stop` deletes the Pod alone. A box of a pool is a SandboxClaim of that name
 * instead (kube_pool.c); its pod has another name, and is the box's by its uid.
 */
#include <stdbool.h>
#include <stdint.h>

#include "lib/provider/image_user.h"
#include "lib/provider/kubernetes/kube_client.h"
#include "lib/provider/provider.h"

#define KUBE_AGENT "/usr/local/bin/bellhopd"
#define KUBE_AGENT_PORT 4711
#define KUBE_CONTAINER "box"
#define KUBE_NAME_BYTES 32
#define KUBE_UID_BYTES 64
#define KUBE_CONTAINER_BYTES 160
#define KUBE_KILL_GRACE_S 1
#define KUBE_FORCE_AFTER_MS 15000 /* beyond its grace: of a node that does not end a pod */

#define KUBE_LABEL_BOX "dev.bellhop.box"     /* the box's id */
#define KUBE_LABEL_STORE "dev.bellhop.store" /* store_mark() */
#define KUBE_LABEL_NAME "dev.bellhop.name"   /* for people */
#define KUBE_NOTE_OWNER "dev.bellhop.owner"  /* an annotation: the box's label "owner" */

/* ---- objects ---- */

/* A box's pod as the API server has it. */
struct kube_pod {
    json_t *doc;                                               /* owned */
    const char *name, *uid, *version, *phase, *address, *node; /* of doc; never NULL */
    const char *container; /* the id of the box's container; "": it has none yet */
    bool is_running;       /* the box's container runs, as far as its node has told */
    bool is_ready;         /* and all of its probes succeed */
    bool is_lost;          /* its node has stopped telling */
    bool is_ending;        /* it is being deleted */
    bool has_ended;        /* the container has */
    int exit_code;         /* then; -1: nobody knows it */
};
void kube_read_pod_take(json_t *doc, struct kube_pod *ret);
void kube_pod_done(struct kube_pod *p);
#define _cleanup_kube_pod_ __attribute__((cleanup(kube_pod_done)))

void kube_name(const struct provider_box *b, char out[KUBE_NAME_BYTES]);
int kube_open_box(const struct provider_box *b, struct kube **ret, struct err *e);
/* 1, 0: it has none, or an error. One with the name and other labels is ERR_EXISTS. */
int kube_find_pod(const struct provider_box *b, struct kube *k, struct kube_pod *ret,
                  struct err *e);
int kube_check_labels(const struct provider_box *b, const json_t *doc, struct err *e);
/* The same; a pod with another uid than the recorded one is none, and is noted as the reason of the end. */
int kube_find_own_pod(const struct provider_box *b, struct kube *k, struct kube_pod *ret,
                      struct err *e);
/* The same of any kind; *ret is the object, owned by the caller. */
int kube_find(const struct provider_box *b, struct kube *k, enum kube_kind kind, json_t **ret,
              struct err *e);
/* Makes the object of the box; one that is there is proved to be the box's. *ret (or NULL): the object, owned. */
int kube_make(const struct provider_box *b, struct kube *k, enum kube_kind kind, const json_t *body,
              json_t **ret, struct err *e);
/* Deletes it if it is there and the box's. An empty list alone proves that it is not there. */
int kube_unmake(const struct provider_box *b, struct kube *k, enum kube_kind kind, int grace_s,
                struct err *e);

/* An error: nothing of the box is there, not even what proves that the cluster is its own: "secret", its name. */
int kube_not_own_cluster(const struct provider_box *b, const char *what, const char *name,
                         struct err *e);
/*
 * Where the box's pod is not there: an empty list may be another cluster's, under the same name. The box's own has its
 * Secret, its claim or its pool: else an error. A box without a record has made no pod yet: 0.
 */
int kube_check_own_cluster(const struct provider_box *b, struct kube *k, struct err *e);

/* ---- what a box is made of; NULL: out of memory, or no token ---- */

bool kube_has_claim(const struct spec *s);
json_t *kube_new_pod(const struct provider_box *b, struct kube *k, const struct image_user *user,
                     const char *image, const char *mark);
json_t *kube_new_claim(const struct provider_box *b, const char *mark);
json_t *kube_new_secret(const struct provider_box *b, const char *token, const char *mark);
json_t *kube_new_policy(const struct provider_box *b, const char *mark);
json_t *kube_new_sandbox_claim(const struct provider_box *b, const char *mark);

/* ---- why ---- */

/* The reason and message of Kubernetes for a pod that does not run or ends: "" if it gives none. */
#define KUBE_WHY_BYTES 320
void kube_pod_why(const struct kube_pod *p, char out[KUBE_WHY_BYTES]);
/* A start that cannot succeed any more: the error; else 0. */
int kube_pod_failure(const struct kube_pod *p, struct err *e);
/* Why a pod that runs is not ready, as its node says: "" if it is, or its node is lost. */
void kube_pod_unready(const struct kube_pod *p, char out[KUBE_WHY_BYTES]);
/* The last warning among the pod's events. */
void kube_pod_warning(struct kube *k, const struct kube_pod *p, char out[KUBE_WHY_BYTES]);
/* Keeps why the pod ends for a later call, when the object may be gone. */
void kube_note_end(const struct provider_box *b, const struct kube_pod *p);
void kube_read_end(const struct provider_box *b, char out[KUBE_WHY_BYTES]);
/* A container that was started again: notes why the one before it ended; and that as an error. */
void kube_note_restart(const struct provider_box *b, const struct kube_pod *p);
int kube_pod_restarts(const struct kube_pod *p, struct err *e);
/* Keeps the output of the pod, for the error of a start and for the record of the box. */
void kube_save_logs(const struct provider_box *b, struct kube *k, const struct kube_pod *p);
/* A node that has stopped telling: an error, as nobody knows whether the pod runs. */
int kube_node_is_lost(const struct kube_pod *p, struct err *e);
/* When a pod that has been deleted should have ended: its own grace, as far as it is known, and a margin. */
int64_t kube_end_by_ms(const struct kube_pod *p, int grace_s);
bool kube_pod_is_stuck(const struct kube_pod *p, int64_t end_by_mono_ms);
/* The container of the box, of p->doc; NULL: the pod has none. */
const json_t *kube_box_container(const struct kube_pod *p);
/* A pod that runs after that: an error, with what Kubernetes says. */
int kube_pod_does_not_end(const struct kube_pod *p, struct err *e);

/* Waits for a change of the pod, at most max_ms. An error: canceled, or the deadline. */
int kube_wait(const struct provider_box *b, struct kube *k, const struct kube_pod *p, int max_ms,
              struct err *e);

/* ---- the pod's record, in the box's directory ---- */

/* The pod that a start has made or adopted; the way to its agent is not known yet. */
int kube_record_pod(const struct provider_box *b, const char *uid, struct err *e);
/* 1, 0: there is no record, or an error: it cannot be read. */
int kube_record_uid(const struct provider_box *b, char out[KUBE_UID_BYTES], struct err *e);
int kube_record_forget(const struct provider_box *b, struct err *e);

/* ---- the way to the agent ---- */

/* After a start: decides the way, and records it in the box's directory. */
int kube_record_reach(const struct provider_box *b, struct kube *k, const struct kube_pod *p,
                      struct err *e);
int kube_dial(struct provider_box *b, int *ret_fd, struct err *e);
/* The pod that the record names, of the last start. 1, 0: there is no record, or an error: one that cannot be read. */
struct kube_recorded {
    char pod[KUBE_POD_BYTES], uid[KUBE_UID_BYTES], container[KUBE_CONTAINER_BYTES];
};
int kube_read_record(const struct provider_box *b, struct kube_recorded *ret, struct err *e);

/* ---- boxes of a pool ---- */

/* A claim and its Sandbox, which is proved by its owner's uid. */
struct kube_claim {
    json_t *doc, *sandbox;                        /* owned; sandbox NULL: it has none yet */
    const char *uid, *sandbox_uid, *sandbox_name; /* of the two; "" */
};
void kube_claim_done(struct kube_claim *c);
#define _cleanup_kube_claim_ __attribute__((cleanup(kube_claim_done)))
/* 1, 0: there is none, or an error. */
int kube_find_claim(const struct provider_box *b, struct kube *k, struct kube_claim *ret,
                    struct err *e);
int kube_find_claim_pod(struct kube *k, const struct kube_claim *c, struct kube_pod *ret,
                        struct err *e);
bool kube_claim_is_suspended(const struct kube_claim *c);
/* One that is gone by now is no error. */
int kube_suspend(struct kube *k, const struct kube_claim *c, bool is_suspended, struct err *e);
/* Why the claim has no sandbox that is ready, in agent-sandbox's words: "" if it says nothing. */
void kube_claim_why(const struct kube_claim *c, char out[KUBE_WHY_BYTES]);
/* Waits for a change of the pod, or of the claim while it has none. */
int kube_wait_claim(const struct provider_box *b, struct kube *k, const struct kube_claim *c,
                    const struct kube_pod *p, int max_ms, struct err *e);
/* Records whose files the box has, and of which pool (NULL: the recorded one stays). */
int kube_record_claim(const struct provider_box *b, const struct kube_claim *c,
                      const char *pool_uid, struct err *e);
/* Does the claim still have those files? 1, 0 or an error. */
int kube_has_recorded_claim(const struct provider_box *b, struct kube *k,
                            const struct kube_claim *c, struct err *e);
/* Where the claim is not there: an error unless the cluster has the recorded pool, and so is the box's own. */
int kube_check_claim_cluster(const struct provider_box *b, struct kube *k, struct err *e);

/* The functions of provider.h for such a box. */
int kube_pool_check(struct kube *k, struct bh_ctx *ctx, struct spec *spec, struct err *e);
int kube_pool_prepare(const struct provider_box *b, struct kube *k, struct err *e);
/* With the way to the agent. */
int kube_pool_start(const struct provider_box *b, struct kube *k, struct kube_pod *ret,
                    struct err *e);
/* After a start that failed: what Kubernetes says; nothing of it runs on. */
int kube_pool_explain(const struct provider_box *b, int r, struct err *e);
int kube_pool_stop(const struct provider_box *b, struct kube *k, int grace_s, struct err *e);
int kube_pool_destroy(const struct provider_box *b, struct kube *k, struct err *e);
int kube_pool_has_disk(const struct provider_box *b, struct kube *k, struct err *e);
int kube_pool_find_pod(const struct provider_box *b, struct kube *k, struct kube_pod *ret,
                       struct err *e);

int kube_inspect(struct provider_box *b, json_t **ret, struct err *e);

/* ---- gc ---- */

struct kube_sweep_limits {
    int total_ms, object_ms; /* of everything, and of one object or page that does not answer */
    unsigned page;           /* objects of a list's page */
    unsigned pages;          /* of a kind */
};
int kube_sweep(struct bh_ctx *ctx, bool (*is_kept)(void *arg, const char *id, bool has_disk),
               void *arg, void (*report)(void *arg, const char *line), void *report_arg,
               struct err *e);
/* The same within other limits. ERR_DEADLINE: there are objects that were not looked at. */
int kube_sweep_within(struct bh_ctx *ctx, const struct kube_sweep_limits *limits,
                      bool (*is_kept)(void *arg, const char *id, bool has_disk), void *arg,
                      void (*report)(void *arg, const char *line), void *report_arg, struct err *e);
